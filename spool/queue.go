package spool

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// queue has the segments of a spool and the marks between its batches:
//
//	        acked         read              next
//	 settled  │ handed out  │ not handed out  │
//	 ─────────┼─────────────┼─────────────────┘
//	[ segment ][ segment ][ segment ][ active ]
//
// All records are counted here, in the critical section that moves a mark, so that the account
// balances at every moment. The methods that delete files do so after they have released mu.
type queue struct {
	opt    *Options
	dir    *directory
	events *reporter

	// mu guards the rest, and the fields of segments that can change. It is a leaf lock: no I/O
	// inside it, and no other lock except that of the event queue.
	mu      sync.Mutex
	closed  bool
	segs    []*segment // ascending
	active  *segment   // the one Append adds to; nil before the first
	lastID  uint64     // highest segment number given out
	next    mark       // of the next Append
	acked   mark       // everything before it is settled
	read    mark       // of the next batch to hand out
	readSeg *segment   // the one Next is in
	aside   []aside    // damaged files, ascending
	count   counters
}

// counters count since Open.
type counters struct {
	batches, appended uint64
	recovered         uint64
	acked             uint64
	droppedQuota      uint64
	droppedSegments   uint64
	corrupt           uint64
}

// aside is a damaged file that was set aside.
type aside struct {
	name string
	id   uint64
	disk int64
}

// keepAside is how many damaged files are kept; older ones are deleted.
const keepAside = 8

// close reports whether this is the first call. Afterwards all methods of the spool fail.
func (q *queue) close() (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first, q.closed = !q.closed, true
	return first
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// position returns the state that the cursor stores.
func (q *queue) position() cursorState {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := cursorState{acked: q.acked, segment: q.lastID, end: q.acked}
	if n := len(q.segs); n > 0 {
		c.end = q.segs[n-1].end
	}
	return c
}

// fits reports whether a frame of need bytes can be added to the active segment.
func (q *queue) fits(need int64, f form) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.active
	return g.damage == nil && g.unsure == nil && g.form() == f && g.size+need <= q.opt.SegmentBytes
}

// end returns the mark of the next Append.
func (q *queue) end() mark {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next
}

// begin makes g, which is empty, the active segment.
func (q *queue) begin(g *segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segs = append(q.segs, g)
	q.active = g
}

// takeID notes that number id is given out.
func (q *queue) takeID(id uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lastID = id
}

// commit makes a frame that was written to the active segment visible to readers. It returns false
// if a reader has found the segment damaged: frames after the damage cannot be reached.
func (q *queue) commit(h *frameHeader) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.active
	if g.damage != nil {
		return false
	}
	if g.pending(g.settled(q.acked)) == 0 {
		g.since = time.Now().UnixNano()
	}
	g.size += h.bytes()
	g.disk = g.size
	if q.opt.Sync == syncAlways {
		g.synced = g.size
	}
	g.end = mark{seq: h.seq + 1, rec: h.rec + uint64(h.records)}
	q.next = g.end
	q.count.appended += uint64(h.records)
	q.count.batches++
	return true
}

// seal ends the active segment: it may be deleted from now on.
func (q *queue) seal() {
	q.mu.Lock()
	q.active = nil
	q.mu.Unlock()
	q.sweep()
}

// pick returns the segment that holds the next batch and how many bytes of it may be read.
// It steps over batches that are gone, and returns nil if there is no such segment. gap is set if
// batches are gone after those that are handed out: they are settled with these.
func (q *queue) pick(handedOut bool) (g *segment, size int64, gap mark) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.segs {
		from := g.settled(q.acked)
		if from.seq < g.firstSeq {
			from = g.start()
		}
		if g.lane == parked || g.done(q.read) || g.done(from) || g.empty() {
			continue
		}
		if from.seq > q.read.seq {
			if g.lane == inLine && from.seq > q.acked.seq {
				if handedOut {
					gap = from
				} else {
					q.acked = from
				}
			}
			q.read = from
		}
		q.readSeg = g
		return g, g.size, gap
	}
	return nil, 0, gap
}

// over reports whether all batches of g are handed out. The file may contain more bytes, of
// failed Appends and of batches that are given up.
func (q *queue) over(g *segment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return g.done(q.read)
}

// nextToRead returns the mark of the next batch to hand out.
func (q *queue) nextToRead() mark {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.read
}

// handOut moves the mark of the next batch to hand out.
func (q *queue) handOut(through mark) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.read = through
}

// rewind makes pick begin again with the oldest batch that is not settled.
func (q *queue) rewind() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.read, q.readSeg = q.firstLocked(), nil
}

// firstLocked returns the mark before the oldest batch that is not settled and may be
// handed out.
func (q *queue) firstLocked() mark {
	for _, g := range q.segs {
		if g.lane == late && !g.done(g.from) {
			return g.from
		}
		if g.lane == inLine && !g.done(q.acked) {
			break
		}
	}
	return q.acked
}

// settle settles the batches of out, which are handed out, up to number seq. It returns the number
// of settled entries, which are the first of out.
func (q *queue) settle(out []*handout, seq uint64) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, errClosed
	}
	if last := max(q.read.seq, q.acked.seq) - 1; seq > last {
		return 0, fmt.Errorf("spool: cannot acknowledge batch %d: the last one handed out is %d", seq, last)
	}
	for n < len(out) && (out[n].through.seq <= seq+1 || out[n].gap) {
		o := out[n]
		q.count.acked += uint64(o.records)
		if !o.gap && o.seg.lane == late {
			o.seg.from = o.through
		}
		if o.through.seq > q.acked.seq {
			q.acked = o.through // in line, all batches before it are settled, and the others are parked
		}
		n++
	}
	return n, nil
}

// finished reports whether the file of g can be deleted: all its batches are settled and, if g is
// the active segment, it is large. A small one may stay until Close: a new file for every batch
// would cost more.
func (q *queue) finished(g *segment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.finishedLocked(g)
}

func (q *queue) activeFinished() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.finishedLocked(q.active)
}

func (q *queue) finishedLocked(g *segment) bool {
	return g != nil && g.done(g.noted(q.acked)) && (g != q.active || g.size >= q.opt.SegmentBytes/4)
}

// spoil ends g, which cannot be read at off, before the next batch to hand out.
func (q *queue) spoil(g *segment, off int64, cause error) {
	q.mu.Lock()
	if g.gone {
		q.mu.Unlock()
		return // the quota has dropped it; its records are counted
	}
	e := &CorruptError{Segment: g.name, Offset: off, Records: g.end.rec - q.read.rec, Err: cause}
	g.damage, g.end = e, q.read
	q.count.corrupt += e.Records
	q.mu.Unlock()
	q.events.corrupt(e)
	q.sweep()
}

// lose removes the segments whose files are gone, and counts and reports their records. A segment
// with batches that are handed out stays: its open file can still be read.
func (q *queue) lose() {
	q.mu.Lock()
	segs := slices.Clone(q.segs)
	q.mu.Unlock()
	segs = slices.DeleteFunc(segs, q.dir.has)
	e := &CorruptError{Segment: q.dir.path, Err: errGone}
	q.mu.Lock()
	q.segs = slices.DeleteFunc(q.segs, func(g *segment) bool {
		if !slices.Contains(segs, g) || q.pinnedLocked(g) {
			return false
		}
		e.Records += g.pending(g.settled(q.acked))
		g.gone = true
		return true
	})
	q.count.corrupt += e.Records
	q.mu.Unlock()
	q.events.corrupt(e)
}

// sweep deletes, or sets aside, the segments that are settled.
func (q *queue) sweep() {
	var names []string
	for _, g := range q.takeSettled() {
		if g.damage != nil {
			q.setAside(g.name, g.id, g.disk)
		} else {
			names = append(names, g.name)
		}
	}
	q.dir.remove(names...)
}

// takeSettled removes the settled segments from the queue.
func (q *queue) takeSettled() (done []*segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segs = slices.DeleteFunc(q.segs, func(g *segment) bool {
		gone := g != q.active && g.done(g.noted(q.acked))
		if gone {
			g.gone = true
			done = append(done, g)
		}
		return gone
	})
	return done
}

// setAside renames a damaged file and deletes the oldest ones if there are too many.
func (q *queue) setAside(name string, id uint64, disk int64) {
	to := q.dir.setAside(name)
	if to == "" {
		return
	}
	q.mu.Lock()
	q.aside = append(q.aside, aside{name: to, id: id, disk: disk})
	q.mu.Unlock()
	q.pruneAside()
}

// pruneAside deletes the oldest damaged files until keepAside are left.
func (q *queue) pruneAside() {
	q.mu.Lock()
	var names []string
	for len(q.aside) > keepAside {
		names = append(names, q.aside[0].name)
		q.aside = slices.Delete(q.aside, 0, 1)
	}
	q.mu.Unlock()
	q.dir.remove(names...)
}

// stats returns the numbers that the queue knows.
func (q *queue) stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.count
	st := Stats{
		Bytes: q.diskLocked(), MaxBytes: q.opt.MaxBytes, Segments: len(q.segs), AsideFiles: len(q.aside),
		Appended: c.appended, Batches: c.batches, Recovered: c.recovered, Acked: c.acked,
		DroppedQuota: c.droppedQuota, DroppedSegments: c.droppedSegments, Corrupt: c.corrupt,
	}
	for _, g := range q.segs {
		n := g.pending(g.settled(q.acked))
		if g.lane == parked {
			st.Parked += n
			st.ParkedFiles++
		} else if n > 0 && st.Oldest.IsZero() {
			st.Oldest = time.Unix(0, max(g.created, g.since))
		}
		st.Records += n
	}
	for _, a := range q.aside {
		st.AsideBytes += a.disk
	}
	return st
}
