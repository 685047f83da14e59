package diskqueue

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/spool"
)

// queue has the segments of a spool and the marks between its batches:
//
//	        acked         read              next
//	 settled  │ handed out  │ not handed out  │
//	 ─────────┼─────────────┼─────────────────┘
//	[ segment ][ segment ][ segment ][ active ]
//
// Unparked segments have their own settled marks (see status), so the read mark may be before
// acked. Batch numbers have gaps where batches were lost to damage or dropped over the quota. A
// mark within a gap means the same as a mark at the end of that gap.
//
// A segment leaves the queue when all its batches are settled, dropped or found missing. If it is
// damaged it is set aside, and otherwise its file is deleted:
//
//	segs ──settled, dropped──────▶ undeleted ──▶ deleted
//	  │                               ▲
//	  └──damaged──▶ damagedFiles ─────┘ more than keepDamaged, or over the quota
//
// All records are counted here, in the critical section that moves a mark, so that the account
// balances at every moment. The methods that delete files do so after they have released mu: a file
// that survives a kill in between is settled according to the cursor, and deleted by the next Open.
type queue struct {
	opt    *spool.Options
	dir    *directory
	events callback.Reporter // calls Options.OnEvent. Posting never blocks, so it is allowed with any lock held

	// Spool.mu guards these fields.
	closed    bool       // set by Close, which also holds syncer.mu. After it, all methods of the spool fail
	active    *segment   // the segment to which Append adds; if nil, the next Append begins one
	reading   *segment   // the segment that the reader has open, or nil; the quota must not delete it
	lastID    uint64     // highest segment number used so far, including deleted segments
	undeleted []*segment // removed segments and damaged files that sweep deletes

	// Stats and Sync, which do not acquire Spool.mu, also use the fields below, and the fields of
	// segments that can change. Except for the results of syncs, they are changed with Spool.mu and mu
	// held, so one of the two is enough to read them. mu is a leaf lock: with it held, there is no I/O,
	// and only the lock of the event queue is acquired.
	mu           sync.Mutex
	segs         []*segment  // ascending
	acked        mark        // all batches before this mark in segments inQueue are settled
	read         mark        // mark of the next batch to hand out
	damagedFiles []*segment  // files that were set aside, the oldest first
	count        spool.Stats // only the fields that count since Open, except DroppedQuota
	dropped      batch.Drops // records dropped over the quota
	drops        callback.DropSeries
}

// keepDamaged is the number of damaged files that are kept. Older ones are deleted, because a
// failing disk produces more and more of them.
const keepDamaged = 8

// report counts and reports damage. Each damage is reported once by a process.
func (q *queue) report(e *spool.CorruptError) {
	q.mu.Lock()
	q.count.Damages++
	q.mu.Unlock()
	q.events.Post("corrupt", e, e.Records)
}

// position returns the state to store in the cursor. Its end lets the next Open detect that
// segments at the end were truncated or deleted.
func (q *queue) position() cursorState {
	c := cursorState{acked: q.acked, segment: q.lastID, end: q.acked}
	if n := len(q.segs); n > 0 {
		c.end = q.segs[n-1].end
	}
	return c
}

// fits reports whether a frame of need bytes can be added to the active segment. It returns false
// for a damaged segment, because readers stop at the damage. It also returns false after a failed
// sync, because the end of the file may be lost.
func (q *queue) fits(need int64, f form) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.active
	return g.damage == nil && g.syncErr == nil && g.form == f && g.size+need <= q.opt.SegmentBytes
}

// begin makes g the active segment. g is a new segment without batches.
func (q *queue) begin(g *segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segs = append(q.segs, g)
	q.active, q.lastID = g, g.id
}

// commit makes a frame in the active segment visible to readers, and counts its records as
// appended.
func (q *queue) commit(h *frameHeader) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.active
	// The age of the pending records counts from this batch, because no older one is pending.
	if g.pending(g.settled(q.acked)) == 0 {
		g.pendingSince = time.Now().UnixNano()
	}
	// From here on, pick returns the frame.
	g.size += h.bytes()
	g.disk = g.size
	if q.opt.Sync == syncAlways {
		g.synced = g.size
	}
	g.end = h.end()
	q.count.Appended += uint64(h.records)
	q.count.Batches++
}

// pick returns the segment of the next batch to hand out, and moves the read mark to that batch. It
// skips gaps. It returns nil if there is no such batch.
func (q *queue) pick() *segment {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.segs {
		settled := g.settled(q.acked)
		if g.status == parked || g.empty() || g.done(q.read) || g.done(settled) {
			continue
		}
		if settled.seq < g.first.seq {
			settled = g.first
		}
		// The batches before the settled mark are skipped, for example after a restart.
		if settled.seq > q.read.seq {
			q.read = settled
		}
		return g
	}
	return nil
}

// handOut moves the read mark to end, the end of the batches that Next has returned.
func (q *queue) handOut(end mark) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.read = end
}

// rewind makes pick begin again with the oldest batch that is not settled, except batches of parked
// segments.
func (q *queue) rewind() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.read = mark{} // pick skips what is settled
}

// settle settles the batches up to number seq. The parameter out has all batches that are handed
// out, and settle returns how many of them it settled. If Next has not returned the number seq,
// settle returns an error, because it would settle batches that no destination has received. If seq
// is settled already, settle does nothing.
func (q *queue) settle(out []*handout, seq uint64) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// All batches with numbers up to last were handed out or settled.
	if last := max(q.read.seq, q.acked.seq) - 1; seq > last {
		return 0, fmt.Errorf("spool: cannot acknowledge batch %d: the last one handed out is %d", seq, last)
	}
	for n < len(out) && out[n].at.seq <= seq {
		o := out[n]
		q.count.Acked += o.end.rec - o.at.rec
		// The cursor does not describe unparked segments; their file names do.
		if o.seg.status == unparked {
			o.seg.settledTo = o.end
		}
		if o.end.seq > q.acked.seq {
			q.acked = o.end // all batches before it are settled or parked
		}
		n++
	}
	return n, nil
}

// finished reports whether the file of g can be deleted: all its batches are settled and, if g is
// the active segment, it is large. A small active segment stays until Close, because a new file for
// every batch would cost more. If g is nil, finished returns false.
func (q *queue) finished(g *segment) bool {
	return g != nil && g.done(g.settled(q.acked)) && (g != q.active || g.size >= q.opt.SegmentBytes/4)
}

// markDamaged is called if g cannot be read at off. It sets the end of g to the read position, so
// that the next batch comes from the next segment. It counts the remaining records of g as lost.
func (q *queue) markDamaged(g *segment, off int64, cause error) {
	// The batches before the read position stay in the queue until they are settled. Then sweep sets
	// the file aside.
	e := &spool.CorruptError{Segment: g.name, Offset: off, Records: g.end.rec - q.read.rec, Err: cause}
	q.mu.Lock()
	g.damage, g.end = e, q.read
	q.count.Corrupt += e.Records
	q.mu.Unlock()
	q.report(e)
	q.sweep()
}

// dropMissing removes the segments whose files were deleted, and counts and reports their records.
// It keeps a segment with batches that are handed out, because its open file can still be read.
func (q *queue) dropMissing() {
	kept := func(g *segment) bool { return q.pinned(g) || q.dir.has(g) }
	missing := slices.DeleteFunc(slices.Clone(q.segs), kept)
	e := &spool.CorruptError{Segment: q.dir.path, Err: errGone}
	for _, g := range missing {
		e.Records += g.pending(g.settled(q.acked))
	}
	q.mu.Lock()
	q.removeLocked(missing)
	q.count.Corrupt += e.Records
	q.mu.Unlock()
	q.report(e)
}

// checkOwner returns an error if the directory contains segments of another process. With the
// cursor of this process, their batches would count as acknowledged.
func (q *queue) checkOwner() error {
	found, _, err := findSegments(q.dir)
	if err != nil {
		return fmt.Errorf("spool: cannot list %s: %w", q.dir.path, err)
	}
	for _, f := range found {
		own := func(g *segment) bool { return g.uuid == f.uuid }
		if f.headerErr == nil && !slices.ContainsFunc(q.segs, own) && !slices.ContainsFunc(q.undeleted, own) {
			return fmt.Errorf("spool: %s was replaced by a directory with batches of another process; restart this process to continue with them", q.dir.path)
		}
	}
	return nil
}

// sweep removes the settled segments, deletes their files, and sets damaged files aside. A file that
// cannot be deleted is tried again by the next call. Only files of this process are deleted: another
// process may have replaced the directory, and its segments have the same names.
func (q *queue) sweep() {
	for _, g := range q.takeSettled() {
		q.setAside(g)
	}
	q.mu.Lock()
	old := max(0, len(q.damagedFiles)-keepDamaged)
	q.undeleted = append(q.undeleted, q.damagedFiles[:old]...)
	q.damagedFiles = slices.Delete(q.damagedFiles, 0, old)
	q.mu.Unlock()
	q.undeleted = slices.DeleteFunc(q.undeleted, func(g *segment) bool { return !q.dir.has(g) || q.dir.remove(g.name) })
}

// takeSettled removes the settled segments from the queue, and returns the damaged ones.
func (q *queue) takeSettled() (damaged []*segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segs = slices.DeleteFunc(q.segs, func(g *segment) bool {
		switch {
		case g == q.active || !g.done(g.settled(q.acked)): // the appender still writes to the active segment
			return false
		case g.damage != nil:
			damaged = append(damaged, g)
		default:
			q.undeleted = append(q.undeleted, g)
		}
		return true
	})
	return damaged
}

// discard deletes the file of g, which is not in the queue, or leaves it to the next sweep. The
// number of a file that remains is not used again: Open would treat that file as the successor of a
// segment with a lower number, and ignore the batches of that segment.
func (q *queue) discard(g *segment) {
	if q.dir.remove(g.name) {
		return
	}
	q.undeleted = append(q.undeleted, g)
	q.lastID = g.id
}

// removeLocked removes segments from the queue.
func (q *queue) removeLocked(segs []*segment) {
	q.segs = slices.DeleteFunc(q.segs, func(g *segment) bool { return slices.Contains(segs, g) })
}

// setAside renames the damaged file of g, unless it was deleted or replaced.
func (q *queue) setAside(g *segment) {
	if !q.dir.has(g) {
		return
	}
	if to := q.dir.setAside(g.name); to != "" {
		q.mu.Lock()
		q.damagedFiles = append(q.damagedFiles, &segment{segmentHeader: g.segmentHeader, name: to, disk: g.disk, status: aside})
		q.mu.Unlock()
	}
}

// stats returns a consistent snapshot, and the number of its pending records that are not handed
// out. It counts pending records by walking the segments, independently of the counters, so that
// batch.Account.Check detects errors.
func (q *queue) stats() (st spool.Stats, unread uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	st = q.count
	st.DroppedQuota = q.dropped[batch.Quota]
	st.Bytes, st.MaxBytes = q.disk(), q.opt.MaxBytes
	st.Segments, st.AsideFiles = len(q.segs), len(q.damagedFiles)
	for _, g := range q.segs {
		n := g.pending(g.settled(q.acked))
		st.Records += n
		if g.status == parked {
			unread += n
			st.Parked += n
			st.ParkedFiles++
			continue
		}
		unread += g.pending(q.read.later(g.settled(q.acked)))
		if n > 0 && st.Oldest.IsZero() {
			st.Oldest = time.Unix(0, max(g.created, g.pendingSince))
		}
	}
	for _, a := range q.damagedFiles {
		st.ParkedBytes += a.disk
	}
	return st, unread
}
