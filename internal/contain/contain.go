// Package contain calls user functions so that a panic or runtime.Goexit does not end the
// caller's goroutine.
package contain

import (
	"errors"
	"fmt"
	"runtime/debug"
)

var errGoexit = errors.New("it called runtime.Goexit")

// Call runs f on a new goroutine and waits for its end. It returns nil if f returned. After
// runtime.Goexit or a panic it returns an error, which contains the stack of the panic. Each call
// costs a goroutine, so it is meant for infrequent calls.
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
