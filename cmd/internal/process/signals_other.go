//go:build !unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify relays the signals that end the program to c.
func Notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// NotifyReopen does nothing, because this system has no signal for reopening files.
func NotifyReopen(chan<- os.Signal) {}

// IsReopen returns false.
func IsReopen(os.Signal) bool { return false }

// IgnoreBrokenPipes does nothing, because writes to broken pipes only return errors here.
func IgnoreBrokenPipes() {}

// NotifyResize does nothing, because this system has no signal for a resized terminal.
func NotifyResize(chan<- os.Signal) {}
