package spool

import (
	"errors"
	"fmt"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/plural"
)

var (
	// ErrFull is returned, wrapped, by [Spool.Append] when the batch does not
	// fit into [Options.MaxBytes] and nothing may be dropped for it.
	ErrFull = errors.New("spool: full")
	// ErrLocked is returned, wrapped, by [Open] and [Purge] when another
	// process (or another Spool of this one) has the directory open.
	ErrLocked = errors.New("directory is in use by another process, or twice by this one: end the other, or use another directory")
)

var (
	errClosed   = fmt.Errorf("spool: %w", batch.ErrClosed)
	errTooLarge = errors.New("spool: batch too large") // more than 256 MiB
)

// The causes that a [CorruptError] wraps.
var (
	errHeader     = errors.New("segment header is damaged")
	errVersion    = errors.New("segment was written by a newer version of this program")
	errMisnamed   = errors.New("segment header and file name disagree")
	errOrder      = errors.New("segment overlaps the one before it")
	errMissing    = errors.New("segment file is missing")
	errTruncated  = errors.New("segment ends early")
	errCut        = errors.New("the last batches are missing")
	errFrame      = errors.New("frame header is damaged")
	errBody       = errors.New("frame body is damaged")
	errSequence   = errors.New("frame is out of sequence")
	errTooLong    = errors.New("frame is longer than any this program writes")
	errStreams    = errors.New("stream definitions cannot be read")
	errIndex      = errors.New("record index cannot be read")
	errCursor     = errors.New("cursor cannot be read; all stored records are delivered again")
	errNotPlain   = errors.New("not a plain file")
	errGrown      = errors.New("segment is longer than any this program writes")
	errUnreadable = errors.New("file cannot be read")
)

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
