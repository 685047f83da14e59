package slab

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// droppedError wraps ErrDropped with the reason, without allocating.
type droppedError batch.Reason

var dropErrors = func() (e [batch.Reasons]error) {
	for i := range e {
		e[i] = droppedError(i)
	}
	return e
}()

func (e droppedError) Error() string {
	return fmt.Sprintf("%v: %v", ErrDropped, batch.Reason(e))
}

func (e droppedError) Unwrap() error { return ErrDropped }

// Is reports whether e is ErrOversize.
func (e droppedError) Is(target error) bool {
	return target == ErrOversize && batch.Reason(e) == batch.Oversize
}

// dropLocked counts a record that never got a ticket.
func (w *Writer) dropLocked(r batch.Reason) error {
	w.book.Accepted++
	w.countDropLocked(r, 1)
	return dropErrors[r]
}

// countDropLocked counts n accepted records as dropped and reports the start of
// an episode.
func (w *Writer) countDropLocked(r batch.Reason, n int) {
	if w.book.dropLocked(r, n) {
		w.events.Post(batch.Event{Output: w.o.Name, Op: "drop", Err: dropErrors[r], Count: uint64(n)})
	}
}

// Refuse counts a record that its producer does not hand over, as if it had been written and
// dropped: one that it could not encode, say, or found to be above MaxRecord before it had all
// of it. The error wraps [ErrDropped], or is [ErrClosed] after Close.
func (w *Writer) Refuse(r batch.Reason) error {
	w.mu.Lock()
	defer w.unlock()
	if w.life != accepting {
		w.book.refused++
		return ErrClosed
	}
	return w.dropLocked(r)
}

// policyFor returns what a write of level l does when no slab is free.
func (w *Writer) policyFor(l slog.Level) WhenFull {
	if l >= w.important.Level() {
		return w.o.ImportantWhenFull
	}
	return w.o.WhenFull
}

// lastResort is the way to Options.LastResort.
type lastResort struct {
	writes  *callback.Runner[[]byte]
	pending int // records that it has not written; 0 once Shutdown has accounted for them
}

// giveUpLocked ends the attempt to place p: the last resort takes it if it is
// important, else it is dropped as full.
func (w *Writer) giveUpLocked(p []byte, m batch.Meta) error {
	if w.o.LastResort == nil || m.Level < w.important.Level() || w.last.pending >= lastResortQueue {
		return w.dropLocked(batch.Full)
	}
	w.book.Accepted++
	w.last.pending++
	w.last.writes.Post(append(make([]byte, 0, len(p)), p...))
	return nil
}

// writeLastResort runs on the goroutine of w.last.writes.
func (w *Writer) writeLastResort(p []byte) {
	ok := false
	defer func() {
		_ = recover() // counted below; a panicking last resort has nobody to tell
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.last.pending == 0 { // Shutdown did not wait for it
			return
		}
		w.last.pending--
		if ok {
			w.book.Handled++
		} else {
			w.countDropLocked(batch.Full, 1)
		}
	}()
	n, err := w.o.LastResort.Write(p)
	ok = err == nil && n == len(p)
}

// putOversizeLocked accepts a record that fits no slab into a buffer of its own.
// The budget is reserved first and the copy made without the lock, so that a
// large record delays nobody.
func (w *Writer) putOversizeLocked(p []byte, m batch.Meta) error {
	// As with slabs, only a record that evicts the oldest may go before those that wait.
	if w.waiting.bigs.n > 0 && w.policyFor(m.Level).kind != whenFullDropOldest || !w.reserveOversizeLocked(len(p), m) {
		return w.fullLocked(p, m, true)
	}
	if w.waitingLocked() > 0 { // more may have made room than it took
		w.serveLocked()
		w.setRoomLocked()
	}
	return w.storeOversizeLocked(p, m)
}

// reserveOversizeLocked takes n bytes of the budget, for which DropOldest makes room.
func (w *Writer) reserveOversizeLocked(n int, m batch.Meta) bool {
	return w.pool.cedeLocked(n, w.reservedLocked(m)) || w.policyFor(m.Level).kind == whenFullDropOldest && w.evictForLocked(n, m)
}

// storeOversizeLocked queues p, for which the budget is reserved already. It
// drops the lock while it copies and takes the ticket after.
func (w *Writer) storeOversizeLocked(p []byte, m batch.Meta) error {
	w.unlock()
	if points {
		point(ptOversizeCopy)
	}
	b := newOversize(p)
	if points {
		point(ptOversizeCopied)
	}
	w.mu.Lock()
	if w.life != accepting {
		w.pool.takeBackLocked(len(p))
		w.book.refused++
		if w.mapped() { // who had to go for it must not come back
			w.unlock()
			w.crash.file.Big.Bury()
			w.mu.Lock()
		}
		return ErrClosed
	}
	w.cutLocked()
	s := b.slot(0)
	*s = batch.Slot{
		Ticket: w.ticketLocked(), Time: m.Time, Len: uint32(len(p)),
		Stream: m.Stream, Level: clampLevel(m.Level),
	}
	b.refs = 0
	w.pushLocked(b, 0, 1, s.Ticket, len(p), time.Since(w.born))
	if points {
		point(ptOversizeStoredLocked)
	}
	if m.Level >= w.flush.Level() {
		w.progress.urgent = w.next
	}
	w.sleep.wakeLocked()
	w.setRoomLocked()
	if w.mapped() {
		return w.saveOversizeLocked(b, p, *s)
	}
	return nil
}

// waiting is the writes that wait for memory.
type waiting struct {
	slabs    waiterList // for a slab
	bigs     waiterList // for memory of their own; nobody else waits for these
	spare    []*waiter  // for reuse
	shortage shortage
	needHelp bool          // call help after unlocking
	calls    uint64        // writes that have waited
	time     time.Duration // … and for how long, all together
}

// shortage is what became of the writes that waited since the last slab was freed.
//
//	enough ──half of the time of a write is over──▶ long ──all of it is──▶ saturated
//	  │ │                                            ▲                         ▲
//	  │ └──one without an end has waited──▶ stuck ───┘                         │
//	  └────────────all of the time of a write is over──────────────────────────┘
//
// Stuck, it may be saturated next, too. It is enough again once a slab is freed.
type shortage uint8

const (
	enough    shortage = iota
	stuck              // a write waits as long as it takes, and has for long
	long               // records are about to be dropped: the borrower is asked for help
	saturated          // a wait of BlockFor or Spill is over: further ones do not begin
)

// growLocked makes the shortage as bad as to, or leaves it if it is worse.
func (s *shortage) growLocked(to shortage) { *s = max(*s, to) }

// A waiter is a blocked write. The drain places its record for it and then
// answers, so that records are placed in the order of arrival, only as many
// callers wake as got room, and nobody overtakes.
type waiter struct {
	p        []byte
	m        batch.Meta
	big      bool
	answered bool
	err      error
	ch       chan struct{} // capacity 1
	timer    *time.Timer

	prev, next *waiter
}

// waiterList is an intrusive FIFO list.
type waiterList struct {
	head, tail *waiter
	n          int
}

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

// maxSpareWaiters bounds the pool of waiters.
const maxSpareWaiters = 64

// fullLocked applies the when-full policy to a record that has no room. It is
// called and returns with mu held, but releases it while waiting.
func (w *Writer) fullLocked(p []byte, m batch.Meta, big bool) error {
	pol := w.policyFor(m.Level)
	wait := pol.mayWait() && (pol.kind == whenFullBlock || w.waiting.shortage < saturated)
	if !wait || !big && w.belowReserveLocked(m) {
		return w.giveUpLocked(p, m)
	}
	wt := w.newWaiterLocked(p, m, big)
	w.lineOf(wt).push(wt)
	w.setRoomLocked()
	w.sleep.wakeLocked()
	w.unlock()
	if w.press != nil {
		w.press()
	}
	if points {
		point(ptWait)
	}

	began := time.Now()
	timedOut := w.await(wt, pol)

	if points {
		point(ptWoken)
	}
	w.mu.Lock()
	w.waiting.calls++
	w.waiting.time += time.Since(began)
	var err error
	switch {
	case timedOut && !wt.answered:
		w.lineOf(wt).remove(wt)
		w.waiting.shortage.growLocked(saturated)
		err = w.giveUpLocked(p, m)
		w.serveLocked() // those behind it may fit where it did not
		w.setRoomLocked()
	case timedOut:
		<-wt.ch // the answer crossed the timer
		fallthrough
	default:
		if err = wt.err; err == nil && big {
			err = w.storeOversizeLocked(p, m)
		}
	}
	w.freeWaiterLocked(wt)
	return err
}

// await waits for the answer to wt, as long as pol says. It reports whether the time is
// over. After half of it the borrower is asked for help.
func (w *Writer) await(wt *waiter, pol WhenFull) (timedOut bool) {
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
	half, now := pol.wait/2, long
	if pol.kind == whenFullBlock {
		half, now = defaultBlockFor/2, stuck
	}
	if answered(half) {
		return false
	}
	w.mu.Lock()
	if !wt.answered {
		w.waiting.shortage.growLocked(now)
		w.waiting.needHelp = w.help != nil
	}
	w.unlock()
	if pol.kind == whenFullBlock {
		<-wt.ch
		return false
	}
	return !answered(pol.wait - half)
}

// lineOf returns the line in which wt waits.
func (w *Writer) lineOf(wt *waiter) *waiterList {
	if wt.big {
		return &w.waiting.bigs
	}
	return &w.waiting.slabs
}

// waitingLocked returns how many writes wait.
func (w *Writer) waitingLocked() int { return w.waiting.slabs.n + w.waiting.bigs.n }

// waits reports whether a write waits for a time.
func (f WhenFull) waits() bool { return f.kind == whenFullBlockFor || f.kind == whenFullSpill }

// isFull reports whether writes wait for room, or no longer do because it was in
// vain.
func (w *Writer) isFull() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waitingLocked() > 0 || w.waiting.shortage == saturated
}

// needs reports whether records are about to be dropped, and whether a write that waits as
// long as it takes does so for long.
func (w *Writer) needs() (drops, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting.shortage >= long || w.fewLocked(), w.waiting.shortage == stuck
}

// fewLocked reports whether so few slabs are free that writes which never wait are about
// to be dropped, or to evict others.
func (w *Writer) fewLocked() bool {
	return (!w.o.WhenFull.mayWait() || !w.o.ImportantWhenFull.mayWait()) && len(w.pool.free) <= w.o.Reserve+w.o.SlabCount/4
}

// mayWait reports whether a write waits at all.
func (f WhenFull) mayWait() bool { return f.kind == whenFullBlock || f.waits() && f.wait > 0 }

// askSpill tells the borrower to put records on disk when the Writer is full.
func (w *Writer) askSpill() (err error) {
	if w.o.WhenFull.kind != whenFullSpill && w.o.ImportantWhenFull.kind != whenFullSpill {
		return nil
	}
	if w.press, err = w.to.SpillWhen(w.isFull); err != nil {
		return fmt.Errorf("slab: Options.WhenFull is spill, but the destination cannot: %w", err)
	}
	return nil
}

func (w *Writer) newWaiterLocked(p []byte, m batch.Meta, big bool) *waiter {
	var wt *waiter
	if k := len(w.waiting.spare); k > 0 {
		wt, w.waiting.spare = w.waiting.spare[k-1], w.waiting.spare[:k-1]
	} else {
		wt = &waiter{ch: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		wt.timer.Stop()
	}
	wt.p, wt.m, wt.big, wt.answered, wt.err = p, m, big, false, nil
	return wt
}

func (w *Writer) freeWaiterLocked(wt *waiter) {
	wt.p = nil
	if len(w.waiting.spare) < maxSpareWaiters {
		w.waiting.spare = append(w.waiting.spare, wt)
	}
}

// serveLocked places the records of blocked writes, oldest first, while there is
// room.
func (w *Writer) serveLocked() {
	if points {
		point(ptServeLocked)
	}
	for wt := w.waiting.bigs.head; wt != nil && w.reserveOversizeLocked(len(wt.p), wt.m); wt = w.waiting.bigs.head {
		w.answerLocked(wt, nil)
	}
	served := false
	for wt := w.waiting.slabs.head; wt != nil; wt = w.waiting.slabs.head {
		if w.belowReserveLocked(wt.m) && !w.fitsLocked(len(wt.p)) {
			// The reserve is not for it, and those behind may be entitled.
			w.answerLocked(wt, w.dropLocked(batch.Full))
		} else if w.place(wt.p, wt.m) {
			w.answerLocked(wt, nil)
		} else {
			break
		}
		served = true
	}
	if served {
		w.setRoomLocked()
	}
}

// fitsLocked reports whether the current slab has room for a record of n bytes.
func (w *Writer) fitsLocked(n int) bool {
	return w.cur != nil && w.cur.fits(n) && (w.o.SlabRecords == 0 || w.cur.n < w.o.SlabRecords)
}

func (w *Writer) answerLocked(wt *waiter, err error) {
	if points {
		point(ptAnswerLocked)
	}
	w.lineOf(wt).remove(wt)
	wt.answered, wt.err = true, err
	wt.ch <- struct{}{} // capacity 1, one answer per wait: never blocks
}

// refuseWaitersLocked answers all blocked writes with ErrClosed.
func (w *Writer) refuseWaitersLocked() {
	for _, line := range []*waiterList{&w.waiting.slabs, &w.waiting.bigs} {
		for wt := line.head; wt != nil; wt = line.head {
			w.book.refused++
			w.answerLocked(wt, ErrClosed)
		}
	}
}
