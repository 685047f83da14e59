// Package contain calls user-supplied functions. A panic or a runtime.Goexit in such a function
// does not end the goroutine of the caller.
package contain

import (
	"errors"
	"fmt"
	"runtime/debug"
)

var errGoexit = errors.New("it called runtime.Goexit")

// Call runs f in a new goroutine and waits for its end. It returns nil if f returned normally.
// Otherwise it returns an error; after a panic, the error contains the stack. Each call costs a
// goroutine, so Call is meant for infrequent calls.
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
