package deliver

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// The type streams is a destination that does not accept some of its streams for a while: it holds
// them.
type streams struct {
	window int
	after  time.Duration

	mu      sync.Mutex
	holds   map[uint32]bool
	got     []uint64
	when    []time.Time
	refused map[uint32]int // number of records sent while their stream was held, by stream
}

func newStreams(window int) *streams {
	return &streams{window: window, holds: map[uint32]bool{}, refused: map[uint32]int{}}
}

func (d *streams) hold(stream uint32, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holds[stream] = on
}

func (d *streams) Traits() Traits { return Traits{Window: d.window} }

func (d *streams) Open(l Life) (Session, error) { return &streamsSession{d, l}, nil }

type streamsSession struct {
	d *streams
	l Life
}

func (s *streamsSession) Close() {}

func (s *streamsSession) Send(b *batch.Batch) error {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	var open []int
	for i, rec := range b.All() {
		if d.holds[rec.Stream] {
			open = append(open, i)
			d.refused[rec.Stream]++
		} else {
			d.got = append(d.got, rec.Ticket)
			d.when = append(d.when, time.Now())
		}
	}
	o := batch.Outcome{Open: batch.Of(open...), Why: testkit.ErrDown, After: d.after, Advice: batch.HoldStreams}
	if open == nil {
		o = batch.Outcome{}
	}
	s.l.Answer(b, o)
	return nil
}

// refusals returns the number of records of a stream that were sent while it was held.
func (d *streams) refusals(stream uint32) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refused[stream]
}

// last returns the time at which a record was last accepted.
func (d *streams) last() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.when[len(d.when)-1]
}

// Got returns the tickets of the accepted records.
func (d *streams) Got() []uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.got)
}

// mixed returns a batch whose records belong to the streams 1 to n in turn.
func mixed(m *testkit.Model, records int, n uint32) *batch.Batch {
	var parts []*batch.Batch
	for i := range records {
		parts = append(parts, m.Batch(1, 32, batch.Meta{Stream: 1 + uint32(i)%n}))
	}
	b := &batch.Batch{}
	for _, p := range parts {
		for i := range p.Runs {
			b.Add(p.Runs[i])
		}
	}
	return b
}

// A held stream does not delay the others, and its records arrive in order. The circuit stays
// closed, and held records are pending in the account.
func TestHoldStreams(t *testing.T) {
	for _, window := range []int{1, 4} {
		for _, spill := range []bool{false, true} {
			bubble.Test(t, func(t *testing.T) {
				ev := &testkit.Events{}
				d := newStreams(window)
				d.hold(2, true)
				o := &Options{OnError: ev.Add}
				if spill {
					o.spill = &testkit.Spill{}
				}
				x := mustNew(t, d, o)
				m := &testkit.Model{}
				began := time.Now()
				for range 20 {
					send(t, m, x, mixed(m, 12, 3))
					time.Sleep(time.Second)
				}
				if n := len(d.Got()); n != 160 {
					t.Errorf("%d of 160 records of the other streams arrived", n)
				}
				if last := d.last(); last.Sub(began) > 20*time.Second {
					t.Errorf("the last of them arrived after %s", last.Sub(began))
				}
				if a := balance(t, m, x); a.Delivered != 160 || a.Pending.Total() != 80 {
					t.Error(a)
				}
				if s := x.Stats(); s.Breaker != Closed || s.Trips != 0 || ev.Count("hold") != 1 {
					t.Errorf("%s, events %v", s.Breaker, ev.Ops())
				}
				d.hold(2, false)
				time.Sleep(2 * time.Minute)
				mustBalance(t, m, x, 240)
				for stream := range uint64(3) {
					of := slices.DeleteFunc(d.Got(), func(k uint64) bool { return (k-1)%3 != stream })
					if !slices.IsSorted(of) || len(of) != 80 {
						t.Errorf("stream %d: %v", 1+stream, of)
					}
				}
				// When no stream is held any more, records of all streams are sent in order again.
				send(t, m, x, mixed(m, 12, 3))
				mustFlush(t, x)
				if !slices.IsSorted(d.Got()[240:]) {
					t.Errorf("after the hold: got %v", d.Got()[240:])
				}
				mustClose(t, x)
			})
		}
	}
}

// The outlet rarely sends a record of a held stream, and never before the delay that the
// destination requests has passed.
func TestHeldStreamIsTriedRarely(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(1)
		d.hold(1, true)
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		send(t, m, x, ofStream(m, 1, 1))
		time.Sleep(30 * time.Minute)
		if n := d.refusals(1); n < 25 || n > 75 {
			t.Errorf("%d attempts in half an hour", n)
		}
		d.mu.Lock()
		d.after = 5 * time.Minute
		d.mu.Unlock()
		time.Sleep(2 * time.Minute)
		before := d.refusals(1)
		time.Sleep(30 * time.Minute)
		if n := d.refusals(1) - before; n > 6 {
			t.Errorf("%d attempts in half an hour, 5 min apart", n)
		}
		d.mu.Lock()
		d.after = 10 * time.Millisecond // too short: the stream is not accepted after this delay
		d.mu.Unlock()
		time.Sleep(6 * time.Minute)
		before = d.refusals(1)
		time.Sleep(30 * time.Minute)
		if n := d.refusals(1) - before; n < 25 || n > 75 {
			t.Errorf("%d attempts in half an hour, at least 10 ms apart", n)
		}
		d.hold(1, false)
		time.Sleep(10 * time.Minute)
		mustBalance(t, m, x, 1)
		mustClose(t, x)
	})
}

// If several streams are held, each is tried again when its own delay has passed, and each record
// arrives once.
func TestHoldSeveralStreams(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(2)
		x := mustNew(t, d, nil)
		m := &testkit.Model{}
		rng := testkit.Rand(testkit.Seed(t))
		for range 200 {
			d.hold(uint32(rng.IntN(6)), rng.IntN(2) == 0)
			send(t, m, x, mixed(m, 1+rng.IntN(30), 5))
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			balance(t, m, x)
		}
		for i := range uint32(6) {
			d.hold(i, false)
		}
		time.Sleep(3 * time.Minute)
		mustBalance(t, m, x, m.Accepted())
		if n := len(slices.Compact(slices.Sorted(slices.Values(d.Got())))); uint64(n) != m.Accepted() || len(d.Got()) != n {
			t.Errorf("%d different records of %d", n, len(d.Got()))
		}
		mustClose(t, x)
	})
}

// ParkedBytes limits the memory for copies of parked records. At the limit all records wait, and
// none is lost.
func TestHeldStreamsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(1)
		d.hold(1, true)
		x := mustNew(t, d, &Options{ParkedBytes: 100 * 32})
		m := &testkit.Model{}
		go func() {
			for range 40 {
				if err := x.Send(t.Context(), ofStream(m, 10, 1)); err != nil {
					t.Error(err)
				}
				if err := x.Send(t.Context(), ofStream(m, 10, 2)); err != nil {
					t.Error(err)
				}
			}
		}()
		time.Sleep(10 * time.Minute)
		if n := len(d.Got()); n < 100 || n > 130 {
			t.Errorf("%d records of the other stream arrived", n)
		}
		if a := x.Account(); a.Check() != nil || a.Pending.Total() < 100 || a.Pending.Total() > 150 {
			t.Error(a)
		}
		d.hold(1, false)
		time.Sleep(10 * time.Minute)
		mustFlush(t, x)
		if a := x.Account(); a.Delivered != 800 {
			t.Error(a)
		}
		mustClose(t, x)
	})
}

// Records of a held stream stay held when the session ends or the circuit opens, and arrive in
// order later.
func TestHeldBesideAnOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(1)
		d.hold(1, true)
		var down atomic.Bool
		flaky := flakyStreams{d, &down}
		x := mustNew(t, flaky, &Options{spill: &testkit.Spill{}})
		m := &testkit.Model{}
		for i := range 30 {
			down.Store(i >= 10 && i < 20)
			if i == 15 {
				d.hold(1, false)
			}
			send(t, m, x, mixed(m, 10, 2))
			time.Sleep(10 * time.Second)
		}
		time.Sleep(10 * time.Minute)
		mustBalance(t, m, x, 300)
		for stream := range uint64(2) {
			of := slices.DeleteFunc(d.Got(), func(k uint64) bool { return (k-1)%2 != stream })
			if !slices.IsSorted(of) || len(of) != 150 {
				t.Errorf("stream %d: %v", 1+stream, of)
			}
		}
		mustClose(t, x)
	})
}

// flakyStreams is the destination streams, but it fails while down is set: sessions end at each
// batch, and Open returns an error.
type flakyStreams struct {
	*streams
	down *atomic.Bool
}

func (d flakyStreams) Open(l Life) (Session, error) {
	if d.down.Load() {
		return nil, testkit.ErrDown
	}
	s, err := d.streams.Open(l)
	return flakySession{s, l, d.down}, err
}

type flakySession struct {
	Session
	l    Life
	down *atomic.Bool
}

func (s flakySession) Send(b *batch.Batch) error {
	if s.down.Load() {
		s.l.End(testkit.ErrDown)
		return nil
	}
	return s.Session.Send(b)
}

// At Shutdown, records of held streams go to the spool. Without a spool they are counted as
// dropped.
func TestHeldAtShutdown(t *testing.T) {
	for _, spill := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			d := newStreams(1)
			d.hold(1, true)
			o := &Options{}
			if spill {
				o.spill = &testkit.Spill{}
			}
			x := mustNew(t, d, o)
			m := &testkit.Model{}
			for range 5 {
				send(t, m, x, mixed(m, 10, 2))
			}
			time.Sleep(10 * time.Second)
			began := time.Now()
			r, err := shutdown(x, 5*time.Second)
			a, bad := m.Account(r.Account, 0)
			if bad != nil || a.Delivered != 25 || r.Unknown != 0 || time.Since(began) > 5*time.Second+closeGrace {
				t.Errorf("%v after %s: %s", bad, time.Since(began), a)
			}
			if spill && (err != nil || a.Pending.Spill != 25) || !spill && (err == nil || a.Dropped[batch.Shutdown] != 25) {
				t.Errorf("%v: %s", err, a)
			}
		})
	}
}

// Flush does not wait for records of a held stream, even if they are in the spool.
func TestFlushBesideHeldOnDisk(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(2)
		d.hold(1, true)
		var down atomic.Bool
		x := mustNew(t, flakyStreams{d, &down}, &Options{spill: &testkit.Spill{}})
		m := &testkit.Model{}
		send(t, m, x, mixed(m, 10, 2))
		time.Sleep(time.Second)
		down.Store(true)
		for range 10 { // the circuit opens, and all records go to the spool
			send(t, m, x, mixed(m, 10, 2))
			time.Sleep(10 * time.Second)
		}
		if a := balance(t, m, x); a.Pending.Spill != 105 {
			t.Fatal(a)
		}
		down.Store(false)
		time.Sleep(5 * time.Minute)
		select {
		case err := <-flushing(t, x):
			if err == nil || !strings.Contains(err.Error(), "55 records are parked") {
				t.Errorf("got %v", err)
			}
		default:
			t.Error("Flush waits for a stream that is held")
		}
		d.hold(1, false)
		time.Sleep(5 * time.Minute)
		mustFlush(t, x)
		mustBalance(t, m, x, 110)
		for stream := range uint64(2) {
			of := slices.DeleteFunc(d.Got(), func(k uint64) bool { return k%2 != stream })
			if !slices.IsSorted(of) || len(of) != 55 {
				t.Errorf("stream %d: %v", stream, of)
			}
		}
		mustClose(t, x)
	})
}

// texts is a destination that keeps the first copy of each record, in the order of arrival, over
// several processes.
type texts struct {
	flakyStreams
	seen  map[string]bool
	first *[]string
}

func (d texts) Open(l Life) (Session, error) {
	s, err := d.flakyStreams.Open(l)
	return textsSession{s, d}, err
}

type textsSession struct {
	Session
	d texts
}

func (s textsSession) Send(b *batch.Batch) error {
	d := s.d
	d.mu.Lock()
	for _, rec := range b.All() {
		if text := string(rec.Data); !d.down.Load() && !d.holds[rec.Stream] && !d.seen[text] {
			d.seen[text] = true
			*d.first = append(*d.first, text)
		}
	}
	d.mu.Unlock()
	return s.Session.Send(b)
}

// The records of a stream arrive in order, even if the stream is held and its records are on disk
// when a process ends and the next one starts.
func TestHeldStreamsOverProcesses(t *testing.T) {
	for seed := range testkit.Walks(t, 8) {
		rng := testkit.Rand(seed)
		dir := t.TempDir()
		bubble.Test(t, func(t *testing.T) {
			seen, first, n := map[string]bool{}, []string(nil), 0
			const processes = 4
			for process := range processes {
				d := newStreams(1 + rng.IntN(4))
				var down atomic.Bool
				o := &OutputOptions{
					Slab:     slab.Options{SlabBytes: 1 << 10, SlabCount: 3 + rng.IntN(4), FlushInterval: time.Millisecond, WhenFull: slab.Spill()},
					SpoolDir: filepath.Join(dir, "spool"), Deliver: Options{ParkedBytes: 1 << (6 + rng.IntN(9))}, OnError: func(batch.Event) {},
				}
				if rng.IntN(2) == 0 {
					o.CrashDir = filepath.Join(dir, "crash")
				}
				x, err := NewOutput(texts{flakyStreams{d, &down}, seen, &first}, o)
				if err != nil {
					t.Fatal(err)
				}
				for range 100 {
					d.hold(uint32(1+rng.IntN(3)), process < processes-1 && rng.IntN(2) == 0)
					down.Store(process < processes-1 && rng.IntN(8) == 0)
					for range rng.IntN(20) {
						n++
						if err := x.WriteRecord(fmt.Appendf(nil, "%d %06d\n", n%3, n), batch.Meta{Stream: uint32(1 + n%3)}); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Duration(rng.IntN(5)) * time.Second)
				}
				if process == processes-1 {
					for stream := range uint32(4) {
						d.hold(stream, false)
					}
					down.Store(false)
					time.Sleep(10 * time.Minute)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(3))*time.Second)
				if _, err := x.Shutdown(ctx); err != nil {
					t.Errorf("process %d: %v", process, err)
				}
				cancel()
			}
			if len(first) != n {
				t.Errorf("%d of %d records arrived", len(first), n)
			}
			last := map[string]string{}
			for _, text := range first {
				if stream := text[:1]; text < last[stream] {
					t.Fatalf("%q arrived after %q", text, last[stream])
				} else {
					last[stream] = text
				}
			}
		})
	}
}

// Records of a held stream that do not fit into ParkedBytes become dead letters when their stream
// has been held for an hour. The other streams continue.
func TestHeldStreamWithoutRoomIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(1)
		d.hold(1, true)
		var letters atomic.Uint64
		x := mustNew(t, d, &Options{ParkedBytes: 100 * 32, DeadLetter: ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome {
			letters.Add(uint64(b.Len()))
			return batch.Outcome{}
		})})
		m := &testkit.Model{}
		go func() {
			for range 40 {
				for stream := range uint32(2) {
					if err := x.Send(t.Context(), ofStream(m, 10, 1+stream)); err != nil {
						t.Error(err)
					}
				}
			}
		}()
		time.Sleep(50 * time.Minute)
		if n := len(d.Got()); n < 100 || n > 130 || letters.Load() > 0 {
			t.Errorf("%d records of the other stream arrived, %d dead letters", n, letters.Load())
		}
		time.Sleep(20 * time.Minute)
		a := x.Account()
		if n := len(d.Got()); n != 400 || a.Dropped[batch.Poison] != 300 || letters.Load() != 300 || a.Check() != nil {
			t.Errorf("%d records of the other stream arrived, %d dead letters: %v", n, letters.Load(), a)
		}
		d.hold(1, false)
		time.Sleep(10 * time.Minute)
		mustFlush(t, x)
		if a := x.Account(); a.Delivered != 500 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		mustClose(t, x)
	})
}

// If memory is about to drop records, records of a held stream that do not fit into ParkedBytes
// become dead letters, because the memory may contain later records that the destination accepts.
// This applies only if other streams were accepted within the last hour.
func TestHeldStreamIsRefusedWhenMemoryIsShort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(1)
		d.hold(1, true)
		x := mustNew(t, d, &Options{ParkedBytes: 100 * 32})
		var full atomic.Bool
		wake := x.setNeeds(func() (drops, waits bool) { return full.Load(), false })
		m := &testkit.Model{}
		go func() {
			for range 40 {
				for stream := range uint32(2) {
					if err := x.Send(t.Context(), ofStream(m, 10, 1+stream)); err != nil {
						t.Error(err)
					}
				}
			}
		}()
		time.Sleep(20 * time.Minute)
		if a := x.Account(); len(d.Got()) > 130 || a.Dropped.Total() > 0 {
			t.Errorf("%d records of the other stream arrived: %v", len(d.Got()), a)
		}
		full.Store(true)
		wake()
		time.Sleep(time.Second)
		a := x.Account()
		if len(d.Got()) != 400 || a.Dropped[batch.Poison] == 0 || a.Pending.Total() < 100 || a.Check() != nil {
			t.Errorf("%d records of the other stream arrived: %v", len(d.Got()), a)
		}
		full.Store(false)
		d.hold(1, false)
		time.Sleep(10 * time.Minute)
		mustFlush(t, x)
		mustClose(t, x)
	})
}

// If records of a held stream do not fit into ParkedBytes, later records in the same batch are
// still sent.
func TestHeldRecordsArePassed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(1)
		d.hold(1, true)
		x := mustNew(t, d, &Options{ParkedBytes: 32})
		m := &testkit.Model{}
		for range 2 { // the held record of the first batch is within ParkedBytes
			mixed := ofStream(m, 2, 1)
			mixed.Runs[0].Slot(1).Stream = 2
			if err := x.Send(t.Context(), mixed); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Minute)
		}
		if a := x.Account(); a.Delivered != 2 || a.Pending.Total() != 2 {
			t.Error(a)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := x.Flush(ctx); err == nil || !strings.Contains(err.Error(), "2 records are parked") {
			t.Error(err)
		}
		committed := make(chan error, 1) // Commit waits for parked records
		go func() { committed <- x.commit(t.Context()) }()
		time.Sleep(time.Minute)
		if len(committed) > 0 {
			t.Errorf("committed: %v", <-committed)
		}
		d.hold(1, false)
		time.Sleep(10 * time.Minute)
		if len(committed) == 0 || <-committed != nil {
			t.Error("not committed")
		}
		if got := d.Got(); !slices.Equal(got, []uint64{2, 4, 1, 3}) {
			t.Errorf("%v arrived", got)
		}
		mustClose(t, x)
	})
}

// All streams are held. Records that do not fit into ParkedBytes wait for an hour, even if memory
// is about to drop records.
func TestAllStreamsHeld(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(1)
		d.hold(1, true)
		x := mustNew(t, d, &Options{ParkedBytes: 100 * 32})
		x.setNeeds(func() (drops, waits bool) { return true, false })
		m := &testkit.Model{}
		go func() {
			for range 40 {
				if err := x.Send(t.Context(), ofStream(m, 10, 1)); err != nil {
					t.Error(err)
				}
			}
		}()
		time.Sleep(50 * time.Minute)
		if a := x.Account(); a.Dropped.Total() > 0 || a.Accepted < 110 {
			t.Error(a)
		}
		time.Sleep(20 * time.Minute)
		if a := x.Account(); a.Accepted != 400 || a.Dropped[batch.Poison] != 300 || a.Check() != nil {
			t.Error(a)
		}
		d.hold(1, false)
		time.Sleep(10 * time.Minute)
		mustFlush(t, x)
		mustClose(t, x)
	})
}

// Records of a held stream expire like others, even while the destination accepts other records.
func TestHeldRecordsExpire(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newStreams(1)
		d.hold(1, true)
		x := mustNew(t, d, &Options{Retry: &RetryOptions{MaxAge: time.Hour}})
		m := &testkit.Model{}
		send(t, m, x, ofStream(m, 5, 1))
		for range 110 {
			time.Sleep(time.Minute)
			send(t, m, x, ofStream(m, 1, 2))
		}
		synctest.Wait()
		if a := x.Account(); a.Dropped[batch.Expired] != 5 || a.Delivered != 110 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		mustClose(t, x)
	})
}
