package slab

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/layout"
)

// A drain is the goroutine that reads the leases of a Writer and passes them to its consumer.
// No other goroutine uses its fields.
//
// A consumer that calls runtime.Goexit ends the goroutine. Its last deferred call starts the
// next one, which continues with the same lease.
type drain struct {
	conf   *config
	store  *store
	end    *ending
	reader reader

	to    Borrower
	now   *Lease // in Borrow; nil: none
	timer *time.Timer
	marks marks
	ended bool // Shutdown of the borrower was called
}

// marks are the gap markers that were sent.
type marks struct {
	at       time.Time // of the last one
	reported batch.Drops
	bad      bool // the codec did not return from the last AppendMarker
}

// markerEvery is the shortest time between two markers.
const markerEvery = time.Second

func newDrain(w *Writer, to Borrower) *drain {
	d := &drain{conf: w.conf, store: w.store, end: w.end, to: to, timer: time.NewTimer(time.Hour)}
	d.reader.init(w.conf, w.store, to.Wants())
	d.timer.Stop()
	return d
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
		d.lend(d.now)
	}
	if d.conf.o.Codec != nil && d.end.ctx.Err() == nil { // what was dropped after the last batch
		d.markGap(time.Now())
	}
	d.endBorrower()
	for _, o := range d.store.found.files { // not delivered: they stay for the next process
		o.Close()
	}
	if c := d.store.crash; c != nil {
		d.store.lock()
		c.file.Leave()
		d.store.unlock()
	}
	finished = true
	close(d.end.done)
}

// gather makes the next lease d.now, and waits for one. It reports false if none will come, or
// Close gives up.
func (d *drain) gather() bool {
	for d.end.ctx.Err() == nil {
		if o := d.readyOp(); o != nil {
			d.do(o)
			continue
		}
		l, ended := d.reader.next()
		if l != nil {
			d.now = l
			d.mark()
			return true
		}
		if ended {
			return false
		}
		if o := d.readyOp(); o != nil {
			d.do(o)
			continue
		}
		d.wait(d.reader.due())
	}
	d.surrender()
	return false
}

// wait waits for the bell, the time, or the end. A zero time is none.
func (d *drain) wait(until time.Time) {
	if !until.IsZero() {
		d.timer.Reset(time.Until(until))
	}
	select {
	case <-d.store.sleep.bell:
	case <-d.timer.C:
		if points {
			point(ptTimer)
		}
	case <-d.end.ctx.Done():
	}
	d.timer.Stop()
}

// lend passes l to the consumer.
func (d *drain) lend(l *Lease) {
	if d.end.ctx.Err() != nil { // the last time, also if Borrow calls Goexit
		d.now = nil
	}
	if d.borrow(l) == nil && !d.reader.wants.Inline {
		d.now = nil
		return
	}
	if l.released { // inline: all is settled, by this goroutine
		d.now = nil
		return
	}
	if d.end.ctx.Err() == nil && l.Open() > 0 {
		d.pause()
		return
	}
	d.now = nil
	if d.end.ctx.Err() != nil {
		d.surrender()
	}
}

// pause waits before the next attempt.
func (d *drain) pause() {
	if points {
		point(ptPause)
	}
	d.wait(time.Now().Add(pauseTime))
}

// pauseTime is the delay after a Borrow that has accepted nothing.
const pauseTime = 100 * time.Millisecond

// borrow calls the consumer. A panic becomes an error; a Goexit ends the goroutine, and the
// next one calls again.
func (d *drain) borrow(l *Lease) (err error) {
	if points {
		point(ptSend)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("slab: Borrow panicked: %v", r)
			d.conf.events.Post(batch.Event{Output: d.conf.o.Name, Op: "panic", Err: fmt.Errorf("%w\n%s", err, debug.Stack())})
		}
	}()
	err = d.to.Borrow(d.end.ctx, l)
	if points {
		point(ptSent)
	}
	return err
}

// surrender refuses the calls that wait: Close has run out of time.
func (d *drain) surrender() {
	if points {
		point(ptSurrender)
	}
	d.store.lock()
	d.store.refuseWaitersLocked()
	d.store.unlock()
}

// mark sends a gap marker ahead of a batch if records were dropped since the last one, which
// is markerEvery ago.
func (d *drain) mark() {
	if now := d.reader.since; d.conf.o.Codec != nil && now.Sub(d.marks.at) >= markerEvery {
		d.markGap(now)
	}
}

// markGap sends a gap marker if records were dropped since the last one. Markers are no
// records: the account does not know them, and one that fails is not sent again before the
// next batch.
func (d *drain) markGap(now time.Time) {
	d.store.mu.Lock()
	drops := d.store.book.Dropped
	d.store.mu.Unlock()
	gap := drops
	for i := range gap {
		gap[i] -= d.marks.reported[i]
	}
	if gap.Total() == 0 {
		return
	}
	marker := d.makeMarker(gap, now)
	if len(marker) == 0 {
		return
	}
	slots := [1]layout.Slot{{Len: uint32(len(marker)), Time: now.UnixNano(), Flags: layout.FlagMarker}}
	l := &Lease{s: d.store, kind: leasesMarker}
	l.b.Codec = d.conf.o.Codec
	l.b.Add(layout.NewRun(marker, slots[:]))
	before := d.marks.reported
	d.marks.at, d.marks.reported = now, drops
	if d.borrow(l) != nil {
		d.marks.reported = before
	}
}

// makeMarker has the codec make a marker. It returns nil if the codec did not return: the
// first time in a row that is reported.
func (d *drain) makeMarker(gap batch.Drops, now time.Time) (made []byte) {
	err := contain.Call(func() { made = d.conf.o.Codec.AppendMarker(nil, gap, now) })
	if err != nil {
		d.marks.at, made = now, nil
		if !d.marks.bad {
			d.conf.events.Post(batch.Event{Output: d.conf.o.Name, Op: "panic", Err: fmt.Errorf("slab: AppendMarker of the codec: %w", err)})
		}
	}
	d.marks.bad = err != nil
	return made
}

// opReadyLocked reports whether the records before the oldest op were leased, and those of
// dead processes, which come first.
func (s *store) opReadyLocked() bool {
	return len(s.ops) > 0 && s.ops[0].target <= s.progress.read && len(s.found.files) == 0
}

// readyOp returns the oldest op, if it is ready.
func (d *drain) readyOp() *op {
	s := d.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opReadyLocked() {
		return nil
	}
	o := s.ops[0]
	s.ops[0] = nil
	s.ops = s.ops[1:]
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
	if d.reader.wants.Inline { // between two batches
		err = d.flushBorrower(d.end.ctx, o.kind)
	}
}

// flushBorrower makes the consumer deliver its records and, for opSync, sync them to stable
// storage, even if some could not be delivered.
func (d *drain) flushBorrower(ctx context.Context, kind opKind) error {
	err := d.to.Flush(ctx)
	if kind == opSync && ctx.Err() == nil {
		err = errors.Join(err, d.to.Sync(ctx))
	}
	return err
}

// endBorrower has the borrower settle its records: after Close has returned, if that ran out
// of time before. Then no one else accounts for a lease that the borrower did not accept.
func (d *drain) endBorrower() {
	if d.ended {
		return
	}
	d.ended = true
	r, err := batch.Report{}, errGoexit
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("destination panicked: %v", r)
		}
		d.store.lock()
		d.end.theirs = theirEnd{over: true, unknown: r.Unknown, err: err}
		if d.store.life == abandoned {
			d.store.dropLeasesLocked()
		}
		d.store.unlock()
	}()
	r, err = d.to.Shutdown(d.end.ctx)
}
