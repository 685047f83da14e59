package tail

import (
	"bytes"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/join"
)

// A holder makes records of the lines of a series.
type holder = *join.Joiner[place]

// line passes a line that begins at start to the sink, in UTF-8. After an error, which is the
// sink's, the line was not accepted.
func (t *Tailer) line(s *series, line []byte, start func() place, end int64, now time.Time) error {
	if s.charset != nil {
		if cap(t.decoded) > firstBuf {
			t.decoded = nil
		}
		t.decoded = s.charset.Append(t.decoded[:0], line)
		if t.tooLong(t.decoded, nil) {
			return t.give(Line{Source: s.src, TooLong: int64(len(line))})
		}
		line = t.decoded
	}
	if t.o.Join == nil {
		return t.put(s, line, "", time.Time{})
	}
	if s.hold == nil {
		s.hold = t.newHold(s)
	}
	return s.hold.Line(line, start, end, now)
}

func (t *Tailer) newHold(s *series) holder {
	put := func(r join.Record) error { return t.put(s, r.Text, r.Stream, r.Time) }
	return join.New[place](t.o.Join, &t.limits, put, func() {
		if !s.bare {
			s.bare = true
			t.report("%s: %s", s.path, join.Bare)
		}
	})
}

// release puts the records of s that have had their time at now, or all.
func (t *Tailer) release(s *series, now time.Time, all bool) error {
	if s.hold == nil {
		return nil
	}
	if err := s.hold.Release(now, all); err != nil {
		return err
	}
	if s.hold.Empty() {
		s.hold = nil
	}
	t.touch(s)
	return nil
}

// put hands a record to the sink, with a newline at its end.
func (t *Tailer) put(s *series, text []byte, stream string, at time.Time) error {
	return t.give(Line{Text: text, Source: s.src, Stream: stream, Time: at, Cut: t.cutting && !t.o.Once})
}

func (t *Tailer) give(l Line) error {
	if t.stopped.Load() {
		return ErrStopped
	}
	if n := len(l.Text); l.TooLong == 0 && (n == 0 || l.Text[n-1] != '\n') {
		t.ended = append(append(t.ended[:0], l.Text...), '\n')
		l.Text = t.ended
	}
	return t.sink.Put(l)
}

// compressed returns the kind of a compressed file, "" for others, by its first bytes.
func compressed(b []byte) string {
	for _, m := range []struct{ magic, name string }{
		{"\x1f\x8b", "compressed (gzip)"}, {"\x28\xb5\x2f\xfd", "compressed (zstd)"}, {"BZh", "compressed (bzip2)"},
		{"\xfd7zXZ\x00", "compressed (xz)"}, {"\x04\x22\x4d\x18", "compressed (lz4)"}, {"PK\x03\x04", "compressed (zip)"},
	} {
		if bytes.HasPrefix(b, []byte(m.magic)) {
			return m.name
		}
	}
	return ""
}

// binary returns the kind of a file that is not text, "" for text, by its first bytes. A file
// is binary if more than a third of them are control characters, not counting NUL bytes at either
// end.
func binary(b []byte) string {
	if what := compressed(b); what != "" {
		return what
	}
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return "UTF-16, which needs the charset utf-16"
	}
	b = bytes.Trim(b, "\x00") // holes, and space reserved for more lines
	odd := 0
	for _, c := range b {
		if c < ' ' && (c < '\b' || c > '\r') && c != 0x1b {
			odd++
		}
	}
	if 3*odd > len(b) {
		return "binary"
	}
	return ""
}
