// Package contain calls user functions so that a panic or runtime.Goexit does not end the
// caller's goroutine.
package contain

import (
	"errors"
	"fmt"
	"runtime/debug"
)

var errGoexit = errors.New("it called runtime.Goexit")

// Call runs f on a new goroutine and waits until it ends. It returns nil if f returned, and
// an error after runtime.Goexit or, with the stack, after a panic. It is meant for
// infrequent calls: each one costs a goroutine.
func Call(f func()) (err error) {
	ended := make(chan struct{})
	err = errGoexit
	go func() {
		defer close(ended)
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("it panicked: %v\n%s", r, debug.Stack())
			}
		}()
		f()
		err = nil
	}()
	<-ended
	return err
}
