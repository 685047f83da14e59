package slab

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"runtime"
	"sync"
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
	// What every call touches lies in one cache line.
	flush   *slog.LevelVar // the level from which a record is sent at once
	special bool           // WriteRecord goes through putSpecial; set by New
	room    int            // bytes the fast path may still put into cur; -1 forces the slow path
	next    uint64         // tickets given out so far
	cur     *block

	// mu guards all that is not set by New or said to be otherwise: what stands
	// above, and the payload end and slot count of cur, by its half mu.put alone. It
	// is a leaf lock: nothing sleeps, sends to a destination or calls back while
	// holding it.
	mu locks

	o         Options
	id        [16]byte // names the records, together with their tickets: batch.Batch.Origin
	born      time.Time
	to        Borrower
	wants     Wants // of it
	reserve   *slog.LevelVar
	important *slog.LevelVar
	limited   bool
	gatherMax int // slabs per batch where there are no limits
	slabBytes int
	maxRecord int

	free  []*block
	ceded []*block // slabs whose memory records larger than a slab have: see budget.go

	queue        queue // pieces waiting for the drain, oldest first
	queuedBytes  int
	queuedRecs   int
	waiting      waiting
	dead         dead
	loans        loans
	oversizeUsed int
	ops          []*op

	acc         batch.Account // Pending is not kept here but walked by Stats
	last        lastResort
	taken       uint64 // in the borrower's account
	inflight    int    // records of the batch under way that are not settled
	settled     uint64 // every ticket up to it is accounted for
	flushTarget uint64 // a Flush wants everything up to this ticket
	refused     uint64

	gauge gauge

	sleep    sleepState
	needWake bool   // send to wake after unlocking
	needHelp bool   // call d.help after unlocking
	urgent   uint64 // the last record of FlushLevel
	dropping bool   // a drop episode is under way
	marked   batch.Drops
	life     life
	kept     int // records left in crash files for the next start

	crash     *crashFile // nil: heap slabs
	form      form       // of the records, where they go to a file
	crashErr  error      // why the slabs are on the heap although Options.Crash is set
	heapSpare []*block   // for the slabs of a broken mapping, as they come back
	toBury    bool       // a record larger than a slab was evicted since the lock was taken
	heapOnly  int        // oversize records pending that have no copy on disk
	evicted   uint64     // tickets evicted by policy

	sentTickets uint64 // tickets that went through the drain

	sealed atomic.Uint32 // slabs sealed so far; the drain watches it while it spins
	spins  bool          // there is a processor to spare for that
	quick  bool          // the drain may go from slab to slab with half of mu

	wake   chan struct{} // capacity 1
	done   chan struct{} // closed when the drain has ended
	ctx    context.Context
	giveUp context.CancelFunc // ends ctx: no more attempts
	events *callback.Runner[batch.Event]

	d drain // owned by the drain goroutine

	closeOnce sync.Once
	reported  chan struct{}
	report    batch.Report
	closeErr  error // what closing the destination returned; guarded by mu
	answer    error // of Shutdown; not written once reported is closed
}

// lastResort is the way to Options.LastResort.
type lastResort struct {
	writes  *callback.Runner[[]byte]
	pending int // records that it has not written; 0 once Shutdown has accounted for them
}

// waiting is who waits for memory.
type waiting struct {
	slabs     waiterList // writes that wait for a slab
	bigs      waiterList // … and those that wait for memory of their own: they hold up nobody else
	spare     []*waiter  // for reuse
	saturated bool       // BlockFor timed out and no slab was freed since
	long      bool       // a write waited for half of its time and no slab was freed since
}

// gauge is what Stats says of rates and ages.
type gauge struct {
	rate         rateMeter
	rewound      uint64        // bytes of slabs that were filled again without being sealed
	inflightTime int64         // time of the first record of the batch under way
	seen         time.Duration // no record of that batch was accepted earlier; since born
	curSince     time.Duration // as of the first record of cur that belongs to no piece
	parkedAt     time.Duration // when the drain found nothing to do
}

// dead is what dead processes have left.
type dead struct {
	files   []*orphan // to be delivered first
	left    int       // records in them that are not settled
	stats   CrashRecovery
	sending bool // the batch under way is theirs
}

// loans are the batches that a borrower has.
type loans struct {
	room  chan struct{} // capacity 1: fewer slabs are out
	slabs int           // out in loans that are not settled
	out   int           // loans whose slabs are not free
	open  []*Loan       // copies of mapped slabs, oldest first, up to the first that is not settled
	spare []*Loan       // for reuse
	back  uint64        // records that the borrower did not account for; on disk
}

type sleepState uint8

const (
	awake  sleepState = iota // the drain will look at the state by itself
	timed                    // sleeping until its timer, wake it for sealed slabs
	parked                   // nothing to do, wake it for any record
)

// locks is a mutex of two halves. Who holds both may do anything. A call holds put
// while it stores a record where there is room, and takes slabs as well for anything
// else; the drain takes slabs alone while it goes from one full slab to the next, so
// that it does not meet the callers at every record but once per slab. See quick.go.
type locks struct {
	put sync.Mutex
	// The drain asks for slabs again and again: not in the cache line of put.
	_     [64]byte
	slabs sync.Mutex
}

func (l *locks) Lock() {
	l.put.Lock()
	l.slabs.Lock()
}

func (l *locks) Unlock() {
	l.slabs.Unlock()
	l.put.Unlock()
}

func (l *locks) TryLock() bool {
	if !l.put.TryLock() {
		return false
	}
	l.slabs.Lock()
	return true
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
		o: r, born: time.Now(), to: to, wants: to.Wants(), slabBytes: r.SlabBytes, maxRecord: r.MaxRecord,
		flush: levels.flush, reserve: levels.reserve, important: levels.important,
		queue: newQueue(r.SlabCount + 2),
		wake:  make(chan struct{}, 1),
		done:  make(chan struct{}), reported: make(chan struct{}),
		ctx: ctx, giveUp: cancel,
		loans: loans{room: make(chan struct{}, 1)}, room: -1, sleep: awake, spins: runtime.GOMAXPROCS(0) > 1,
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
	w.special = w.crash != nil || w.smallRecords()
	w.quick = r.Crash == nil
	w.last.writes = callback.New(w.writeLastResort, lastResortQueue+1)
	w.d.init(w)
	w.d.help = to.HelpWhen(w.isScarce)
	go w.run()
	return w, nil
}

// Write accepts p as one record of unknown time at slog.LevelInfo. It copies p.
// It returns len(p), nil also for a record that the when-full policy dropped (the
// policy was the user's, and the drop is counted), and [ErrClosed] after Close.
func (w *Writer) Write(p []byte) (int, error) {
	if points {
		point(ptPut)
	}
	var err error
	var m batch.Meta
	if w.special {
		err = w.putSpecial(p, m)
	} else { // as WriteRecord: to call it would be a tenth of what it does
		w.mu.put.Lock()
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
	if err != nil && !errors.Is(err, ErrDropped) {
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
	if w.special {
		return w.putSpecial(p, m)
	}
	w.mu.put.Lock()
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

// stow is what block.store does, for a record that is not the first of its piece, on
// the heap: see there. It is most of what a call costs, and inlined where the copy is
// last; so little has to be kept across that.
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

// putSpecial is WriteRecord of a Writer whose slabs are mapped, or which takes no
// record that fills a slab.
func (w *Writer) putSpecial(p []byte, m batch.Meta) error {
	if len(p) > w.maxRecord {
		return w.refuseOversize(p)
	}
	if w.crash != nil {
		return w.putMapped(p, m)
	}
	w.mu.put.Lock()
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

// smallRecords reports whether there are records that are too large though a slab has
// room for them.
func (w *Writer) smallRecords() bool { return w.maxRecord+batch.SlotBytes < w.slabBytes }

// unlock releases mu and wakes the drain, or calls for help, if that was asked for.
// Neither blocks, and both happen outside the critical section.
func (w *Writer) unlock() {
	wake, help := w.needWake, w.needHelp
	w.needWake, w.needHelp = false, false
	w.mu.Unlock()
	if help {
		w.d.help()
	}
	if wake {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// wakeLocked makes unlock wake the drain, unless it is awake.
func (w *Writer) wakeLocked() {
	if w.sleep != awake {
		w.sleep = awake
		w.needWake = true
	}
}

func (w *Writer) urgentLocked() {
	w.urgent = w.next
	w.wakeLocked()
}

// setRoomLocked decides whether the next write may take the fast path.
func (w *Writer) setRoomLocked() {
	if w.life != accepting || w.cur == nil || w.cur.n == w.cur.cut || w.waiting.slabs.n > 0 || w.sleep == parked {
		w.room = -1
		return
	}
	w.room = w.cur.room()
}

// putSlow is WriteRecord where the fast path does not do. It is called with mu.put
// held and returns without it.
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
		w.refused++
		return ErrClosed
	}
	if len(p) > w.maxRecord {
		return w.dropLocked(batch.Oversize)
	}
	if len(p)+batch.SlotBytes > w.slabBytes {
		return w.putOversizeLocked(p, m)
	}
	// Who waits is not overtaken, except by records for which the oldest make room:
	// their calls are under way at the same time, and these never wait.
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
	if w.sleep == parked {
		w.wakeLocked()
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
	// Nothing is evicted for others, nor while there is room.
	if len(w.free) == 0 && (w.policyFor(m.Level).kind != whenFullDropOldest || !w.evictLocked()) {
		return false
	}
	w.sealLocked()
	k := len(w.free) - 1
	w.cur, w.free = w.free[k], w.free[:k]
	if w.cur.mem == nil { // it was ceded
		w.cur.fill(w.slabBytes)
	}
	w.cur.reset(w.next + 1)
	w.needHelp = w.needHelp || w.d.help != nil && w.fewLocked()
	return true
}

func (w *Writer) belowReserveLocked(m batch.Meta) bool {
	return w.o.Reserve > 0 && len(w.free) <= w.o.Reserve && m.Level < w.reserve.Level()
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
		w.free = append(w.free, b)
	} else {
		w.wakeLocked()
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
	w.queuedRecs += to - from
	w.queuedBytes += size
}

// unqueueLocked keeps the sums true for a piece that has left the queue.
func (w *Writer) unqueueLocked(p *piece) {
	w.queuedRecs -= p.len()
	w.queuedBytes -= p.size
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
	w.waiting.saturated, w.waiting.long = false, false
	switch {
	case b.oversize:
		w.takeBackLocked(len(b.mem))
		if w.crash != nil {
			w.leaveBigLocked(b)
		}
	case b.rescued:
	case b.head != nil && w.crash.broken != nil: // its mapping is gone
		k := len(w.heapSpare) - 1
		w.free = append(w.free, w.heapSpare[k])
		w.heapSpare = w.heapSpare[:k]
	default:
		w.free = append(w.free, b)
	}
}
