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

// A reader reads the generations of each path in order and passes their lines to its output. Only
// the goroutine that called Run calls its methods.
type reader struct {
	o       *Options
	index   *index
	out     *output
	commits *commits
	buf     []byte
}

// finishAll passes incomplete records, and last lines without a newline, to the sink. It is called
// at the end if Options.Once is set.
func (r *reader) finishAll() error {
	defer r.out.end()
	now := r.o.now()
	for _, s := range r.index.allSeries() {
		for g := range r.readable(s) {
			r.index.mu.Lock()
			last, here := g == s.last(), g.state == current
			r.index.mu.Unlock()
			var err error
			switch {
			case !here:
				err = r.end(s, g, last, now)
			case r.hasPartialLine(s, g):
				err = r.passPartial(s, g, now)
			}
			if err != nil {
				return err
			}
		}
		if err := r.release(s, now, true); err != nil {
			return err
		}
	}
	return nil
}

// deliver passes the available lines to the sink. It returns the time at which it must be called
// again at the latest, or an error of the sink.
func (r *reader) deliver(ctx context.Context, now time.Time) (next time.Time, err error) {
	next = now.Add(time.Hour)
	work := r.index.queue.takeAll()
	for i, s := range work {
		due, err := r.step(ctx, s, now)
		r.out.end()
		if err == nil && r.out.stopped.Load() {
			err = ErrStopped
		}
		if !due.IsZero() || err != nil {
			r.index.queue.add(s)
			if err != nil {
				for _, s := range work[i:] {
					r.index.queue.add(s)
				}
			}
		}
		if err != nil {
			return next, err
		}
		if !due.IsZero() {
			next = soonest(next, due)
		}
	}
	return soonest(next, r.commits.commit(ctx, r.o.now())), nil
}

// step reads up to stepBytes of s. due is the time of the next step; if it is zero, no step is
// needed until a file changes. err is an error of the sink.
func (r *reader) step(ctx context.Context, s *series, now time.Time) (due time.Time, err error) {
	sooner := func(d time.Time) {
		if due.IsZero() || d.Before(due) {
			due = d
		}
	}
	for g := range r.readable(s) {
		r.index.mu.Lock()
		state, hasUnread := g.state, g.hasUnread()
		over := g.isComplete(now, r.index.scans, r.o.RotateWait)
		last := g == s.last()
		r.index.mu.Unlock()
		if hasUnread && state != unavailable {
			if err := r.readSome(ctx, g, now); err != nil || !s.holdsTooMuch(g) {
				return now, err
			}
			return now, r.release(s, now, false)
		}
		open := r.hasPartialLine(s, g)
		switch {
		case state == unavailable, over:
			if err := r.end(s, g, last, now); err != nil {
				return now, err
			}
		case open && r.o.PartialWait > 0 && !now.Before(r.lastChange(g).Add(r.o.PartialWait)):
			if err := r.passPartial(s, g, now); err != nil {
				return now, err
			}
		case open && r.o.PartialWait > 0:
			sooner(r.lastChange(g).Add(r.o.PartialWait))
		}
		if state == moved && !over {
			sooner(later(now.Add(r.o.Poll), r.lastChange(g).Add(r.o.RotateWait)))
			if open {
				break // the rest of the line may still be written to g
			}
		}
	}
	if s.joiner != nil {
		if err := r.release(s, now, false); err != nil {
			return now, err
		}
		if s.joiner != nil {
			sooner(s.joiner.Due())
		}
	}
	r.index.forget(s)
	return due, nil
}

// readable yields the generations of s that were not read completely, oldest first.
func (r *reader) readable(s *series) func(func(*generation) bool) {
	return func(yield func(*generation) bool) {
		r.index.mu.Lock()
		gens := append([]*generation(nil), s.gens...)
		r.index.mu.Unlock()
		for _, g := range gens {
			r.index.mu.Lock()
			skip := g.s != s || g.dropped || g.state == read || g.state == skipped
			r.index.mu.Unlock()
			if !skip && !yield(g) {
				return
			}
		}
	}
}

// lastChange returns the time of the last change of g.
func (r *reader) lastChange(g *generation) time.Time {
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	return g.active
}

// hasPartialLine reports whether g ends with an unfinished line.
func (r *reader) hasPartialLine(s *series, g *generation) bool {
	if s.rest.kind == oversized && s.rest.in == g {
		return true
	}
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	return g.remainder == partialLine && g.at.off < g.size
}

// end is called when nothing more can be read from the generation g. All complete lines of g were
// passed to the sink. If g ends with an unfinished line, end keeps the line for the next
// generation. If last is true, g is the newest generation, and end passes the line to the sink.
func (r *reader) end(s *series, g *generation, last bool, now time.Time) error {
	r.index.mu.Lock()
	state, lost := g.state, int64(0)
	if state == unavailable {
		lost = g.unread()
	}
	r.index.mu.Unlock()
	switch {
	case lost > 0 || state == unavailable && s.rest.kind == oversized && s.rest.in == g:
		if err := r.abandon(s, g, now); err != nil {
			return err
		}
		r.o.reportLost(s, lost)
	case r.hasPartialLine(s, g) && last:
		if err := r.passPartial(s, g, now); err != nil {
			return err
		}
	case r.hasPartialLine(s, g):
		if err := r.carry(s, g); err != nil {
			return err
		}
	}
	switch {
	case s.rest.in != g:
	case last && s.rest.kind == cutOff: // no newer generation can contain the rest of the line
		s.rest = unfinished{}
	default:
		s.rest.in = nil
	}
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	r.commits.touch(s)
	if g.state == moved && g.otherPath != "" && !s.holds(g) {
		r.index.reattach(g, now)
		return nil
	}
	g.become(read)
	r.index.files.closeFile(g)
	r.index.unlist(g)
	if !r.index.stored() {
		r.index.drop(g)
	}
	return nil
}

// abandon ends an unfinished line of s whose rest can no longer be read.
func (r *reader) abandon(s *series, g *generation, now time.Time) (err error) {
	if s.rest.in != g && s.rest.in != nil {
		return nil
	}
	switch s.rest.kind {
	case oversized:
		err = r.out.pass(Line{Source: s.src, TooLong: s.rest.n})
	case carried:
		err = r.out.cut(func() error { return r.out.carriedLine(s, nil, 0, now) })
	}
	if err == nil {
		s.rest = unfinished{}
	}
	return err
}

// carry keeps the unfinished line at the end of g. The next generation can complete the line.
func (r *reader) carry(s *series, g *generation) error {
	if s.rest.kind == oversized {
		return nil
	}
	text, at, err := r.lastLine(g)
	if err != nil || len(text) == 0 {
		return nil
	}
	if s.rest.kind == carried { // the carried line does not end in g
		s.rest.text = append(s.rest.text, text...)
	} else if s.rest.kind == complete {
		s.rest = unfinished{kind: carried, start: lineStart{g, at}, text: bytes.Clone(text)}
	}
	if len(s.rest.text) > r.o.MaxRecord+1 {
		s.rest = unfinished{kind: oversized, start: s.rest.start, n: int64(len(s.rest.text))}
	}
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	g.at = g.data
	return nil
}

// lastLine returns the unfinished line at the end of g and its position.
func (r *reader) lastLine(g *generation) (text []byte, at position, err error) {
	r.index.mu.Lock()
	f, err := r.index.files.ensure(g)
	at, end := g.at, g.data.off
	if err == nil {
		g.s.charset = r.index.files.charsetOf(g, f)
	}
	r.index.mu.Unlock()
	if err != nil || end <= at.off || end-at.off >= int64(r.maxLineBytes(g.s.charset)) {
		return nil, at, err
	}
	text = make([]byte, end-at.off)
	if _, err := f.ReadAt(text, at.off); err != nil && err != io.EOF {
		return nil, at, err
	}
	return text[hole(g.s.charset, text):], at, nil
}

// readSome reads up to stepBytes of g. It reports read errors itself, and returns only errors of
// the sink.
func (r *reader) readSome(ctx context.Context, g *generation, now time.Time) error {
	r.index.mu.Lock()
	r.index.files.reading = g
	r.index.mu.Unlock()
	err := r.readLines(ctx, g, now)
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	r.index.files.reading = nil
	switch fe := (*fs.PathError)(nil); {
	case errors.Is(err, errReplaced), errors.Is(err, fs.ErrNotExist):
		r.index.observe(g.s, now)
		return nil
	case errors.As(err, &fe):
		r.index.unreadable(g, err)
		return nil
	case err == nil:
		g.failed = false
	}
	return err
}

// readLines reads up to stepBytes of g and passes the lines to the output.
func (r *reader) readLines(ctx context.Context, g *generation, now time.Time) error {
	s := g.s
	for passed := int64(0); passed < stepBytes; {
		if r.out.stopped.Load() {
			return ErrStopped
		}
		r.index.mu.Lock()
		if !g.hasUnread() || g.state == unavailable {
			r.index.mu.Unlock()
			return nil
		}
		f, err := r.index.files.ensure(g)
		at, size, h := g.at, g.size, g.head
		if err == nil {
			s.charset = r.index.files.charsetOf(g, f)
		}
		r.index.mu.Unlock()
		if err != nil {
			return err
		}
		if at.off == 0 {
			if what := r.o.kind(f); what != "" {
				r.index.mu.Lock()
				defer r.index.mu.Unlock()
				r.index.skip(g, what)
				return nil
			}
		}
		if s.rest.in == nil || s.rest.kind == complete {
			s.rest.in = g
		}
		if r.buf == nil {
			r.buf = make([]byte, initialBuf)
		}
		back := int(min(tailBytes, at.off))
		want := int(min(int64(len(r.buf)-back), size-at.off))
		n, err := f.ReadAt(r.buf[:back+want], at.off-int64(back))
		if err != nil && err != io.EOF {
			return err
		}
		if n <= back || sum(r.buf[:back]) != at.sum || at.off == 0 && !h.matches(f) {
			r.index.changed(g, f, now)
			return nil
		}
		used, err := r.passLines(g, r.buf[:n], back, at, now)
		r.out.end()
		if used > back {
			passed += int64(used - back)
			r.advance(ctx, g, positionIn(r.buf, used, at.off-int64(back)))
		}
		if err != nil {
			return err
		}
		if used > back {
			continue
		}
		// No complete line was found: p starts with NUL bytes, with a line that is too long or with
		// an unfinished line.
		switch {
		case r.buf[back] == 0 && zeros(r.buf[back:n]) == n-back:
			m, found, err := r.skipHole(f, s.charset, at.off, size)
			if errors.Is(err, io.ErrUnexpectedEOF) {
				r.index.changed(g, f, now)
				return nil
			}
			if err != nil {
				return err
			}
			if found {
				r.advance(ctx, g, m)
				continue
			}
			r.setRemainder(g, size, onlyNULs)
			return nil
		case n-back >= r.maxLineBytes(s.charset):
			start := lineStart{g, at}
			if s.rest.kind == carried && s.rest.in == g {
				start = s.rest.start
			}
			n = back + int(s.charset.RoundDown(at.off+int64(n-back))-at.off)
			s.rest = unfinished{kind: oversized, in: g, start: start, n: int64(n-back) + int64(len(s.rest.text))}
			r.advance(ctx, g, positionIn(r.buf, n, at.off-int64(back)))
		case n == len(r.buf):
			r.buf = make([]byte, min(2*len(r.buf), tailBytes+r.maxLineBytes(s.charset)))
		default:
			r.setRemainder(g, size, partialLine)
			return nil
		}
	}
	return nil
}

// advance sets the position of g to m. Everything before m was passed to the sink.
func (r *reader) advance(ctx context.Context, g *generation, m position) {
	r.index.mu.Lock()
	n := m.off - g.at.off
	g.at = m
	if r.index.files.recordSeen(g, m) {
		r.index.markUnsaved(g)
	}
	r.index.mu.Unlock()
	r.commits.touch(g.s)
	if r.commits.add(n) {
		r.commits.commit(ctx, r.o.now())
	}
}

// setRemainder sets g.remainder, unless the file has grown beyond size since it was read.
func (r *reader) setRemainder(g *generation, size int64, to remainder) {
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	if g.size == size {
		g.remainder = to
	}
}

// maxLineBytes returns the maximum size in the file of an accepted line, including its newline.
func (r *reader) maxLineBytes(c *charset.Charset) int { return r.o.MaxRecord + 2*c.Unit() }

// passLines passes the complete lines in p[at:] to the sink. pos is the position of p[at] in g.
// passLines returns the index in p after the last passed line, and an error of the sink.
func (r *reader) passLines(g *generation, p []byte, at int, pos position, now time.Time) (int, error) {
	s, base := g.s, pos.off-int64(at)
	cs := s.charset
	if pos.off == 0 {
		_, at = cs.Detect(p)
	}
	lf, cr := cs.Newline()
	for at < len(p) {
		rest := p[at:]
		continuesHere := s.rest.in == g
		if continuesHere && s.rest.kind == cutOff {
			// The beginning of this line was already delivered, without a newline. Skip the
			// newline.
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
		if continuesHere && s.rest.kind == oversized {
			if n == 0 {
				n = int(cs.RoundDown(int64(len(rest))))
				s.rest.n += int64(n)
				return at + n, nil
			}
			if err := r.out.pass(Line{Source: s.src, TooLong: s.rest.n + int64(n)}); err != nil {
				return at, err
			}
			at, s.rest = at+n, unfinished{in: g}
			continue
		}
		if rest[0] == 0 {
			if zeros(rest) == len(rest) {
				return at, nil
			}
			if empty := hole(cs, rest); empty > 0 {
				at += empty
				continue
			}
		}
		if n == 0 {
			return at, nil
		}
		line := rest[:n:n]
		var err error
		switch {
		case continuesHere && s.rest.kind == carried:
			err = r.out.carriedLine(s, line, base+int64(at+n), now)
			if err == nil {
				s.rest = unfinished{in: g}
			}
		case r.o.Join == nil: // the start of the line is not needed, and a closure for it would be allocated for each line
			err = r.out.line(s, line, nil, 0, now)
		default:
			start := at
			err = r.out.line(s, line, func() lineStart { return lineStart{g, positionIn(p, start, base)} }, base+int64(at+n), now)
		}
		if err != nil {
			return at, err
		}
		at += n
	}
	return at, nil
}

// skipHole returns the position of the first code unit at or after off that is not NUL. found is
// false if there is no such unit before size.
func (r *reader) skipHole(f *os.File, c *charset.Charset, off, size int64) (m position, found bool, err error) {
	for off < size {
		n, err := f.ReadAt(r.buf[:min(int64(len(r.buf)), size-off)], off)
		if err != nil && err != io.EOF {
			return m, false, err
		}
		if z := zeros(r.buf[:n]); z < n {
			m, err := positionAt(f, c.RoundDown(off+int64(z)))
			return m, err == nil, err
		}
		if n == 0 {
			return m, false, io.ErrUnexpectedEOF
		}
		off += int64(n)
	}
	return m, false, nil
}

// passPartial passes the unfinished line at the end of g to the sink.
func (r *reader) passPartial(s *series, g *generation, now time.Time) error {
	if s.rest.kind == oversized {
		if err := r.out.pass(Line{Source: s.src, TooLong: s.rest.n}); err != nil {
			return err
		}
		s.rest = unfinished{in: g}
		r.commits.touch(s)
		return nil
	}
	text, at, err := r.lastLine(g)
	if err != nil || len(text) == 0 {
		return nil
	}
	continuesHere := s.rest.in == g || s.rest.in == nil
	_, cr := s.charset.Newline()
	switch {
	case continuesHere && s.rest.kind == cutOff && string(text) == cr:
		return nil
	case continuesHere && s.rest.kind == carried:
		err = r.out.cut(func() error { return r.out.carriedLine(s, text, at.off+int64(len(text)), now) })
	default:
		err = r.out.cut(func() error {
			return r.out.line(s, text, func() lineStart { return lineStart{g, at} }, at.off+int64(len(text)), now)
		})
	}
	if err != nil {
		return err
	}
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	g.at, g.remainder = g.data, readable
	s.rest = unfinished{kind: cutOff, in: g}
	r.commits.touch(s)
	return nil
}

// release passes the incomplete records of s to the sink if their waiting time is over. If the
// parameter all is true, it passes all of them.
func (r *reader) release(s *series, now time.Time, all bool) error {
	if s.joiner == nil {
		return nil
	}
	if err := s.joiner.Release(now, all); err != nil {
		return err
	}
	if s.joiner.Empty() {
		s.joiner = nil
	}
	r.commits.touch(s)
	return nil
}

// soonest returns the earlier of a and b.
func soonest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// later returns the later of a and b.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
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

// hole returns the number of NUL bytes at the beginning of p, rounded down to complete code units.
func hole(c *charset.Charset, p []byte) int { return int(c.RoundDown(int64(zeros(p)))) }
