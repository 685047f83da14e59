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
//  3. with "drop-oldest", the oldest segments without a batch that is handed out. The active segment
//     is sealed first.
//
// It deletes nothing if all of these together are too small, because records would be lost for an
// Append that fails anyway. Sizes are those on disk: a settled part of a segment still counts.
func (a *appender) room(need int64, f form) error {
	q, limit := a.queue, a.queue.opt.MaxBytes
	for {
		header := int64(0)
		if q.active == nil {
			header = segmentHeaderBytes + int64(len(f.contentType))
		}
		if need+header > limit {
			return fmt.Errorf("%w: a batch of %d bytes does not fit into the quota of %d bytes; raise the quota (MaxBytes, --spool-max)", errFull, need, limit)
		}
		over := q.disk() + need + header - limit
		if over <= 0 {
			return nil
		}
		if q.active != nil && q.active.done(q.acked) {
			_ = a.seal() // deletes the segment
			continue
		}
		victims := q.victims(over)
		switch {
		case victims == nil:
			return fmt.Errorf("%w: the quota of %s is reached; fix the destination, or raise the quota (MaxBytes, --spool-max)", errFull, units.Size(float64(limit)))
		case slices.Contains(victims, q.active):
			_ = a.seal()
		default:
			q.drop(victims)
		}
	}
}

// victims returns the files to delete for over bytes, or nil if deleting files does not help.
// Damaged files come first, because they hold no record that can be delivered.
func (q *queue) victims(over int64) (victims []*segment) {
	for _, g := range slices.Concat(q.damagedFiles, q.segs) {
		if g.status != aside && (q.opt.OverQuota != dropOldest || q.pinned(g)) {
			continue
		}
		victims = append(victims, g)
		if over -= g.disk; g == q.active {
			over += g.bytes() // the next segment also needs a header
		}
		if over <= 0 {
			return victims
		}
	}
	return nil
}

// drop deletes files over the quota.
func (q *queue) drop(victims []*segment) {
	q.mu.Lock()
	q.removeLocked(victims)
	for _, g := range victims {
		if g.status == aside {
			q.damagedFiles = slices.DeleteFunc(q.damagedFiles, func(o *segment) bool { return o == g })
			continue
		}
		q.count.DroppedSegments++
		if n := g.pending(g.settled(q.acked)); n > 0 {
			before := q.dropped
			q.dropped[batch.Quota] += n
			q.drops.Dropped(&before)
		}
	}
	q.mu.Unlock()
	q.undeleted = append(q.undeleted, victims...)
	q.sweep()
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

// pinned reports whether the quota must not delete g. The reader may have opened g, and some systems
// do not delete open files. Or one of its batches is handed out and not acknowledged: a destination
// may accept such a batch, which would then be counted both as delivered and as dropped. Next does
// not read parked segments.
func (q *queue) pinned(g *segment) bool {
	if g.status == parked {
		return false
	}
	return g == q.reading || max(g.first.seq, g.settled(q.acked).seq) < min(g.end.seq, q.read.seq)
}

// disk returns the size in bytes of all segments and damaged files on disk.
func (q *queue) disk() (n int64) {
	for _, g := range q.segs {
		n += g.disk
	}
	for _, a := range q.damagedFiles {
		n += a.disk
	}
	return n
}
