package diskqueue

import (
	"fmt"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/spool"
)

// room frees space for a frame of need bytes within the quota, and for the header of a new segment
// if there is no active segment. It returns errFull, wrapped, if it cannot. It deletes, in this
// order:
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
		if a.queue.active == nil {
			header = segmentHeaderBytes + int64(len(f.contentType))
		}
		if need+header > limit {
			return fmt.Errorf("%w: a batch of %d bytes does not fit into the quota of %d bytes; raise the quota (MaxBytes, --spool-max)", errFull, need, limit)
		}
		switch ok, seal := a.queue.makeRoom(need + header); {
		case ok:
			return nil
		case !seal:
			return fmt.Errorf("%w: the quota of %s is reached; fix the destination, or raise the quota (MaxBytes, --spool-max)", errFull, units.Size(float64(limit)))
		}
		_ = a.seal()
	}
}

// makeRoom makes room for need bytes within the quota, and reports whether it succeeded. If seal is
// true, the caller seals the active segment and calls again, because the appender holds its file.
func (q *queue) makeRoom(need int64) (ok, seal bool) {
	q.mu.Lock()
	victims, ok, seal := q.victimsLocked(need)
	for _, g := range victims {
		is := func(o *segment) bool { return o == g }
		q.damagedFiles, q.segs = slices.DeleteFunc(q.damagedFiles, is), slices.DeleteFunc(q.segs, is)
		g.removed = true
		if g.status == aside {
			continue
		}
		q.count.DroppedSegments++
		if n := g.pending(g.settled(q.acked)); n > 0 {
			before := q.dropped
			q.dropped[batch.Quota] += n
			q.drops.Dropped(&before)
		}
	}
	q.undeleted = append(q.undeleted, victims...)
	q.mu.Unlock()
	if len(victims) > 0 {
		q.sweep()
	}
	return ok, seal
}

// endDrops reports the end of a series of drops, if one is in progress.
func (q *queue) endDrops() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drops.End()
}

// quotaError returns the error of the event that reports records dropped over the quota.
func quotaError(o *spool.Options) error {
	return fmt.Errorf("spool: quota of %s is exceeded, the oldest records are dropped; fix the destination, or raise the quota (MaxBytes, --spool-max)", units.Size(float64(o.MaxBytes)))
}

// victimsLocked returns the files to delete for need bytes. ok is false if deleting files does not
// help. seal is true, and ok false, if the active segment must be sealed first.
func (q *queue) victimsLocked(need int64) (victims []*segment, ok, seal bool) {
	over := q.diskLocked() + need - q.opt.MaxBytes
	if over <= 0 {
		return nil, true, false
	}
	if q.active != nil && q.active.done(q.acked) { // sealing deletes it and leaves no record behind
		return nil, false, true
	}
	// Damaged files come first, because they hold no record that can be delivered.
	for _, g := range slices.Concat(q.damagedFiles, q.segs) {
		if g.status != aside && (q.opt.OverQuota != dropOldest || q.pinnedLocked(g)) {
			continue
		}
		victims = append(victims, g)
		if over -= g.disk; g == q.active {
			seal = true
			over += g.bytes() // the next segment also needs a header
		}
		if over <= 0 {
			break
		}
	}
	if over > 0 || seal {
		return nil, false, seal && over <= 0
	}
	return victims, true, false
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
