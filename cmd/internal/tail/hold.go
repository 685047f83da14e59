package tail

import (
	"bytes"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/join"
)

// line takes a line of f that begins at start and ends at end. An error is the sink's; the
// line was not taken then.
func (t *Tailer) line(f *follow, line []byte, start func() mark, end int64, now time.Time) error {
	if t.o.Join == nil {
		return t.put(f, line, "", time.Time{})
	}
	if f.hold == nil {
		f.hold = t.newHold(f)
	}
	if err := f.hold.Line(line, start, end, now); err != nil {
		return err
	}
	if !f.hold.Empty() {
		t.holding[f] = true
	}
	return nil
}

// newHold returns what makes records of the lines of f.
func (t *Tailer) newHold(f *follow) *join.Joiner[mark] {
	put := func(r join.Record) error { return t.put(f, r.Text, r.Stream, r.Time) }
	return join.New[mark](t.o.Join, &t.limits, put, func() {
		if !f.bare {
			f.bare = true
			t.say("%s: %s", f.path, join.Bare)
		}
	})
}

// release puts what f holds and what has had its time; all of it if that is asked for.
func (t *Tailer) release(f *follow, now time.Time, all bool) error {
	if f.hold == nil {
		return nil
	}
	if err := f.hold.Release(now, all); err != nil {
		return err
	}
	if f.hold.Empty() {
		f.hold = nil
		delete(t.holding, f)
	}
	return nil
}

// put hands a record to the sink, with a newline at its end.
func (t *Tailer) put(f *follow, text []byte, stream string, at time.Time) error {
	if t.stopped.Load() {
		return ErrStopped
	}
	if n := len(text); n == 0 || text[n-1] != '\n' {
		t.ended = append(append(t.ended[:0], text...), '\n')
		text = t.ended
	}
	t.dirty = true
	return t.sink.Put(Line{Text: text, Source: f.src, Stream: stream, Time: at})
}

// binary says what a file is that is not text, "" for text, by its first bytes.
func binary(b []byte) string {
	for _, m := range []struct{ magic, name string }{
		{"\x1f\x8b", "compressed (gzip)"}, {"\x28\xb5\x2f\xfd", "compressed (zstd)"}, {"BZh", "compressed (bzip2)"},
		{"\xfd7zXZ\x00", "compressed (xz)"}, {"\x04\x22\x4d\x18", "compressed (lz4)"}, {"PK\x03\x04", "compressed (zip)"},
	} {
		if bytes.HasPrefix(b, []byte(m.magic)) {
			return m.name
		}
	}
	if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return "UTF-16"
	}
	b = bytes.Trim(b, "\x00") // holes, and room for more
	odd := 0
	for _, c := range b {
		if c < ' ' && (c < '\b' || c > '\r') && c != 0x1b {
			odd++
		}
	}
	if odd*10 > len(b) {
		return "binary"
	}
	return ""
}
