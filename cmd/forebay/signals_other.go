//go:build !unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// notify delivers the signals that end the program. There is none to reopen files
// here.
func notify(c chan<- os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }

func isReopen(os.Signal) bool { return false }

func ignoreBrokenPipes() {}
