//go:build !unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify delivers the signals that end the program.
func Notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// NotifyReopen does nothing: there is no signal to reopen files here.
func NotifyReopen(chan<- os.Signal) {}

func IsReopen(os.Signal) bool { return false }

func IgnoreBrokenPipes() {}

// NotifyResize does nothing: there is no such signal here.
func NotifyResize(chan<- os.Signal) {}
