package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// rig is slabs before an engine before a spool.
type rig struct {
	store  *spool.Spool
	engine *deliver.Engine
	w      *slab.Writer
	events *testkit.Events
}

func openRig(t *testing.T, dir string, sink batch.Sink, quota int64, adjust ...func(*slab.Options)) *rig {
	t.Helper()
	r := &rig{events: &testkit.Events{}}
	var err error
	if r.store, err = spool.Open(dir, &spool.Options{MaxBytes: quota}); err != nil {
		t.Fatal(err)
	}
	if r.engine, err = deliver.New(sink, &deliver.Options{Spill: r.store, SpillWhenFull: true, OnError: r.events.Add}); err != nil {
		t.Fatal(err)
	}
	o := &slab.Options{SlabBytes: 4096, SlabCount: 4, WhenFull: slab.Spill(), OnError: r.events.Add}
	for _, fn := range adjust {
		fn(o)
	}
	if r.w, err = slab.NewSink(r.engine, o); err != nil {
		t.Fatal(err)
	}
	return r
}

// close closes all of it within d and returns the report.
func (r *rig) close(t *testing.T, d time.Duration) batch.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	report, _ := r.w.Shutdown(ctx)
	if err := r.store.Close(); err != nil {
		t.Error(err)
	}
	if err := report.Check(); err != nil {
		t.Error(err)
	}
	return report
}

// flood has 64 goroutines write 200 records each and returns how long the slowest
// call took, in the time of the bubble: writing to the spool takes none of it.
func (r *rig) flood(t *testing.T) (slowest time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			for i := range 200 {
				began := time.Now()
				if err := r.w.WriteRecord(fmt.Appendf(nil, "%02d %03d a record of some length\n", g, i), batch.Meta{}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				slowest = max(slowest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return slowest
}

// lineOrder collects records and checks that those of each writer come in order.
type lineOrder struct {
	mu   sync.Mutex
	next [64]int
	n    int
	bad  []string
	gaps int
}

func (l *lineOrder) Send(_ context.Context, b *batch.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rec := range b.All() {
		var g, i int
		if _, err := fmt.Sscanf(string(rec.Data), "%02d %03d", &g, &i); err != nil || i < l.next[g] {
			l.bad = append(l.bad, strings.TrimSpace(string(rec.Data)))
		}
		l.gaps += i - l.next[g]
		l.next[g] = i + 1
		l.n++
	}
	return nil
}

func deaf(release chan struct{}) batch.Sink { return testkit.NewSink(testkit.Deaf(release)) }

// A destination hangs for ever, whether or not it heeds its context. Writers whose
// policy is Spill wait for the spool only; the next process has everything, in
// order. Over quota, exactly the counted records are missing.
func TestSpillWhenFull(t *testing.T) {
	const total = 64 * 200
	for _, tt := range []struct {
		name  string
		sink  func(release chan struct{}) batch.Sink
		quota int64
		slabs func(o *slab.Options, dir string)
	}{
		{"deaf", deaf, 1 << 30, nil},
		{"heeds its context", func(c chan struct{}) batch.Sink { return testkit.NewSink(testkit.Hang(c)) }, 1 << 30, nil},
		{"pipelined", func(c chan struct{}) batch.Sink {
			return testkit.NewAsyncSink(testkit.Hang(c), 4, nil, 0)
		}, 1 << 30, nil},
		{"over quota", deaf, 256 << 10, nil},
		{"crash-safe", deaf, 1 << 30, func(o *slab.Options, dir string) { o.Crash = slab.CrashSafe(dir) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, crash := t.TempDir(), t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				r := openRig(t, dir, tt.sink(release), tt.quota, func(o *slab.Options) {
					if tt.slabs != nil {
						tt.slabs(o, crash)
					}
				})
				if slowest := r.flood(t); slowest > 0 {
					t.Errorf("a writer waited for %s", slowest)
				}
				if s := r.engine.Stats(); s.Breaker != deliver.Closed || !s.Spilling {
					t.Errorf("breaker %s, spilling %t", s.Breaker, s.Spilling)
				}
				first := r.close(t, time.Second)
				lost := first.Dropped[batch.Quota]
				if first.Accepted != total || first.Delivered != 0 || first.Pending.Spill+lost != total || first.Dropped.Total() != lost {
					t.Errorf("first process: %s", first.Account)
				}
				if (lost > 0) != (tt.quota < 1<<30) {
					t.Errorf("%d lost over a quota of %d", lost, tt.quota)
				}
				close(release)
				synctest.Wait()

				sink := &lineOrder{}
				r = openRig(t, dir, sink, tt.quota)
				if err := r.w.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				second := r.close(t, time.Second)
				if second.Recovered != total-lost || second.Delivered != total-lost || second.Pending.Total() != 0 {
					t.Errorf("second process: %s", second.Account)
				}
				if len(sink.bad) > 0 || sink.n != int(total-lost) {
					t.Errorf("%d arrived, %d out of order: %q", sink.n, len(sink.bad), sink.bad[:min(len(sink.bad), 3)])
				}
			})
		})
	}
}

// What is in flight when the spill begins is settled by its answer, when that
// comes: nothing is sent twice, and nothing newer comes before it.
func TestSpillWhenFullAnsweredLate(t *testing.T) {
	for _, first := range []struct {
		name   string
		answer testkit.Answer
		twice  bool
	}{
		{"taken", testkit.Take, false},
		{"failed", testkit.Fail(testkit.ErrDown), false},
		{"a part", testkit.First(3), false},
		{"panic", testkit.Panic, false},
		{"taken, but the answer was lost", testkit.Lost(testkit.ErrDown), true},
	} {
		t.Run(first.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				sink := testkit.NewSink(testkit.Script(testkit.Slow(time.Minute, first.answer), testkit.Take))
				r := openRig(t, dir, sink, 1<<30)
				if slowest := r.flood(t); slowest > 0 {
					t.Errorf("a writer waited for %s", slowest)
				}
				if n := sink.Calls(); n != 1 {
					t.Errorf("%d calls of the destination", n)
				}
				time.Sleep(2 * time.Minute)
				if _, err := r.w.Write([]byte("the last\n")); err != nil {
					t.Error(err)
				}
				if err := r.w.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				report := r.close(t, time.Second)
				if report.Delivered != 64*200+1 || report.Dropped.Total() != 0 {
					t.Error(report.Account)
				}
				last, twice := testkit.LastCopies(sink.Got())
				for i, ticket := range last {
					if ticket != uint64(i+1) {
						t.Fatalf("record %d came at place %d", ticket, i+1)
					}
				}
				if len(last) != 64*200+1 || (twice > 0) != first.twice {
					t.Errorf("%d arrived, %d of them twice", len(last), twice)
				}
				if n := r.events.Count("spill"); n != 1 {
					t.Errorf("%d events, want one: %v", n, r.events.Ops())
				}
			})
		})
	}
}

// A disk that is full as well: writers wait as long as the policy says, what they
// lose is counted, and all goes on when the destination does.
func TestSpillWhenFullFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &testkit.Spill{}
		store.Fail(testkit.ErrDisk)
		release := make(chan struct{})
		sink := testkit.NewSink(testkit.Deaf(release))
		events := &testkit.Events{}
		e, err := deliver.New(sink, &deliver.Options{Spill: store, SpillWhenFull: true, OnError: events.Add})
		if err != nil {
			t.Fatal(err)
		}
		w, err := slab.NewSink(e, &slab.Options{SlabBytes: 4096, SlabCount: 2, WhenFull: slab.Spill(), OnError: events.Add})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		lost := 0
		for range 500 {
			if err := w.WriteRecord(make([]byte, 100), batch.Meta{}); errors.Is(err, slab.ErrDropped) {
				lost++
			}
		}
		if d := time.Since(began); lost == 0 || d != slab.SpillPatience {
			t.Errorf("%d lost after %s", lost, d)
		}
		if n := events.Count("spill-error"); n != 1 {
			t.Errorf("%d events of %v", n, events.Ops())
		}
		store.Fail(nil)
		time.Sleep(2 * time.Second) // it is tried again
		if s := e.Stats(); !s.Spilling {
			t.Error("not spilling although the disk has room again")
		}
		close(release)
		if err := w.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		report, err := w.Shutdown(t.Context())
		if err := errors.Join(err, report.Check()); err != nil {
			t.Error(err)
		}
		if report.Delivered != uint64(500-lost) || report.Dropped[batch.Full] != uint64(lost) {
			t.Error(report.Account)
		}
	})
}

// What Spill needs is asked for in plain words.
func TestSpillWhenFullNeedsASpill(t *testing.T) {
	if _, err := deliver.New(&lineOrder{}, &deliver.Options{SpillWhenFull: true}); err == nil || !strings.Contains(err.Error(), "there is no Spill") {
		t.Error(err)
	}
	if _, err := deliver.NewKeeper(&lineOrder{}, &deliver.KeeperOptions{SpillWhenFull: true}); err == nil || !strings.Contains(err.Error(), "there is no Spill") {
		t.Error(err)
	}
	for _, o := range []*deliver.Options{{}, {Spill: &testkit.Spill{}}} {
		e, err := deliver.New(&lineOrder{}, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := slab.NewSink(e, &slab.Options{WhenFull: slab.Spill()}); err == nil || !strings.Contains(err.Error(), "the destination cannot: deliver: ") {
			t.Error(err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A Send that is still under way when Close runs out of time may put its records
// into the spill later, or have them delivered: they are counted once all the
// same, at every moment, in the report as in the account after it.
func TestAbandonedSendCountsOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer testkit.Answer
	}{
		{"fails later", testkit.Fail(testkit.ErrDown)},
		{"is taken later", testkit.Take},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &testkit.Spill{}
				release := make(chan struct{})
				sink := testkit.NewSink(func(ctx context.Context, call int, b *batch.Batch) ([]int, error) {
					<-release // deaf to ctx
					return tt.answer(ctx, call, b)
				})
				e, err := deliver.New(sink, &deliver.Options{Spill: store, OnError: func(batch.Event) {}})
				if err != nil {
					t.Fatal(err)
				}
				w, err := slab.NewSink(e, &slab.Options{OnError: func(batch.Event) {}})
				if err != nil {
					t.Fatal(err)
				}
				for range 10 {
					if _, err := w.Write([]byte("line\n")); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Second) // the Send is under way
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				report, err := w.Shutdown(ctx)
				if err == nil || report.Unknown != 10 || report.Dropped[batch.Shutdown] != 10 {
					t.Errorf("%v, %d unknown: %s", err, report.Unknown, report.Account)
				}
				if err := report.Check(); err != nil {
					t.Error(err)
				}
				close(release)
				time.Sleep(time.Second)
				a := w.Account()
				if err := a.Check(); err != nil || a.Accepted != 10 {
					t.Errorf("%v: %s", err, a)
				}
				if p := store.Account().Pending.Spill; p != a.Pending.Spill || tt.name == "fails later" && p != 10 {
					t.Errorf("%d records are in the spill, the account says: %s", p, a)
				}
				if _, err := e.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				a = w.Account()
				if err := a.Check(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
