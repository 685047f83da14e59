package fluent

import (
	"context"
	"fmt"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// No message of the Forward protocol refuses records. A server that cannot take
// one closes the connection, or never acknowledges its chunk, and will do so each
// time. Acknowledgements come in order from the servers that matter, so the
// chunk at fault is the first without one. After PoisonCloses such ends it is
// sent in halves, one at a time, until the record at fault is found.

const maxSuspects = 256

// suspectLocked notes that a connection ended at a chunk.
func (s *Client) suspectLocked(id chunkID) {
	if len(s.suspects) >= maxSuspects {
		clear(s.suspects)
	}
	s.suspects[id]++
}

// suspicious reports whether j has a chunk that has ended enough connections.
func (s *Client) suspicious(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.suspects) == 0 {
		return false
	}
	for i := range j.mem.lay.frames {
		if s.suspects[j.mem.lay.frames[i].id] >= s.c.PoisonCloses {
			return true
		}
	}
	return false
}

// outcome is what sending a part came to.
type outcome uint8

const (
	taken  outcome = iota
	ended          // it was sent, and the connection ended
	outage         // it could not be sent
)

// ask sends the records of j with the given indexes and waits for the answer.
func (s *Client) ask(j *job, indexes []int) (outcome, error) {
	ch := make(chan error, 1)
	p := &job{ctx: j.ctx, b: j.b.Select(nil, indexes), part: true, done: func(err error) { ch <- err }}
	p.stop = context.AfterFunc(j.ctx, func() { s.abort(p) })
	s.prepare(p)
	s.transmit(p)
	err := <-ch
	s.mu.Lock()
	sent := p.conn != nil
	s.mu.Unlock()
	switch {
	case err == nil:
		return taken, nil
	case !sent || j.ctx.Err() != nil || s.ctx.Err() != nil || batch.Inspect(err).Kind == batch.KindFatal:
		return outage, err
	}
	return ended, err
}

// A search finds the records of a job that the server cannot take.
type search struct {
	s   *Client
	j   *job
	bad []int
	why error // of the last bad one
	// doubtful records have ended the connection often enough, but the server has
	// not shown yet that it is well.
	doubtful []int
	last     error // of the last doubtful one
	taken    int   // requests that were acknowledged
	open     []int // not settled
	err      error // why
}

// interrogate sends j piece by piece.
func (s *Client) interrogate(j *job) {
	l := &j.mem.lay
	x := &search{s: s, j: j}
	for i := range l.frames {
		f := &l.frames[i]
		indexes := l.indexes(nil, f)
		s.mu.Lock()
		suspect := s.suspects[f.id] >= s.c.PoisonCloses
		s.mu.Unlock()
		if suspect {
			x.split(indexes)
		} else {
			x.try(indexes)
		}
		f.acked = true // what is open is named below
	}
	x.conclude()
	s.mu.Lock()
	refused := append(l.refused, x.bad...)
	s.mu.Unlock()
	if len(x.bad) > 0 {
		l.why = x.why
	}
	switch {
	case x.err != nil && len(x.open)+len(refused) < j.b.Len():
		l.named = true
		s.failed(j, batch.Partial(x.err, sorted(append(x.open, refused...))...))
	case x.err != nil:
		l.named = true
		s.failed(j, x.err)
	default:
		l.refused = sorted(refused)
		s.mu.Lock()
		for _, f := range l.frames {
			delete(s.suspects, f.id)
		}
		s.mu.Unlock()
		s.finish(j, nil)
	}
}

// try sends records together, and in halves if that ends the connection.
func (x *search) try(indexes []int) {
	if x.err != nil {
		x.open = append(x.open, indexes...)
		return
	}
	switch o, err := x.s.ask(x.j, indexes); {
	case o == taken:
		x.resolve()
	case o == outage:
		x.err = err
		x.open = append(x.open, indexes...)
	case len(indexes) == 1:
		x.single(indexes, err)
	default:
		x.split(indexes)
	}
}

func (x *search) split(indexes []int) {
	if len(indexes) == 1 {
		x.try(indexes)
		return
	}
	mid := len(indexes) / 2
	x.try(indexes[:mid])
	x.try(indexes[mid:])
}

// maxDoubtful is how many records in a row may end the connection before the
// search gives up: the server itself is at fault then.
const maxDoubtful = 4

// single deals with one record that has ended the connection.
func (x *search) single(indexes []int, err error) {
	for n := 1; n < x.s.c.PoisonCloses; n++ {
		var o outcome
		o, err = x.s.ask(x.j, indexes)
		if o == taken {
			x.resolve()
			return
		}
		if o == outage {
			x.err = err
			x.open = append(x.open, indexes...)
			return
		}
	}
	x.last = err
	if x.taken > 0 || x.often(indexes) {
		x.condemn(indexes[0], err)
		return
	}
	x.doubtful = append(x.doubtful, indexes[0])
	if len(x.doubtful) == maxDoubtful {
		x.err = err
	}
}

func (x *search) condemn(index int, err error) {
	x.bad = append(x.bad, index)
	x.why = fmt.Errorf("fluent: the server ended connections at this record: %w", err)
}

// resolve decides about doubtful records now that the server has acknowledged
// something: they get one more chance.
func (x *search) resolve() {
	x.taken++
	for len(x.doubtful) > 0 && x.err == nil {
		i := x.doubtful[0]
		x.doubtful = x.doubtful[1:]
		switch o, err := x.s.ask(x.j, []int{i}); o {
		case ended:
			x.condemn(i, err)
		case outage:
			x.err = err
			x.open = append(x.open, i)
		}
	}
}

// conclude says of doubtful records that they are not settled.
func (x *search) conclude() {
	if len(x.doubtful) > 0 {
		x.open = append(x.open, x.doubtful...)
		x.err = x.last
	}
}

// often reports whether a record has ended three times as many connections as
// make it suspect: then it is at fault though the server shows no sign of being
// well, as when there is no other record.
func (x *search) often(indexes []int) bool {
	p := &job{b: x.j.b.Select(nil, indexes)}
	x.s.prepare(p)
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	n := 0
	for i := range p.mem.lay.frames {
		n = max(n, x.s.suspects[p.mem.lay.frames[i].id])
	}
	x.s.spare = append(x.s.spare, p.mem)
	return n >= 3*x.s.c.PoisonCloses
}

// oneByOne sends the frames of j one after the other, each with a connection of
// its own, for servers that close after one message.
func (s *Client) oneByOne(j *job) {
	l := &j.mem.lay
	for i := range l.frames {
		f := &l.frames[i]
		if o, err := s.ask(j, l.indexes(nil, f)); o != taken {
			s.failed(j, err)
			return
		}
		s.mu.Lock()
		f.acked = true
		s.mu.Unlock()
	}
	s.finish(j, nil)
}

func sorted(indexes []int) []int {
	slices.Sort(indexes)
	return indexes
}
