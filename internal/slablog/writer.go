package slablog

import (
	"crypto/rand"
	"errors"
	"runtime"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// A Writer collects records in slabs, which its [Log] passes to one consumer. All methods may be
// called from any goroutine, including during and after Close.
//
// A call costs a lock and a copy. A destination that stalls, fails, panics or hangs affects callers
// only through the when-full policy, when all slabs are in use.
type Writer struct {
	front front // by value, so its fields are in the cache line of the Writer
	store *store
	conf  *config
}

// New returns a Writer, and the Log from which its consumer reads the records. deliver.NewOutput
// makes both for a destination. The error names every option that is out of range. New starts no
// goroutine. At the end, the consumer calls [Log.Close], [Log.End] and [Log.Leave].
func New(o *slab.Options, c Consumer) (*Writer, *Log, error) {
	if o == nil {
		o = &slab.Options{}
	}
	r, err := Resolve(*o)
	if err != nil {
		return nil, nil, err
	}
	levels, err := resolveLevels(&r)
	if err != nil {
		return nil, nil, err
	}
	if r.OnError == nil {
		r.OnError = callback.ToStderr[batch.Event]
	}
	w := &Writer{
		conf: &config{
			o: r, wait: layout.MaxWait(r.WhenFull), importantWait: layout.MaxWait(r.ImportantWhenFull),
			consumer: c, born: time.Now(), levels: levels,
		},
		store: new(store),
	}
	if w.conf.spills() && !c.Spills {
		return nil, nil, errors.New("slab: Options.WhenFull is spill, but the consumer has no disk to move records to")
	}
	w.conf.events.SetOutput(r.Name, r.OnError)
	_, _ = rand.Read(w.conf.id[:]) // never fails
	w.front = front{conf: w.conf, store: w.store, flush: levels.flush, end: noEnd, spins: runtime.GOMAXPROCS(0) > 1}
	w.store.init(w.conf, &w.front)
	w.store.last.writes = callback.New(w.writeLastResort, lastResortQueue+1)
	if err := w.openSlabs(c.Dictionary, c.Held); err != nil {
		return nil, nil, err
	}
	l := new(Log)
	l.reader.init(w.conf, w.store)
	return w, l, nil
}

// Write accepts p as one record of unknown time at slog.LevelInfo. It copies p. It returns len(p)
// and nil even for a record that the when-full policy dropped, because the caller has chosen that
// policy; the drop is counted. The error is [slab.ErrOversize] for a record larger than MaxRecord,
// and wraps [batch.ErrClosed] after Close.
func (w *Writer) Write(p []byte) (int, error) {
	point(ptPut)
	var err error
	var m batch.Meta
	if w.front.checks {
		err = w.putChecked(p, m)
	} else { // WriteRecord, inlined, because a call would add a tenth to the cost
		if !w.front.mu.TryLock() { // front.lock, inlined
			w.front.wait()
		}
		if w.front.fits(len(p)) && m.Level < w.front.flush.Level() {
			w.front.storeFast(p, uint64(m.Time), tail(m))
			w.front.mu.Unlock()
			point(ptReturn)
			return len(p), nil
		}
		err = w.putSlow(p, m)
	}
	if err != nil && (!errors.Is(err, slab.ErrDropped) || errors.Is(err, slab.ErrOversize)) {
		return 0, err
	}
	return len(p), nil
}

// WriteRecord accepts p as one record. It copies p. For a record that was dropped and counted, the
// error wraps [slab.ErrDropped]. After Close, it wraps [batch.ErrClosed].
func (w *Writer) WriteRecord(p []byte, m batch.Meta) error {
	point(ptPut)
	if w.front.checks {
		return w.putChecked(p, m)
	}
	if !w.front.mu.TryLock() { // front.lock, inlined
		w.front.wait()
	}
	if !w.front.fits(len(p)) || m.Level >= w.front.flush.Level() {
		return w.putSlow(p, m)
	}
	w.front.storeFast(p, uint64(m.Time), tail(m))
	w.front.mu.Unlock()
	point(ptReturn)
	return nil
}

// storeFast implements block.store for a record on the heap that is not the first of its piece. It
// is most of the cost of a call. It is inlined, and the copy comes last, so that few registers must
// be saved across it.
func (f *front) storeFast(p []byte, time, tail uint64) {
	copy(f.reserve(len(p), time, tail), p)
	point(ptCopiedLocked)
	point(ptStoredLocked)
}

// reserve writes the slot of a record of n bytes, which must fit, and returns the memory for its
// payload.
func (f *front) reserve(n int, time, tail uint64) []byte {
	// On the heap the order of these stores does not matter: the consumer reads the slot only after
	// the record belongs to a piece, and pieces are made with the lock held.
	off, end := f.off, f.end-layout.SlotBytes
	f.next++
	f.off, f.end = off+n, end
	*(*slotWords)(unsafe.Add(f.base, end)) = slotWords{f.next, time, pair(uint32(off), uint32(n)), tail}
	return unsafe.Slice((*byte)(unsafe.Add(f.base, off)), n)
}

// putChecked implements WriteRecord for a Writer with mapped slabs or with a MaxRecord below the
// size of a slab.
func (w *Writer) putChecked(p []byte, m batch.Meta) error {
	if len(p) > w.conf.o.MaxRecord {
		return w.Refuse(batch.Oversize)
	}
	if w.store.crash != nil {
		return w.putMapped(p, m)
	}
	if !w.front.mu.TryLock() { // front.lock, inlined
		w.front.wait()
	}
	if !w.front.fits(len(p)) || m.Level >= w.front.flush.Level() {
		return w.putSlow(p, m)
	}
	w.front.storeFast(p, uint64(m.Time), tail(m))
	w.front.mu.Unlock()
	point(ptReturn)
	return nil
}

// putSlow implements WriteRecord without the fast path. front.mu is held on entry, and putSlow
// releases it.
func (w *Writer) putSlow(p []byte, m batch.Meta) error {
	w.front.closeLocked()
	w.store.mu.Lock()
	return w.putSlowLocked(p, m)
}

// putSlowLocked implements putSlow. mu is held on entry.
func (w *Writer) putSlowLocked(p []byte, m batch.Meta) error {
	defer w.store.unlock()
	point(ptSlowLocked)
	if w.store.life != accepting {
		w.store.book.refused++
		return errClosed
	}
	if len(p) > w.conf.o.MaxRecord {
		return w.store.dropLocked(batch.Oversize)
	}
	if len(p)+layout.SlotBytes > w.conf.o.SlabBytes {
		return w.putOversizeLocked(p, m)
	}
	// Waiting calls are served in order. Only a record that evicts the oldest slab may precede
	// them. Its call began before the waiting calls returned, so the order is still right.
	if (w.store.callers.slabs.n == 0 || w.conf.policyFor(m.Level) == slab.DropOldest()) && w.front.place(p, m) {
		if w.store.callers.waitingLocked() > 0 { // dropping may have freed more room than this record uses
			w.front.serveLocked()
		}
		w.store.crash.writeTombstonesLocked()
		return nil
	}
	return w.fullLocked(p, m, false)
}

// place stores p if a slab has room for it. It is called with front.mu held.
func (f *front) place(p []byte, m batch.Meta) bool {
	if f.store.crash.mapped() {
		return f.placeGuardedLocked(p, m)
	}
	return f.placeLocked(p, m)
}

// placeLocked stores p if a slab has room for it.
func (f *front) placeLocked(p []byte, m batch.Meta) bool {
	if !f.roomLocked(len(p), m) {
		return false
	}
	f.cur.store(p, m, f.ticketLocked())
	f.storedLocked(m)
	return true
}

// roomLocked makes room for n bytes in the current block. It returns false if that is impossible.
func (f *front) roomLocked(n int, m batch.Meta) bool {
	return f.fitsLocked(n) || f.openLocked(m)
}

// storedLocked is called after a record with the metadata m was stored. It updates the gauges and
// wakes the consumer if necessary.
func (f *front) storedLocked(m batch.Meta) {
	if b := f.cur; b.n == b.cut+1 { // runs once per slab and flush, so its cost does not matter
		f.beganLocked(time.Since(f.conf.born))
	}
	if f.store.bell.state == parked {
		f.store.bell.wakeLocked()
	}
	if m.Level >= f.flush.Level() {
		f.store.progress.urgent = f.next
		f.store.bell.wakeLocked()
	}
}

// openLocked makes an empty block the current one. It returns false if no block is available.
func (f *front) openLocked(m batch.Meta) bool {
	point(ptOpenLocked)
	if f.belowReserveLocked(m) {
		return false
	}
	// Only DropOldest evicts, and only if no slab is free.
	if len(f.store.pool.free) == 0 && (f.conf.policyFor(m.Level) != slab.DropOldest() || !f.store.evictLocked()) {
		return false
	}
	// The current block is sealed only when a free block is certain. If there is none, a smaller
	// record may still fit into it.
	f.sealLocked()
	f.cur = f.store.pool.takeLocked()
	f.cur.reset(f.next + 1)
	if f.store.fewLocked() {
		f.store.pressLocked()
	}
	return true
}

// reservedLocked returns the number of free slabs that a record with the metadata m must not use.
func (f *front) reservedLocked(m batch.Meta) int {
	if f.conf.o.Reserve > 0 && m.Level < f.conf.reserve.Level() {
		return f.conf.o.Reserve
	}
	return 0
}

// belowReserveLocked reports whether a record with the metadata m must not open a slab, because the
// remaining free slabs are reserved for more important records.
func (f *front) belowReserveLocked(m batch.Meta) bool {
	n := f.reservedLocked(m)
	return n > 0 && len(f.store.pool.free) <= n
}

// ticketLocked returns the next ticket.
func (f *front) ticketLocked() uint64 {
	f.next++
	return f.next
}

// sealLocked queues the unread records of the current block, which then accepts no more records.
func (f *front) sealLocked() {
	b := f.cur
	if b == nil {
		return
	}
	point(ptSealLocked)
	f.cutLocked()
	f.cur = nil
	b.retired = true
	f.store.sealed.Add(1)
	// Without pieces in the queue or in flight, nobody reads the block, and it is free at once.
	if b.refs == 0 {
		f.store.pool.free = append(f.store.pool.free, b)
	} else {
		f.store.bell.wakeLocked()
	}
}

// cutLocked queues the records of the current block that belong to no piece yet.
// The block stays current.
func (f *front) cutLocked() {
	if b := f.cur; b != nil && b.n > b.cut {
		f.store.pushLocked(b, b.cut, b.n, b.cutTicket, b.off-b.cutOff, f.store.gauge.curSince)
		b.cut, b.cutOff = b.n, b.off
	}
}

// pushLocked queues the records of b in [from, to) as a piece. Until the piece is released, the
// block is not reused.
func (s *store) pushLocked(b *block, from, to int, first uint64, size int, since time.Duration) {
	b.refs++
	s.pieces.push(b, from, to, first, size, since)
}

// releaseLocked releases a piece. Its block is freed with the last piece.
func (s *store) releaseLocked(p *piece) {
	b := p.blk
	s.pieces.put(p)
	s.dropRefLocked(b)
}

// dropRefLocked releases one reference to b. The last reference to a retired block frees its memory.
func (s *store) dropRefLocked(b *block) {
	if b.refs--; b.refs > 0 || !b.retired {
		return
	}
	// Later writes may wait again, because memory becomes free.
	s.callers.shortage = enough
	switch {
	case b.kind == oversize:
		s.pool.takeBackLocked(len(b.mem))
		if s.crash != nil {
			s.crash.leaveBigLocked(b)
		}
	case b.kind == rescued:
	case b.head != nil && s.crash.broken != nil && s.life != retained: // the mapping no longer exists
		k := len(s.crash.heapSpare) - 1
		s.pool.free = append(s.pool.free, s.crash.heapSpare[k])
		s.crash.heapSpare = s.crash.heapSpare[:k]
	default:
		s.pool.free = append(s.pool.free, b)
	}
}
