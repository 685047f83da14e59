//go:build unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify delivers the signals that end the program.
func Notify(c chan<- os.Signal) { signal.Notify(c, syscall.SIGINT, syscall.SIGTERM) }

// NotifyReopen delivers the signal that reopens files.
func NotifyReopen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGHUP) }

func IsReopen(s os.Signal) bool { return s == syscall.SIGHUP }

// IgnoreBrokenPipes makes a write fail with an error instead of ending the program with a signal. A
// lost reader of one output must not stop the other outputs, and a file at its size limit (SIGXFSZ)
// must not lose waiting records.
func IgnoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ) }

// NotifyResize delivers the signal for a changed terminal size.
func NotifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
