package slablog

import (
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

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

// giveUpLocked ends the attempt to store p. It passes an important record to LastResort, and drops
// any other record for the reason batch.Full.
func (w *Writer) giveUpLocked(p []byte, m batch.Meta) error {
	if w.conf.o.LastResort == nil || m.Level < w.conf.important.Level() || w.store.last.pending >= lastResortQueue {
		return w.store.dropLocked(batch.Full)
	}
	w.store.book.Accepted++
	w.store.last.pending++
	// LastResort runs after this call has returned, so it needs a copy. Until it has written the
	// record, the record is pending.
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
	// Only a record with the policy DropOldest may overtake waiting writes, as in putSlowLocked.
	if w.store.callers.bigs.n > 0 && !w.conf.policyFor(m.Level).evicts || !w.front.reserveOversizeLocked(len(p), m) {
		return w.fullLocked(p, m, &w.store.callers.bigs)
	}
	w.front.serveLocked() // dropping may have freed more room than this record uses
	return w.storeOversizeLocked(p, m)
}

// storeOversizeLocked queues p, for which the budget is reserved. It unlocks mu during the copy and
// then issues the ticket, so a record gets its place in the order only when its copy is complete:
//
//	reserve the budget ─▶ copy, unlocked ─▶ cut the current block, ticket, queue ─▶ file, unlocked
//
// The file access is last, because it needs the ticket, and other calls must not wait for the disk.
// The record is then already in the queue, and may be delivered before it is on disk.
func (w *Writer) storeOversizeLocked(p []byte, m batch.Meta) error {
	w.store.unlock()
	point(ptOversizeCopy)
	b := newOversize(p)
	point(ptOversizeCopied)
	w.store.lock()
	if w.store.life != accepting {
		w.store.pool.takeBackLocked(len(p))
		w.store.book.refused++
		return errClosed
	}
	// The earlier records of the current block must precede this record in the queue.
	w.front.cutLocked()
	s := b.slot(0)
	*s = layout.Slot{
		Ticket: w.front.next + 1, Time: m.Time, Len: uint32(len(p)),
		Stream: m.Stream, Level: clampLevel(m.Level),
	}
	w.front.next++
	w.store.pushLocked(piece{blk: b, to: 1, first: s.Ticket, size: len(p), since: time.Since(w.conf.born)})
	point(ptOversizeStoredLocked)
	if m.Level >= w.front.flush.Level() {
		w.store.due = w.front.next
	}
	w.store.bell.wakeLocked()
	if w.store.crash.mapped() {
		return w.store.crash.saveOversizeLocked(b, p, *s)
	}
	return nil
}

// fullLocked applies the when-full policy to a record for which there is no room. queue is the list
// of the calls that wait for the same kind of room. mu is held on entry and return, but released
// during a wait.
//
// If the wait succeeds, the goroutine that freed memory has stored the record, or, for a record
// larger than a slab, reserved the budget. In both cases waiting calls are served in order.
func (w *Writer) fullLocked(p []byte, m batch.Meta, queue *waiterList) error {
	c := w.store.callers
	limit, big := w.conf.policyFor(m.Level).wait, queue == &c.bigs
	wait := limit < 0 || limit > 0 && c.shortage < saturated
	if !wait || !big && w.front.belowReserveLocked(m) {
		return w.giveUpLocked(p, m)
	}
	wt := c.waitLocked(queue, p, m)
	defer c.freeWaiterLocked(wt)
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
	c.calls++
	c.time += time.Since(began)
	if wt.list != nil { // no answer
		wt.leave()
		c.shortage.growLocked(saturated)
		err := w.giveUpLocked(p, m)
		w.front.serveLocked() // a smaller later record may fit
		return err
	}
	if timedOut { // the answer arrived together with the timeout
		<-wt.ch
	}
	if wt.err == nil && big {
		return w.storeOversizeLocked(p, m)
	}
	return wt.err
}

// await waits for the answer to wt, for at most limit. A negative limit means no limit. await
// returns true if the limit was reached. After half of the limit, it wakes the consumer, which then
// has as much time again to make room. Without a limit, it wakes the consumer after stuckAfter.
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
	if wt.list != nil {
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
