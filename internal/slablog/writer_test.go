package slablog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
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
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/slab"
)

func TestDeliversInOrder(t *testing.T) {
	for _, o := range []slab.Options{
		{},
		{SlabBytes: 512, SlabCount: 2, WhenFull: slab.Block()},
		{SlabBytes: 1024, SlabCount: 3, WhenFull: slab.Block(), FlushInterval: time.Microsecond},
		{SlabBytes: 4096, SlabCount: 16, WhenFull: slab.Block(), FlushInterval: -1},
	} {
		var m memory
		w := mustNew(t, &m, &o)
		const n = 20000
		for i := range n {
			mustWrite(t, w, i, i%90)
		}
		closeNow(t, w)
		wantSequence(t, numbers(t, m.String()), 0, n)
		checkAccount(t, w, n, n, batch.Drops{})
	}
}

// A partial slab that is flushed because of its age does not overtake full slabs.
func TestIdleFlushKeepsOrder(t *testing.T) {
	var m memory
	w := mustNew(t, &m, &slab.Options{SlabBytes: 512, SlabCount: 4, FlushInterval: time.Microsecond, WhenFull: slab.Block()})
	const n = 100000
	for i := range n {
		mustWrite(t, w, i, 16)
	}
	closeNow(t, w)
	wantSequence(t, numbers(t, m.String()), 0, n)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestWriteAfterClose(t *testing.T) {
	var m memory
	w := mustNew(t, &m, nil)
	mustWrite(t, w, 0, 10)
	closeNow(t, w)
	closeNow(t, w) // two calls of Close are permitted
	if n, err := w.Write([]byte("late\n")); n != 0 || !errors.Is(err, batch.ErrClosed) {
		t.Errorf("Write after Close: %d, %v", n, err)
	}
	if err := w.WriteRecord(make([]byte, 2<<20), batch.Meta{}); !errors.Is(err, batch.ErrClosed) {
		t.Errorf("oversize WriteRecord after Close: %v", err)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Errorf("Flush after Close: %v", err)
	}
	if err := w.Sync(); err != nil {
		t.Errorf("Sync after Close: %v", err)
	}
	if r := w.Stats().Refused; r != 2 {
		t.Errorf("refused %d, want 2", r)
	}
	checkAccount(t, w, 1, 1, batch.Drops{})
}

// A Writer refuses records after Close even if the consumer has not read the current slab, in which
// there is space.
func TestWriteAfterCloseBeforeTheLogIsRead(t *testing.T) {
	w, log, err := New(&slab.Options{SlabBytes: 4096, SlabCount: 4}, Consumer{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := w.Write(line(i, 10)); err != nil {
			t.Fatal(err)
		}
	}
	log.Close()
	if n, err := w.Write([]byte("late\n")); n != 0 || !errors.Is(err, batch.ErrClosed) {
		t.Errorf("Write after Close: %d, %v", n, err)
	}
	log.End(t.Context(), true)
	log.Leave()
	if a := log.Account(batch.Account{}); a.Accepted != 3 || a.Check() != nil {
		t.Error(a)
	}
}

// If Close runs concurrently with writes, each record whose write returned nil is delivered.
func TestWriteBesideClose(t *testing.T) {
	for range 50 {
		var m memory
		w := mustNew(t, &m, &slab.Options{SlabBytes: 512, WhenFull: slab.Block()})
		var ok atomic.Int64
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				for i := range 200 {
					size := 20
					if i%50 == g%50 {
						size = 2000
					}
					if err := w.WriteRecord(line(g*1000+i, size), batch.Meta{}); err != nil {
						if !errors.Is(err, batch.ErrClosed) {
							t.Errorf("write: %v", err)
						}
						return
					}
					ok.Add(1)
				}
			})
		}
		runtime.Gosched()
		closeNow(t, w)
		wg.Wait()
		if got := int64(len(numbers(t, m.String()))); got != ok.Load() {
			t.Fatalf("%d writes returned nil, %d records arrived", ok.Load(), got)
		}
		checkAccount(t, w, uint64(ok.Load()), uint64(ok.Load()), batch.Drops{})
	}
}

func TestHungDestination(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 4, WhenFull: slab.BlockFor(250 * time.Millisecond)})
		start := time.Now()
		i := 0
		for ; w.Account().Dropped.Total() == 0; i++ {
			mustWrite(t, w, i, 100)
		}
		if d := time.Since(start); d != 250*time.Millisecond {
			t.Errorf("the first record without room waited %v, want 250ms", d)
		}
		start = time.Now()
		for range 100 { // after the first failed wait, no call waits
			if err := w.WriteRecord(line(i, 100), batch.Meta{}); !errors.Is(err, slab.ErrDropped) {
				t.Fatalf("write into a hung destination: %v", err)
			}
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("later records waited %v", d)
		}
		if s := w.Stats(); s.SlabsInUse != 4 || s.Pending.Total() == 0 {
			t.Errorf("stats %+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		start = time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		r, err := w.Shutdown(ctx)
		if err == nil || !strings.Contains(err.Error(), "not delivered") {
			t.Errorf("Shutdown: %v", err)
		}
		if d := time.Since(start); d != 2*time.Second+10*time.Millisecond {
			t.Errorf("Shutdown took %v, want its deadline of 2s and what it allows a consumer then", d)
		}
		if r.Unknown == 0 || r.Dropped[batch.Shutdown] == 0 || r.Check() != nil || r.Pending.Total() != 0 {
			t.Errorf("report %+v", r)
		}
		if r.Accepted != uint64(i+100) {
			t.Errorf("accepted %d, want %d", r.Accepted, i+100)
		}
		g.open()
		synctest.Wait() // the late answer has no effect, because the records were reported as unknown
		if a := w.Account(); a != r.Account {
			t.Errorf("after Close: %v, then %v", r, a)
		}
	})
}

// The context of a Send ends before the deadline of Close. If the destination obeys it, no record
// is unknown.
func TestShutdownCancelsSend(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := mustSink(t, sendFunc(func(ctx context.Context, _ *batch.Batch) batch.Outcome {
			<-ctx.Done()
			return batch.FailedOutcome(ctx.Err())
		}), nil)
		mustWrite(t, w, 0, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := w.Shutdown(ctx)
		if err == nil || r.Unknown != 0 || r.Dropped[batch.Shutdown] != 1 {
			t.Errorf("report %+v, %v", r, err)
		}
	})
}

func TestCloseRetriesUntilDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		m := &memory{act: func(int, []byte) (int, error) {
			if time.Since(start) < 3*time.Second {
				return 0, errDown
			}
			return -1, nil
		}}
		w := mustNew(t, m, nil)
		for i := range 100 {
			mustWrite(t, w, i, 10)
		}
		closeNow(t, w)
		wantSequence(t, numbers(t, m.String()), 0, 100)
	})
}

func TestOversize(t *testing.T) {
	var m memory
	w := mustNew(t, &m, &slab.Options{SlabBytes: 512, SlabCount: 4, MaxRecord: 10000, WhenFull: slab.Block()})
	const n = 2000
	for i := range n {
		size := 30
		if i%7 == 0 {
			size = 481 + i%9000 // all sizes do not fit into a slab
		}
		mustWrite(t, w, i, size)
	}
	if err := w.WriteRecord(make([]byte, 10001), batch.Meta{}); !errors.Is(err, slab.ErrDropped) {
		t.Errorf("record above MaxRecord: %v", err)
	}
	if n, err := w.Write(make([]byte, 10001)); n != 0 || !errors.Is(err, slab.ErrOversize) || !errors.Is(err, slab.ErrDropped) {
		t.Errorf("Write above MaxRecord: %d, %v", n, err)
	}
	closeNow(t, w)
	wantSequence(t, numbers(t, m.String()), 0, n)
	checkAccount(t, w, n+2, n, drops(batch.Oversize, 2))
	if s := w.Stats(); s.OversizeMem != 0 || s.SlabsInUse != 0 {
		t.Errorf("memory is not released: %+v", s)
	}
}

func TestOversizeBudget(t *testing.T) {
	for _, pol := range []slab.WhenFull{slab.DropNewest(), slab.DropOldest(), slab.BlockFor(time.Second), slab.Block()} {
		t.Run(pol.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGate()
				w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 61, MaxRecord: 10000, WhenFull: pol})
				mustWrite(t, w, 0, 10)
				<-g.entered // the consumer hangs now
				for i := 1; i <= 3; i++ {
					mustWrite(t, w, i, 10000)
				}
				if mem := w.Stats().OversizeMem; mem != 30000 {
					t.Errorf("budget in use %d, want 30000", mem)
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					err := w.WriteRecord(line(4, 10000), batch.Meta{})
					dropped := pol != slab.Block() && pol != slab.DropOldest()
					if dropped != errors.Is(err, slab.ErrDropped) {
						t.Errorf("4th: %v", err)
					}
				})
				time.Sleep(2 * time.Second) // time of the bubble
				g.open()
				wg.Wait()
				closeNow(t, w)
				ns := numbers(t, g.String())
				switch pol {
				case slab.Block():
					wantSequence(t, ns, 0, 5)
					checkAccount(t, w, 5, 5, batch.Drops{})
				case slab.DropOldest():
					if !slices.Equal(ns, []int{0, 2, 3, 4}) {
						t.Errorf("arrived %v", ns)
					}
					checkAccount(t, w, 5, 4, drops(batch.Full, 1))
				default:
					wantSequence(t, ns, 0, 4)
					checkAccount(t, w, 5, 4, drops(batch.Full, 1))
				}
			})
		})
	}
}

// A custodian is a consumer that settles two of three records and then hangs in Accept.
type custodian struct {
	bare
	inline  bool
	mu      sync.Mutex
	took    batch.Account
	entered chan struct{}
	release chan struct{}
	ended   atomic.Bool
}

func (c *custodian) Wants() wants { return wants{Inline: c.inline} }

func (c *custodian) Account(read func(batch.Account)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	read(c.took)
}

func (c *custodian) Accept(_ context.Context, l *Lease) error {
	c.mu.Lock()
	if l.Settle(2) {
		c.took = batch.Account{Accepted: 2, Delivered: 2}
	}
	c.mu.Unlock()
	close(c.entered)
	<-c.release
	return nil
}

func (c *custodian) Shutdown(context.Context) (batch.Report, error) {
	c.ended.Store(true)
	return batch.Report{}, nil
}

// Records in the account of the consumer are counted once, even while Accept runs. If Close did not
// wait for a call of Accept, the consumer is shut down when that call ends.
func TestRecordsOfARunningAcceptCountOnce(t *testing.T) {
	for _, inline := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			c := &custodian{inline: inline, entered: make(chan struct{}), release: make(chan struct{})}
			w := mustSink(t, c, nil)
			for i := range 3 {
				mustWrite(t, w, i, 10)
			}
			<-c.entered
			if a := w.Account(); a.Check() != nil || a.Delivered != 2 || a.Pending.Total() != 1 {
				t.Errorf("account %v", a)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if r, err := w.Shutdown(ctx); err == nil || r.Check() != nil || c.ended.Load() {
				t.Errorf("%v, %v, shut down %t", err, r, c.ended.Load())
			}
			close(c.release)
			synctest.Wait()
			if !c.ended.Load() {
				t.Error("the consumer was not shut down")
			}
			if a := w.Account(); a.Check() != nil {
				t.Errorf("account %v", a)
			}
		})
	}
}

// Nothing is evicted for a record that would not fit after the eviction.
func TestOversizeIsNotEvictedInVain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 61, MaxRecord: 20000, WhenFull: slab.DropOldest()})
		mustWrite(t, w, 0, 20000)
		<-g.entered // the consumer hangs with the record
		mustWrite(t, w, 1, 5000)
		if err := w.WriteRecord(line(2, 15000), batch.Meta{}); !errors.Is(err, slab.ErrDropped) {
			t.Error(err)
		}
		mustWrite(t, w, 3, 5000)
		g.open()
		closeNow(t, w)
		if ns := numbers(t, g.String()); !slices.Equal(ns, []int{0, 1, 3}) {
			t.Errorf("arrived %v", ns)
		}
		checkAccount(t, w, 4, 3, drops(batch.Full, 1))
	})
}

func TestDropNewest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 4, WhenFull: slab.DropNewest()})
		const n = 1000
		kept := 0
		for i := range n {
			if err := w.WriteRecord(line(i, 50), batch.Meta{}); err == nil {
				kept++
				if i != kept-1 {
					t.Fatalf("record %d kept after a drop, while nothing was freed", i)
				}
			}
		}
		g.open()
		if err := w.Flush(t.Context()); err != nil { // does not deliver dropped records later
			t.Fatal(err)
		}
		wantSequence(t, numbers(t, g.String()), 0, kept)
		checkAccount(t, w, n, uint64(kept), drops(batch.Full, uint64(n-kept)))
		closeNow(t, w)
	})
}

func TestBlockedWritesAreServedInOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.Block()})
		n := 0
		const size = 58 // leaves room in a slab for a smaller record, which must wait nevertheless
		for ; w.Stats().SlabsInUse < 2 || w.front.cur == nil || w.front.cur.fits(size); n++ {
			mustWrite(t, w, n, size)
		}
		const blocked = 100
		var wg sync.WaitGroup
		for i := range blocked {
			wg.Go(func() { mustWrite(t, w, n+i, size-i%40) })
			synctest.Wait() // fixes the order of the waiting calls
		}
		if got := w.Stats().Waiting; got != blocked {
			t.Fatalf("%d writes are blocked, want %d", got, blocked)
		}
		g.open()
		wg.Wait()
		closeNow(t, w)
		wantSequence(t, numbers(t, g.String()), 0, n+blocked)
		checkAccount(t, w, uint64(n+blocked), uint64(n+blocked), batch.Drops{})
	})
}

func TestBlockForTimesEachWaiter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.BlockFor(100 * time.Millisecond)})
		n := 0
		for ; w.Stats().SlabsInUse < 2 || w.front.cur == nil || w.front.cur.fits(50); n++ {
			mustWrite(t, w, n, 50)
		}
		var wg sync.WaitGroup
		for i := range 5 { // the first two time out, and the others return after 125 ms
			time.Sleep(10 * time.Millisecond)
			start := time.Now()
			wg.Go(func() {
				err := w.WriteRecord(line(n+i, 50), batch.Meta{})
				want := 100 * time.Millisecond
				if i >= 2 {
					want = time.Duration(125-10*(i+1)) * time.Millisecond
				}
				if d := time.Since(start); d != want || (err != nil) != (i < 2) {
					t.Errorf("waiter %d: %v after %v, want %v", i, err, d, want)
				}
			})
		}
		time.Sleep(75 * time.Millisecond)
		g.open()
		wg.Wait()
		closeNow(t, w)
		checkAccount(t, w, uint64(n+5), uint64(n+3), drops(batch.Full, 2))
	})
}

func TestShutdownRefusesBlockedWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.Block()})
		var wg sync.WaitGroup
		var refused atomic.Int64
		for i := range 100 {
			wg.Go(func() {
				if err := w.WriteRecord(line(i, 50), batch.Meta{}); errors.Is(err, batch.ErrClosed) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, _ := w.Shutdown(ctx)
		wg.Wait()
		if r.Accepted+uint64(refused.Load()) != 100 || refused.Load() == 0 || r.Check() != nil {
			t.Errorf("report %v, %d refused", r, refused.Load())
		}
		if w.Stats().Refused != uint64(refused.Load()) {
			t.Errorf("stats count %d refused, callers saw %d", w.Stats().Refused, refused.Load())
		}
		g.open()
	})
}

func TestReserveIsKeptForImportantRecords(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 8, Reserve: 3, WhenFull: slab.DropNewest()})
		debug := batch.Meta{Level: slog.LevelDebug}
		info := batch.Meta{Level: slog.LevelInfo}
		for i := range 200 {
			w.WriteRecord(line(i, 100), debug)
		}
		if free := w.conf.o.SlabCount - w.Stats().SlabsInUse; free != 3 {
			t.Errorf("%d slabs are free after a flood of Debug, want the reserve of 3", free)
		}
		ok := 0
		for i := range 200 {
			if w.WriteRecord(line(1000+i, 100), info) == nil {
				ok++
			}
		}
		if ok < 9 { // three slabs of three records each
			t.Errorf("only %d Info records fit into the reserve", ok)
		}
		g.open()
		closeNow(t, w)
		if err := w.Account().Check(); err != nil {
			t.Error(err)
		}
	})
}

// OnError may write to the Writer that reports the event, even while the Writer is full.
func TestOnErrorMayLogIntoTheSameWriter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		var w *pump
		ready := make(chan struct{})
		var calls atomic.Int64
		w = mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.Block(), OnError: func(e batch.Event) {
			<-ready
			calls.Add(1)
			w.Write(make([]byte, 50))
		}})
		w.WriteRecord(make([]byte, 2<<20), batch.Meta{}) // causes an event, because the record is too large
		for i := 0; w.Stats().SlabsInUse < 2 || w.front.cur == nil || w.front.cur.fits(50); i++ {
			mustWrite(t, w, i, 50)
		}
		close(ready)
		synctest.Wait()
		if n := w.Stats().Waiting; n != 1 {
			t.Errorf("%d writes wait, want that of OnError", n)
		}
		time.AfterFunc(time.Second, g.open)
		for i := range 100 {
			mustWrite(t, w, i, 50)
		}
		closeNow(t, w)
		if calls.Load() == 0 {
			t.Error("OnError was not called")
		}
		if err := w.Account().Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestFlushInterval(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		w := mustNew(t, writerFunc(func(p []byte) (int, error) {
			at = append(at, time.Since(start))
			return len(p), nil
		}), nil)
		defer closeNow(t, w)
		time.Sleep(time.Second)
		mustWrite(t, w, 0, 10) // the first write after a pause wakes the consumer
		time.Sleep(60 * time.Millisecond)
		mustWrite(t, w, 1, 10)
		time.Sleep(time.Second)
		w.WriteRecord(line(2, 10), batch.Meta{Level: slog.LevelError}) // written immediately because of its level
		time.Sleep(time.Second)
		mustWrite(t, w, 3, 10)
		time.Sleep(time.Millisecond)
		w.WriteRecord(line(4, 10), batch.Meta{Level: slog.LevelError}) // written immediately, even while the consumer waits for its timer
		synctest.Wait()
		want := []time.Duration{1100 * time.Millisecond, 2060 * time.Millisecond, 3061 * time.Millisecond}
		if !slices.Equal(at, want) {
			t.Errorf("destination was written to at %v, want %v", at, want)
		}
	})
}

func TestOldestRecordWaitsAtMostFlushInterval(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var worst time.Duration
		w := mustSink(t, sendFunc(func(_ context.Context, b *batch.Batch) (o batch.Outcome) {
			for _, r := range b.All() {
				worst = max(worst, time.Since(time.Unix(0, r.Time)))
			}
			return o
		}), &slab.Options{SlabBytes: 4096})
		rng := testkit.Rand(testkit.Seed(t))
		for i := range 5000 {
			w.WriteRecord(line(i, 50), batch.Meta{Time: time.Now().UnixNano()})
			time.Sleep(time.Duration(rng.IntN(5)*rng.IntN(20)) * time.Millisecond)
		}
		closeNow(t, w)
		if worst > defaults.FlushInterval {
			t.Errorf("a record waited %v, want at most %v", worst, defaults.FlushInterval)
		}
		if worst < defaults.FlushInterval/2 {
			t.Errorf("no record waited longer than %v: slabs are not given time to fill", worst)
		}
	})
}

// A record larger than a slab is delivered after the records of the partial slab, and before the
// next record.
func TestOversizeRecordKeepsItsPlace(t *testing.T) {
	g := newGate()
	w := mustNew(t, g, &slab.Options{SlabBytes: 1024, SlabCount: 32, FlushInterval: -1})
	for i, n := range []int{900, 900, 50, 5000, 50, 5000, 5000, 50} {
		mustWrite(t, w, i, n)
	}
	g.open()
	closeNow(t, w)
	wantSequence(t, numbers(t, g.String()), 0, 8)
}

func TestFlushWaitsForDelivery(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := &memory{act: func(int, []byte) (int, error) { time.Sleep(10 * time.Millisecond); return -1, nil }}
		w := mustNew(t, m, &slab.Options{SlabBytes: 512, FlushInterval: -1, WhenFull: slab.Block()})
		defer closeNow(t, w)
		n := 0
		for range 50 {
			for range 7 {
				mustWrite(t, w, n, 60)
				n++
			}
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantSequence(t, numbers(t, m.String()), 0, n)
		}
		if err := w.Flush(t.Context()); err != nil { // returns at once, because nothing is pending
			t.Fatal(err)
		}
	})
}

func TestWriteAllocatesNothing(t *testing.T) {
	w := mustNew(t, io.Discard, nil)
	defer closeNow(t, w)
	p := make([]byte, 200)
	m := batch.Meta{Time: 1, Level: slog.LevelInfo}
	if n := allocsOf(func() { w.WriteRecord(p, m) }); n != 0 {
		t.Errorf("WriteRecord allocates %v times in %d calls", n, allocCalls)
	}
	if n := allocsOf(func() { w.Write(p) }); n != 0 {
		t.Errorf("Write allocates %v times in %d calls", n, allocCalls)
	}
}

// allocCalls is the number of calls per measurement of allocsOf. If only the few calls on the slow
// path allocated, the average would be rounded down to 0.
const allocCalls = 100

func allocsOf(call func()) float64 {
	return allocs.PerRun(100, func() {
		for range allocCalls {
			call()
		}
	})
}

func TestDropsAllocateNothing(t *testing.T) {
	g := newGate()
	w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest()})
	p := make([]byte, 200)
	for w.WriteRecord(p, batch.Meta{}) == nil {
	}
	if n := allocs.PerRun(1000, func() { w.WriteRecord(p, batch.Meta{}) }); n != 0 {
		t.Errorf("a dropped record allocates %v times", n)
	}
	g.open()
	closeNow(t, w)
}

func TestEmptyRecord(t *testing.T) {
	var r recorder
	w := mustSink(t, &r, nil)
	w.Write(nil)
	w.Write([]byte("a\n"))
	w.Write(nil)
	closeNow(t, w)
	checkAccount(t, w, 3, 3, batch.Drops{})
	if !slices.Equal(r.got, []string{"", "a\n", ""}) {
		t.Errorf("got %q", r.got)
	}
}

func TestMetadataReachesTheConsumer(t *testing.T) {
	var got []batch.Record
	w := mustSink(t, sendFunc(func(_ context.Context, b *batch.Batch) (o batch.Outcome) {
		for _, r := range b.All() {
			r.Data = bytes.Clone(r.Data)
			got = append(got, r)
		}
		return o
	}), &slab.Options{SlabBytes: 512})
	want := []batch.Meta{
		{Time: 1, Level: slog.LevelDebug, Stream: 7},
		{Time: -5, Level: slog.LevelError + 3, Stream: 1 << 31},
		{Level: 127}, {Level: -128},
	}
	for i, m := range want {
		w.WriteRecord(line(i, 10+600*(i%2)), m)
	}
	w.WriteRecord([]byte("x"), batch.Meta{Level: 1 << 20})
	closeNow(t, w)
	for i, m := range want {
		if got[i].Meta != m || got[i].Ticket != uint64(i+1) {
			t.Errorf("record %d: %+v ticket %d, want %+v", i, got[i].Meta, got[i].Ticket, m)
		}
	}
	if got[4].Level != 127 {
		t.Errorf("a level beyond 8 bits arrived as %v", got[4].Level)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := newPump(&retrier{}, &slab.Options{SlabBytes: 5, SlabCount: 1, SlabRecords: 1, MaxRecord: -1, Reserve: 9})
	for _, want := range []string{"SlabBytes is 5", "SlabCount is 1", "SlabRecords is 1, must be 0 or at least 2", "MaxRecord is -1", "Reserve is 9"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %q", err, want)
		}
	}
}

func TestParseWhenFull(t *testing.T) {
	for _, s := range []string{"block", "block-for=50ms", "drop-newest", "drop-oldest", "spill"} {
		p, err := slab.ParseWhenFull(s)
		if err != nil || p.String() != s {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "blok", "block=1s", "block-for=x", "block-for=-1s", "drop-newest=1"} {
		if _, err := slab.ParseWhenFull(s); err == nil {
			t.Errorf("%q accepted", s)
		}
	}
}

// While no Send is running, no record is unknown, because between two attempts it is certain that
// the destination has not accepted the records.
func TestNothingIsUnknownBetweenAttempts(t *testing.T) {
	for _, inline := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			c := consumerFor(sendFunc(func(context.Context, *batch.Batch) batch.Outcome { return failed() }))
			c.wait, c.wants.Inline = time.Hour, inline
			w := mustSink(t, c, nil)
			mustWrite(t, w, 0, 10)
			time.Sleep(time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if r, err := w.Shutdown(ctx); err == nil || r.Unknown != 0 || r.Dropped[batch.Shutdown] != 1 {
				t.Errorf("inline %t: report %+v, %v", inline, r, err)
			}
		})
	}
}

// MaxRecord applies even if a slab has room for a larger record.
func TestMaxRecordBelowTheSlab(t *testing.T) {
	for name, o := range map[string]slab.Options{
		"heap":   {},
		"mapped": {Crash: &slab.Crash{Required: true}},
		"oldest": {WhenFull: slab.DropOldest()},
	} {
		t.Run(name, func(t *testing.T) {
			if o.Crash != nil {
				if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
					t.Skip("no crash-safe slabs here")
				}
				o.Crash.Dir = t.TempDir()
			}
			o.SlabBytes, o.MaxRecord = 4096, 100
			if name != "oldest" {
				o.WhenFull = slab.Block()
			}
			var m memory
			w := mustNew(t, &m, &o)
			const rounds = 300 // enough for several slabs
			for i := range rounds {
				mustWrite(t, w, i, 100)
				if err := w.WriteRecord(make([]byte, 101), batch.Meta{}); !errors.Is(err, slab.ErrDropped) {
					t.Fatalf("round %d: %v", i, err)
				}
			}
			closeNow(t, w)
			a := w.Account()
			if a.Check() != nil || a.Accepted != 2*rounds || a.Dropped[batch.Oversize] != rounds {
				t.Errorf("account %v", a)
			}
		})
	}
}

// The flush interval counts from the acceptance of a record, even if the destination was busy at
// that time or the previous batch had no room for the record. The record is sent when it is that
// old, or when the destination is no longer busy. A partial slab is not sent earlier.
func TestFlushIntervalBesideSlowSends(t *testing.T) {
	for name, c := range map[string]struct {
		o      slab.Options
		limits batch.Limits
	}{
		"slabs":         {o: slab.Options{SlabBytes: 4096, SlabCount: 32}},
		"records":       {o: slab.Options{SlabBytes: 1024, SlabCount: 64}, limits: batch.Limits{Records: 17}},
		"bytes and age": {o: slab.Options{SlabBytes: 1024, SlabCount: 64}, limits: batch.Limits{Bytes: 700, Age: defaults.FlushInterval}},
		"oversize":      {o: slab.Options{SlabBytes: 512, SlabCount: 64}},
		"drop-oldest":   {o: slab.Options{SlabBytes: 512, SlabCount: 4, WhenFull: slab.DropOldest()}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rng, stalls := rand.New(rand.NewPCG(7, 8)), rand.New(rand.NewPCG(9, 10))
				var free time.Time // the destination is busy from this time on
				late, early, sealed := 0, 0, uint32(0)
				var w *pump
				w = mustSink(t, sinkWithLimits{c.limits, func(b *batch.Batch) {
					first := time.Unix(0, b.At(0).Time)
					if due := first.Add(defaults.FlushInterval); time.Now().After(due) && time.Now().After(free) {
						late++
						t.Logf("sent at the age of %v, the destination was free for %v", time.Since(first), time.Since(free))
					} else if time.Now().Before(due) && w.store.sealed.Load() == sealed {
						early++
					}
					sealed = w.store.sealed.Load()
					if stalls.IntN(3) == 0 {
						time.Sleep(time.Duration(stalls.IntN(90)) * time.Millisecond)
					}
					free = time.Now()
				}}, &c.o)
				for i := range 1500 {
					size := 50
					if name == "oversize" && rng.IntN(10) == 0 {
						size = 600
					}
					_ = w.WriteRecord(line(i, size), batch.Meta{Time: time.Now().UnixNano()})
					time.Sleep(time.Duration(rng.IntN(5)*rng.IntN(10)) * time.Millisecond)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if late > 0 {
					t.Errorf("%d batches were sent late", late)
				}
				if early > 0 && name == "slabs" {
					t.Errorf("%d batches were sent though no slab was full", early)
				}
				closeNow(t, w)
			})
		})
	}
}

type sinkWithLimits struct {
	limits batch.Limits
	send   func(*batch.Batch)
}

func (s sinkWithLimits) Send(_ context.Context, b *batch.Batch) (o batch.Outcome) {
	s.send(b)
	return o
}

func (s sinkWithLimits) Limits() batch.Limits { return s.limits }

// Write and WriteRecord have separate fast paths. Both assign the same tickets and store the same
// time and level.
func TestTickets(t *testing.T) {
	r := &recorder{answer: func(_ int, b *batch.Batch) (o batch.Outcome) {
		for _, rec := range b.All() {
			if m := (batch.Meta{Time: rec.Time, Level: slog.Level(rec.Level), Stream: rec.Stream}); m != (batch.Meta{}) {
				t.Errorf("ticket %d: %+v", rec.Ticket, m)
			}
		}
		return o
	}}
	w := mustSink(t, r, &slab.Options{SlabBytes: 2048, WhenFull: slab.Block()})
	const callers, n = 4, 5000
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			for i := range n {
				p := line(g*n+i, 1+i%60)
				var err error
				if i%2 == 0 {
					_, err = w.Write(p)
				} else {
					err = w.WriteRecord(p, batch.Meta{})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	closeNow(t, w)
	for i, ticket := range r.tickets {
		if ticket != uint64(i+1) {
			t.Fatalf("record %d has ticket %d", i+1, ticket)
		}
	}
	checkAccount(t, w, callers*n, callers*n, batch.Drops{})
}
