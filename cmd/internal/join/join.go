// Package join combines several lines to one record: the lines of a stack trace, and the parts of a
// line that a container runtime has split.
package join

import (
	"time"
)

// Limits limit how much a [Joiner] holds, and for how long.
type Limits struct {
	MaxRecord int           // maximum number of bytes of a record
	MaxLines  int           // maximum number of lines of a record; 0 means 1000
	Wait      time.Duration // maximum time that a record waits for its next line; 0 means 1 s
}

// Default replaces zero limits by their defaults.
func (l *Limits) Default() {
	if l.MaxLines == 0 {
		l.MaxLines = 1000
	}
	if l.Wait == 0 {
		l.Wait = time.Second
	}
}

// maxWaits limits the time from the first line of a record to its release, as a multiple of
// Limits.Wait.
const maxWaits = 10

// A Record is one line, or several lines that belong together.
type Record struct {
	Text   []byte // ends in '\n'; valid until put returns
	End    int64  // position of the end of its last line
	Stream string // stdout or stderr if a container runtime wrote the line, otherwise ""
	Time   time.Time
}

// A Joiner combines the lines of one file or stream to records. It holds a line that may continue,
// for a limited time. P is the type of a line's start position. A Joiner is not safe for concurrent
// use.
type Joiner[P any] struct {
	rules   *Rules
	limits  *Limits
	put     func(Record) error
	bare    func()
	streams []*stream[P] // one per stream of a container, or one for the input
	passing *piece[P]    // the piece that put is being called with, if any
}

// New returns a Joiner that passes records to put. If put returns an error, it has not accepted the
// record: the Joiner continues to hold it, or Line returns the error. bare is called for each line
// that should have the format of a container runtime but does not. Joiners may share rules and
// limits.
func New[P any](rules *Rules, limits *Limits, put func(Record) error, bare func()) *Joiner[P] {
	return &Joiner[P]{rules: rules, limits: limits, put: put, bare: bare}
}

// A stream contains the held lines of one output stream: part is a line of which parts are missing,
// and group is a record whose lines may not be complete.
type stream[P any] struct {
	name  string
	part  piece[P]
	group piece[P]
	rule  rule
	state uint8
}

// A piece is an incomplete record. It is empty if lines is 0.
type piece[P any] struct {
	text        []byte
	start       P
	end         int64
	lines       int
	first, last time.Time // when the first and the last line were added
	time        time.Time // time that a container runtime recorded
}

// A line is a complete line, possibly combined from parts.
type line[P any] struct {
	text  []byte
	start func() P
	end   int64
	time  time.Time // time that a container runtime recorded
	of    *piece[P] // the piece that held its parts, or nil
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

// due returns the time at which p no longer waits for more lines.
func (p *piece[P]) due(wait time.Duration) time.Time {
	due, latest := p.last.Add(wait), p.first.Add(maxWaits*wait)
	if latest.Before(due) {
		return latest
	}
	return due
}

// pieces yields the pieces that are held.
func (j *Joiner[P]) pieces(yield func(*piece[P]) bool) {
	for _, s := range j.streams {
		if s.part.lines > 0 && !yield(&s.part) || s.group.lines > 0 && !yield(&s.group) {
			return
		}
	}
}

// Held yields the start positions of the held records. During a call of put, the record passed to
// put is not included.
func (j *Joiner[P]) Held(yield func(P) bool) {
	for p := range j.pieces {
		if p != j.passing && !yield(p.start) {
			return
		}
	}
}

// Empty reports whether no line is held.
func (j *Joiner[P]) Empty() bool {
	for range j.pieces {
		return false
	}
	return true
}

// Due returns the time at which Release must be called next if no line arrives. At least one line
// must be held.
func (j *Joiner[P]) Due() (due time.Time) {
	for p := range j.pieces {
		if d := p.due(j.limits.Wait); due.IsZero() || d.Before(due) {
			due = d
		}
	}
	return due
}

// stream returns the stream with the given name, which it creates if necessary.
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

// Line adds a line that ends at end. start returns the position of its beginning and is called only
// if necessary. If put returns an error, Line returns it and has not accepted the line.
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
	if err := j.join(s, s.part.completed(w.text, end), now); err != nil {
		return err
	}
	s.part.reset()
	return nil
}

// completed returns the line that consists of the parts in p followed by text.
func (p *piece[P]) completed(text []byte, end int64) line[P] {
	from := p.start
	return line[P]{append(p.text, text...), func() P { return from }, end, p.time, p}
}

// endPart treats the parts of a line as a complete line, because its end has not arrived.
func (j *Joiner[P]) endPart(s *stream[P], now time.Time) error {
	if err := j.join(s, s.part.completed([]byte{'\n'}, s.part.end), now); err != nil {
		return err
	}
	s.part.reset()
	return nil
}

// join adds a complete line to the record of its stream, or passes it to put if it is a record.
func (j *Joiner[P]) join(s *stream[P], l line[P], now time.Time) error {
	if n := len(l.text); n == 0 || l.text[n-1] != '\n' { // the last line of the input may lack its newline
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
		if joins { // the record is full: its other lines become another record
			s.state = after
			g.add(l, now)
			return nil
		}
	}
	if s.rule, s.state = j.rules.begin(l.text); s.rule == nil {
		return j.pass(l.of, Record{l.text, l.end, s.name, l.time})
	}
	s.group.add(l, now)
	return nil
}

// endGroup passes the record of s to put.
func (j *Joiner[P]) endGroup(s *stream[P]) error {
	g := &s.group
	if err := j.pass(g, Record{g.text, g.end, s.name, g.time}); err != nil {
		return err
	}
	g.reset()
	return nil
}

// pass calls put with r. p is the piece that holds r, or nil.
func (j *Joiner[P]) pass(p *piece[P], r Record) error {
	j.passing = p
	err := j.put(r)
	j.passing = nil
	return err
}

// Release passes on the records that have waited until now, or all held records. If put returns an
// error, Release returns it.
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
