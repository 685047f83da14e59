package testkit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// An AsyncSink is a [Sink] with several batches in flight. Batches arrive in the order of the calls
// of Start. Each answer has a separate delay, so the answers come in any order.
type AsyncSink struct {
	Sink
	window int
	delay  func() time.Duration

	mu     sync.Mutex
	under  int
	most   int
	faults []string // violations of the destination's contract by the caller
	inCall bool
	tail   chan struct{} // closed when the last started batch has arrived
}

// NewAsyncSink returns an AsyncSink with the given window. Each answer takes a random time of at
// most delay, or exactly delay if rng is nil.
func NewAsyncSink(answer Answer, window int, rng *rand.Rand, delay time.Duration) *AsyncSink {
	s := &AsyncSink{window: window}
	s.Answer(answer)
	if rng != nil {
		rng = Rand(rng.Uint64())
	}
	var mu sync.Mutex
	s.delay = func() time.Duration {
		if rng == nil || delay == 0 {
			return delay
		}
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.Int64N(int64(delay) + 1))
	}
	return s
}

// Window returns the maximum number of batches in flight.
func (s *AsyncSink) Window() int { return s.window }

// Start accepts b like [Sink.Send], and calls done with the answer later.
func (s *AsyncSink) Start(ctx context.Context, b *batch.Batch, done func(batch.Outcome)) {
	s.mu.Lock()
	if s.inCall {
		s.faults = append(s.faults, "two calls of Start at a time")
	}
	s.inCall = true
	s.under++
	s.most = max(s.most, s.under)
	if s.under > s.window {
		s.faults = append(s.faults, fmt.Sprintf("%d batches under way, window %d", s.under, s.window))
	}
	arrived, earlier := make(chan struct{}), s.tail
	s.tail = arrived
	s.mu.Unlock()
	before := checksum(b)
	go s.serve(ctx, b, done, before, earlier, arrived)
	s.mu.Lock()
	s.inCall = false
	s.mu.Unlock()
}

// serve waits until the previous batch has arrived. After that it passes b to the sink, and answers
// after a delay.
func (s *AsyncSink) serve(ctx context.Context, b *batch.Batch, done func(batch.Outcome), before uint64, earlier, arrived chan struct{}) {
	if earlier != nil {
		<-earlier
	}
	o := s.Sink.Send(ctx, b)
	close(arrived)
	t := time.NewTimer(s.delay())
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.under--
	if checksum(b) != before {
		s.faults = append(s.faults, "the batch changed before done was called")
	}
	s.mu.Unlock()
	done(o)
}

// Send calls Start with b and returns the outcome, even if ctx ends earlier.
func (s *AsyncSink) Send(ctx context.Context, b *batch.Batch) batch.Outcome {
	done := make(chan batch.Outcome, 1)
	s.Start(ctx, b, func(o batch.Outcome) { done <- o })
	return <-done
}

// Faults returns the violations of the contract by the caller.
func (s *AsyncSink) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.faults...)
}

// Most returns the maximum number of batches in flight.
func (s *AsyncSink) Most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// checksum returns a checksum of the bytes and tickets of b.
func checksum(b *batch.Batch) (sum uint64) {
	for _, rec := range b.All() {
		sum = sum*31 + rec.Ticket
		for _, c := range rec.Data {
			sum = sum*31 + uint64(c)
		}
	}
	return sum
}
