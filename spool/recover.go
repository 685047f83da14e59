package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vfs"
)

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// recover reads the directory into s, in these steps:
//
//	list     names, ascending; damaged files set aside earlier
//	cursor   how far batches were acknowledged
//	headers  one read per segment; a bad one is set aside
//	ends     a segment ends where the next begins; where the next is missing its
//	         frame headers are walked, and the last segment is read whole
//	settle   acknowledged segments are deleted, those in other forms parked
//
// Open calls it before anybody else knows s.
func (s *Spool) recover() error {
	names, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return err
	}
	if err := s.openCursor(); err != nil {
		return err
	}
	s.acked = s.cur.state.acked
	s.lastID = max(s.lastID, s.cur.state.segment)
	bad, err := s.loadHeaders(names)
	if err != nil {
		return err
	}
	if err := s.findEnds(); err != nil {
		return err
	}
	s.missTail(bad)
	for _, g := range bad {
		s.rejectHeader(g)
	}
	if err := s.settle(); err != nil {
		return err
	}
	slices.SortFunc(s.aside, func(a, b aside) int { return cmp.Compare(a.id, b.id) })
	s.pruneAside(keepAside)
	if s.tailMissed {
		s.noteEnd() // reported once
	}
	s.touch() // for the next sync: an earlier process may have had none
	return nil
}

// openCursor opens or makes the cursor file and reads it.
func (s *Spool) openCursor() error {
	f, err := s.fs.OpenFile(s.path(cursorName), os.O_RDWR|os.O_CREATE, 0o600)
	replaced := errors.Is(err, vfs.ErrNotRegular)
	if replaced {
		if err := s.fs.Rename(s.path(cursorName), s.path(cursorName+corruptSuffix)); err != nil {
			return err
		}
		f, err = s.fs.OpenFile(s.path(cursorName), os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err != nil {
		return err
	}
	s.cur.f = f
	state, blank, err := readCursor(f)
	if err != nil {
		return err
	}
	s.cur.state = state
	s.cur.readSettled(f)
	if state.gen == 0 {
		if !blank || replaced {
			s.report(&CorruptError{Segment: cursorName, Err: errCursor})
		}
		// Both slots, so that no later write needs room on a full disk.
		for range 2 {
			if err := s.cur.write(state.acked, state.segment, mark{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// badSegment is a segment whose header cannot be used.
type badSegment struct {
	name  string
	id    uint64
	disk  int64
	cause error
	lost  uint64
}

// loadHeaders fills s.segs, in order, and s.aside. It returns the segments that
// cannot be used.
func (s *Spool) loadHeaders(names []string) (bad []*badSegment, err error) {
	var files []segment
	for _, name := range names {
		if g, ok := segmentFile(name); ok {
			files = append(files, g)
			s.lastID = max(s.lastID, g.id)
		} else if id, ok := corruptID(name); ok {
			s.lastID = max(s.lastID, id)
			size, err := s.fs.Size(s.path(name))
			if err != nil {
				return nil, err
			}
			s.aside = append(s.aside, aside{name: name, id: id, disk: size})
		}
	}
	slices.SortFunc(files, byPlace) // longer numbers sort wrongly as names
	var prev *segment
	for i := range files {
		g := &files[i]
		err := g.load(s.fs, s.dir)
		if err != nil && !damaged(err) && !errors.Is(err, errUnreadable) {
			return nil, err
		}
		if err == nil && g.lane == inLine {
			err = outOfOrder(prev, g)
		}
		switch {
		case err == nil:
			s.segs = append(s.segs, g)
			if g.lane == inLine {
				prev = g
			}
		case err == errTruncated && g.lane == inLine && i == len(files)-1:
			s.remove(g.name) // killed while making it: it never held a batch
		default:
			bad = append(bad, &badSegment{name: g.name, id: g.id, disk: g.disk, cause: err})
		}
	}
	return bad, nil
}

// outOfOrder returns errOrder if g cannot follow prev, which may be nil.
func outOfOrder(prev, g *segment) error {
	if prev != nil && (g.firstSeq < prev.firstSeq || g.firstRec < prev.firstRec) {
		return errOrder
	}
	return nil
}

// load reads the header of the segment, whose name, number and lane are set. On error it
// sets at most the size on disk.
func (g *segment) load(fsys vfs.FS, dir string) error {
	f, err := openIn(fsys, dir, g.name)
	if errors.Is(err, vfs.ErrNotRegular) {
		return errNotPlain
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if g.disk, err = f.Size(); err != nil {
		return err
	}
	h, err := readSegmentHeader(f, g.disk)
	if err != nil && !damaged(err) {
		err = fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if err != nil {
		return err
	}
	if h.id != g.id || g.lane != inLine && (g.from.seq < h.firstSeq || g.from.rec < h.firstRec) {
		return errMisnamed
	}
	g.segmentHeader, g.size = h, min(g.disk, maxSegmentFile)
	return nil
}

// findEnds sets the end of every segment and s.next.
func (s *Spool) findEnds() error {
	s.next = mark{seq: 1}
	for i, g := range s.segs {
		last := i == len(s.segs)-1
		if g.lane != inLine {
			if last && g.damage != nil {
				s.next.seq = max(s.next.seq, g.end.seq+1) // as mendTail
			}
			continue // the name has the position
		}
		if !last && s.segs[i+1].id == g.id+1 {
			g.end = s.segs[i+1].start()
			continue
		}
		var before mark
		if !last {
			before = s.segs[i+1].start()
		}
		torn, err := s.scan(g, before, last)
		if err != nil {
			return err
		}
		if last {
			s.next.seq, s.next.rec = max(s.next.seq, g.end.seq), max(s.next.rec, g.end.rec)
			s.mendTail(g, torn)
		} else if g.end.seq > before.seq || g.end.rec > before.rec {
			g.end = before // the next segment has the rest again
		}
	}
	for _, g := range s.segs {
		s.next.seq, s.next.rec = max(s.next.seq, g.end.seq), max(s.next.rec, g.end.rec)
	}
	return nil
}

// scan finds the end of g by walking its frames. The next segment begins at before, which is zero
// if there is none. With whole it also checks their content. It records damage in g, with the
// number of records after it according to the frame headers. It reports whether the segment ends in
// a torn frame.
func (s *Spool) scan(g *segment, before mark, whole bool) (torn bool, err error) {
	f, err := openIn(s.fs, s.dir, g.name)
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
		s.report(damage)
		return false, nil
	}
	if g.size < g.disk {
		g.damage = &CorruptError{Segment: g.name, Offset: w.off, Err: errGrown}
		s.report(g.damage)
		return false, nil
	}
	g.size = w.off
	return torn, nil
}

// missTail reports batches at the end of the spool that are in the cursor and in no segment: the
// last segments were truncated or deleted. bad are the segments whose damage is reported anyway.
func (s *Spool) missTail(bad []*badSegment) {
	n := len(s.segs)
	batches, records := s.cur.state.missing(s.next)
	if batches == 0 || n > 0 && s.segs[n-1].damage != nil {
		return
	}
	if k := len(bad); k > 0 && (n == 0 || bad[k-1].id > s.segs[n-1].id) {
		bad[k-1].lost = records
	} else {
		var tail *segment
		if n > 0 {
			tail = s.segs[n-1]
		}
		s.report(s.cur.state.cutOff(tail, records))
	}
	s.tailMissed = true
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

// cause turns the failure of a read into one of the causes of a CorruptError.
func cause(err error) error {
	if damaged(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnreadable, err)
}

// mendTail prepares the last segment: a torn frame is removed, and batch numbers continue after the
// damage, so that the gap shows every later Open that batches are missing.
func (s *Spool) mendTail(g *segment, torn bool) {
	if g.damage != nil {
		s.next.seq++
		s.next.rec += g.damage.Records
		return
	}
	if !torn {
		return
	}
	s.count.tornFrames++
	f, err := s.fs.OpenFile(s.path(g.name), os.O_RDWR, 0)
	if err != nil {
		return // reading stops at g.end anyway
	}
	defer f.Close()
	if f.Truncate(g.size) == nil {
		g.disk = g.size
	}
}

// rejectHeader reports and sets aside a segment whose header cannot be used. How
// much it held is known where both neighbours are there.
func (s *Spool) rejectHeader(b *badSegment) {
	i, _ := slices.BinarySearchFunc(s.segs, b.id, func(g *segment, id uint64) int { return cmp.Compare(g.id, id) })
	if b.cause != errNotPlain && i > 0 && i < len(s.segs) && s.segs[i-1].id == b.id-1 && s.segs[i].id == b.id+1 {
		from := max(s.segs[i-1].end.rec, s.acked.rec)
		b.lost = max(s.segs[i].firstRec, from) - from
		if b.lost == 0 && b.cause == errTruncated {
			s.remove(b.name) // making it failed, and it never held a batch
			return
		}
	}
	s.report(&CorruptError{Segment: b.name, Records: b.lost, Err: b.cause})
	s.setAside(b.name, b.id, b.disk)
}

// settle places the marks, deletes acknowledged segments, parks those in other forms, and
// counts the rest.
func (s *Spool) settle() error {
	for _, g := range s.segs {
		if g.lane == parked {
			g.lane = late // so that it may be swept; park decides
		}
	}
	s.sweep()
	first := s.firstInLine()
	if first != nil {
		if s.acked.seq <= first.firstSeq {
			s.acked = first.start() // earlier batches are gone
		}
		s.acked.rec = min(max(s.acked.rec, first.firstRec), first.end.rec)
	}
	s.next.seq = max(s.next.seq, s.acked.seq)
	s.next.rec = max(s.next.rec, s.acked.rec)
	if first == nil {
		s.acked = s.next
	}
	if err := s.park(); err != nil {
		return err
	}
	s.read = s.firstLocked()
	waiting := uint64(0)
	for _, g := range s.segs {
		n := g.pending(g.settled(s.acked))
		s.count.recovered += n
		if g.lane != parked {
			waiting += n
		}
	}
	s.tellParked()
	if n := waiting; n > 0 {
		s.events.Post(batch.Event{Output: s.opt.Name, Op: "recover", Count: n})
	}
	// Continue in the last segment while it is small. Otherwise a process that is restarted
	// repeatedly would leave a file each time.
	if n := len(s.segs); n > 0 {
		g := s.segs[n-1]
		if g.lane == inLine && g.version == formatVersion && g.damage == nil && g.size == g.disk && g.end == s.next && g.size < s.opt.SegmentBytes/2 {
			s.w.seg, s.active = g, g
		}
	}
	return nil
}

// firstInLine returns the first segment in line, nil if there is none.
func (s *Spool) firstInLine() *segment {
	for _, g := range s.segs {
		if g.lane == inLine {
			return g
		}
	}
	return nil
}

// openIn opens a file of dir for reading.
func openIn(fsys vfs.FS, dir, name string) (vfs.File, error) {
	return fsys.OpenFile(filepath.Join(dir, name), os.O_RDONLY, 0)
}
