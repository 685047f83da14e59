package diskqueue

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/spool"
)

// Names of the files in the directory of a spool.
const (
	segmentSuffix = ".seg"
	corruptSuffix = ".corrupt"
	cursorName    = "cursor"
	lockName      = "LOCK"
)

// A segment describes one segment file. queue.mu guards the fields that can change.
//
//	| header | frames of settled batches | frames of pending batches | of no batch |
//	         first                       settled                     end
//
// The last part of a file has no batch: it is damaged, was left by a failed Append, or was stored
// again in the next segment.
type segment struct {
	segmentHeader
	name   string // file name within the directory
	status status

	settledTo     mark // all batches before this mark are settled; not used for the status inQueue
	settledInName mark // the mark settledTo that the file name contains

	end    mark  // mark after the last batch that is readable or expected
	size   int64 // number of bytes that may be read
	disk   int64 // size of the file on disk, including damaged parts
	synced int64 // number of bytes that this process has put on stable storage

	syncErr error               // error of a failed sync; the content after synced is unknown
	damage  *spool.CorruptError // reason why the segment ends at end
	removed bool                // removed from the queue: settled, dropped or deleted by another program

	// pendingSince is the time, in Unix nanoseconds, of the last Append to the segment that found
	// no pending batch in it. It is 0 if there was none since Open.
	pendingSince int64
}

// A form is the wire form of the batches in a segment. A segment has only one, so that a destination
// accepts or refuses it as a whole.
type form struct {
	contentType string
	schema      uint32
}

// formOf returns the form of the batches of a codec, which may be nil.
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

// pending returns the number of records of the segment after the mark m.
func (g *segment) pending(m mark) uint64 {
	return g.end.rec - min(max(m.rec, g.first.rec), g.end.rec)
}

// done reports whether all batches of the segment are before the mark m.
func (g *segment) done(m mark) bool { return g.end.seq <= m.seq }

// empty reports whether the segment has no batch, because every Append to it has failed. Bytes of
// failed Appends in the file must not be read.
func (g *segment) empty() bool { return g.end.seq <= g.first.seq }

// segmentName returns the file name of segment id if it is not parked.
func segmentName(id uint64) string { return fmt.Sprintf("%08d%s", id, segmentSuffix) }

// segmentID returns the number in the file name of a segment. It does not accept names that this
// program never writes, such as one with a missing zero.
func segmentID(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 62)
	return id, err == nil && segmentName(id) == name
}

// corruptID returns the segment number in the name of a damaged file that was set aside.
func corruptID(name string) (uint64, bool) {
	i := strings.Index(name, segmentSuffix)
	if i < 0 || !strings.HasSuffix(name, corruptSuffix) {
		return 0, false
	}
	return segmentID(name[:i+len(segmentSuffix)])
}

// segmentFile returns the segment that name describes. ok is false for names of other files.
func segmentFile(name string) (g segment, ok bool) {
	g.name = name
	if g.id, ok = segmentID(name); ok {
		return g, true
	}
	return g, g.parseParked()
}

// byPlace compares segments by number. A parked segment precedes another segment with the same
// number, which an older version of this program has created.
func byPlace(a, b *segment) int {
	return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(b.status, a.status), cmp.Compare(a.settledTo.seq, b.settledTo.seq))
}

// IsFile reports whether a file of this name belongs to a spool: a segment, one
// that was parked or set aside, the cursor or the lock.
func IsFile(name string) bool {
	_, segment := segmentFile(name)
	_, set := corruptID(name)
	return segment || set || name == cursorName || name == lockName
}
