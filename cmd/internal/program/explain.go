package program

import (
	"fmt"
	"io"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/lines"
	"github.com/forebay-log/forebay/internal/record"
)

// maxExplained is the maximum number of lines that --explain describes.
const maxExplained = 10

// explainLines prints the format, time and level of the first lines of r, and the reason for each.
// If lines are joined, it describes records instead of lines.
func explainLines(c *config.Pipeline, w io.Writer, r io.Reader) (err error) {
	parser, n := c.Parser(), 0
	show := func(line []byte, noted time.Time) {
		if n++; n > maxExplained || err != nil {
			return
		}
		var ev record.Event
		parser.Parse(line, &ev)
		x := parser.Explain(&ev)
		switch {
		case c.Times == intake.TimeOfNow:
			x.Time = "its arrival: --time now"
		case ev.Time.IsZero() && !noted.IsZero():
			x.Time = noted.UTC().Format(time.RFC3339Nano) + ": from the container runtime"
		case ev.Time.IsZero() && c.Times == intake.TimeOfBoth:
			x.Time = "its arrival: --time line-or-now"
		}
		_, err = fmt.Fprintf(w, "%d: %.200q\n   format %s\n   time   %s\n   level  %s\n", n, ev.Line, x.Format, x.Time, x.Level)
	}
	var j *join.Joiner[int64]
	if c.Text.Join != nil {
		limits := &join.Limits{MaxRecord: int(c.MaxRecord.Value)}
		limits.Default()
		j = join.New[int64](c.Text.Join, limits, func(r join.Record) error { show(r.Text, r.Time); return nil }, func() {})
	}
	src := lines.New(r, int(c.MaxRecord.Value))
	src.Charset = c.Text.Charset
	for n < maxExplained && err == nil {
		line, failed := src.Next()
		switch {
		case lines.IsTooLong(failed):
			n++
			_, err = fmt.Fprintf(w, "%d: dropped: it is longer than --max-record\n", n)
		case failed != nil:
			if j != nil {
				j.Release(time.Now(), true)
			}
			if failed != io.EOF {
				return failed
			}
			return err
		case j != nil:
			j.Line(line, func() int64 { return 0 }, 0, time.Now())
		default:
			show(line, time.Time{})
		}
	}
	return err
}
