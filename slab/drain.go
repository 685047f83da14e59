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
	conf  *config
	store *store
	end   *ending

	to        Borrower
	wants     Wants // of it
	limited   bool  // the borrower has limits for a batch
	gatherMax int   // slabs per batch where there are no limits
	halfLock  bool  // the drain may go from slab to slab with store.mu alone
	theirEnd  theirEnd

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

func (d *drain) init(c *config, s *store, e *ending, to Borrower) {
	d.conf, d.store, d.end, d.to, d.wants, d.halfLock = c, s, e, to, to.Wants(), c.o.Crash == nil
	d.limited = d.wants.Limits.Bytes > 0 || d.wants.Limits.Records > 0
	d.gatherMax, d.few = 1, min(max(1, c.o.SlabCount/4), fewSlabs)
	if d.wants.Inline {
		d.gatherMax = d.few
	}
	if d.wants.Vectors {
		d.gatherMax = max(1, c.o.SlabCount/2)
	}
	d.inline = Loan{s: s, kind: lendsInline}
	d.all.Codec, d.all.Origin = c.o.Codec, c.id
	d.timer = time.NewTimer(time.Hour)
	d.timer.Stop()
	d.since = time.Now()
	d.pieces = make([]*piece, 0, c.o.SlabCount+2)
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

func (d *drain) run() {
	finished := false
	defer func() {
		if !finished {
			go d.run()
		}
	}()
	if d.store.crash != nil {
		debug.SetPanicOnFault(true) // for this goroutine, for life
	}
	for d.now != nil || d.gather() {
		if d.end.ctx.Err() != nil && d.loan == nil {
			d.surrender()
		} else {
			d.lend()
		}
	}
	if d.conf.o.Codec != nil && d.end.ctx.Err() == nil { // what was dropped behind the last batch
		d.since = time.Now()
		d.markGap()
	}
	d.endBorrower()
	for _, o := range d.store.found.files { // not delivered: the next process's again
		o.Close()
	}
	if d.store.crash != nil {
		d.store.lock()
		d.store.crash.file.Leave()
		d.store.unlock()
	}
	finished = true
	close(d.end.done)
}

// gather fills the batch from the queue, sleeping until there is reason to. It
// reports false when the Writer is closing and empty, or was cut short.
func (d *drain) gather() bool {
	for {
		if d.held == heldNone && points {
			point(ptGather)
		}
		if d.halfLock && d.held != heldAll {
			switch d.gatherHalf() {
			case stepTaken:
				return true
			case stepAgain:
				continue
			}
		}
		if d.held == heldNone { // else settle has handed over without letting go
			d.lookAtFile()
			d.store.lock()
		}
		d.held = heldNone
		if d.store.life.cutShort() {
			d.store.unlock()
			return false
		}
		d.store.sleep.getUpLocked()
		d.store.progress.settled = d.store.watermarkLocked()
		if o := d.readyOpLocked(); o != nil {
			d.store.unlock()
			d.do(o)
			continue
		}
		if len(d.store.found.files) > 0 {
			d.store.unlock()
			if d.store.found.nextRecovered() {
				return true
			}
			continue
		}
		if d.dueLocked() {
			if !d.take() {
				d.store.unlock()
				continue
			}
			d.store.unlock()
			d.begin()
			return true
		}
		d.timerDue = false
		if d.store.life != accepting {
			if d.store.callers.waitingLocked() > 0 && d.store.loans.out > 0 {
				d.store.sleep.lieDownLocked(parked)
				d.store.unlock()
				select {
				case <-d.store.sleep.bell:
				case <-d.end.ctx.Done():
					d.surrender()
				}
				continue
			}
			d.store.unlock()
			return false
		}
		if d.store.pieces.n == 0 && (d.store.front.cur == nil || d.store.front.cur.n == d.store.front.cur.cut) {
			d.parkLocked()
			continue
		}
		if d.spin() {
			continue
		}
		since := d.store.gauge.curSince
		if d.store.pieces.n > 0 {
			since = d.store.pieces.at(0).since
		}
		d.sleepTimed(since)
	}
}

// begin is called once a batch is taken, with mu released.
func (d *drain) begin() {
	if points {
		point(ptTaken)
	}
	d.since = time.Now()
	d.mark()
}

// watermarkLocked returns the last ticket before which nothing is pending. It is
// called when nothing is in flight.
func (s *store) watermarkLocked() uint64 {
	if s.pieces.n > 0 {
		p := s.pieces.at(0)
		return p.first - 1
	}
	if b := s.front.cur; b != nil && b.n > b.cut {
		return b.cutTicket - 1
	}
	return s.front.next
}

// dueLocked says whether a batch should be taken now: as soon as a slab is full,
// or as soon as the sink's limits are reached. A slab that is not full is cut
// when something will not wait.
func (d *drain) dueLocked() bool {
	if d.store.pieces.n > 0 && !d.limited {
		return true
	}
	force := d.timerDue || d.store.life != accepting || d.store.progress.pressing() ||
		d.store.pieces.n == 0 && d.store.callers.waitingLocked() > 0 // what they wait for is in the current slab, or lent
	if force {
		d.store.front.cutLocked()
	}
	if d.store.pieces.n == 0 || force || !d.limited {
		return d.store.pieces.n > 0
	}
	return d.reachedLocked() || d.store.callers.waitingLocked() > 0
}

// reachedLocked says whether the queue holds as much as a limited sink takes at once,
// or the slabs run short.
func (d *drain) reachedLocked() bool {
	l := &d.wants.Limits
	return l.Bytes > 0 && d.store.pieces.bytes >= l.Bytes || l.Records > 0 && d.store.pieces.records >= l.Records ||
		len(d.store.pool.free) <= d.conf.o.SlabCount/4
}

// takeLocked moves the oldest pieces, up to the sink's limits, into the batch.
func (d *drain) takeLocked() {
	if points {
		point(ptTakeLocked)
	}
	d.all.Reset()
	for d.store.pieces.n > 0 {
		p := d.store.pieces.at(0)
		n := p.len()
		if d.limited {
			if n = d.fitLimits(p); n == 0 {
				break
			}
		}
		if n < p.len() { // split: the head of the piece goes, the rest stays queued
			p = d.store.pieces.split(p, n)
		} else {
			d.store.pieces.pop()
		}
		p.inflight = true
		d.pieces = append(d.pieces, p)
		d.all.Add(p.run())
		if !d.limited && len(d.pieces) >= d.gatherNowLocked() {
			break
		}
	}
	d.timerDue = d.timerDue && d.limited && d.store.pieces.n > 0
	d.now = &d.all
	d.store.book.inflight = d.all.Len()
	d.store.gauge.inflightTime, d.store.gauge.seen = d.all.Runs[0].Slot(0).Time, d.pieces[0].since
}

// gatherNowLocked returns how many slabs a VecWriter gets at once. None of them is
// free before all are written, so that there must be as many free ones for the
// callers meanwhile, unless they wait already, or waited for the batch before: then
// only throughput counts.
func (d *drain) gatherNowLocked() int {
	if d.store.callers.slabs.n > 0 || d.waited {
		return d.gatherMax
	}
	return min(d.gatherMax, max(1, len(d.store.pool.free)))
}

// fitLimits returns how many records of p the batch still takes, at least one if
// the batch is empty.
func (d *drain) fitLimits(p *piece) int {
	n, l := p.len(), &d.wants.Limits
	if l.Records > 0 {
		n = min(n, l.Records-d.all.Len())
	}
	if l.Bytes > 0 {
		left := l.Bytes - d.all.Bytes()
		for i := range n {
			if left -= int(p.blk.slot(p.from + i).Len); left < 0 {
				n = i
				break
			}
		}
	}
	if n <= 0 && d.all.Len() == 0 {
		return 1
	}
	return max(n, 0)
}

// mark sends a gap marker ahead of the batch if records were dropped since the last one,
// which is markerEvery ago.
func (d *drain) mark() {
	if d.conf.o.Codec != nil && d.since.Sub(d.marks.at) >= markerEvery {
		d.markGap()
	}
}

// markGap sends a gap marker if records were dropped since the last one. Markers are no
// records: the account does not know them, and one that fails is not sent again before the
// next batch.
func (d *drain) markGap() {
	d.store.mu.Lock()
	drops := d.store.book.Dropped
	d.store.mu.Unlock()
	gap := drops
	for i := range gap {
		gap[i] -= d.marks.told[i]
	}
	if gap.Total() == 0 {
		return
	}
	marker := d.makeMarker(gap)
	if len(marker) == 0 {
		return
	}
	slots := [1]batch.Slot{{Len: uint32(len(marker)), Time: d.since.UnixNano(), Flags: batch.FlagMarker}}
	l := &Loan{s: d.store, kind: lendsMarker}
	l.b.Codec = d.conf.o.Codec
	l.b.Add(batch.NewRun(marker, slots[:]))
	before := d.marks.told
	d.marks.at, d.marks.told = d.since, drops
	if d.borrow(l) != nil {
		d.marks.told = before
	}
}

// makeMarker has the codec make a marker. It returns nil if the codec did not return: the
// first time in a row that is reported.
func (d *drain) makeMarker(gap batch.Drops) (made []byte) {
	err := contain.Call(func() { made = d.conf.o.Codec.AppendMarker(nil, gap, d.since) })
	if err != nil {
		d.marks.at, made = d.since, nil
		if !d.marks.bad {
			d.conf.events.Post(batch.Event{Output: d.conf.o.Name, Op: "panic", Err: fmt.Errorf("slab: AppendMarker of the codec: %w", err)})
		}
	}
	d.marks.bad = err != nil
	return made
}

// settle ends the batch under way: the borrower has accounted for its n records. Memory
// is freed and waiters are served.
func (d *drain) settle(n int) {
	if points {
		point(ptSettle)
	}
	if d.halfLock && d.settleHalf(n) {
		return
	}
	d.lookAtFile()
	d.store.lock()
	if d.store.life.cutShort() {
		d.store.unlock()
		d.now = nil
		return
	}
	if points {
		point(ptSettleLocked)
	}
	d.store.book.tookLocked(n, 0)
	d.finishLocked()
	d.held = heldAll
}

// finishLocked ends the batch under way.
func (d *drain) finishLocked() {
	if points {
		point(ptFinishLocked)
	}
	if !d.store.found.sending {
		d.store.progress.sent += uint64(d.all.Len())
	}
	if d.store.crash.mapped() {
		d.store.crash.ackLocked()
	}
	d.endBatchLocked()
}

// endBatchLocked gives up the batch under way and its slabs, unless they are lent, and
// serves those who wait.
func (d *drain) endBatchLocked() {
	d.store.gauge.rate.update(time.Now(), d.store.front.acceptedBytesLocked())
	d.store.found.sending = false
	d.freeBatchLocked()
	d.waited = d.store.callers.slabs.n > 0
	if d.store.callers.waitingLocked() > 0 {
		d.store.front.serveLocked()
	}
	d.store.front.setRoomLocked()
}

// freeBatchLocked gives up the batch under way and its slabs.
func (d *drain) freeBatchLocked() {
	d.now = nil
	for i, p := range d.pieces {
		p.inflight = false
		d.store.releaseLocked(p)
		d.pieces[i] = nil
	}
	d.pieces = d.pieces[:0]
}

// surrender accounts for everything that is left as dropped{shutdown}: Close has
// run out of time.
func (d *drain) surrender() {
	if points {
		point(ptSurrender)
	}
	d.store.lock()
	defer d.store.unlock()
	if d.store.life.cutShort() {
		d.now = nil
		return
	}
	d.store.found.unrecoverLocked()
	if d.store.crash.retainLocked() {
		d.now = nil
		return
	}
	d.store.book.Dropped[batch.Shutdown] += uint64(d.store.book.inflight)
	d.store.book.inflight = 0
	d.finishLocked()
	d.store.book.Dropped[batch.Shutdown] += d.store.pendingSlabLocked()
	for _, p := range d.store.discardLocked() {
		d.store.releaseLocked(p)
	}
	d.store.refuseWaitersLocked()
}

// discardLocked empties the slabs, because Shutdown has no more time. It returns the
// pieces that were queued.
func (s *store) discardLocked() (gone []*piece) {
	s.front.cutLocked()
	for s.pieces.n > 0 {
		p := s.pieces.pop()
		gone = append(gone, p)
	}
	return gone
}

// readyOpLocked returns the oldest op whose records are settled, and those
// of dead processes, which come first.
func (d *drain) readyOpLocked() *op {
	if len(d.store.ops) == 0 || d.store.ops[0].target > d.store.progress.settled || len(d.store.found.files) > 0 {
		return nil
	}
	o := d.store.ops[0]
	d.store.ops[0] = nil
	d.store.ops = d.store.ops[1:]
	return o
}

// do performs o on the destination and answers it.
func (d *drain) do(o *op) {
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
	if d.wants.Inline { // between two batches
		err = d.flushBorrower(d.end.ctx, o.kind)
	}
}

// flushBorrower has the borrower deliver what it still holds and, for opSync, put on
// stable storage what there is, also if not all could be delivered.
func (d *drain) flushBorrower(ctx context.Context, kind opKind) error {
	err := d.to.Flush(ctx)
	if kind == opSync && ctx.Err() == nil {
		err = errors.Join(err, d.to.Sync(ctx))
	}
	return err
}

// endBorrower has the borrower settle what it has: after Close has returned, if that ran
// out of time before.
func (d *drain) endBorrower() {
	if d.ended {
		return
	}
	d.ended = true
	err := errGoexit
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("destination panicked: %v", r)
		}
		d.store.lock()
		d.theirEnd.err = err
		d.store.unlock()
	}()
	r, err2 := d.to.Shutdown(d.end.ctx)
	err = err2
	d.store.lock()
	d.theirEnd.unknown = r.Unknown
	d.store.unlock()
}
