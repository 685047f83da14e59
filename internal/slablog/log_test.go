package slablog

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// The account balances at any moment. This also holds while the consumer moves between slabs with
// only one of the two locks, and when it acquires the other one.
func TestAccountAtEveryMoment(t *testing.T) {
	for name, o := range map[string]slab.Options{
		"block":       {WhenFull: slab.Block()},
		"block-for":   {WhenFull: slab.BlockFor(50 * time.Microsecond)},
		"drop-oldest": {WhenFull: slab.DropOldest()},
	} {
		accountAtEveryMoment(t, name, o, true)
		accountAtEveryMoment(t, name+", not inline", o, false)
	}
}

func accountAtEveryMoment(t *testing.T, name string, o slab.Options, inline bool) {
	t.Run(name, func(t *testing.T) {
		o.SlabBytes, o.SlabCount, o.FlushInterval = 512, 12, 100*time.Microsecond
		r := &recorder{answer: func(call int, b *batch.Batch) (o batch.Outcome) {
			switch {
			case call%97 == 0:
				return partly(b.Len() / 2)
			case call%89 == 0:
				return refused(0)
			}
			return o
		}}
		to := consumerFor(r)
		to.wait, to.wants.Inline = 5*time.Microsecond, inline
		w := mustSink(t, to, &o)
		var callers, asker sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for i := range 3000 {
					if _, err := w.Write(line(i, 40+i%70)); err != nil {
						t.Error(err)
					}
					if i%500 == 0 {
						_ = w.Flush(t.Context())
					}
				}
			})
		}
		ctx, stop := context.WithCancel(t.Context())
		asker.Go(func() {
			for ctx.Err() == nil {
				if err := w.Account().Check(); err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched()
			}
		})
		callers.Wait()
		stop()
		asker.Wait()
		if _, err := w.Shutdown(t.Context()); err != nil && !errors.Is(err, errDown) {
			t.Error(err)
		}
		if a := w.Account(); a.Check() != nil || a.Accepted != 12000 || a.Pending.Total() != 0 {
			t.Errorf("account %v", a)
		}
	})
}

// endless is a destination that fills a slab for each slab that it receives, until it is flushed.
type endless struct {
	w      *pump
	sends  int
	queued func() // returns when a Flush is waiting or has returned
	done   bool
}

func (e *endless) Send(context.Context, *batch.Batch) (o batch.Outcome) {
	if e.queued(); e.sends < 5000 && !e.done {
		e.sends++
		_, _ = e.w.Write(line(0, 900))
	}
	return o
}

func (e *endless) Flush() error {
	e.done = true
	return nil
}

// A Flush is performed even if there are always full slabs: the consumer does not continue forever
// with only one of the two locks.
func TestFlushUnderFullSlabs(t *testing.T) {
	e := &endless{}
	e.w = mustSink(t, e, &slab.Options{SlabBytes: 1024, SlabCount: 8, FlushInterval: -1})
	returned := make(chan struct{}) // closed when Flush has returned
	e.queued = sync.OnceFunc(func() {
		for waits := false; !waits; runtime.Gosched() {
			select {
			case <-returned:
				return
			default:
			}
			e.w.mu.Lock()
			waits = len(e.w.ops) > 0
			e.w.mu.Unlock()
		}
	})
	for i := range 4 {
		mustWrite(t, e.w, i, 900)
	}
	if err := e.w.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	n := e.w.Account().Delivered
	close(returned)
	if n < 4 || n > 14 {
		t.Errorf("Flush returns when %d records are delivered", n)
	}
	closeNow(t, e.w)
}

// busyFlush is a destination that hangs in its first Flush and in each later Send.
type busyFlush struct {
	hang    bool
	flushed chan struct{} // closed to end the hanging Flush
	sent    chan struct{} // closed to end the hanging Sends
}

func (d *busyFlush) Send(context.Context, *batch.Batch) (o batch.Outcome) {
	if d.hang {
		<-d.sent
	}
	return o
}

func (d *busyFlush) Flush() error {
	d.hang = true
	<-d.flushed
	return nil
}

// While one Flush runs, another Flush waits. It is performed before later records are delivered,
// even if they fill a slab.
func TestFlushBeforeLaterSlab(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := &busyFlush{flushed: make(chan struct{}), sent: make(chan struct{})}
		w := mustSink(t, d, &slab.Options{SlabBytes: 1024, SlabCount: 8, FlushInterval: -1})
		mustWrite(t, w, 0, 50)
		var ended [2]bool
		for i := range ended {
			go func() {
				if err := w.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				ended[i] = true
			}()
			synctest.Wait()
		}
		mustWrite(t, w, 1, 900)
		mustWrite(t, w, 2, 900)
		close(d.flushed)
		synctest.Wait()
		if ended != [2]bool{true, true} {
			t.Errorf("the Flushes have ended: %v", ended)
		}
		close(d.sent)
		closeNow(t, w)
	})
}
