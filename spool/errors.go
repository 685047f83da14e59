package spool

import (
	"errors"
	"fmt"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/plural"
)

var (
	// ErrFull is returned, wrapped, by [Spool.Append] when the batch does not fit into
	// [Options.MaxBytes] and the policy does not allow dropping others.
	ErrFull = errors.New("spool: full")
	// ErrLocked is returned, wrapped, by [Open] and [Purge] when another
	// process (or another Spool of this one) has the directory open.
	ErrLocked = errors.New("directory is in use by another process, or twice by this one: end the other process, or use another directory")
)

var (
	errClosed   = fmt.Errorf("spool: %w", batch.ErrClosed)
	errTooLarge = errors.New("spool: batch too large") // more than 256 MiB
)

// damage is a cause of a [CorruptError]: bytes differ from those written.
type damage string

func (d damage) Error() string { return string(d) }

const (
	errHeader    damage = "segment header is damaged"
	errVersion   damage = "segment was written by a newer version of this program"
	errMisnamed  damage = "segment header and file name disagree"
	errOrder     damage = "segment overlaps the one before it"
	errMissing   damage = "segment file is missing"
	errTruncated damage = "segment ends early"
	errCutOff    damage = "the last batches are missing"
	errFrame     damage = "frame header is damaged"
	errBody      damage = "frame body is damaged"
	errSequence  damage = "frame is out of sequence"
	errTooLong   damage = "frame is longer than any this program writes"
	errStreams   damage = "stream definitions cannot be read"
	errIndex     damage = "record index cannot be read"
	errCursor    damage = "cursor cannot be read; all stored records are delivered again"
	errNotPlain  damage = "not a plain file"
	errGrown     damage = "segment is longer than any this program writes"
	errGone      damage = "files were moved or deleted while in use; continuing with new ones"
	// errTorn reports that a file ends within a frame, as after a kill of the writer. It depends on
	// the segment whether that is damage.
	errTorn damage = "torn frame"
)

// errUnreadable is the cause if the file system cannot read a file.
var errUnreadable = errors.New("file cannot be read")

// damaged reports whether err is damage. A failure of the read itself is not.
func damaged(err error) bool {
	_, ok := err.(damage)
	return ok
}

// cause turns the failure of a read into a cause of a CorruptError.
func cause(err error) error {
	if damaged(err) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnreadable, err)
}

// A CorruptError describes damage in a segment and the resulting loss.
type CorruptError struct {
	// Segment is the file's name within the spool directory.
	Segment string
	// Offset is the position in bytes of the first frame that cannot be read,
	// 0 for the segment header.
	Offset int64
	// Records is the known number of records lost to the damage. Records after a damaged frame at
	// the end of the last segment cannot always be counted.
	Records uint64
	// Err is the cause.
	Err error
}

// Error returns the segment, the offset, the reason and the number of lost records.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("spool: %s: offset %d: %v (%s lost)", e.Segment, e.Offset, e.Err, plural.Of(e.Records, "record"))
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }
