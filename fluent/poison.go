package fluent

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// No message of the Forward protocol refuses records. A server that cannot take
// one closes the connection, or never acknowledges its chunk, and will do so each
// time. Acknowledgements come in order from the servers that matter, so the
// chunk at fault is the first without one. After PoisonCloses such ends its
// records are sent piece by piece, one piece at a time, until those at fault are
// found: see search. All of it is part of one Send, so that a breaker in front of
// it has nothing to count.

const maxSuspects = 256

// beginning names a frame by its first record: a chunk that is sent again may be
// cut elsewhere, as by the probes of a breaker.
func (s *Client) beginning(j *job, f *frame) chunkID {
	l := &j.mem.lay
	first := f.from
	if l.order != nil {
		first = l.order[f.from]
	}
	rec := j.b.At(first)
	return makeID(maphash.Bytes(s.seed, rec.Data)^s.salt, rec.Ticket<<32^uint64(rec.Stream))
}

// suspectLocked notes that a connection ended at a frame of j.
func (s *Client) suspectLocked(j *job, f *frame) {
	if len(s.suspects) >= maxSuspects {
		clear(s.suspects)
	}
	s.suspects[s.beginning(j, f)]++
}

// clearLocked notes that the server has taken a frame of j.
func (s *Client) clearLocked(j *job, f *frame) {
	if len(s.suspects) > 0 {
		delete(s.suspects, s.beginning(j, f))
	}
}

// suspicious reports whether j has a chunk that has ended enough connections.
func (s *Client) suspicious(j *job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.suspects) == 0 {
		return false
	}
	for i := range j.mem.lay.frames {
		if s.suspects[s.beginning(j, &j.mem.lay.frames[i])] >= s.c.PoisonCloses {
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
	return s.askWith(j, j.b.Select(nil, indexes))
}

// askWith sends b while j is under way.
func (s *Client) askWith(j *job, b *batch.Batch) (outcome, error) {
	ch := make(chan error, 1)
	p := &job{ctx: j.ctx, b: b, part: true, done: func(err error) { ch <- err }}
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

// A search finds the records of a job that the server cannot take. It goes through
// them from the first to the last with pieces of changing size: half as large
// after one that ended the connection, twice as large after one that was taken.
// So n bad records among m cost O(n log m) connections, and a row of bad ones
// hardly more than its length.
//
// A single record that has ended PoisonCloses connections is doubtful. It is
// condemned when the server took something before that and something after it: a
// server that takes nothing is at fault itself. Where no record of the job has
// shown that, one of our own does (see control); when the server has shown for the
// first time that it is well, the doubtful record gets another chance.
type search struct {
	s        *Client
	j        *job
	bad      []int
	why      error // of the last bad one
	well     bool  // the server has acknowledged something
	controls int
	ended    bool // the last request has ended the connection
	mute     int  // records that were not acknowledged in time, in a row
	// doubtful records have ended the connection often enough, but the server has
	// not shown yet that it is well.
	doubtful []int
	last     error // of the last doubtful one
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
		suspect := s.suspects[s.beginning(j, f)] >= s.c.PoisonCloses
		s.mu.Unlock()
		x.scan(indexes, suspect)
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
		for i := range l.frames {
			s.clearLocked(j, &l.frames[i])
		}
		s.mu.Unlock()
		s.finish(j, nil)
	}
}

// probeDelay is how long the search waits after a connection that ended.
const probeDelay = 50 * time.Millisecond

// ask sends records of the job.
func (x *search) ask(indexes []int) (outcome, error) {
	return x.send(x.j.b.Select(nil, indexes))
}

func (x *search) send(b *batch.Batch) (outcome, error) {
	if x.ended {
		t := time.NewTimer(probeDelay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-x.j.ctx.Done():
			return outage, context.Cause(x.j.ctx)
		case <-x.s.ctx.Done():
			return outage, ErrClosed
		}
	}
	o, err := x.s.askWith(x.j, b)
	x.ended = o != taken
	if errors.Is(err, errNoAck) {
		x.mute++
	} else {
		x.mute = 0
	}
	return o, err
}

// scan sends records from the first to the last. suspect says that some of them
// are known to end the connection when they are sent together.
func (x *search) scan(indexes []int, suspect bool) {
	known := 0 // of so many at the beginning some are bad
	size := len(indexes)
	if suspect {
		known, size = size, max(1, size/2)
	}
	for len(indexes) > 0 {
		if x.err != nil {
			x.open = append(x.open, indexes...)
			return
		}
		size = min(size, len(indexes))
		o, err := x.ask(indexes[:size])
		switch {
		case o == taken:
			indexes = indexes[size:]
			if known -= size; known > 0 {
				size = max(1, known/2)
			} else {
				known, size = 0, 2*size
			}
			x.proved()
		case o == outage:
			x.err = err
		case size > 1:
			known, size = size, size/2
		default:
			x.single(indexes[0], err)
			known, size = 0, 1
			indexes = indexes[1:]
		}
	}
}

// enoughDoubts is how many doubtful records there may be before the server has to
// show that it is well: few at first, and where each costs the time of an
// acknowledgement. As long as it has taken nothing, one: a doubtful record that
// proves innocent must not come behind others.
func (x *search) enoughDoubts() int {
	if x.mute > 0 || !x.well {
		return 1
	}
	return min(4<<(2*x.controls), 256)
}

// single deals with one record that has ended the connection.
func (x *search) single(index int, err error) {
	for n := 1; n < x.s.c.PoisonCloses; n++ {
		var o outcome
		if o, err = x.ask([]int{index}); o == taken {
			x.proved()
			return
		}
		if o == outage {
			x.err = err
			x.open = append(x.open, index)
			return
		}
	}
	x.last = err
	x.doubtful = append(x.doubtful, index)
	if len(x.doubtful) >= x.enoughDoubts() {
		x.control()
	}
}

func (x *search) condemn(index int, err error) {
	x.bad = append(x.bad, index)
	x.why = fmt.Errorf("fluent: the server ended connections at this record: %w", err)
}

// proved decides about doubtful records now that the server has acknowledged
// something.
func (x *search) proved() {
	before := x.well
	x.well = true
	if before {
		for _, i := range x.doubtful {
			x.condemn(i, x.last)
		}
		x.doubtful = x.doubtful[:0]
		return
	}
	again := x.doubtful
	x.doubtful = nil
	for _, i := range again {
		if x.err != nil {
			x.open = append(x.open, i)
			continue
		}
		switch o, err := x.ask([]int{i}); o {
		case ended:
			x.last = err
			x.doubtful = append(x.doubtful, i)
		case outage:
			x.err = err
			x.open = append(x.open, i)
		}
	}
}

// controlText is the message of the record that control sends.
const controlText = "forebay: the server has ended connections at records before this one; this one shows whether it takes any"

// control sends a record of our own, under Config.Tag, as bad ones alone do not
// tell whether the server is well.
func (x *search) control() {
	if x.err != nil {
		return
	}
	rec := appendEntryTime(nil, time.Now(), x.s.c.IntegerTime)
	rec = msgpack.AppendMapHeader(rec, 2)
	rec = msgpack.AppendStrs(rec, "level", "WARN")
	rec = msgpack.AppendStrs(rec, x.s.c.MessageKey, controlText)
	var b batch.Builder
	b.Append(rec, 0, batch.Meta{Stream: noTag})
	x.controls++
	switch o, err := x.send(b.Batch(Codec())); o {
	case taken:
		x.proved()
	default:
		x.err = err
	}
}

// conclude decides about the doubtful records that are left, or says that they
// are not settled.
func (x *search) conclude() {
	for x.err == nil && len(x.doubtful) > 0 {
		x.control()
	}
	if len(x.doubtful) > 0 {
		x.open = append(x.open, x.doubtful...)
		if x.err == nil {
			x.err = x.last
		}
	}
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
