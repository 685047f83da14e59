package program

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/tool"
)

func TestLiveLineText(t *testing.T) {
	before := console.Progress{Records: 1000, Bytes: 1 << 20}
	now := console.Progress{Records: 2500, Bytes: 3 << 20, InUse: 3, Slabs: 8, Dropped: 12345}
	if got, want := console.LiveLine(before, now, 500*time.Millisecond, 80), "3000 records/s  4 MiB/s  slabs 3/8  dropped 12 345"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	now.Waiting, now.Failing = true, "file:x"
	if got, want := console.LiveLine(before, now, 500*time.Millisecond, 80), "3000 records/s  4 MiB/s  slabs 3/8  dropped 12 345  waiting  failing: file:x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := console.LiveLine(before, now, 0, 20); len(got) != 20 {
		t.Errorf("%q is not 20 wide", got)
	}
}

// A message replaces the live line on the terminal.
func TestMessageReplacesLiveLine(t *testing.T) {
	var out bytes.Buffer
	c := &console.Console{W: &out, Name: "web"}
	c.Say("one %d", 1)
	c.Show("live")
	c.Say("two")
	c.Show("live again")
	c.Clear()
	c.Clear()
	want := "web: one 1\n" + "\rlive\x1b[K" + "\r\x1b[K" + "web: two\n" + "\rlive again\x1b[K" + "\r\x1b[K"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestMeasureCountsLinesPerSecond(t *testing.T) {
	for _, c := range []struct {
		name, in     string
		lines, timed uint64
		bytes        int64
		peak, mean   float64
		span         time.Duration
	}{
		{name: "one second", in: "2024-01-01 00:00:00 a\n2024-01-01 00:00:00 b\n", lines: 2, timed: 2, bytes: 44, peak: 2, mean: 2},
		{name: "a trace counts to the line before", in: "2024-01-01 00:00:00 a\n\tat x\n\tat y\n2024-01-01 00:00:04 b\n", lines: 4, timed: 2, bytes: 56, peak: 3, mean: 1, span: 4 * time.Second},
		{name: "out of order", in: "2024-01-01 00:00:01 a\n2024-01-01 00:00:00 b\n2024-01-01 00:00:01 c\n", lines: 3, timed: 3, bytes: 66, peak: 2, mean: 3, span: time.Second},
		{name: "over New Year", in: "Dec 31 23:59:59 a\nJan  1 00:00:01 b\nDec 31 23:59:59 late\nJan  1 00:00:01 c\n", lines: 4, timed: 4, bytes: 75, peak: 2, mean: 2, span: 2 * time.Second},
		{name: "JSON and logfmt", in: "{\"ts\":1700000000}\nts=1700000002 level=info\n", lines: 2, timed: 2, bytes: 43, peak: 1, mean: 1, span: 2 * time.Second},
		{name: "no time", in: "a\nb", lines: 2, bytes: 3},
	} {
		m, err := tool.MeasureLog(c.name, strings.NewReader(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if m.Lines != c.lines || m.Timed != c.timed || m.Bytes != c.bytes || m.PeakRate != c.peak || m.MeanRate != c.mean || m.Span() != c.span {
			t.Errorf("%s: %+v, span %s", c.name, m, m.Span())
		}
	}
	if _, err := tool.MeasureLog("x", strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "x is empty") {
		t.Error(err)
	}
	for in, want := range map[string]string{"\x1f\x8b\x08\x00...": "x: it is compressed (gzip): zcat FILE", "\x28\xb5\x2f\xfd": "(zstd): zstdcat FILE"} {
		if m, err := tool.MeasureLog("x", strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want %q", m, err, want)
		}
	}
	// MeasureLog needs only limited memory for a log that covers many seconds.
	m, err := tool.MeasureLog("long", &seconds{n: tool.MaxSeconds + 1000})
	if err != nil || m.Lines != tool.MaxSeconds+1000 || m.PeakRate != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

// seconds is a reader of a log that has one line per second.
type seconds struct {
	n, done int
	rest    []byte
}

func (s *seconds) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if s.done == s.n {
			return 0, io.EOF
		}
		s.rest = time.Unix(int64(1_700_000_000+s.done), 0).UTC().AppendFormat(nil, "2006-01-02 15:04:05 x\n")
		s.done++
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}
