//go:build !unix

package program

import (
	"os"
	"os/signal"
	"syscall"
)

// notify delivers the signals that end the program.
func notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

// notifyReopen does nothing: there is no signal to reopen files here.
func notifyReopen(chan<- os.Signal) {}

func isReopen(os.Signal) bool { return false }

func ignoreBrokenPipes() {}

// notifyResize does nothing: there is no such signal here.
func notifyResize(chan<- os.Signal) {}
