//go:build !unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify sends the signals that end the program to c.
func Notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// NotifyReopen does nothing, because this system has no signal that requests to reopen files.
func NotifyReopen(chan<- os.Signal) {}

// IsReopen returns false, because NotifyReopen sends no signals.
func IsReopen(os.Signal) bool { return false }

// IgnoreBrokenPipes does nothing, because on this system a write to a broken pipe returns an error.
func IgnoreBrokenPipes() {}

// NotifyResize does nothing, because this system has no signal about a resized terminal.
func NotifyResize(chan<- os.Signal) {}
