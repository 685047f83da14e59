// Package contain calls functions of users whose end must not be that of the caller's
// goroutine.
package contain

import (
	"errors"
	"fmt"
	"runtime/debug"
)

var errGoexit = errors.New("it called runtime.Goexit")

// Call runs f on a goroutine of its own and waits for its end. It returns nil if f has
// returned, and an error after a panic, with the stack, or after runtime.Goexit. It is
// for what is called seldom: a call costs a goroutine.
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
