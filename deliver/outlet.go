package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
	"github.com/forebay-log/forebay/internal/breaker"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/plural"
)

// An outlet moves batches from a log to one [Destination]. It is responsible for the order, the
// window of batches in flight, retries, the circuit breaker, the search for poisonous records, the
// handler, dead letters and the spool. Its loop is the only consumer of the log, and makes all
// decisions.
//
// The outlet is one queue with three positions:
//
//	 settled            sent                 accepted
//	    │   in flight    │      waiting         │
//	────▼────────────────▼──────────────────────▼───▶
//	 freed   [ session may still answer ]   the log appends
//
// When a session ends, the batches without an answer wait again, and the next session begins with
// the oldest open record. So the first copies of all records arrive in order, and a failure makes
// at most the records of the batches in flight arrive twice.
//
// A call of the driver may hang forever, and a call of the spool may take long. So a goroutine that
// waits for the loop stops waiting when its context ends. Data that is needed while the loop hangs
// (Stats, the account, the end of Close) is guarded by locks that the loop never holds during a
// call.
//
// All methods may be called from any goroutine, except those documented for the loop only.
type outlet struct {
	driver  *driver
	set     *settings
	m       *machine // only the loop uses it, except disk.sync and disk.call
	led     *ledger
	brk     *circuit                // only the loop uses it, except its subscribers
	handler atomic.Pointer[guarded] // nil: no handler
	dead    *deadLetters
	events  callback.Reporter

	inline bool          // the loop calls the driver itself: see newOutlet
	wake   chan struct{} // wakes the loop; capacity 1
	done   chan struct{} // closed when the loop has ended
	ctx    context.Context
	giveUp func() // cancels calls of handlers and an inline session
	end    *closeOnce

	// Only the loop uses these fields.
	life   *life
	spare  []report // memory for reports; see life.reports
	intake intake

	shared shared
}

// shared is the data that callers and the loop share. The loop calls the functions in inbox in
// order. A function passes an outcome of the handler, or a new stage of Close, to the machine.
type shared struct {
	mu    sync.Mutex // leaf lock; guards the fields below
	inbox []func(now time.Time)
	asked []*flush // calls of Flush and Commit that the loop has not read
	snap  snapshot
}

// snapshot is the last published state of the loop. The loop publishes it before it waits, before a
// call that may hang, and after a call that may have taken long.
type snapshot struct {
	stats   Stats     // the fields that the loop sets
	lastErr error     // nil while the destination works
	oldest  time.Time // time of the oldest open record; zero: no open record
	taken   time.Time // time at which the oldest open batch was leased; zero: no open batch
}

// closeOnce makes only the first Shutdown run, and stores its result.
type closeOnce struct {
	begun atomic.Bool
	ended chan struct{} // closed when the fields below are set

	report batch.Report
	err    error
}

var errClosed = fmt.Errorf("deliver: %w", batch.ErrClosed)

// newOutlet returns the outlet of a destination; its method start starts the loop. o may be nil.
// The error names every option that is out of range.
//
// If the driver answers within Send, the loop makes the calls of the driver, because passing each
// batch to another goroutine would take half as long as a write. With a spool or a handler, the
// session nevertheless has a goroutine, so that the loop can move records to them while a Send
// hangs.
func newOutlet(dest Destination, o *Options) (*outlet, error) {
	traits := dest.Traits()
	set, err := o.resolve(&traits)
	if err != nil {
		return nil, err
	}
	traits.Window = max(1, traits.Window)
	x := &outlet{
		inline: traits.Inline && set.spill == nil && set.Handler == nil,
		wake:   make(chan struct{}, 1), done: make(chan struct{}),
	}
	x.events.SetOutput(set.name, set.OnError)
	ctx, cancel := context.WithCancelCause(context.Background())
	x.ctx, x.giveUp = ctx, func() { cancel(outputhook.ErrClosing) }
	x.end = &closeOnce{ended: make(chan struct{})}
	x.led = &ledger{spill: set.spill}
	x.driver = newDriver(dest, &x.events, func() uint64 { return x.led.account().Delivered })
	if set.spill != nil {
		x.led.readSpill(nil)
	}
	x.brk = newCircuit(*set.Breaker, backoff.Jitter)
	if set.Handler != nil {
		x.handler.Store(newGuarded(set.Handler, set.HandlerTimeout))
	}
	x.dead = newDeadLetters(set.letters(traits.Refused), set.HandlerTimeout, &x.events, x.wakeLoop)
	x.set = &settings{
		traits: &traits, opt: &set, handler: set.Handler != nil, oldest: time.Now().Add(-set.Retry.MaxAge).UnixNano(), jitter: backoff.Jitter,
		post: x.events.Post, deadLetter: x.dead.write, lettersFull: x.dead.full,
		release: x.intake.release, pending: func() uint64 { return x.Account().Pending.Total() },
	}
	x.m = newMachine(x.set, x.led, x.brk)
	x.intake.o = x
	if d, ok := dest.(interface{ reportTo(func(error)) }); ok {
		d.reportTo(func(err error) { x.events.Post("count", err, 0) })
	}
	return x, nil
}

// start starts the loop, which consumes l. Batches that an earlier process left in the spool are
// delivered at once. The method stop ends the loop. An outlet that was not started need not be
// stopped.
func (o *outlet) start(l log) {
	o.intake.log = l
	go o.loop()
}

// setHandler replaces the handler, unless the outlet is inline. A call in progress continues.
func (o *outlet) setHandler(h ErrorHandler) {
	if o.inline {
		return
	}
	o.handler.Store(newGuarded(h, o.set.opt.HandlerTimeout))
	o.post(func(time.Time) { o.m.set.handler = true })
}

// wakeLoop wakes the loop.
func (o *outlet) wakeLoop() { signal(o.wake) }

// post makes the loop call f, and returns at once. It may be called under any lock except
// shared.mu. After the end of the loop, f is not called.
func (o *outlet) post(f func(now time.Time)) {
	o.shared.mu.Lock()
	o.shared.inbox = append(o.shared.inbox, f)
	o.shared.mu.Unlock()
	o.wakeLoop()
}

// ---- the loop -------------------------------------------------------------

// loop leases batches from the log and executes the decisions of the machine. Each iteration reads
// the events, leases batches while there is room, and executes one action. The loop ends when the
// machine has ended.
func (o *outlet) loop() {
	finished := false
	defer func() {
		if !finished { // the spool, or the driver of an inline outlet, called runtime.Goexit
			if o.inline {
				o.life.unwound()
			}
			go o.loop()
		}
	}()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	if o.m.set.spools() {
		o.m.disk.pull(time.Now()) // records of an earlier process
	}
	for {
		now := time.Now()
		o.collect(now)
		if o.intake.fill(now) {
			continue
		}
		o.intake.readShortage()
		if o.m.end.handlerOver(now) {
			o.giveUp()
		}
		crowded, busy := o.intake.crowded(), o.intake.busy()
		a := o.m.next(now)
		if a.do == doEnd {
			break
		}
		if a.do == doWait && (crowded && !o.intake.crowded() || busy && !o.intake.busy()) { // next has settled batches, so that fill can lease more
			continue
		}
		if o.do(a, timer); a.do >= doSpill {
			o.publish() // published now, because the loop may run for a long time without waiting, which also publishes
		}
	}
	timer.Stop()
	o.publish()
	o.m.flushes.answer()
	o.intake.log.Leave()
	if o.life != nil { // abandoned: from now on the goroutine of the session owns the list of its batches
		o.life.whenClosed(o.m.sess.closed)
	}
	finished = true
	close(o.done)
}

// collect passes the events since the last call to the machine. The inbox comes last: a result of
// the handler must not overtake an earlier report of the session.
func (o *outlet) collect(now time.Time) {
	o.shared.mu.Lock()
	inbox, asked := o.shared.inbox, o.shared.asked
	o.shared.inbox, o.shared.asked = nil, nil
	o.shared.mu.Unlock()
	for _, f := range asked {
		o.m.flushes.add(now, f)
	}
	for l := o.life; l != nil && l == o.life; {
		q := l.reports(o.spare)
		for i := range q {
			if o.m.reported(now, &q[i]); q[i].kind == reportClosed {
				o.life = nil
			}
		}
		clear(q)
		if o.spare = q; len(q) == 0 {
			break
		}
	}
	for _, f := range inbox { // reports that the session posted before these events are already processed
		f(now)
	}
}

// do executes a. It blocks only in doWait, in calls of the spool and, for an inline outlet, in
// calls of the driver.
func (o *outlet) do(a action, timer *time.Timer) {
	switch a.do {
	case doWait:
		o.publish() // publish first, so that Stats after a Flush includes this state
		o.m.flushes.answer()
		o.wait(earlier(a.until, o.intake.due), timer)
	case doOpen:
		parent := context.Background()
		if o.inline {
			parent = o.ctx
		}
		o.life = newLife(parent, o.driver, o.wake, o.m.set.traits.Window)
		if o.life.inline = o.inline; o.inline {
			o.publish() // the call may hang
			o.life.open()
		} else {
			go o.life.run()
		}
	case doSend:
		if o.inline {
			o.publish() // the call may hang
			o.life.transmit(a.e)
		} else {
			o.life.work <- a.e // has room for all batches that may be in flight
		}
	case doClose:
		why := errFinished
		if o.m.end.stage >= late {
			why = outputhook.ErrClosing
		}
		if o.life.fence(why); o.inline {
			o.life.close()
		}
	case doSpill:
		o.m.disk.append(time.Now(), a.e)
	case doPull:
		o.m.disk.pull(time.Now())
	case doAcknowledge:
		o.m.disk.acknowledge()
	case doHandle:
		e, b := a.e, copyOf(a.e.b) // copied now, because the records may be settled and their memory reused before the call
		cause := &PendingError{Pending: o.set.pending(), Err: o.m.handler.cause(o.m.end.stage >= late)}
		go func() {
			out := o.handler.Load().call(o.ctx, cause, b)
			o.post(func(now time.Time) { o.m.handled(now, e, out) })
		}()
	}
}

// wait waits until something happens or until the given time. A zero time is no limit. The channel
// wake has capacity 1, so an event just before the wait is not lost.
func (o *outlet) wait(until time.Time, timer *time.Timer) {
	if !until.IsZero() {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		timer.Reset(left)
		defer timer.Stop()
	}
	select {
	case <-o.wake:
	case <-o.intake.log.Wake():
	case <-timer.C:
	}
}

// A PendingError is the cause that is passed to an [ErrorHandler]. Its field Err wraps [ErrOpen]
// while the circuit is open, and [ErrFull] if the destination has not failed but is too slow.
type PendingError struct {
	Pending uint64 // number of waiting records, including the records of the call
	Err     error
}

// Error returns the number of waiting records and the reason.
func (e *PendingError) Error() string { return fmt.Sprintf("%d records wait: %v", e.Pending, e.Err) }

// Unwrap returns Err.
func (e *PendingError) Unwrap() error { return e.Err }

// ---- flush ----------------------------------------------------------------

// Flush waits until everything accepted before the call is delivered or accounted for, and flushes
// the destination. An open circuit is probed at once. Flush returns an error that wraps [ErrOpen]
// as soon as the circuit opens or the probe fails. If only parked records are left, the error has
// their number. If ctx ends before that, Flush returns the error of ctx. During Close, Flush waits
// for Close, which flushes the destination.
func (o *outlet) Flush(ctx context.Context) error {
	closed, err := o.reach(ctx, &flush{probed: breaker.MayProbe(ctx)})
	if err != nil {
		return fmt.Errorf("deliver: cannot flush: %w", err)
	}
	if closed {
		return nil
	}
	return o.unlessClosing(ctx, o.driver.flush)
}

// unlessClosing calls f, which calls the driver. If Close has begun, or begins before the call of
// the driver, unlessClosing waits for Close, which flushes and syncs the destination.
func (o *outlet) unlessClosing(ctx context.Context, f func(context.Context) error) error {
	if !o.end.begun.Load() {
		if err := f(ctx); !errors.Is(err, errClosed) {
			return err
		}
	}
	return o.awaitEnd(ctx)
}

// commit waits until everything accepted before the call is delivered, accounted for or in the
// spool, and flushes the destination. During and after Close it returns errClosed, because Close
// may have dropped records.
func (o *outlet) commit(ctx context.Context) error {
	closed, err := o.reach(ctx, &flush{kept: true})
	if err == nil && (closed || o.end.begun.Load()) {
		err = errClosed
	}
	if err != nil {
		return fmt.Errorf("deliver: cannot commit: %w", err)
	}
	return o.driver.flush(ctx)
}

// reach passes f to the loop and waits for its result. If the log is closed, reach waits for the
// end of Close instead and returns true. If ctx ends before the loop has read f, reach removes f,
// so that such calls do not accumulate while the loop hangs in a call of the driver.
func (o *outlet) reach(ctx context.Context, f *flush) (closed bool, err error) {
	ticket, ok := o.intake.log.Flush()
	if !ok {
		return true, o.awaitEnd(ctx)
	}
	f.ctx, f.ticket, f.ch = ctx, ticket, make(chan error, 1)
	o.shared.mu.Lock()
	o.shared.asked = append(o.shared.asked, f)
	o.shared.mu.Unlock()
	o.wakeLoop()
	select {
	case err = <-f.ch:
		return false, err
	case <-ctx.Done():
		o.shared.mu.Lock()
		o.shared.asked = slices.DeleteFunc(o.shared.asked, func(other *flush) bool { return other == f })
		o.shared.mu.Unlock()
		return false, o.lateError(ctx)
	case <-o.done:
		select {
		case err = <-f.ch:
			return false, err
		default:
			return false, errClosed
		}
	}
}

// lateError returns the error of a call that has not finished before the end of ctx, with the number
// of records that it waits for and the error of the destination.
func (o *outlet) lateError(ctx context.Context) error {
	err := fmt.Errorf("%w: %s not delivered yet", closetime.Late(ctx), plural.Records(o.Account().Pending.Total()))
	if why := o.Stats().LastError; why != "" {
		err = fmt.Errorf("%w: %s", err, why)
	}
	return err
}

// Sync is Flush, followed by a sync of the spool and of the destination to stable storage, where
// supported. Even if Flush fails, the sync is made, unless ctx has ended. Sync does not wait beyond
// the end of ctx.
func (o *outlet) Sync(ctx context.Context) error {
	err := o.Flush(ctx)
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, o.unlessClosing(ctx, func(ctx context.Context) error {
		return errors.Join(o.m.disk.sync(ctx), o.driver.sync(ctx))
	}))
}

// publish stores a snapshot of the machine for Stats.
func (o *outlet) publish() {
	m := o.m
	record, taken := m.oldest()
	s := snapshot{lastErr: m.health.cause, oldest: record, taken: taken, stats: Stats{
		Breaker: m.brk.state(), Trips: m.brk.trips, Attempts: m.sess.attempts, Retries: m.health.retries,
		Spilling: m.disk.backlog || len(m.disk.out) > 0, Suspects: m.account.suspects, BatchBytes: m.health.bound, FailingSince: m.health.since, Gone: m.health.gone.on,
	}}
	o.shared.mu.Lock()
	o.shared.snap = s
	o.shared.mu.Unlock()
}

// Stats returns a snapshot. It never waits for the destination.
func (o *outlet) Stats() Stats {
	o.shared.mu.Lock()
	n := o.shared.snap
	o.shared.mu.Unlock()
	s := n.stats
	s.Name, s.Panics = o.set.opt.name, o.driver.panics.Load()
	s.LostDeadLetters, _ = o.dead.lost()
	if h := o.handler.Load(); h != nil {
		s.HandlerCalls, s.HandlerErrors = h.calls.Load(), h.errors.Load()
	}
	if !n.oldest.IsZero() {
		s.OldestAge = max(0, time.Since(n.oldest))
	}
	if !n.taken.IsZero() {
		s.OldestWait = time.Since(n.taken)
	}
	if n.lastErr != nil {
		s.LastError = n.lastErr.Error()
	}
	o.led.read(func(a batch.Account) { s.Account, s.Spilled, s.Bytes = a, o.led.spilled, o.led.bytes })
	return s
}

// Account returns the account of the outlet and its log together. No record moves from the log to
// the outlet while the two are read.
func (o *outlet) Account() (a batch.Account) {
	o.led.read(func(theirs batch.Account) { a = o.intake.log.Account(theirs) })
	return a
}

// awaitEnd waits until the Shutdown has ended.
func (o *outlet) awaitEnd(ctx context.Context) error {
	if isClosed(o.end.ended) {
		return nil
	}
	select {
	case <-o.end.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
