package record_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/values"
)

// newParser returns a parser for the lines of testdata/lines.txt.
func newParser() *record.Parser {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	return &record.Parser{Location: time.UTC, Now: func() time.Time { return now }}
}

// sampleLines returns the lines of testdata/lines.txt, each after its time and level.
func sampleLines(t testing.TB) (rows [][3]string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "lines.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for row := range strings.Lines(string(b)) {
		if c := strings.SplitN(strings.TrimSuffix(row, "\n"), "\t", 3); len(c) == 3 && row[0] != '#' {
			rows = append(rows, [3]string(c))
		}
	}
	if len(rows) < 120 {
		t.Fatalf("%d lines", len(rows))
	}
	return rows
}

// found returns the time and level of an event as in testdata/lines.txt.
func found(ev *record.Event) (at, level string) {
	at, level = "-", "-"
	if !ev.Time.IsZero() {
		at = ev.Time.UTC().Format(time.RFC3339Nano)
	}
	if ev.HasLevel {
		level = values.LevelName(ev.Level)
	}
	return at, level
}

// Parse finds the time and the level of each line of testdata/lines.txt.
func TestLinesOfKnownProgramsHaveLevelAndTime(t *testing.T) {
	p := newParser()
	for _, c := range sampleLines(t) {
		var ev record.Event
		p.Parse([]byte(c[2]), &ev)
		if at, level := found(&ev); at != c[0] || level != c[1] {
			t.Errorf("%s\n got %s %s\nwant %s %s", c[2], at, level, c[0], c[1])
		}
	}
}

// The output of the encoders is parsed as the same record: encoding it again gives the same bytes.
func TestOutputOfThisLibraryIsParsed(t *testing.T) {
	p := newParser()
	for _, c := range sampleLines(t) {
		for _, as := range []record.Encoding{record.AsJSON, record.AsLogfmt} {
			var first, second record.Event
			p.Parse([]byte(c[2]+"\n"), &first)
			out, err := record.NewEncoder(as).Append(nil, &first)
			if err != nil {
				t.Fatal(err)
			}
			p.Parse(out, &second)
			again, err := record.NewEncoder(as).Append(nil, &second)
			if err != nil || !bytes.Equal(out, again) {
				t.Errorf("%s\nas %s %s\nencoded again %s (%v)", c[2], as, out, again, err)
			}
			if !second.Time.Equal(first.Time) || second.Level != first.Level || second.HasLevel != first.HasLevel {
				t.Errorf("%s\nas %s: %v %v, parsed again %v %v", c[2], as, first.Time, first.Level, second.Time, second.Level)
			}
		}
	}
}
