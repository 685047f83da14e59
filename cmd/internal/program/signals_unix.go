//go:build unix

package program

import (
	"os"
	"os/signal"
	"syscall"
)

// notify delivers the signals that end the program.
func notify(c chan<- os.Signal) { signal.Notify(c, syscall.SIGINT, syscall.SIGTERM) }

// notifyReopen delivers the signal that reopens files.
func notifyReopen(c chan<- os.Signal) { signal.Notify(c, syscall.SIGHUP) }

func isReopen(s os.Signal) bool { return s == syscall.SIGHUP }

// ignoreBrokenPipes turns the death by a signal into an error of the write that
// caused it: an output whose reader is gone is no reason to stop the others, and
// a file at its size limit (SIGXFSZ) none to lose what waits.
func ignoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ) }

// notifyResize delivers the signal that the terminal has another size.
func notifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
