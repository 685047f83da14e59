package tool

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/lines"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/stamp"
	"github.com/forebay-log/forebay/internal/vfs"
)

// measured contains the measurements of a log.
type measured struct {
	File      string  `json:"file"`
	Lines     uint64  `json:"lines"`
	Bytes     int64   `json:"bytes"`
	MeanBytes float64 `json:"mean_bytes"`
	// Timed is the number of lines that contain a time. If it is 0, the rates are also 0.
	Timed    uint64    `json:"timed_lines"`
	MeanRate float64   `json:"mean_records_per_second"`
	PeakRate float64   `json:"peak_records_per_second"` // rate in the busiest second
	First    time.Time `json:"first,omitzero"`
	Last     time.Time `json:"last,omitzero"`
}

// Span returns the time from the earliest line to the latest line.
func (m *measured) Span() time.Duration { return m.Last.Sub(m.First) }

// MaxSeconds is the maximum number of seconds for which MeasureLog keeps counters. The limit is
// high, because the lines of a log may be out of order, for example if files were merged. Above the
// limit, MeasureLog drops the counters of all seconds but the current one.
const MaxSeconds = 1 << 16

// MeasureLog measures a log. name is the name of the log in the result.
//
// A line without a time, such as a line of a stack trace, gets the time of the previous line. Times
// without a year get consecutive years: a new year begins when January follows December.
func MeasureLog(name string, r io.Reader) (*measured, error) {
	in := bufio.NewReader(r)
	if kind, with := compressed(in); kind != "" {
		return nil, fmt.Errorf("cannot measure %s: it is compressed (%s): %s FILE | forebay size --measure -", name, kind, with)
	}
	m := &measured{File: name}
	p := record.Parser{Location: time.UTC}
	var ev record.Event
	seconds := map[int64]uint64{}
	var peak uint64
	var second int64
	counting := false
	clock := yearless{}
	src := lines.New(in, layout.MaxSlabBytes)
	for {
		line, err := src.Next()
		if lines.IsTooLong(err) {
			m.Lines++
			continue
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("cannot measure %s: %w", name, vfs.Cause(err))
		}
		m.Lines++
		p.Parse(line, &ev)
		t, ok := ev.Time, !ev.Time.IsZero()
		if !ok && ev.Format == record.Text {
			if at, found := stamp.FindText(ev.Line, time.UTC, nil); found && at.Yearless {
				t, ok = clock.year(at.Time), true
			}
		}
		if ok {
			m.Timed++
			if m.First.IsZero() || t.Before(m.First) {
				m.First = t
			}
			if t.After(m.Last) {
				m.Last = t
			}
			second, counting = t.Unix(), true
		}
		if counting {
			seconds[second]++
			peak = max(peak, seconds[second])
			if len(seconds) > MaxSeconds {
				last := seconds[second]
				clear(seconds)
				seconds[second] = last
			}
		}
	}
	m.Bytes = src.Offset()
	if m.Lines == 0 {
		return nil, fmt.Errorf("cannot measure: %s is empty", name)
	}
	m.MeanBytes = float64(m.Bytes) / float64(m.Lines)
	if m.Timed > 0 {
		m.PeakRate = float64(peak)
		// The first and the last second count as whole seconds, so the log covers at least one
		// second.
		m.MeanRate = float64(m.Lines) / max(m.Span().Seconds(), 1)
	}
	return m, nil
}

// compressed returns the compression of the input, and a command that decompresses it. If the input
// is not compressed, both are "".
func compressed(in *bufio.Reader) (kind, with string) {
	head, _ := in.Peek(4) // if an error occurs, the next Read returns it
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return "gzip", "zcat"
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		return "zstd", "zstdcat"
	}
	return "", ""
}

// yearless assigns consecutive years to times without a year.
type yearless struct {
	last  time.Time
	years int
}

func (y *yearless) year(t time.Time) time.Time {
	if t.Month() == time.January && y.last.Month() == time.December {
		y.years++
	} else if t.Month() == time.December && y.last.Month() == time.January && !y.last.IsZero() && y.years > 0 {
		y.years-- // December after January is December of the previous year
	}
	y.last = t
	return t.AddDate(y.years, 0, 0)
}
