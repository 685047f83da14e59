package deliver

import (
	"context"
	"math/bits"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// A search is the way of one batch through a sink in pieces. It goes from left
// to right over a stack of pieces, so that what is delivered keeps its order.
// Every piece is in one of two states:
//
//	untold    nothing is known against it: it is sent
//	            taken ─▶ settled
//	            too large ─▶ two untold halves
//	            refused ─▶ suspect
//	suspect   it, or a larger piece around it, was refused
//	            one record, refused alone ─▶ dropped
//	            no requests left ─▶ dropped
//	            else its first half is sent
//	              taken ─▶ the second half is suspect
//	              refused ─▶ the first half is suspect, the second untold
type search struct {
	p     *Poison
	ctx   context.Context
	b     *batch.Batch
	a     assembly
	part  batch.Batch
	stack []piece
	left  int // requests
}

// A piece is a part of the batch: records i up to, but not including, j.
type piece struct {
	i, j    int
	refusal error // suspect: why; nil: untold
	alone   bool  // the refusal is of this very piece
	top     bool  // not a part of anything that was refused
}

func (pc piece) all() []int { return span(nil, pc.i, pc.j) }

// fate is what became of a piece that was sent.
type fate uint8

const (
	taken    fate = iota // all of it is settled
	someLost             // some records were refused by name and dropped, the others are settled
	tooLarge             // it must be sent in smaller pieces
	rejected             // as a whole
	failed               // for a reason that says nothing of the records
)

// search delivers b, of which nothing is settled; err is the result of a Send of
// all of it, nil if there was none.
func (p *Poison) search(ctx context.Context, b *batch.Batch, err error) error {
	s := search{p: p, ctx: ctx, b: b, a: assembly{b: b}}
	all := piece{j: b.Len(), top: true}
	ok := true
	if err == nil {
		s.push(all)
	} else {
		ok = s.follow(all, s.judge(all, b, err), err)
	}
	for ok && len(s.stack) > 0 {
		last := len(s.stack) - 1
		pc := s.stack[last]
		s.stack = s.stack[:last]
		if ok = s.step(pc); !ok && pc.j < b.Len() {
			s.a.stop(pc.j, b.Len(), s.a.err)
		}
	}
	return s.a.result()
}

func (s *search) push(pieces ...piece) { s.stack = append(s.stack, pieces...) }

// step deals with the first of the pieces that are left. It reports false when
// something failed that may be retried: what lies behind pc stays open then.
func (s *search) step(pc piece) bool {
	switch {
	case pc.refusal != nil:
		return s.suspect(pc)
	case s.cut(pc):
		return true
	}
	f, err := s.try(pc)
	return s.follow(pc, f, err)
}

// follow continues behind the Send of an untold piece.
func (s *search) follow(pc piece, f fate, err error) bool {
	switch f {
	case rejected:
		if pc.top {
			s.left = requests(pc.j - pc.i)
		}
		s.push(piece{i: pc.i, j: pc.j, refusal: err, alone: true})
	case tooLarge:
		s.push(pc) // to be cut
	case failed:
		return false
	}
	return true
}

// requests returns how many requests the search for the records at fault among n
// may cost.
func requests(n int) int { return 2*bits.Len(uint(max(n-1, 0))) + 8 }

// cut replaces a piece with more payload than one Send may have by two smaller
// ones. It reports false if there is no need.
func (s *search) cut(pc piece) bool {
	limit := s.p.bound()
	if limit == 0 || pc.j-pc.i == 1 {
		return false
	}
	part := s.slice(pc)
	if part.Bytes() <= limit {
		return false
	}
	k, size := 0, 0
	for _, rec := range part.All() {
		if size += len(rec.Data); size > limit && k > 0 {
			break
		}
		k++
	}
	first, second := pc, pc
	first.j, second.i = pc.i+k, pc.i+k
	s.push(second, first)
	return true
}

// suspect narrows down what is at fault in a piece that was refused.
func (s *search) suspect(pc piece) bool {
	n, untold := pc.j-pc.i, s.untold()
	if n == 1 && !pc.alone && s.left > untold {
		f, err := s.try(pc)
		if f == rejected {
			return s.bury(pc.all(), err)
		}
		return f != failed
	}
	if n == 1 || s.left < untold+2 { // an untold second half needs a request too
		return s.bury(pc.all(), pc.refusal)
	}
	first, second := piece{i: pc.i, j: pc.i + n/2}, piece{i: pc.i + n/2, j: pc.j}
	if s.cut(first) { // pushed what is above second: put that below
		s.stack = append(s.stack, piece{})
		at := len(s.stack) - 3
		copy(s.stack[at+1:], s.stack[at:])
		s.stack[at] = second
		return true
	}
	f, err := s.try(first)
	switch f {
	case taken: // so the fault lies behind it
		second.refusal = pc.refusal
		s.push(second)
	case rejected:
		first.refusal, first.alone = err, true
		s.push(second, first)
	case someLost:
		s.push(second)
	case tooLarge:
		s.push(second, first)
	case failed:
		s.a.stop(second.i, second.j, s.a.err)
		return false
	}
	return true
}

// untold returns how many pieces wait to be sent whose requests are part of the
// search.
func (s *search) untold() (n int) {
	for i := range s.stack {
		if s.stack[i].refusal == nil && !s.stack[i].top {
			n++
		}
	}
	return n
}

func (s *search) slice(pc piece) *batch.Batch {
	s.part.Reset()
	return s.b.Slice(&s.part, pc.i, pc.j)
}

// try sends a piece.
func (s *search) try(pc piece) (fate, error) {
	s.left--
	part := s.slice(pc)
	err := s.p.sink.Send(s.ctx, part)
	return s.judge(pc, part, err), err
}

// judge notes the result of a Send of part, which is the piece pc.
func (s *search) judge(pc piece, part *batch.Batch, err error) fate {
	e := batch.Inspect(err)
	n := part.Len()
	switch {
	case err == nil:
		s.p.wentThrough(part.Bytes())
	case e.Kind == batch.KindReject && e.Records != nil && batch.ValidIndexes(e.Records, n):
		s.a.tally.Add(tallied(part, n-len(e.Records)))
		lost := slices.Clone(e.Records)
		for k := range lost {
			lost[k] += pc.i
		}
		if !s.bury(lost, err) {
			return failed
		}
		return someLost
	case e.Kind == batch.KindReject, e.Kind == batch.KindTooLarge && n == 1:
		return rejected
	case e.Kind == batch.KindTooLarge:
		s.p.lower(part, err)
		return tooLarge
	}
	if s.a.add(pc.i, part, err) {
		return taken
	}
	return failed
}

// bury drops the records with the given indexes, which were refused for good. It
// reports false, and leaves them open, if ctx has ended: then there is no time to
// write the dead letter.
func (s *search) bury(indexes []int, err error) bool {
	if s.ctx.Err() != nil {
		s.a.open, s.a.err = append(s.a.open, indexes...), batch.RetryAfter(err, 0)
		return false
	}
	s.a.tally.Dropped[batch.Poison] += s.p.bury(s.ctx, s.b.Select(nil, indexes), err)
	return true
}
