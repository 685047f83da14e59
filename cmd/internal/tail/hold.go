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
	stopped atomic.Bool // if true, pass returns ErrStopped

	decoder charset.Decoder
	ended   []byte // buffer in which pass adds a newline
	cutting bool   // pass sets Line.Cut
	begun   bool   // pass has called Sink.Begin
	passed  Line   // memory for the argument of Sink.Put
}

// end calls Sink.End if pass has called Sink.Begin. It is called after each read.
func (out *output) end() {
	if out.begun {
		out.begun = false
		out.sink.End()
	}
}

// cut calls the function put. In the record that put passes to the sink, Line.Cut is true.
func (out *output) cut(put func() error) error {
	out.cutting = true
	err := put()
	out.cutting = false
	return err
}

// carriedLine passes a line that begins in an earlier generation, so before a rotation of the file.
// rest is the part of the line in the current generation, and off is the offset of its end.
func (out *output) carriedLine(s *series, rest []byte, off int64, now time.Time) error {
	start := s.rest.start
	line := append(s.rest.text[:len(s.rest.text):len(s.rest.text)], rest...)
	return out.line(s, line, func() lineStart { return start }, off, now)
}

// line converts a line to UTF-8 and passes it to the sink, or adds it to an incomplete record. The
// function start returns the position of the start of the line, and end is the offset of its end.
// If the line is too long, only its length is passed. If line returns an error, the sink has not
// accepted the line.
func (out *output) line(s *series, line []byte, start func() lineStart, end int64, now time.Time) error {
	text, ok := out.decoder.Line(s.charset, line, out.o.MaxRecord)
	if !ok {
		return out.pass(Line{Source: s.src, TooLong: int64(len(line))})
	}
	if out.o.Join == nil {
		return out.put(s, text, "", time.Time{})
	}
	if s.joiner == nil {
		s.joiner = out.newJoiner(s)
	}
	return s.joiner.Line(text, start, end, now)
}

// newJoiner returns a lineJoiner for the lines of s.
func (out *output) newJoiner(s *series) lineJoiner {
	put := func(r join.Record) error { return out.put(s, r.Text, r.Stream, r.Time) }
	return join.New[lineStart](out.o.Join, &out.limits, put, func() {
		if !s.bareReported {
			s.bareReported = true
			out.o.report("%s: %s", s.path, join.Bare)
		}
	})
}

// put passes a record to the sink.
func (out *output) put(s *series, text []byte, stream string, at time.Time) error {
	return out.pass(Line{Text: text, Source: s.src, Stream: stream, Time: at, Cut: out.cutting && !out.o.Once})
}

// pass passes l to the sink. If its text does not end in a newline, pass adds one.
func (out *output) pass(l Line) error {
	if out.stopped.Load() {
		return ErrStopped
	}
	if n := len(l.Text); l.TooLong == 0 && (n == 0 || l.Text[n-1] != '\n') {
		out.ended = append(append(out.ended[:0], l.Text...), '\n')
		l.Text = out.ended
	}
	if !out.begun {
		out.begun = true
		out.sink.Begin()
	}
	out.passed = l
	return out.sink.Put(&out.passed)
}

// kind returns the kind of a file that is not text, such as "binary". It returns "" for text.
func (o *Options) kind(r io.ReaderAt) string {
	var buf [512]byte
	n, _ := r.ReadAt(buf[:], 0)
	if o.Charset != nil { // in other charsets, text may contain any bytes
		return compressed(buf[:n])
	}
	return binary(buf[:n])
}

// compressed returns the kind of a compressed file, such as "compressed (gzip)", or "" for other
// files. b is the beginning of the file.
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

// binary returns the kind of a file that is not text, or "" for text. b is the beginning of the
// file. A file is binary if more than a third of b are control characters. NUL bytes at the start
// and end of b are not counted.
func binary(b []byte) string {
	if what := compressed(b); what != "" {
		return what
	}
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return "UTF-16, which needs the charset utf-16"
	}
	b = bytes.Trim(b, "\x00") // NUL bytes of sparse files, and reserved space
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
