package slablog

import "time"

// pieces is a FIFO ring of pieces. It grows only if oversize records or partial flushes cut slabs; it
// has room for one piece of each slab.
type pieces struct {
	ring []*piece
	head int
	n    int
	free []*piece // pieces for reuse, at most as many as the ring holds

	// Totals of the pieces in the ring.
	records int
	bytes   int
}

func newPieces(capacity int) pieces {
	q := pieces{ring: make([]*piece, capacity)}
	pieces := make([]piece, capacity)
	for i := range pieces {
		q.free = append(q.free, &pieces[i])
	}
	return q
}

// push appends a piece and returns it.
func (q *pieces) push(b *block, from, to int, first uint64, size int, since time.Duration) *piece {
	p := q.get()
	*p = piece{blk: b, from: from, to: to, first: first, size: size, since: since}
	if q.n == len(q.ring) {
		ring := make([]*piece, 2*len(q.ring))
		for i := range q.n {
			ring[i] = q.at(i)
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = p
	q.n++
	q.records += to - from
	q.bytes += size
	return p
}

func (q *pieces) at(i int) *piece { return q.ring[(q.head+i)%len(q.ring)] }

// pop removes the oldest piece. The caller releases it with put.
func (q *pieces) pop() *piece {
	p := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) % len(q.ring)
	q.left(p)
	return p
}

// unpop makes p the oldest piece again.
func (q *pieces) unpop(p *piece) {
	q.push(p.blk, p.from, p.to, p.first, p.size, p.since)
	last := (q.head + q.n - 1) % len(q.ring)
	q.put(q.ring[last])
	q.ring[last] = nil
	q.head = (q.head - 1 + len(q.ring)) % len(q.ring)
	q.ring[q.head] = p
}

// remove removes piece i.
func (q *pieces) remove(i int) *piece {
	p := q.at(i)
	for ; i < q.n-1; i++ {
		q.ring[(q.head+i)%len(q.ring)] = q.at(i + 1)
	}
	q.ring[(q.head+q.n-1)%len(q.ring)] = nil
	q.left(p)
	return p
}

// left counts a piece that has left the queue.
func (q *pieces) left(p *piece) {
	q.n--
	q.records -= p.len()
	q.bytes -= p.size
}

// put recycles a piece without references.
func (q *pieces) put(p *piece) {
	p.blk = nil
	if len(q.free) < len(q.ring) {
		q.free = append(q.free, p)
	}
}

// split removes the first n records from p, the oldest piece, and returns them as a separate piece
// that is not queued.
func (q *pieces) split(p *piece, n int) *piece {
	head, rest := q.get(), piece{blk: p.blk, from: p.from + n, to: p.to}
	*head = piece{blk: p.blk, from: p.from, to: p.from + n, since: p.since}
	head.measure() // mapped memory may fault here, before anything has changed
	rest.measure()
	p.from, p.first, p.size = rest.from, rest.first, rest.size
	q.records -= n
	q.bytes -= head.size
	p.blk.refs++
	return head
}

func (q *pieces) get() *piece {
	k := len(q.free)
	if k == 0 {
		return new(piece)
	}
	p := q.free[k-1]
	q.free = q.free[:k-1]
	return p
}
