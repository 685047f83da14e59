package netsink

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT (tcp(7)), which package syscall lacks.
const tcpUserTimeout = 18

// control is the net.Dialer.Control of TCP connections. It sets WriteTimeout as the limit of how
// long sent bytes may stay unacknowledged. Without this limit, writes to a dead machine succeed
// until the send buffer is full, and the kernel reports the failure only after about 15 minutes.
func (o *Config) control(network, _ string, c syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return nil
	}
	ms := int(o.WriteTimeout.Milliseconds())
	return c.Control(func(fd uintptr) {
		// An error is ignored, because the write deadline also detects a dead peer, only later.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, ms)
	})
}
