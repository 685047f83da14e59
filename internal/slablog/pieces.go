package slablog

import (
	"slices"
	"time"
)

// pieces is a FIFO queue of pieces. It allocates only if records larger than a slab, or partial
// flushes, make more pieces than there are slabs.
type pieces struct {
	queued []*piece // oldest first; usually a part of mem
	mem    []*piece
	free   []*piece // pieces for reuse

	// Totals of the queued pieces.
	records int
	bytes   int
}

// newPieces returns a queue for capacity pieces. Up to that number, push does not allocate.
func newPieces(capacity int) pieces {
	q := pieces{mem: make([]*piece, 2*capacity)}
	q.queued = q.mem[:0]
	pieces := make([]piece, capacity)
	for i := range pieces {
		q.free = append(q.free, &pieces[i])
	}
	return q
}

// push appends a piece.
func (q *pieces) push(b *block, from, to int, first uint64, size int, since time.Duration) {
	p := q.get()
	*p = piece{blk: b, from: from, to: to, first: first, size: size, since: since}
	// At the end of mem, the queue moves back to the start. If it fills more than half of mem, mem is
	// doubled, so that moving costs constant time per push on average.
	if len(q.queued) == cap(q.queued) {
		if 2*len(q.queued) > len(q.mem) {
			q.mem = make([]*piece, 2*len(q.mem))
		}
		q.queued = q.mem[:copy(q.mem, q.queued)]
	}
	q.queued = append(q.queued, p)
	q.count(p, 1)
}

// unpop returns p to the front of the queue, as the oldest piece.
func (q *pieces) unpop(p *piece) {
	q.queued = slices.Insert(q.queued, 0, p)
	q.count(p, 1)
}

// remove removes the piece at index i. The caller passes it to put later.
func (q *pieces) remove(i int) *piece {
	p := q.queued[i]
	if i == 0 {
		q.queued[0] = nil
		q.queued = q.queued[1:]
	} else {
		q.queued = slices.Delete(q.queued, i, i+1)
	}
	q.count(p, -1)
	return p
}

// count adds the records of p to the totals. If sign is -1, it subtracts them.
func (q *pieces) count(p *piece, sign int) {
	q.records += sign * p.len()
	q.bytes += sign * p.size
}

// put recycles a piece without references.
func (q *pieces) put(p *piece) {
	p.blk = nil
	if len(q.free) < len(q.mem) {
		q.free = append(q.free, p)
	}
}

// split removes the first n records from p, the oldest piece, and returns them as a separate piece
// that is not queued.
func (q *pieces) split(p *piece, n int) *piece {
	head, rest := q.get(), piece{blk: p.blk, from: p.from + n, to: p.to}
	*head = piece{blk: p.blk, from: p.from, to: p.from + n, since: p.since}
	head.measure() // mapped memory may fault here, before any change
	rest.measure()
	p.from, p.first, p.size = rest.from, rest.first, rest.size
	q.count(head, -1)
	p.blk.refs++
	return head
}

// get returns a piece with undefined content. It reuses a piece that was passed to put.
func (q *pieces) get() *piece {
	k := len(q.free)
	if k == 0 {
		return new(piece)
	}
	p := q.free[k-1]
	q.free = q.free[:k-1]
	return p
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

// cutLocked queues the records of the current block that belong to no piece yet.
// The block stays current.
func (f *front) cutLocked() {
	if b := f.cur; b != nil && b.n > b.cut {
		f.store.pushLocked(b, b.cut, b.n, b.cutTicket, b.off-b.cutOff, f.store.gauge.curSince)
		b.cut, b.cutOff = b.n, b.off
	}
}
