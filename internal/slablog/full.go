package slablog

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// droppedError wraps ErrDropped with the reason, without allocating.
type droppedError batch.Reason

var dropErrors = func() (e [len(batch.Drops{})]error) {
	for i := range e {
		e[i] = droppedError(i)
	}
	return e
}()

func (e droppedError) Error() string {
	return fmt.Sprintf("%v: %v", slab.ErrDropped, batch.Reason(e))
}

func (e droppedError) Unwrap() error { return slab.ErrDropped }

// Is reports whether e is ErrOversize.
func (e droppedError) Is(target error) bool {
	return target == slab.ErrOversize && batch.Reason(e) == batch.Oversize
}

// dropLocked counts a record that was dropped before it got a ticket.
func (s *store) dropLocked(r batch.Reason) error {
	s.book.Accepted++
	s.countDropLocked(r, 1)
	return dropErrors[r]
}

// Refuse counts a record that its producer does not write, as if it had been written and dropped.
// Examples are a record that cannot be encoded, or that exceeds MaxRecord before it is complete.
// The error wraps [slab.ErrDropped], or [batch.ErrClosed] after Close.
func (w *Writer) Refuse(r batch.Reason) error {
	w.store.lock()
	defer w.store.unlock()
	if w.store.life != accepting {
		w.store.book.refused++
		return errClosed
	}
	return w.store.dropLocked(r)
}

// policyFor returns the when-full policy for a write of level l.
func (c *config) policyFor(l slog.Level) slab.WhenFull {
	if l >= c.important.Level() {
		return c.o.ImportantWhenFull
	}
	return c.o.WhenFull
}

// waitFor returns the maximum wait of a write of level l.
func (c *config) waitFor(l slog.Level) time.Duration {
	if l >= c.important.Level() {
		return c.importantWait
	}
	return c.wait
}

// lastResortQueue is the maximum number of records waiting for Options.LastResort.
const lastResortQueue = 256

// lastResort passes records to Options.LastResort.
type lastResort struct {
	writes  *callback.Runner[[]byte]
	pending int // number of accepted records not yet written; 0 once Log.End has accounted for them
}

// giveUpLocked ends the attempt to store p. It passes an important record to LastResort, and drops
// any other record as full.
func (w *Writer) giveUpLocked(p []byte, m batch.Meta) error {
	if w.conf.o.LastResort == nil || m.Level < w.conf.important.Level() || w.store.last.pending >= lastResortQueue {
		return w.store.dropLocked(batch.Full)
	}
	w.store.book.Accepted++
	w.store.last.pending++
	// LastResort runs after this call has returned, so it needs a copy.
	w.store.last.writes.Post(append(make([]byte, 0, len(p)), p...))
	return nil
}

// writeLastResort passes p to LastResort. It runs on the goroutine of w.last.writes.
func (w *Writer) writeLastResort(p []byte) {
	ok := false
	defer func() {
		_ = recover() // the record is counted below; the panic cannot be reported
		w.store.lock()
		defer w.store.unlock()
		if w.store.last.pending == 0 { // Log.End has not waited for this record
			return
		}
		w.store.last.pending--
		if ok {
			w.store.book.Handled++
		} else {
			w.store.countDropLocked(batch.Full, 1)
		}
	}()
	n, err := w.conf.o.LastResort.Write(p)
	ok = err == nil && n == len(p)
}

// putOversizeLocked stores a record that fits into no slab in a separate buffer. It reserves the
// budget and then copies without the lock, so that a large record does not delay other callers.
func (w *Writer) putOversizeLocked(p []byte, m batch.Meta) error {
	// As for slabs, only a record with the policy DropOldest may overtake waiting writes.
	if w.store.callers.bigs.n > 0 && w.conf.policyFor(m.Level) != slab.DropOldest() || !w.front.reserveOversizeLocked(len(p), m) {
		return w.fullLocked(p, m, true)
	}
	if w.store.callers.waitingLocked() > 0 { // dropping may have freed more room than this record uses
		w.front.serveLocked()
	}
	return w.storeOversizeLocked(p, m)
}

// reserveOversizeLocked reserves n bytes of the budget. With the policy DropOldest, it makes room
// for them.
func (f *front) reserveOversizeLocked(n int, m batch.Meta) bool {
	return f.store.pool.cedeLocked(n, f.reservedLocked(m)) || f.conf.policyFor(m.Level) == slab.DropOldest() && f.store.evictForLocked(n, m)
}

// storeOversizeLocked queues p, for which the budget is reserved. It unlocks mu during the copy and
// then issues the ticket.
func (w *Writer) storeOversizeLocked(p []byte, m batch.Meta) error {
	w.store.unlock()
	point(ptOversizeCopy)
	b := newOversize(p)
	point(ptOversizeCopied)
	w.store.lock()
	if w.store.life != accepting {
		w.store.pool.takeBackLocked(len(p))
		w.store.book.refused++
		if w.store.crash.mapped() { // because recovery must not return the records that this call has evicted
			w.store.unlock()
			w.store.crash.file.Big.ApplyNotes()
			w.store.lock()
		}
		return errClosed
	}
	// The earlier records of the current block must precede this record in the queue.
	w.front.cutLocked()
	s := b.slot(0)
	*s = layout.Slot{
		Ticket: w.front.ticketLocked(), Time: m.Time, Len: uint32(len(p)),
		Stream: m.Stream, Level: clampLevel(m.Level),
	}
	b.refs = 0
	w.store.pushLocked(b, 0, 1, s.Ticket, len(p), time.Since(w.conf.born))
	point(ptOversizeStoredLocked)
	if m.Level >= w.front.flush.Level() {
		w.store.progress.urgent = w.front.next
	}
	w.store.bell.wakeLocked()
	if w.store.crash.mapped() {
		return w.store.crash.saveOversizeLocked(b, p, *s)
	}
	return nil
}

// callers contains the calls that wait for memory. store.mu guards it.
type callers struct {
	store *store

	slabs    waiterList // calls waiting for a slab
	bigs     waiterList // calls waiting for a separate buffer
	spare    []*waiter  // unused waiters, for reuse
	shortage shortage
	calls    uint64        // number of writes that waited
	time     time.Duration // total time of these waits
}

// shortage is the worst outcome of a wait for memory since a slab was last freed.
//
//	enough ──half of the time of a write is over──▶ long ──all of it is──▶ saturated
//	  │ │                                            ▲                         ▲
//	  │ └──one without an end has waited──▶ stuck ───┘                         │
//	  └────────────all of the time of a write is over──────────────────────────┘
//
// It may also change from stuck to saturated. When a slab is freed, it is enough again.
type shortage uint8

const (
	enough    shortage = iota
	stuck              // a write without a time limit has waited for stuckAfter
	long               // records are about to be dropped
	saturated          // a wait of BlockFor or Spill has ended without room; no further waits begin
)

// stuckAfter is how long a write without a time limit waits before it counts as stuck.
const stuckAfter = 125 * time.Millisecond

// growLocked sets the shortage to the given value unless it is already worse.
func (s *shortage) growLocked(to shortage) { *s = max(*s, to) }

// A waiter is a blocked write. The goroutine that frees memory places the waiter's record and then
// answers. Therefore records are placed in the order of arrival, and only callers with a placed
// record wake.
type waiter struct {
	p        []byte
	m        batch.Meta
	big      bool
	answered bool
	err      error
	ch       chan struct{} // capacity 1
	timer    *time.Timer

	prev, next *waiter // neighbors in a waiterList
}

// A waiterList contains waiters in the order of arrival. Adding and removing a waiter takes
// constant time and does not allocate.
type waiterList struct {
	head, tail *waiter
	n          int
}

// push adds wt at the end.
func (l *waiterList) push(wt *waiter) {
	wt.prev, wt.next = l.tail, nil
	if l.tail == nil {
		l.head = wt
	} else {
		l.tail.next = wt
	}
	l.tail = wt
	l.n++
}

// remove removes wt, which may be at any position.
func (l *waiterList) remove(wt *waiter) {
	if wt.prev == nil {
		l.head = wt.next
	} else {
		wt.prev.next = wt.next
	}
	if wt.next == nil {
		l.tail = wt.prev
	} else {
		wt.next.prev = wt.prev
	}
	wt.prev, wt.next = nil, nil
	l.n--
}

// maxSpareWaiters limits the number of waiters kept for reuse.
const maxSpareWaiters = 64

// fullLocked applies the when-full policy to a record for which there is no room. mu is held on
// entry and return, but released during a wait.
func (w *Writer) fullLocked(p []byte, m batch.Meta, big bool) error {
	limit := w.conf.waitFor(m.Level)
	wait := limit < 0 || limit > 0 && w.store.callers.shortage < saturated
	if !wait || !big && w.front.belowReserveLocked(m) {
		return w.giveUpLocked(p, m)
	}
	wt := w.store.callers.newWaiterLocked(p, m, big)
	w.store.callers.listOf(wt).push(wt)
	// With the policy slab.Spill, the consumer makes room by moving records to disk.
	if w.conf.spills() {
		w.store.bell.alarmLocked()
	}
	// The consumer may be waiting for a full slab. It must now lease the current slab as it is.
	w.store.bell.wakeLocked()
	w.store.unlock()
	point(ptWait)

	began := time.Now()
	timedOut := w.await(wt, limit)

	point(ptWoken)
	w.store.lock()
	w.store.callers.calls++
	w.store.callers.time += time.Since(began)
	var err error
	switch {
	case timedOut && !wt.answered:
		w.store.callers.listOf(wt).remove(wt)
		w.store.callers.shortage.growLocked(saturated)
		err = w.giveUpLocked(p, m)
		w.front.serveLocked() // a smaller later record may fit
	case timedOut:
		<-wt.ch // the answer arrived together with the timeout
		fallthrough
	default:
		if err = wt.err; err == nil && big {
			err = w.storeOversizeLocked(p, m)
		}
	}
	w.store.callers.freeWaiterLocked(wt)
	return err
}

// await waits for the answer to wt, for at most limit. A negative limit means no limit. await
// returns true if the limit was reached. After half of the limit, it wakes the consumer.
func (w *Writer) await(wt *waiter, limit time.Duration) (timedOut bool) {
	answered := func(d time.Duration) bool {
		wt.timer.Reset(d)
		select {
		case <-wt.ch:
			wt.timer.Stop()
			return true
		case <-wt.timer.C:
			return false
		}
	}
	half, now := limit/2, long
	if limit < 0 {
		half, now = stuckAfter, stuck
	}
	if answered(half) {
		return false
	}
	w.store.lock()
	if !wt.answered {
		w.store.callers.shortage.growLocked(now)
		w.store.pressLocked()
	}
	w.store.unlock()
	if limit < 0 {
		<-wt.ch
		return false
	}
	return !answered(limit - half)
}

// listOf returns the list that contains wt.
func (q *callers) listOf(wt *waiter) *waiterList {
	if wt.big {
		return &q.bigs
	}
	return &q.slabs
}

// waitingLocked returns the number of waiting writes.
func (q *callers) waitingLocked() int { return q.slabs.n + q.bigs.n }

// pressLocked is called when the shortage has grown. It wakes the consumer if the consumer can
// help.
func (s *store) pressLocked() {
	if s.conf.consumer.Helps {
		s.bell.alarmLocked()
	}
}

// fewLocked reports whether few slabs are free although some writes never wait. Their records are
// about to be dropped or to evict others.
func (s *store) fewLocked() bool {
	return (s.conf.wait == 0 || s.conf.importantWait == 0) && len(s.pool.free) <= s.conf.o.Reserve+s.conf.o.SlabCount/4
}

// spills reports whether a write may wait for the consumer to move records to disk.
func (c *config) spills() bool {
	return c.o.WhenFull == slab.Spill() || c.o.ImportantWhenFull == slab.Spill()
}

// newWaiterLocked returns a waiter for the record p. It reuses the channel and timer of an earlier
// waiter.
func (q *callers) newWaiterLocked(p []byte, m batch.Meta, big bool) *waiter {
	var wt *waiter
	if k := len(q.spare); k > 0 {
		wt, q.spare = q.spare[k-1], q.spare[:k-1]
	} else {
		wt = &waiter{ch: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		wt.timer.Stop()
	}
	wt.p, wt.m, wt.big, wt.answered, wt.err = p, m, big, false, nil
	return wt
}

// freeWaiterLocked keeps wt for reuse. The caller has received the answer, so the channel is empty.
func (q *callers) freeWaiterLocked(wt *waiter) {
	wt.p = nil
	if len(q.spare) < maxSpareWaiters {
		q.spare = append(q.spare, wt)
	}
}

// serveLocked places the records of blocked writes, oldest first, while there is
// room.
func (f *front) serveLocked() {
	point(ptServeLocked)
	q := f.store.callers
	// This loop only reserves the budget. The waiting call then stores the record; see
	// storeOversizeLocked.
	for wt := q.bigs.head; wt != nil && f.reserveOversizeLocked(len(wt.p), wt.m); wt = q.bigs.head {
		q.answerLocked(wt, nil)
	}
	for wt := q.slabs.head; wt != nil; wt = q.slabs.head {
		if f.belowReserveLocked(wt.m) && !f.fitsLocked(len(wt.p)) {
			// This record must not use the reserve, but later waiters may.
			q.answerLocked(wt, f.store.dropLocked(batch.Full))
		} else if f.place(wt.p, wt.m) {
			q.answerLocked(wt, nil)
		} else {
			break
		}
	}
}

// fitsLocked reports whether the current slab has room for a record of n bytes.
func (f *front) fitsLocked(n int) bool {
	return f.cur != nil && f.cur.fits(n) && (f.conf.o.SlabRecords == 0 || f.cur.n < f.conf.o.SlabRecords)
}

// answerLocked ends the wait of wt. If err is nil, the record was stored or its budget is reserved.
func (q *callers) answerLocked(wt *waiter, err error) {
	point(ptAnswerLocked)
	q.listOf(wt).remove(wt)
	wt.answered, wt.err = true, err
	wt.ch <- struct{}{} // does not block: the capacity is 1, with one answer per wait
}

// refuseWaitersLocked answers all blocked writes with errClosed.
func (s *store) refuseWaitersLocked() {
	q := s.callers
	for _, l := range []*waiterList{&q.slabs, &q.bigs} {
		for wt := l.head; wt != nil; wt = l.head {
			s.book.refused++
			q.answerLocked(wt, errClosed)
		}
	}
}
