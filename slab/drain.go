package slab

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/crashfile"
)

// drain is the state of the goroutine that hands batches to the borrower. Nobody else
// touches it.
//
// The goroutine is a loop over two states:
//
//	gather   take the oldest pieces from the queue                       (w.gather)
//	lend     hand them over; account for them, free slabs, serve waiters (w.lend)
//
// A borrower that calls runtime.Goexit ends the goroutine; its last deferred call
// starts the next one, which goes on where this one stopped.
type drain struct {
	pieces []*piece     // held by the batch under way
	all    batch.Batch  // the batch under way
	now    *batch.Batch // the same, or a copy of it; nil: none
	loan   *Loan        // in Borrow; nil: none
	inline Loan         // the only one where Wants.Inline is set

	since    time.Time // when the batch under way was taken
	timer    *time.Timer
	timerDue bool
	marks    marks

	ended    bool // Shutdown of the borrower was called
	spinning bool
	damage   error // what was wrong with the mapped file before mu was taken
	copied   crashfile.Copy
	held     held // what is held from settle on to gather
	few      int  // slabs to wait for while spinning, and to take at once
	waited   bool // callers waited for the end of the last batch
}

// marks are the gap markers that were sent.
type marks struct {
	at   time.Time // of the last one
	told batch.Drops
	bad  bool // the codec did not return from the last AppendMarker
}

// The drain spins for at most spinRounds yields, and only after a sleep shorter
// than spinWorth.
const (
	spinRounds = 100
	spinWorth  = 30 * time.Microsecond
	// fewSlabs is how many slabs the drain waits for while it spins, if they are no
	// more than a quarter: each visit to the lock costs the caller whom it meets there.
	fewSlabs = 4
)

// markerEvery is the shortest time between two markers.
const markerEvery = time.Second

func (d *drain) init(w *Writer) {
	d.inline = Loan{w: w, kind: lendsInline}
	d.all.Codec, d.all.Origin = w.o.Codec, w.id
	d.timer = time.NewTimer(time.Hour)
	d.timer.Stop()
	d.since = time.Now()
	d.pieces = make([]*piece, 0, w.o.SlabCount+2)
}

// An op is a Flush, HandOver or Sync on its way through the drain.
type op struct {
	target uint64
	kind   opKind
	ch     chan error // capacity 1
}

type opKind uint8

const (
	opFlush opKind = iota
	opHandOver
	opSync
)

func (k opKind) String() string {
	return [...]string{"flush", "hand over", "sync"}[k]
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
	for w.d.now != nil || w.gather() {
		if w.end.ctx.Err() != nil && w.d.loan == nil {
			w.surrender()
		} else {
			w.lend()
		}
	}
	if w.o.Codec != nil && w.end.ctx.Err() == nil { // what was dropped behind the last batch
		w.d.since = time.Now()
		w.markGap()
	}
	w.endBorrower()
	for _, o := range w.dead.files { // not delivered: the next process's again
		o.Close()
	}
	if w.crash != nil {
		w.mu.Lock()
		w.crash.file.Leave()
		w.unlock()
	}
	finished = true
	close(w.end.done)
}

// gather fills the batch from the queue, sleeping until there is reason to. It
// reports false when the Writer is closing and empty, or was cut short.
func (w *Writer) gather() bool {
	d := &w.d
	for {
		if d.held == heldNone && points {
			point(ptGather)
		}
		if w.halfLock && d.held != heldAll {
			switch w.gatherHalf() {
			case stepTaken:
				return true
			case stepAgain:
				continue
			}
		}
		if d.held == heldNone { // else settle has handed over without letting go
			w.lookAtFile()
			patiently(&w.mu, w.mu.spins)
		}
		d.held = heldNone
		if w.life.cutShort() {
			w.mu.Unlock()
			return false
		}
		w.sleep.getUpLocked()
		w.progress.settled = w.watermarkLocked()
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
		if w.life != accepting {
			if w.waitingLocked() > 0 && w.loans.out > 0 {
				w.sleep.lieDownLocked(parked)
				w.unlock()
				select {
				case <-w.sleep.bell:
				case <-w.end.ctx.Done():
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
	force := w.d.timerDue || w.life != accepting || w.progress.pressing() ||
		w.queue.n == 0 && w.waitingLocked() > 0 // what they wait for is in the current slab, or lent
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
	l := &w.wants.Limits
	return l.Bytes > 0 && w.queue.bytes >= l.Bytes || l.Records > 0 && w.queue.records >= l.Records ||
		len(w.pool.free) <= w.o.SlabCount/4
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
			p = w.queue.split(p, n)
		} else {
			w.queue.pop()
		}
		p.inflight = true
		d.pieces = append(d.pieces, p)
		d.all.Add(p.run())
		if !w.limited && len(d.pieces) >= w.gatherNowLocked() {
			break
		}
	}
	d.timerDue = d.timerDue && w.limited && w.queue.n > 0
	d.now = &d.all
	w.book.inflight = d.all.Len()
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
	return min(w.gatherMax, max(1, len(w.pool.free)))
}

// fitLimits returns how many records of p the batch still takes, at least one if
// the batch is empty.
func (w *Writer) fitLimits(p *piece) int {
	n, l := p.len(), &w.wants.Limits
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

// mark sends a gap marker ahead of the batch if records were dropped since the last one,
// which is markerEvery ago.
func (w *Writer) mark() {
	if w.o.Codec != nil && w.d.since.Sub(w.d.marks.at) >= markerEvery {
		w.markGap()
	}
}

// markGap sends a gap marker if records were dropped since the last one. Markers are no
// records: the account does not know them, and one that fails is not sent again before the
// next batch.
func (w *Writer) markGap() {
	d := &w.d
	w.mu.slabs.Lock()
	drops := w.book.Dropped
	w.mu.slabs.Unlock()
	gap := drops
	for i := range gap {
		gap[i] -= d.marks.told[i]
	}
	if gap.Total() == 0 {
		return
	}
	marker := w.makeMarker(gap)
	if len(marker) == 0 {
		return
	}
	slots := [1]batch.Slot{{Len: uint32(len(marker)), Time: d.since.UnixNano(), Flags: batch.FlagMarker}}
	l := &Loan{w: w, kind: lendsMarker}
	l.b.Codec = w.o.Codec
	l.b.Add(batch.NewRun(marker, slots[:]))
	before := d.marks.told
	d.marks.at, d.marks.told = d.since, drops
	if w.borrow(l) != nil {
		d.marks.told = before
	}
}

// makeMarker has the codec make a marker. It returns nil if the codec did not return: the
// first time in a row that is reported.
func (w *Writer) makeMarker(gap batch.Drops) (made []byte) {
	d := &w.d
	err := contain.Call(func() { made = w.o.Codec.AppendMarker(nil, gap, d.since) })
	if err != nil {
		d.marks.at, made = d.since, nil
		if !d.marks.bad {
			w.events.Post(batch.Event{Output: w.o.Name, Op: "panic", Err: fmt.Errorf("slab: AppendMarker of the codec: %w", err)})
		}
	}
	d.marks.bad = err != nil
	return made
}

// settle ends the batch under way: the borrower has accounted for its n records. Memory
// is freed and waiters are served.
func (w *Writer) settle(n int) {
	d := &w.d
	if points {
		point(ptSettle)
	}
	if w.halfLock && w.settleHalf(n) {
		return
	}
	w.lookAtFile()
	patiently(&w.mu, w.mu.spins)
	if w.life.cutShort() {
		w.mu.Unlock()
		d.now = nil
		return
	}
	if points {
		point(ptSettleLocked)
	}
	w.book.tookLocked(n, 0)
	w.finishLocked()
	d.held = heldAll
}

// finishLocked ends the batch under way.
func (w *Writer) finishLocked() {
	if points {
		point(ptFinishLocked)
	}
	if !w.dead.sending {
		w.progress.sent += uint64(w.d.all.Len())
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
	w.dead.sending = false
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
	d.now = nil
	for i, p := range d.pieces {
		p.inflight = false
		w.releaseLocked(p)
		d.pieces[i] = nil
	}
	d.pieces = d.pieces[:0]
}

// surrender accounts for everything that is left as dropped{shutdown}: Close has
// run out of time.
func (w *Writer) surrender() {
	if points {
		point(ptSurrender)
	}
	w.mu.Lock()
	defer w.unlock()
	if w.life.cutShort() {
		w.d.now = nil
		return
	}
	w.unrecoverLocked()
	if w.retainLocked() {
		w.d.now = nil
		return
	}
	w.book.Dropped[batch.Shutdown] += uint64(w.book.inflight)
	w.book.inflight = 0
	w.finishLocked()
	w.book.Dropped[batch.Shutdown] += w.pendingSlabLocked()
	for _, p := range w.discardLocked() {
		w.releaseLocked(p)
	}
	w.refuseWaitersLocked()
}

// discardLocked empties the slabs, because Shutdown has no more time. It returns the
// pieces that were queued.
func (w *Writer) discardLocked() (gone []*piece) {
	w.cutLocked()
	for w.queue.n > 0 {
		p := w.queue.pop()
		gone = append(gone, p)
	}
	return gone
}

// readyOpLocked returns the oldest op whose records are settled, and those
// of dead processes, which come first.
func (w *Writer) readyOpLocked() *op {
	if len(w.ops) == 0 || w.ops[0].target > w.progress.settled || len(w.dead.files) > 0 {
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
	if w.wants.Inline { // between two batches
		err = w.flushBorrower(w.end.ctx, o.kind)
	}
}

// flushBorrower has the borrower deliver what it still holds and, for opSync, put on
// stable storage what there is, also if not all could be delivered.
func (w *Writer) flushBorrower(ctx context.Context, kind opKind) error {
	err := w.to.Flush(ctx)
	if kind == opSync && ctx.Err() == nil {
		err = errors.Join(err, w.to.Sync(ctx))
	}
	return err
}

// endBorrower has the borrower settle what it has: after Close has returned, if that ran
// out of time before.
func (w *Writer) endBorrower() {
	if w.d.ended {
		return
	}
	w.d.ended = true
	err := errGoexit
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("destination panicked: %v", r)
		}
		w.mu.Lock()
		w.theirEnd.err = err
		w.mu.Unlock()
	}()
	r, err2 := w.to.Shutdown(w.end.ctx)
	err = err2
	w.mu.Lock()
	w.theirEnd.unknown = r.Unknown
	w.mu.Unlock()
}
