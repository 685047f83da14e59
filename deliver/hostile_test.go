package deliver

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// ---- the outlet under test --------------------------------------------------

// mustNew returns a started outlet. If o.OnError is nil, events are ignored.
func mustNew(t testing.TB, dest Destination, o *Options) *outlet {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	if o.OnError == nil {
		o.OnError = new(testkit.Events).Add
	}
	x, err := newOutlet(dest, o)
	if err != nil {
		t.Fatal(err)
	}
	x.start(newBatchLog())
	t.Cleanup(func() { // if the test fails, its own message must appear, not that of a leaked goroutine
		if t.Failed() {
			_, _ = shutdown(x, time.Second)
		}
	})
	return x
}

// mustClose shuts x down within 5 s and checks the account.
func mustClose(t testing.TB, x *outlet) batch.Report {
	t.Helper()
	r, err := shutdown(x, 5*time.Second)
	if err := errors.Join(err, r.Check()); err != nil {
		t.Fatalf("%v: %s", err, r.Account)
	}
	return r
}

// Shutdown is [Output.Shutdown] of an outlet that has no Output.
func (o *outlet) Shutdown(ctx context.Context) (batch.Report, error) { return o.once(ctx, o.stop) }

// shutdown shuts x down with a timeout of d.
func shutdown(x *outlet, d time.Duration) (batch.Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return x.Shutdown(ctx)
}

// send calls s.Send once and fails the test if it returns an error.
func send(t testing.TB, m *testkit.Model, s sender, b *batch.Batch) {
	t.Helper()
	if err := s.Send(t.Context(), b); m.Sent(b, err) != nil {
		t.Fatalf("not settled: %v", err)
	}
}

// mustFlush flushes x.
func mustFlush(t testing.TB, x *outlet) {
	t.Helper()
	if err := x.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// mustBalance checks that nothing is pending, and that n records were delivered.
func mustBalance(t testing.TB, m *testkit.Model, x *outlet, delivered uint64) {
	t.Helper()
	if a := balance(t, m, x); a.Delivered != delivered || a.Pending.Total() != 0 {
		t.Fatalf("want %d delivered, nothing pending: %s", delivered, a)
	}
}

// expect returns the tickets 1 to n without those in except.
func expect(n int, except ...uint64) (out []uint64) {
	for i := uint64(1); i <= uint64(n); i++ {
		if !slices.Contains(except, i) {
			out = append(out, i)
		}
	}
	return out
}

// hasTicket returns a function that reports whether a record has one of the tickets.
func hasTicket(tickets ...uint64) func(batch.Record) bool {
	return func(r batch.Record) bool { return slices.Contains(tickets, r.Ticket) }
}

// firstCopies returns the tickets of the first copies in got, in the order of arrival.
func firstCopies(got []uint64) (out []uint64) {
	seen := map[uint64]bool{}
	for _, k := range got {
		if !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

func ticketsOf(b *batch.Batch) (out []uint64) {
	for _, rec := range b.All() {
		out = append(out, rec.Ticket)
	}
	return out
}

// ofStream makes a batch of n records of one stream.
func ofStream(m *testkit.Model, n int, stream uint32) *batch.Batch {
	return m.Batch(n, 32, batch.Meta{Stream: stream})
}

// fullAtRandom makes the memory report at random times that it is full, until stop is called.
func fullAtRandom(t *testing.T, x *outlet, rng *rand.Rand) (stop func()) {
	t.Helper()
	var mu sync.Mutex
	full := false
	wake := x.setFull(func() bool { mu.Lock(); defer mu.Unlock(); return full })
	rng = testkit.Rand(rng.Uint64())
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Duration(rng.IntN(2000)) * time.Millisecond):
			}
			mu.Lock()
			full = rng.IntN(3) == 0
			now := full
			mu.Unlock()
			if now {
				wake()
			}
		}
	}()
	return func() { close(end); <-ended }
}

// ---- a handler --------------------------------------------------------------

// handlerLog is an ErrorHandler that keeps a log of its calls.
type handlerLog struct {
	mu     sync.Mutex
	offers [][]uint64
	errs   []error
	answer func(call int, b *batch.Batch, err error) batch.Outcome
}

func (h *handlerLog) HandleError(err error, b *batch.Batch) batch.Outcome {
	h.mu.Lock()
	call := len(h.offers)
	h.offers = append(h.offers, ticketsOf(b))
	h.errs = append(h.errs, err)
	h.mu.Unlock()
	if h.answer == nil {
		return batch.Outcome{}
	}
	return h.answer(call, b, err)
}

func (h *handlerLog) all() (tickets []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.offers {
		tickets = append(tickets, o...)
	}
	return tickets
}

func (h *handlerLog) calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.offers)
}

// ---- a destination whose test gives the answers -----------------------------

// manual is a Destination whose answers the test gives by calling its methods.
type manual struct {
	traits Traits
	open   func(n int, l Life) error // nil: success
	onSend func(s *manualSession, b *batch.Batch) error
	onEnd  func(s *manualSession) // called in Close

	mu       sync.Mutex
	sessions []*manualSession
	sent     []manualBatch
}

// manualSession is one session of the destination manual.
type manualSession struct {
	d      *manual
	n      int
	l      Life
	closed bool
	gone   error // result of later Sends, unless nil
}

// manualBatch is a batch that was sent.
type manualBatch struct {
	s       *manualSession
	b       *batch.Batch
	tickets []uint64
	text    string
}

func newManual(window int) *manual { return &manual{traits: Traits{Window: window}} }

func (d *manual) Traits() Traits { return d.traits }

func (d *manual) Open(l Life) (Session, error) {
	d.mu.Lock()
	s := &manualSession{d: d, n: len(d.sessions), l: l}
	d.sessions = append(d.sessions, s)
	open := d.open
	d.mu.Unlock()
	if open != nil {
		if err := open(s.n, l); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *manualSession) Send(b *batch.Batch) error {
	s.d.mu.Lock()
	if s.gone != nil {
		s.d.mu.Unlock()
		return s.gone
	}
	s.d.sent = append(s.d.sent, manualBatch{s, b, ticketsOf(b), string(b.AppendTo(nil))})
	f := s.d.onSend
	s.d.mu.Unlock()
	if f != nil {
		return f(s, b)
	}
	return nil
}

func (s *manualSession) Close() {
	if f := s.d.onEnd; f != nil {
		f(s)
	}
	s.d.mu.Lock()
	s.closed = true
	s.d.mu.Unlock()
}

// leave makes later Sends return err.
func (s *manualSession) leave(err error) {
	s.d.mu.Lock()
	s.gone = err
	s.d.mu.Unlock()
}

// session returns the newest session.
func (d *manual) session() *manualSession {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[len(d.sessions)-1]
}

func (d *manual) opens() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sessions)
}

// starts returns the first ticket of each batch that was sent.
func (d *manual) starts() (out []uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.sent {
		out = append(out, x.tickets[0])
	}
	return out
}

// batch returns the i-th batch that was sent.
func (d *manual) batch(i int) manualBatch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent[i]
}

// answer answers the i-th batch in its session and waits until all goroutines are blocked.
func (d *manual) answer(i int, o batch.Outcome) {
	x := d.batch(i)
	x.s.l.Answer(x.b, o)
	synctest.Wait()
}

// end ends the newest session and waits until all goroutines are blocked.
func (d *manual) end(err error) {
	d.session().l.End(err)
	synctest.Wait()
}

// mustStart checks the first ticket of each batch that was sent.
func (d *manual) mustStart(t *testing.T, want ...uint64) {
	t.Helper()
	synctest.Wait()
	if got := d.starts(); !slices.Equal(got, want) {
		t.Fatalf("sent %v, want %v", got, want)
	}
}

var allAccepted = batch.Outcome{}

// noneAccepted returns the Outcome of a batch of which no record was accepted.
func noneAccepted(err error) batch.Outcome { return batch.FailedOutcome(err) }

// ---- a peer with a window ----------------------------------------------------

// peer is a Destination with a window. Its server stores records in the order of arrival. The
// function fault is called for each batch that arrives. A fault affects that batch and all batches
// in flight after it, or the entire session.
type peer struct {
	window int
	delay  time.Duration // maximum delay of an answer
	fault  func(call int, b *batch.Batch) fault
	cannot func() error // result of Open, unless nil

	mu     sync.Mutex
	rng    *rand.Rand
	got    []uint64
	sizes  []int
	calls  int
	opens  int
	most   int      // the maximum number of batches in flight
	alone  []uint64 // suspects: records that were sent alone and ended their session
	faults []string
	live   int // open sessions
}

// fault is the failure of one batch.
type fault struct {
	kind faultKind
	n    int   // number of stored records; for isOpen and refuses, the index of a record
	err  error // default testkit.ErrDown
}

type faultKind uint8

const (
	fine       faultKind = iota
	isOpen               // the records from index n on, and all later batches, are answered open
	resets               // the session ends, n records are stored
	leaves               // Send refuses the batch
	panics               // Send panics, n records are stored
	exits                // Send calls runtime.Goexit, n records are stored
	garbles              // all records are stored; the answer is invalid, and the session ends
	hangs                // Send hangs until the session is ended
	faultKinds           // number of the kinds above, which occur at random
	refuses              // the record with index n is refused, the others are stored
)

func newPeer(window int, rng *rand.Rand, delay time.Duration) *peer {
	return &peer{window: window, delay: delay, rng: testkit.Rand(rng.Uint64())}
}

// randomFaults gives a fraction p of the batches a fault of a random kind, without the kinds in
// except.
func (d *peer) randomFaults(p float64, except ...faultKind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = func(_ int, b *batch.Batch) fault {
		if p == 0 || d.rng.Float64() >= p {
			return fault{}
		}
		f := fault{kind: 1 + faultKind(d.rng.IntN(int(faultKinds)-1)), n: d.rng.IntN(b.Len() + 1)}
		if slices.Contains(except, f.kind) {
			return fault{}
		}
		return f
	}
}

func (d *peer) Traits() Traits { return Traits{Window: d.window} }

func (d *peer) Open(l Life) (Session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opens++
	if d.cannot != nil {
		if err := d.cannot(); err != nil {
			return nil, err
		}
	}
	if d.live++; d.live > 1 {
		d.faults = append(d.faults, "two sessions at a time")
	}
	s := &peerSession{d: d, l: l, answers: make(chan peerAnswer, d.window+2), idle: make(chan struct{})}
	go s.work()
	return s, nil
}

type peerSession struct {
	d       *peer
	l       Life
	answers chan peerAnswer
	idle    chan struct{}

	awaited int       // number of batches without an answer; guarded by d.mu, like the fields below
	broken  error     // reason why batches are not stored; nil: they are stored
	since   time.Time // time of the last answer
	closed  bool
}

type peerAnswer struct {
	b *batch.Batch
	o batch.Outcome
}

// work sends the answers in order.
func (s *peerSession) work() {
	defer close(s.idle)
	for a := range s.answers {
		s.d.mu.Lock()
		wait := time.Duration(0)
		if s.d.delay > 0 {
			wait = time.Duration(s.d.rng.Int64N(int64(s.d.delay)))
		}
		s.d.mu.Unlock()
		if wait > 0 { // with Go 1.26, a timer that is due at once can crash the race detector in a bubble
			select {
			case <-time.After(wait):
			case <-s.l.Context().Done():
			}
		}
		s.d.mu.Lock()
		s.awaited--
		s.since = time.Now()
		s.d.mu.Unlock()
		s.l.Answer(a.b, a.o)
		s.l.Answer(a.b, batch.Outcome{}) // the second answer is ignored
	}
}

func (s *peerSession) Send(b *batch.Batch) error {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.closed {
		d.faults = append(d.faults, "Send after Close")
	}
	if s.awaited == 0 && time.Now().After(s.since) {
		s.broken = nil // no Send began before the answer with open records
	}
	if s.awaited++; s.awaited > d.window {
		d.faults = append(d.faults, "more batches in flight than the window")
	}
	d.most = max(d.most, s.awaited)
	d.sizes = append(d.sizes, b.Len())
	if s.broken != nil {
		s.answers <- peerAnswer{b, noneAccepted(s.broken)}
		return nil
	}
	f := fault{}
	if d.fault != nil {
		f = d.fault(d.calls, b)
	}
	d.calls++
	if f.err == nil {
		f.err = testkit.ErrDown
	}
	all := ticketsOf(b)
	if len(all) == 1 && (f.kind == resets || f.kind == panics || f.kind == exits || f.kind == hangs) {
		d.alone = append(d.alone, all[0])
	}
	switch f.kind {
	case isOpen:
		d.got = append(d.got, all[:min(f.n, len(all))]...)
		if f.n < len(all) {
			s.broken = f.err
		}
		s.answers <- peerAnswer{b, batch.Outcome{Open: batch.From(min(f.n, len(all))), Why: f.err}}
		return nil
	case refuses:
		d.got = append(append(d.got, all[:f.n]...), all[f.n+1:]...)
		s.answers <- peerAnswer{b, batch.Outcome{Refused: batch.Of(f.n), Refusal: errors.New("malformed")}}
		return nil
	case leaves:
		s.awaited--
		return f.err
	case hangs:
		d.mu.Unlock()
		select {
		case <-time.After(time.Second):
			s.l.End(f.err)
			<-s.l.Context().Done()
		case <-s.l.Context().Done():
		}
		d.mu.Lock()
		return f.err
	case resets, panics, exits:
		d.got = append(d.got, all[:min(f.n, len(all))]...)
		switch f.kind {
		case panics:
			panic("out of luck")
		case exits:
			runtime.Goexit()
		}
		s.l.End(f.err)
		s.l.Answer(b, batch.Outcome{}) // ignored, because the session has ended
		return nil
	case garbles:
		d.got = append(d.got, all...)
		s.broken = f.err
		s.answers <- peerAnswer{b, batch.Outcome{Open: batch.Of(len(all)), Refused: batch.Of(-1)}}
		return nil
	}
	d.got = append(d.got, all...)
	s.answers <- peerAnswer{b, batch.Outcome{}}
	return nil
}

func (s *peerSession) Close() {
	close(s.answers)
	<-s.idle
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.closed = true
	s.d.live--
}

// Got returns the tickets of the stored records, including copies.
func (d *peer) Got() []uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.got)
}

// check fails the test if the outlet violated the rules of [Session].
func (d *peer) check(t testing.TB, seed uint64) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.faults {
		t.Fatalf("seed %d: %s", seed, f)
	}
}

// ctxDone reports whether ctx has ended.
func ctxDone(ctx context.Context) bool { return ctx.Err() != nil }

// mustDrop shuts x down and checks that n records are dropped.
func mustDrop(t testing.TB, x *outlet, n uint64) {
	t.Helper()
	r, err := shutdown(x, time.Second)
	if err == nil || r.Check() != nil || r.Dropped[batch.Shutdown] != n {
		t.Errorf("%v, %v: %s", err, r.Check(), r.Account)
	}
}
