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

// A joined makes records of the lines that an intake reads from standard input. A line that
// is held is not accepted: an input that is kept is settled up to where it begins.
type joined struct {
	take    *Intake
	j       *join.Joiner[int64]
	records int   // that the intake was given
	start   int64 // of the line that is being taken
	attrs   []slog.Attr
	now     time.Time // when lines came last; zero: not known yet
	most    int64     // bytes from where a held record begins to the end of the input, if that is kept
}

// newJoined returns a joined whose records go to take; nil if rules is. kept says that the
// input is.
func newJoined(take *Intake, rules *join.Rules, kept bool) *joined {
	if rules == nil {
		return nil
	}
	longest := take.In.Env.MaxRecord
	jd := &joined{take: take, most: math.MaxInt64}
	if kept {
		jd.most = int64(lines.BufferBytes(longest))
	}
	limits := &join.Limits{MaxRecord: longest}
	limits.Default()
	said := false
	jd.j = join.New[int64](rules, limits, jd.put, func() {
		if !said {
			said = true
			take.In.Env.Console.Say("%s", take.In.Of(errors.New("standard input: "+join.Bare)))
		}
	})
	return jd
}

// line takes a line, which is from start to end in the input.
func (jd *joined) line(line []byte, start, end int64) {
	if jd.now.IsZero() {
		jd.now = time.Now()
	}
	jd.start = start
	jd.j.Line(line, func() int64 { return jd.start }, end, jd.now) // put has no error
}

// put gives a record to the intake.
func (jd *joined) put(r join.Record) error {
	jd.records++
	jd.take.Line(r.Text, Place{end: r.End, safe: jd.safe(r.End)}, Known{Noted: r.Time, Attrs: jd.attrs})
	return nil
}

// safe returns up to where everything before at has been taken.
func (jd *joined) safe(at int64) int64 {
	for start := range jd.j.Held {
		at = min(at, start)
	}
	return at
}

// release gives the intake what has had its time, and all that is held if it would keep too
// much of the input, which ends at offset, from being settled. It may wait until the input
// brings something, but no longer than something is held. hold and publish are those of
// the reader.
func (jd *joined) release(offset int64, wait func(time.Duration) bool, hold, publish func()) {
	for !jd.j.Empty() {
		now := time.Now()
		if tooMuch := offset-jd.safe(offset) > jd.most; tooMuch || !now.Before(jd.j.Due()) {
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

// all gives the intake everything that is held.
func (jd *joined) all() { jd.j.Release(time.Now(), true) }

// BytesToKeep returns how much of the input is not settled at most, for a file that keeps it.
func BytesToKeep(longest int, rules *join.Rules) int {
	n := lines.BufferBytes(longest)
	if rules != nil {
		n *= 2 // joined.most
	}
	return n
}

// An unsettled is a file of input that is settled no further than to what is held.
type unsettled struct {
	*readahead.File
	jd *joined
}

func (u unsettled) Settle(offset int64, inLong bool) {
	safe := u.jd.safe(offset)
	u.File.Settle(safe, inLong && safe == offset)
}
