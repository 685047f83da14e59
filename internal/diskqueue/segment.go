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

// A segment describes one segment file. Spool.mu and queue.mu guard the fields that can change, see
// queue. The syncer changes synced and syncErr with queue.mu alone.
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

	headerErr error // reason why the header cannot be used, a cause of [spool.CorruptError]; nil: it can be used
	limit     mark  // beginning of the next usable segment when the directory was read; all frames end before it
	exact     bool  // the frames must reach up to limit

	settledTo mark // all batches before this mark are settled; not used for the status inQueue

	end    mark  // mark after the last batch that is readable or expected
	size   int64 // number of bytes that may be read
	disk   int64 // size of the file on disk, including damaged parts
	synced int64 // number of bytes that this process has put on stable storage

	syncErr error               // error of a failed sync; the content after synced is unknown
	damage  *spool.CorruptError // reason why the segment ends at end

	// pendingSince is the time, in Unix nanoseconds, of the last Append to the segment that found
	// no pending batch in it. It is 0 if there was none since Open.
	pendingSince int64
}

// A form is the encoding of the batches in a segment: the content type and the schema version of
// their codec. All batches of a segment have the same form, so that a destination accepts or
// refuses the segment as a whole.
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

// segmentFile returns the segment that name describes. ok is false for names of other files, and
// for names that this program never writes, such as one with a missing zero.
func segmentFile(name string) (g *segment, ok bool) {
	digits, rest, ok := strings.Cut(name, segmentSuffix)
	id, err := strconv.ParseUint(digits, 10, 62)
	if !ok || err != nil || segmentName(id) != digits+segmentSuffix {
		return nil, false
	}
	g = &segment{name: name, segmentHeader: segmentHeader{id: id}}
	switch {
	case rest == "":
		return g, true
	case strings.HasSuffix(rest, corruptSuffix):
		g.status = aside
		return g, true
	}
	return g, g.parseParked(rest)
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
	return segment || name == cursorName || name == lockName
}
