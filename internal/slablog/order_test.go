package slablog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/ordercheck"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// If call A returned before call B began, the record of A arrives first. Package ordercheck checks
// this in three ways: by the times of the calls, by numbers that are incremented and written under
// one mutex, and by the order within a goroutine.

// An orderRun is a configuration for which the order is checked.
type orderRun struct {
	name    string
	o       slab.Options
	callers int
	clock   func() ordercheck.Clock
	size    func(*rand.Rand) int // size of each record
	chain   int                  // one in this number of calls writes a number of the common sequence
	flush   int                  // one in this number of calls is followed by a Flush
	procs   bool                 // GOMAXPROCS changes between 1 and 16
	faulty  bool                 // the destination fails at random
	bytes   bool                 // the destination is an io.Writer
	crash   bool                 // crash-safe slabs
	closes  bool                 // Shutdown during the writes, with little time
	bubble  bool                 // runs in a synctest bubble: no goroutine may wait for a sync.Mutex
}

// A chanLock is a mutex that synctest recognizes: a goroutine that waits for it is durably blocked.
type chanLock chan struct{}

func (l chanLock) Lock()   { l <- struct{}{} }
func (l chanLock) Unlock() { <-l }

func lengths(from, to int) func(*rand.Rand) int {
	return func(rng *rand.Rand) int { return from + rng.IntN(to-from+1) }
}

// mixed returns sizes of records: mostly short ones, and one in twenty larger than a slab of 512
// bytes.
func mixed(rng *rand.Rand) int {
	if rng.IntN(20) == 0 {
		return 500 + rng.IntN(1500)
	}
	return 40 + rng.IntN(60)
}

func orderRuns() []orderRun {
	const quick = 50 * time.Microsecond // partial slabs are flushed almost immediately
	tiny := slab.Options{SlabBytes: 512, SlabCount: 4, FlushInterval: quick}
	with := func(o slab.Options, w slab.WhenFull) slab.Options { o.WhenFull = w; return o }
	return []orderRun{
		{name: "defaults", callers: 8, clock: ordercheck.NewLogical, size: lengths(40, 200), chain: 10, procs: true},
		{name: "defaults, bytes", callers: 8, clock: ordercheck.NewMonotonic, size: lengths(40, 200), chain: 10, bytes: true},
		{name: "tiny slabs", o: with(tiny, slab.Block()), callers: 6, clock: ordercheck.NewLogical, size: lengths(40, 200), chain: 5, flush: 500, procs: true},
		{name: "tiny slabs, monotonic", o: with(tiny, slab.Block()), callers: 6, clock: ordercheck.NewMonotonic, size: lengths(40, 90), flush: 500, procs: true},
		{name: "oversize", o: with(tiny, slab.Block()), callers: 6, clock: ordercheck.NewLogical, size: mixed, chain: 5, flush: 200, procs: true},
		{name: "oversize, faulty bytes", o: with(tiny, slab.Block()), callers: 6, clock: ordercheck.NewLogical, size: mixed, chain: 5, bytes: true, faulty: true},
		{name: "faulty", o: with(tiny, slab.Block()), callers: 6, clock: ordercheck.NewLogical, size: mixed, chain: 5, flush: 200, procs: true, faulty: true},
		{name: "block-for", o: with(tiny, slab.BlockFor(100*time.Microsecond)), callers: 6, clock: ordercheck.NewLogical, size: mixed, chain: 5, procs: true, faulty: true},
		{name: "drop-newest", o: with(tiny, slab.DropNewest()), callers: 6, clock: ordercheck.NewLogical, size: mixed, chain: 5, flush: 200, procs: true},
		{name: "drop-oldest", o: with(tiny, slab.DropOldest()), callers: 6, clock: ordercheck.NewLogical, size: mixed, chain: 5, flush: 200, procs: true},
		{name: "crash-safe", o: with(tiny, slab.Block()), callers: 6, clock: ordercheck.NewLogical, size: mixed, chain: 5, flush: 200, procs: true, crash: true},
		{name: "crash-safe, drop-oldest", o: with(tiny, slab.DropOldest()), callers: 6, clock: ordercheck.NewLogical, size: lengths(40, 120), procs: true, crash: true},
		{name: "many callers", o: slab.Options{SlabBytes: 4096, SlabCount: 6, WhenFull: slab.Block()}, callers: 64, clock: ordercheck.NewLogical, size: lengths(40, 120), chain: 20, procs: true},
	}
}

func TestOrder(t *testing.T) {
	for _, run := range orderRuns() {
		t.Run(run.name, func(t *testing.T) { run.do(t, testkit.Seed(t), 8_000, testkit.Rounds(t, 1, 10_000)) })
	}
}

// do runs the given number of rounds, with about n calls each.
func (run orderRun) do(t *testing.T, seed uint64, n, rounds int) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	c := ordercheck.New(run.callers, run.clock())
	o := run.o
	if run.crash {
		o.Crash = &slab.Crash{Dir: t.TempDir()} // on systems without crash safety the slabs are on the heap
	}
	d := &orderDest{c: c, arrived: make([]atomic.Uint32, run.callers)}
	if run.faulty {
		d.rng = rand.New(rand.NewPCG(seed, 1))
	}
	var to *retrier
	if run.bytes {
		to = consumerFor(writerFunc(d.Write))
	} else {
		to = consumerFor(d)
	}
	to.wait, to.wants.Inline = 5*time.Microsecond, seed%2 == 0
	accepts := 0
	to.refuse = func() bool { accepts++; return run.bubble && run.faulty && accepts%10 == 9 }
	w := mustSink(t, to, &o)
	var mu sync.Locker = new(sync.Mutex) // guards the common sequence of numbers
	if run.bubble {
		mu = make(chanLock, 1)
	}
	var chain uint64
	var calls, delivered, refused uint64
	for round := range rounds {
		var wg sync.WaitGroup
		for g := range run.callers {
			wg.Go(func() {
				k := c.Caller(g)
				rng := rand.New(rand.NewPCG(seed, uint64(round*run.callers+g+100)))
				buf := make([]byte, 0, 4096)
				write := func(chain uint64) {
					buf = k.Begin(buf[:0], run.size(rng), chain)
					m := batch.Meta{}
					if rng.IntN(1000) == 0 {
						m.Level = slog.LevelError
					}
					err := w.WriteRecord(buf, m)
					k.End(err == nil)
					if err != nil && !errors.Is(err, slab.ErrDropped) && !(run.closes && errors.Is(err, batch.ErrClosed)) {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
				for i := range n / run.callers {
					if run.closes && g == 0 && i == n/run.callers/2 {
						limit := time.Duration(rng.IntN(3000)) * time.Microsecond
						wg.Go(func() { // its error reports the records that were not delivered
							ctx, cancel := context.WithTimeout(t.Context(), limit)
							defer cancel()
							_, _ = w.Shutdown(ctx)
						})
					}
					if run.chain > 0 && rng.IntN(run.chain) == 0 {
						mu.Lock()
						chain++
						write(chain)
						mu.Unlock()
					} else {
						write(0)
					}
					if run.flush > 0 && rng.IntN(run.flush) == 0 {
						run.checkFlush(t, w, d, k)
					}
					if run.procs && g == 0 && i%1000 == 0 {
						runtime.GOMAXPROCS(1 + rng.IntN(16))
					}
					if rng.IntN(100) == 0 {
						runtime.Gosched()
						if err := w.Stats().Check(); err != nil {
							t.Errorf("seed %d: %v", seed, err)
						}
					}
				}
			})
		}
		wg.Wait()
		if round == rounds-1 {
			if run.closes { // Close has returned, but the consumer may still run
				_ = w.Close()
				<-w.done
			} else {
				closeNow(t, w)
			}
		} else if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d.err != nil {
			t.Fatalf("seed %d: %v", seed, d.err)
		}
		res, err := c.Check()
		if err != nil {
			t.Fatalf("seed %d: %d records out of order: %v", seed, res.Broken, err)
		}
		if res.Lost > 0 && o.WhenFull != slab.DropOldest() && !run.closes {
			t.Fatalf("seed %d: %d accepted records did not arrive", seed, res.Lost)
		}
		calls += uint64(res.Calls)
		delivered += uint64(res.Delivered)
		refused += uint64(res.Calls - res.Accepted)
		c.Next()
	}
	a := w.Account()
	if run.closes {
		n := w.Stats().Refused
		calls, refused = calls-n, refused-n
		rep, _ := w.Shutdown(t.Context()) // returns the same report as the first Shutdown
		if delivered > a.Delivered && delivered-a.Delivered <= rep.Unknown {
			delivered = a.Delivered // Close did not wait for a Send
		}
	}
	if err := a.Check(); err != nil || a.Accepted != calls || a.Delivered != delivered || a.Dropped.Total() != calls-delivered {
		t.Errorf("seed %d: %d calls, %d arrived, account %v, %v", seed, calls, delivered, a, err)
	}
	t.Logf("%d calls, %d refused, %d evicted", calls, refused, a.Dropped.Total()-refused)
}

// An orderDest is a destination that passes the records it receives to a Checker.
type orderDest struct {
	c       *ordercheck.Checker
	rng     *rand.Rand // makes it fail at random; nil: never
	err     error      // the first error
	ticket  uint64     // ticket of the last record
	arrived []atomic.Uint32
}

func (d *orderDest) Send(_ context.Context, b *batch.Batch) (o batch.Outcome) {
	n := b.Len()
	if d.rng != nil {
		switch d.rng.IntN(10) {
		case 0:
			return failed()
		case 1:
			n = d.rng.IntN(n + 1)
			o = partly(n)
		case 2:
			switch d.rng.IntN(20) {
			case 0:
				panic("destination")
			case 1:
				runtime.Goexit()
			}
		}
	}
	for i, r := range b.All() {
		if i == n {
			break
		}
		id, err := d.c.Deliver(r.Data)
		if err != nil && d.err == nil {
			d.err = err
		}
		d.arrived[id.Caller].Store(id.Seq + 1)
		if r.Ticket <= d.ticket && d.err == nil {
			d.err = fmt.Errorf("record %v has ticket %d and arrived after ticket %d", id, r.Ticket, d.ticket)
		}
		d.ticket = r.Ticket
	}
	return o
}

func (d *orderDest) Write(p []byte) (int, error) {
	n, err := len(p), error(nil)
	if d.rng != nil {
		switch d.rng.IntN(10) {
		case 0:
			n = d.rng.IntN(n + 1)
		case 1:
			n, err = d.rng.IntN(n+1), errDown
		}
	}
	if _, e := d.c.Write(p[:n]); e != nil && d.err == nil {
		d.err = e
	}
	return n, err
}

// checkFlush calls Flush and checks that all records that this caller has written before have
// arrived.
func (run orderRun) checkFlush(t *testing.T, w *pump, d *orderDest, k *ordercheck.Caller) {
	err := w.Flush(t.Context())
	if run.closes {
		return
	}
	if err != nil {
		t.Errorf("flush: %v", err)
		return
	}
	id, ok := k.LastAccepted()
	if !ok || run.bytes || run.o.WhenFull == slab.DropOldest() {
		return
	}
	if got := d.arrived[id.Caller].Load(); got <= id.Seq {
		t.Errorf("Flush returned, and record %v had not arrived, only %d of that caller", id, got)
	}
}

// Close runs during writes. Exactly the accepted records arrive, in order.
func TestOrderUntilClose(t *testing.T) {
	for seed := range testkit.Walks(t, 30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		const callers = 4
		c := ordercheck.New(callers, ordercheck.NewLogical())
		d := &orderDest{c: c, arrived: make([]atomic.Uint32, callers)}
		o := &slab.Options{SlabBytes: 512, SlabCount: 2 + rng.IntN(3), WhenFull: slab.Block(), FlushInterval: 50 * time.Microsecond}
		if rng.IntN(2) == 0 {
			d.rng = rand.New(rand.NewPCG(seed, 1))
		}
		to := consumerFor(d)
		to.wait, to.wants.Inline = time.Microsecond, seed%2 == 0
		w := mustSink(t, to, o)
		var wg sync.WaitGroup
		var calls atomic.Int64
		closeAt := int64(rng.IntN(300))
		for g := range callers {
			wg.Go(func() {
				k := c.Caller(g)
				rng := rand.New(rand.NewPCG(seed, uint64(g)))
				var buf []byte
				for {
					if calls.Add(1) == closeAt {
						wg.Go(func() { closeNow(t, w) })
					}
					buf = k.Begin(buf[:0], mixed(rng), 0)
					err := w.WriteRecord(buf, batch.Meta{})
					k.End(err == nil)
					if errors.Is(err, batch.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
					}
					if calls.Load() > 5*closeAt {
						return
					}
				}
			})
		}
		wg.Wait()
		closeNow(t, w)
		res, err := c.Check()
		if err != nil || d.err != nil || res.Lost > 0 {
			t.Fatalf("seed %d: %+v, %v, %v", seed, res, err, d.err)
		}
		if a := w.Account(); a.Delivered != uint64(res.Accepted) || a.Check() != nil {
			t.Fatalf("seed %d: account %v, %d accepted", seed, a, res.Accepted)
		}
	}
}
