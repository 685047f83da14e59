package diskqueue

import (
	"errors"
	"os"
	"slices"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// recovery reads the directory into the queue and the cursor, in these steps:
//
//	cursor   the position up to which batches are acknowledged
//	headers  one read per segment
//	ends     A segment ends where the next begins. If the next is missing, the headers of its
//	         frames are read. The last segment is read completely.
//	reject   segments with unusable headers are set aside, missing ones reported
//	settle   acknowledged segments are deleted, and those that Options.Accepts refuses are parked
//
// No other goroutine uses the queue yet, so its lock is not needed.
type recovery struct {
	queue  *queue
	dir    *directory
	cursor *cursor
	next   mark       // end of the spool, where the first Append goes
	found  []*segment // all segments, also those that cannot be used
}

// run recovers the spool. It fails only on errors of the file system. Damaged files are reported
// and set aside, because new records would be lost if the spool could not be opened.
func (r *recovery) run() error {
	q := r.queue
	if err := r.openCursor(); err != nil {
		return err
	}
	// If the cursor is behind the segments, batches are delivered twice. If it is ahead of them,
	// after a loss of power, new batches get higher numbers. Neither loses a batch.
	//
	// The mark is preliminary: settle limits it to the segments that exist.
	q.acked = r.cursor.state.acked
	if err := r.loadHeaders(); err != nil {
		return err
	}
	if err := r.findEnds(); err != nil {
		return err
	}
	missing := r.reject()
	if err := r.settle(); err != nil {
		return err
	}
	if missing {
		r.cursor.noteEnd(q.position()) // so that damage of the cursor is reported only once
	}
	r.dir.touch() // an earlier process may not have synced the names
	return nil
}

// openCursor opens or creates the cursor file and reads it. If the path is not a regular file, it
// is renamed. Without a valid slot, all batches in the spool are delivered again.
func (r *recovery) openCursor() error {
	c := r.cursor
	var err error
	c.f, err = r.dir.open(cursorName, os.O_RDWR|os.O_CREATE)
	replaced := errors.Is(err, vfs.ErrNotRegular)
	if replaced {
		if err := r.dir.rename(cursorName, cursorName+corruptSuffix); err != nil {
			return err
		}
		c.f, err = r.dir.open(cursorName, os.O_RDWR|os.O_CREATE)
	}
	if err != nil {
		c.f = nil
		return err
	}
	blank, err := c.read()
	if err != nil {
		return err
	}
	// No slot is valid. A cursor that was never written is a new spool, and not damage.
	if c.state.gen == 0 {
		if !blank || replaced {
			r.queue.report(&spool.CorruptError{Segment: cursorName, Err: errCursor})
		}
		return c.reserve(cursorState{acked: c.state.acked, segment: c.state.segment})
	}
	return nil
}

// loadHeaders fills the queue with the usable segments, in order, and the files set aside. The
// numbers of all files, even unusable ones, are not used again: a file may be set aside under its
// number, and a person may rename it back.
func (r *recovery) loadHeaders() (err error) {
	q := r.queue
	if r.found, q.damagedFiles, err = findSegments(r.dir); err != nil {
		return err
	}
	q.lastID = r.cursor.state.segment
	for _, g := range slices.Concat(q.damagedFiles, r.found) {
		q.lastID = max(q.lastID, g.id)
	}
	r.found = slices.DeleteFunc(r.found, func(g *segment) bool {
		switch g.headerErr {
		case nil:
			q.segs = append(q.segs, g)
		case errTorn: // the process was killed while it created the segment, which never contained a batch
			q.undeleted = append(q.undeleted, g)
			return true
		}
		return false
	})
	return nil
}

// last returns the last usable segment, or nil if there is none.
func (r *recovery) last() *segment {
	if n := len(r.queue.segs); n > 0 {
		return r.queue.segs[n-1]
	}
	return nil
}

// findEnds sets the end of every segment, and r.next to the end of the spool.
func (r *recovery) findEnds() error {
	q := r.queue
	r.next = mark{seq: 1}
	for _, g := range q.segs {
		switch {
		case g.status != inQueue: // the file name contains the end
		// The next segment exists, so its beginning is the end of this one, and no frame must be
		// read.
		case g.exact:
			g.end = g.limit
		default:
			if err := r.scan(g); err != nil {
				return err
			}
		}
		// A parked segment may end after the segments that follow it, so all segments are
		// considered.
		r.next = r.next.later(g.end)
		if g == r.last() && g.damage != nil {
			// Skipping a number leaves a gap, which shows every later Open that batches are
			// missing.
			r.next.seq++
			r.next.rec += g.damage.Records
		}
	}
	return nil
}

// scan finds the end of g by reading the headers of its frames. It reads the last segment
// completely, because only that segment can have frames that a killed process did not complete;
// Next checks the frames of the others. A torn frame stays in the file, because readers stop at
// g.end.
func (r *recovery) scan(g *segment) error {
	var visit func(*handout) bool
	if g == r.last() {
		visit = verify
	}
	// Without a dictionary and a codec, readFrames registers no streams.
	_, err := g.readFrames(r.dir, &spool.Options{}, visit)
	if err == nil && g.damage != nil {
		r.queue.report(g.damage)
	}
	return err
}

// reject reports and sets aside the segments whose headers cannot be used. It also reports batches
// that the cursor counts but no segment contains, because the last segments were truncated or
// deleted. missing reports whether there are such batches.
func (r *recovery) reject() (missing bool) {
	last, n := r.last(), len(r.found)
	cutOff := r.cursor.state.cutOff(last, r.next)
	if last != nil && last.damage != nil {
		cutOff = nil // damage at the end of the last segment was already reported with its records
	}
	if cutOff != nil && (n == 0 || r.found[n-1].headerErr == nil) {
		r.queue.report(cutOff)
	}
	for i, b := range r.found {
		if b.headerErr == nil {
			continue
		}
		// Without its header, no frame of the file can be read: the header has the seed of all
		// checksums. The segments around it show how many records it had.
		e := &spool.CorruptError{Segment: b.name, Err: b.headerErr}
		if cutOff != nil && i == n-1 {
			e.Records = cutOff.Records
		} else if i > 0 && r.found[i-1].headerErr == nil && r.found[i-1].id+1 == b.id && b.exact {
			// Both neighbors exist, so the number of missing records is known.
			from := max(r.found[i-1].end.rec, r.queue.acked.rec)
			e.Records = max(b.limit.rec, from) - from
			if e.Records == 0 && b.headerErr == errTruncated {
				r.queue.undeleted = append(r.queue.undeleted, b) // creating the segment failed, so it never contained a batch
				continue
			}
		}
		r.queue.report(e)
		r.queue.setAside(b)
	}
	return cutOff != nil
}

// settle sets the marks of the queue, deletes acknowledged segments, and parks the segments that
// Options.Accepts refuses. It counts the records of the remaining segments as recovered.
func (r *recovery) settle() error {
	q := r.queue
	q.sweep()
	// The cursor may be before the first segment or, if segments were lost, after the last.
	i := slices.IndexFunc(q.segs, func(g *segment) bool { return g.status == inQueue })
	if i >= 0 {
		first := q.segs[i]
		if q.acked.seq <= first.first.seq {
			q.acked = first.first // earlier batches are lost
		}
		q.acked.rec = min(max(q.acked.rec, first.first.rec), first.end.rec)
	}
	r.next = r.next.later(q.acked)
	if i < 0 {
		q.acked = r.next
	}
	if err := r.park(); err != nil {
		return err
	}
	waiting := uint64(0)
	for _, g := range q.segs {
		// Parked records are recovered and pending, too, although Next does not return them.
		n := g.pending(g.settled(q.acked))
		q.count.Recovered += n
		if g.status != parked {
			waiting += n
		}
	}
	// Parked records are reported separately, because this process does not deliver them.
	r.reportParked()
	if waiting > 0 {
		r.queue.events.Post("recover", nil, waiting)
	}
	// Continue in the last segment if it is small and undamaged. Otherwise each restart of the
	// process would leave a file.
	if g := r.last(); g != nil && g.status == inQueue && g.version == formatVersion && g.damage == nil &&
		g.size == g.disk && g.end == r.next && g.size < q.opt.SegmentBytes/2 {
		q.active = g
	}
	return nil
}
