//go:build unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify sends the signals that end the program to c.
func Notify(c chan<- os.Signal) { signal.Notify(c, syscall.SIGINT, syscall.SIGTERM) }

// NotifyReopen sends SIGHUP to c. SIGHUP requests that output files are reopened.
func NotifyReopen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGHUP) }

// IsReopen reports whether s requests that output files are reopened.
func IsReopen(s os.Signal) bool { return s == syscall.SIGHUP }

// IgnoreBrokenPipes makes a write to a broken pipe return an error instead of ending the program,
// and also a write beyond the file size limit (SIGXFSZ). The other outputs then continue, and
// waiting records are not lost.
func IgnoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ) }

// NotifyResize sends the signal about a resized terminal to c.
func NotifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
