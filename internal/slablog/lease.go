package slablog

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
)

// A Lease is a batch that a [Log] has passed to its consumer. The Log owns the records until they
// are settled; until then they are pending in its account. The consumer calls Settle, any number of
// times, for records that it has accounted for. It calls Release when it no longer reads the
// records. Both may be called from any goroutine and do not block.
//
// At most half of the slabs are in unsettled leases. The remaining half is for new records, and
// contains the records that DropOldest may drop. The lease of a mapped slab is a copy, because
// others can truncate the file.
//
//	        leased ──all records are settled──▶ settled ──Release──▶ reused
//
//	heap: the slabs are freed by Release, because the consumer reads them until then.
//	copy: the slabs are freed when the lease is settled, in the order of the leases. So the file needs
//	      only one number for the progress. freeAheadLocked describes the exception.
type Lease struct {
	s *store
	b batch.Batch
	// mem is the memory of b, unless b is in slabs.
	mem crashfile.Copy
	// found reports that a dead process has written the records. Such a lease has no slabs.
	found bool
	// slabs is the number of slabs of the lease, which leases.leased includes until it is settled.
	slabs int

	// store.mu guards the fields below.

	// pieces are the records in slabs that are not freed yet.
	pieces []piece
	// n is the number of records, and open the number of those that are not settled. n is stored,
	// because copyOut replaces b without a lock.
	n, open  int
	released bool
	// behind is the number of settled records in later leases that left leases.list before this
	// one.
	behind int
	// at is the time of the first record. since is the time since config.born at which it was
	// accepted, or slightly less.
	at    int64
	since time.Duration
}

// leases contains the leases of a store. store.mu guards it.
type leases struct {
	store *store
	// list contains the unsettled leases, oldest first. A settled copy stays until all older leases
	// are settled.
	list  []*Lease
	spare []*Lease // unused leases, for reuse
	// leased is the number of slabs in unsettled leases. starved reports that the reader waits until
	// it decreases.
	leased  int
	starved bool
	// waited reports that calls waited for slabs when the last lease was settled.
	waited bool
	// acked counts the records in copies that are settled and have no older unsettled lease. If it
	// is subtracted from the ticket up to which all records are settled, the rest is the number of
	// evicted records.
	acked uint64
}

// maxSpareLeases limits the number of leases kept for reuse.
const maxSpareLeases = 16

// Batch returns the records. They stay unchanged until Release.
func (l *Lease) Batch() *batch.Batch { return &l.b }

// Keeps reports whether unsettled records survive the process, because they are in crash-safe
// memory. The result never changes.
func (l *Lease) Keeps() bool { return l.found || l.s.crash != nil }

// Pins returns the number of slabs that stay in use until Release. limit is the maximum number of
// slabs that hanging calls may pin.
func (l *Lease) Pins() (slabs, limit int) {
	if l.Keeps() {
		return 0, 1
	}
	return l.slabs, l.s.leases.most()
}

// Open returns the number of records that are not settled.
func (l *Lease) Open() int {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.open
}

// Settle settles n records. It returns false if they are already accounted for, because Close ran
// out of time. The consumer must not count them then.
func (l *Lease) Settle(n int) bool {
	s := l.s
	half := s.lockSome()
	ok := n <= l.open
	if ok && n > 0 {
		if l.open -= n; l.open == 0 {
			s.leases.settledLocked(l)
		}
	}
	s.unlockSome(half)
	return ok
}

// Release frees the memory of a settled lease. If records are open, it does nothing, and they stay
// in the Log.
func (l *Lease) Release() {
	s := l.s
	half := s.lockSome()
	if l.open == 0 {
		l.released = true
		if s.crash == nil { // the slabs of a copy were freed when its records were settled
			s.leases.freeLocked(l, half)
		}
		s.leases.reuseLocked(l)
	}
	s.unlockSome(half)
}

// settledLocked removes a lease whose records are all settled.
func (ls *leases) settledLocked(l *Lease) {
	ls.leased -= l.slabs
	ls.waited = ls.store.callers.slabs.n > 0 // must precede the release of slabs, which ends the waiting
	if ls.store.crash != nil {
		ls.settleCopiesLocked()
		ls.settleAheadLocked(l)
	} else {
		ls.list = slices.DeleteFunc(ls.list, func(o *Lease) bool { return o == l })
	}
	if ls.starved || l.found { // the reader waits for this
		ls.starved = false
		ls.store.bell.wakeLocked()
	}
}

// settleCopiesLocked frees the slabs of all settled leases that no older unsettled lease precedes.
// It first stores in the file the ticket up to which all records are settled.
func (ls *leases) settleCopiesLocked() {
	for len(ls.list) > 0 && ls.list[0].open == 0 {
		l := ls.list[0]
		ls.list = slices.Delete(ls.list, 0, 1)
		ls.acked += uint64(l.n + l.behind)
		ls.store.crash.ackLocked(l.pieces)
		ls.freeLocked(l, false)
		ls.reuseLocked(l)
	}
}

// settleAheadLocked frees the slabs of l, a settled lease that an older unsettled lease precedes.
// Records larger than a slab stay until the older lease is settled, because they occupy no slab.
func (ls *leases) settleAheadLocked(l *Lease) {
	for i := 0; i < len(l.pieces); {
		if !ls.freeAheadLocked(l.pieces[i].blk) {
			i++
		}
	}
}

// freeAheadLocked frees b if it is a slab whose records are all in settled leases, although an
// older lease is not settled. That lease may stay unsettled for hours, for example if its
// destination delays one stream, and the slabs of later leases must not wait with it. Two more
// facts are then stored in the file: the header of the slab excludes the settled tickets, and a
// number explains why these are missing. If b is the current slab, it is refilled from its start.
func (ls *leases) freeAheadLocked(b *block) bool {
	s := ls.store
	if b.big || b == s.front.cur && s.front.unreadLocked() > 0 || !s.crash.mapped() {
		return false
	}
	n := 0
	for _, l := range ls.list {
		for _, p := range l.pieces {
			if p.blk == b && l.open == 0 {
				n++
			}
		}
	}
	// If b has other pieces, they are queued or in leases with open records.
	if n == 0 || n < b.refs {
		return false
	}
	// The oldest lease in the list has open records, or it would have left the list.
	for i := len(ls.list) - 1; i > 0; i-- {
		l := ls.list[i]
		if l.open > 0 { // this lease has no piece of b, and the reader may be copying its pieces
			continue
		}
		l.pieces = slices.DeleteFunc(l.pieces, func(p piece) bool { return p.blk == b })
		// A settled lease without pieces leaves the list. The preceding lease takes over its count,
		// so that acked grows only when all older records are settled.
		if len(l.pieces) == 0 {
			ls.list[i-1].behind += l.n + l.behind
			ls.list = slices.Delete(ls.list, i, i+1)
			ls.reuseLocked(l)
		}
	}
	for range n {
		s.releaseLocked(b)
	}
	s.crash.guardLocked(func() { // must precede the reuse of the slab
		s.crash.noteAheadLocked()
		if b != s.front.cur { // see rewindLocked
			b.reset(s.front.next + 1)
		}
	})
	s.freedLocked()
	return true
}

// freeLocked frees the slabs of a lease. If half is true, only store.mu is held.
func (ls *leases) freeLocked(l *Lease, half bool) {
	for _, p := range l.pieces {
		ls.store.releaseLocked(p.blk)
	}
	clear(l.pieces)
	l.pieces = l.pieces[:0]
	if !half {
		ls.store.freedLocked()
	}
}

// reuseLocked keeps l for a later batch if its memory is free.
func (ls *leases) reuseLocked(l *Lease) {
	if l.released && len(l.pieces) == 0 && !slices.Contains(ls.list, l) && len(ls.spare) < maxSpareLeases {
		l.released = false // a second Release must not add l to spare again
		ls.spare = append(ls.spare, l)
	}
}

// newLocked returns an empty lease.
func (ls *leases) newLocked() *Lease {
	var l *Lease
	if k := len(ls.spare); k > 0 {
		l, ls.spare = ls.spare[k-1], ls.spare[:k-1]
	} else {
		l = new(Lease)
	}
	*l = Lease{s: ls.store, b: l.b, mem: l.mem, pieces: l.pieces}
	l.b.Reset()
	l.b.Codec, l.b.Origin = ls.store.conf.o.Codec, ls.store.conf.id
	return l
}

// most returns the maximum number of slabs in leases that are not settled.
func (ls *leases) most() int { return max(1, ls.store.conf.o.SlabCount/2) }

// openLocked returns the number of records in leases that are not settled.
func (ls *leases) openLocked() (n int) {
	for _, l := range ls.list {
		n += l.open
	}
	return n
}
