package tail

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/charset"
)

// deliver passes the available lines to the sink, and returns when it must be called again. Its
// error is the sink's.
func (t *Tailer) deliver(ctx context.Context, now time.Time) (next time.Time, err error) {
	next = now.Add(time.Hour)
	t.mu.Lock()
	work := t.active
	t.active = nil
	for _, s := range work {
		s.queued = false
	}
	t.mu.Unlock()
	for i, s := range work {
		due, err := t.step(ctx, s, now)
		if err == nil && t.stopped.Load() {
			err = ErrStopped
		}
		if !due.IsZero() || err != nil {
			t.mu.Lock()
			t.queue(s)
			if err != nil {
				for _, s := range work[i:] {
					t.queue(s)
				}
			}
			t.mu.Unlock()
		}
		if err != nil {
			return next, err
		}
		if !due.IsZero() {
			next = soonest(next, due)
		}
	}
	return soonest(next, t.commit(ctx, t.now())), nil
}

func soonest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// queue has s looked at by the next deliver. The caller holds mu.
func (t *Tailer) queue(s *series) {
	if !s.queued {
		s.queued = true
		t.active = append(t.active, s)
	}
}

// wake is queue for the scanner: deliver begins now.
func (t *Tailer) wake(s *series) {
	t.queue(s)
	signal(t.ready)
}

// signal leaves a token in c, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// step reads up to turnBytes of s. It returns when s needs the next step; zero means when something
// changes. Its error is the sink's.
func (t *Tailer) step(ctx context.Context, s *series, now time.Time) (due time.Time, err error) {
	due = time.Time{}
	sooner := func(d time.Time) {
		if due.IsZero() || d.Before(due) {
			due = d
		}
	}
	for g := range t.readable(s) {
		t.mu.Lock()
		state, hasUnread := g.state, g.hasUnread()
		over := g.over(now, t.scans, t.o.RotateWait)
		last := g == s.last()
		t.mu.Unlock()
		if hasUnread && state != gone {
			if err := t.readSome(ctx, g, now); err != nil || !t.lags(s, g) {
				return now, err
			}
			return now, t.release(s, now, false)
		}
		open := t.openIn(s, g)
		switch {
		case state == gone, over:
			if err := t.end(s, g, last, now); err != nil {
				return now, err
			}
		case open && t.o.PartialWait > 0 && !now.Before(t.since(g).Add(t.o.PartialWait)):
			if err := t.takePartial(s, g, now); err != nil {
				return now, err
			}
		case open && t.o.PartialWait > 0:
			sooner(t.since(g).Add(t.o.PartialWait))
		}
		if state == moved && !over {
			sooner(later(now.Add(t.o.Poll), t.since(g).Add(t.o.RotateWait)))
			if open {
				break // its end may come yet
			}
		}
	}
	if s.hold != nil {
		if err := t.release(s, now, false); err != nil {
			return now, err
		}
		if s.hold != nil {
			sooner(s.hold.Due())
		}
	}
	t.forget(s)
	return due, nil
}

// lags reports whether a record has been held for so many bytes of g that it cannot be waited
// for until g is read.
func (t *Tailer) lags(s *series, g *generation) bool {
	if s.hold == nil {
		return false
	}
	for p := range s.hold.Held {
		if p.g != g || g.at.off-p.m.off > 4*turnBytes {
			return true
		}
	}
	return false
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// readable yields the generations of s that are not read, oldest first.
func (t *Tailer) readable(s *series) func(func(*generation) bool) {
	return func(yield func(*generation) bool) {
		t.mu.Lock()
		gens := append([]*generation(nil), s.gens...)
		t.mu.Unlock()
		for _, g := range gens {
			t.mu.Lock()
			skip := g.s != s || g.dropped || g.state == read || g.state == skipped
			t.mu.Unlock()
			if !skip && !yield(g) {
				return
			}
		}
	}
}

// since returns when g changed last.
func (t *Tailer) since(g *generation) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return g.active
}

// openIn reports whether g ends with a line that has no newline.
func (t *Tailer) openIn(s *series, g *generation) bool {
	if s.rest.kind == oversized && s.rest.in == g {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return g.stuck && !g.moot && g.at.off < g.size
}

// end ends g after all complete lines are read. The rest is the beginning of a line that continues
// in the next generation.
func (t *Tailer) end(s *series, g *generation, last bool, now time.Time) error {
	t.mu.Lock()
	state, lost := g.state, int64(0)
	if state == gone {
		lost = g.unread()
	}
	t.mu.Unlock()
	switch {
	case lost > 0 || state == gone && s.rest.kind == oversized && s.rest.in == g:
		if err := t.abandon(s, g, now); err != nil {
			return err
		}
		t.lose(s, lost)
	case t.openIn(s, g) && last:
		if err := t.takePartial(s, g, now); err != nil {
			return err
		}
	case t.openIn(s, g):
		if err := t.carry(s, g); err != nil {
			return err
		}
	}
	switch {
	case s.rest.in != g:
	case last && s.rest.kind == cutOff: // no other data completes it
		s.rest = unfinished{}
	default:
		s.rest.in = nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.touch(s)
	if g.state == moved && g.home != "" && !t.holds(s, g) {
		t.rehome(g, now)
		return nil
	}
	g.become(read)
	t.shut(g)
	if t.ids[g.id] == g {
		delete(t.ids, g.id)
	}
	if t.store == nil {
		t.drop(g)
	}
	return nil
}

// abandon ends a line whose end is lost with g.
func (t *Tailer) abandon(s *series, g *generation, now time.Time) (err error) {
	if s.rest.in != g && s.rest.in != nil {
		return nil
	}
	switch s.rest.kind {
	case oversized:
		err = t.give(Line{Source: s.src, TooLong: s.rest.n})
	case carried:
		err = t.cut(func() error { return t.carriedLine(s, nil, 0, now) })
	}
	if err == nil {
		s.rest = unfinished{}
	}
	return err
}

// cut marks the record that put gives the sink as one without its end.
func (t *Tailer) cut(put func() error) error {
	t.cutting = true
	err := put()
	t.cutting = false
	return err
}

// holds reports whether a record that is not complete begins in g.
func (t *Tailer) holds(s *series, g *generation) bool {
	for p := range s.open {
		if p.g == g {
			return true
		}
	}
	return false
}

// carry keeps the last line of g, which has no newline, for the next generation.
func (t *Tailer) carry(s *series, g *generation) error {
	if s.rest.kind == oversized {
		return nil
	}
	text, at, err := t.tail(g)
	if err != nil || len(text) == 0 {
		return nil
	}
	if s.rest.kind == carried { // and no line has ended since
		s.rest.text = append(s.rest.text, text...)
	} else if s.rest.kind == complete {
		s.rest = unfinished{kind: carried, start: place{g, at}, text: bytes.Clone(text)}
	}
	if len(s.rest.text) > t.o.MaxRecord+1 {
		s.rest = unfinished{kind: oversized, start: s.rest.start, n: int64(len(s.rest.text))}
	}
	t.advance(g, nil)
	return nil
}

// advance moves g to its end, or to m.
func (t *Tailer) advance(g *generation, m *mark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m == nil {
		g.at = g.data
		return
	}
	g.at = *m
}

// tail reads the last line of g, which has no newline.
func (t *Tailer) tail(g *generation) (text []byte, at mark, err error) {
	t.mu.Lock()
	f, err := t.ensure(g)
	at, end := g.at, g.data.off
	if err == nil {
		g.s.charset = t.charsetOf(g, f)
	}
	t.mu.Unlock()
	if err != nil || end <= at.off || end-at.off > int64(t.o.MaxRecord+2) {
		return nil, at, err
	}
	text = make([]byte, end-at.off)
	if _, err := f.ReadAt(text, at.off); err != nil && err != io.EOF {
		return nil, at, err
	}
	return text[hole(g.s.charset, text):], at, nil
}

// readSome reads up to turnBytes of g. Its error is the sink's.
func (t *Tailer) readSome(ctx context.Context, g *generation, now time.Time) error {
	t.mu.Lock()
	t.reading = g
	t.mu.Unlock()
	err := t.take(ctx, g, now)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading = nil
	switch fe := (*fs.PathError)(nil); {
	case errors.Is(err, errReplaced), errors.Is(err, fs.ErrNotExist):
		t.observe(g.s, now)
		return nil
	case errors.As(err, &fe):
		t.cannot(g, err)
		return nil
	case err == nil:
		g.failed = false
	}
	return err
}

func (t *Tailer) take(ctx context.Context, g *generation, now time.Time) error {
	s := g.s
	for taken := int64(0); taken < turnBytes; {
		if t.stopped.Load() {
			return ErrStopped
		}
		t.mu.Lock()
		if !g.hasUnread() || g.state == gone {
			t.mu.Unlock()
			return nil
		}
		f, err := t.ensure(g)
		at, size, h := g.at, g.size, g.head
		if err == nil {
			s.charset = t.charsetOf(g, f)
		}
		t.mu.Unlock()
		if err != nil {
			return err
		}
		if at.off == 0 {
			if what := t.kind(f); what != "" {
				t.skip(g, what)
				return nil
			}
		}
		if s.rest.in == nil || s.rest.kind == complete {
			s.rest.in = g
		}
		if t.buf == nil {
			t.buf = make([]byte, firstBuf)
		}
		back := int(min(tailBytes, at.off))
		want := int(min(int64(len(t.buf)-back), size-at.off))
		n, err := f.ReadAt(t.buf[:back+want], at.off-int64(back))
		if err != nil && err != io.EOF {
			return err
		}
		if n <= back || sum(t.buf[:back]) != at.sum || at.off == 0 && !h.matches(f) {
			t.changed(g, f, now)
			return nil
		}
		used, err := t.lines(g, t.buf[:n], back, at, now)
		if used > back {
			taken += int64(used - back)
			t.took(ctx, g, markIn(t.buf, used, at.off-int64(back)))
		}
		if err != nil {
			return err
		}
		if used > back {
			continue
		}
		// There is no end of a line in the data read.
		switch {
		case t.buf[back] == 0 && zeros(t.buf[back:n]) == n-back:
			m, found, err := t.skipHole(f, s.charset, at.off, size)
			if errors.Is(err, io.ErrUnexpectedEOF) {
				t.changed(g, f, now)
				return nil
			}
			if err != nil {
				return err
			}
			if found {
				t.took(ctx, g, m)
				continue
			}
			t.stick(g, size, true)
			return nil
		case n-back >= t.longest():
			start := place{g, at}
			if s.rest.kind == carried && s.rest.in == g {
				start = s.rest.start
			}
			n = back + int(s.charset.Whole(at.off+int64(n-back))-at.off)
			s.rest = unfinished{kind: oversized, in: g, start: start, n: int64(n-back) + int64(len(s.rest.text))}
			t.took(ctx, g, markIn(t.buf, n, at.off-int64(back)))
		case n == len(t.buf):
			t.buf = make([]byte, min(2*len(t.buf), tailBytes+t.longest()))
		default:
			t.stick(g, size, false)
			return nil
		}
	}
	return nil
}

// took notes that g is taken up to m.
func (t *Tailer) took(ctx context.Context, g *generation, m mark) {
	t.mu.Lock()
	t.uncommitted += m.off - g.at.off
	g.at = m
	t.seen(g, m)
	t.touch(g.s)
	t.mu.Unlock()
	if t.uncommitted >= commitBytes {
		t.commit(ctx, t.now())
	}
}

// stick notes that the rest of g, up to size, cannot be taken yet.
func (t *Tailer) stick(g *generation, size int64, moot bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.size == size {
		g.stuck, g.moot = true, moot
	}
}

// skip leaves g out.
func (t *Tailer) skip(g *generation, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveOut(g, what)
}

// leaveOut is skip for a caller that holds mu.
func (t *Tailer) leaveOut(g *generation, what string) {
	if g.state == gone {
		return
	}
	g.become(skipped)
	t.missed++
	t.shut(g)
	t.report("%s: it is %s; it is not followed", g.s.path, what)
}

// longest returns the number of bytes in which a line that is not too long ends.
func (t *Tailer) longest() int { return t.o.MaxRecord + 2*t.o.Charset.Unit() }

// charsetOf returns the charset of g, whose file is f. The caller holds mu.
func (t *Tailer) charsetOf(g *generation, f io.ReaderAt) *charset.Charset {
	if !g.detected && t.o.Charset != nil {
		var start [charset.MarkBytes]byte
		n, _ := f.ReadAt(start[:], 0)
		g.charset, _ = t.o.Charset.Detect(start[:n])
		g.detected = n == len(start)
	}
	return g.charset
}

// lines passes the lines in p[at:], which is at position from in g, to the sink. It returns the end
// of the last line passed. Its error is the sink's.
func (t *Tailer) lines(g *generation, p []byte, at int, from mark, now time.Time) (int, error) {
	s, base := g.s, from.off-int64(at)
	cs := s.charset
	if from.off == 0 {
		_, at = cs.Detect(p)
	}
	lf, cr := cs.Newline()
	for at < len(p) {
		rest := p[at:]
		mine := s.rest.in == g
		if mine && s.rest.kind == cutOff {
			// The end of a line whose beginning was delivered.
			if len(rest) < len(cr) || string(rest) == cr {
				return at, nil
			}
			if bytes.HasPrefix(rest, []byte(cr+lf)) {
				at += len(cr)
			}
			if bytes.HasPrefix(p[at:], []byte(lf)) {
				at += len(lf)
			}
			s.rest = unfinished{in: g}
			continue
		}
		n := cs.LineEnd(rest, base+int64(at))
		if mine && s.rest.kind == oversized {
			if n == 0 {
				n = int(cs.Whole(int64(len(rest))))
				s.rest.n += int64(n)
				return at + n, nil
			}
			if err := t.give(Line{Source: s.src, TooLong: s.rest.n + int64(n)}); err != nil {
				return at, err
			}
			at, s.rest = at+n, unfinished{in: g}
			continue
		}
		if zeros(rest) == len(rest) {
			return at, nil
		}
		if empty := hole(cs, rest); empty > 0 {
			at += empty
			continue
		}
		if n == 0 {
			return at, nil
		}
		line := rest[:n:n]
		var err error
		switch {
		case mine && s.rest.kind == carried:
			err = t.carriedLine(s, line, base+int64(at+n), now)
			if err == nil {
				s.rest = unfinished{in: g}
			}
		case t.tooLong(line, cs):
			err = t.give(Line{Source: s.src, TooLong: int64(n)})
		case t.o.Join == nil: // the function below would be an allocation for each line
			err = t.line(s, line, nil, 0, now)
		default:
			start := at
			err = t.line(s, line, func() place { return place{g, markIn(p, start, base)} }, base+int64(at+n), now)
		}
		if err != nil {
			return at, err
		}
		at += n
	}
	return at, nil
}

// carriedLine passes a line that begins in an earlier generation to the sink.
func (t *Tailer) carriedLine(s *series, end []byte, off int64, now time.Time) error {
	start := s.rest.start
	line := append(s.rest.text[:len(s.rest.text):len(s.rest.text)], end...)
	if t.tooLong(line, s.charset) {
		return t.give(Line{Source: s.src, TooLong: int64(len(line))})
	}
	return t.line(s, line, func() place { return start }, off, now)
}

// tooLong reports whether a line in charset c is longer than MaxRecord, without its end.
func (t *Tailer) tooLong(line []byte, c *charset.Charset) bool {
	if len(line) > t.o.MaxRecord {
		lf, cr := c.Newline()
		if text, ended := bytes.CutSuffix(line, []byte(lf)); ended {
			line = bytes.TrimSuffix(text, []byte(cr))
		}
	}
	return len(line) > t.o.MaxRecord
}

// zeros returns the number of NUL bytes at the beginning of p.
func zeros(p []byte) int {
	for i, c := range p {
		if c != 0 {
			return i
		}
	}
	return len(p)
}

// hole returns the number of NUL bytes at the beginning of p that belong to no other character.
func hole(c *charset.Charset, p []byte) int { return int(c.Whole(int64(zeros(p)))) }

// skipHole returns the end of the NUL bytes at off, if other bytes follow before size.
func (t *Tailer) skipHole(f *os.File, c *charset.Charset, off, size int64) (m mark, found bool, err error) {
	for off < size {
		n, err := f.ReadAt(t.buf[:min(int64(len(t.buf)), size-off)], off)
		if err != nil && err != io.EOF {
			return m, false, err
		}
		if z := zeros(t.buf[:n]); z < n {
			m, err := markAt(f, c.Whole(off+int64(z)))
			return m, err == nil, err
		}
		if n == 0 {
			return m, false, io.ErrUnexpectedEOF
		}
		off += int64(n)
	}
	return m, false, nil
}

// kind returns the kind of a file that is not text, "" for text.
func (t *Tailer) kind(r io.ReaderAt) string {
	var buf [512]byte
	n, _ := r.ReadAt(buf[:], 0)
	if t.o.Charset != nil { // any bytes may be text
		return compressed(buf[:n])
	}
	return binary(buf[:n])
}

// takePartial passes the last line of g, which has no newline, to the sink.
func (t *Tailer) takePartial(s *series, g *generation, now time.Time) error {
	if s.rest.kind == oversized {
		if err := t.give(Line{Source: s.src, TooLong: s.rest.n}); err != nil {
			return err
		}
		s.rest = unfinished{in: g}
		t.touch(s)
		return nil
	}
	text, at, err := t.tail(g)
	if err != nil || len(text) == 0 {
		return nil
	}
	mine := s.rest.in == g || s.rest.in == nil
	_, cr := s.charset.Newline()
	switch {
	case mine && s.rest.kind == cutOff && string(text) == cr:
		return nil
	case mine && s.rest.kind == carried:
		err = t.cut(func() error { return t.carriedLine(s, text, at.off+int64(len(text)), now) })
	case len(text) > t.o.MaxRecord:
		err = t.give(Line{Source: s.src, TooLong: int64(len(text))})
	default:
		err = t.cut(func() error {
			return t.line(s, text, func() place { return place{g, at} }, at.off+int64(len(text)), now)
		})
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g.at, g.stuck = g.data, false
	s.rest = unfinished{kind: cutOff, in: g}
	t.touch(s)
	return nil
}
