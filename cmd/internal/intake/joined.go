package intake

import (
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/lines"
	"github.com/forebay-log/forebay/cmd/internal/readahead"
)

// A lineJoiner combines lines of standard input to records and passes them to an intake. No output
// has accepted the lines that it holds, so they must remain in the read-ahead file.
type lineJoiner struct {
	intake  *Intake
	j       *join.Joiner[int64]
	start   int64 // offset of the current line
	attrs   []slog.Attr
	now     time.Time // time of the last read; zero until it is needed
	maxHeld int64     // maximum number of bytes from the first held line to the current offset
}

// newLineJoiner returns a lineJoiner for intake, or nil if rules is nil. kept reports whether the
// input has a read-ahead file.
func newLineJoiner(intake *Intake, rules *join.Rules, kept bool) *lineJoiner {
	if rules == nil {
		return nil
	}
	longest := intake.In.Env.MaxRecord
	joiner := &lineJoiner{intake: intake, maxHeld: math.MaxInt64}
	if kept {
		joiner.maxHeld = int64(lines.BufferBytes(longest))
	}
	limits := &join.Limits{MaxRecord: longest}
	limits.Default()
	reported := false
	joiner.j = join.New[int64](rules, limits, joiner.put, func() {
		if !reported {
			reported = true
			intake.In.Env.Console.Say("%s", intake.In.WithName(errors.New("standard input: "+join.Bare)))
		}
	})
	return joiner
}

// line adds a line. start and end are the offsets of the line.
func (joiner *lineJoiner) line(line []byte, start, end int64) {
	if joiner.now.IsZero() {
		joiner.now = time.Now()
	}
	joiner.start = start
	joiner.j.Line(line, func() int64 { return joiner.start }, end, joiner.now) // no error, because put returns none
}

// put passes a record to the intake.
func (joiner *lineJoiner) put(r join.Record) error {
	joiner.intake.records++
	joiner.intake.Line(r.Text, Place{end: r.End, safe: joiner.safe(r.End)}, &Hints{DefaultTime: r.Time, Attrs: joiner.attrs})
	return nil
}

// safe returns the smaller of two offsets: the parameter at, and the start of the first held line.
// All lines before the result were passed on.
func (joiner *lineJoiner) safe(at int64) int64 {
	for start := range joiner.j.Held {
		at = min(at, start)
	}
	return at
}

// release passes records that have waited long enough to the intake. While other records are held,
// it waits for input until the next record is due. If held lines keep more than maxHeld bytes in
// the read-ahead file, it passes all records. lock and publish are functions of Consume.
func (joiner *lineJoiner) release(offset int64, wait func(time.Duration) bool, lock, publish func()) {
	for !joiner.j.Empty() {
		now := time.Now()
		if overLimit := offset-joiner.safe(offset) > joiner.maxHeld; overLimit || !now.Before(joiner.j.Due()) {
			lock()
			joiner.j.Release(now, overLimit)
		}
		publish()
		if joiner.j.Empty() || wait == nil || wait(joiner.j.Due().Sub(now)) {
			break
		}
	}
	joiner.now = time.Time{}
}

// flush passes all held records to the intake.
func (joiner *lineJoiner) flush() { joiner.j.Release(time.Now(), true) }

// BytesToKeep returns the size of the read-ahead file that an input needs. longest is the maximum
// length of a line.
func BytesToKeep(longest int, rules *join.Rules) int {
	n := lines.BufferBytes(longest)
	if rules != nil {
		n *= 2 // held lines may need as many bytes again
	}
	return n
}

// A heldFile is a read-ahead file that keeps the lines that a lineJoiner holds.
type heldFile struct {
	*readahead.File
	joiner *lineJoiner
}

// Settle marks the input before offset as no longer needed, but not the held lines.
func (u heldFile) Settle(offset int64, inLong bool) {
	safe := u.joiner.safe(offset)
	u.File.Settle(safe, inLong && safe == offset)
}
