package slab

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/batch"
)

// stages spread contended writes over several locks and keep their order. They are used while calls
// contend for front.mu, on at least minProcs processors, with slabs on the heap.
//
//	closed ──calls contend, a slab was opened──▶ open ──a full stage──▶ swept, open
//	   ▲                                          │
//	   └──front.mu and store.mu are locked, or few slabs are free
//
// While the stages are open, a write locks one stage, takes the next ticket from a counter, and copies
// the record into the stage. A sweep holds front.mu. It locks all stages, so that the counter is an exact
// cut: the stages hold every ticket up to it that is not in a slab. It exchanges their memory, unlocks
// them, and copies the records into the slabs in the order of the tickets. Free slabs are reserved for
// everything the stages can hold, so a sweep drops nothing.
//
// Everything else works on closed stages: store.lock and putSlow sweep and close them before they
// acquire store.mu, so policies, waiting, the account and the consumer see only slabs. store.unlock
// opens them again if the rate of records was high while they were open.
type stages struct {
	size int           // bytes of a stage, slots included
	max  int           // bytes of the largest record in a stage, slot included
	gap  time.Duration // stagedGap
	list []stage

	_        [64]byte
	tickets  atomic.Uint64 // the last ticket, while the stages are open
	_        [56]byte
	sweeps   atomic.Uint32 // how often the stages were emptied
	sweeping atomic.Bool   // a call is doing it
	_        [56]byte

	// front.mu guards the rest.
	wanted     bool          // calls contend
	contended  int           // calls that had to wait for front.mu
	from       uint64        // the ticket at which contended was 0
	opened     time.Duration // when the stages were opened, since config.born
	openedFrom uint64        // the last ticket at that time
	spare      []*block      // memory for the next sweep, and the records of the current one
	order      []uint32      // stage and slot of each record of a sweep
}

// A stage is the memory of contended writes, usually of the goroutines of one processor.
type stage struct {
	mu sync.Mutex
	b  *block
	_  [48]byte // one stage per cache line
}

const (
	minProcs  = 4  // with fewer, the copy from stage to slab costs more than it saves
	maxStages = 16 // a sweep locks all of them
	// maxStage is the maximum size of a stage in bytes. A sweep of 16 stages copies 128 KiB in about
	// 40 µs, in which calls with a full stage wait.
	maxStage = 8 << 10
	minStage = 256
	// perStage is the number of records of the largest size that a stage holds.
	perStage = 4

	// The stages are wanted if one in contendedShare calls waited for front.mu, over contendedCalls
	// such calls. They are closed for good if less than one record in stagedGap arrived.
	contendedCalls = 64
	contendedShare = 4
	stagedGap      = time.Microsecond
)

// newStages returns closed stages for the given number of processors, or nil if they are of no use.
func newStages(o *Options, procs int) *stages {
	n := min(procs, maxStages)
	size := min(o.SlabBytes*o.SlabCount/(8*n), maxStage) / batch.SlotBytes * batch.SlotBytes
	if size < minStage || size/perStage > o.SlabBytes/4 || o.SlabRecords > 0 {
		return nil
	}
	return &stages{size: size, max: size / perStage, gap: stagedGap, list: make([]stage, n)}
}

// takes reports whether a record of n bytes belongs into a stage.
func (g *stages) takes(f *front, n int, m batch.Meta) bool {
	return n+batch.SlotBytes <= g.max && m.Level < f.flush.Level()
}

// slabsFor returns the number of empty slabs in which the given number of bytes always fit.
func (g *stages) slabsFor(o *Options, bytes int) int {
	per := o.SlabBytes - g.max
	return (bytes + per - 1) / per
}

// contendedLocked counts a call that waited for front.mu.
func (g *stages) contendedLocked(next uint64) {
	if g.contended++; g.contended == contendedCalls {
		g.wanted = g.wanted || next-g.from < contendedCalls*contendedShare
		g.contended, g.from = 0, next
	}
}

// openStagesLocked opens the stages if the fast path is possible and enough slabs are free. Both locks
// are held.
func (f *front) openStagesLocked() {
	g := f.stages
	if f.room < 0 || f.store.progress.pressing() || len(f.store.pool.free)-f.conf.o.Reserve < g.slabsFor(&f.conf.o, 2*len(g.list)*g.size) {
		return
	}
	if g.spare == nil {
		blocks := newSlabs(g.size, 2*len(g.list))
		for i := range g.list {
			g.list[i].b = blocks[i]
		}
		g.spare = blocks[len(g.list):]
		g.order = make([]uint32, len(g.list)*g.size/batch.SlotBytes)
	}
	g.opened, g.openedFrom = time.Since(f.conf.born), f.next
	g.tickets.Store(f.next)
	f.room = -1
	f.mode.Store(staged)
}

// affinity holds the numbers of stages: each processor keeps the number that it used last.
var affinity sync.Pool

var (
	stageNumbers [64]int
	nextNumber   atomic.Uint32
)

func init() {
	for i := range stageNumbers {
		stageNumbers[i] = i
	}
}

// write copies a record into a stage. It reports false if the stages are closed.
func (g *stages) write(f *front, p []byte, m batch.Meta) bool {
	k, _ := affinity.Get().(*int)
	if k == nil {
		k = &stageNumbers[nextNumber.Add(1)%uint32(len(stageNumbers))]
	}
	defer affinity.Put(k)
	for {
		s := g.lockOne(*k)
		if f.mode.Load() != staged {
			s.mu.Unlock()
			return false
		}
		if s.b.fits(len(p)) {
			s.b.store(p, m, g.tickets.Add(1))
			if points {
				point(ptStoredLocked)
			}
			s.mu.Unlock()
			return true
		}
		seen := g.sweeps.Load()
		s.mu.Unlock()
		f.sweep(seen)
	}
}

// lockOne locks a stage: number k, or if that is locked, one of the following.
func (g *stages) lockOne(k int) *stage {
	for i := range g.list {
		if s := &g.list[(k+i)%len(g.list)]; s.mu.TryLock() {
			return s
		}
	}
	s := &g.list[k%len(g.list)]
	spinLock(&s.mu, true)
	return s
}

// sweep moves the records of all stages to the slabs, unless that happened since the sweep number seen.
// One call does it, and the others wait for it without the lock: its cache line belongs to the sweep.
func (f *front) sweep(seen uint32) {
	g := f.stages
	if !g.sweeping.CompareAndSwap(false, true) {
		if !spin(func() bool { return g.sweeps.Load() != seen }) {
			runtime.Gosched()
		}
		return // to try again
	}
	spinLock(&f.mu, f.spins)
	if f.mode.Load() == staged && g.sweeps.Load() == seen {
		f.sweepLocked(true)
	}
	f.mu.Unlock()
	g.sweeping.Store(false)
}

// closeStagesLocked moves the records of all stages to the slabs and closes the stages. front.mu is
// held, and store.mu is not.
func (f *front) closeStagesLocked() {
	g := f.stages
	f.sweepLocked(false)
	g.wanted = time.Since(f.conf.born)-g.opened < time.Duration(f.next-g.openedFrom)*g.gap
}

// sweepLocked moves the records of all stages to the slabs. front.mu is held, and store.mu is not. The
// stages stay open if that is requested and enough slabs are free.
func (f *front) sweepLocked(stay bool) {
	g, s := f.stages, f.store
	s.mu.Lock()
	free := len(s.pool.free) - f.conf.o.Reserve
	f.setRoomLocked()
	s.mu.Unlock()

	for i := range g.list {
		spinLock(&g.list[i].mu, f.spins)
	}
	last, bytes := g.tickets.Load(), 0
	for i := range g.list {
		st := &g.list[i]
		bytes += g.size - st.b.room()
		st.b, g.spare[i] = g.spare[i], st.b
	}
	if stay = stay && free >= g.slabsFor(&f.conf.o, bytes+len(g.list)*g.size); !stay {
		f.mode.Store(plain)
	}
	g.sweeps.Add(1)
	for i := range g.list {
		g.list[i].mu.Unlock()
	}

	f.mergeLocked(g.order[:last-f.next])
	if stay {
		f.room = -1
	}
}

// mergeLocked copies the records of g.spare into the slabs, in the order of their tickets, which follow
// f.next without a gap. order has one element for each of them.
func (f *front) mergeLocked(order []uint32) {
	g := f.stages
	for k, b := range g.spare {
		for i := range b.n {
			order[b.slot(i).Ticket-f.next-1] = uint32(k)<<16 | uint32(i)
		}
	}
	for len(order) > 0 {
		n := f.mergeFast(order)
		if order = order[n:]; len(order) == 0 {
			break
		}
		b := g.spare[order[0]>>16]
		slot := b.slot(int(order[0] & 0xffff))
		f.placeStaged(b.mem[slot.Off:slot.Off+slot.Len], batch.Meta{Time: slot.Time, Level: slog.Level(slot.Level), Stream: slot.Stream})
		order = order[1:]
	}
	for _, b := range g.spare {
		b.reset(0)
	}
}

// mergeFast stores the records for which the current slab has room, and returns how many. It changes
// the front once, because other goroutines are reading its cache line.
func (f *front) mergeFast(order []uint32) int {
	room, next := f.room, f.next
	if room < 0 {
		return 0
	}
	cur := f.cur
	off, base, slot := cur.off, cur.base, unsafe.Add(cur.top, -cur.n*batch.SlotBytes)
	for i, at := range order {
		b := f.stages.spare[at>>16]
		from := (*slotWords)(unsafe.Add(b.top, -int(at&0xffff)*batch.SlotBytes))
		at, n := unpair(from[2])
		if room -= int(n) + batch.SlotBytes; room < 0 {
			order = order[:i]
			break
		}
		next++
		*(*slotWords)(slot) = slotWords{next, from[1], pair(uint32(off), n), from[3]}
		copy(unsafe.Slice((*byte)(unsafe.Add(base, off)), n), unsafe.Slice((*byte)(unsafe.Add(b.base, at)), n))
		off += int(n)
		slot = unsafe.Add(slot, -batch.SlotBytes)
	}
	cur.off = off
	cur.n += len(order)
	f.room, f.next = cur.room(), next
	return len(order)
}

// placeStaged stores a record of a sweep that needs another slab.
func (f *front) placeStaged(p []byte, m batch.Meta) {
	s := f.store
	s.mu.Lock()
	if !f.placeLocked(p, m) { // cannot happen: slabs are reserved
		_ = s.dropLocked(batch.Full)
	}
	ring := s.bell.toRingLocked()
	s.mu.Unlock()
	if ring {
		s.bell.ring()
	}
}
