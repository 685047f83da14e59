package slablog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// walkCall is a call of WriteRecord and the outcome of its record.
type walkCall struct {
	begun, returned int // steps at which the call began and returned; 0: not yet
	at              time.Time
	level           slog.Level
	err             error
	seen            bool // the destination has received it
	settled         bool
	refused         bool // the destination refuses it permanently
	partial         bool // part of a batch that is not settled completely
	resort          bool // LastResort has written it
}

// A walk performs random steps with a Writer that has random options. It records calls and Sends
// independently of the Writer.
type walk struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	o    slab.Options
	w    *pump

	mu             sync.Mutex
	moment         int
	calls          []*walkCall
	running        int            // unfinished calls
	lastCall       int            // latest beginning of a call whose record has arrived
	tickets        map[uint64]int // call of each record that has arrived, by ticket
	maxSeen        uint64
	settledOfBatch []*walkCall // settled records of the current batch
	answers        *rand.Rand
	steps          chan bool // true: send an answer; false: an error
	free           bool      // from now on everything is accepted
	settled        uint64
	refused        uint64
	inline         bool
	limits         batch.Limits
	ended          bool // Close has returned; a slab that a Send reads may stay in use
}

func (k *walk) errorf(format string, args ...any) {
	k.t.Helper()
	k.t.Errorf("FOREBAY_SEED=%d: %s", k.seed, fmt.Sprintf(format, args...))
}

func (k *walk) Limits() batch.Limits { return k.limits }

// callOf returns the number of the call that wrote the record p.
func (k *walk) callOf(p []byte) (int, error) {
	_, n, err := parseKillLine(string(p))
	if err == nil && n >= uint64(len(k.calls)) {
		err = fmt.Errorf("no call wrote %.60q", p)
	}
	return int(n), err
}

// see checks a batch that arrived. Its records must be whole and in the order of the calls, and
// must not have been settled before.
func (k *walk) see(b *batch.Batch) {
	last := uint64(0)
	for _, r := range b.All() {
		call, err := k.callOf(r.Data)
		if err != nil {
			k.errorf("ticket %d: %v", r.Ticket, err)
			return
		}
		c := k.calls[call]
		if r.Ticket <= last {
			k.errorf("ticket %d after %d in a batch", r.Ticket, last)
		}
		last = r.Ticket
		if before, ok := k.tickets[r.Ticket]; ok {
			if before != call || c.settled || c.refused {
				k.errorf("ticket %d again: call %d, then %d, %+v", r.Ticket, before, call, *c)
			}
			continue
		}
		if c.seen || c.resort || errors.Is(c.err, slab.ErrDropped) || errors.Is(c.err, batch.ErrClosed) {
			k.errorf("call %d, ticket %d: %+v", call, r.Ticket, *c)
		}
		if r.Ticket < k.maxSeen {
			k.errorf("ticket %d after %d", r.Ticket, k.maxSeen)
		}
		if c.returned > 0 && c.returned < k.lastCall {
			k.errorf("call %d returned at %d, but a record of a call of %d came first", call, c.returned, k.lastCall)
		}
		c.seen = true
		k.tickets[r.Ticket], k.maxSeen, k.lastCall = call, r.Ticket, max(k.lastCall, c.begun)
	}
}

// settle stores the outcome of each record of b, which the function outcomeOf returns.
func (k *walk) settle(b *batch.Batch, outcomeOf func(i int) (settled, refused bool)) {
	open := false
	for i, r := range b.All() {
		c := k.calls[k.tickets[r.Ticket]]
		s, no := outcomeOf(i)
		switch {
		case no:
			c.refused = true
			k.refused++
		case s:
			c.settled = true
			k.settled++
		default:
			open = true
		}
		if s || no {
			c.partial = true
			k.settledOfBatch = append(k.settledOfBatch, c)
		}
	}
	if !open {
		for _, c := range k.settledOfBatch {
			c.partial = false
		}
		k.settledOfBatch = nil
	}
}

func (k *walk) Send(ctx context.Context, b *batch.Batch) batch.Outcome {
	k.mu.Lock()
	k.see(b)
	free := k.free
	k.mu.Unlock()
	good := true
	if !free {
		select {
		case good = <-k.steps:
		case <-ctx.Done():
			return batch.FailedOutcome(ctx.Err())
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	all := func(int) (bool, bool) { return true, false }
	if good {
		k.settle(b, all)
		return batch.Outcome{}
	}
	some := make([]int, 0, b.Len())
	in := map[int]bool{}
	for i := range b.Len() {
		if k.answers.IntN(3) == 0 {
			some, in[i] = append(some, i), true
		}
	}
	switch k.answers.IntN(8) {
	case 0:
		n := k.answers.IntN(b.Len() + 1)
		k.settle(b, func(i int) (bool, bool) { return i < n, false })
		return partly(n)
	case 1:
		k.settle(b, func(i int) (bool, bool) { return !in[i], false })
		return batch.Outcome{Open: batch.Of(some...), Why: errDown}
	case 2:
		k.settle(b, func(i int) (bool, bool) { return true, in[i] })
		return refused(some...)
	case 3:
		k.settle(b, func(i int) (bool, bool) { return true, true })
		return batch.Outcome{Refused: batch.All(), Refusal: errDown}
	case 4:
		return partly(b.Len() + 1 + k.answers.IntN(2)) // an index outside the batch
	case 5:
		panic("on purpose")
	case 6:
		runtime.Goexit()
	}
	return failed()
}

// Write accepts the records of LastResort.
func (k *walk) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	call, err := k.callOf(p)
	if err != nil || k.calls[call].seen || k.calls[call].resort {
		k.errorf("last resort: %v, call %d", err, call)
		return 0, io.ErrShortWrite
	}
	k.calls[call].resort = true
	return len(p), nil
}

func (k *walk) options() {
	r := k.rng
	pick := func(w ...slab.WhenFull) slab.WhenFull { return w[r.IntN(len(w))] }
	k.o = slab.Options{
		SlabBytes: 512 << r.IntN(3), SlabCount: 2 + r.IntN(6)*(1+r.IntN(2)), OnError: quiet,
		FlushInterval: []time.Duration{-1, time.Millisecond, 5 * time.Millisecond}[r.IntN(3)],
		WhenFull:      pick(slab.Block(), slab.BlockFor(time.Millisecond), slab.BlockFor(0), slab.DropNewest(), slab.DropOldest()),
		MaxRecord:     200 + r.IntN(3000),
	}
	o := &k.o
	if r.IntN(2) == 0 {
		o.Reserve = r.IntN(o.SlabCount)
	}
	if r.IntN(2) == 0 {
		o.ImportantWhenFull = pick(slab.Block(), slab.BlockFor(time.Millisecond), slab.DropNewest(), slab.DropOldest())
	}
	if r.IntN(3) == 0 {
		o.LastResort = k
	}
	if r.IntN(4) == 0 {
		o.SlabRecords = 2 + r.IntN(6)
	}
	k.limits = []batch.Limits{{}, {}, {Records: 1 + r.IntN(5)}, {Bytes: 100 + r.IntN(1000)}}[r.IntN(4)]
}

func (k *walk) call() {
	size, level := k.rng.IntN(100), []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}[k.rng.IntN(4)]
	switch k.rng.IntN(30) {
	case 0:
		size = k.rng.IntN(4000)
	case 1:
		size = k.o.SlabBytes - layout.SlotBytes - k.rng.IntN(20)
	}
	k.mu.Lock()
	k.moment++
	k.running++
	n := len(k.calls)
	c := &walkCall{begun: k.moment, at: time.Now(), level: level}
	k.calls = append(k.calls, c)
	k.mu.Unlock()
	go func() {
		err := k.w.WriteRecord(killLine(0, uint64(n), size), batch.Meta{Level: level, Time: c.at.UnixNano()})
		k.mu.Lock()
		defer k.mu.Unlock()
		k.moment++
		k.running--
		c.returned, c.err = k.moment, err
		if c.seen && err != nil {
			k.errorf("call %d was delivered and returned %v", n, err)
		}
	}()
}

func (k *walk) run() {
	stepping := 1 + k.rng.IntN(20)
	for range 300 {
		switch n := k.rng.IntN(23 + stepping); {
		case n < 2:
			time.Sleep(time.Duration(k.rng.IntN(3000)) * time.Microsecond)
		case n < 4:
			go func() {
				ctx, cancel := context.WithTimeout(k.t.Context(), time.Millisecond)
				defer cancel()
				_ = k.w.Flush(ctx)
			}()
		case n < 10:
			select {
			case k.steps <- k.rng.IntN(3) > 0:
			default:
			}
		case k.running < 12:
			for range 1 + k.rng.IntN(4) {
				k.call()
			}
		}
		synctest.Wait()
		k.balance()
	}
}

// balance compares the account with the recorded calls and Sends.
func (k *walk) balance() batch.Account {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.w.Stats()
	a := s.Account
	k.gauges(s)
	k.waits()
	if err := a.Check(); err != nil {
		k.errorf("%v", err)
	}
	accepted, full, resort := uint64(0), uint64(0), uint64(0)
	for _, c := range k.calls {
		if c.returned > 0 && !errors.Is(c.err, batch.ErrClosed) {
			accepted++
			if errors.Is(c.err, slab.ErrDropped) {
				full++
			}
		}
		if c.resort {
			resort++
		}
	}
	if a.Accepted < accepted || a.Accepted > accepted+uint64(k.running) || a.Dropped.Total() < full+k.refused {
		k.errorf("%d accepted, %d of them dropped, %d refused by the destination: %v", accepted, full, k.refused, a)
	}
	if a.Handled != resort || a.Delivered != k.settled {
		k.errorf("%d settled, %d handled by the last resort: %v", k.settled, resort, a)
	}
	return a
}

// gauges compares the gauges with the recorded calls and Sends, while no call and no Send is
// running.
func (k *walk) gauges(s slab.Stats) {
	var first, last time.Time // times of the oldest and newest pending records
	n := 0
	for _, c := range k.calls {
		done := c.settled || c.refused || c.resort
		if c.returned == 0 || c.err != nil || done && !c.partial {
			continue
		}
		if !done {
			n++
		}
		if first.IsZero() || c.at.Before(first) {
			first = c.at
		}
		if c.at.After(last) {
			last = c.at
		}
	}
	pending := s.Pending.Total()
	if pending == 0 && s.Waiting == 0 && !k.ended && (s.OldestAge != 0 || s.OldestWait != 0 || s.SlabsInUse != 0 || s.OversizeMem != 0) {
		k.errorf("nothing is pending, and the oldest is %v old, %d slabs and %d bytes are in use", s.OldestAge, s.SlabsInUse, s.OversizeMem)
	}
	if s.SlabsInUse < 0 || s.SlabsInUse > k.o.SlabCount || s.OversizeMem < 0 || s.OversizeMem > budget(&k.w.conf.o) ||
		s.BurstLeft < 0 || s.Rate < 0 || s.Room < 0 || s.Room > k.o.SlabCount*k.o.SlabBytes || s.Waiting > k.running {
		k.errorf("out of range: %+v", s)
	}
	if most := k.o.SlabCount*k.o.SlabRecords + 1; most > 1 && int(pending) > most {
		k.errorf("%d records are pending, %d may be", pending, most)
	}
	if k.oldest() || k.o.LastResort != nil || pending == 0 {
		return // the remaining records are unknown
	}
	if uint64(n) != pending {
		k.errorf("%d are pending, by the book %d: %v", pending, n, s.Account)
		return
	}
	if !k.inline {
		return // the records that the Writer still has are unknown
	}
	oldest, newest := time.Since(first), time.Since(last)
	if s.OldestAge < newest || s.OldestAge > oldest {
		k.errorf("the oldest is %v old, by the book %v, the newest %v", s.OldestAge, oldest, newest)
	}
	waits := k.w.conf.usual.wait != 0 || k.w.conf.onImportant.wait != 0
	if !waits && s.OldestAge != oldest { // a call that waited may have an older record than those accepted first
		k.errorf("the oldest is %v old, by the book %v", s.OldestAge, oldest)
	}
}

// waits checks that each waiting call has a reason to wait, and does not wait longer than its
// policy permits.
func (k *walk) waits() {
	for i, c := range k.calls {
		if limit := k.w.conf.policyFor(c.level).wait; c.returned == 0 && limit >= 0 && time.Since(c.at) > limit {
			k.errorf("call %d has been waiting for %v, not at most %v", i, time.Since(c.at), limit)
		}
	}
	w := k.w
	w.store.lock()
	defer w.store.unlock()
	if wt := w.store.callers.slabs.first(); wt != nil && (w.front.fitsLocked(len(wt.p)) || w.store.pool.free() > 0) {
		k.errorf("a record of %d bytes waits beside %d free slabs", len(wt.p), w.store.pool.free())
	}
	if wt := w.store.callers.bigs.first(); wt != nil {
		if _, ok := w.store.pool.cedableLocked(len(wt.p), w.front.reservedLocked(wt.m)); ok {
			k.errorf("a record of %d bytes waits with %d pending in such, and %d free slabs", len(wt.p), w.store.pool.oversize, w.store.pool.free())
		}
	}
}

// oldest reports whether a record may evict others.
func (k *walk) oldest() bool {
	return k.o.WhenFull == slab.DropOldest() || k.o.ImportantWhenFull == slab.DropOldest()
}

// end closes the Writer and compares the account with the records that have arrived.
func (k *walk) end() {
	patient := k.rng.IntN(4) > 0
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Millisecond)
	defer cancel()
	if patient {
		ctx = k.t.Context()
		k.mu.Lock()
		k.free = true
		k.mu.Unlock()
		close(k.steps)
	}
	_, err := k.w.Shutdown(ctx)
	k.ended = true
	synctest.Wait()
	if a := k.balance(); a.Pending.Total() != 0 || patient && a.Dropped[batch.Shutdown] > 0 {
		k.errorf("after Close: %v, %v", a, err)
	}
	for i, c := range k.calls {
		if c.returned == 0 {
			k.errorf("call %d never returned", i)
		} else if got := c.settled || c.refused || c.resort; patient && c.err == nil && !got && !k.oldest() && k.o.LastResort == nil {
			k.errorf("call %d: %+v is lost", i, *c)
		}
	}
}

// The Writer takes random steps with random options. Records arrive whole, in order and once, and
// the account equals the account that the walk has kept.
func TestWalk(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0))))
	for seed := range testkit.Walks(t, 60) {
		bubble.Test(t, func(t *testing.T) {
			k := &walk{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), answers: rand.New(rand.NewPCG(seed, 2)),
				steps: make(chan bool), tickets: map[uint64]int{}}
			k.options()
			c := consumerFor(k)
			c.wait, c.most = time.Millisecond, 1+k.rng.IntN(4)
			k.inline = k.rng.IntN(2) == 0
			c.wants.Inline = k.inline
			k.w = mustSink(t, c, &k.o)
			k.run()
			k.end()
		})
	}
}
