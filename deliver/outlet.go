package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
	"github.com/forebay-log/forebay/internal/breaker"
	"github.com/forebay-log/forebay/slab"
)

// An outlet moves batches to one [Destination]. It owns order, the window of batches
// in flight, retries, the circuit breaker, the search for poisonous records, the handler, dead
// letters and the spool. One goroutine makes all decisions.
//
// The outlet is one queue with three positions:
//
//	 settled            sent                 accepted
//	    │   in flight    │      waiting         │
//	────▼────────────────▼──────────────────────▼───▶
//	 freed   [ session may still answer ]   Borrow appends
//
// When a session ends, the batches without an answer are unsent: the next session begins with the
// oldest open record. So the first copies of all records arrive in order, and a
// failure makes at most the records of the batches in flight arrive twice.
//
// A slab.Writer leases its batches to it (Borrow). All methods may be called from any
// goroutine.
type outlet struct {
	driver *driver
	traits *Traits
	set    *settings
	opt    *Options
	m      *machine // the loop's
	led    *ledger
	brk    *circuit
	hand   atomic.Pointer[guarded] // nil: no handler
	dead   *deadLetters
	events *events

	turn     chan struct{}   // held during a Borrow; capacity 1
	inline   bool            // see inline.go
	helm     chan struct{}   // inline: closed when loop runs
	until    context.Context // inline: of the last batch; ends when Close gives up
	wake     chan struct{}   // for the loop; capacity 1
	room     chan struct{}   // for a Borrow that waits; capacity 1
	done     chan struct{}   // closed when the loop has ended
	ctx      context.Context
	giveUp   func() // ends the calls of handlers
	stopping *stopping

	// The loop's.
	life     *life
	added    []given // the memory of shared.given while that is another
	flushes  *flushes
	spooling *spooling

	pressure pressure
	shared   shared
}

// shared is what callers and the loop share.
type shared struct {
	mu     sync.Mutex // leaf, except for ledger.mu; guards the rest
	inbox  []func(now time.Time)
	given  []given
	lastNo uint64
	used   int       // batches that were taken and are not free again
	spare  []*holder // for reuse
	snap   snapshot
}

// given is a batch on its way from Borrow to the loop.
type given struct {
	h *holder
	b *batch.Batch
}

// snapshot is the state of the loop when it last published it.
type snapshot struct {
	attempts, retries                    uint64
	poisoned, expired, handled, suspects uint64
	bound                                int
	lastErr                              error
	since, taken                         time.Time // zero: the destination works, nothing is open
	oldest                               time.Time // by its own time; zero: nothing is open
	gone, spilling                       bool
}

var errClosed = fmt.Errorf("deliver: %w", batch.ErrClosed)

// newOutlet returns the outlet of a destination. o may be nil. If the spool holds batches
// of an earlier process, their delivery begins at once. The error names every option
// that is out of range. The outlet's goroutine ends with Shutdown.
func newOutlet(dest Destination, o *Options) (*outlet, error) {
	if dest == nil {
		return nil, errNilDestination
	}
	traits := dest.Traits()
	set, brk, retry, err := o.resolve(&traits)
	if err != nil {
		return nil, err
	}
	x := &outlet{
		traits: &traits, opt: &set, events: newEvents(set.Name, set.OnError),
		inline: traits.Inline && set.Spill == nil && set.Handler == nil, helm: make(chan struct{}),
		turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	x.ctx, x.giveUp = ctx, func() { cancel(errHandlerTimeout) }
	x.traits.Window = max(1, x.traits.Window)
	x.stopping = newStopping(x)
	x.led = &ledger{spill: set.Spill}
	x.driver = newDriver(dest, x.events, func() uint64 { return x.led.account().Delivered })
	if set.Spill != nil {
		x.led.look()
	}
	x.brk = newCircuit(brk, backoff.Jitter)
	if set.Handler != nil {
		x.hand.Store(newGuarded(set.Handler, set.HandlerTimeout))
	}
	x.dead = newDeadLetters(set.letters(traits.Refused), set.HandlerTimeout, x.events, x.poke)
	x.set = &settings{
		window: x.traits.Window, inline: traits.Inline, limits: x.traits.Limits, retry: retry, spool: set.Spill != nil, handler: set.Handler != nil,
		pendingLimit: uint64(set.PendingLimit), handlerFirst: set.HandlerFirst, askEvery: set.askEvery, asideBytes: set.AsideBytes,
		oldest: time.Now().Add(-retry.MaxAge).UnixNano(), jitter: backoff.Jitter,
		post: x.events.post, deadLetter: x.dead.write, lettersFull: x.dead.full, settled: x.led.forget, release: x.release, outside: set.Pending,
	}
	x.m = newMachine(x.set, x.led, x.brk)
	x.flushes = &flushes{m: x.m}
	x.spooling = &spooling{spill: set.Spill, m: x.m, flushes: x.flushes, events: x.events}
	if d, ok := dest.(interface{ reportTo(func(error)) }); ok {
		d.reportTo(func(err error) { x.events.post("count", err, 0) })
	}
	if !x.inline {
		go x.loop()
	}
	return x, nil
}

// setHandler replaces the handler of an outlet that is not inline. A call in progress continues.
func (o *outlet) setHandler(h ErrorHandler) {
	o.hand.Store(newGuarded(h, o.opt.HandlerTimeout))
	o.post(func(time.Time) { o.m.set.handler = true })
}

// Borrow accepts the batch of l into the outlet's custody and returns as soon as it is one of the
// next batches to send. It copies nothing: the slabs of the batch are in use until the destination
// has accepted it. Concurrent calls are serialized.
func (o *outlet) Borrow(ctx context.Context, l *slab.Lease) error {
	if o.inline {
		return o.deliver(ctx, l, l.Batch())
	}
	return o.take(ctx, func(h *holder) *batch.Batch {
		h.loan = l
		return l.Batch()
	})
}

// take waits until there is room for one more batch and hands the loop the one that
// fill puts into a holder.
func (o *outlet) take(ctx context.Context, fill func(h *holder) *batch.Batch) error {
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-o.stopping.closed:
		return errClosed
	}
	defer func() { <-o.turn }()
	if is(o.stopping.closed) {
		return errClosed
	}
	h, err := o.place(ctx)
	if err != nil {
		return err
	}
	b := fill(h)
	if h.loan == nil {
		h.left = countable(b)
	}
	if !o.give(h, b) {
		return errClosed
	}
	return nil
}

// place waits until there is room for one more batch.
func (o *outlet) place(ctx context.Context) (*holder, error) {
	for {
		o.shared.mu.Lock()
		if o.shared.used <= o.set.window {
			o.shared.used++
			n := len(o.shared.spare)
			if n == 0 {
				o.shared.mu.Unlock()
				return new(holder), nil
			}
			h := o.shared.spare[n-1]
			o.shared.spare = o.shared.spare[:n-1]
			o.shared.mu.Unlock()
			return h, nil
		}
		o.shared.mu.Unlock()
		select {
		case <-o.room:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-o.stopping.closed:
			return nil, errClosed
		}
	}
}

// give hands b, in the memory of h, to the loop. It reports false if Shutdown has begun
// meanwhile: the loop may have ended.
func (o *outlet) give(h *holder, b *batch.Batch) bool {
	o.shared.mu.Lock()
	defer o.shared.mu.Unlock()
	if is(o.stopping.closed) {
		return false
	}
	o.led.take(h)
	o.shared.lastNo++
	h.no = o.shared.lastNo
	o.shared.given = append(o.shared.given, given{h, b})
	o.poke()
	return true
}

// release takes back a holder of which nothing is left and which nothing reads.
func (o *outlet) release(h *holder) {
	if h.loan != nil {
		h.loan.Release()
	}
	if h.small || h.custody == producers {
		return
	}
	o.shared.mu.Lock()
	o.shared.used--
	if mem := h.mem; len(o.shared.spare) <= o.set.window {
		*h = holder{mem: mem}
		o.shared.spare = append(o.shared.spare, h)
	}
	o.shared.mu.Unlock()
	signal(o.room)
}

// poke wakes the loop.
func (o *outlet) poke() { signal(o.wake) }

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// is reports whether ch is closed.
func is(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// post makes the loop call f.
func (o *outlet) post(f func(now time.Time)) {
	o.shared.mu.Lock()
	o.shared.inbox = append(o.shared.inbox, f)
	o.shared.mu.Unlock()
	o.poke()
}

// ---- the loop -------------------------------------------------------------

// loop carries out the decisions of the machine.
func (o *outlet) loop() {
	if o.inline {
		o.driver.calls <- struct{}{}
		defer o.driver.release()
		if !is(o.helm) {
			close(o.helm)
		}
	}
	finished := false
	defer func() {
		if !finished { // the spool, or a driver that answers within Send, called runtime.Goexit
			if o.inline {
				o.life.failed(&panicError{errGoexit})
			}
			go o.loop()
		}
	}()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	if o.m.set.spool {
		o.spooling.pull() // what an earlier process left
	}
	for {
		o.collect()
		now := time.Now()
		o.m.full = o.m.set.spool && o.pressure.areFull()
		if o.m.handler.needs = (needs{}); o.m.set.handler || o.m.streams.any() {
			o.m.handler.needs = o.pressure.need()
		}
		if o.m.end.handlerOver(now) {
			o.giveUp()
		}
		a := o.m.next(now)
		if a.do == doEnd {
			break
		}
		o.do(a, timer)
	}
	timer.Stop()
	o.flushes.fail(errClosed)
	o.publish()
	finished = true
	close(o.done)
}

// collect passes to the machine the events since the last call.
func (o *outlet) collect() {
	now := time.Now()
	o.shared.mu.Lock()
	given, inbox := o.shared.given, o.shared.inbox
	o.shared.given, o.shared.inbox = o.added[:0], nil
	o.shared.mu.Unlock()
	for _, g := range given {
		o.m.add(now, g.h, g.b)
	}
	clear(given)
	o.added = given
	for l := o.life; l != nil && l == o.life; {
		q := l.reports()
		for i := range q {
			o.handle(now, l, &q[i])
		}
		n := len(q)
		l.keep(q)
		if n == 0 {
			break
		}
	}
	for _, f := range inbox { // reports that the session posted before count
		f(now)
	}
}

// handle passes a report of the session to the machine.
func (o *outlet) handle(now time.Time, l *life, r *report) {
	switch r.kind {
	case reportOpened:
		if r.err == nil {
			o.m.sess.opened()
		} else {
			o.m.failedToOpen(now, r.err) // reportClosed follows
		}
	case reportAnswer:
		o.m.answer(now, r.b, r.o)
	case reportRefused:
		o.m.refused(now, r.e, r.err)
	case reportUnsent:
		o.m.sess.unsent(r.e)
	case reportEnd:
		o.m.sessionEnded(now, r.err)
	case reportClosed:
		o.m.sess.closed()
		o.life = nil
	}
}

// do carries out a.
func (o *outlet) do(a action, timer *time.Timer) {
	switch a.do {
	case doWait:
		o.publish() // first, so that Stats after a Flush include it
		o.flushes.answer()
		o.rest(context.Background(), a.until, timer)
	case doOpen:
		if o.life = newLife(o); o.inline {
			l := o.life
			l.stop = context.AfterFunc(o.until, func() { l.cancel(errNoTime) })
			l.step()
		} else {
			go o.life.run()
		}
	case doSend:
		if o.inline {
			o.life.hand(a.e)
		} else {
			o.life.work <- a.e // has room for all batches that may be under way
		}
	case doClose:
		if o.life == nil {
			o.m.sess.closed()
			return
		}
		why := errFinished
		if o.m.end.stage >= late {
			why = errNoTime
		}
		if o.life.fence(why); o.inline {
			o.life.closeNow()
		}
	case doSpill:
		o.spooling.append(a.e)
	case doPull:
		o.spooling.pull()
	case doForget:
		o.spooling.forget(a.seq)
	case doHandle:
		e, c := a.e, new(copied)
		c.set(e.b) // now: the records may be settled, and their memory be used, before the call
		cause := &PendingError{Pending: o.m.handler.pending(), Err: o.m.handler.cause(o.m.end.stage >= late)}
		go func() {
			out := o.hand.Load().call(o.ctx, cause, &c.b)
			o.post(func(now time.Time) { o.m.handled(now, e, out) })
		}()
	}
}

// A PendingError is the cause that is passed to an [ErrorHandler]. Err wraps [ErrOpen] while
// the circuit is open, and [ErrFull] if the destination has not failed but is too slow.
type PendingError struct {
	Pending uint64 // waiting records, including the records of the call
	Err     error
}

// Error returns the number of waiting records and the reason.
func (e *PendingError) Error() string { return fmt.Sprintf("%d records wait: %v", e.Pending, e.Err) }

// Unwrap returns Err.
func (e *PendingError) Unwrap() error { return e.Err }

// HelpWhen makes the outlet offer records to the handler, in any state of the circuit, when the
// producer is about to drop records and the destination accepts none, or when a call without a time
// limit has waited for 125 ms and the destination is failing. The producer calls press when one of
// the two results of state may have become true.
func (o *outlet) HelpWhen(state func() (drops, waits bool)) (press func()) {
	if o.inline { // it has no handler
		return nil
	}
	o.pressure.add(nil, state)
	return o.poke
}

// SpillWhen makes the outlet write batches to the spool even while the destination is available but
// slow or hanging, whenever full reports that the producer has no room left. SpillWhen may be
// called at any time, but not while holding a lock that a method of the outlet acquires. The
// producer calls press each time it becomes full; press does not block. SpillWhen fails without
// Options.Spill.
func (o *outlet) SpillWhen(full func() bool) (press func(), err error) {
	if !o.m.set.spool {
		return nil, errors.New("deliver: there is no Spill to put records into")
	}
	o.pressure.add(full, nil)
	return o.poke, nil
}

// ErrFull means that memory is full because the destination is slow or hangs. It is the cause
// of the event "spill" when the spool begins to fill for that reason, and of a call of an
// [ErrorHandler].
var ErrFull = errors.New("the destination is too slow")

// ---- flush ----------------------------------------------------------------

// Flush waits until everything that was taken before the call is delivered or
// accounted for, and flushes the destination. An open circuit is probed
// at once. Flush returns an error that wraps [ErrOpen] as soon as the circuit opens or the probe
// fails, one that gives their number if nothing but parked records is left, and ctx's error
// if that ends first.
func (o *outlet) Flush(ctx context.Context) error {
	if !o.inline {
		_, trips, _, _ := o.brk.look()
		if err := o.reach(ctx, &flush{ch: make(chan error, 1), probed: o.probe(ctx), trips: trips}); err != nil {
			return fmt.Errorf("deliver: cannot flush: %w", err)
		}
	}
	return o.driver.flush(ctx)
}

// probe requests a probe of the destination for a Flush within ctx, if the circuit is open. It reports
// false if nothing is sent before the time for a probe has come.
func (o *outlet) probe(ctx context.Context) bool {
	if !breaker.MayProbe(ctx) || !o.brk.probe(time.Now(), o.set.retry.Min) {
		return false
	}
	o.poke()
	return true
}

// untilOpen returns a context that ends when the circuit opens, or a probe fails, or nil if a
// Flush within ctx does not end with it: a handler or a spool accepts the records that wait.
func (o *outlet) untilOpen(ctx context.Context) context.Context {
	probed := o.probe(ctx)
	if o.m.set.spool || o.hand.Load() != nil {
		return nil
	}
	return o.brk.untilOpen(probed)
}

// commit waits until everything that was taken before the call is delivered, accounted for
// or in the spool, and flushes the destination.
func (o *outlet) commit(ctx context.Context) error {
	if err := o.reach(ctx, &flush{ch: make(chan error, 1), kept: true}); err != nil {
		return fmt.Errorf("deliver: cannot commit: %w", err)
	}
	return o.driver.flush(ctx)
}

// reach adds f and waits until it is answered.
func (o *outlet) reach(ctx context.Context, f *flush) error {
	o.post(func(time.Time) {
		o.shared.mu.Lock()
		no := o.shared.lastNo
		o.shared.mu.Unlock()
		o.flushes.add(f, no)
	})
	select {
	case err := <-f.ch:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-o.done:
		select {
		case err := <-f.ch:
			return err
		default:
			return errClosed
		}
	}
}

// Sync puts the records in the spool and in the destination on stable storage, each if it can. It
// does not wait beyond the end of ctx.
func (o *outlet) Sync(ctx context.Context) error {
	return errors.Join(o.spooling.sync(ctx), o.driver.sync(ctx))
}
