//go:build unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify sends the signals that end the program to c.
func Notify(c chan<- os.Signal) { signal.Notify(c, syscall.SIGINT, syscall.SIGTERM) }

// NotifyReopen sends SIGHUP to c, the signal for reopening output files.
func NotifyReopen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGHUP) }

// IsReopen reports whether s is the signal for reopening output files.
func IsReopen(s os.Signal) bool { return s == syscall.SIGHUP }

// IgnoreBrokenPipes makes a write return an error instead of ending the program, if the pipe is
// broken or the file has reached the file size limit (SIGXFSZ). Other outputs can then continue.
func IgnoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ) }

// NotifyResize sends the signal for a resized terminal to c.
func NotifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
