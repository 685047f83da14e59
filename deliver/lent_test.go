package deliver

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// With Lent, Send returns when all is settled, and the tally says what was not
// delivered.
func TestLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := testkit.NewSink(testkit.Script(testkit.First(3), testkit.Fail(testkit.ErrDown), testkit.PoisonedByIndex(bad(5, 9), 400)))
		dead := &handlerLog{}
		x := mustNew(t, FromSink(sink), &Options{Lent: true, DeadLetter: dead})
		m := &testkit.Model{}
		b := m.Batch(10, 32, batch.Meta{})
		if err := x.Send(t.Context(), b); err != nil || b.Tally != (batch.Tally{Dropped: batch.Drops{batch.Poison: 2}}) {
			t.Errorf("%v, %+v", err, b.Tally)
		}
		m.Sent(b, nil)
		if a := balance(t, m, x); a.Delivered != 8 || x.Account() != (batch.Account{}) {
			t.Errorf("%s, the outlet's own: %s", a, x.Account())
		}
		if s := x.Stats(); s.Poisoned != 2 || s.Retries != 2 {
			t.Errorf("%+v", s)
		}
		mustClose(t, x)
		if !slices.Equal(sink.Got(), expect(10, 5, 9)) || !slices.Equal(dead.all(), []uint64{5, 9}) {
			t.Errorf("got %v, dead %v", sink.Got(), dead.all())
		}
	})
}

// Handler and age settle what is lent, too.
func TestLentHandledAndExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &handlerLog{answer: func(call int, _ *batch.Batch, err error) error {
			if call == 0 {
				return batch.Partial(err, 1, 2)
			}
			return err
		}}
		x := mustNew(t, FromSink(testkit.NewSink(testkit.Fail(testkit.ErrDown))), &Options{Lent: true, Handler: h, Breaker: trip, Retry: &RetryOptions{MaxAge: time.Hour}})
		m := &testkit.Model{}
		began := time.Now()
		b := m.Batch(6, 32, batch.Meta{})
		err := x.Send(t.Context(), b)
		if want := (batch.Tally{Handled: 4, Dropped: batch.Drops{batch.Expired: 2}}); err != nil || b.Tally != want {
			t.Errorf("%v, %+v", err, b.Tally)
		}
		if d := time.Since(began); d < time.Hour || d > time.Hour+time.Minute {
			t.Errorf("after %s", d)
		}
		mustClose(t, x)
	})
}

// What is lent is sent in batches of the destination's limits, as many at once as the
// window has.
func TestLentIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHand(3)
		d.traits.Limits = batch.Limits{Records: 4, Bytes: 5 * 32}
		x := mustNew(t, d, &Options{Lent: true})
		m := &testkit.Model{}
		b := m.Batch(10, 32, batch.Meta{})
		sent := make(chan error, 1)
		go func() { sent <- x.Send(t.Context(), b) }()
		d.mustStart(t, 1, 5, 9)
		d.answer(0, taken)
		d.answer(2, taken)
		d.answer(1, batch.Outcome{Open: batch.Of(2), Why: testkit.ErrDown})
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 5, 9, 7)
		if len(sent) > 0 {
			t.Error("Send returned too early")
		}
		d.answer(3, taken)
		if err := <-sent; err != nil || b.Tally != (batch.Tally{}) {
			t.Errorf("%v, %+v", err, b.Tally)
		}
		mustClose(t, x)
	})
}

// When its context ends, Send gives back what is not settled, by name, and the outlet
// has nothing of it any more. A session that has some of it is given up.
func TestLentGivenBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(d *hand)
		open []int
	}{
		{"nothing is settled", func(*hand) {}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"the second half is", func(d *hand) { d.answer(1, taken) }, []int{0, 1, 2, 3, 4}},
		{"some are", func(d *hand) {
			d.answer(1, batch.Outcome{Open: batch.Of(0, 3), Why: batch.RetryAfter(testkit.ErrDown, 0), After: time.Hour})
			d.answer(0, batch.Outcome{Refused: batch.Of(2), Refusal: testkit.ErrDown, Open: batch.Of(4), Why: testkit.ErrDown, After: time.Hour})
		}, []int{4, 5, 8}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newHand(2)
				d.traits.Limits.Records = 5
				x := mustNew(t, d, &Options{Lent: true})
				ctx, cancel := context.WithCancel(t.Context())
				sent := make(chan error, 1)
				b := lines(10)
				go func() { sent <- x.Send(ctx, b) }()
				synctest.Wait()
				tt.do(d)
				under := len(tt.open) > 3
				cancel()
				err := <-sent
				e := batch.Inspect(err)
				if e.Kind != batch.KindPartial || !slices.Equal(e.Records, tt.open) || !errors.Is(err, context.Canceled) {
					t.Errorf("%v: records %v, want %v", err, e.Records, tt.open)
				}
				synctest.Wait()
				if s := d.session(); s.closed != under {
					t.Errorf("the session was closed: %t", s.closed)
				}
				d.answer(0, taken) // void
				if a := x.Account(); a != (batch.Account{}) {
					t.Errorf("%s", a)
				}
				r := mustClose(t, x)
				if r.Account != (batch.Account{}) {
					t.Errorf("%s", r.Account)
				}
			})
		})
	}
}

// A driver that hangs with lent memory it reads only in Send keeps it until then; with
// a copy, its owner has it back at once.
func TestLentMemory(t *testing.T) {
	for _, reads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			d := newHand(1)
			d.traits.ReadsInSend = reads
			intact := make(chan bool, 1)
			d.onSend = func(s *handSession, b *batch.Batch) error {
				before := string(b.AppendTo(nil))
				<-release
				intact <- before == string(b.AppendTo(nil))
				return nil
			}
			x := mustNew(t, d, &Options{Lent: true})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			b := lines(10)
			sent := make(chan error, 1)
			go func() {
				err := x.Send(ctx, b)
				for _, rec := range b.All() {
					clear(rec.Data) // its owner uses it again
				}
				sent <- err
			}()
			time.Sleep(time.Hour)
			if back := len(sent) > 0; back == reads {
				t.Errorf("ReadsInSend %t: the memory is back: %t", reads, back)
			}
			close(release)
			if !<-intact {
				t.Errorf("ReadsInSend %t: the memory was used under a driver that reads it", reads)
			}
			if err := <-sent; !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			mustClose(t, x)
		})
	}
}

// With a spool, lent records go there and count as taken, while the session has them.
func TestLentSpills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHand(2)
		d.traits.Limits.Records = 5
		x := mustNew(t, d, &Options{Lent: true, Spill: &testkit.Spill{}})
		var full atomic.Bool
		press, err := x.SpillWhen(full.Load)
		if err != nil {
			t.Fatal(err)
		}
		m := &testkit.Model{}
		b := m.Batch(15, 32, batch.Meta{})
		sent := make(chan error, 1)
		go func() { sent <- x.Send(t.Context(), b) }()
		d.mustStart(t, 1, 6)
		d.answer(0, batch.Outcome{Open: batch.From(3), Why: testkit.ErrDown})
		full.Store(true)
		press()
		if err := <-sent; err != nil || b.Tally.Taken != 12 {
			t.Errorf("%v, %+v", err, b.Tally)
		}
		m.Sent(b, nil)
		full.Store(false)
		if a := balance(t, m, x); a.Delivered != 3 || a.Pending.Spill != 12 {
			t.Error(a)
		}
		d.answer(1, taken) // void: it was open behind an open record, and is in the spool as such
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 6, 4, 6)
		d.answer(2, taken)
		d.answer(3, taken)
		d.mustStart(t, 1, 6, 4, 6, 11)
		d.answer(4, taken)
		mustBalance(t, m, x, 15)
		mustClose(t, x)
	})
}

// Crash-safe slabs before an outlet with Lent, and a destination that misbehaves: what
// one process leaves the next one delivers, and nothing is lost.
func TestLentCrashSafe(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const total = 4000
		rng := testkit.Rand(testkit.Seed(t))
		arrived := map[string]int{}
		for process := range 4 {
			d := newPeer(3, rng, 100*time.Millisecond)
			d.randomFaults(0.2)
			keep := recordTexts{d, arrived}
			x := mustNew(t, keep, &Options{Lent: true})
			w, err := slab.NewSink(x, &slab.Options{SlabBytes: 4096, SlabCount: 4, WhenFull: slab.Block(), Crash: slab.CrashSafe(dir), OnError: func(batch.Event) {}})
			if err != nil {
				t.Fatal(err)
			}
			if process < 3 {
				for i := range total / 3 {
					rec := []byte{byte('a' + process), byte('0' + i/1000), byte('0' + i/100%10), byte('0' + i/10%10), byte('0' + i%10), '\n'}
					if err := w.WriteRecord(rec, batch.Meta{}); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				d.randomFaults(0)
				if err := w.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = w.Shutdown(ctx)
			cancel()
			d.check(t, 0)
		}
		if len(arrived) != 3*(total/3) {
			t.Errorf("%d of %d records arrived", len(arrived), 3*(total/3))
		}
	})
}

// recordTexts is a peer that remembers the text of what it stores.
type recordTexts struct {
	*peer
	texts map[string]int
}

func (d recordTexts) Open(l Life) (Session, error) {
	s, err := d.peer.Open(l)
	return recordTextsSession{s, d}, err
}

type recordTextsSession struct {
	Session
	d recordTexts
}

func (s recordTextsSession) Send(b *batch.Batch) error {
	before, texts := len(s.d.Got()), make([]string, 0, b.Len())
	for _, rec := range b.All() { // now: it may be answered within Send
		texts = append(texts, string(rec.Data))
	}
	defer func() {
		for _, text := range texts[:len(s.d.Got())-before] {
			s.d.texts[text]++
		}
	}()
	return s.Session.Send(b)
}
