package netsink

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT (tcp(7)), which package syscall lacks.
const tcpUserTimeout = 18

// control bounds how long sent bytes may stay unacknowledged. Without it a peer
// whose machine is gone is noticed only after a quarter of an hour, as long as
// writes fit the kernel's buffer.
func (o *Options) control(network, _ string, c syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return nil
	}
	ms := int(o.WriteTimeout.Milliseconds())
	return c.Control(func(fd uintptr) {
		// Best effort: the write deadline is what counts.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, ms)
	})
}
