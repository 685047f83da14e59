package diskqueue

import (
	"errors"
	"fmt"
	"strings"

	"github.com/forebay-log/forebay/spool"
)

// A status determines how the batches of a segment are settled, and whether Next returns them.
//
//	         refused by                accepted by
//	inQueue ────────────▶ parked ◀───────────────▶ unparked ──all settled──▶ deleted
//	         Accepts               refused again
//
// The status of a damaged file becomes aside, which the picture omits, once its batches before the
// damage are settled.
//
// Only Open changes the status of a segment in the queue. The cursor stores one mark up to which
// all segments with the status inQueue are settled. Each parked or unparked segment has a separate
// mark in its file name, so that the cursor can move past that segment.
type status uint8

const (
	inQueue  status = iota
	parked          // Options.Accepts refuses the form: Next does not return the batches
	unparked        // parked by an earlier Open, accepted by this one: returned in the original order
	aside           // damaged and set aside: it is not read again, but kept for a person to examine
)

const (
	parkedSuffix  = ".parked"
	damagedSuffix = ".damaged" // precedes parkedSuffix if the rest of the file is damaged
)

// parkedName returns the file name of the parked segment g, such as
//
//	00000006.seg.17-1200.21-1450.parked
//
// The name contains the mark settled, here batch 17 and record 1200, before which all batches are
// settled. It also contains the end of g. For other segments, the beginning of the next segment
// shows the end, but here the next segment may be deleted before g.
func (g *segment) parkedName(settled mark) string {
	name := fmt.Sprintf("%s.%d-%d.%d-%d", segmentName(g.id), settled.seq, settled.rec, g.end.seq, g.end.rec)
	if g.damage != nil {
		name += damagedSuffix
	}
	return name + parkedSuffix
}

// parseParked sets the fields of g that the file name contains. rest is the part of the name after
// the segment's number. If no parked segment has such a name, it returns false.
func (g *segment) parseParked(rest string) bool {
	rest, ok := strings.CutSuffix(rest, parkedSuffix)
	if !ok {
		return false
	}
	rest, broken := strings.CutSuffix(rest, damagedSuffix)
	if broken {
		g.damage = &spool.CorruptError{Segment: g.name, Err: errFrame}
	}
	var to, end mark
	_, err := fmt.Sscanf(rest, ".%d-%d.%d-%d", &to.seq, &to.rec, &end.seq, &end.rec)
	g.status, g.settledTo, g.end = parked, to, end
	return err == nil && g.parkedName(to) == g.name && end.later(to) == end && end.valid()
}

// settled returns the mark before which all batches of g are settled. acked is that mark for
// segments with the status inQueue.
func (g *segment) settled(acked mark) mark {
	if g.status == inQueue {
		return acked
	}
	return g.settledTo
}

// park sets the status of every segment. It renames the files of the segments that it parks, and
// syncs the names before the cursor moves past them.
func (r *recovery) park() error {
	q := r.queue
	accepted := map[form]bool{} // so that Accepts is called once for each form
	accepts := func(f form) bool {
		ok, asked := accepted[f]
		if !asked {
			ok = q.opt.Accepts == nil || q.opt.Accepts(f.contentType, f.schema)
			accepted[f] = ok
		}
		return ok
	}
	renamed := false
	end := mark{} // highest end of the segments so far
	for i, g := range q.segs {
		switch {
		case g.status == inQueue && !g.empty() && !accepts(g.form):
			settled := g.first.later(q.acked)
			settled.rec = min(settled.rec, g.end.rec)
			// The file name must contain the mark, because the cursor will move past this segment.
			name := g.parkedName(settled)
			if err := r.dir.rename(g.name, name); err != nil {
				return fmt.Errorf("cannot park %s: %w", g.name, err)
			}
			renamed = true
			g.status, g.name, g.settledTo = parked, name, settled
		case g.status != inQueue:
			// An older version of this program does not see parked files and may have used their
			// numbers for newer batches. A file with such numbers stays parked until the newer
			// batches are settled.
			g.status = unparked
			overlaps := g.first.seq < end.seq || i+1 < len(q.segs) && q.segs[i+1].first.seq < g.end.seq
			if overlaps || !accepts(g.form) {
				g.status = parked
			}
		}
		if g.end.seq > end.seq {
			end = g.end
		}
	}
	// The new names must be on stable storage before the cursor: if the cursor survived a loss of
	// power without them, the segments would count as settled.
	if renamed {
		return r.dir.fs.SyncDir(r.dir.path)
	}
	return nil
}

// reportParked reports the parked records, with one event for each content type and schema, in the
// order of the segments. Without this event, an operator would not notice them.
func (r *recovery) reportParked() {
	var order []form
	records, files := map[form]uint64{}, map[form]int{}
	for _, g := range r.queue.segs {
		if g.status != parked {
			continue
		}
		f := g.form
		if files[f] == 0 {
			order = append(order, f)
		}
		files[f]++
		records[f] += g.pending(g.settledTo)
	}
	for _, f := range order {
		form := "without a type"
		if f.contentType != "" {
			form = fmt.Sprintf("of type %q", f.contentType)
		}
		if f.schema != 0 {
			form += fmt.Sprintf(", version %d", f.schema)
		}
		r.queue.events.Post("parked", fmt.Errorf(
			"spool: %d records %s in %d files of %s are kept: this destination does not accept them; open the spool with one that does, or run forebay spool replay",
			records[f], form, files[f], r.dir.path), records[f])
	}
}

// storeUnparked stores in the file names how far unparked segments are settled. If a rename fails,
// the next call repeats it.
func (r *reader) storeUnparked() (err error) {
	for _, g := range r.queue.segs {
		if g.status != unparked {
			continue
		}
		name := g.parkedName(g.settledTo)
		if name == g.name {
			continue
		}
		e := r.dir.rename(g.name, name)
		if e != nil && r.queue.reading == g {
			r.closeFile() // closed before, because some systems do not rename open files
			e = r.dir.rename(g.name, name)
		}
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		r.queue.mu.Lock()
		g.name = name
		r.queue.mu.Unlock()
	}
	return err
}
