package tail

import (
	"bytes"
	"time"
)

// Lines that may go on are held in a file's hold, for a bounded time.
type hold struct {
	streams []*stream // stdout, stderr, or the file itself
}

// A stream holds a line that a container runtime has cut, and a record of several
// lines.
type stream struct {
	name  string
	part  piece
	group piece
	rule  rule
	state uint8
}

// A piece is a record that is not complete yet. It holds something if lines > 0.
type piece struct {
	text        []byte
	start       mark
	lines       int
	first, last time.Time // when it began and was added to
	time        time.Time // of a container's line
}

func (p *piece) add(text []byte, start mark, at time.Time, now time.Time) {
	if p.lines == 0 {
		p.start, p.first, p.time = start, now, at
	}
	p.text = append(p.text, text...)
	p.lines++
	p.last = now
}

func (p *piece) reset() { *p = piece{} }

// tooOld reports whether what is missing has had its time.
func (p *piece) tooOld(now time.Time, wait time.Duration) bool {
	return p.lines > 0 && (now.Sub(p.last) >= wait || now.Sub(p.first) >= longestHold*wait)
}

// longestHold is how many times Options.JoinWait a record may grow.
const longestHold = 10

// stream returns the stream of that name.
func (h *hold) stream(name string) *stream {
	for _, s := range h.streams {
		if s.name == name {
			return s
		}
	}
	s := &stream{name: name}
	h.streams = append(h.streams, s)
	return s
}

// start returns where the oldest line that is held begins.
func (h *hold) start(m mark) mark {
	for _, s := range h.streams {
		for _, p := range []*piece{&s.part, &s.group} {
			if p.lines > 0 && p.start.off < m.off {
				m = p.start
			}
		}
	}
	return m
}

func (h *hold) empty() bool {
	for _, s := range h.streams {
		if s.part.lines > 0 || s.group.lines > 0 {
			return false
		}
	}
	return true
}

// line takes a line of f that begins at start. An error is the sink's; the line was not
// taken then.
func (t *Tailer) line(f *follow, line []byte, start func() mark, now time.Time) error {
	if t.o.Join == nil {
		return t.put(f, line, "", time.Time{})
	}
	if f.hold == nil {
		f.hold = &hold{}
	}
	w, ok := t.o.Join.unwrap(line)
	if !ok {
		if t.o.Join.wraps() && !f.bare {
			f.bare = true
			t.say("%s: a line is not as a container runtime writes it; such lines are delivered as they are", f.path)
		}
		return t.join(f, f.hold.stream(""), line, start, time.Time{}, now)
	}
	s := f.hold.stream(w.stream)
	if s.part.lines > 0 && (len(s.part.text)+len(w.text) > t.o.MaxRecord || s.part.lines >= t.o.JoinLines) {
		if err := t.endPart(f, s, now); err != nil {
			return err
		}
	}
	if w.partial {
		s.part.add(w.text, start(), w.time, now)
		t.holding[f] = true
		return nil
	}
	if s.part.lines == 0 {
		return t.join(f, s, w.text, start, w.time, now)
	}
	whole := append(s.part.text, w.text...)
	from, at := s.part.start, s.part.time
	if err := t.join(f, s, whole, func() mark { return from }, at, now); err != nil {
		return err
	}
	s.part.reset()
	return nil
}

// endPart takes what there is of a line that a container runtime has cut as all of it.
func (t *Tailer) endPart(f *follow, s *stream, now time.Time) error {
	from := s.part.start
	if err := t.join(f, s, append(s.part.text, '\n'), func() mark { return from }, s.part.time, now); err != nil {
		return err
	}
	s.part.reset()
	return nil
}

// join puts a line of a stream, or holds it.
func (t *Tailer) join(f *follow, s *stream, line []byte, start func() mark, at, now time.Time) error {
	if g := &s.group; g.lines > 0 {
		after, joins := s.rule.next(s.state, line)
		fits := len(g.text)+len(line) <= t.o.MaxRecord && g.lines < t.o.JoinLines
		if joins && fits {
			g.add(line, start(), at, now)
			s.state = after
			return nil
		}
		if err := t.endGroup(f, s); err != nil {
			return err
		}
		if joins { // it goes on as another record
			s.state = after
			g.add(line, start(), at, now)
			t.holding[f] = true
			return nil
		}
	}
	if s.rule, s.state = t.o.Join.begin(line); s.rule == nil {
		return t.put(f, line, s.name, at)
	}
	s.group.add(line, start(), at, now)
	t.holding[f] = true
	return nil
}

func (t *Tailer) endGroup(f *follow, s *stream) error {
	if err := t.put(f, s.group.text, s.name, s.group.time); err != nil {
		return err
	}
	s.group.reset()
	return nil
}

// release puts what f holds and what has had its time; all of it if that is asked for.
func (t *Tailer) release(f *follow, now time.Time, all bool) error {
	if f.hold == nil {
		return nil
	}
	for _, s := range f.hold.streams {
		if s.part.lines > 0 && (all || s.part.tooOld(now, t.o.JoinWait)) {
			if err := t.endPart(f, s, now); err != nil {
				return err
			}
		}
		if s.group.lines > 0 && (all || s.group.tooOld(now, t.o.JoinWait)) {
			if err := t.endGroup(f, s); err != nil {
				return err
			}
		}
	}
	if f.hold.empty() {
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
