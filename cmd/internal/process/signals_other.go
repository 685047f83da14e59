//go:build !unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify delivers the signals that end the program.
func Notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// NotifyReopen does nothing: this system has no signal for reopening files.
func NotifyReopen(chan<- os.Signal) {}

func IsReopen(os.Signal) bool { return false }

func IgnoreBrokenPipes() {}

// NotifyResize does nothing: this system has no such signal.
func NotifyResize(chan<- os.Signal) {}
