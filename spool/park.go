package spool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A lane determines how the batches of a segment are settled, and whether Next returns them.
//
//	inLine ──Open that does not accept the form──▶ parked ⇄ late ──all settled──▶ deleted
//	                                                 Open
//
// The cursor settles segments in line. For the others, the name of each file has the position up to
// which it is settled.
type lane uint8

const (
	inLine lane = iota
	parked      // Options.Accepts refuses the form: not handed out
	late        // parked by an earlier Open, accepted now: handed out in its old place
)

const (
	parkedSuffix  = ".parked"
	damagedSuffix = ".damaged" // before parkedSuffix: the file is damaged after its batches
)

// parkedName returns the file name of the parked segment g whose batches before from are settled.
// The name also has the end of g, because the segments around it may be deleted.
func (g *segment) parkedName(from mark) string {
	name := fmt.Sprintf("%s.%d-%d.%d-%d", segmentName(g.id), from.seq, from.rec, g.end.seq, g.end.rec)
	if g.damage != nil {
		name += damagedSuffix
	}
	return name + parkedSuffix
}

// parseParked reads the name of a parked segment into g.
func (g *segment) parseParked() bool {
	rest, ok := strings.CutSuffix(g.name, parkedSuffix)
	if !ok {
		return false
	}
	if rest, ok = strings.CutSuffix(rest, damagedSuffix); ok {
		g.damage = &CorruptError{Segment: g.name, Err: errFrame}
	}
	at := strings.Index(rest, segmentSuffix+".")
	if at < 0 {
		return false
	}
	if g.id, ok = segmentID(rest[:at+len(segmentSuffix)]); !ok {
		return false
	}
	var from, end mark
	_, err := fmt.Sscanf(rest[at+len(segmentSuffix):], ".%d-%d.%d-%d", &from.seq, &from.rec, &end.seq, &end.rec)
	g.lane, g.from, g.named, g.end = parked, from, from, end
	return err == nil && g.parkedName(from) == g.name && from.seq <= end.seq && from.rec <= end.rec &&
		end.seq <= maxNumber && end.rec <= maxNumber
}

// settled returns the mark up to which the batches of g are settled. acked is the mark of the
// segments in line.
func (g *segment) settled(acked mark) mark {
	if g.lane == inLine {
		return acked
	}
	return g.from
}

// noted is settled as stored on disk.
func (g *segment) noted(acked mark) mark {
	if g.lane == inLine {
		return acked
	}
	return g.named
}

// park decides about the lane of every segment. It renames the files of the segments that
// it parks, so that the cursor may pass them, and puts the names on stable storage.
func (r *recovery) park() error {
	q := r.queue
	known := map[form]bool{}
	accepts := func(f form) bool {
		ok, asked := known[f]
		if !asked {
			ok = q.opt.Accepts == nil || q.opt.Accepts(f.contentType, f.schema)
			known[f] = ok
		}
		return ok
	}
	renamed := false
	end := mark{}
	for i, g := range q.segs {
		switch {
		case g.lane == inLine && !g.empty() && !accepts(g.form()):
			from := mark{seq: max(g.firstSeq, q.acked.seq), rec: min(max(g.firstRec, q.acked.rec), g.end.rec)}
			name := g.parkedName(from)
			if err := r.dir.rename(g.name, name); err != nil {
				return fmt.Errorf("cannot park %s: %w", g.name, err)
			}
			renamed = true
			g.lane, g.name, g.from, g.named = parked, name, from, from
		case g.lane != inLine:
			// An older version of this program does not see parked files and may have
			// given their numbers out again. They wait until those batches are gone.
			overlaps := g.firstSeq < end.seq || i+1 < len(q.segs) && q.segs[i+1].firstSeq < g.end.seq
			if overlaps || !accepts(g.form()) {
				g.lane = parked
			}
		}
		if g.end.seq > end.seq {
			end = g.end
		}
	}
	if renamed {
		return r.dir.fs.SyncDir(r.dir.path)
	}
	return nil
}

// reportParked reports the parked records, once for each form.
func (r *recovery) reportParked() {
	var order []form
	records, files := map[form]uint64{}, map[form]int{}
	for _, g := range r.queue.segs {
		if g.lane != parked {
			continue
		}
		f := g.form()
		if files[f] == 0 {
			order = append(order, f)
		}
		files[f]++
		records[f] += g.pending(g.from)
	}
	for _, f := range order {
		form := "without a type"
		if f.contentType != "" {
			form = fmt.Sprintf("of type %q", f.contentType)
		}
		if f.schema != 0 {
			form += fmt.Sprintf(", version %d", f.schema)
		}
		r.events.post("parked", fmt.Errorf(
			"spool: %d records %s in %d files of %s are kept: this destination does not accept them; open the spool with one that does, or run forebay spool replay",
			records[f], form, files[f], r.dir.path), records[f])
	}
}

// noteLate puts on disk how far late segments are settled: into their names.
func (r *reader) noteLate() (err error) {
	r.moved = slices.DeleteFunc(r.moved, func(g *segment) bool {
		e := r.noteName(g)
		err = errors.Join(err, e)
		return e == nil
	})
	return err
}

func (r *reader) noteName(g *segment) error {
	q := r.queue
	q.mu.Lock()
	now, should, settled := g.name, g.parkedName(g.from), g.from
	q.mu.Unlock()
	if now == should {
		return nil
	}
	err := r.dir.rename(now, should)
	if err != nil && r.seg == g {
		r.closeFile() // some systems rename no open file
		err = r.dir.rename(now, should)
	}
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	g.name, g.named = should, settled
	return nil
}
