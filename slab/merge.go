package slab

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// merger is the drain's side of the shards: it sweeps the lanes and copies the
// swept records, in ticket order, into one slab that is sent as usual. Only the
// drain goroutine touches it.
//
// Tickets are dense, so the merge is a scatter: of[t-lo] names the source of
// ticket t, and within a source the records are in ticket order already. That
// costs two passes over one byte per record, whatever the number of lanes. A
// ticket without a record is void and is passed over.
type merger struct {
	src   []source      // source 0 is the single queue
	of    []uint8       // source + 1 of ticket lo+i; 0: void
	lo    uint64        // ticket of of[0]
	at    int           // next index into of
	upTo  uint64        // last ticket of the last sweep
	since time.Duration // no record of it is older
	// done are consumed pieces, to be released when the lock is held next.
	done []*piece
}

// A source is a FIFO of swept pieces.
type source struct {
	pieces []*piece
	head   int
}

func (s *source) push(p *piece) { s.pieces = append(s.pieces, p) }

// pop takes out the oldest piece; the memory is used again once all are out.
func (s *source) pop() *piece {
	p := s.pieces[s.head]
	s.pieces[s.head] = nil
	if s.head++; s.head == len(s.pieces) {
		s.pieces, s.head = s.pieces[:0], 0
	}
	return p
}

// dueLanesLocked says whether the lanes should be swept.
func (w *Writer) dueLanesLocked() bool {
	if w.d.timerDue || w.closed || w.urgent > w.settled || w.flushTarget > w.settled || w.waitingLocked() > 0 || w.queue.n > 0 {
		return true
	}
	for i := range w.sh.lanes {
		l := &w.sh.lanes[i]
		l.mu.Lock()
		n := len(l.full)
		l.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

// sweepLocked takes every record with a ticket up to now out of the lanes and the
// queue. With stop set it closes the lanes as well, holding all locks, so that
// the single shard goes on from the last ticket.
func (w *Writer) sweepLocked(stop bool) {
	s, g := &w.sh, &w.d.merge
	if len(g.src) == 0 {
		g.src = make([]source, len(s.lanes)+1)
	}
	w.d.timerDue = false
	before := time.Since(w.born)
	if stop {
		s.active.Store(0)
		for i := range s.lanes {
			s.lanes[i].mu.Lock()
		}
	}
	upTo := s.g.Load()
	if points {
		point(ptSweepLocked)
	}
	w.cutLocked()
	g.since = s.swept
	for w.queue.n > 0 {
		p := w.queue.pop()
		g.since = min(g.since, p.since) // of before the lanes were opened
		w.unqueueLocked(p)
		g.src[0].push(p)
	}
	for i := range s.lanes {
		l := &s.lanes[i]
		if points {
			point(ptSweepLaneLocked)
		}
		if !stop {
			l.mu.Lock()
		}
		w.cutLaneLocked(l)
		for _, p := range l.full {
			g.src[i+1].push(p)
		}
		clear(l.full)
		l.full = l.full[:0]
		if stop {
			if b := l.cur; b != nil {
				w.rewound -= uint64(b.room()) // as sealEarlyLocked
			}
			w.sealLaneLocked(l)
			l.open = false
		}
		l.mu.Unlock()
	}
	if stop {
		if points {
			point(ptStopLocked)
		}
		s.multi = false
		w.next = upTo
	}
	s.left, s.over = g.scatter(upTo)
	s.swept = before
	if stop {
		w.endMergeLocked()
	}
}

// endMergeLocked gives the merge slab back once the lanes are closed and merged.
func (w *Writer) endMergeLocked() {
	if s := &w.sh; !s.multi && s.left == 0 && s.merge != nil {
		w.free = append(w.free, s.merge)
		s.merge = nil
		w.setRoomLocked()
	}
}

// scatter notes the source of every swept ticket up to upTo and returns how many
// there are, and how many above upTo stay in their sources for the next time.
func (g *merger) scatter(upTo uint64) (n, over int) {
	lo := upTo + 1
	for i := range g.src {
		if s := &g.src[i]; s.head < len(s.pieces) {
			p := s.pieces[s.head]
			lo = min(lo, p.blk.slot(p.from).Ticket)
		}
	}
	size := int(upTo + 1 - lo)
	if cap(g.of) < size {
		g.of = make([]uint8, size, size+size/4)
	}
	g.of, g.lo, g.at, g.upTo = g.of[:size], lo, 0, upTo
	clear(g.of)
	for i := range g.src {
		s := &g.src[i]
		for _, p := range s.pieces[s.head:] {
			for k := p.from; k < p.to; k++ {
				t := p.blk.slot(k).Ticket
				if t > upTo {
					over += p.to - k
					break
				}
				g.of[t-lo] = uint8(i + 1)
				n++
			}
		}
	}
	return n, over
}

// buildMerged fills the merge slab with the next records and makes it the batch.
// A record that fits no slab is a batch of its own. It runs without w.mu, which
// it takes for a moment at the end.
func (w *Writer) buildMerged() {
	if points {
		point(ptMerge)
	}
	d, g, b := &w.d, &w.d.merge, w.sh.merge
	b.reset(g.lo + uint64(g.at))
	d.all.Reset()
	var big *piece
	taken := 0
	for ; g.at < len(g.of); g.at++ {
		from := g.of[g.at]
		if from == 0 {
			continue
		}
		src := &g.src[from-1]
		p := src.pieces[src.head]
		s := p.blk.slot(p.from)
		if p.blk.oversize {
			if taken > 0 {
				break
			}
			big = src.pop()
			g.at++
			taken = 1
			break
		}
		if !b.fits(int(s.Len)) || w.limits.Records > 0 && taken == w.limits.Records ||
			w.limits.Bytes > 0 && taken > 0 && b.off+int(s.Len) > w.limits.Bytes {
			break
		}
		b.store(p.blk.mem[s.Off:s.Off+s.Len], s.Meta(), s.Ticket)
		taken++
		if p.from++; p.from == p.to {
			g.done = append(g.done, src.pop())
		}
	}
	if big != nil {
		d.all.Add(big.run())
		d.pieces = append(d.pieces, big)
	} else if n := len(b.slots); b.n > 0 {
		d.all.Add(batch.NewBackRun(b.mem, b.slots[n-b.n:n:n]))
	}
	d.rest = &d.all

	if points {
		point(ptMerged)
	}
	w.mu.Lock()
	if w.abandoned { // Shutdown has accounted for all of it meanwhile
		w.mu.Unlock()
		return
	}
	w.sh.left -= taken
	w.inflight = taken
	w.inflightTime, w.seen = d.all.Runs[0].Slot(0).Time, g.since
	for i, p := range g.done {
		w.releaseLocked(p)
		g.done[i] = nil
	}
	g.done = g.done[:0]
	if w.waitingLocked() > 0 {
		w.serveLocked()
		w.setRoomLocked()
	}
	w.unlock()
}

// lanesWatermarkLocked is watermarkLocked while the lanes are open and all that
// was swept is settled.
func (w *Writer) lanesWatermarkLocked() uint64 { return max(w.settled, w.d.merge.upTo) }

// closeLanesLocked sends every further write to the single path, which refuses it.
func (w *Writer) closeLanesLocked() {
	w.sh.active.Store(0)
	for i := range w.sh.lanes {
		l := &w.sh.lanes[i]
		l.mu.Lock()
		l.open, l.room = false, -1
		l.mu.Unlock()
	}
}

// discardLocked empties the slabs: Close has given up. It returns the pieces that
// were queued. What the merger holds is left to the garbage collector.
func (w *Writer) discardLocked() (gone []*piece) {
	w.cutLocked()
	for w.queue.n > 0 {
		p := w.queue.pop()
		w.unqueueLocked(p)
		gone = append(gone, p)
	}
	s := &w.sh
	for i := range s.lanes {
		l := &s.lanes[i]
		l.mu.Lock()
		w.cutLaneLocked(l)
		gone = append(gone, l.full...)
		clear(l.full)
		l.full = l.full[:0]
		w.sealLaneLocked(l)
		l.mu.Unlock()
	}
	if s.multi {
		s.multi = false
		w.next = s.g.Load()
	}
	s.left, s.over = 0, 0
	return gone
}
