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

// IgnoreBrokenPipes turns the death by a signal into an error of the write that
// caused it: an output whose reader is gone is no reason to stop the others, and
// a file at its size limit (SIGXFSZ) none to lose what waits.
func IgnoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ) }

// NotifyResize delivers the signal that the terminal has another size.
func NotifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
