package slab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
	"github.com/forebay-log/forebay/internal/contain"
)

// drain is the state of the goroutine that calls the destination. Nobody else
// touches it.
//
// The goroutine is a loop over three states:
//
//	gather   take the oldest pieces from the queue        (w.gather)
//	attempt  offer the unsettled records to the sink       (w.attempt)
//	settle   account for them, free slabs, serve waiters   (w.settle)
//
// attempt repeats with backoff until all records of the batch are settled or
// Close gives up. A destination that calls runtime.Goexit ends the goroutine; its
// last deferred call starts the next one, which goes on where this one stopped.
type drain struct {
	pieces []*piece     // held by the batch under way
	all    batch.Batch  // the batch under way
	rest   *batch.Batch // its unsettled part: &all or &parts[x]
	parts  [2]batch.Batch
	part   batch.Batch // what one Send takes, when rest is above maxRecs
	sent   *batch.Batch

	maxRecs int // records per Send after a TooLarge; 0 = no cap
	failed  int // failed attempts in a row
	sending bool
	failing bool // a failure was reported and no recovery yet

	since    time.Time // when the batch under way was taken
	timer    *time.Timer
	timerDue bool
	marker   []byte
	lastMark time.Time
	inMarker bool
	// badMarker: the codec did not return from the last AppendMarker.
	badMarker bool

	press       func() // tells the sink that writes wait for room; nil: it does not care
	sinkUnknown uint64 // of the report of the sink; guarded by mu
	givenUp     int    // records of a Send that Shutdown has abandoned; guarded by mu

	closedSink bool
	spinning   bool
	cloned     bool  // the batch under way was copied out of mapped memory
	damage     error // what was wrong with the mapped file before mu was taken
	copied     batchCopy
	held       held // what is held from settle on to gather
	few        int  // slabs to wait for while spinning, and to take at once
	waited     bool // callers waited for the end of the last batch
}

// The drain spins for at most spinRounds yields, and only after a sleep shorter
// than spinWorth.
const (
	spinRounds = 100
	spinWorth  = 30 * time.Microsecond
	// patience is how often the drain tries to get the lock before it waits for it.
	patience = 100
	// fewSlabs is how many slabs the drain waits for while it spins, if they are no
	// more than a quarter: each visit to the lock costs the caller whom it meets there.
	fewSlabs = 4
)

// markerEvery is the shortest time between two markers.
const markerEvery = time.Second

func (d *drain) init(w *Writer) {
	if s, ok := w.sink.(*ioSink); ok {
		s.report = func(err error) { w.events.Post(batch.Event{Output: w.o.Name, Op: "count", Err: err}) }
	}
	d.all.Codec, d.all.Origin = w.o.Codec, w.id
	d.timer = time.NewTimer(time.Hour)
	d.timer.Stop()
	d.since = time.Now()
	d.pieces = make([]*piece, 0, w.o.SlabCount+2)
}

// An op is a Flush or Sync on its way through the drain.
type op struct {
	target uint64
	kind   opKind
	ch     chan error // capacity 1
}

type opKind uint8

const (
	opFlush opKind = iota
	opSync
)

func (k opKind) String() string {
	if k == opSync {
		return "sync"
	}
	return "flush"
}

var errGoexit = errors.New("destination called runtime.Goexit")

func (w *Writer) run() {
	finished := false
	defer func() {
		if !finished {
			go w.run()
		}
	}()
	if w.crash != nil {
		debug.SetPanicOnFault(true) // for this goroutine, for life
	}
	w.d.inMarker = false
	if w.d.sending { // the last goroutine ended inside Send
		w.d.sending = false
		w.after(errGoexit)
	}
	for w.d.rest != nil || w.gather() {
		w.attempt()
	}
	w.closeSink()
	for _, o := range w.dead.files { // not delivered: the next process's again
		o.f.Close()
	}
	if w.crash != nil {
		w.mu.Lock()
		w.crash.leaveMapping()
		w.unlock()
	}
	finished = true
	close(w.done)
}

// gather fills the batch from the queue, sleeping until there is reason to. It
// reports false when the Writer is closed and empty, or was abandoned.
func (w *Writer) gather() bool {
	d := &w.d
	for {
		if d.held == heldNone && points {
			point(ptGather)
		}
		if w.quick && d.held != heldAll {
			switch w.gatherQuick() {
			case stepTaken:
				return true
			case stepAgain:
				continue
			}
		}
		if d.held == heldNone { // else settle has handed over without letting go
			w.lookAtFile()
			patiently(&w.mu, w.spins)
		}
		d.held = heldNone
		if w.abandoned || w.retained {
			w.mu.Unlock()
			return false
		}
		w.sleep = awake
		w.settled = w.watermarkLocked()
		if o := w.readyOpLocked(); o != nil {
			w.mu.Unlock()
			w.do(o)
			continue
		}
		if len(w.dead.files) > 0 {
			w.unlock()
			if w.nextRecovered() {
				return true
			}
			continue
		}
		if w.dueLocked() {
			if !w.take() {
				w.unlock()
				continue
			}
			w.unlock()
			w.begin()
			return true
		}
		d.timerDue = false
		if w.closed {
			if w.waitingLocked() > 0 && w.loans.out > 0 {
				w.sleep = parked
				w.unlock()
				select {
				case <-w.wake:
				case <-w.ctx.Done():
					w.surrender()
				}
				continue
			}
			w.mu.Unlock()
			return false
		}
		if w.queue.n == 0 && (w.cur == nil || w.cur.n == w.cur.cut) {
			w.parkLocked()
			continue
		}
		if w.spin() {
			continue
		}
		since := w.gauge.curSince
		if w.queue.n > 0 {
			since = w.queue.at(0).since
		}
		w.sleepTimed(since)
	}
}

// parkLocked lets go of mu and sleeps until it is woken: the slabs are empty.
func (w *Writer) parkLocked() {
	w.rewindLocked()
	if n := w.waitingLocked(); n > 0 { // what they waited for was lost with the mapped file
		w.serveLocked()
		if w.waitingLocked() < n {
			w.unlock()
			return
		}
	}
	w.sleep, w.gauge.parkedAt = parked, time.Since(w.born)
	w.restLocked()
	w.setRoomLocked()
	w.unlock()
	if w.crash != nil {
		w.buryEvicted() // and truncates the file once none is pending
	}
	if points {
		point(ptPark)
	}
	<-w.wake
}

// patiently locks mu, or half of it, for the drain, which may meet a caller inside
// it at every other attempt where one caller writes as fast as it can. A sync.Mutex
// that is waited for makes its holder wake the waiter, about a microsecond of the
// caller's time; so the drain tries for as long before it waits, if there is another
// processor for the caller.
func patiently(mu interface {
	sync.Locker
	TryLock() bool
}, spins bool) {
	if spins {
		for range patience {
			if mu.TryLock() {
				return
			}
			for i := 0; i < 8; i++ {
				pause.Load()
			}
		}
	}
	mu.Lock()
}

// pause is what patiently reads to pass the time: nobody writes to it.
var pause atomic.Uint32

// rewindLocked has the current block filled from its start again, if all that is in it is
// settled.
func (w *Writer) rewindLocked() {
	if b := w.cur; b != nil && b.refs == 0 && b.n == b.cut {
		w.gauge.rewound += uint64(w.slabBytes - b.room())
		w.resetLocked(b, w.next+1)
	}
}

// restLocked is called when nothing is pending: a drop episode is over.
func (w *Writer) restLocked() {
	w.rewindLocked()
	if w.dropping {
		w.dropping = false
		w.events.Post(batch.Event{Output: w.o.Name, Op: "drop-end", Count: w.acc.Dropped.Total()})
	}
}

// spin looks for a sealed slab for a moment, with mu released, before the drain
// goes to sleep: a producer that fills slabs faster than a sleeping goroutine can
// be woken would otherwise pay for a wake-up (about a microsecond) per slab. It
// does so only while it pays, that is while the last such look found one. For more
// than one it waits no longer than such a wake-up is worth: others may want the
// processor, and a round can take as long as they run.
func (w *Writer) spin() bool {
	if !w.d.spinning {
		return false
	}
	before := w.sealed.Load()
	w.unlock()
	w.look(before)
	return true // look again, then sleep
}

// look is spin with mu released. before is how many slabs were sealed when the queue
// was found empty.
func (w *Writer) look(before uint32) {
	d := &w.d
	if points {
		point(ptSpin)
	}
	want, began := uint32(d.few), time.Now()
	for range spinRounds {
		if n := w.sealed.Load() - before; n >= want || n > 0 && time.Since(began) > spinWorth {
			return
		}
		runtime.Gosched()
	}
	d.spinning = w.sealed.Load() != before
}

// sleepTimed releases mu and sleeps until something is to be done, at the latest when
// what came at since has waited long enough.
func (w *Writer) sleepTimed(since time.Duration) {
	d := &w.d
	w.sleep = timed
	w.unlock()
	if points {
		point(ptSleep)
	}
	if w.o.FlushInterval < 0 && w.limits.Age <= 0 {
		<-w.wake
		return
	}
	asleep := time.Now()
	wait := w.o.FlushInterval
	if w.limits.Age > 0 {
		wait = w.limits.Age
	}
	d.timer.Reset(since + wait - asleep.Sub(w.born))
	select {
	case <-w.wake:
		d.timer.Stop()
		d.spinning = w.spins && time.Since(asleep) < spinWorth
	case <-d.timer.C:
		d.timerDue = true
		if points {
			point(ptTimer)
		}
		w.mu.Lock()
		w.sleep = awake
		w.mu.Unlock()
	}
}

// begin is called once a batch is taken, with mu released.
func (w *Writer) begin() {
	if points {
		point(ptTaken)
	}
	w.d.since = time.Now()
	w.mark()
}

// watermarkLocked returns the last ticket before which nothing is pending. It is
// called when nothing is in flight.
func (w *Writer) watermarkLocked() uint64 {
	if w.queue.n > 0 {
		p := w.queue.at(0)
		return p.first - 1
	}
	if b := w.cur; b != nil && b.n > b.cut {
		return b.cutTicket - 1
	}
	return w.next
}

// dueLocked says whether a batch should be taken now: as soon as a slab is full,
// or as soon as the sink's limits are reached. A slab that is not full is cut
// when something will not wait.
func (w *Writer) dueLocked() bool {
	if w.queue.n > 0 && !w.limited {
		return true
	}
	force := w.d.timerDue || w.closed || w.urgent > w.settled || w.flushTarget > w.settled
	if force {
		w.cutLocked()
	}
	if w.queue.n == 0 || force || !w.limited {
		return w.queue.n > 0
	}
	return w.reachedLocked() || w.waitingLocked() > 0
}

// reachedLocked says whether the queue holds as much as a limited sink takes at once,
// or the slabs run short.
func (w *Writer) reachedLocked() bool {
	l := &w.limits
	return l.Bytes > 0 && w.queuedBytes >= l.Bytes || l.Records > 0 && w.queuedRecs >= l.Records ||
		len(w.free) <= w.o.SlabCount/4
}

// takeLocked moves the oldest pieces, up to the sink's limits, into the batch.
func (w *Writer) takeLocked() {
	if points {
		point(ptTakeLocked)
	}
	d := &w.d
	d.all.Reset()
	for w.queue.n > 0 {
		p := w.queue.at(0)
		n := p.len()
		if w.limited {
			if n = w.fitLimits(p); n == 0 {
				break
			}
		}
		if n < p.len() { // split: the head of the piece goes, the rest stays queued
			head := w.queue.split(p, n)
			w.queuedRecs -= n
			w.queuedBytes -= head.size
			p = head
		} else {
			w.queue.pop()
			w.unqueueLocked(p)
		}
		p.inflight = true
		d.pieces = append(d.pieces, p)
		d.all.Add(p.run())
		if !w.limited && len(d.pieces) >= w.gatherNowLocked() {
			break
		}
	}
	d.timerDue = d.timerDue && w.limited && w.queue.n > 0
	d.rest = &d.all
	w.inflight = d.all.Len()
	w.gauge.inflightTime, w.gauge.seen = d.all.Runs[0].Slot(0).Time, d.pieces[0].since
}

// gatherNowLocked returns how many slabs a VecWriter gets at once. None of them is
// free before all are written, so that there must be as many free ones for the
// callers meanwhile, unless they wait already, or waited for the batch before: then
// only throughput counts.
func (w *Writer) gatherNowLocked() int {
	if w.waiting.slabs.n > 0 || w.d.waited {
		return w.gatherMax
	}
	return min(w.gatherMax, max(1, len(w.free)))
}

// fitLimits returns how many records of p the batch still takes, at least one if
// the batch is empty.
func (w *Writer) fitLimits(p *piece) int {
	n, l := p.len(), &w.limits
	if l.Records > 0 {
		n = min(n, l.Records-w.d.all.Len())
	}
	if l.Bytes > 0 {
		left := l.Bytes - w.d.all.Bytes()
		for i := range n {
			if left -= int(p.blk.slot(p.from + i).Len); left < 0 {
				n = i
				break
			}
		}
	}
	if n <= 0 && w.d.all.Len() == 0 {
		return 1
	}
	return max(n, 0)
}

// mark sends a gap marker ahead of the batch if records were dropped since the
// last one. Markers are no records: the account does not know them, and one that
// fails is not sent again before the next batch.
func (w *Writer) mark() {
	d := &w.d
	if w.o.Codec == nil {
		return
	}
	w.mu.slabs.Lock()
	drops := w.acc.Dropped
	w.mu.slabs.Unlock()
	gap := drops
	for i := range gap {
		gap[i] -= w.marked[i]
	}
	if gap.Total() == 0 || d.since.Sub(d.lastMark) < markerEvery {
		return
	}
	if !w.makeMarker(gap) || len(d.marker) == 0 {
		return
	}
	slots := [1]batch.Slot{{Len: uint32(len(d.marker)), Time: d.since.UnixNano(), Flags: batch.FlagMarker}}
	var b batch.Batch
	b.Codec = w.o.Codec
	b.Add(batch.NewRun(d.marker, slots[:]))
	d.lastMark = d.since
	d.inMarker = true
	err := w.send(&b)
	d.inMarker = false
	if s, ok := w.sink.(*ioSink); ok && s.owed != nil { // it will be ended
		err = nil
	}
	if err == nil {
		w.marked = drops
	}
}

// makeMarker has the codec make a marker. It reports false if the codec did not return:
// the first time in a row that is reported.
func (w *Writer) makeMarker(gap batch.Drops) bool {
	d := &w.d
	var made []byte
	err := contain.Call(func() { made = w.o.Codec.AppendMarker(d.marker[:0], gap, d.since) })
	if err != nil {
		d.lastMark = d.since
		if !d.badMarker {
			w.events.Post(batch.Event{Output: w.o.Name, Op: "panic", Err: fmt.Errorf("slab: AppendMarker of the codec: %w", err)})
		}
	}
	d.marker, d.badMarker = made, err != nil
	return err == nil
}

// attempt offers the unsettled records once and deals with the answer.
func (w *Writer) attempt() {
	d := &w.d
	if w.ctx.Err() != nil {
		w.surrender()
		return
	}
	if w.borrower != nil {
		w.lend()
		return
	}
	if w.crash != nil && !w.rescueBatch() {
		return
	}
	d.sent = d.rest
	if d.maxRecs > 0 && d.rest.Len() > d.maxRecs {
		d.part.Reset()
		d.sent = d.rest.Slice(&d.part, 0, d.maxRecs)
	}
	d.sent.Tally = batch.Tally{}
	if points {
		point(ptSend)
	}
	w.after(w.send(d.sent))
}

// send calls the sink. A panic becomes an error; a Goexit ends the goroutine,
// and run goes on in the next one.
func (w *Writer) send(b *batch.Batch) (err error) {
	d := &w.d
	d.sending = !d.inMarker
	returned := false
	defer func() {
		if returned {
			return
		}
		if r := recover(); r != nil {
			d.sending = false
			if w.isFault(r) {
				err = fmt.Errorf("slab: the mapped file %s is damaged: %v", w.crash.path, r)
				w.faulted(err)
				return
			}
			err = fmt.Errorf("destination panicked: %v", r)
			w.events.Post(batch.Event{Output: w.o.Name, Op: "panic", Err: fmt.Errorf("%w\n%s", err, debug.Stack())})
		}
	}()
	err = w.sink.Send(w.ctx, b)
	returned = true
	d.sending = false
	return err
}

// after deals with the result of a Send of d.sent.
func (w *Writer) after(err error) {
	if points {
		point(ptSent)
	}
	d := &w.d
	if err == nil {
		w.settle(d.sent.Len(), nil, batch.Tally{})
		w.recovered()
		return
	}
	e := batch.Inspect(err)
	w.mu.Lock()
	w.sendErrors++
	w.lastErr = err
	w.mu.Unlock()
	w.failure(err)
	if w.crash != nil && !d.cloned && !w.copyOut() { // then what err says of it is nothing either
		w.corrupt()
		return
	}
	n := d.sent.Len()
	switch e.Kind {
	case batch.KindPrefix:
		if k := e.Acked; 0 < k && k <= n {
			d.failed = 0
			w.settle(k, nil, batch.Tally{})
		}
	case batch.KindPartial:
		if batch.ValidIndexes(e.Records, n) && len(e.Records) < n {
			d.failed = 0
			w.settle(n, e.Records, batch.Tally{})
		}
	case batch.KindReject:
		var t batch.Tally
		if e.Records == nil || !batch.ValidIndexes(e.Records, n) {
			t.Dropped[batch.Poison] = uint64(n) - min(uint64(n), d.sent.Tally.Settled())
		} else {
			t.Dropped[batch.Poison] = uint64(len(e.Records))
		}
		w.settle(n, nil, t)
		return
	case batch.KindTooLarge:
		if n == 1 {
			var t batch.Tally
			t.Dropped[batch.Poison] = 1
			w.settle(1, nil, t)
			return
		}
		d.maxRecs = n / 2
		return // smaller, at once
	}
	if d.rest != nil {
		w.backoff(e.After, e.Kind == batch.KindFatal)
	}
}

// settle accounts for the first n unsettled records, except those in open (nil:
// none), with extra beside what the sink tallied; the others count as delivered.
// When nothing is left, memory is freed and waiters are served.
func (w *Writer) settle(n int, open []int, extra batch.Tally) {
	d := &w.d
	t := d.sent.Tally
	t.Add(extra)
	d.sent.Tally = batch.Tally{}
	total := n - len(open)
	if t.Settled() > uint64(total) { // a sink that miscounts must not unbalance the account
		t = extra
	}
	left := d.keep(n, open)
	if d.maxRecs > 0 {
		d.maxRecs *= 2
	}
	if points {
		point(ptSettle)
	}
	if w.quick && left == 0 && w.settleQuick(total, t) {
		return
	}
	w.lookAtFile()
	patiently(&w.mu, w.spins)
	if w.abandoned {
		w.mu.Unlock()
		d.rest = nil
		return
	}
	if points {
		point(ptSettleLocked)
	}
	w.acc.Delivered += uint64(total) - t.Settled()
	w.acc.Handled += t.Handled
	w.taken += t.Taken
	for r, k := range t.Dropped {
		if k > 0 {
			w.countDropLocked(batch.Reason(r), int(k))
		}
	}
	w.inflight = left
	var recovered *orphan // of which a part of a batch is settled
	if left > 0 {
		w.gauge.inflightTime = d.rest.Runs[0].Slot(0).Time
		switch {
		case w.dead.sending:
			recovered = w.dead.files[0]
		case w.mapped():
			w.ackLocked()
		}
	}
	w.sends++
	if left == 0 {
		w.finishLocked()
		if !w.needWake && !d.failing {
			d.held = heldAll
			return
		}
	}
	w.unlock()
	if recovered != nil {
		recovered.persist(d.rest.First() - 1)
	}
}

// keep makes rest what is left of it: the records from n on and, before them,
// those in open. It returns how many that are.
func (d *drain) keep(n int, open []int) int {
	if n == d.rest.Len() && len(open) == 0 {
		return 0
	}
	next := &d.parts[0]
	if d.rest == next {
		next = &d.parts[1]
	}
	next.Reset()
	if len(open) > 0 {
		d.rest.Select(next, open)
	}
	d.rest.Slice(next, n, d.rest.Len())
	d.rest = next
	return next.Len()
}

// finishLocked ends the batch under way.
func (w *Writer) finishLocked() {
	if points {
		point(ptFinishLocked)
	}
	if !w.dead.sending {
		w.sentTickets += uint64(w.d.all.Len())
	}
	if w.mapped() {
		w.ackLocked()
	}
	w.endBatchLocked()
}

// endBatchLocked gives up the batch under way and its slabs, unless they are lent, and
// serves those who wait.
func (w *Writer) endBatchLocked() {
	d := &w.d
	w.gauge.rate.update(time.Now(), w.acceptedBytesLocked())
	d.cloned, w.dead.sending = false, false
	w.freeBatchLocked()
	d.waited = w.waiting.slabs.n > 0
	if w.waitingLocked() > 0 {
		w.serveLocked()
	}
	w.setRoomLocked()
}

// freeBatchLocked gives up the batch under way and its slabs.
func (w *Writer) freeBatchLocked() {
	d := &w.d
	d.rest, d.sent = nil, nil
	for i, p := range d.pieces {
		p.inflight = false
		w.releaseLocked(p)
		d.pieces[i] = nil
	}
	d.pieces = d.pieces[:0]
	d.failed = 0
}

// backoff waits before the next attempt: full jitter, at least after. When Close
// has begun the first wait is cut short; when it gives up, the batch ends.
func (w *Writer) backoff(after time.Duration, fatal bool) {
	d := &w.d
	d.failed++
	ceil := w.o.RetryMax
	if !fatal {
		ceil = backoff.Ceil(w.o.RetryMin, ceil, d.failed-1)
	}
	wait := max(after, backoff.Jitter(0, ceil))
	closing := w.closing
	select {
	case <-closing:
		closing = nil // under way already: go on with backoff
		wait = min(wait, w.o.RetryMin)
	default:
	}
	if points {
		point(ptBackoff)
	}
	if w.crash != nil {
		w.sumWaiting()
	}
	d.timer.Reset(wait)
	w.rest(true)
	select {
	case <-d.timer.C:
	case <-closing:
		d.timer.Stop()
	case <-w.ctx.Done():
		d.timer.Stop()
	}
	if w.rest(false) || w.ctx.Err() != nil {
		w.surrender()
	}
}

// rest notes that the drain waits between two attempts, so that no Send is under
// way. It reports whether Shutdown has seen it waiting and counts on that.
func (w *Writer) rest(on bool) (stop bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = on
	return w.stopped
}

// surrender accounts for everything that is left as dropped{shutdown}: Close has
// run out of time.
func (w *Writer) surrender() {
	if points {
		point(ptSurrender)
	}
	w.mu.Lock()
	defer w.unlock()
	if w.abandoned {
		w.d.rest = nil
		return
	}
	w.unrecoverLocked()
	if w.keepsLocked() {
		w.keepLocked()
		w.d.rest = nil
		return
	}
	w.acc.Dropped[batch.Shutdown] += uint64(w.inflight)
	w.inflight = 0
	w.finishLocked()
	w.acc.Dropped[batch.Shutdown] += w.pendingSlabLocked()
	for _, p := range w.discardLocked() {
		w.releaseLocked(p)
	}
	w.refuseWaitersLocked()
}

// discardLocked empties the slabs: Close has given up. It returns the pieces that
// were queued.
func (w *Writer) discardLocked() (gone []*piece) {
	w.cutLocked()
	for w.queue.n > 0 {
		p := w.queue.pop()
		w.unqueueLocked(p)
		gone = append(gone, p)
	}
	return gone
}

// failure reports the first failure of a row.
func (w *Writer) failure(err error) {
	d := &w.d
	if !d.failing {
		d.failing = true
		w.events.Post(batch.Event{Output: w.o.Name, Op: "send", Err: err, Count: uint64(d.rest.Len())})
	}
}

// recovered reports the first success after failures.
func (w *Writer) recovered() {
	d := &w.d
	d.failed = 0
	if d.failing {
		d.failing = false
		w.mu.Lock()
		w.lastErr = nil
		w.mu.Unlock()
		w.events.Post(batch.Event{Output: w.o.Name, Op: "recovered"})
	}
}

// readyOpLocked returns the oldest Flush or Sync whose records are settled, and those
// of dead processes, which come first.
func (w *Writer) readyOpLocked() *op {
	if len(w.ops) == 0 || w.ops[0].target > w.settled || len(w.dead.files) > 0 {
		return nil
	}
	o := w.ops[0]
	w.ops[0] = nil
	w.ops = w.ops[1:]
	return o
}

// do performs o on the destination and answers it.
func (w *Writer) do(o *op) {
	if points {
		point(ptDo)
	}
	err := errGoexit
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("destination panicked: %v", r)
		}
		o.ch <- err
	}()
	err = nil
	if _, ok := w.sink.(*ioSink); ok { // an io.Writer is used by one goroutine only
		err = w.flushSink(w.ctx, o.kind)
	}
}

// flushSink has the sink deliver and, for opSync, store what it still holds.
func (w *Writer) flushSink(ctx context.Context, kind opKind) (err error) {
	if f, ok := w.sink.(batch.Flusher); ok {
		err = f.Flush(ctx)
	}
	if s, ok := w.sink.(batch.Syncer); ok && err == nil && kind == opSync {
		err = s.Sync()
	}
	return err
}

// closeSink closes the destination, as far as the Writer owns it: after Close has
// returned, if that ran out of time before the last Send.
func (w *Writer) closeSink() {
	if w.d.closedSink {
		return
	}
	w.d.closedSink = true
	err := errGoexit
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("destination panicked: %v", r)
		}
		w.mu.Lock()
		w.closeErr = err
		w.mu.Unlock()
	}()
	switch s := w.sink.(type) {
	case batch.Reporter:
		var r batch.Report
		r, err = s.Shutdown(w.ctx)
		w.mu.Lock()
		w.d.sinkUnknown = r.Unknown
		w.mu.Unlock()
	case batch.Closer:
		err = s.Close(w.ctx)
	case io.Closer:
		err = nil
		if w.o.CloseDst {
			err = s.Close()
		}
	default:
		err = nil
	}
}
