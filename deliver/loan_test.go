package deliver

import (
	"cmp"
	"context"
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

// A producer sends batches to an outlet: as a copy, or as loans, whose memory it spoils
// as soon as it is returned.
type producer struct {
	x     *outlet
	how   handover
	most  int // loans that a session may have; 0: 1000
	mu    sync.Mutex
	loans []*testLoan
}

type handover int

const (
	copying handover = iota
	lending          // as slabs on the heap do
	keeping          // as crash-safe slabs do
)

var handovers = []handover{copying, lending, keeping}

func (h handover) String() string { return [...]string{"copying", "lending", "keeping"}[h] }

// A testLoan says when its calls came, and whether each came once.
type testLoan struct {
	p                 *producer
	mem               copied
	open              int
	settled, returned int // whether all is settled; how often it was released
}

func (p *producer) Send(ctx context.Context, b *batch.Batch) error {
	if p.how == copying {
		return p.x.Send(ctx, b)
	}
	_, err := p.lend(ctx, b)
	return err
}

func (p *producer) lend(ctx context.Context, b *batch.Batch) (*testLoan, error) {
	l := &testLoan{p: p}
	l.mem.set(b)
	l.open = int(countable(b))
	err := p.x.take(ctx, func(h *holder) *batch.Batch {
		h.loan = l
		return &l.mem.b
	})
	if err == nil {
		p.mu.Lock()
		p.loans = append(p.loans, l)
		p.mu.Unlock()
	}
	return l, err
}

func (l *testLoan) Keeps() bool      { return l.p.how == keeping }
func (l *testLoan) Pins() (int, int) { return 1, cmp.Or(l.p.most, 1000) }

func (l *testLoan) Open() int {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.open
}

func (l *testLoan) Settle(n int) bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if n > l.open {
		return false
	}
	if l.open -= n; l.open == 0 {
		l.settled = 1
	}
	return true
}

func (l *testLoan) Release() {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.returned++; l.returned == 1 {
		clear(l.mem.data)
		clear(l.mem.slots)
	}
}

// state returns how often l was settled and returned.
func (l *testLoan) state() (settled, returned int) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.settled, l.returned
}

// back returns how many records are not settled.
func (p *producer) back() (n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.loans {
		n += uint64(l.open)
	}
	return n
}

// account returns the account of the outlet with the records that are pending here.
func (p *producer) account() batch.Account {
	a := p.x.Account()
	n := p.back()
	a.Accepted += n
	a.Pending.Inflight += n
	return a
}

// check fails the test unless every loan was settled and returned.
func (p *producer) check(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.loans {
		if l.settled == 0 && p.how != keeping || l.returned != 1 {
			t.Errorf("loan %d was settled %d times, returned %d times", i, l.settled, l.returned)
		}
	}
}

// A loan is settled when its records are accounted for, and returned when nothing reads
// them: at once after an answer, when the session has closed after its end.
func TestLoan(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := newHand(2)
		d.onEnd = func(*handSession) { <-release }
		x := mustNew(t, d, &Options{DeadLetter: &handlerLog{}})
		p := &producer{x: x, how: lending}
		want := func(l *testLoan, settled, returned int) {
			t.Helper()
			synctest.Wait()
			if s, r := l.state(); s != settled || r != returned {
				t.Errorf("settled %d times, returned %d times; want %d, %d", s, r, settled, returned)
			}
		}
		m := &testkit.Model{}
		first, err := p.lend(t.Context(), m.Batch(4, 32, batch.Meta{}))
		if err != nil {
			t.Fatal(err)
		}
		want(first, 0, 0)
		d.answer(0, batch.Outcome{Open: batch.From(2), Why: testkit.ErrDown})
		want(first, 0, 0)
		time.Sleep(time.Minute)
		d.answer(1, batch.Outcome{Refused: batch.Of(1), Refusal: testkit.ErrDown})
		want(first, 1, 1)
		second, err := p.lend(t.Context(), m.Batch(4, 32, batch.Meta{}))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		x.Drain(time.Now().Add(time.Millisecond)) // late: nobody but the session has it
		_, _ = shutdown(x, time.Second)
		want(second, 1, 0)
		close(release)
		want(second, 1, 1)
		p.check(t)
		if a := x.Account(); a.Delivered != 3 || a.Dropped != (batch.Drops{batch.Poison: 1, batch.Shutdown: 4}) {
			t.Error(a)
		}
	})
}

// A session that hangs has no more of the producer's memory than that can spare.
func TestLoanPins(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newHand(4)
		x := mustNew(t, d, &Options{Spill: &testkit.Spill{}})
		var full atomic.Bool
		press, err := x.SpillWhen(full.Load)
		if err != nil {
			t.Fatal(err)
		}
		p := &producer{x: x, how: lending, most: 2}
		m := &testkit.Model{}
		for range 3 {
			send(t, m, p, m.Batch(1, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 2)
		full.Store(true)
		for range 10 {
			press()
			send(t, m, p, m.Batch(1, 32, batch.Meta{}))
		}
		synctest.Wait()
		d.mustStart(t, 1, 2, 3, 4) // the last two from the spool
		for i, l := range p.loans {
			if s, r := l.state(); s != 1 || (r == 1) != (i >= 2) {
				t.Errorf("loan %d is settled %d times, returned %d times", i, s, r)
			}
		}
		full.Store(false)
		d.answer(0, taken)
		d.answer(1, taken)
		for i := 2; i < 13; i++ {
			synctest.Wait()
			d.answer(i, taken)
		}
		mustBalance(t, m, x, 13)
		mustClose(t, x)
	})
}

// What a producer keeps goes back to it when there is no time, and counts nowhere else.
func TestLoanGoesBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newHand(2)
		x := mustNew(t, d, nil)
		p := &producer{x: x, how: keeping}
		m := &testkit.Model{}
		for range 3 {
			send(t, m, p, m.Batch(4, 32, batch.Meta{}))
		}
		synctest.Wait()
		d.answer(0, batch.Outcome{Open: batch.From(3), Why: testkit.ErrDown})
		synctest.Wait()
		r, err := shutdown(x, time.Second)
		if err != nil || r.Unknown != 0 || p.back() != 9 {
			t.Errorf("%v, %d unknown, %d came back", err, r.Unknown, p.back())
		}
		if want := (batch.Account{Accepted: 3, Delivered: 3}); r.Account != want {
			t.Errorf("%s, want %s", r.Account, want)
		}
		p.check(t)
	})
}

// With a spool, lent records go there while the session has them. Their memory stays
// until the session has closed.
func TestLoanSpills(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newHand(2)
		x := mustNew(t, d, &Options{Spill: &testkit.Spill{}})
		var full atomic.Bool
		press, err := x.SpillWhen(full.Load)
		if err != nil {
			t.Fatal(err)
		}
		p := &producer{x: x, how: keeping}
		m := &testkit.Model{}
		for range 3 {
			send(t, m, p, m.Batch(5, 32, batch.Meta{}))
		}
		d.mustStart(t, 1, 6)
		d.answer(0, batch.Outcome{Open: batch.From(3), Why: testkit.ErrDown})
		synctest.Wait()
		full.Store(true)
		press()
		synctest.Wait()
		full.Store(false)
		if a := balance(t, m, x); a.Delivered != 3 || a.Pending.Spill != 12 {
			t.Error(a)
		}
		for i, want := range []int{1, 0, 1} { // the session has the second
			if s, r := p.loans[i].state(); s != 1 || r != want {
				t.Errorf("loan %d is settled %d times, returned %d times", i, s, r)
			}
		}
		d.answer(1, taken) // it counts, though the older records have gone to the spool, too
		time.Sleep(time.Minute)
		d.mustStart(t, 1, 6, 4, 11)
		d.answer(2, taken)
		d.answer(3, taken)
		mustBalance(t, m, x, 15)
		mustClose(t, x)
		p.check(t)
	})
}

// Crash-safe slabs before an outlet, and a destination that misbehaves: what
// one process leaves the next one delivers, and nothing is lost.
func TestLoanCrashSafe(t *testing.T) {
	dir := t.TempDir()
	bubble.Test(t, func(t *testing.T) {
		const total = 4000
		rng := testkit.Rand(testkit.Seed(t))
		arrived := map[string]int{}
		for process := range 4 {
			d := newPeer(3, rng, 100*time.Millisecond)
			d.randomFaults(0.2)
			keep := recordTexts{d, arrived}
			x := mustNew(t, keep, nil)
			w, err := slab.New(&front{outlet: x}, &slab.Options{SlabBytes: 4096, SlabCount: 4, WhenFull: slab.Block(), Crash: slab.CrashSafe(dir), OnError: func(batch.Event) {}})
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
