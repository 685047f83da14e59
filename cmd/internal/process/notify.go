package process

import (
	"net"
	"os"
	"strconv"
	"time"
)

// systemd notifies the service manager, if there is one, that the program is ready, alive or
// stopping, with the protocol of sd_notify(3).
type systemd struct {
	socket string // empty without a service manager
	every  time.Duration
}

// NewSystemd reads the environment variables NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
func NewSystemd() systemd {
	s := systemd{socket: os.Getenv("NOTIFY_SOCKET")}
	if pid := os.Getenv("WATCHDOG_PID"); s.socket == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return s
	}
	if us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
		s.every = time.Duration(us) * time.Microsecond / 2
	}
	return s
}

// Notify sends state to the service manager. Errors are ignored, because the manager reacts to a
// missing notification.
func (s systemd) Notify(state string) {
	if s.socket == "" {
		return
	}
	name := s.socket
	if name[0] == '@' {
		name = "\x00" + name[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte(state))
}

// Watchdog returns a channel that receives when the next keep-alive is due, and a function that
// releases it.
func (s systemd) Watchdog() (due <-chan time.Time, stop func()) {
	if s.every <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(s.every)
	return t.C, t.Stop
}
