package spool

import (
	"errors"
	"fmt"

	"github.com/forebay-log/forebay/internal/plural"
)

// ErrLocked is returned, wrapped, when another process, or another output of this one, has the
// directory open.
var ErrLocked = errors.New("the directory is in use: wait until the other process has ended, or stop it; use a separate directory for each output")

// A CorruptError describes damage in a segment and the resulting loss.
type CorruptError struct {
	// Segment is the file's name within the spool directory.
	Segment string
	// Offset is the position in bytes of the first frame (a stored batch) that cannot be read, 0
	// for the segment header.
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
