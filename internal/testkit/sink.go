package testkit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// ErrDown is what a destination that is down answers.
var ErrDown = errors.New("destination is down")

// An Answer decides what a destination takes of one batch and what it says. take
// holds ascending indexes; nil means the records that o settles.
type Answer func(ctx context.Context, call int, b *batch.Batch) (take []int, o batch.Outcome)

// Take takes everything.
func Take(context.Context, int, *batch.Batch) ([]int, batch.Outcome) { return nil, batch.Outcome{} }

// Say takes what o settles and answers o.
func Say(o batch.Outcome) Answer {
	return func(context.Context, int, *batch.Batch) ([]int, batch.Outcome) { return nil, o }
}

// Fail takes nothing, because of err.
func Fail(err error) Answer { return Say(batch.FailedOutcome(err)) }

// Malformed is the answer of a destination that refuses a batch as a whole because of
// err: one of its records is at fault.
func Malformed(err error) batch.Outcome {
	return batch.Outcome{Open: batch.All(), Why: err, Advice: batch.Search}
}

// First takes the first n records.
func First(n int) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		if n >= b.Len() {
			return nil, batch.Outcome{}
		}
		return nil, batch.Outcome{Open: batch.From(n), Why: errors.New("connection reset")}
	}
}

// Some takes all records but those with the given indexes.
func Some(but ...int) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		but := slices.DeleteFunc(slices.Clone(but), func(i int) bool { return i >= b.Len() })
		if len(but) == 0 {
			return nil, batch.Outcome{}
		}
		return nil, batch.Outcome{Open: batch.Of(but...), Why: errors.New("partly overloaded")}
	}
}

// Lost takes everything, but the answer is lost: what a peer does that stores a
// batch and dies.
func Lost(err error) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		return upTo(b.Len()), batch.FailedOutcome(err)
	}
}

// Poisoned refuses every batch that has a record for which bad says so, as a
// whole, with a status.
func Poisoned(bad func(batch.Record) bool, status int) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		for _, rec := range b.All() {
			if bad(rec) {
				return nil, Malformed(refusal{"a record is malformed", status})
			}
		}
		return nil, batch.Outcome{}
	}
}

// PoisonedByIndex refuses the records for which bad says so, naming them, and
// takes the others.
func PoisonedByIndex(bad func(batch.Record) bool, status int) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		var refused []int
		for i, rec := range b.All() {
			if bad(rec) {
				refused = append(refused, i)
			}
		}
		if len(refused) == 0 {
			return nil, batch.Outcome{}
		}
		return nil, batch.Outcome{Refused: batch.Of(refused...), Refusal: refusal{"records are malformed", status}}
	}
}

// A refusal is an error with a status.
type refusal struct {
	text   string
	status int
}

func (r refusal) Error() string   { return r.text }
func (r refusal) HTTPStatus() int { return r.status }

// AtMost refuses batches of more than n bytes as too large.
func AtMost(n int) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		if b.Bytes() > n {
			return nil, batch.Outcome{Open: batch.All(), Why: fmt.Errorf("%d bytes, at most %d", b.Bytes(), n), Advice: batch.Smaller}
		}
		return nil, batch.Outcome{}
	}
}

// Panic panics.
func Panic(context.Context, int, *batch.Batch) ([]int, batch.Outcome) { panic("destination is broken") }

// Goexit ends the goroutine.
func Goexit(context.Context, int, *batch.Batch) ([]int, batch.Outcome) {
	runtime.Goexit()
	return nil, batch.Outcome{}
}

// Hang waits until ctx ends or release is closed, then takes nothing.
func Hang(release <-chan struct{}) Answer {
	return func(ctx context.Context, _ int, _ *batch.Batch) ([]int, batch.Outcome) {
		select {
		case <-ctx.Done():
			return nil, batch.FailedOutcome(ctx.Err())
		case <-release:
			return nil, batch.FailedOutcome(ErrDown)
		}
	}
}

// Deaf waits until release is closed, whatever becomes of ctx, then takes all.
func Deaf(release <-chan struct{}) Answer {
	return func(context.Context, int, *batch.Batch) ([]int, batch.Outcome) {
		<-release
		return nil, batch.Outcome{}
	}
}

// Slow waits for d before it answers as next does.
func Slow(d time.Duration, next Answer) Answer {
	return func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return next(ctx, call, b)
		case <-ctx.Done():
			return nil, batch.FailedOutcome(ctx.Err())
		}
	}
}

// Script answers the n-th call as the n-th of answers does, and all later ones
// as the last.
func Script(answers ...Answer) Answer {
	return func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
		return answers[min(call, len(answers)-1)](ctx, call, b)
	}
}

// DownUntil fails with ErrDown until the time t, then answers as next does.
func DownUntil(t time.Time, next Answer) Answer {
	return func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
		if time.Now().Before(t) {
			return nil, batch.FailedOutcome(ErrDown)
		}
		return next(ctx, call, b)
	}
}

// Random misbehaves in one of all the ways a destination can and recover from,
// with probability p, in up to half a second of time. Only with partial does it
// take records behind one that it does not take, which ends all order.
func Random(rng *rand.Rand, p float64, partial bool) Answer {
	rng = Rand(rng.Uint64()) // its own, so that the caller may use rng meanwhile
	var mu sync.Mutex
	return func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
		mu.Lock()
		roll, kind, n := rng.Float64(), rng.IntN(7), rng.IntN(b.Len()+1)
		wait := time.Duration(rng.Int64N(int64(500 * time.Millisecond)))
		mu.Unlock()
		if roll >= p {
			return nil, batch.Outcome{}
		}
		switch kind {
		case 0:
			return nil, batch.FailedOutcome(ErrDown)
		case 1:
			return First(n)(ctx, call, b)
		case 2:
			if !partial {
				return nil, batch.FailedOutcome(ErrDown)
			}
			return Some(n)(ctx, call, b)
		case 3:
			return Lost(ErrDown)(ctx, call, b)
		case 4:
			return nil, batch.FailedOutcome(batch.RetryAfter(errors.New("slow down"), wait))
		case 5:
			return Slow(wait, Fail(ErrDown))(ctx, call, b)
		default:
			return Slow(wait, Take)(ctx, call, b)
		}
	}
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// A Sink is a destination that answers as it is told and remembers what it took. Its
// Send is a function for deliver.SendFunc. Its methods may be called from several
// goroutines at once.
type Sink struct {
	mu     sync.Mutex
	answer Answer
	calls  int
	got    []uint64 // tickets, in the order of arrival, copies included
	sizes  []int    // records per call
	data   map[uint64]string
	keep   bool
	closes int
}

// NewSink returns a sink that answers as answer does; nil means [Take].
func NewSink(answer Answer) *Sink {
	s := new(Sink)
	s.Answer(answer)
	return s
}

// Answer changes how the sink answers; nil means [Take].
func (s *Sink) Answer(a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a == nil {
		a = Take
	}
	s.answer = a
}

// KeepData makes the sink remember the bytes of the last copy of each record.
func (s *Sink) KeepData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep, s.data = true, map[uint64]string{}
}

// Send answers as the sink was told.
func (s *Sink) Send(ctx context.Context, b *batch.Batch) batch.Outcome {
	s.mu.Lock()
	call, answer := s.calls, s.answer
	s.calls++
	s.sizes = append(s.sizes, b.Len())
	s.mu.Unlock()
	take, o := answer(ctx, call, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := 0
	for i, rec := range b.All() {
		took := take == nil && !o.Open.Has(i) && !o.Refused.Has(i)
		if x < len(take) && take[x] == i {
			x++
			took = true
		}
		if took {
			s.got = append(s.got, rec.Ticket)
			if s.keep {
				s.data[rec.Ticket] = string(rec.Data)
			}
		}
	}
	return o
}

// Close counts.
func (s *Sink) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closes++
	return nil
}

// Closes returns how many times the sink was closed.
func (s *Sink) Closes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closes
}

// Calls returns how many times Send was called.
func (s *Sink) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Sizes returns the number of records of each call.
func (s *Sink) Sizes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sizes)
}

// Got returns the tickets of all records taken, in the order of arrival, copies
// included.
func (s *Sink) Got() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// Data returns the bytes of the last copy of a record, if KeepData was called.
func (s *Sink) Data(ticket uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data[ticket]
}

// LastCopies returns the tickets of the last copies of all records in got, in
// the order of arrival, and how many earlier copies there were.
func LastCopies(got []uint64) (last []uint64, duplicates int) {
	seen := make(map[uint64]bool, len(got))
	for i := len(got) - 1; i >= 0; i-- {
		if seen[got[i]] {
			duplicates++
			continue
		}
		seen[got[i]] = true
		last = append(last, got[i])
	}
	slices.Reverse(last)
	return last, duplicates
}
