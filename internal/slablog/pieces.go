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
