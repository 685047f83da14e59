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
//	            else its first half is sent
//	              taken ─▶ the second half is suspect
//	              refused ─▶ the first half is suspect, the second untold
//
// There is no bound on how many records are found so; each costs about 2·log2(n)
// requests. But when that many and 8 were refused in a row, a survey asks whether
// the destination takes anything at all.
type search struct {
	p     *Poison
	ctx   context.Context
	b     *batch.Batch
	a     assembly
	part  batch.Batch
	stack []piece
	dry   int // requests refused in a row
	most  int // of them before a survey
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
		if s.most > 0 && s.dry >= s.most {
			ok = s.survey()
		} else {
			ok = s.step(s.pop())
		}
	}
	for len(s.stack) > 0 { // something failed: the rest is for the next time
		pc := s.pop()
		s.a.stop(pc.i, pc.j, s.a.err)
	}
	slices.Sort(s.a.open)
	slices.Sort(s.a.refused)
	return s.a.result()
}

func (s *search) pop() piece {
	last := len(s.stack) - 1
	pc := s.stack[last]
	s.stack = s.stack[:last]
	return pc
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
			s.dry, s.most = 0, requests(pc.j-pc.i)
		}
		s.push(piece{i: pc.i, j: pc.j, refusal: err, alone: true})
	case tooLarge:
		s.push(pc) // to be cut
	case failed:
		return false
	}
	return true
}

// requests returns how many requests the search for one record at fault among n
// may cost, and how many may be refused in a row before a survey.
func requests(n int) int { return 2*bits.Len(uint(max(n-1, 0))) + 8 }

// samples is how many records a survey sends alone.
const samples = 8

// survey sends records from different places of what is left of the search alone,
// until one is taken: then the search goes on. If all of them are refused, the
// destination refuses everything, and what is left is dropped. It is the only thing
// that goes out of order: a record that is taken precedes older ones.
func (s *search) survey() bool {
	s.dry = 0
	from := len(s.stack)
	for from > 0 && !s.stack[from-1].top {
		from--
	}
	left := 0
	for _, pc := range s.stack[from:] {
		left += pc.j - pc.i
	}
	if left <= samples {
		s.most = 0 // they are sent one by one soon
		return true
	}
	var refusal error
	for k := samples; k > 0; k-- {
		at := s.take(max(0, left*k/samples-1))
		left--
		f, err := s.try(at)
		switch f {
		case taken:
			return true
		case failed:
			return false
		case rejected:
			refusal = err
			if !s.bury(at.all(), err) {
				return false
			}
		}
	}
	if refusal == nil {
		return true
	}
	var rest []int
	for len(s.stack) > from {
		rest = append(rest, s.pop().all()...)
	}
	return s.bury(rest, refusal)
}

// take takes a record out of the stack and returns it: k counts those of its pieces
// in their order, from the top down. What is left of its piece is untold: the fault
// may have been this one.
func (s *search) take(k int) piece {
	for n := len(s.stack) - 1; ; n-- {
		pc := s.stack[n]
		if size := pc.j - pc.i; k >= size {
			k -= size
			continue
		}
		at := piece{i: pc.i + k, j: pc.i + k + 1}
		var parts []piece // the top of the stack is its end
		if at.j < pc.j {
			parts = append(parts, piece{i: at.j, j: pc.j})
		}
		if pc.i < at.i {
			parts = append(parts, piece{i: pc.i, j: at.i})
		}
		s.stack = slices.Replace(s.stack, n, n+1, parts...)
		return at
	}
}

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
	n := pc.j - pc.i
	if n == 1 && !pc.alone {
		f, err := s.try(pc)
		if f == rejected {
			return s.bury(pc.all(), err)
		}
		return f != failed
	}
	if n == 1 {
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
		s.push(second)
		return false
	}
	return true
}

func (s *search) slice(pc piece) *batch.Batch {
	s.part.Reset()
	return s.b.Slice(&s.part, pc.i, pc.j)
}

// try sends a piece.
func (s *search) try(pc piece) (fate, error) {
	part := s.slice(pc)
	err := s.p.sink.Send(s.ctx, part)
	f := s.judge(pc, part, err)
	if s.dry++; f != rejected {
		s.dry = 0
	}
	return f, err
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
	if s.p.naming {
		s.a.refused, s.a.refusal = append(s.a.refused, indexes...), err
		return true
	}
	s.a.tally.Dropped[batch.Poison] += s.p.bury(s.ctx, s.b.Select(nil, indexes), err)
	return true
}
