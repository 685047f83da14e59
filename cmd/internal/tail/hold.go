package tail

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/join"
)

// An output combines lines to records and passes them to the sink.
type output struct {
	o       *Options
	sink    Sink
	limits  join.Limits
	stopped atomic.Bool // no more records must be passed

	decoder charset.Decoder
	ended   []byte // memory for a record whose newline was added
	cutting bool   // the record that is being passed has no end
}

// A holder combines the lines of a series to records.
type holder = *join.Joiner[place]

// cut calls put, and marks the record that put passes to the sink as one without its end.
func (out *output) cut(put func() error) error {
	out.cutting = true
	err := put()
	out.cutting = false
	return err
}

// carriedLine passes a line that begins in an earlier generation.
func (out *output) carriedLine(s *series, end []byte, off int64, now time.Time) error {
	start := s.rest.start
	line := append(s.rest.text[:len(s.rest.text):len(s.rest.text)], end...)
	return out.line(s, line, func() place { return start }, off, now)
}

// line passes a line that begins at start, converted to UTF-8. If the line is too long, it passes
// only its length. An error is from the sink; the line was then not accepted.
func (out *output) line(s *series, line []byte, start func() place, end int64, now time.Time) error {
	text, ok := out.decoder.Line(s.charset, line, out.o.MaxRecord)
	if !ok {
		return out.pass(Line{Source: s.src, TooLong: int64(len(line))})
	}
	if out.o.Join == nil {
		return out.put(s, text, "", time.Time{})
	}
	if s.hold == nil {
		s.hold = out.newHold(s)
	}
	return s.hold.Line(text, start, end, now)
}

// newHold returns a holder for the lines of s.
func (out *output) newHold(s *series) holder {
	put := func(r join.Record) error { return out.put(s, r.Text, r.Stream, r.Time) }
	return join.New[place](out.o.Join, &out.limits, put, func() {
		if !s.bare {
			s.bare = true
			out.o.report("%s: %s", s.path, join.Bare)
		}
	})
}

// put passes a record, to which it adds a newline if necessary.
func (out *output) put(s *series, text []byte, stream string, at time.Time) error {
	return out.pass(Line{Text: text, Source: s.src, Stream: stream, Time: at, Cut: out.cutting && !out.o.Once})
}

func (out *output) pass(l Line) error {
	if out.stopped.Load() {
		return ErrStopped
	}
	if n := len(l.Text); l.TooLong == 0 && (n == 0 || l.Text[n-1] != '\n') {
		out.ended = append(append(out.ended[:0], l.Text...), '\n')
		l.Text = out.ended
	}
	return out.sink.Put(l)
}

// kind returns the kind of a file that is not text, or "" for text.
func (o *Options) kind(r io.ReaderAt) string {
	var buf [512]byte
	n, _ := r.ReadAt(buf[:], 0)
	if o.Charset != nil { // in another charset any bytes can be text
		return compressed(buf[:n])
	}
	return binary(buf[:n])
}

// compressed returns the kind of a compressed file by its first bytes, or "" for other files.
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

// binary returns the kind of a file by its first bytes, or "" for text. A file is binary if more
// than a third of the bytes are control characters. NUL bytes at either end are not counted.
func binary(b []byte) string {
	if what := compressed(b); what != "" {
		return what
	}
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return "UTF-16, which needs the charset utf-16"
	}
	b = bytes.Trim(b, "\x00") // holes, and reserved space
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
