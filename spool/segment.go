package spool

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/forebay-log/forebay/batch"
)

const (
	segmentSuffix = ".seg"
	corruptSuffix = ".corrupt"
	cursorName    = "cursor"
	lockName      = "LOCK"
)

// segment describes one segment file. queue.mu guards the fields that can change.
type segment struct {
	segmentHeader
	name string // within the directory
	lane lane

	from  mark // parked and late: everything before it is settled
	named mark // the same, according to the name of the file

	end    mark  // of the frames that can be read, or are expected to be there
	size   int64 // bytes that may be read
	disk   int64 // size of the file on disk, which damage does not reduce
	synced int64 // bytes that this process has put on stable storage

	unsure error         // of a failed sync: the content after synced is unknown
	damage *CorruptError // why reading ends at end
	gone   bool          // deleted, renamed or dropped

	since int64 // when records came while none was pending, in Unix nanoseconds; 0: not since Open
}

// form is the wire form of the batches in a segment.
type form struct {
	contentType string
	schema      uint32
}

// formOf returns the form of a codec's batches.
func formOf(c batch.Codec) (f form) {
	if c == nil {
		return f
	}
	if v, ok := c.(interface{ SchemaVersion() uint32 }); ok {
		f.schema = v.SchemaVersion()
	}
	f.contentType = c.ContentType()
	return f
}

func (g *segment) form() form { return form{g.contentType, g.schema} }

// mark is a position between two batches, counted from the beginning of the
// spool: the number of batches and of records before it, plus one batch.
type mark struct {
	seq uint64 // of the batch after the mark
	rec uint64 // records before the mark
}

// start returns the mark before the segment's first frame.
func (g *segment) start() mark { return mark{seq: g.firstSeq, rec: g.firstRec} }

// pending returns how many of the segment's records are after m.
func (g *segment) pending(m mark) uint64 {
	return g.end.rec - min(max(m.rec, g.firstRec), g.end.rec)
}

// done reports whether no batch of the segment is after m.
func (g *segment) done(m mark) bool { return g.end.seq <= m.seq }

// empty reports whether the segment has no batch: every Append to it failed. The bytes that
// those left in the file must not be read.
func (g *segment) empty() bool { return g.end.seq <= g.firstSeq }

// segmentName returns the file name of segment id.
func segmentName(id uint64) string { return fmt.Sprintf("%08d%s", id, segmentSuffix) }

// segmentID reads a segment's number from its file name.
func segmentID(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 62)
	return id, err == nil && segmentName(id) == name
}

// corruptID reads the segment number from the name of a file that was set aside.
func corruptID(name string) (uint64, bool) {
	i := strings.Index(name, segmentSuffix)
	if i < 0 || !strings.HasSuffix(name, corruptSuffix) {
		return 0, false
	}
	return segmentID(name[:i+len(segmentSuffix)])
}

// segmentFile reads the name of a segment file, parked or in line.
func segmentFile(name string) (g segment, ok bool) {
	g.name = name
	if g.id, ok = segmentID(name); ok {
		return g, true
	}
	return g, g.parseParked()
}

// byPlace compares segments by number. One that is parked comes before one in line of
// the same number.
func byPlace(a, b *segment) int {
	return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(b.lane, a.lane), cmp.Compare(a.from.seq, b.from.seq))
}

// IsFile reports whether a file of this name belongs to a spool: a segment, one
// that was parked or set aside, the cursor or the lock.
func IsFile(name string) bool {
	_, segment := segmentFile(name)
	_, set := corruptID(name)
	return segment || set || name == cursorName || name == lockName
}
