//go:build linux || darwin

package slablog

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// lifeStep is a transition between states of life.
type lifeStep struct{ from, to life }

// lifeSteps are the transitions in the diagram of the type life.
var lifeSteps = []lifeStep{
	{accepting, closing}, {closing, ended},
}

// become makes each transition in lifeSteps and rejects all others.
func TestLifeSteps(t *testing.T) {
	defer func(f func(from, to life)) { wrongLife = f }(wrongLife)
	for from := accepting; from <= ended; from++ {
		for to := accepting; to <= ended; to++ {
			var wrong []lifeStep
			wrongLife = func(from, to life) { wrong = append(wrong, lifeStep{from, to}) }
			now := from
			now.become(to)
			if s := (lifeStep{from, to}); slices.Contains(lifeSteps, s) {
				if now != to || len(wrong) > 0 {
					t.Errorf("%v → %v: state %v, reported %v", from, to, now, wrong)
				}
			} else if now != from || !slices.Equal(wrong, []lifeStep{s}) {
				t.Errorf("%v → %v is not in the diagram: state %v, reported %v", from, to, now, wrong)
			}
		}
	}
}

// watched is a consumer that stores the life of its Writer when Close begins.
type watched struct {
	consumer
	w    *pump
	seen *[]life
}

func (b *watched) Drain(deadline time.Time) {
	*b.seen = append(*b.seen, b.w.lifeNow())
	b.consumer.Drain(deadline)
}

func (w *pump) lifeNow() life {
	w.store.lock()
	defer w.store.unlock()
	return w.store.life
}

// A Writer may end in each of these ways with an exact account. If the destination hung, its later
// answer does not change the Writer.
func TestLife(t *testing.T) {
	const records = 3
	hang := func() (sendFunc, chan struct{}) {
		c := make(chan struct{})
		return func(context.Context, *batch.Batch) (o batch.Outcome) { <-c; return o }, c
	}
	kept := batch.Account{Accepted: records, Pending: batch.Pending{Slab: records}}
	dropped := batch.Account{Accepted: records, Dropped: drops(batch.Shutdown, records)}
	walked := map[lifeStep]bool{}
	for name, c := range map[string]struct {
		dst  func() (to any, release chan struct{})
		safe bool
		want batch.Account
	}{
		"all delivered": {
			dst:  func() (any, chan struct{}) { return &recorder{}, nil },
			want: batch.Account{Accepted: records, Delivered: records},
		},
		"the consumer drops the rest": {
			dst:  func() (any, chan struct{}) { return sendFunc(failing), nil },
			want: dropped,
		},
		"the consumer retains the rest": {
			dst:  func() (any, chan struct{}) { return sendFunc(failing), nil },
			safe: true, want: kept,
		},
		"the consumer retains the rest, and the destination does not end": {
			dst: func() (any, chan struct{}) {
				s := &hangingEnd{end: make(chan struct{})}
				return s, s.end
			},
			safe: true, want: kept,
		},
		"Shutdown drops the rest": {
			dst:  func() (any, chan struct{}) { s, c := hang(); return s, c },
			want: dropped,
		},
		"Shutdown retains the rest": {
			dst:  func() (any, chan struct{}) { s, c := hang(); return s, c },
			safe: true, want: kept,
		},
		"Shutdown retains what the consumer gave back": {
			dst: func() (any, chan struct{}) {
				c := consumerFor(sendFunc(failing))
				c.wants.Inline = false
				return c, nil
			},
			safe: true, want: kept,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				dst, release := c.dst()
				o := &slab.Options{SlabBytes: 512, FlushInterval: time.Millisecond}
				if c.safe {
					o.Crash = &slab.Crash{Dir: t.TempDir(), Required: true}
				}
				var seen []life
				b := &watched{consumer: toConsumer(dst), seen: &seen}
				w := mustSink(t, b, o)
				b.w = w
				for i := range records {
					mustWrite(t, w, i, 20)
				}
				time.Sleep(time.Second)
				seen = append(seen, w.lifeNow())
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				r, err := w.Shutdown(ctx)
				seen = append(seen, w.lifeNow())
				if want := []life{accepting, closing, ended}; !slices.Equal(seen, want) {
					t.Errorf("states %v, want %v", seen, want)
				}
				for i := range seen[1:] {
					walked[lifeStep{seen[i], seen[i+1]}] = true
				}
				if lost := c.want.Dropped.Total() > 0; (err != nil) != lost || r.Account != c.want {
					t.Errorf("%v, %v, want %v", r.Account, err, c.want)
				}
				if release != nil {
					close(release)
				}
				synctest.Wait()
				<-w.done
				if now := w.lifeNow(); now != ended || w.Account() != c.want { // a late answer has no effect
					t.Errorf("final state %v: %v, want %v", now, w.Account(), c.want)
				}
				if _, err := w.Write(line(0, 20)); !errors.Is(err, batch.ErrClosed) {
					t.Errorf("a write after Close: %v", err)
				}
			})
		})
	}
	for _, s := range lifeSteps {
		if !walked[s] {
			t.Errorf("no Writer went from %v to %v", s.from, s.to)
		}
	}
}

func failing(context.Context, *batch.Batch) batch.Outcome { return failed() }

// Shutdown does not wait for a hanging LastResort, and counts the records that LastResort has not
// written. Later writes of LastResort change nothing.
func TestLastResortAfterTheEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dst, resort := newGate(), newGate()
		w := mustNew(t, dst, &slab.Options{SlabBytes: 512, SlabCount: 2, MaxRecord: 400, WhenFull: slab.DropNewest(), LastResort: resort})
		for i := range 10 {
			_ = w.WriteRecord(line(i, 400), batch.Meta{Level: 100})
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, _ := w.Shutdown(ctx)
		if want := (batch.Account{Accepted: 10, Dropped: drops(batch.Shutdown, 10)}); r.Account != want {
			t.Errorf("%v, want %v", r.Account, want)
		}
		dst.open()
		resort.open()
		time.Sleep(time.Second)
		if a := w.Account(); a != r.Account || resort.calls == 0 {
			t.Errorf("after %d writes of the last resort: %v, want %v", resort.calls, a, r.Account)
		}
	})
}
