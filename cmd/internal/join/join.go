// Package join makes records of several lines: stack traces, and lines that a container
// runtime has cut and wrapped.
package join

import (
	"time"
)

// Limits bound what a [Joiner] holds.
type Limits struct {
	MaxRecord int           // bytes of a record
	MaxLines  int           // lines of a record; 0: 1000
	Wait      time.Duration // how long a record waits for another line; 0: 1 s
}

// Default sets the limits that are zero.
func (l *Limits) Default() {
	if l.MaxLines == 0 {
		l.MaxLines = 1000
	}
	if l.Wait == 0 {
		l.Wait = time.Second
	}
}

// longest is how many times Limits.Wait a record may grow.
const longest = 10

// A Record is one line, or several that belong together.
type Record struct {
	Text   []byte // with '\n' at its end; valid until put returns
	End    int64  // where its last line ends
	Stream string // stdout or stderr, if the line has the format of a container runtime
	Time   time.Time
}

// A Joiner joins the lines of one file or stream to records. It holds a line that may continue, for
// a bounded time. P is the position of the beginning of a line. A Joiner is not for concurrent use.
type Joiner[P any] struct {
	rules   *Rules
	limits  *Limits
	put     func(Record) error
	bare    func()
	streams []*stream[P] // stdout, stderr, or the input itself
	leaving *piece[P]    // what put is being called with; nil: something else
}

// New returns a Joiner that gives records to put. An error of put means that the record
// was not taken: the Joiner holds it on, or its line was not taken. bare is called for
// each line that should be wrapped as a container runtime does it, and is not. Joiners may
// share rules and limits.
func New[P any](rules *Rules, limits *Limits, put func(Record) error, bare func()) *Joiner[P] {
	return &Joiner[P]{rules: rules, limits: limits, put: put, bare: bare}
}

// A stream holds a line that a container runtime has cut, and a record of several
// lines.
type stream[P any] struct {
	name  string
	part  piece[P]
	group piece[P]
	rule  rule
	state uint8
}

// A piece is a record that is not complete yet. It holds something if lines > 0.
type piece[P any] struct {
	text        []byte
	start       P
	end         int64
	lines       int
	first, last time.Time // when it began and was added to
	time        time.Time // of a container's line
}

// A line is one, or what a container runtime has made several of.
type line[P any] struct {
	text  []byte
	start func() P
	end   int64
	time  time.Time // that a container runtime has noted
	of    *piece[P] // that it was held in; nil: none
}

func (p *piece[P]) add(l line[P], now time.Time) {
	if p.lines == 0 {
		p.start, p.first, p.time = l.start(), now, l.time
	}
	p.text = append(p.text, l.text...)
	p.lines++
	p.last, p.end = now, l.end
}

func (p *piece[P]) reset() { *p = piece[P]{} }

// due returns when the wait for the rest of p ends.
func (p *piece[P]) due(wait time.Duration) time.Time {
	due, latest := p.last.Add(wait), p.first.Add(longest*wait)
	if latest.Before(due) {
		return latest
	}
	return due
}

// pieces yields the held pieces.
func (j *Joiner[P]) pieces(yield func(*piece[P]) bool) {
	for _, s := range j.streams {
		if s.part.lines > 0 && !yield(&s.part) || s.group.lines > 0 && !yield(&s.group) {
			return
		}
	}
}

// Held yields where records begin that are held. The one that put is being called with is
// none of them.
func (j *Joiner[P]) Held(yield func(P) bool) {
	for p := range j.pieces {
		if p != j.leaving && !yield(p.start) {
			return
		}
	}
}

// Empty reports whether nothing is held.
func (j *Joiner[P]) Empty() bool {
	for range j.pieces {
		return false
	}
	return true
}

// Due returns when Release has something to do, if no line comes. Something must be held.
func (j *Joiner[P]) Due() (due time.Time) {
	for p := range j.pieces {
		if d := p.due(j.limits.Wait); due.IsZero() || d.Before(due) {
			due = d
		}
	}
	return due
}

// stream returns the stream of that name.
func (j *Joiner[P]) stream(name string) *stream[P] {
	for _, s := range j.streams {
		if s.name == name {
			return s
		}
	}
	s := &stream[P]{name: name}
	j.streams = append(j.streams, s)
	return s
}

// Line adds a line that ends at end. start returns its beginning and is called only if needed. The
// error is that of put; the line was not accepted then.
func (j *Joiner[P]) Line(text []byte, start func() P, end int64, now time.Time) error {
	w, ok := j.rules.unwrap(text)
	if !ok {
		if j.rules.wraps() {
			j.bare()
		}
		return j.join(j.stream(""), line[P]{text, start, end, time.Time{}, nil}, now)
	}
	s := j.stream(w.stream)
	if s.part.lines > 0 && (len(s.part.text)+len(w.text) > j.limits.MaxRecord || s.part.lines >= j.limits.MaxLines) {
		if err := j.endPart(s, now); err != nil {
			return err
		}
	}
	l := line[P]{w.text, start, end, w.time, nil}
	if w.partial {
		s.part.add(l, now)
		return nil
	}
	if s.part.lines == 0 {
		return j.join(s, l, now)
	}
	if err := j.join(s, s.part.whole(w.text, end), now); err != nil {
		return err
	}
	s.part.reset()
	return nil
}

// whole is the line that text completes.
func (p *piece[P]) whole(text []byte, end int64) line[P] {
	from := p.start
	return line[P]{append(p.text, text...), func() P { return from }, end, p.time, p}
}

// endPart treats a partial line of a container runtime as complete.
func (j *Joiner[P]) endPart(s *stream[P], now time.Time) error {
	if err := j.join(s, s.part.whole([]byte{'\n'}, s.part.end), now); err != nil {
		return err
	}
	s.part.reset()
	return nil
}

// join puts a line of a stream, or holds it.
func (j *Joiner[P]) join(s *stream[P], l line[P], now time.Time) error {
	if n := len(l.text); n == 0 || l.text[n-1] != '\n' { // the last line
		l.text = append(l.text[:n:n], '\n')
	}
	if g := &s.group; g.lines > 0 {
		after, joins := s.rule.next(s.state, l.text)
		fits := len(g.text)+len(l.text) <= j.limits.MaxRecord && g.lines < j.limits.MaxLines
		if joins && fits {
			g.add(l, now)
			s.state = after
			return nil
		}
		if err := j.endGroup(s); err != nil {
			return err
		}
		if joins { // the rest continues as another record
			s.state = after
			g.add(l, now)
			return nil
		}
	}
	if s.rule, s.state = j.rules.begin(l.text); s.rule == nil {
		return j.give(l.of, Record{l.text, l.end, s.name, l.time})
	}
	s.group.add(l, now)
	return nil
}

func (j *Joiner[P]) endGroup(s *stream[P]) error {
	g := &s.group
	if err := j.give(g, Record{g.text, g.end, s.name, g.time}); err != nil {
		return err
	}
	g.reset()
	return nil
}

// give puts a record, which may have been held in p.
func (j *Joiner[P]) give(p *piece[P], r Record) error {
	j.leaving = p
	err := j.put(r)
	j.leaving = nil
	return err
}

// Release puts the pieces whose wait has ended at now, or all pieces. The error is that of put.
func (j *Joiner[P]) Release(now time.Time, all bool) error {
	over := func(p *piece[P]) bool {
		return p.lines > 0 && (all || !now.Before(p.due(j.limits.Wait)))
	}
	for _, s := range j.streams {
		if over(&s.part) {
			if err := j.endPart(s, now); err != nil {
				return err
			}
		}
		if over(&s.group) {
			if err := j.endGroup(s); err != nil {
				return err
			}
		}
	}
	return nil
}
