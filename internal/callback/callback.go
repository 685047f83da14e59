// Package callback runs user callbacks apart from whoever reports to them: on a
// goroutine of their own, behind a bounded queue.
//
// What a callback does (block, panic, call runtime.Goexit, log into the very
// writer that reported) so never reaches the reporter.
package callback

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// DefaultQueue is the number of values a [Runner] holds when [New] is given
// none.
const DefaultQueue = 64

// A Runner hands values to one function, one at a time and in order.
//
// Its goroutine is started by the first [Runner.Post] to an idle Runner and ends
// when the queue is empty, so an idle Runner holds none and needs no Close. All
// methods may be called from several goroutines at once; all work on a nil
// Runner, which does nothing.
type Runner[T any] struct {
	fn    func(T)
	queue int

	// mu is a leaf lock, held for a few instructions: neither fn nor anything
	// else of the caller runs under it.
	mu      sync.Mutex
	ring    []T // queue long, made by the first Post
	head, n int
	running bool
	closed  bool
	posted  uint64 // values that were queued; the last one's number
	settled uint64 // all values up to this number have run or were dropped
	dropped uint64
	failed  uint64
	waiters []waiter // ascending
}

// waiter is a Wait for the value number seq.
type waiter struct {
	seq uint64
	ch  chan struct{}
}

// New returns a Runner that calls fn and holds up to queue values while fn is
// busy (0 or less: [DefaultQueue]). It returns nil, which does nothing, when fn
// is nil. It starts no goroutine.
func New[T any](fn func(T), queue int) *Runner[T] {
	if fn == nil {
		return nil
	}
	if queue <= 0 {
		queue = DefaultQueue
	}
	return &Runner[T]{fn: fn, queue: queue}
}

// Post queues v. It never blocks and never calls fn itself, so it may be called
// with locks held. If the queue is full, the oldest value in it is dropped and
// counted: the newest says how things stand. After [Runner.Close] v is dropped
// and counted.
func (r *Runner[T]) Post(v T) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.dropped++
		return
	}
	if r.ring == nil {
		r.ring = make([]T, r.queue)
	}
	if r.n == len(r.ring) {
		r.popLocked()
		r.dropped++
	}
	r.ring[(r.head+r.n)%len(r.ring)] = v
	r.n++
	r.posted++
	if !r.running {
		r.running = true
		go r.run()
	}
}

// Dropped returns how many values were dropped because the queue was full or
// the Runner closed.
func (r *Runner[T]) Dropped() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// Failed returns how many calls of fn ended in a panic or in runtime.Goexit.
func (r *Runner[T]) Failed() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Wait returns when fn has returned for every value posted before (or the value
// was dropped), or with ctx's error when that ends first. Called from within fn
// it waits for itself, until ctx ends.
func (r *Runner[T]) Wait(ctx context.Context) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	if r.settled == r.posted {
		r.mu.Unlock()
		return nil
	}
	ch := make(chan struct{})
	r.waiters = append(r.waiters, waiter{seq: r.posted, ch: ch})
	r.mu.Unlock()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.waiters {
		if r.waiters[i].ch == ch {
			r.waiters = append(r.waiters[:i], r.waiters[i+1:]...)
			break
		}
	}
	return ctx.Err()
}

// Grace is how long a Close waits at most for a callback to be told everything: what
// happened on the way is told before Close returns, unless the callback is slow. It
// must not hold up anybody's end.
const Grace = 100 * time.Millisecond

// WaitBriefly is Wait for at most [Grace].
func (r *Runner[T]) WaitBriefly(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Grace)
	defer cancel()
	_ = r.Wait(ctx)
}

// ToStderr prints v, an event or an error, on standard error: the callback of those who
// set none, as silence would be worse.
func ToStderr[T any](v T) { _, _ = fmt.Fprintf(os.Stderr, "forebay: %v\n", v) }

// Close makes every later Post a counted drop. What is queued still runs; use
// [Runner.Wait] to wait for it. It may be called twice.
func (r *Runner[T]) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// run calls fn until the queue is empty. A runtime.Goexit in fn ends the
// goroutine; a new one then goes on with the queue.
func (r *Runner[T]) run() {
	ended := false
	defer func() {
		if !ended {
			go r.run()
		}
	}()
	for r.one() {
	}
	ended = true
}

// one takes the oldest value and calls fn with it. It reports whether there was
// one.
func (r *Runner[T]) one() (found bool) {
	r.mu.Lock()
	if r.n == 0 {
		r.running = false
		r.mu.Unlock()
		return false
	}
	v := r.popLocked()
	r.mu.Unlock()

	found = true // also what is returned after a panic
	returned := false
	defer func() {
		_ = recover() // nil after a Goexit, which goes on
		r.mu.Lock()
		defer r.mu.Unlock()
		if !returned {
			r.failed++
		}
		r.settleLocked()
	}()
	r.fn(v)
	returned = true
	return
}

// popLocked takes the oldest value out of the ring.
func (r *Runner[T]) popLocked() T {
	var zero T
	v := r.ring[r.head]
	r.ring[r.head] = zero
	r.head = (r.head + 1) % len(r.ring)
	r.n--
	return v
}

// settleLocked notes that no value is with fn, and wakes whom that concerns.
func (r *Runner[T]) settleLocked() {
	r.settled = r.posted - uint64(r.n)
	k := 0
	for k < len(r.waiters) && r.waiters[k].seq <= r.settled {
		close(r.waiters[k].ch)
		k++
	}
	r.waiters = append(r.waiters[:0], r.waiters[k:]...)
}
