// Package commits lets an input commit its position at a server: after the outputs have delivered
// or stored the records, it reports the position, while reading goes on.
package commits

import (
	"context"
	"sync"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/input"
)

// A Sink receives the records of an input. [input.Sink] implements it; tests use other
// implementations.
type Sink interface {
	Put(*input.Record) error
	Commit(context.Context) error
	Say(format string, args ...any)
}

// A Committer commits positions on a goroutine that runs from [Start] to Stop. After a call of
// Notify, the goroutine waits until the outputs have delivered or stored the records put so far.
// Then it reports the position of these records.
type Committer struct {
	wake      chan struct{}
	skipPause chan struct{}
	stop      context.CancelFunc
	done      chan struct{}
}

// Start starts a Committer, which pauses for interval after each commit.
//
// pending returns the positions of the records put so far, and whether there are any. The Committer
// calls sink.Commit and then report with these positions. If Commit fails, report is not called,
// and the next call of pending returns these positions again.
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

// Notify reports that there are records to commit. It never blocks.
func (c *Committer) Notify() { Signal(c.wake) }

// NotifyNow is like Notify, and also ends a pause between commits.
func (c *Committer) NotifyNow() {
	Signal(c.skipPause)
	c.Notify()
}

// Signal sends a value to ch, which has capacity one, unless a value is already waiting.
func Signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Stop stops the goroutine and waits for it.
func (c *Committer) Stop() {
	c.stop()
	<-c.done
}

// A FailureLog logs the failures of an operation that is repeated. It logs a failure once, however
// often it recurs, and then its end. It is safe for concurrent use.
type FailureLog struct {
	Sink Sink

	mu       sync.Mutex
	reported string
}

// Failed records that the operation failed with err. It logs message, followed by err, unless the
// last logged failure has the same text.
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

// Worked records that the operation succeeded.
func (f *FailureLog) Worked() {
	f.mu.Lock()
	was := f.reported != ""
	f.reported = ""
	f.mu.Unlock()
	if was {
		f.Sink.Say("works again")
	}
}
