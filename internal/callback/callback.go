// Package callback runs user callbacks asynchronously, on a separate goroutine with a
// bounded queue.
//
// A callback that blocks, panics, calls runtime.Goexit or logs to the writer that invoked
// it therefore does not affect the caller.
package callback

import (
	"context"
	"fmt"
	"math"
	"os"
	"sync"
	"time"
)

const (
	// DefaultQueue is the default queue length of a [Runner].
	DefaultQueue = 64
	// Unlimited is the queue length of a [Runner] that drops no value.
	Unlimited = math.MaxInt
)

// A Runner passes values to a function, one at a time and in order.
//
// The first [Runner.Post] to an idle Runner starts a goroutine, which ends when the queue
// is empty. An idle Runner therefore has no goroutine and needs no Close. All methods are
// safe for concurrent use and do nothing on a nil Runner.
type Runner[T any] struct {
	fn    func(T)
	queue int

	// mu is held for a few instructions. While it is held, no other lock is acquired and no user
	// code runs, including fn.
	mu      sync.Mutex
	ring    []T // the queue, a ring buffer that grows up to the queue length
	head, n int
	running bool
	closed  bool
	posted  uint64 // number of the last value queued, counted from 1
	settled uint64 // number of the last value that fn has handled or that was dropped
	dropped uint64
	failed  uint64
	waiters []waiter // in ascending order of seq
}

// A waiter is a call of Wait that waits for the value with the number seq.
type waiter struct {
	seq uint64
	ch  chan struct{}
}

// New returns a Runner that calls fn, or nil if fn is nil. While fn is running, at most queue
// values are queued, or [DefaultQueue] if queue is 0 or less. New starts no goroutine.
func New[T any](fn func(T), queue int) *Runner[T] {
	if fn == nil {
		return nil
	}
	if queue <= 0 {
		queue = DefaultQueue
	}
	return &Runner[T]{fn: fn, queue: queue}
}

// Post queues v. It never blocks and never calls fn, so it may be called with locks held. If the
// queue is full, the oldest value is dropped and counted, because newer values describe the current
// state. After [Runner.Close], v is dropped and counted.
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
	if r.n == len(r.ring) {
		if r.n < r.queue {
			r.growLocked()
		} else {
			r.popLocked()
			r.dropped++
		}
	}
	r.ring[(r.head+r.n)%len(r.ring)] = v
	r.n++
	r.posted++
	if !r.running {
		r.running = true
		go r.run()
	}
}

// Dropped returns the number of values dropped because the queue was full or the Runner
// closed.
func (r *Runner[T]) Dropped() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// Failed returns the number of calls of fn that ended in a panic or in runtime.Goexit.
func (r *Runner[T]) Failed() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Wait waits until every value posted earlier is handled by fn or dropped. If ctx ends first, Wait
// returns its error. A Wait called by fn itself waits until ctx ends.
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

// Grace limits how long a Close waits until the callback has handled all events. A fast callback
// handles them before Close returns; a slow one does not delay the end of the program.
const Grace = 100 * time.Millisecond

// WaitBriefly is like Wait, but waits at most [Grace].
func (r *Runner[T]) WaitBriefly(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Grace)
	defer cancel()
	_ = r.Wait(ctx)
}

// ToStderr prints an event or an error to standard error. It is the default callback.
func ToStderr[T any](v T) { _, _ = fmt.Fprintf(os.Stderr, "forebay: %v\n", v) }

// Close makes Post drop all later values. Queued values are still passed to fn; use [Runner.Wait]
// to wait for that. Close may be called more than once.
func (r *Runner[T]) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// run calls fn until the queue is empty. If fn calls runtime.Goexit, the goroutine ends, and a new
// one continues.
func (r *Runner[T]) run() {
	ended := false
	defer func() {
		if !ended {
			go r.run()
		}
	}()
	for r.runOne() {
	}
	ended = true
}

// runOne removes the oldest value and calls fn with it. It returns false if the queue is empty.
func (r *Runner[T]) runOne() (found bool) {
	r.mu.Lock()
	if r.n == 0 {
		r.running = false
		r.mu.Unlock()
		return false
	}
	v := r.popLocked()
	r.mu.Unlock()

	found = true // also returned after a panic of fn
	returned := false
	defer func() {
		_ = recover() // does not stop a runtime.Goexit
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

// growLocked doubles the length of the ring.
func (r *Runner[T]) growLocked() {
	ring := make([]T, min(r.queue, max(DefaultQueue, 2*r.n)))
	k := copy(ring, r.ring[r.head:])
	copy(ring[k:], r.ring[:r.head])
	r.ring, r.head = ring, 0
}

// popLocked removes the oldest value from the ring.
func (r *Runner[T]) popLocked() T {
	var zero T
	v := r.ring[r.head]
	r.ring[r.head] = zero
	r.head = (r.head + 1) % len(r.ring)
	r.n--
	return v
}

// settleLocked is called when fn is not running. It wakes the waiters whose values are handled or
// dropped.
func (r *Runner[T]) settleLocked() {
	r.settled = r.posted - uint64(r.n)
	k := 0
	for k < len(r.waiters) && r.waiters[k].seq <= r.settled {
		close(r.waiters[k].ch)
		k++
	}
	r.waiters = append(r.waiters[:0], r.waiters[k:]...)
}
