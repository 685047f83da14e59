//go:build !unix

package main

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
