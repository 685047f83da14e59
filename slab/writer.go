package slab

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// A Writer collects records in slabs and hands them to its destination from one
// goroutine of its own. All methods may be called from any goroutine, also
// beside and after Close.
//
// A call costs a lock and a copy. What the destination does (stall, fail, panic,
// hang) is never felt by a caller, except through the when-full policy once all
// slabs are in use.
type Writer struct {
	state
	config

	sealed atomic.Uint32 // slabs sealed so far; the drain watches it while it spins
	events *callback.Runner[batch.Event]
	d      drain // owned by the drain goroutine
	end    ending
}

// New returns a Writer that lends its batches to a borrower: deliver.NewOutput puts one
// in front of a destination. The error names every option that is out of range. The
// Writer's goroutine ends with [Writer.Shutdown].
func New(to Borrower, o *Options) (*Writer, error) {
	if to == nil {
		return nil, errors.New("slab: the borrower is nil")
	}
	if o == nil {
		o = &Options{}
	}
	r, err := o.resolve()
	if err != nil {
		return nil, err
	}
	levels, err := r.resolveLevels()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Writer{
		state: state{
			front: front{flush: levels.flush, room: -1}, queue: newQueue(r.SlabCount + 2), pool: newPool(&r),
			loans: loans{room: make(chan struct{}, 1)}, sleep: sleep{bell: make(chan struct{}, 1)},
			mu: locks{spins: runtime.GOMAXPROCS(0) > 1},
		},
		config: config{
			o: r, born: time.Now(), to: to, wants: to.Wants(), reserve: levels.reserve, important: levels.important,
			halfLock: r.Crash == nil,
		},
		end: ending{ctx: ctx, giveUp: cancel, done: make(chan struct{}), reported: make(chan struct{})},
	}
	_, _ = rand.Read(w.id[:]) // never fails
	report := r.OnError
	if report == nil {
		report = callback.ToStderr[batch.Event]
	}
	w.events = callback.New(report, 0)
	if err := w.askSpill(); err != nil {
		cancel()
		return nil, err
	}
	if err := w.openSlabs(); err != nil {
		cancel()
		return nil, err
	}
	w.limited = w.wants.Limits.Bytes > 0 || w.wants.Limits.Records > 0
	w.gatherMax, w.d.few = 1, min(max(1, r.SlabCount/4), fewSlabs)
	if w.wants.Inline {
		w.gatherMax = w.d.few
	}
	if w.wants.Vectors {
		w.gatherMax = max(1, r.SlabCount/2)
	}
	w.checks = w.crash != nil || w.smallRecords()
	w.last.writes = callback.New(w.writeLastResort, lastResortQueue+1)
	w.d.init(w)
	w.help = to.HelpWhen(w.needs)
	go w.run()
	return w, nil
}

// Write accepts p as one record of unknown time at slog.LevelInfo. It copies p.
// It returns len(p), nil also for a record that the when-full policy dropped: the policy
// was the user's, and the drop is counted. A record above MaxRecord is [ErrOversize], and
// after Close the error is [ErrClosed].
func (w *Writer) Write(p []byte) (int, error) {
	if points {
		point(ptPut)
	}
	var err error
	var m batch.Meta
	if w.checks {
		err = w.putChecked(p, m)
	} else { // as WriteRecord: to call it would be a tenth of what it does
		if !w.mu.put.TryLock() { // lockPut, inlined
			w.mu.waitPut()
		}
		if len(p)+batch.SlotBytes <= w.room && m.Level < w.flush.Level() {
			w.next++
			w.stow(p, w.next, uint64(m.Time), tail(m))
			w.mu.put.Unlock()
			if points {
				point(ptReturn)
			}
			return len(p), nil
		}
		err = w.putSlow(p, m)
	}
	if err != nil && (!errors.Is(err, ErrDropped) || errors.Is(err, ErrOversize)) {
		return 0, err
	}
	return len(p), nil
}

// WriteRecord accepts p as one record. It copies p. It returns an error that
// wraps [ErrDropped] for a record that was dropped (and counted), and
// [ErrClosed] after Close.
func (w *Writer) WriteRecord(p []byte, m batch.Meta) error {
	if points {
		point(ptPut)
	}
	if w.checks {
		return w.putChecked(p, m)
	}
	if !w.mu.put.TryLock() { // lockPut, inlined
		w.mu.waitPut()
	}
	if len(p)+batch.SlotBytes > w.room || m.Level >= w.flush.Level() {
		return w.putSlow(p, m)
	}
	w.next++
	w.stow(p, w.next, uint64(m.Time), tail(m))
	w.mu.put.Unlock()
	if points {
		point(ptReturn)
	}
	return nil
}

// stow is block.store for a record on the heap that is not the first of its piece. It is
// most of the cost of a call. It is inlined, and its copy comes last, so that few
// registers have to be saved across that.
func (w *Writer) stow(p []byte, ticket, time, tail uint64) {
	w.room -= len(p) + batch.SlotBytes
	b := w.cur
	off := b.off
	*(*slotWords)(unsafe.Add(b.top, -b.n*batch.SlotBytes)) = slotWords{ticket, time, pair(uint32(off), uint32(len(p))), tail}
	b.off = off + len(p)
	b.n++
	copy(unsafe.Slice((*byte)(unsafe.Add(b.base, off)), len(p)), p)
	if points {
		point(ptCopiedLocked)
		point(ptStoredLocked)
	}
}

// putChecked is WriteRecord of a Writer that has mapped slabs, or a MaxRecord below the
// size of a slab.
func (w *Writer) putChecked(p []byte, m batch.Meta) error {
	if len(p) > w.o.MaxRecord {
		return w.Refuse(batch.Oversize)
	}
	if w.crash != nil {
		return w.putMapped(p, m)
	}
	if !w.mu.put.TryLock() { // lockPut, inlined
		w.mu.waitPut()
	}
	if len(p)+batch.SlotBytes > w.room || m.Level >= w.flush.Level() {
		return w.putSlow(p, m)
	}
	w.next++
	w.stow(p, w.next, uint64(m.Time), tail(m))
	w.mu.put.Unlock()
	if points {
		point(ptReturn)
	}
	return nil
}

// smallRecords reports whether a record above MaxRecord may fit a slab.
func (w *Writer) smallRecords() bool { return w.o.MaxRecord+batch.SlotBytes < w.o.SlabBytes }

// unlock releases mu and wakes the drain, or calls for help, if that was asked for.
// Neither blocks, and both happen outside the critical section.
func (w *Writer) unlock() {
	ring, help := w.sleep.toRingLocked(), w.waiting.needHelp
	w.waiting.needHelp = false
	w.mu.Unlock()
	if help {
		w.help()
	}
	if ring {
		w.sleep.ring()
	}
}

func (w *Writer) urgentLocked() {
	w.progress.urgent = w.next
	w.sleep.wakeLocked()
}

// setRoomLocked decides whether the next write may take the fast path, which does not count
// the records of a slab.
func (w *Writer) setRoomLocked() {
	if w.life != accepting || w.cur == nil || w.cur.n == w.cur.cut || w.waiting.slabs.n > 0 || w.sleep.state == parked || w.o.SlabRecords > 0 {
		w.room = -1
		return
	}
	w.room = w.cur.room()
}

// putSlow is WriteRecord off the fast path. It is called with mu.put held and returns
// without it.
func (w *Writer) putSlow(p []byte, m batch.Meta) error {
	w.mu.slabs.Lock()
	return w.putSlowLocked(p, m)
}

// putSlowLocked is putSlow, called with mu held.
func (w *Writer) putSlowLocked(p []byte, m batch.Meta) error {
	defer w.unlock()
	if points {
		point(ptSlowLocked)
	}
	if w.life != accepting {
		w.book.refused++
		return ErrClosed
	}
	if len(p) > w.o.MaxRecord {
		return w.dropLocked(batch.Oversize)
	}
	if len(p)+batch.SlotBytes > w.o.SlabBytes {
		return w.putOversizeLocked(p, m)
	}
	// Waiting callers are served in order. Only a record that evicts the oldest slab may go
	// first: its call began before theirs returned.
	if (w.waiting.slabs.n == 0 || w.policyFor(m.Level).kind == whenFullDropOldest) && w.place(p, m) {
		if w.waitingLocked() > 0 { // more may have made room than it took
			w.serveLocked()
			w.setRoomLocked()
		}
		w.buryForLocked()
		return nil
	}
	return w.fullLocked(p, m, false)
}

// place stores p if a slab has room for it. mu is held.
func (w *Writer) place(p []byte, m batch.Meta) bool {
	if w.mapped() {
		return w.placeGuardedLocked(p, m)
	}
	return w.placeLocked(p, m)
}

// placeLocked stores p if a slab has room for it.
func (w *Writer) placeLocked(p []byte, m batch.Meta) bool {
	if !w.roomLocked(len(p), m) {
		return false
	}
	w.cur.store(p, m, w.ticketLocked())
	w.storedLocked(m)
	return true
}

// roomLocked makes room for n bytes in the current block, if there can be any.
func (w *Writer) roomLocked(n int, m batch.Meta) bool {
	return w.fitsLocked(n) || w.openLocked(m)
}

// storedLocked does what is due after a record of m was stored.
func (w *Writer) storedLocked(m batch.Meta) {
	if b := w.cur; b.n == b.cut+1 { // once per slab and once per flush: cheap enough
		w.beganLocked(time.Since(w.born))
	}
	if w.sleep.state == parked {
		w.sleep.wakeLocked()
	}
	if m.Level >= w.flush.Level() {
		w.urgentLocked()
	}
	w.setRoomLocked()
}

// openLocked makes an empty block the current one, if there can be one.
func (w *Writer) openLocked(m batch.Meta) bool {
	if points {
		point(ptOpenLocked)
	}
	if w.belowReserveLocked(m) {
		return false
	}
	// Only DropOldest evicts, and only if no slab is free.
	if len(w.pool.free) == 0 && (w.policyFor(m.Level).kind != whenFullDropOldest || !w.evictLocked()) {
		return false
	}
	w.sealLocked()
	w.cur = w.pool.takeLocked()
	w.cur.reset(w.next + 1)
	w.waiting.needHelp = w.waiting.needHelp || w.help != nil && w.fewLocked()
	return true
}

// reservedLocked returns how many free slabs are not for a record of m.
func (w *Writer) reservedLocked(m batch.Meta) int {
	if w.o.Reserve > 0 && m.Level < w.reserve.Level() {
		return w.o.Reserve
	}
	return 0
}

func (w *Writer) belowReserveLocked(m batch.Meta) bool {
	n := w.reservedLocked(m)
	return n > 0 && len(w.pool.free) <= n
}

// ticketLocked returns the next ticket.
func (w *Writer) ticketLocked() uint64 {
	w.next++
	return w.next
}

// sealLocked retires the current block: the rest of it goes into the queue.
func (w *Writer) sealLocked() {
	b := w.cur
	if b == nil {
		return
	}
	if points {
		point(ptSealLocked)
	}
	w.cutLocked()
	w.cur = nil
	b.retired = true
	w.sealed.Add(1)
	if b.refs == 0 {
		w.pool.putLocked(b)
	} else {
		w.sleep.wakeLocked()
	}
}

// cutLocked queues the records of the current block that belong to no piece yet.
// The block stays current.
func (w *Writer) cutLocked() {
	if b := w.cur; b != nil && b.n > b.cut {
		w.pushLocked(b, b.cut, b.n, b.cutTicket, b.off-b.cutOff, w.gauge.curSince)
		b.cut, b.cutOff = b.n, b.off
		w.room = -1 // the next record is the first of its piece
	}
}

func (w *Writer) pushLocked(b *block, from, to int, first uint64, size int, since time.Duration) {
	b.refs++
	w.queue.push(b, from, to, first, size, since)
}

// releaseLocked gives up a piece; its block is freed with the last one.
func (w *Writer) releaseLocked(p *piece) {
	b := p.blk
	w.queue.put(p)
	w.dropRefLocked(b)
}

// dropRefLocked gives up one piece of b; with the last one of a retired block its
// memory is free again.
func (w *Writer) dropRefLocked(b *block) {
	if b.refs--; b.refs > 0 || !b.retired {
		return
	}
	w.waiting.shortage = enough
	switch {
	case b.kind == oversize:
		w.pool.takeBackLocked(len(b.mem))
		if w.crash != nil {
			w.leaveBigLocked(b)
		}
	case b.kind == rescued:
	case b.head != nil && w.crash.broken != nil && w.life != retained: // its mapping is gone
		k := len(w.crash.heapSpare) - 1
		w.pool.putLocked(w.crash.heapSpare[k])
		w.crash.heapSpare = w.crash.heapSpare[:k]
	default:
		w.pool.putLocked(b)
	}
}
