package netsink

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT (tcp(7)), which package syscall lacks.
const tcpUserTimeout = 18

// control is the net.Dialer.Control of TCP connections. It sets WriteTimeout as the limit of how
// long sent bytes may stay unacknowledged. Without this limit, the kernel detects a dead machine
// only after about 15 minutes, while writes still fit into its buffer.
func (o *Config) control(network, _ string, c syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return nil
	}
	ms := int(o.WriteTimeout.Milliseconds())
	return c.Control(func(fd uintptr) {
		// An error is ignored: the write deadline detects the peer later.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, ms)
	})
}
