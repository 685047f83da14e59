package process

import (
	"net"
	"os"
	"strconv"
	"time"
)

// systemd sends notifications to the service manager, as sd_notify(3) does. If there is no service
// manager, it does nothing.
type systemd struct {
	socket string        // "" without a service manager
	every  time.Duration // interval between keep-alives; 0 if there is no watchdog
}

// NewSystemd reads the configuration from the environment variables NOTIFY_SOCKET, WATCHDOG_USEC
// and WATCHDOG_PID.
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

// Notify sends state to the service manager. Errors are ignored, because the service manager
// notices a missing notification.
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

// Watchdog returns a channel that receives a value whenever a keep-alive must be sent. The caller
// must call stop when no more keep-alives are needed. If there is no watchdog, the channel is nil.
func (s systemd) Watchdog() (due <-chan time.Time, stop func()) {
	if s.every <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(s.every)
	return t.C, t.Stop
}
