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

// A lineJoiner combines lines from standard input to records for an intake. Held lines are not
// accepted yet, so a read-ahead file is settled only up to the first held line.
type lineJoiner struct {
	take    *Intake
	j       *join.Joiner[int64]
	records int   // number of records passed to the intake
	start   int64 // offset of the current line
	attrs   []slog.Attr
	now     time.Time // time of the last read; zero before it is needed
	maxHeld int64     // maximum distance between the first held line and the end of the read-ahead file, in bytes
}

// newLineJoiner returns a lineJoiner that passes records to take, or nil if rules is nil. kept
// reports whether the input has a read-ahead file.
func newLineJoiner(take *Intake, rules *join.Rules, kept bool) *lineJoiner {
	if rules == nil {
		return nil
	}
	longest := take.In.Env.MaxRecord
	jd := &lineJoiner{take: take, maxHeld: math.MaxInt64}
	if kept {
		jd.maxHeld = int64(lines.BufferBytes(longest))
	}
	limits := &join.Limits{MaxRecord: longest}
	limits.Default()
	reported := false
	jd.j = join.New[int64](rules, limits, jd.put, func() {
		if !reported {
			reported = true
			take.In.Env.Console.Say("%s", take.In.Of(errors.New("standard input: "+join.Bare)))
		}
	})
	return jd
}

// line adds a line with its position in the input.
func (jd *lineJoiner) line(line []byte, start, end int64) {
	if jd.now.IsZero() {
		jd.now = time.Now()
	}
	jd.start = start
	jd.j.Line(line, func() int64 { return jd.start }, end, jd.now) // an error is impossible: put returns nil
}

// put passes a record to the intake.
func (jd *lineJoiner) put(r join.Record) error {
	jd.records++
	jd.take.Line(r.Text, Place{end: r.End, safe: jd.safe(r.End)}, Hints{DefaultTime: r.Time, Attrs: jd.attrs})
	return nil
}

// safe returns the largest offset up to at before which no line is held.
func (jd *lineJoiner) safe(at int64) int64 {
	for start := range jd.j.Held {
		at = min(at, start)
	}
	return at
}

// release passes on records that are complete or have waited long enough. It may wait for more
// input until the next record is due. If the held records keep more than maxHeld bytes before
// offset from being settled, all are passed on. hold and publish are functions of Consume.
func (jd *lineJoiner) release(offset int64, wait func(time.Duration) bool, hold, publish func()) {
	for !jd.j.Empty() {
		now := time.Now()
		if tooMuch := offset-jd.safe(offset) > jd.maxHeld; tooMuch || !now.Before(jd.j.Due()) {
			hold()
			jd.j.Release(now, tooMuch)
		}
		publish()
		if jd.j.Empty() || wait == nil || wait(jd.j.Due().Sub(now)) {
			break
		}
	}
	jd.now = time.Time{}
}

// flush passes on all held records.
func (jd *lineJoiner) flush() { jd.j.Release(time.Now(), true) }

// BytesToKeep returns the maximum number of heldFile bytes of an input, which determines the size
// of its read-ahead file. longest is the maximum length of a line.
func BytesToKeep(longest int, rules *join.Rules) int {
	n := lines.BufferBytes(longest)
	if rules != nil {
		n *= 2 // held lines may use as much again
	}
	return n
}

// A heldFile is a read-ahead file whose lines are settled only up to the first held line.
type heldFile struct {
	*readahead.File
	jd *lineJoiner
}

func (u heldFile) Settle(offset int64, inLong bool) {
	safe := u.jd.safe(offset)
	u.File.Settle(safe, inLong && safe == offset)
}
