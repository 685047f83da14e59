package forebay

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
)

// A panicky is an output with a method Stats like that of deliver.Output. The method panics.
type panicky struct{ memOutput }

func (*panicky) Stats() deliver.OutputStats { panic("no statistics") }

// The statistics of an output include the statistics of its deliver.Output.
func TestStatsIncludeDelivery(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRouter(t, Writer(io.Discard), Writer(io.Discard, Direct()), Writer(new(panicky)),
			To(deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome { return batch.FailedOutcome(errors.New("down")) })),
			OnError(func(batch.Event) {}))
		log := r.Logger()
		log.Info("once")
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		time.Sleep(time.Second)
		st := r.Stats()
		for i, want := range []bool{true, false, false, true} {
			d := st.Outputs[i].Delivery
			if (d != nil) != want || d != nil && (d.Accepted != 1 || d.Slab.SlabCount == 0) {
				t.Errorf("output %d: %+v", i, d)
			}
		}
		if o := st.Outputs[3]; !o.FailingSince.Equal(began) || o.Delivery.Deliver.LastError != "down" || !st.Outputs[0].FailingSince.IsZero() {
			t.Errorf("failing since %v, want %v", o.FailingSince, began)
		}
		if st.Closed {
			t.Error("closed already")
		}
		_, _ = r.Close(t.Context())
		if !r.Stats().Closed {
			t.Error("not closed")
		}
	})
}

// A moody writer accepts or refuses records, panics or ends the goroutine of its caller.
type moody struct{ calls, accepted atomic.Uint64 }

func (m *moody) Write(p []byte) (int, error) {
	switch m.calls.Add(1) % 6 {
	case 0:
		return 0, errors.New("refused")
	case 1:
		panic("on purpose")
	case 2:
		runtime.Goexit()
	}
	m.accepted.Add(1)
	return len(p), nil
}

// A moodyBuffer is a moody writer that is a buffered output without an account.
type moodyBuffer struct{ moody }

func (m *moodyBuffer) WriteRecord(p []byte, _ batch.Meta) error {
	_, err := m.Write(p)
	return err
}

// The account that the Router keeps for an output balances at each moment, and no total decreases.
func TestAccountOfTheRouterInMotion(t *testing.T) {
	for name, open := range map[string]func(w *moody) []OutputSpec{
		"direct": func(w *moody) []OutputSpec { return []OutputSpec{Writer(w, Direct())} },
		"shared": func(w *moody) []OutputSpec { return []OutputSpec{Writer(w, Direct()), Writer(w, Direct())} },
	} {
		t.Run(name, func(t *testing.T) {
			w := new(moody)
			inMotion(t, w, Route(plain(), open(w)...))
		})
	}
	t.Run("buffered", func(t *testing.T) {
		w := new(moodyBuffer)
		inMotion(t, &w.moody, Route(plain(), Writer(w)))
	})
}

// inMotion logs records from several goroutines, and reads the accounts at the same time.
func inMotion(t *testing.T, w *moody, route Option) {
	const records = 6_000
	r := newRouter(t, route, OnError(func(batch.Event) {}))
	log := r.Logger()
	var left atomic.Int64
	left.Store(records)
	var wg sync.WaitGroup
	var caller func()
	caller = func() {
		defer func() { // Write may have ended the goroutine
			if left.Load() > 0 {
				wg.Go(caller)
			}
		}()
		for left.Add(-1) >= 0 {
			log.Info("m")
		}
	}
	for range 8 {
		wg.Go(caller)
	}
	var done atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		before := r.Stats().Outputs
		for !done.Load() {
			now := r.Stats().Outputs
			for i, o := range now {
				b := before[i]
				if err := o.Account.Check(); err != nil || o.Delivered < b.Delivered || o.Dropped[batch.Failed] < b.Dropped[batch.Failed] || o.Accepted < b.Accepted {
					t.Errorf("%v after %v: %v", o.Account, b.Account, err)
					return
				}
			}
			before = now
		}
	})
	wg.Wait()
	done.Store(true)
	reader.Wait()
	var all, delivered uint64
	st := r.Stats()
	for _, o := range st.Outputs {
		all += o.Accepted
		delivered += o.Delivered
		if o.Pending.Total() != 0 {
			t.Errorf("at rest: %v", o.Account)
		}
	}
	if want := uint64(records * len(st.Outputs)); all != want || delivered != w.accepted.Load() {
		t.Errorf("accepted %d, want %d; delivered %d, want %d", all, want, delivered, w.accepted.Load())
	}
}
