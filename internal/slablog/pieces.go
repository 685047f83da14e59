package slablog

import (
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// A piece is a run of records of one block with consecutive tickets. Its records do not change while
// it is queued or leased, so a lease reads them without a lock.
type piece struct {
	blk      *block
	from, to int // slots
	// first and size are copies of values in the slots, so that code that holds a lock need not
	// read mapped memory.
	first uint64 // ticket of the first record
	size  int    // payload bytes
	// since is the time since config.born at which the first record was accepted, or slightly
	// less.
	since time.Duration
}

// len returns the number of records.
func (p *piece) len() int { return p.to - p.from }

// run returns the records. The run shares the memory of the block, so the piece must not be
// released while the run is in use.
func (p *piece) run() layout.Run {
	n := len(p.blk.slots)
	return layout.NewBackRun(p.blk.mem, p.blk.slots[n-p.to:n-p.from:n-p.from])
}

// part returns a piece of the records from slot number from up to, but not including, slot number
// to. It reads slots, which may fault in mapped memory, or be zeros. The ticket is not read from
// them: a wrong one would be stored in the file as the progress.
func (p *piece) part(from, to int) piece {
	head, last := p.blk.slot(from), p.blk.slot(to-1)
	return piece{
		blk: p.blk, from: from, to: to, since: p.since,
		first: p.first + uint64(from-p.from), size: int(last.Off) + int(last.Len) - int(head.Off),
	}
}

// pieces is a FIFO queue of pieces, in ticket order. Each of its pieces is counted in the field
// refs of its block. The queue allocates only if records larger than a slab, or partial flushes,
// make more pieces than there are slabs.
type pieces struct {
	// queued has the oldest piece first. It is a part of mem, which is reused from its start when
	// queued has reached its end.
	queued []piece
	mem    []piece

	// Totals of the queued pieces. They are maintained, because the reader compares them with the
	// limits of the consumer each time it examines the store.
	records int
	bytes   int
}

// newPieces returns a queue for capacity pieces. Up to that number, push does not allocate.
func newPieces(capacity int) pieces {
	mem := make([]piece, 2*capacity)
	return pieces{mem: mem, queued: mem[:0]}
}

// push appends a piece.
func (q *pieces) push(p piece) {
	// At the end of mem, the queue moves back to the start. If it fills more than half of mem, mem
	// is doubled, so that moving costs constant time per push on average.
	if n := len(q.queued); n == cap(q.queued) {
		if 2*n > len(q.mem) {
			q.mem = make([]piece, 2*len(q.mem))
		}
		q.queued = q.mem[:copy(q.mem, q.queued)]
		clear(q.mem[n:]) // or the old places would keep buffers of large records
	}
	q.queued = append(q.queued, p)
	q.records += p.len()
	q.bytes += p.size
	p.blk.queued++
}

// take removes the oldest n pieces, which a lease has copied, except rest: the part of the last one
// that stays queued. rest may be empty.
func (q *pieces) take(n int, rest piece) {
	for i := range n {
		q.records -= q.queued[i].len()
		q.bytes -= q.queued[i].size
		q.queued[i].blk.queued--
		q.queued[i] = piece{}
	}
	if rest.len() > 0 {
		n--
		q.queued[n] = rest
		q.records += rest.len()
		q.bytes += rest.size
		rest.blk.refs++
		rest.blk.queued++
	}
	q.queued = q.queued[n:]
}

// remove removes those of the oldest n pieces for which match returns true. It returns their
// number, and the number of their records. The caller releases their blocks.
func (q *pieces) remove(n int, match func(*piece) bool) (removed, records int) {
	// The youngest piece comes first, so that no piece is moved if only the oldest ones are removed.
	kept := n
	for i := kept - 1; i >= 0; i-- {
		p := &q.queued[i]
		if match(p) {
			records += p.len()
			q.bytes -= p.size
			p.blk.queued--
			continue
		}
		if kept--; kept != i {
			q.queued[kept] = *p
		}
	}
	clear(q.queued[:kept])
	q.queued = q.queued[kept:]
	q.records -= records
	return kept, records
}

// pushLocked queues a piece. Until the piece is released, its block is not reused.
func (s *store) pushLocked(p piece) {
	p.blk.refs++
	s.pieces.push(p)
}

// dropQueuedLocked drops the queued records of b, counts them with why as the reason, and releases
// their pieces. It returns the number of records.
func (s *store) dropQueuedLocked(b *block, why batch.Reason) int {
	end := 0 // the first end pieces of the queue contain all pieces of b
	for n := b.queued; n > 0; end++ {
		if s.pieces.queued[end].blk == b {
			n--
		}
	}
	pieces, records := s.pieces.remove(end, func(p *piece) bool { return p.blk == b })
	s.countDropLocked(why, records)
	for range pieces {
		s.releaseLocked(b)
	}
	return records
}

// releaseLocked releases a piece of b, which is no longer queued or leased. The last piece of a
// retired block frees its memory.
func (s *store) releaseLocked(b *block) {
	if b.refs--; b.refs > 0 || !b.retired {
		return
	}
	// Later writes may wait again, because memory becomes free.
	s.callers.shortage = enough
	if !b.big {
		s.pool.idle = append(s.pool.idle, b)
		return
	}
	s.pool.takeBackLocked(len(b.mem))
	if s.crash != nil {
		s.crash.leaveBigLocked(b)
	}
}

// cutLocked queues the records of the current block that belong to no piece yet.
// The block stays current.
func (f *front) cutLocked() {
	if f.unreadLocked() > 0 {
		b, u := f.cur, &f.store.unread
		f.store.pushLocked(piece{blk: b, from: u.from, to: b.n, first: u.first, size: b.off - u.off, since: u.since})
		u.from, u.off = b.n, b.off
	}
}
