package spool

import (
	"cmp"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/forebay-log/forebay/internal/vfs"
)

// recovery reads the directory into the queue and the cursor, in these steps:
//
//	cursor   how far batches were acknowledged
//	headers  one read per segment; a bad one is set aside
//	ends     a segment ends where the next begins; where the next is missing its
//	         frame headers are walked, and the last segment is read whole
//	settle   acknowledged segments are deleted, those in other forms parked
//
// No other goroutine uses the queue yet, so its lock is not needed.
type recovery struct {
	queue  *queue
	dir    *directory
	events *reporter
	cursor *cursor
	torn   uint64 // frames
}

func (r *recovery) run() error {
	q := r.queue
	if err := r.openCursor(); err != nil {
		return err
	}
	q.acked = r.cursor.state.acked
	bad, err := r.loadHeaders()
	if err != nil {
		return err
	}
	if err := r.findEnds(); err != nil {
		return err
	}
	missing := r.missTail(bad)
	for _, b := range bad {
		r.rejectHeader(b)
	}
	if err := r.settle(); err != nil {
		return err
	}
	q.pruneAside()
	if missing {
		r.cursor.noteEnd(q.position()) // reported once
	}
	r.dir.touch() // for the next sync: an earlier process may have had none
	return nil
}

// openCursor opens or makes the cursor file and reads it.
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
	var blank bool
	if c.state, blank, err = readCursor(c.f); err != nil {
		return err
	}
	c.readSettled(c.f)
	if c.state.gen == 0 {
		if !blank || replaced {
			r.events.corrupt(&CorruptError{Segment: cursorName, Err: errCursor})
		}
		return c.reserve(cursorState{acked: c.state.acked, segment: c.state.segment})
	}
	return nil
}

// badSegment is a segment whose header cannot be used.
type badSegment struct {
	foundSegment
	lost uint64 // records
}

// loadHeaders fills the queue with the segments, in order, and the files set aside. It returns the
// segments that cannot be used.
func (r *recovery) loadHeaders() (bad []*badSegment, err error) {
	q := r.queue
	found, aside, err := findSegments(r.dir.fs, r.dir.path)
	if err != nil {
		return nil, err
	}
	q.aside, q.lastID = aside, r.cursor.state.segment
	for _, a := range aside {
		q.lastID = max(q.lastID, a.id)
	}
	for i, f := range found {
		q.lastID = max(q.lastID, f.id)
		switch {
		case f.bad == nil:
			q.segs = append(q.segs, f.segment)
		case f.bad == errTruncated && f.lane == inLine && i == len(found)-1:
			r.dir.remove(f.name) // killed while making it: it never held a batch
		default:
			bad = append(bad, &badSegment{foundSegment: f})
		}
	}
	return bad, nil
}

// findEnds sets the end of every segment and q.next.
func (r *recovery) findEnds() error {
	q := r.queue
	q.next = mark{seq: 1}
	for i, g := range q.segs {
		last := i == len(q.segs)-1
		if g.lane != inLine {
			if last && g.damage != nil {
				q.next.seq = max(q.next.seq, g.end.seq+1) // as mendTail
			}
			continue // the name has the position
		}
		if !last && q.segs[i+1].id == g.id+1 {
			g.end = q.segs[i+1].start()
			continue
		}
		var before mark
		if !last {
			before = q.segs[i+1].start()
		}
		torn, err := r.scan(g, before, last)
		if err != nil {
			return err
		}
		if last {
			q.next.seq, q.next.rec = max(q.next.seq, g.end.seq), max(q.next.rec, g.end.rec)
			r.mendTail(g, torn)
		} else if g.end.seq > before.seq || g.end.rec > before.rec {
			g.end = before // the next segment has the rest again
		}
	}
	for _, g := range q.segs {
		q.next.seq, q.next.rec = max(q.next.seq, g.end.seq), max(q.next.rec, g.end.rec)
	}
	return nil
}

// scan finds the end of g by walking its frames. The next segment begins at before, which is zero
// if there is none. With whole it also checks their content. It records damage in g, with the
// number of records after it according to the frame headers. It reports whether the segment ends in
// a torn frame.
func (r *recovery) scan(g *segment, before mark, whole bool) (torn bool, err error) {
	f, err := r.dir.open(g.name, os.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer f.Close()
	w := startFrames(f, g.size, &g.segmentHeader)
	w.before = before
	var check func(*frameHeader) error
	if whole {
		scratch := make([]byte, 64<<10)
		check = func(h *frameHeader) error { return w.verify(h, scratch) }
	}
	end, torn, damage := scanFrames(&w, check)
	g.end = end
	if damage != nil {
		damage.Segment = g.name
		g.damage = damage
		r.events.corrupt(damage)
		return false, nil
	}
	if g.size < g.disk {
		g.damage = &CorruptError{Segment: g.name, Offset: w.off, Err: errGrown}
		r.events.corrupt(g.damage)
		return false, nil
	}
	g.size = w.off
	return torn, nil
}

// missTail reports batches at the end of the spool that are in the cursor and in no segment: the
// last segments were truncated or deleted. bad are the segments whose damage is reported anyway.
func (r *recovery) missTail(bad []*badSegment) (missing bool) {
	q, c := r.queue, &r.cursor.state
	var tail *segment
	if n := len(q.segs); n > 0 {
		tail = q.segs[n-1]
	}
	batches, records := c.missing(q.next)
	if batches == 0 || tail != nil && tail.damage != nil {
		return false
	}
	if k := len(bad); k > 0 && (tail == nil || bad[k-1].id > tail.id) {
		bad[k-1].lost = records
	} else {
		r.events.corrupt(c.cutOff(tail, records))
	}
	return true
}

// scanFrames walks to the end of the readable frames and returns it. check, if not nil, reads a
// frame and steps over it. end is before the first damaged frame. The walk continues after it to
// count the lost records.
func scanFrames(w *frames, check func(*frameHeader) error) (end mark, torn bool, damage *CorruptError) {
	var h frameHeader
	for {
		err := w.header(&h)
		if err == nil && check != nil && damage == nil {
			off := w.off
			if err = check(&h); err != nil {
				end = mark{seq: w.seq, rec: w.rec}
				damage = &CorruptError{Offset: off, Err: cause(err)}
				w.skip(&h)
			}
			continue
		}
		if err == nil {
			w.skip(&h)
			continue
		}
		if damage != nil {
			damage.Records = w.rec - end.rec
			return end, false, damage
		}
		end = mark{seq: w.seq, rec: w.rec}
		if err == io.EOF || err == errTorn {
			return end, err == errTorn, nil
		}
		return end, false, &CorruptError{Offset: w.off, Err: cause(err)}
	}
}

// mendTail prepares the last segment: a torn frame is removed, and batch numbers continue after the
// damage, so that the gap shows every later Open that batches are missing.
func (r *recovery) mendTail(g *segment, torn bool) {
	q := r.queue
	if g.damage != nil {
		q.next.seq++
		q.next.rec += g.damage.Records
		return
	}
	if !torn {
		return
	}
	r.torn++
	f, err := r.dir.open(g.name, os.O_RDWR)
	if err != nil {
		return // reading stops at g.end anyway
	}
	defer f.Close()
	if f.Truncate(g.size) == nil {
		g.disk = g.size
	}
}

// rejectHeader reports and sets aside a segment whose header cannot be used. The number of its
// records is known where both neighbours are there.
func (r *recovery) rejectHeader(b *badSegment) {
	segs := r.queue.segs
	i, _ := slices.BinarySearchFunc(segs, b.id, func(g *segment, id uint64) int { return cmp.Compare(g.id, id) })
	if b.bad != errNotPlain && i > 0 && i < len(segs) && segs[i-1].id == b.id-1 && segs[i].id == b.id+1 {
		from := max(segs[i-1].end.rec, r.queue.acked.rec)
		b.lost = max(segs[i].firstRec, from) - from
		if b.lost == 0 && b.bad == errTruncated {
			r.dir.remove(b.name) // making it failed, and it never held a batch
			return
		}
	}
	r.events.corrupt(&CorruptError{Segment: b.name, Records: b.lost, Err: b.bad})
	r.queue.setAside(b.name, b.id, b.disk)
}

// settle places the marks, deletes acknowledged segments, parks those in other forms, and
// counts the rest.
func (r *recovery) settle() error {
	q := r.queue
	for _, g := range q.segs {
		if g.lane == parked {
			g.lane = late // so that it may be swept; park decides
		}
	}
	q.sweep()
	i := slices.IndexFunc(q.segs, func(g *segment) bool { return g.lane == inLine })
	if i >= 0 {
		first := q.segs[i]
		if q.acked.seq <= first.firstSeq {
			q.acked = first.start() // earlier batches are gone
		}
		q.acked.rec = min(max(q.acked.rec, first.firstRec), first.end.rec)
	}
	q.next.seq = max(q.next.seq, q.acked.seq)
	q.next.rec = max(q.next.rec, q.acked.rec)
	if i < 0 {
		q.acked = q.next
	}
	if err := r.park(); err != nil {
		return err
	}
	q.rewind()
	waiting := uint64(0)
	for _, g := range q.segs {
		n := g.pending(g.settled(q.acked))
		q.count.recovered += n
		if g.lane != parked {
			waiting += n
		}
	}
	r.reportParked()
	if waiting > 0 {
		r.events.post("recover", nil, waiting)
	}
	// Continue in the last segment while it is small. Otherwise a process that is restarted
	// repeatedly would leave a file each time.
	if n := len(q.segs); n > 0 {
		g := q.segs[n-1]
		if g.lane == inLine && g.version == formatVersion && g.damage == nil && g.size == g.disk && g.end == q.next && g.size < q.opt.SegmentBytes/2 {
			q.active = g
		}
	}
	return nil
}
