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

// ErrDown is returned by a destination that is down.
var ErrDown = errors.New("destination is down")

// An Answer is the answer of a destination to a batch. accepted contains the ascending indexes of
// the records that the destination stores; nil means the records that are delivered according to o.
// call is the number of earlier calls.
type Answer func(ctx context.Context, call int, b *batch.Batch) (accepted []int, o batch.Outcome)

// Accept is an Answer that stores every record and reports it as delivered.
func Accept(context.Context, int, *batch.Batch) ([]int, batch.Outcome) { return nil, batch.Outcome{} }

// Return returns an Answer with the outcome o. The destination stores the records that are
// delivered according to o.
func Return(o batch.Outcome) Answer {
	return func(context.Context, int, *batch.Batch) ([]int, batch.Outcome) { return nil, o }
}

// Fail returns an Answer that accepts nothing, with the error err.
func Fail(err error) Answer { return Return(batch.FailedOutcome(err)) }

// Malformed returns the outcome of a destination that rejects a whole batch with err because of one
// of its records.
func Malformed(err error) batch.Outcome {
	return batch.Outcome{Open: batch.All(), Why: err, Advice: batch.Search}
}

// First returns an Answer that accepts the first n records.
func First(n int) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		if n >= b.Len() {
			return nil, batch.Outcome{}
		}
		return nil, batch.Outcome{Open: batch.From(n), Why: errors.New("connection reset")}
	}
}

// Some returns an Answer that accepts all records except those with the given indexes.
func Some(but ...int) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		but := slices.DeleteFunc(slices.Clone(but), func(i int) bool { return i >= b.Len() })
		if len(but) == 0 {
			return nil, batch.Outcome{}
		}
		return nil, batch.Outcome{Open: batch.Of(but...), Why: errors.New("partly overloaded")}
	}
}

// Lost returns an Answer that accepts all records but fails with err. A server does this if it
// stores a batch and crashes before it answers.
func Lost(err error) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		return upTo(b.Len()), batch.FailedOutcome(err)
	}
}

// Poisoned returns an Answer that rejects a whole batch, with a status, if it contains a bad
// record.
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

// PoisonedByIndex returns an Answer that rejects bad records by their index and accepts all other
// records.
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

// A refusal is an error with an HTTP status.
type refusal struct {
	text   string
	status int
}

func (r refusal) Error() string   { return r.text }
func (r refusal) HTTPStatus() int { return r.status }

// AtMost returns an Answer that rejects batches of more than n bytes as too large.
func AtMost(n int) Answer {
	return func(_ context.Context, _ int, b *batch.Batch) ([]int, batch.Outcome) {
		if b.Bytes() > n {
			return nil, batch.Outcome{Open: batch.All(), Why: fmt.Errorf("%d bytes, at most %d", b.Bytes(), n), Advice: batch.Smaller}
		}
		return nil, batch.Outcome{}
	}
}

// Panic is an Answer of a defective driver: it panics.
func Panic(context.Context, int, *batch.Batch) ([]int, batch.Outcome) { panic("destination is broken") }

// Goexit is an Answer of a defective driver: it ends the goroutine of the caller.
func Goexit(context.Context, int, *batch.Batch) ([]int, batch.Outcome) {
	runtime.Goexit()
	return nil, batch.Outcome{}
}

// Hang returns an Answer that waits until ctx ends or release is closed, and accepts nothing.
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

// Deaf returns an Answer that ignores ctx. It waits until release is closed, and then accepts all
// records.
func Deaf(release <-chan struct{}) Answer {
	return func(context.Context, int, *batch.Batch) ([]int, batch.Outcome) {
		<-release
		return nil, batch.Outcome{}
	}
}

// Slow returns an Answer that waits for d and then answers like next.
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

// Script returns an Answer that uses the nth of answers for call n, and the last one for all later
// calls.
func Script(answers ...Answer) Answer {
	return func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
		return answers[min(call, len(answers)-1)](ctx, call, b)
	}
}

// DownUntil returns an Answer that fails with ErrDown before the time t, and answers like next from
// then on.
func DownUntil(t time.Time, next Answer) Answer {
	return func(ctx context.Context, call int, b *batch.Batch) ([]int, batch.Outcome) {
		if time.Now().Before(t) {
			return nil, batch.FailedOutcome(ErrDown)
		}
		return next(ctx, call, b)
	}
}

// Random returns an Answer that fails with probability p, in a random way, for up to half a second.
// A caller can recover from each of these failures. If partial is true, the Answer may also accept
// records after a rejected one, which changes the order of the records.
func Random(rng *rand.Rand, p float64, partial bool) Answer {
	rng = Rand(rng.Uint64()) // a separate source, because the caller may use rng concurrently
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
			return Slow(wait, Accept)(ctx, call, b)
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

// A Sink is a destination with configurable answers. It stores the tickets of the records that it
// accepts. Its Send is a function for deliver.SendFunc. All methods are safe for concurrent use.
type Sink struct {
	mu     sync.Mutex
	answer Answer
	calls  int
	got    []uint64 // tickets in the order of arrival, including copies
	sizes  []int    // number of records of each call
	data   map[uint64]string
	keep   bool
	closes int
}

// NewSink returns a sink that uses answer; nil means [Accept].
func NewSink(answer Answer) *Sink {
	s := new(Sink)
	s.Answer(answer)
	return s
}

// Answer replaces the sink's answer; nil means [Accept].
func (s *Sink) Answer(a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a == nil {
		a = Accept
	}
	s.answer = a
}

// KeepData makes the sink store the bytes of the last copy of each record.
func (s *Sink) KeepData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep, s.data = true, map[uint64]string{}
}

// Send passes b to the sink's answer and stores the accepted records.
func (s *Sink) Send(ctx context.Context, b *batch.Batch) batch.Outcome {
	s.mu.Lock()
	call, answer := s.calls, s.answer
	s.calls++
	s.sizes = append(s.sizes, b.Len())
	s.mu.Unlock()
	accepted, o := answer(ctx, call, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := 0
	for i, rec := range b.All() {
		took := accepted == nil && !o.Open.Has(i) && !o.Refused.Has(i)
		if x < len(accepted) && accepted[x] == i {
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

// Close counts its calls.
func (s *Sink) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closes++
	return nil
}

// Closes returns the number of calls of Close.
func (s *Sink) Closes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closes
}

// Calls returns the number of calls of Send.
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

// Got returns the tickets of all accepted records in order of arrival, including copies.
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

// LastCopies returns the tickets of the last copies of all records in got, in the order of arrival.
// duplicates is the number of earlier copies.
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
