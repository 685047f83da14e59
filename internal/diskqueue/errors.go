package diskqueue

import (
	"errors"
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

var (
	// errFull is returned, wrapped, for a batch that does not fit into Options.MaxBytes when the
	// policy does not allow dropping others.
	errFull     = errors.New("spool: full")
	errClosed   = fmt.Errorf("spool: %w", batch.ErrClosed)
	errTooLarge = errors.New("spool: batch too large") // more than 256 MiB
)

// damage is a cause of a [spool.CorruptError]: bytes that differ from those written, or a missing
// file. An error of the file system is not damage, and may be temporary.
type damage string

func (d damage) Error() string { return string(d) }

// The causes of a spool.CorruptError. A cause in a segment header makes the whole segment unusable.
const (
	errHeader   damage = "segment header is damaged"
	errVersion  damage = "segment was written by a newer version of this program"
	errMisnamed damage = "segment header and file name disagree"
	errOrder    damage = "segment overlaps the one before it"
	errMissing  damage = "segment file is missing"
	// errTruncated: frames are missing at the end of the segment. The number of the next segment's
	// first batch shows this, or an earlier read of the same segment.
	errTruncated damage = "segment ends early"
	// errCutOff: the cursor shows that segments are missing, or that the last segment was longer.
	errCutOff damage = "the last batches are missing"
	// The checksums of a frame's header, its body, or the stream definitions in it are wrong.
	errFrame damage = "frame header is damaged"
	errBody  damage = "frame body is damaged"
	// The checksum is right but the content is wrong; only another program can cause that.
	errSequence damage = "frame is out of sequence"
	errTooLong  damage = "frame is longer than any this program writes"
	errStreams  damage = "stream definitions cannot be read"
	errIndex    damage = "record index cannot be read"
	errCursor   damage = "cursor cannot be read; all stored records are delivered again"
	errNotPlain damage = "not a plain file"
	errGrown    damage = "segment is longer than any this program writes"
	// errGone is reported by restore, after another program has deleted files of an open spool.
	errGone damage = "files were moved or deleted while in use; continuing with new ones"
	// errTorn reports that a file ends within a frame, as after a kill of the writer, or that part of
	// the last frame never reached the disk. At the end of the last segment, that is no damage.
	errTorn damage = "torn frame"
)

// errUnreadable is the cause if the file system cannot read a file.
var errUnreadable = errors.New("file cannot be read")

// damaged reports whether err is damage. A failed read is not damage, because reading again may
// succeed.
func damaged(err error) bool {
	_, ok := err.(damage)
	return ok
}

// cause returns err as a cause of a spool.CorruptError.
func cause(err error) error {
	if damaged(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnreadable, err)
}
