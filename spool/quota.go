package spool

import (
	"fmt"
	"slices"
)

// room makes sure that need more bytes stay within the quota, with the header of a new
// segment if there is none to add to. It deletes settled batches of the current segment
// first, then damaged files, then, with "drop-oldest", the oldest segments without a
// batch that is handed out. It deletes nothing if all of these together are too little.
func (a *appender) room(need int64, f form) error {
	limit := a.queue.opt.MaxBytes
	for {
		header := int64(0)
		if a.seg == nil {
			header = segmentHeaderBytes + int64(len(f.contentType))
		}
		if need+header > limit {
			return fmt.Errorf("%w: a batch of %d bytes does not fit into a quota of %d", ErrFull, need, limit)
		}
		remedy, name := a.queue.makeRoom(need + header)
		switch remedy {
		case roomEnough:
			return nil
		case roomDelete:
			a.dir.remove(name)
		case roomSeal:
			_ = a.seal() // deletes it, if it is settled
		case roomNone:
			return fmt.Errorf("%w: quota of %d bytes reached", ErrFull, limit)
		}
	}
}

// A remedy is the next step of an Append that the quota has no room for.
type remedy uint8

const (
	roomEnough remedy = iota
	roomDelete        // delete the file that was named
	roomSeal          // end the active segment and ask again
	roomNone          // nothing may be deleted, or everything would be too little
)

// makeRoom returns what to do so that need more bytes are within the quota. A file to delete is no
// longer part of the queue, and its records are counted as dropped.
func (q *queue) makeRoom(need int64) (r remedy, name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.diskLocked()+need <= q.opt.MaxBytes:
		return roomEnough, ""
	case q.active != nil && q.active.done(q.acked):
		return roomSeal, ""
	case q.diskLocked()-q.yieldLocked()+need > q.opt.MaxBytes:
		return roomNone, ""
	case len(q.aside) > 0:
		name = q.aside[0].name
		q.aside = slices.Delete(q.aside, 0, 1)
		return roomDelete, name
	case q.opt.OverQuota != dropOldest:
		return roomNone, ""
	}
	i := slices.IndexFunc(q.segs, func(g *segment) bool { return !q.pinnedLocked(g) })
	if i < 0 {
		return roomNone, ""
	}
	g := q.segs[i]
	if g == q.active {
		return roomSeal, ""
	}
	n := g.pending(g.settled(q.acked))
	q.count.droppedQuota += n
	q.count.droppedSegments++
	g.gone = true
	q.segs = slices.Delete(q.segs, i, i+1)
	q.events.post("drop", ErrFull, n)
	return roomDelete, g.name
}

// yieldLocked returns how many bytes may go for an Append. The header of the
// current segment is not among them: the one after it has one, too.
func (q *queue) yieldLocked() (n int64) {
	for _, a := range q.aside {
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

// pinnedLocked reports whether g must stay: Next is in it, or a batch of it is
// handed out and not acknowledged.
func (q *queue) pinnedLocked(g *segment) bool {
	if g.lane == parked {
		return false
	}
	return g == q.readSeg || max(g.firstSeq, g.noted(q.acked).seq) < min(g.end.seq, q.read.seq)
}

// diskLocked returns the size of segments and damaged files on disk.
func (q *queue) diskLocked() (n int64) {
	for _, g := range q.segs {
		n += g.disk
	}
	for _, a := range q.aside {
		n += a.disk
	}
	return n
}
