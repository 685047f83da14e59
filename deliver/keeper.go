package deliver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// errClosed is what a Send after Close returns.
var errClosed = fmt.Errorf("deliver: %w", batch.ErrClosed)

// KeeperOptions configures a [Keeper]. The zero value is useful: each field
// states its default and unit.
type KeeperOptions struct {
	// Name stands in events. Default "deliver".
	Name string
	// Spill holds what the destination does not take. It may hold batches of an
	// earlier process: they are delivered first. Default nil: none.
	Spill Spill
	// When says for which errors Send puts a batch into the spill, apart from
	// those that refuse records (Reject, TooLarge), for which it never does.
	// Default nil: for all.
	When func(err error) bool
	// SpillWhenFull is [Options].SpillWhenFull. Default false.
	SpillWhenFull bool
	// Retry is how the Keeper sends again what it delivers by itself. Default
	// nil: as a Retry without options.
	Retry *RetryOptions
	// OnError is told of transitions: "spill" when the spill begins to fill, with
	// the destination's error, "spilled" when it is empty again, "spill-error"
	// when it fails (first of a row). It runs on a goroutine of its own behind a
	// bounded queue. Default nil: a line on standard error.
	OnError func(batch.Event)
}

// A Keeper is a [batch.Sink] that takes batches into its own custody: into a
// spill, when the destination is down, and into a window of batches in flight,
// when the destination is a [batch.AsyncSink].
//
//		                 healthy                     error, and When says so
//		passing ◀──────────────────────────── Send ───────────────────────────▶ spilling
//		   ▲                                                                        │
//		   └──────────────── the spill is empty, all of it is settled ──────────────┘
//
//	  - passing: a Send goes straight to the destination and returns what it
//	    returned. With an AsyncSink it copies the batch, starts it, and returns as
//	    soon as one of Window places is free.
//	  - spilling: Send appends to the spill and returns. One goroutine, started
//	    when there is work for it and ended when there is none, delivers what is in
//	    the spill, in order and before anything newer. It sends again for as long
//	    as it takes ([Retry]); what the destination refuses for good is dropped.
//
// If the spill fails or is full, Send returns its error: the producer holds the
// batch. Nothing is lost in silence.
//
// # The window
//
//	flowing ──a batch fails──▶ draining ──all are answered──▶ one by one
//	   ▲                                                          │
//	   └──────────────── the first is settled, all well ──────────┘
//
// Flowing, batches are started as they come and settled in order: one that is
// answered before an older one waits for it. After a failure nothing is started
// any more; when every batch has its answer, the first that failed is delivered
// by itself, and everything behind it is started again (go-back-N). Batches that
// were answered before need not be sent again if nothing of the failed one was,
// as when the destination refused it. So the last copies of all records arrive in
// order, and a failure makes at most as many duplicates as batches were in
// flight.
//
// When the spill begins, the batches in the window go there first.
//
// # Custody
//
// Records taken are reported in Tally.Taken; [Keeper.Account] says what became
// of them. At rest it balances: Accepted + Recovered are what is delivered,
// handled, dropped, or pending in the spill or in flight.
//
// Send may be called from several goroutines at once; they take turns. Flush,
// Account and Close may be called beside it.
type Keeper struct {
	inner         // what a batch is sent through: the lane, or more
	lane    *lane // the way to the destination itself
	spill   Spill
	when    func(error) bool
	retry   *retrier
	events  *events
	closing *closing
	window  int

	// Hooks of an Engine. well reports whether batches of any size may be sent
	// at once; bound is how many bytes one may have, 0 for no bound; went is told
	// of a batch in flight that was delivered; down reports whether there is no
	// use in waiting.
	well  func() bool
	bound func() int
	went  func()
	down  func() bool

	ctx    context.Context // of what the Keeper does by itself
	giveUp context.CancelFunc

	turn     chan struct{} // held during a Send; capacity 1
	spillUse chan struct{} // held while adding to the spill, or ending it; capacity 1
	wake     chan struct{} // for the goroutine; capacity 1
	room     chan struct{} // for a Send that waits; capacity 1
	pressed  chan struct{} // for a Send that waits: the producer is full; capacity 1
	changed  chan struct{} // for Close; capacity 1
	closed   chan struct{} // closed by Close
	stop     chan struct{} // closed when the goroutine must end

	// mu is a leaf: no sink, spill or callback is called under it, except
	// Spill.Account, which does not wait.
	mu        sync.Mutex
	spilling  bool     // older batches are in the spill
	back      []*entry // handed out by the spill, oldest first
	live      []*entry // taken from producers; behind the spill, if that is not empty
	spare     []*entry
	moving    bool // the window is being put into the spill; spillUse is held
	under     int  // started and not answered
	broken    bool // something is to be delivered one by one
	launching bool // the goroutine starts the window again
	working   bool // the goroutine runs
	idle      chan struct{}
	abandoned bool     // Close accounts for everything
	leaving   []*entry // the window while it does
	shut      bool

	taken     uint64 // records
	lastNo    uint64 // of the batches taken from producers
	acc       batch.Account
	unknown   uint64
	spilled   uint64        // records, all together
	spill0    batch.Account // of the spill at the start
	overSpill uint64        // records that the spill handed out and that are accounted for
	lastSeq   uint64        // appended here
	ackedSeq  uint64
	flushes   []*flush
	serving   *entry // delivered one by one just now
	spillBad  episode
	readBad   episode
	full      []func() bool // of producers that would rather spill than wait

	closeOnce sync.Once
	reported  chan struct{}
	report    batch.Report
	closeErr  error
}

// A flush waits for what was taken before it.
type flush struct {
	no  uint64 // the last batch in the window
	seq uint64 // the last batch in the spill; MaxUint64: all of it; 0: none
	ch  chan error
}

// NewKeeper returns a Keeper around sink, which is pipelined if it is an
// [batch.AsyncSink]. o may be nil. If the spill holds batches, their delivery
// begins at once.
func NewKeeper(sink batch.Sink, o *KeeperOptions) (*Keeper, error) {
	if sink == nil {
		return nil, errNilSink
	}
	if o == nil {
		o = &KeeperOptions{}
	}
	ev := newEvents(o.Name, o.OnError)
	c := newClosing()
	retry, err := newRetrier(o.Retry, ev, c)
	if err != nil {
		return nil, err
	}
	l := newLane(sink, ev, c, o.Spill != nil)
	if l.detached = o.SpillWhenFull; l.detached && o.Spill == nil {
		return nil, errNoSpill
	}
	k := newKeeper(l, l, o.Spill, o.When, retry, ev, c)
	k.begin()
	return k, nil
}

func newKeeper(through batch.Sink, l *lane, s Spill, when func(error) bool, r *retrier, ev *events, c *closing) *Keeper {
	k := &Keeper{
		inner: inner{through}, lane: l, spill: s, when: when, retry: r, events: ev, closing: c,
		window: l.window(),
		well:   func() bool { return true },
		bound:  func() int { return 0 },
		went:   func() {},
		down:   func() bool { return false },
		turn:   make(chan struct{}, 1), spillUse: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), pressed: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		closed: make(chan struct{}), stop: make(chan struct{}), reported: make(chan struct{}),
	}
	if k.when == nil {
		k.when = func(error) bool { return true }
	}
	if s != nil {
		k.spill0 = s.Account()
	}
	k.ctx, k.giveUp = context.WithCancel(context.Background())
	c.atOver = append(c.atOver, k.giveUp)
	return k
}

// begin starts the delivery of what is in the spill.
func (k *Keeper) begin() {
	if k.spill == nil || k.spill.Account().Pending.Spill == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spilling = true
	k.workLocked()
}

// Send sends b, or takes it: see [Keeper].
func (k *Keeper) Send(ctx context.Context, b *batch.Batch) error {
	if err := k.enter(ctx); err != nil {
		return err
	}
	defer k.leave()
	return k.send(ctx, b)
}

// enter waits for the turn of a Send.
func (k *Keeper) enter(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
	default:
		select {
		case k.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-k.closed:
		<-k.turn
		return errClosed
	default:
		return nil
	}
}

func (k *Keeper) leave() { <-k.turn }

// send is Send in its turn.
func (k *Keeper) send(ctx context.Context, b *batch.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	if k.isSpilling() {
		if ok, err := k.append(b); ok || err != nil {
			return err
		}
	}
	if k.lane.flows() {
		return k.put(ctx, b)
	}
	err := k.sink.Send(ctx, b)
	if err == nil || !k.spillable(ctx, err) {
		return err
	}
	return k.divert(b, err, nil)
}

func (k *Keeper) isSpilling() bool {
	if k.spill == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.spilling
}

// spillable reports whether what a Send left that returned err belongs into the
// spill.
func (k *Keeper) spillable(ctx context.Context, err error) bool {
	if k.spill == nil || isRefusal(err) {
		return false
	}
	if is(k.closing.late) || is(k.closing.begun) && ctx.Err() != nil {
		return true
	}
	return ctx.Err() == nil && k.when(err)
}

// divert puts what a Send of b left that returned err into the spill. b is
// either fresh from a producer, or what is left of e, the first of the window,
// which is taken out of it.
func (k *Keeper) divert(b *batch.Batch, err error, e *entry) error {
	var p progress
	p.begin(b)
	p.settle(err)
	if p.done() {
		return p.result(nil)
	}
	k.spillUse <- struct{}{}
	defer func() { <-k.spillUse }()
	if k.isShut() || e != nil && k.isInSpill(e) { // meanwhile
		return p.result(err)
	}
	seq, bad := k.store(p.cur)
	if bad != nil {
		return p.result(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e != nil && k.abandoned { // Close has counted it; this is too late
		return p.result(err)
	}
	n := countable(p.cur)
	p.tally.Taken += n
	p.keep(nil)
	if e == nil {
		k.taken += n
	} else {
		k.leaveWindowLocked(e, seq)
	}
	k.beginSpillLocked(seq, n, err)
	return p.result(nil)
}

// append puts b behind what is in the spill. The error says that it must be
// held; without one, ok reports false if there is nothing in the spill any more.
func (k *Keeper) append(b *batch.Batch) (ok bool, err error) {
	k.spillUse <- struct{}{}
	defer func() { <-k.spillUse }()
	if k.isShut() {
		return false, errClosed
	}
	if !k.isSpilling() {
		return false, nil
	}
	if err := k.moveLive(nil); err != nil {
		return false, held(err)
	}
	seq, err := k.store(b)
	if err != nil {
		return false, held(err)
	}
	n := countable(b)
	b.Tally.Taken = n
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken += n
	k.beginSpillLocked(seq, n, nil)
	return true, nil
}

func held(err error) error { return fmt.Errorf("deliver: cannot spill: %w", err) }

// moveLive puts the batches of the window, which are behind the spill, into it.
// The caller holds spillUse. A batch that is in flight stays, and with it all that
// are behind it: the error says so.
func (k *Keeper) moveLive(cause error) error {
	for {
		k.mu.Lock()
		if len(k.live) == 0 {
			k.mu.Unlock()
			return nil
		}
		e := k.live[0]
		busy := e.state == started
		k.mu.Unlock()
		if busy {
			return errInFlight
		}
		seq, err := k.store(e.b)
		if err != nil {
			return err
		}
		k.mu.Lock()
		if k.abandoned { // Close has counted them; this is too late
			k.mu.Unlock()
			return nil
		}
		k.leaveWindowLocked(e, seq)
		k.beginSpillLocked(seq, e.unsettled(), cause)
		k.recycleLocked(e)
		k.mu.Unlock()
	}
}

// leaveWindowLocked takes e, the first of the window, out of it: it is batch seq
// of the spill now.
func (k *Keeper) leaveWindowLocked(e *entry, seq uint64) {
	popLocked(&k.live)
	e.moved = true
	for _, f := range k.flushes {
		if f.no >= e.no {
			f.seq = max(f.seq, seq)
		}
	}
	k.tellRoom()
}

// store appends b to the spill.
func (k *Keeper) store(b *batch.Batch) (uint64, error) {
	seq, err := k.spill.Append(b)
	k.spillResult(err, countable(b))
	return seq, err
}

// spillResult reports the first failure of the spill of a row.
func (k *Keeper) spillResult(err error, n uint64) {
	k.mu.Lock()
	first := false
	if err == nil {
		k.spillBad.end()
	} else {
		first = k.spillBad.begin()
	}
	k.mu.Unlock()
	if first {
		k.events.post("spill-error", err, n)
	}
}

// beginSpillLocked notes that batch seq with n records is in the spill.
func (k *Keeper) beginSpillLocked(seq, n uint64, cause error) {
	k.lastSeq = max(k.lastSeq, seq)
	k.spilled += n
	if !k.spilling {
		k.spilling = true
		k.events.post("spill", cause, n)
	}
	k.workLocked()
}

// put takes b into the window.
func (k *Keeper) put(ctx context.Context, b *batch.Batch) error {
	if k.fits(b) {
		return k.putOne(ctx, b)
	}
	limit := k.bound()
	a := assembly{b: b}
	var part batch.Batch
	for i := 0; i < b.Len(); {
		j := i + fitting(b, i, limit)
		part.Reset()
		if err := k.putOne(ctx, b.Slice(&part, i, j)); err != nil {
			a.stop(i, b.Len(), err)
			break
		}
		a.add(i, &part, nil)
		i = j
	}
	return a.result()
}

// putOne takes b into the window as one batch, as soon as there is room.
func (k *Keeper) putOne(ctx context.Context, b *batch.Batch) error {
	n := countable(b)
	well := k.well()
	var e *entry
	var again <-chan time.Time
	for {
		k.mu.Lock()
		if k.shut {
			k.mu.Unlock()
			return errClosed
		}
		if k.spilling {
			if e != nil {
				k.recycleLocked(e)
			}
			k.mu.Unlock()
			if ok, err := k.append(b); ok || err != nil {
				return err
			}
			e = nil
			continue
		}
		if len(k.live) < k.window {
			if e == nil { // copy without the lock, then look again
				e = k.freeLocked()
				k.mu.Unlock()
				e.mem.set(b)
				continue
			}
			break // with mu held
		}
		k.mu.Unlock()
		if err := k.awaitRoom(ctx, &again); err != nil {
			return err
		}
	}
	if k.lane.detached {
		defer k.untilSafe(ctx, k.lastNo+1)
	}
	k.lastNo++
	k.taken += n
	e.b, e.n, e.no = &e.mem.b, n, k.lastNo
	k.live = append(k.live, e)
	b.Tally.Taken = n
	if !k.broken && !k.launching && well {
		e.state = started
		k.under++
		k.mu.Unlock()
		k.lane.start(k.ctx, e.b, e.done)
		return nil
	}
	if !k.launching { // else it is started with the others
		k.broken = true
		k.workLocked()
	}
	k.mu.Unlock()
	return nil
}

// awaitRoom waits until there may be room in the window, making some if the
// producer is full. again is when that may be tried once more, after it failed.
func (k *Keeper) awaitRoom(ctx context.Context, again *<-chan time.Time) error {
	late, now := k.lateFor()
	if *again == nil && (now || k.isFull()) {
		if k.aside() == nil {
			return nil
		}
		*again = time.After(spillRetry)
	}
	select {
	case <-k.room:
	case <-k.pressed:
	case <-late:
	case <-*again:
		*again = nil
	case <-k.closed:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// finish is what the done of a Start comes to.
func (k *Keeper) finish(e *entry, err error) {
	k.mu.Lock()
	if e.state != started || k.abandoned {
		k.mu.Unlock()
		return
	}
	if k.under--; k.under == 0 {
		k.tellChange()
	}
	news := err == nil // of the destination: it took records
	if news {
		e.state = answered
		news = e.b.Tally.Settled() == 0 || e.b.Tally.Settled() < countable(e.b)
	} else {
		e.state, e.err = failedEntry, sane(e.b.Len(), err)
		k.broken = true
	}
	k.popAnsweredLocked()
	if k.spilling || k.broken {
		k.workLocked()
	}
	k.mu.Unlock()
	if news {
		k.went()
		k.retry.succeeded()
	}
}

// popAnsweredLocked settles the oldest batches of the window, if they were
// answered and nothing is in the way.
func (k *Keeper) popAnsweredLocked() {
	popped := false
	for !k.broken && !k.spilling && !k.moving && len(k.live) > 0 && k.live[0].state == answered {
		k.endLocked(popLocked(&k.live))
		popped = true
	}
	if popped {
		k.tellRoom()
		k.flushedLocked()
	}
}

// endLocked accounts for a batch that was delivered in flight.
func (k *Keeper) endLocked(e *entry) {
	k.settleLocked(e, tallied(e.b, e.b.Len()))
	k.recycleLocked(e)
}

// tellRoom lets a Send that waits look again.
func (k *Keeper) tellRoom() { signal(k.room) }

// tellChange lets Close look again.
func (k *Keeper) tellChange() { signal(k.changed) }

// signal wakes who waits for ch, of capacity 1, or will wait next.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// workLocked starts the goroutine, or lets it look again.
func (k *Keeper) workLocked() {
	if k.abandoned || is(k.stop) {
		return
	}
	if !k.working {
		k.working = true
		k.idle = make(chan struct{})
		go k.work()
		return
	}
	signal(k.wake)
}

// fitting returns how many records of b from i on have at most limit bytes
// together, at least one.
func fitting(b *batch.Batch, i, limit int) int {
	n, size, at := 0, 0, 0
	for k := range b.Runs {
		r := &b.Runs[k]
		for j := range r.Len() {
			if at++; at <= i {
				continue
			}
			if size += int(r.Slot(j).Len); size > limit && n > 0 {
				return n
			}
			n++
		}
	}
	return n
}

// Account says what became of the records in the Keeper's custody. It does not
// wait for the destination. Pending is counted by walking what is there.
func (k *Keeper) Account() batch.Account {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.accountLocked()
}

func (k *Keeper) accountLocked() batch.Account {
	a := k.acc
	a.Accepted = k.taken
	if k.spill != nil {
		s := k.spill.Account()
		a.Recovered = s.Recovered
		a.Dropped.Add(s.Dropped)
		a.Pending.Spill = s.Pending.Spill - min(s.Pending.Spill, k.elsewhereLocked(s))
	}
	for _, entries := range [...][]*entry{k.live, k.leaving} {
		for _, e := range entries {
			a.Pending.Inflight += e.unsettled()
		}
	}
	return a
}

// elsewhereLocked returns how many of the records that the spill has, says its account
// s, are accounted for elsewhere: those that are settled and not acknowledged yet, and
// those whose Append has not returned.
func (k *Keeper) elsewhereLocked(s batch.Account) (n uint64) {
	if s.Check() == nil { // it counts both: that is exact while an Ack or Append is under way, too
		acked, appended := s.Delivered-k.spill0.Delivered, s.Accepted-k.spill0.Accepted
		return k.overSpill - min(acked, k.overSpill) + appended - min(k.spilled, appended)
	}
	for _, e := range k.back {
		n += e.over
	}
	return n
}

// behind returns how many records wait in custody behind those that are being
// delivered one by one.
func (k *Keeper) behind() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.accountLocked()
	n := a.Pending.Spill + a.Pending.Inflight
	if k.serving != nil {
		n -= min(n, k.serving.unsettled())
	}
	return n
}

// Flush waits until everything that was taken before the call is delivered or
// accounted for, then flushes the sink within. It returns an error that wraps
// [ErrOpen] as soon as the destination is down, rather than wait for it to come
// back, and ctx's error if that ends first.
func (k *Keeper) Flush(ctx context.Context) error {
	f := &flush{ch: make(chan error, 1)}
	k.mu.Lock()
	f.no = k.lastNo
	if k.spilling {
		if f.seq = k.lastSeq; f.seq == 0 {
			f.seq = math.MaxUint64
		}
	}
	waiting := !k.reachedLocked(f)
	if waiting && !k.shut {
		k.flushes = append(k.flushes, f)
	}
	shut := k.shut
	k.mu.Unlock()
	switch {
	case waiting && shut:
		return errClosed
	case waiting:
		if k.down() {
			k.failFlushes(ErrOpen)
		}
		select {
		case err := <-f.ch:
			if err != nil {
				return fmt.Errorf("deliver: cannot flush: %w", err)
			}
		case <-ctx.Done():
			k.dropFlush(f)
			return fmt.Errorf("deliver: cannot flush: %w", context.Cause(ctx))
		}
	}
	return k.inner.Flush(ctx)
}

// reachedLocked reports whether all that f waits for is settled.
func (k *Keeper) reachedLocked(f *flush) bool {
	if f.seq != 0 && k.spilling && k.ackedSeq < f.seq {
		return false
	}
	return len(k.live) == 0 || k.live[0].no > f.no
}

// flushedLocked answers the flushes that need not wait any more.
func (k *Keeper) flushedLocked() {
	keep := k.flushes[:0]
	for _, f := range k.flushes {
		if k.reachedLocked(f) {
			f.ch <- nil
		} else {
			keep = append(keep, f)
		}
	}
	clear(k.flushes[len(keep):])
	k.flushes = keep
}

// failFlushes ends all flushes that wait.
func (k *Keeper) failFlushes(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, f := range k.flushes {
		f.ch <- err
		k.flushes[i] = nil
	}
	k.flushes = k.flushes[:0]
}

func (k *Keeper) dropFlush(f *flush) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, other := range k.flushes {
		if other == f {
			k.flushes = append(k.flushes[:i], k.flushes[i+1:]...)
			return
		}
	}
}

// Drain tells the Keeper that its producer has begun to close.
func (k *Keeper) Drain(deadline time.Time) {
	k.closing.begin(deadline)
	k.inner.Drain(deadline)
}

// Sync puts what was handed on, and what is in the spill, on stable storage, as
// far as they can.
func (k *Keeper) Sync() error {
	err := k.inner.Sync()
	if s, ok := k.spill.(batch.Syncer); ok {
		err = errors.Join(err, s.Sync())
	}
	return err
}
