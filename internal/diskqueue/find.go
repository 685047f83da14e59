package diskqueue

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// findSegments returns the segments in dir and the files set aside, in order. It reads one header
// for each segment. It omits files that are deleted during the call. It fails only if the directory
// or the size of a file cannot be read.
func findSegments(d *directory) (segs, set []*segment, err error) {
	names, err := d.fs.ReadDir(d.path)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		g, ok := segmentFile(name)
		if !ok {
			continue
		}
		switch g.headerErr = g.load(d); {
		case isNotExist(g.headerErr):
		case g.headerErr != nil && !damaged(g.headerErr) && !errors.Is(g.headerErr, errUnreadable):
			return nil, nil, fmt.Errorf("cannot read %s: %w", name, g.headerErr)
		case g.status == aside:
			set = append(set, g)
		default:
			segs = append(segs, g)
		}
	}
	// The numbers in names have at least eight digits, so longer ones sort wrongly as names.
	slices.SortStableFunc(set, byPlace)
	slices.SortFunc(segs, byPlace)
	// A crash during the creation of a segment leaves an incomplete header only in the last file.
	// If a later segment exists, the process did not crash there.
	if n := len(segs); n > 0 && segs[n-1].status == inQueue && segs[n-1].headerErr == errTruncated {
		segs[n-1].headerErr = errTorn
	}
	setLimits(segs)
	return segs, set, nil
}

// setLimits sets the limit of each segment, the mark at which its frames must end. It rejects
// segments that begin before the previous one, because batch and record numbers rise from segment
// to segment. Parked segments are exempt, because an older version of this program ignores them and
// may have used their numbers again.
//
//	segment   5          6         (7 is missing)   8
//	first     batch 1    batch 9                    batch 20
//	limit     9, exact   20                         none
//
// Segment 5 ends at its limit. Segment 6 ends at or before its limit, because the batches before 20
// may have been in segment 7. Only its frames show where it ends.
func setLimits(segs []*segment) {
	var before mark
	for _, g := range segs {
		if g.headerErr != nil || g.status != inQueue {
			continue
		}
		if g.first.seq < before.seq || g.first.rec < before.rec {
			g.headerErr = errOrder
		} else {
			before = g.first
		}
	}
	// The loop runs backwards, because the limit of a segment is the beginning of the next usable
	// one. If that segment has the next number, no segment is missing between them, and the frames
	// must reach up to it.
	limit, id := noLimit, uint64(0)
	for _, g := range slices.Backward(segs) {
		switch {
		case g.status == inQueue:
			g.limit, g.exact = limit, id == g.id+1
		case g.damage != nil:
			g.limit = noLimit
		default: // the file name contains the range
			g.limit, g.exact = g.end, true
		}
		if id = 0; g.headerErr == nil {
			limit, id = g.first, g.id
		}
	}
}

// load reads the header of the segment, whose name, number and status are set. If it fails, or if
// the file was set aside, it sets only the size on disk, if known.
func (g *segment) load(d *directory) (err error) {
	if g.status == aside {
		g.disk, err = d.fs.Size(d.file(g.name))
		return err
	}
	f, err := d.open(g.name, os.O_RDONLY)
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
	if err != nil {
		return cause(err)
	}
	// A file whose name and header disagree was copied or renamed, and repeats batches of another
	// segment. The name of a parked file also contains the mark up to which it is settled, which
	// cannot be before its first batch.
	if h.id != g.id || g.status != inQueue && (g.settledTo.seq < h.first.seq || g.settledTo.rec < h.first.rec) {
		return errMisnamed
	}
	g.segmentHeader, g.size = h, min(g.disk, maxSegmentFile)
	return nil
}

// readFrames walks the frames of g and sets g.end, and g.damage if there is any. If visit is not
// nil, readFrames reads every frame completely and passes it to visit, which returns false to end
// the walk. torn reports that the file ends with a frame that was not written completely, which is
// no damage. err is an error of the file system.
func (g *segment) readFrames(d *directory, o *spool.Options, visit func(*handout) bool) (torn bool, err error) {
	var r segmentReader
	if err := r.open(d, g, g.size, o); err != nil {
		return false, err
	}
	defer r.close()
	r.limit = g.limit
	var h frameHeader
	var memory handout
	for {
		err = r.header(&h)
		if err == nil && visit != nil {
			err = r.read(&h, &memory)
		}
		if err != nil {
			break
		}
		if visit != nil && !visit(&memory) {
			return false, nil
		}
		r.skip(&h)
	}
	// The frames end here. Whether that is damage depends on the files that follow.
	g.end, g.damage = r.at, nil
	switch torn = err == errTorn; {
	case !torn && err != io.EOF: // damage
	case g.end.seq == g.limit.seq:
		err = nil
	case g.exact:
		err = errTruncated
	case g.size < g.disk:
		err = errGrown
	default:
		err = nil
	}
	if err == nil {
		g.size = r.off
		return torn, nil
	}
	g.damage = &spool.CorruptError{Segment: g.name, Offset: r.off, Err: cause(err)}
	// Continue with the headers after the damage, to count the lost records.
	for r.header(&h) == nil {
		r.skip(&h)
	}
	// If the next segment exists, its first record number gives the exact count.
	after := r.at
	if g.exact {
		after = g.limit
	}
	g.damage.Records = max(after.rec, g.end.rec) - g.end.rec
	return false, nil
}

// verify makes [segment.readFrames] read and check every frame.
func verify(*handout) bool { return true }
