package spool

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vfs"
)

// SegmentInfo describes one file of a spool.
type SegmentInfo struct {
	Name        string // file name
	ContentType string
	Schema      uint32
	Begun       time.Time // when the segment was made
	Bytes       int64
	Batches     uint64
	Records     uint64 // without gap markers
	Pending     uint64 // of Records, those not acknowledged
	First, Last uint64 // batch numbers; Last < First: none
	// Torn: the file ends inside a frame, because an Append is in progress or was killed.
	// This is not damage.
	Torn bool
	// Damage describes the damage of the file. The counts above are of the batches before it.
	Damage *CorruptError
	// Parked: the segment is parked, because the process that opened the spool last did
	// not accept the form of its records; see [Options.Accepts].
	Parked bool
	// Aside: the file was set aside for damage by an earlier process. Nothing
	// else is known of it.
	Aside bool
}

// Listing describes a spool directory.
type Listing struct {
	Files   []SegmentInfo // oldest first, files set aside last
	Acked   uint64        // number of the last batch acknowledged
	Bytes   int64         // of all files
	Pending uint64        // records that are not acknowledged
	Damaged int           // files that are damaged or set aside
}

// List describes the spool directory dir, from the headers of its frames. With verify it also reads
// and checks every byte, one batch in memory at a time. It writes nothing and takes no lock: a
// process may be using the spool.
func List(dir string, verify bool) (*Listing, error) { return inspect(vfs.OS, dir, verify) }

func inspect(fsys vfs.FS, dir string, full bool) (*Listing, error) {
	v, err := openView(fsys, dir)
	if err != nil {
		return nil, err
	}
	l := &Listing{Acked: v.acked.seq - 1}
	for i := range v.segs {
		in, err := v.inspect(i, full)
		if err != nil {
			return nil, err
		}
		if in != nil {
			l.Files = append(l.Files, *in)
			l.Bytes += in.Bytes
		}
	}
	if d := v.missing(); d != nil {
		if n := len(l.Files); n > 0 && l.Files[n-1].Name == d.Segment {
			if f := &l.Files[n-1]; f.Damage == nil {
				f.Damage, f.Torn = d, false
			}
		} else {
			l.Files = append(l.Files, SegmentInfo{Name: d.Segment, Damage: d})
		}
	}
	for _, a := range v.aside {
		l.Files = append(l.Files, SegmentInfo{Name: a.name, Bytes: a.disk, Aside: true})
		l.Bytes += a.disk
	}
	for i := range l.Files {
		f := &l.Files[i]
		l.Pending += f.Pending
		if f.Damage != nil || f.Aside {
			l.Damaged++
		}
	}
	return l, nil
}

// view is a spool directory seen from outside: read only, without the lock.
// Files may vanish and the last one may grow while it is used.
type view struct {
	fs    vfs.FS
	dir   string
	acked mark
	cur   cursorState
	segs  []viewSegment
	aside []aside
}

// viewSegment is one segment of a view.
type viewSegment struct {
	foundSegment
	limit mark // where the next segment there is begins; its frames end before
	whole bool // that one is the very next: frames must reach up to it
}

// openView reads names, cursor and headers.
func openView(fsys vfs.FS, dir string) (*view, error) {
	v := &view{fs: fsys, dir: dir, acked: mark{seq: 1}}
	if f, err := openIn(fsys, dir, cursorName); err == nil {
		if c, _, err := readCursor(f); err == nil {
			v.acked, v.cur = c.acked, c
		}
		_ = f.Close()
	} else if !isNotExist(err) && !errors.Is(err, vfs.ErrNotRegular) {
		return nil, fmt.Errorf("spool: cannot read %s: %w", dir, err)
	}
	found, aside, err := findSegments(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("spool: cannot list %s: %w", dir, err)
	}
	v.aside = aside
	for _, f := range found {
		v.segs = append(v.segs, viewSegment{foundSegment: f})
	}
	limit, before := mark{seq: maxNumber, rec: maxNumber}, uint64(0)
	for i := len(v.segs) - 1; i >= 0; i-- {
		g := &v.segs[i]
		g.limit, g.whole = limit, before == g.id+1
		if g.lane != inLine { // the name has the range
			g.limit, g.whole = g.end, true
			if g.damage != nil {
				g.limit, g.whole = mark{seq: maxNumber, rec: maxNumber}, false
			}
		}
		if before = 0; g.bad == nil {
			limit, before = g.start(), g.id
		}
	}
	return v, nil
}

// missing returns the error for batches that are in the cursor and in no segment, once all segments
// have been read. It returns nil if no batch is missing, and while a process changes the spool.
func (v *view) missing() *CorruptError {
	end := v.acked
	for i := range v.segs {
		if g := &v.segs[i]; g.bad == nil {
			end = g.end
		}
	}
	_, records := v.cur.missing(end)
	if records == 0 {
		return nil
	}
	f, err := openIn(v.fs, v.dir, cursorName)
	if err != nil {
		return nil
	}
	defer f.Close()
	if c, _, err := readCursor(f); err != nil || c.gen != v.cur.gen {
		return nil
	}
	var last *segment
	if n := len(v.segs); n > 0 {
		last = v.segs[n-1].segment
	}
	return v.cur.cutOff(last, records)
}

// inspect describes segment i. It returns nil if the file has vanished.
func (v *view) inspect(i int, full bool) (*SegmentInfo, error) {
	g := &v.segs[i]
	in := &SegmentInfo{
		Name: g.name, ContentType: g.contentType, Schema: g.schema, Bytes: g.disk,
		Begun: time.Unix(0, g.created), First: g.firstSeq, Last: g.firstSeq - 1, Parked: g.lane != inLine,
	}
	var s stored
	check := func(r *segmentReader) error { _, err := r.next(&s); return err }
	if !full {
		check = nil
	}
	found, err := v.read(i, &Options{}, check)
	if err != nil || found.gone {
		return nil, err
	}
	in.Torn, in.Damage = found.torn, found.damage
	if g.bad != nil {
		in.First, in.Last, in.Begun = 0, 0, time.Time{}
		return in, nil
	}
	in.Batches, in.Records, in.Last = g.end.seq-g.firstSeq, g.end.rec-g.firstRec, g.end.seq-1
	if from := g.settled(v.acked); !g.done(from) {
		in.Pending = g.pending(from)
	}
	return in, nil
}

// condition is the result of reading a segment.
type condition struct {
	torn   bool          // the file ends inside a frame, which is no damage
	gone   bool          // there is no file any more
	damage *CorruptError // nil: none
}

// read walks the frames of segment i and sets its end. For each frame it calls check, unless that is
// nil, to read the frame and step to the next.
func (v *view) read(i int, o *Options, check func(*segmentReader) error) (c condition, err error) {
	g, last := &v.segs[i], i == len(v.segs)-1
	switch {
	case g.bad == errTruncated && last:
		return condition{torn: true}, nil
	case g.bad != nil:
		return condition{damage: &CorruptError{Segment: g.name, Err: g.bad}}, nil
	}
	var r segmentReader
	if err := r.open(v.fs, v.dir, g.name, &g.segmentHeader, g.size, o); err != nil {
		if isNotExist(err) { // it was acknowledged and removed since
			return condition{gone: true}, nil
		}
		return c, fmt.Errorf("spool: cannot read %s: %w", g.name, err)
	}
	defer r.close()
	r.frames.before = g.limit
	var whole func(*frameHeader) error
	if check != nil {
		whole = func(*frameHeader) error { return check(&r) }
	}
	end, torn, damage := scanFrames(&r.frames, whole)
	if end.seq >= g.limit.seq {
		end = mark{seq: g.limit.seq, rec: min(end.rec, g.limit.rec)}
		damage = nil // the rest was written again in a later segment
	} else if g.whole && damage == nil {
		damage, torn = &CorruptError{Offset: r.frames.off, Err: errTruncated}, false
	}
	if damage == nil && last && g.size < g.disk {
		damage, torn = &CorruptError{Offset: r.frames.off, Err: errGrown}, false
	}
	if damage != nil {
		damage.Segment = g.name
		if g.whole {
			damage.Records = g.limit.rec - min(end.rec, g.limit.rec)
		}
	}
	g.end = end
	return condition{torn: torn, damage: damage}, nil
}

// An Entry is one batch as [Scan] finds it.
type Entry struct {
	Segment string // file name
	Seq     uint64
	Time    time.Time    // of its Append
	Acked   bool         // acknowledged; its segment is not deleted yet
	Batch   *batch.Batch // valid until the next step
}

// Scan iterates over the batches in the spool directory dir, oldest first, one in memory at a time.
// It writes nothing and takes no lock. It uses only the fields Codec and Streams of o. Damage is
// yielded as a [*CorruptError] with a zero Entry, and the scan continues with the next segment; any
// other error ends it.
func Scan(dir string, o *Options) iter.Seq2[Entry, error] { return scan(vfs.OS, dir, o) }

func scan(fsys vfs.FS, dir string, o *Options) iter.Seq2[Entry, error] {
	if o == nil {
		o = &Options{}
	}
	return func(yield func(Entry, error) bool) {
		v, err := openView(fsys, dir)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		whole := true
		for i := range v.segs {
			more, damaged := v.scan(i, o, yield)
			if !more {
				return
			}
			whole = whole && !damaged
		}
		if !whole {
			return
		}
		if d := v.missing(); d != nil {
			yield(Entry{}, d)
		}
	}
}

// scan yields the batches of segment i. It reports whether to continue, and whether the segment is
// damaged or gone.
func (v *view) scan(i int, o *Options, yield func(Entry, error) bool) (more, bad bool) {
	g := &v.segs[i]
	more = true
	var s stored
	c, err := v.read(i, o, func(r *segmentReader) error {
		h, err := r.next(&s)
		if err != nil || h.seq >= g.limit.seq {
			return err
		}
		e := Entry{Segment: g.name, Seq: h.seq, Time: time.Unix(0, h.at), Acked: h.seq < g.settled(v.acked).seq, Batch: &s.batch}
		if more = yield(e, nil); !more {
			r.frames.size = r.frames.off // the walk ends here
		}
		return nil
	})
	switch {
	case !more:
	case err != nil:
		yield(Entry{}, err)
		more = false
	case c.damage != nil:
		more, bad = yield(Entry{}, c.damage), true
	}
	return more, bad || c.gone
}
