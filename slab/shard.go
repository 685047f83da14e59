package slab

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
)

// Shards spread contended writers over several lanes, each with a lock and a
// current slab of its own. Order stays strict: every record takes a ticket from
// one counter as the last step of its critical section, and the drain merges by
// ticket. The protocol, and why it is exact, is docs/adr/0006-ordered-shards.md.
//
//	writer  lock lane · recheck open · copy · ticket = G+1 · publish · unlock
//	drain   lock w.mu · W = G · for each lane: lock, cut, unlock · merge ≤ W
//
// A ticket ≤ W was taken before the sweep began, so its critical section was
// entered before the sweep reached that lane: the cut has it. One taken later is
// above W and waits for the next sweep. So a cut is complete and nothing in it
// can be overtaken.
//
// While lanes are closed, which is nearly always, none of this costs anything:
// tickets are a plain integer under w.mu.
type shards struct {
	max    int          // lanes there may be; 0: never shard
	active atomic.Int32 // open lanes; 0: single
	lanes  []lane
	forced bool // by tests: more lanes than processors

	// Guarded by Writer.mu.
	multi  bool
	misses int // failed TryLocks since the last seal
	hot    int // contended slabs in a row
	merge  *block
	left   int           // records swept and not yet part of a batch
	over   int           // records swept with tickets above the sweep's: the next one takes them
	swept  time.Duration // of the last sweep, since Writer.born: what is in the lanes came later

	_ [64]byte
	g atomic.Uint64 // the last ticket, while multi
	_ [120]byte
}

// A lane is one shard. Its lock comes after Writer.mu in the lock order.
type lane struct {
	mu   sync.Mutex
	room int
	cur  *block
	open bool
	full []*piece // sealed, oldest first
	_    [64]byte
}

const (
	// AutoShards as Options.Shards allows as many shards as there are
	// processors, but none below minAutoProcs.
	AutoShards   = -1
	minAutoProcs = 4
	maxShards    = 64
	// hotSlabs contended slabs in a row open the lanes: one collision is no
	// contention.
	hotSlabs = 4
	// watchEvery is how many slabs there are for one that is watched for contention,
	// while none was found: the counting costs a third of a call.
	watchEvery = 8
)

// laneLimit returns how many lanes o allows. Each needs a slab to fill, the
// merge needs one, and as many again must be left for the queue.
func laneLimit(o *Options) int {
	n := o.Shards
	if n == AutoShards {
		n = maxShards
	}
	if n < 2 || o.Crash != nil || o.WhenFull.kind == whenFullDropOldest || o.ImportantWhenFull.kind == whenFullDropOldest {
		return 0
	}
	if n = min(n, (o.SlabCount-1)/2, maxShards); n < 2 {
		return 0
	}
	return n
}

// lockCounting takes mu.put for a write that may be sharded, and notes a collision.
func (w *Writer) lockCounting() {
	if !w.mu.put.TryLock() {
		w.mu.put.Lock()
		w.sh.misses++
	}
}

// contendedLocked is asked whenever a slab has been filled: it opens the lanes
// once several slabs in a row were filled under contention, and says whether the next
// slab is watched.
func (w *Writer) contendedLocked(records int) {
	s := &w.sh
	if s.max == 0 || s.multi {
		return
	}
	if s.misses*4 > records {
		s.hot++
	} else {
		s.hot = 0
	}
	s.misses = 0
	if s.hot >= hotSlabs {
		w.activateLocked()
	}
	w.special.Store(s.multi || s.hot > 0 || w.sealed.Load()%watchEvery == 0 || w.smallRecords())
}

// laneBound returns how many lanes may be open now: as many as processors, at most.
func (w *Writer) laneBound() int {
	if w.sh.forced {
		return w.sh.max
	}
	procs := runtime.GOMAXPROCS(0)
	if w.o.Shards == AutoShards && procs < minAutoProcs {
		return 0
	}
	return min(w.sh.max, procs)
}

// activateLocked opens as many lanes as may be open, if the pool has the slabs for
// it.
func (w *Writer) activateLocked() {
	s := &w.sh
	s.hot = 0
	n := w.laneBound()
	if n < 2 || s.multi || s.left > 0 || s.merge != nil || w.closed || w.waiters.n > 0 || len(w.free) < n+1 {
		return
	}
	w.sealEarlyLocked()
	k := len(w.free) - 1
	s.merge, w.free = w.free[k], w.free[:k]
	s.g.Store(w.next)
	if points {
		point(ptActivateLocked)
	}
	s.multi, s.swept = true, time.Since(w.born)
	w.special.Store(true)
	w.setRoomLocked()
	for i := range n {
		l := &s.lanes[i]
		l.mu.Lock()
		l.open, l.room, l.cur = true, -1, nil
		l.mu.Unlock()
	}
	if points {
		point(ptActivatingLocked)
	}
	s.active.Store(int32(n))
	w.wakeLocked()
}

// putLane writes to one of n lanes. Each goroutine prefers the lane its stack
// address points at and tries the next one when that is taken.
func (w *Writer) putLane(p []byte, m batch.Meta, n int32) error {
	if points {
		point(ptLane)
	}
	var here byte
	h := uintptr(unsafe.Pointer(&here)) >> 11
	h = (h ^ h>>7) % uintptr(n)
	l := &w.sh.lanes[h]
	if !l.mu.TryLock() {
		next := &w.sh.lanes[(h+1)%uintptr(n)]
		if next.mu.TryLock() {
			l = next
		} else {
			l.mu.Lock()
		}
	}
	if points {
		point(ptLaneLocked)
	}
	if len(p)+batch.SlotBytes > l.room { // also when the lane is closed
		l.mu.Unlock()
		if points {
			point(ptLaneSlow)
		}
		w.mu.Lock()
		return w.putSlowLane(l, p, m)
	}
	t := w.storeLane(l, p, m)
	l.mu.Unlock()
	if points {
		point(ptLaneReturn)
	}
	w.urgentLane(t, m)
	return nil
}

// storeLane stores p in l's slab, which has room. The ticket is the last thing
// but the word that publishes it.
func (w *Writer) storeLane(l *lane, p []byte, m batch.Meta) uint64 {
	b := l.cur
	b.store(p, m, 0)
	if points {
		point(ptLaneCopiedLocked)
	}
	t := w.sh.g.Add(1)
	if points {
		point(ptLaneTicketLocked)
	}
	b.slot(b.n - 1).Ticket = t
	l.room = b.room()
	return t
}

func (w *Writer) urgentLane(t uint64, m batch.Meta) {
	if int(m.Level) < w.flushLevel {
		return
	}
	w.mu.Lock()
	w.urgent = max(w.urgent, t)
	w.wakeLocked()
	w.unlock()
}

// putSlowLane gives l a new slab and stores p there. It is called with w.mu held
// and returns without it. Whatever is not the plain case (closed lanes, blocked
// writes, oversize records, no free slab) goes the way of a single shard.
func (w *Writer) putSlowLane(l *lane, p []byte, m batch.Meta) error {
	if !w.sh.multi || w.closed || w.waiters.n > 0 || len(p)+batch.SlotBytes > w.slabBytes {
		return w.putSlowLocked(p, m)
	}
	l.mu.Lock()
	if points {
		point(ptLaneOpenLocked)
	}
	if len(p)+batch.SlotBytes > l.room {
		if !l.open || len(w.free) == 0 || w.belowReserveLocked(m) {
			l.mu.Unlock()
			return w.putSlowLocked(p, m)
		}
		w.sealLaneLocked(l)
		k := len(w.free) - 1
		l.cur, w.free = w.free[k], w.free[:k]
		l.cur.reset(w.sh.g.Load() + 1)
	}
	t := w.storeLane(l, p, m)
	l.mu.Unlock()
	w.wakeLocked()
	w.unlock()
	w.urgentLane(t, m)
	return nil
}

// sealEarlyLocked is sealLocked of a slab that may be far from full: what was not
// used of it does not count for the rate.
func (w *Writer) sealEarlyLocked() {
	if b := w.cur; b != nil {
		w.rewound -= uint64(b.room()) // a sum modulo 2⁶⁴
	}
	w.sealLocked()
}

// sealLaneLocked retires l's slab. Both locks are held.
func (w *Writer) sealLaneLocked(l *lane) {
	b := l.cur
	if b == nil {
		return
	}
	w.cutLaneLocked(l)
	l.cur, l.room = nil, -1
	b.retired = true
	w.sealed.Add(1)
	if b.refs == 0 {
		w.free = append(w.free, b)
	}
}

// cutLaneLocked makes the records that belong to no piece yet one.
func (w *Writer) cutLaneLocked(l *lane) {
	if b := l.cur; b != nil && b.n > b.cut {
		p := w.queue.get()
		*p = piece{blk: b, from: b.cut, to: b.n, first: b.cutTicket, size: b.off - b.cutOff, since: w.sh.swept}
		b.refs++
		b.cut, b.cutOff = b.n, b.off
		l.full = append(l.full, p)
	}
}

// ticketLocked returns the next ticket for a record stored under w.mu.
func (w *Writer) ticketLocked() uint64 {
	if w.sh.multi {
		return w.sh.g.Add(1)
	}
	w.next++
	return w.next
}

// ticketsLocked returns the last ticket given out.
func (w *Writer) ticketsLocked() uint64 {
	if w.sh.multi {
		return w.sh.g.Load()
	}
	return w.next
}

// lanesLocked walks the lanes, counts the records in them, and returns the last ticket
// given out at that moment: all lanes stand still meanwhile.
func (w *Writer) lanesLocked() (n int, tickets uint64) {
	lanes := w.sh.lanes
	for i := range lanes {
		lanes[i].mu.Lock()
	}
	tickets = w.ticketsLocked()
	for i := range lanes {
		l := &lanes[i]
		for _, p := range l.full {
			n += p.len()
		}
		if b := l.cur; b != nil {
			n += b.n - b.cut
		}
		l.mu.Unlock()
	}
	return n + w.sh.left + w.sh.over, tickets
}
