// Package join combines several lines to one record: the lines of a stack trace, or the parts of a
// line that a container runtime has split.
package join

import "time"

// Limits limit the size of a record, and the time for which a [Joiner] holds it.
type Limits struct {
	MaxRecord int           // maximum size of a record in bytes
	MaxLines  int           // maximum number of lines of a record; default 1000
	Wait      time.Duration // maximum time between two lines of a record; default 1 s
}

// Default sets the fields that are zero to their defaults.
func (l *Limits) Default() {
	if l.MaxLines == 0 {
		l.MaxLines = 1000
	}
	if l.Wait == 0 {
		l.Wait = time.Second
	}
}

// maxWaits*Limits.Wait is the maximum time for which a record is held.
const maxWaits = 10

// A Record is a line, or several lines that belong together.
type Record struct {
	Text   []byte // ends in '\n'; valid until the callback put returns
	End    int64  // position after the last line
	Stream string // stdout or stderr if a container runtime wrote the line, otherwise ""
	Time   time.Time
}

// A Joiner combines the lines of one input to records. It holds an incomplete record for a limited
// time. P is the type of the position at which a line starts. A Joiner is not safe for concurrent
// use.
type Joiner[P any] struct {
	rules     *Rules
	limits    *Limits
	put       func(Record) error
	otherLine func()
	streams   []*stream[P] // one for each stream of a container, or a single one for other lines
	passing   *pending[P]  // record that is being passed to put; nil if there is none
}

// New returns a Joiner that passes records to the function put. If put returns an error, it has not
// accepted the record, and the Joiner keeps the record. The method that has called put returns the
// error. The Joiner calls the function otherLine for each line that should have the format of a
// container runtime but does not. Joiners may share rules and limits.
func New[P any](rules *Rules, limits *Limits, put func(Record) error, otherLine func()) *Joiner[P] {
	return &Joiner[P]{rules: rules, limits: limits, put: put, otherLine: otherLine}
}

// A stream holds incomplete data of one output stream: a line whose last part has not arrived, and
// a record to which more lines may belong.
type stream[P any] struct {
	name        string
	partialLine pending[P]
	openRecord  pending[P]
	rule        rule  // rule that recognizes openRecord
	state       uint8 // state of the rule
}

// A pending is an incomplete record, or an incomplete line. If lines is 0, it is empty.
type pending[P any] struct {
	text        []byte
	start       P
	end         int64
	lines       int
	first, last time.Time // times at which the first and the last line were added
	time        time.Time // time that the container runtime recorded
}

// A line is a complete line. If a container runtime has split the line, parts is not nil.
type line[P any] struct {
	text  []byte
	start func() P
	end   int64
	time  time.Time   // time that the container runtime recorded
	parts *pending[P] // all parts except the last one; nil if the line was not split
}

// add appends l to the text of p. If l is the first line, its start and time become the start and
// time of p.
func (p *pending[P]) add(l line[P], now time.Time) {
	if p.lines == 0 {
		p.start, p.first, p.time = l.start(), now, l.time
	}
	p.text = append(p.text, l.text...)
	p.lines++
	p.last, p.end = now, l.end
}

func (p *pending[P]) reset() { *p = pending[P]{} }

// due returns the time until which p may wait for more lines.
func (p *pending[P]) due(wait time.Duration) time.Time {
	due, latest := p.last.Add(wait), p.first.Add(maxWaits*wait)
	if latest.Before(due) {
		return latest
	}
	return due
}

// nonEmpty yields the incomplete records and lines.
func (j *Joiner[P]) nonEmpty(yield func(*pending[P]) bool) {
	for _, s := range j.streams {
		if s.partialLine.lines > 0 && !yield(&s.partialLine) || s.openRecord.lines > 0 && !yield(&s.openRecord) {
			return
		}
	}
}

// Held yields the start positions of the held records. A record that is being passed to the
// function put does not count as held.
func (j *Joiner[P]) Held(yield func(P) bool) {
	for p := range j.nonEmpty {
		if p != j.passing && !yield(p.start) {
			return
		}
	}
}

// Empty reports whether no record is held.
func (j *Joiner[P]) Empty() bool {
	for range j.nonEmpty {
		return false
	}
	return true
}

// Due returns the time at which Release must be called, unless another line arrives before that
// time. The Joiner must hold a record.
func (j *Joiner[P]) Due() (due time.Time) {
	for p := range j.nonEmpty {
		if d := p.due(j.limits.Wait); due.IsZero() || d.Before(due) {
			due = d
		}
	}
	return due
}

// stream returns the stream with the given name, and creates it if necessary.
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

// Line adds a line. The function start returns the position at which the line starts, and end is
// the position at which it ends. If Line returns an error of put, it has not accepted the line.
func (j *Joiner[P]) Line(text []byte, start func() P, end int64, now time.Time) error {
	w, ok := j.rules.parseContainerLine(text)
	if !ok {
		if j.rules.requiresContainerLine() {
			j.otherLine()
		}
		return j.join(j.stream(""), line[P]{text, start, end, time.Time{}, nil}, now)
	}
	s := j.stream(w.stream)
	if s.partialLine.lines > 0 && (len(s.partialLine.text)+len(w.text) > j.limits.MaxRecord || s.partialLine.lines >= j.limits.MaxLines) {
		if err := j.endPartialLine(s, now); err != nil {
			return err
		}
	}
	l := line[P]{w.text, start, end, w.time, nil}
	if w.partial {
		s.partialLine.add(l, now)
		return nil
	}
	if s.partialLine.lines == 0 {
		return j.join(s, l, now)
	}
	if err := j.join(s, s.partialLine.completed(w.text, end), now); err != nil {
		return err
	}
	s.partialLine.reset()
	return nil
}

// completed returns the complete line. p contains its first parts, and text is the last part.
func (p *pending[P]) completed(text []byte, end int64) line[P] {
	from := p.start
	return line[P]{append(p.text, text...), func() P { return from }, end, p.time, p}
}

// endPartialLine ends a line whose last part has not arrived. It joins the received parts as if
// they were the complete line.
func (j *Joiner[P]) endPartialLine(s *stream[P], now time.Time) error {
	if err := j.join(s, s.partialLine.completed([]byte{'\n'}, s.partialLine.end), now); err != nil {
		return err
	}
	s.partialLine.reset()
	return nil
}

// join adds a complete line to the incomplete record of s. If the line does not belong to that
// record, the record is complete: join passes it on, and the line begins a new record.
func (j *Joiner[P]) join(s *stream[P], l line[P], now time.Time) error {
	if n := len(l.text); n == 0 || l.text[n-1] != '\n' { // add a newline, which only the last line of an input can lack
		l.text = append(l.text[:n:n], '\n')
	}
	if g := &s.openRecord; g.lines > 0 {
		after, joins := s.rule.next(s.state, l.text)
		fits := len(g.text)+len(l.text) <= j.limits.MaxRecord && g.lines < j.limits.MaxLines
		if joins && fits {
			g.add(l, now)
			s.state = after
			return nil
		}
		if err := j.endRecord(s); err != nil {
			return err
		}
		if joins { // the record is full; the line begins another record in the same state
			s.state = after
			g.add(l, now)
			return nil
		}
	}
	if s.rule, s.state = j.rules.begin(l.text); s.rule == nil {
		return j.pass(l.parts, Record{l.text, l.end, s.name, l.time})
	}
	s.openRecord.add(l, now)
	return nil
}

// endRecord passes the incomplete record of s to put.
func (j *Joiner[P]) endRecord(s *stream[P]) error {
	g := &s.openRecord
	if err := j.pass(g, Record{g.text, g.end, s.name, g.time}); err != nil {
		return err
	}
	g.reset()
	return nil
}

// pass calls the function put with r. If the Joiner holds the data of r, p is this data. If not, p
// is nil.
func (j *Joiner[P]) pass(p *pending[P], r Record) error {
	j.passing = p
	err := j.put(r)
	j.passing = nil
	return err
}

// Release passes all records that have waited long enough to the function put. If the parameter all
// is true, it passes all held records. If put returns an error, Release returns the error.
func (j *Joiner[P]) Release(now time.Time, all bool) error {
	isDue := func(p *pending[P]) bool {
		return p.lines > 0 && (all || !now.Before(p.due(j.limits.Wait)))
	}
	for _, s := range j.streams {
		if isDue(&s.partialLine) {
			if err := j.endPartialLine(s, now); err != nil {
				return err
			}
		}
		if isDue(&s.openRecord) {
			if err := j.endRecord(s); err != nil {
				return err
			}
		}
	}
	return nil
}
