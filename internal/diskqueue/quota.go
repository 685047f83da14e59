package diskqueue

import (
	"fmt"
	"slices"
)

// room frees space for a frame of need bytes within the quota, and for the header of a new segment
// if there is no active segment. It returns errFull, wrapped, if it cannot. It deletes, in this order:
//
//  1. the active segment, if all its batches are settled,
//  2. damaged files that were set aside,
//  3. with "drop-oldest", the oldest segments without a batch that is handed out.
//
// It deletes nothing if all of these together are too small, because records would be lost for an
// Append that fails anyway. Sizes are those on disk: a settled part of a segment still counts.
func (a *appender) room(need int64, f form) error {
	limit := a.queue.opt.MaxBytes
	for {
		header := int64(0)
		if a.seg == nil {
			header = segmentHeaderBytes + int64(len(f.contentType))
		}
		if need+header > limit {
			return fmt.Errorf("%w: a batch of %d bytes does not fit into a quota of %d", errFull, need, limit)
		}
		switch ok, g := a.queue.makeRoom(need + header); {
		case ok:
			return nil
		case g == nil:
			return fmt.Errorf("%w: quota of %d bytes reached", errFull, limit)
		case g == a.seg:
			_ = a.seal() // this deletes the active segment if it is settled
		default:
			a.queue.sweep()
		}
	}
}

// makeRoom reports whether a frame of need bytes is within the quota. If it is not, makeRoom
// removes the segment or damaged file g from the queue, and counts its records as dropped; the
// caller calls sweep. It does not remove the active segment, because the appender holds its file:
// the caller seals it. If g is nil, deleting files does not help.
func (q *queue) makeRoom(need int64) (ok bool, g *segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.diskLocked()+need <= q.opt.MaxBytes:
		return true, nil
	// The caller seals the active segment, which deletes it and leaves no record behind.
	case q.active != nil && q.active.done(q.acked):
		return false, q.active
	case q.diskLocked()-q.freeableLocked()+need > q.opt.MaxBytes:
		return false, nil
	case len(q.damagedFiles) > 0:
		g = q.damagedFiles[0]
		q.damagedFiles = slices.Delete(q.damagedFiles, 0, 1)
		q.undeleted = append(q.undeleted, g)
		return false, g
	case q.opt.OverQuota != dropOldest:
		return false, nil
	}
	i := slices.IndexFunc(q.segs, func(g *segment) bool { return !q.pinnedLocked(g) })
	if i < 0 {
		return false, nil
	}
	if g = q.segs[i]; g == q.active {
		return false, g
	}
	n := g.pending(g.settled(q.acked))
	q.count.droppedQuota += n
	q.count.droppedSegments++
	g.removed = true
	q.segs = slices.Delete(q.segs, i, i+1)
	q.undeleted = append(q.undeleted, g)
	q.events.Post("drop", errFull, n)
	return false, g
}

// freeableLocked returns the number of bytes that may be deleted for an Append. It excludes the
// header of the active segment, because the next segment also needs a header.
func (q *queue) freeableLocked() (n int64) {
	for _, a := range q.damagedFiles {
		n += a.disk
	}
	if q.opt.OverQuota != dropOldest {
		return n
	}
	for _, g := range q.segs {
		if q.pinnedLocked(g) {
			continue
		}
		if n += g.disk; g == q.active {
			n -= g.bytes()
		}
	}
	return n
}

// pinnedLocked reports whether the quota must not delete g. Next may be reading g, or one of its
// batches may be handed out and not acknowledged. A destination may accept such a batch, which
// would then be counted both as delivered and as dropped. Next does not read parked segments.
func (q *queue) pinnedLocked(g *segment) bool {
	if g.status == parked {
		return false
	}
	return g == q.readSeg || max(g.first.seq, g.settledOnDisk(q.acked).seq) < min(g.end.seq, q.read.seq)
}

// diskLocked returns the size in bytes of all segments and damaged files on disk.
func (q *queue) diskLocked() (n int64) {
	for _, g := range q.segs {
		n += g.disk
	}
	for _, a := range q.damagedFiles {
		n += a.disk
	}
	return n
}
