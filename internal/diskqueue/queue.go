package diskqueue

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	closed atomic.Bool       // set by Close. After it, all methods of the spool fail

	// mu guards the fields below, and the fields of segments that can change. It is a leaf lock:
	// with it held, there is no I/O, and only the lock of the event queue is acquired.
	mu           sync.Mutex
	segs         []*segment  // ascending
	active       *segment    // the segment to which Append adds; if nil, the next Append begins one. See appender.mu
	lastID       uint64      // highest segment number used so far, including deleted segments
	acked        mark        // all batches before this mark in segments inQueue are settled
	read         mark        // mark of the next batch to hand out
	readSeg      *segment    // the segment that Next is reading; the quota must not delete it
	damagedFiles []*segment  // files that were set aside, the oldest first
	undeleted    []*segment  // removed segments and damaged files that sweep deletes
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
	q.mu.Lock()
	defer q.mu.Unlock()
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
// appended. It returns false if a reader has found the segment damaged meanwhile, because readers
// do not reach frames after the damage.
func (q *queue) commit(h *frameHeader) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := q.active
	if g.damage != nil {
		return false
	}
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
	return true
}

// seal ends the active segment. After that, the segment may be deleted.
func (q *queue) seal() {
	q.mu.Lock()
	q.active = nil
	q.mu.Unlock()
	q.sweep()
}

// pick returns the segment and the mark of the next batch to hand out, and how many bytes of the
// segment may be read. It skips gaps. It returns nil if there is no such batch. The segment is
// protected from the quota until its batches are settled, the spool is rewound, or pick is called
// again.
func (q *queue) pick() (g *segment, at mark, size int64) {
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
		q.readSeg = g
		return g, q.read, g.size
	}
	return nil, mark{}, 0
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
	q.read, q.readSeg = mark{}, nil // pick skips what is settled
}

// settle settles the batches up to number seq. The parameter out has all batches that are handed
// out, and settle returns how many of them it settled. If Next has not returned the number seq,
// settle returns an error, because it would settle batches that no destination has received. If seq
// is settled already, settle does nothing.
func (q *queue) settle(out []*handout, seq uint64) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Load() {
		return 0, errClosed
	}
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
	q.mu.Lock()
	defer q.mu.Unlock()
	return g != nil && g.done(g.settledOnDisk(q.acked)) && (g != q.active || g.size >= q.opt.SegmentBytes/4)
}

// markDamaged is called if g cannot be read at off. It sets the end of g to the read position, so
// that the next batch comes from the next segment. It counts the remaining records of g as lost.
func (q *queue) markDamaged(g *segment, off int64, cause error) {
	q.mu.Lock()
	if g.removed {
		q.mu.Unlock()
		return // the quota has dropped the segment and counted its records
	}
	// The batches before the read position stay in the queue until they are settled. Then sweep sets
	// the file aside.
	e := &spool.CorruptError{Segment: g.name, Offset: off, Records: g.end.rec - q.read.rec, Err: cause}
	g.damage, g.end = e, q.read
	q.count.Corrupt += e.Records
	q.mu.Unlock()
	q.report(e)
	q.sweep()
}

// dropMissing removes the segments whose files were deleted, and counts and reports their records.
// It keeps a segment with batches that are handed out, because its open file can still be read.
func (q *queue) dropMissing() {
	// The caller holds the locks of all parts, so only Stats uses the queue meanwhile.
	missing := slices.DeleteFunc(slices.Clone(q.segs), q.dir.has)
	e := &spool.CorruptError{Segment: q.dir.path, Err: errGone}
	q.mu.Lock()
	for _, g := range missing {
		if !q.pinnedLocked(g) {
			e.Records += g.pending(g.settled(q.acked))
			g.removed = true
		}
	}
	q.segs = slices.DeleteFunc(q.segs, func(g *segment) bool { return g.removed })
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
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range found {
		own := func(g *segment) bool { return g.uuid == f.uuid }
		if f.headerErr == nil && !slices.ContainsFunc(q.segs, own) && !slices.ContainsFunc(q.undeleted, own) {
			return fmt.Errorf("spool: %s was replaced by a directory with batches of another process; restart this process to continue with them", q.dir.path)
		}
	}
	return nil
}

// sweep removes the segments that are settled on disk, deletes their files, and sets damaged files
// aside. A file that cannot be deleted is tried again by the next call. Only files of this process
// are deleted: another process may have replaced the directory, and its segments have the same
// names.
func (q *queue) sweep() {
	for _, g := range q.takeSettled() {
		q.setAside(g)
	}
	q.mu.Lock()
	old := max(0, len(q.damagedFiles)-keepDamaged)
	q.undeleted = append(q.undeleted, q.damagedFiles[:old]...)
	q.damagedFiles = slices.Delete(q.damagedFiles, 0, old)
	undeleted := slices.Clone(q.undeleted)
	q.mu.Unlock()
	for _, g := range undeleted {
		if !q.dir.has(g) || q.dir.remove(g.name) {
			q.mu.Lock()
			q.undeleted = slices.DeleteFunc(q.undeleted, func(o *segment) bool { return o == g })
			q.mu.Unlock()
		}
	}
}

// takeSettled removes the segments that are settled on disk from the queue, and returns the damaged
// ones. If the file name of an unparked segment could not be changed, the next process still needs
// the file.
func (q *queue) takeSettled() (damaged []*segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segs = slices.DeleteFunc(q.segs, func(g *segment) bool {
		switch {
		case g == q.active || !g.done(g.settledOnDisk(q.acked)): // the appender still writes to the active segment
			return false
		case g.damage != nil:
			damaged = append(damaged, g)
		default:
			q.undeleted = append(q.undeleted, g)
		}
		g.removed = true
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
	q.mu.Lock()
	defer q.mu.Unlock()
	q.undeleted = append(q.undeleted, g)
	q.lastID = g.id
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
	st.Bytes, st.MaxBytes = q.diskLocked(), q.opt.MaxBytes
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
