//go:build unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify relays the signals that end the program to c.
func Notify(c chan<- os.Signal) { signal.Notify(c, syscall.SIGINT, syscall.SIGTERM) }

// NotifyReopen relays SIGHUP, which reopens files, to c.
func NotifyReopen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGHUP) }

// IsReopen reports whether s is the signal that reopens files.
func IsReopen(s os.Signal) bool { return s == syscall.SIGHUP }

// IgnoreBrokenPipes makes a write to a broken pipe, or beyond the file size limit (SIGXFSZ), return
// an error instead of ending the program. The other outputs continue, and waiting records are not
// lost.
func IgnoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ) }

// NotifyResize relays the signal for a resized terminal to c.
func NotifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
