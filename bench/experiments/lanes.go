package experiments

import (
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// laneWriter is what the shards of slab.Writer were until ADR 14 took them out: one
// lock and one slab while callers hardly meet, several lanes, each with a lock and a
// slab of its own, while they do. Order stays strict either way.
//
//	caller  lock lane · recheck open · copy · ticket = G+1 · publish · unlock
//	drain   lock mu · W = G · for each lane: lock, cut, unlock · merge ≤ W
//
// The cut is complete. Suppose ticket t ≤ W is missed. Then its critical section was
// entered after the sweep had passed its lane, so its increment of G came after the
// load of W, so t > W: a contradiction.
//
// Order is strict. If call A returned before call B began, A's increment came before
// B's, so t(A) < t(B). Sweeps emit ascending tickets and W never falls.
type laneWriter struct {
	mu   sync.Mutex // taken before the lock of a lane
	cur  *stamped
	next uint64     // the last ticket, while the lanes are closed
	full []*stamped // sealed while they were closed, oldest first
	free []*stamped
	room *sync.Cond // a slab was freed; of mu
	wait int        // callers that wait for that

	limit  int  // lanes there may be
	misses int  // failed TryLocks since the last seal
	sealed int  // slabs sealed while the lanes were closed
	hot    int  // contended slabs in a row
	multi  bool // the lanes are open
	procs  int  // processors, by tests; 0: as many as there are

	active  atomic.Int32 // open lanes
	watched atomic.Bool  // the slab that is being filled is watched for contention
	lanes   []lane

	wake chan struct{}
	end  chan struct{}
	done chan error

	_ [128]byte
	g atomic.Uint64 // the last ticket, while the lanes are open
	_ [128]byte

	d    merger     // of the drain, as are:
	gone []*stamped // slabs that are done with
	cut  uint64     // of the last sweep
}

type lane struct {
	mu   sync.Mutex
	open bool
	cur  *stamped
	full []*stamped // sealed, oldest first
	_    [80]byte   // 128 in all
}

const (
	// hotSlabs contended slabs in a row open the lanes: one collision is no
	// contention.
	hotSlabs = 4
	// watchEvery is how many slabs there are for one that is watched for contention,
	// while none was found: the counting costs a third of a call.
	watchEvery = 8
	// idle is how long the lanes stay open without a slab that was filled.
	idle = 100 * time.Millisecond
)

func newLanes(dst io.Writer, size, count, limit int) *laneWriter {
	w := makeLanes(dst, size, count, limit)
	go w.drain()
	return w
}

// makeLanes is newLanes without the goroutine that writes.
func makeLanes(dst io.Writer, size, count, limit int) *laneWriter {
	w := &laneWriter{
		limit: limit, lanes: make([]lane, limit),
		wake: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan error, 1),
	}
	w.room = sync.NewCond(&w.mu)
	for range max(count, 2*limit+1) {
		w.free = append(w.free, &stamped{p: make([]byte, size), index: make([]entry, 0, size/32)})
	}
	w.watched.Store(true)
	w.d = merger{dst: dst, src: make([][]run, limit), out: make([]byte, 0, size), free: func(b *stamped) { w.gone = append(w.gone, b) }}
	return w
}

func (b *stamped) fits(p []byte) bool {
	return b != nil && len(b.p)-b.n >= len(p) && len(b.index) < cap(b.index)
}

// store copies p, and calls ticket last: what it returns publishes the record.
func (b *stamped) store(p []byte, ticket func() uint64) {
	off := b.n
	b.n += copy(b.p[off:], p)
	b.index = append(b.index, entry{ticket(), uint32(off), uint32(len(p))})
}

func (w *laneWriter) Write(p []byte) (int, error) {
	for {
		if n := w.active.Load(); n > 0 {
			if w.writeLane(p, int(n)) {
				return len(p), nil
			}
			continue
		}
		if !w.watched.Load() {
			w.mu.Lock()
		} else if !w.mu.TryLock() {
			w.mu.Lock()
			w.misses++
		}
		ok := !w.multi && w.writeSingle(p)
		w.mu.Unlock()
		if ok {
			return len(p), nil
		}
	}
}

// writeSingle stores p while the lanes are closed. It reports false if they were
// opened. mu is held.
func (w *laneWriter) writeSingle(p []byte) bool {
	for !w.cur.fits(p) {
		if w.cur != nil {
			w.contended(len(w.cur.index))
			if w.multi {
				return false
			}
			w.seal()
		}
		if w.cur = w.take(); w.cur == nil {
			w.await()
			if w.multi {
				return false
			}
		}
	}
	w.cur.store(p, func() uint64 { w.next++; return w.next })
	return true
}

func (w *laneWriter) seal() {
	w.full = append(w.full, w.cur)
	w.cur = nil
	w.signal()
}

// take returns a free slab, or nil. mu is held.
func (w *laneWriter) take() (b *stamped) {
	if k := len(w.free); k > 0 {
		b, w.free = w.free[k-1], w.free[:k-1]
	}
	return b
}

// await lets go of mu until a slab is free.
func (w *laneWriter) await() {
	w.wait++
	w.signal()
	w.room.Wait()
	w.wait--
}

func (w *laneWriter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// contended is asked whenever a slab has been filled: it opens the lanes once several
// slabs in a row were filled under contention.
func (w *laneWriter) contended(records int) {
	w.sealed++
	if w.misses*4 > records {
		w.hot++
	} else {
		w.hot = 0
	}
	w.misses = 0
	if w.hot >= hotSlabs {
		w.open()
	}
	w.watched.Store(w.hot > 0 || w.sealed%watchEvery == 0)
}

// open opens as many lanes as there are processors, if there are slabs for them. mu
// is held.
func (w *laneWriter) open() {
	w.hot = 0
	n := w.bound()
	if n < 2 || w.multi || len(w.free) < n {
		return
	}
	if w.cur != nil {
		w.seal()
	}
	w.g.Store(w.next)
	w.multi = true
	for i := range n {
		l := &w.lanes[i]
		l.mu.Lock()
		l.open = true
		l.mu.Unlock()
	}
	w.active.Store(int32(n))
	w.room.Broadcast() // who waits for the one slab may find room in a lane
	w.signal()
}

// writeLane writes to one of n lanes. A caller prefers the lane its stack points at,
// and tries the next one when that is taken. It reports false if the lanes were
// closed.
func (w *laneWriter) writeLane(p []byte, n int) bool {
	i := pick(n)
	l := &w.lanes[i]
	if !l.mu.TryLock() {
		if next := &w.lanes[(i+1)%n]; next.mu.TryLock() {
			l = next
		} else {
			l.mu.Lock()
		}
	}
	if l.open && l.cur.fits(p) {
		l.cur.store(p, w.ticket)
		l.mu.Unlock()
		return true
	}
	l.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.multi {
		return false
	}
	l.mu.Lock()
	full := !l.cur.fits(p)
	if full && len(w.free) == 0 {
		l.mu.Unlock()
		w.await()
		return false
	}
	if full {
		if l.cur != nil {
			l.full = append(l.full, l.cur)
		}
		l.cur = w.take()
	}
	l.cur.store(p, w.ticket)
	l.mu.Unlock()
	if full {
		w.signal()
	}
	return true
}

func (w *laneWriter) ticket() uint64 { return w.g.Add(1) }

// drain writes what comes.
func (w *laneWriter) drain() {
	t := time.NewTimer(idle)
	defer t.Stop()
	for ended := false; ; {
		quiet := false
		select {
		case <-w.wake:
		case <-t.C:
			quiet = true
		case <-w.end:
			ended = true
		}
		t.Reset(idle)
		w.mu.Lock()
		full := w.full
		w.full = nil
		multi := w.multi
		if multi {
			w.sweep(quiet || ended || int(w.active.Load()) > w.bound())
		} else if ended && w.cur != nil {
			full = append(full, w.cur)
			w.cur = nil
		}
		w.mu.Unlock()
		for _, b := range full { // older than all that was swept
			w.d.out = append(w.d.out, b.p[:b.n]...)
			w.d.flush()
			b.retired = true
			w.d.release(b)
			w.give()
		}
		if multi {
			w.d.scatter(w.cut)
			w.d.flush()
			w.give()
		}
		if ended {
			w.done <- w.d.err
			return
		}
	}
}

// bound returns how many lanes there may be now.
func (w *laneWriter) bound() int {
	if w.procs > 0 {
		return min(w.limit, w.procs)
	}
	return min(w.limit, runtime.GOMAXPROCS(0))
}

// sweep takes every record with a ticket up to now out of the lanes. With stop set it
// closes them as well, holding all locks, so that the one slab goes on from the last
// ticket. mu is held.
func (w *laneWriter) sweep(stop bool) {
	if stop {
		w.active.Store(0)
		for i := range w.lanes {
			w.lanes[i].mu.Lock()
		}
	}
	cut := w.g.Load()
	for i := range w.lanes {
		l := &w.lanes[i]
		if !stop {
			l.mu.Lock()
		}
		for _, b := range l.full {
			w.d.take(i, b, true)
		}
		clear(l.full)
		l.full = l.full[:0]
		if l.cur != nil {
			w.d.take(i, l.cur, stop)
		}
		if stop {
			l.cur, l.open = nil, false
		}
		l.mu.Unlock()
	}
	if stop {
		w.multi, w.next = false, cut
		w.watched.Store(true)
		w.room.Broadcast()
	}
	w.cut = cut
}

// give makes the slabs that are done with free again.
func (w *laneWriter) give() {
	w.mu.Lock()
	w.free = append(w.free, w.gone...)
	clear(w.gone)
	w.gone = w.gone[:0]
	if w.wait > 0 && len(w.free) == 0 {
		w.signal() // what is above the cut is in all of them: the next sweep has it
	}
	w.room.Broadcast()
	w.mu.Unlock()
}

// Drain ends the writer. No Write may run beside it.
func (w *laneWriter) Drain() error {
	close(w.end)
	return <-w.done
}
