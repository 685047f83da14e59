package tail

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/join"
)

// An output makes records of lines and passes them to the sink.
type output struct {
	o       *Options
	sink    Sink
	limits  join.Limits
	stopped atomic.Bool // no more records are passed

	decoder charset.Decoder
	ended   []byte // a record that was given its '\n'
	cutting bool   // the line that is being passed has no end
}

// A holder makes records of the lines of a series.
type holder = *join.Joiner[place]

// cut marks the record that put gives the sink as one without its end.
func (out *output) cut(put func() error) error {
	out.cutting = true
	err := put()
	out.cutting = false
	return err
}

// carriedLine passes a line that begins in an earlier generation to the sink.
func (out *output) carriedLine(s *series, end []byte, off int64, now time.Time) error {
	start := s.rest.start
	line := append(s.rest.text[:len(s.rest.text):len(s.rest.text)], end...)
	return out.line(s, line, func() place { return start }, off, now)
}

// line passes a line that begins at start to the sink, in UTF-8, or its length if it is too long. After
// an error, which is the sink's, the line was not accepted.
func (out *output) line(s *series, line []byte, start func() place, end int64, now time.Time) error {
	text, ok := out.decoder.Line(s.charset, line, out.o.MaxRecord)
	if !ok {
		return out.give(Line{Source: s.src, TooLong: int64(len(line))})
	}
	if out.o.Join == nil {
		return out.put(s, text, "", time.Time{})
	}
	if s.hold == nil {
		s.hold = out.newHold(s)
	}
	return s.hold.Line(text, start, end, now)
}

func (out *output) newHold(s *series) holder {
	put := func(r join.Record) error { return out.put(s, r.Text, r.Stream, r.Time) }
	return join.New[place](out.o.Join, &out.limits, put, func() {
		if !s.bare {
			s.bare = true
			out.o.report("%s: %s", s.path, join.Bare)
		}
	})
}

// put hands a record to the sink, with a newline at its end.
func (out *output) put(s *series, text []byte, stream string, at time.Time) error {
	return out.give(Line{Text: text, Source: s.src, Stream: stream, Time: at, Cut: out.cutting && !out.o.Once})
}

func (out *output) give(l Line) error {
	if out.stopped.Load() {
		return ErrStopped
	}
	if n := len(l.Text); l.TooLong == 0 && (n == 0 || l.Text[n-1] != '\n') {
		out.ended = append(append(out.ended[:0], l.Text...), '\n')
		l.Text = out.ended
	}
	return out.sink.Put(l)
}

// kind returns the kind of a file that is not text, "" for text.
func (o *Options) kind(r io.ReaderAt) string {
	var buf [512]byte
	n, _ := r.ReadAt(buf[:], 0)
	if o.Charset != nil { // any bytes may be text
		return compressed(buf[:n])
	}
	return binary(buf[:n])
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
