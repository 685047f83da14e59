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

// A joined joins lines from standard input to records, for an intake. A held line is not
// accepted yet: a read-ahead file is settled only up to the beginning of the first held line.
type joined struct {
	take    *Intake
	j       *join.Joiner[int64]
	records int   // records passed to the intake
	start   int64 // offset of the current line
	attrs   []slog.Attr
	now     time.Time // time of the last read; zero until it is needed
	maxHeld int64     // maximal distance from the first held line to the end of a read-ahead file
}

// newJoined returns a joined that passes records to take, or nil if rules is nil. kept reports
// whether the input has a read-ahead file.
func newJoined(take *Intake, rules *join.Rules, kept bool) *joined {
	if rules == nil {
		return nil
	}
	longest := take.In.Env.MaxRecord
	jd := &joined{take: take, maxHeld: math.MaxInt64}
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

// line adds a line, which is from start to end in the input.
func (jd *joined) line(line []byte, start, end int64) {
	if jd.now.IsZero() {
		jd.now = time.Now()
	}
	jd.start = start
	jd.j.Line(line, func() int64 { return jd.start }, end, jd.now) // put never fails
}

// put passes a record to the intake.
func (jd *joined) put(r join.Record) error {
	jd.records++
	jd.take.Line(r.Text, Place{end: r.End, safe: jd.safe(r.End)}, Hints{DefaultTime: r.Time, Attrs: jd.attrs})
	return nil
}

// safe returns the offset, at most at, before which no line is held.
func (jd *joined) safe(at int64) int64 {
	for start := range jd.j.Held {
		at = min(at, start)
	}
	return at
}

// release passes records to the intake that are complete or have waited long enough. It passes
// all records if they keep more than maxHeld bytes of the input, which ends at offset, from being
// settled. It may wait for more input until the next record is due. hold and publish are the
// functions of Consume.
func (jd *joined) release(offset int64, wait func(time.Duration) bool, hold, publish func()) {
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

// all passes all held records to the intake.
func (jd *joined) all() { jd.j.Release(time.Now(), true) }

// BytesToKeep returns the maximal number of bytes of an input that are not settled, for the size
// of its read-ahead file.
func BytesToKeep(longest int, rules *join.Rules) int {
	n := lines.BufferBytes(longest)
	if rules != nil {
		n *= 2 // see joined.maxHeld
	}
	return n
}

// An unsettled is a read-ahead file that is settled only up to the first held line.
type unsettled struct {
	*readahead.File
	jd *joined
}

func (u unsettled) Settle(offset int64, inLong bool) {
	safe := u.jd.safe(offset)
	u.File.Settle(safe, inLong && safe == offset)
}
