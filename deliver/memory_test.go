package deliver

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/slablog"
	"github.com/forebay-log/forebay/slab"
)

// A batchLog is a log for tests. Its leases are copies of the batches that a test sends.
type batchLog struct {
	keeps bool // records that are not settled survive Close, as in crash-safe slabs
	most  int  // maximum number of leases pinned by a session; 0: 1000

	mu      sync.Mutex
	waiting []*batchLease // not leased yet
	leases  []*batchLease // leased and not released; if the field all is set, also the released ones
	all     bool
	leased  uint64 // number of batches leased
	account batch.Account
	closed  bool

	bell chan struct{}

	// The functions full and needs report a shortage of memory. Each may be nil.
	full  func() bool
	needs func() (drops, waits bool)
}

func newBatchLog() *batchLog { return &batchLog{bell: make(chan struct{}, 1)} }

// A batchLease counts the calls of its methods. Its memory is cleared when it is released.
type batchLease struct {
	log      *batchLog
	mem      *batch.Batch
	accepted bool // Close must not refuse it
	open     int
	settled  int           // 1 if all records are settled
	returned int           // number of Release calls
	taken    chan error    // capacity 1; receives nil when the lease is leased, or an error when it is refused
	done     chan struct{} // closed when all records are settled
}

// queue adds a copy of b, which may be leased even after Close.
func (g *batchLog) queue(b *batch.Batch) *batchLease { return g.add(b, true) }

func (g *batchLog) add(b *batch.Batch, accepted bool) *batchLease {
	l := &batchLease{log: g, accepted: accepted, taken: make(chan error, 1), done: make(chan struct{})}
	l.mem = copyOf(b)
	l.open = int(countable(b))
	if l.open == 0 {
		close(l.done)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		l.taken <- errClosed
		return l
	}
	g.waiting = append(g.waiting, l)
	g.wakeLoop()
	return l
}

// send adds a copy of b and waits until it is leased.
func (g *batchLog) send(ctx context.Context, b *batch.Batch) (*batchLease, error) {
	l := g.add(b, false)
	select {
	case err := <-l.taken:
		return l, err
	case <-ctx.Done():
	}
	g.mu.Lock()
	i := slices.Index(g.waiting, l)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.mu.Unlock()
	if i >= 0 {
		return l, context.Cause(ctx)
	}
	return l, <-l.taken
}

func (g *batchLog) Send(ctx context.Context, b *batch.Batch) error {
	_, err := g.send(ctx, b)
	return err
}

// wakeLoop wakes the loop of the outlet.
func (g *batchLog) wakeLoop() { signal(g.bell) }

func (g *batchLog) Next() (lease, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return nil, g.closed
	}
	l := g.waiting[0]
	g.waiting = slices.Delete(g.waiting, 0, 1)
	g.leases = append(g.leases, l)
	g.leased++
	g.account.Accepted += uint64(l.open)
	g.account.Pending.Inflight += uint64(l.open)
	l.taken <- nil
	return l, false
}

func (g *batchLog) Due() time.Time        { return time.Time{} }
func (g *batchLog) Wake() <-chan struct{} { return g.bell }
func (g *batchLog) Leave()                {}
func (g *batchLog) Refuse()               {}

func (g *batchLog) Full() bool {
	g.mu.Lock()
	full := g.full
	g.mu.Unlock()
	return full != nil && full()
}

func (g *batchLog) Shortage() (drops, waits bool) {
	g.mu.Lock()
	needs := g.needs
	g.mu.Unlock()
	if needs == nil {
		return false, false
	}
	return needs()
}

func (g *batchLog) Flush() (ticket uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leased, !g.closed
}

func (g *batchLog) Leased(ticket uint64) bool { return true }

// unsettled returns the number of leased records that are not settled.
func (g *batchLog) unsettled() (n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.account.Pending.Inflight
}

func (g *batchLog) Account(theirs batch.Account) batch.Account {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.account
	theirs.Accepted = 0
	a.Add(theirs)
	return a
}

// Close refuses the waiting calls of send.
func (g *batchLog) Close() {
	g.mu.Lock()
	g.closed = true
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(l *batchLease) bool {
		if !l.accepted {
			l.taken <- errClosed
		}
		return !l.accepted
	})
	g.wakeLoop()
}

func (g *batchLog) End(_ context.Context, done bool) (unknown uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keeps {
		return 0
	}
	lost := g.account.Pending.Inflight
	g.account.Pending.Inflight = 0
	g.account.Dropped[batch.Shutdown] += lost
	for _, l := range g.leases {
		l.open = 0
	}
	if done {
		return 0
	}
	return lost
}

func (l *batchLease) Batch() *batch.Batch { return l.mem }
func (l *batchLease) Keeps() bool         { return l.log.keeps }
func (l *batchLease) Pins() (int, int)    { return 1, cmp.Or(l.log.most, 1000) }

func (l *batchLease) Open() int {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	return l.open
}

func (l *batchLease) Settle(n int) bool {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	if n > l.open {
		return false
	}
	l.log.account.Pending.Inflight -= uint64(n)
	if l.open -= n; l.open == 0 && l.settled == 0 {
		l.settled = 1
		if n > 0 {
			close(l.done)
		}
	}
	return true
}

func (l *batchLease) Release() {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	if l.returned++; l.returned == 1 {
		for i := range l.mem.Runs {
			r := &l.mem.Runs[i]
			clear(r.Data())
			for k := range r.Len() {
				*r.Slot(k) = layout.Slot{}
			}
		}
		if g := l.log; !g.all {
			g.leases = slices.DeleteFunc(g.leases, func(other *batchLease) bool { return other == l })
		}
	}
}

// state returns how often l was settled and released.
func (l *batchLease) state() (settled, returned int) {
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	return l.settled, l.returned
}

// check fails the test unless every lease was settled and released.
func (g *batchLog) check(t testing.TB) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, l := range g.leases {
		if l.settled == 0 && !g.keeps || l.returned != 1 {
			t.Errorf("lease %d was settled %d times, released %d times", i, l.settled, l.returned)
		}
	}
}

// A logKind determines what a batchLog does with undelivered records at Close.
type logKind int

const (
	dropping logKind = iota // like slabs on the heap: they are dropped
	keeping                 // like crash-safe slabs: they stay pending
)

var logKinds = []logKind{dropping, keeping}

func (h logKind) String() string { return [...]string{"dropping", "keeping"}[h] }

// logFor returns the log of x and sets its kind.
func logFor(x *outlet, how logKind) *batchLog {
	g := logOf(x)
	g.keeps = how == keeping
	return g
}

// logOf returns the log of an outlet that mustNew made.
func logOf(o *outlet) *batchLog { return o.intake.log.(*batchLog) }

// Send passes a copy of b to the outlet. It waits until the outlet has leased the batch. If the
// outlet is inline, it waits until the records are settled.
func (o *outlet) Send(ctx context.Context, b *batch.Batch) error {
	l, err := logOf(o).send(ctx, b)
	if err != nil || !o.inline {
		return err
	}
	select {
	case <-l.done:
	case <-o.done:
		if l.Open() > 0 {
			return errClosed
		}
	}
	return nil
}

// setFull sets the function that reports whether memory is full, and returns a function that wakes
// the outlet.
func (o *outlet) setFull(full func() bool) (wake func()) {
	g := logOf(o)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.full = full
	return g.wakeLoop
}

// setNeeds sets the function that reports a shortage of memory, and returns a function that wakes
// the outlet.
func (o *outlet) setNeeds(needs func() (drops, waits bool)) (wake func()) {
	g := logOf(o)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.needs = needs
	return g.wakeLoop
}

// slabs is the memory in front of an outlet, for tests with real slabs.
type slabs struct {
	*slablog.Writer
	x   *outlet
	log *slablog.Log
}

// overSlabs returns an outlet and the slabs from which it reads.
func overSlabs(t testing.TB, dest Destination, o *Options, so *slab.Options) (*outlet, slabs) {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	if o.OnError == nil {
		o.OnError = func(batch.Event) {}
	}
	x, err := newOutlet(dest, o)
	if err != nil {
		t.Fatal(err)
	}
	w, l, err := slablog.New(so, x.consumer())
	if err != nil {
		t.Fatal(err)
	}
	x.start(slabLog{l})
	return x, slabs{w, x, l}
}

func (s slabs) Flush(ctx context.Context) error { return s.x.Flush(ctx) }
func (s slabs) Account() batch.Account          { return s.x.Account() }
func (s slabs) Shutdown(ctx context.Context) (batch.Report, error) {
	return s.x.Shutdown(ctx)
}

func (s slabs) Stats() (st slab.Stats) {
	s.x.led.read(func(theirs batch.Account) { st = s.log.Stats(theirs) })
	return st
}
