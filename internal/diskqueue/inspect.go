package diskqueue

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// SegmentInfo describes one file of a spool.
type SegmentInfo struct {
	Name        string // file name
	ContentType string
	Begun       time.Time // time at which the segment was created
	Bytes       int64
	Batches     uint64
	Records     uint64 // number of records, not counting gap markers
	Pending     uint64 // number of Records that are not acknowledged
	// Torn reports that the file ends within a frame, because an Append is in progress or was
	// killed, or that the last frame has pages that were not written before a loss of power. This
	// is not damage.
	Torn bool
	// Damage describes the damage of the file. The counts above cover the batches before the
	// damage.
	Damage *spool.CorruptError
	// Parked reports that a process kept the file without delivering it, because its destination
	// did not accept the content type or schema of the records. A later process may accept them.
	// See [spool.Options.Accepts].
	Parked bool
	// Aside reports that an earlier process set the file aside because it is damaged. Only Name and
	// Bytes are set.
	Aside bool
}

// Listing describes a spool directory.
type Listing struct {
	Files   []SegmentInfo // oldest first, files set aside last
	Acked   uint64        // number of the last batch acknowledged
	Bytes   int64         // size of all files
	Pending uint64        // number of records that are not acknowledged
	Damaged int           // number of files that are damaged or set aside
}

// List describes the spool directory dir. It reads only the headers of segments and frames. If
// verify is true, it also reads and checks every byte, one batch in memory at a time. It writes
// nothing and takes no lock, so a process may be using the spool.
func List(dir string, verify bool) (*Listing, error) { return inspect(vfs.OS, dir, verify) }

// inspect is List with the file system as a parameter.
func inspect(fsys vfs.FS, dir string, full bool) (*Listing, error) {
	v, err := openView(fsys, dir)
	if err != nil {
		return nil, err
	}
	l := &Listing{Acked: v.cursor.acked.seq - 1}
	for _, g := range v.segs {
		in, err := v.describe(g, full)
		if isNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		l.Files = append(l.Files, in)
	}
	// The cursor may count batches that no segment contains any more. They were at the end of the
	// last file, or in deleted files.
	if d := v.missing(); d != nil {
		if n := len(l.Files); n == 0 || l.Files[n-1].Name != d.Segment {
			l.Files = append(l.Files, SegmentInfo{Name: d.Segment, Damage: d})
		} else if f := &l.Files[n-1]; f.Damage == nil {
			f.Damage, f.Torn = d, false
		}
	}
	for _, g := range v.aside {
		l.Files = append(l.Files, SegmentInfo{Name: g.name, Bytes: g.disk, Aside: true})
	}
	for i := range l.Files {
		f := &l.Files[i]
		l.Bytes += f.Bytes
		l.Pending += f.Pending
		if f.Damage != nil || f.Aside {
			l.Damaged++
		}
	}
	return l, nil
}

// A view reads a spool directory that another process may use: it never writes and takes no lock.
// While the view is used, that process may delete files and append to the last one. Neither is
// damage:
//
//   - A file that does not exist any more is omitted.
//   - A frame that is being written seems torn, at the end of the last file.
//   - Batches seem to be missing at the end if the cursor is newer than the segments that were read.
//     So the cursor is read first, and missing batches are reported only if it has not changed.
type view struct {
	dir    *directory // not locked
	cursor cursorState
	segs   []*segment
	aside  []*segment
}

// openView reads the cursor, the names and the headers. It reads the cursor first, because the
// running process may append and acknowledge more batches meanwhile.
func openView(fsys vfs.FS, dir string) (*view, error) {
	v := &view{dir: &directory{fs: fsys, path: dir}}
	var err error
	if v.cursor, err = v.readCursor(); err != nil {
		return nil, fmt.Errorf("spool: cannot read %s: %w", dir, err)
	}
	if v.segs, v.aside, err = findSegments(v.dir); err != nil {
		return nil, fmt.Errorf("spool: cannot list %s: %w", dir, err)
	}
	return v, nil
}

// readCursor returns the content of the cursor file, or the beginning of the spool if the file does
// not exist or cannot be read.
func (v *view) readCursor() (cursorState, error) {
	f, err := v.dir.open(cursorName, os.O_RDONLY)
	if isNotExist(err) || errors.Is(err, vfs.ErrNotRegular) {
		return startOfSpool, nil
	}
	if err != nil {
		return startOfSpool, err
	}
	defer f.Close()
	c := cursor{f: f}
	_, _ = c.read() // without a slot that can be read, the state is the beginning of the spool
	return c.state, nil
}

// missing returns an error if the cursor counts batches that no segment contains. It is called
// after all segments were read. It returns nil if a process has changed the cursor since, because
// that process may have added the batches after the segments were read.
func (v *view) missing() *spool.CorruptError {
	end := v.cursor.acked
	var last *segment
	for _, g := range v.segs {
		if last = g; g.headerErr == nil {
			end = g.end
		}
	}
	cutOff := v.cursor.cutOff(last, end)
	if now, err := v.readCursor(); err != nil || now.gen != v.cursor.gen {
		return nil
	}
	return cutOff
}

// describe describes g from the headers of its frames or, if full is true, from everything in it.
// The error wraps fs.ErrNotExist if the file was deleted since.
func (v *view) describe(g *segment, full bool) (in SegmentInfo, err error) {
	var visit func(*handout) bool
	if full {
		visit = verify
	}
	torn, err := v.read(g, &spool.Options{}, visit)
	in = SegmentInfo{
		Name: g.name, ContentType: g.contentType, Bytes: g.disk,
		Torn: torn, Damage: g.damage, Parked: g.status != inQueue,
	}
	if err != nil || g.headerErr != nil {
		return in, err
	}
	in.Begun, in.Batches, in.Records = time.Unix(0, g.created), g.end.seq-g.first.seq, g.end.rec-g.first.rec
	if from := g.settled(v.cursor.acked); !g.done(from) {
		in.Pending = g.pending(from)
	}
	return in, nil
}

// read calls [segment.readFrames] for g, if its header can be used. If the segment was acknowledged
// and deleted since, the error wraps fs.ErrNotExist.
func (v *view) read(g *segment, o *spool.Options, visit func(*handout) bool) (torn bool, err error) {
	switch g.headerErr {
	case nil:
	case errTorn: // a process is creating the segment, or was killed while creating it
		return true, nil
	default:
		g.damage = &spool.CorruptError{Segment: g.name, Err: g.headerErr}
		return false, nil
	}
	if torn, err = g.readFrames(v.dir, o, visit); err != nil {
		err = fmt.Errorf("spool: cannot read %s: %w", g.name, err)
	}
	return torn, err
}

// An Entry is one batch yielded by [Scan].
type Entry struct {
	Seq   uint64       // number of the batch
	Acked bool         // the batch is acknowledged, but the segment is not deleted yet
	Batch *batch.Batch // valid until the next step of the iteration; nil with an error
}

// Scan iterates over the batches in the spool directory dir, oldest first, one in memory at a time.
// It writes nothing and takes no lock. It uses only the fields Codec and Streams of o. Damage is
// yielded as a [*spool.CorruptError] with a zero Entry, and the scan continues with the next
// segment. Any other error ends the scan.
func Scan(dir string, o *spool.Options) iter.Seq2[Entry, error] { return scan(vfs.OS, dir, o) }

// scan is Scan with the file system as a parameter. It does not report missing batches at the end
// if a segment is damaged or was deleted meanwhile, because that segment may have contained them.
func scan(fsys vfs.FS, dir string, o *spool.Options) iter.Seq2[Entry, error] {
	if o == nil {
		o = &spool.Options{}
	}
	return func(yield func(Entry, error) bool) {
		v, err := openView(fsys, dir)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		whole := true
		for _, g := range v.segs {
			more := true
			_, err := v.read(g, o, func(o *handout) bool {
				acked := o.at.seq < g.settled(v.cursor.acked).seq
				more = yield(Entry{Seq: o.at.seq, Acked: acked, Batch: &o.batch}, nil)
				return more
			})
			switch {
			case !more:
				return
			case isNotExist(err):
				whole = false
			case err != nil:
				yield(Entry{}, err)
				return
			case g.damage != nil:
				if whole = false; !yield(Entry{}, g.damage) {
					return
				}
			}
		}
		if whole {
			if d := v.missing(); d != nil {
				yield(Entry{}, d)
			}
		}
	}
}
