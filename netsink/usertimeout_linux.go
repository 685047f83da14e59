package netsink

import (
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT (tcp(7)), which package syscall lacks.
const tcpUserTimeout = 18

// control limits how long sent bytes may stay unacknowledged. Without it, a peer whose machine is
// down is detected only after a quarter of an hour, as long as writes fit into the kernel's
// buffer.
func (o *Config) control(network, _ string, c syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return nil
	}
	ms := int(o.WriteTimeout.Milliseconds())
	return c.Control(func(fd uintptr) {
		// Best effort: the write deadline is decisive.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, ms)
	})
}
