package slab

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// The account balances whenever it is asked for, not only at rest: also while the drain
// goes from slab to slab with half of the lock, and changes to all of it and back.
func TestAccountAtEveryMoment(t *testing.T) {
	for name, o := range map[string]Options{
		"block":       {WhenFull: Block()},
		"block-for":   {WhenFull: BlockFor(50 * time.Microsecond)},
		"drop-oldest": {WhenFull: DropOldest()},
	} {
		accountAtEveryMoment(t, name, o, true)
		accountAtEveryMoment(t, name+", not inline", o, false)
	}
}

func accountAtEveryMoment(t *testing.T, name string, o Options, inline bool) {
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
		to := courierFor(r)
		to.wait, to.wants.Inline = 5*time.Microsecond, inline
		w := mustSink(t, to, &o)
		if !w.halfLock {
			t.Error("the drain takes all of the lock")
		}
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
