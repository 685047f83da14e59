//go:build !unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify sends the signals that end the program to c.
func Notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// NotifyReopen does nothing, because this system has no signal for reopening files.
func NotifyReopen(chan<- os.Signal) {}

// IsReopen returns false, because this system has no signal for reopening files.
func IsReopen(os.Signal) bool { return false }

// IgnoreBrokenPipes does nothing, because a write to a broken pipe returns an error on this system.
func IgnoreBrokenPipes() {}

// NotifyResize does nothing, because this system has no signal for a resized terminal.
func NotifyResize(chan<- os.Signal) {}
