// Package commits lets an input commit its position at a server. When the outputs have delivered or
// stored the records up to a position, the position is reported to the server. Reading continues in
// the meantime.
package commits

import (
	"context"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/input"
)

// A Sink receives the records of an input. [input.Sink] implements it.
type Sink interface {
	Put(*input.Record) error
	Commit(context.Context) error
	Say(format string, args ...any)
}

// A Committer commits positions on a goroutine that runs from [Start] to Stop. After Notify was
// called, the goroutine waits until the outputs have delivered or stored all records that were put,
// and reports their positions.
type Committer struct {
	wake      chan struct{}
	skipPause chan struct{}
	stop      context.CancelFunc
	done      chan struct{}
}

// Start starts a Committer. After each commit, it pauses for interval.
//
// The Committer calls pending, sink.Commit and report. The function pending returns the positions
// of the records that were put, or false if there are none. If Commit succeeds, report receives the
// positions. If Commit fails, pending must return these positions again.
func Start[T any](sink Sink, interval time.Duration, pending func() (T, bool), report func(context.Context, T)) *Committer {
	ctx, stop := context.WithCancel(context.Background())
	c := &Committer{wake: make(chan struct{}, 1), skipPause: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.wake:
			}
			if all, ok := pending(); ok && sink.Commit(ctx) == nil {
				report(ctx, all)
			} else if ok {
				c.Notify()
			}
			select {
			case <-ctx.Done():
				return
			case <-c.skipPause:
			case <-time.After(interval):
			}
		}
	}()
	return c
}

// Notify reports that there are records to commit. It does not block.
func (c *Committer) Notify() { Signal(c.wake) }

// NotifyNow is like Notify, but also ends a pause after a commit.
func (c *Committer) NotifyNow() {
	Signal(c.skipPause)
	c.Notify()
}

// Signal sends a value to ch, unless ch is full. The capacity of ch is one.
func Signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Stop stops the goroutine and waits for its end.
func (c *Committer) Stop() {
	c.stop()
	<-c.done
}

// A FailureLog logs the failures of a repeated operation. If the same failure occurs repeatedly, it
// logs the failure once, and later its end. It is safe for concurrent use.
type FailureLog struct {
	Sink Sink

	mu       sync.Mutex
	reported string
}

// Failed is called when the operation has failed with err. It logs message and err, unless the last
// logged failure has the same text.
func (f *FailureLog) Failed(message string, err error) {
	f.mu.Lock()
	text := message + ": " + err.Error()
	isNew := text != f.reported
	f.reported = text
	f.mu.Unlock()
	if isNew {
		f.Sink.Say("%s; retrying", text)
	}
}

// Worked is called when the operation has succeeded.
func (f *FailureLog) Worked() {
	f.mu.Lock()
	was := f.reported != ""
	f.reported = ""
	f.mu.Unlock()
	if was {
		f.Sink.Say("works again")
	}
}
