package deliver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// deadLetters writes dead letters on a separate goroutine, because the handler may be slow or hang.
// The goroutine runs while letters are queued. A refused record is settled when its letter is
// queued, and no letter may be dropped; so the machine sends nothing while maxLetters are queued.
type deadLetters struct {
	g      *guarded // nil: no dead letters
	events *callback.Reporter
	wake   func() // wakes the loop when there is room again

	failed atomic.Uint64 // number of refused records whose dead letter could not be written

	mu      sync.Mutex // leaf lock; guards the fields below
	queue   []letter
	idle    chan struct{} // closed when the goroutine has ended; nil: it does not run
	failing episode
}

// A letter is a dead letter: a copy of refused records, with the reason. If the reason is an
// unacceptedError, the output itself did not accept the record, and no account of the destination
// has it.
type letter struct {
	b     *batch.Batch
	cause error
}

// isRefused reports whether the destination refused the records of l.
func (l *letter) isRefused() bool {
	_, unaccepted := l.cause.(unacceptedError)
	return !unaccepted
}

const (
	// maxLetters is the number of waiting letters at which sending stops.
	maxLetters = 64
	// unacceptedMost is a number of waiting letters. While so many wait, letters about records that
	// the output did not accept are discarded.
	unacceptedMost = 4
)

func newDeadLetters(h ErrorHandler, timeout time.Duration, ev *callback.Reporter, wake func()) *deadLetters {
	l := &deadLetters{events: ev, wake: wake}
	if h != nil {
		l.g = &guarded{h: h, timeout: timeout}
	}
	return l
}

// write queues dead letters with a copy of the records of b. If cause has a method NoDeadLetter(k
// int) bool that returns true, there is no letter for record k. If cause has a method
// DeadLetterCause(k int) error, its result is the reason for record k. Records with the same reason
// share a letter.
func (l *deadLetters) write(b *batch.Batch, cause error) {
	if l.g == nil {
		return
	}
	skips, _ := cause.(interface{ NoDeadLetter(k int) bool })
	reasons, _ := cause.(interface{ DeadLetterCause(k int) error })
	if skips == nil && reasons == nil {
		l.add(b, cause)
		return
	}
	var causes []error
	of := map[string][]int{} // indexes of records, by the text of the reason
	for k := range b.Len() {
		if skips != nil && skips.NoDeadLetter(k) {
			continue
		}
		why := cause
		if reasons != nil {
			why = reasons.DeadLetterCause(k)
		}
		text := why.Error()
		if of[text] == nil {
			causes = append(causes, why)
		}
		of[text] = append(of[text], k)
	}
	for _, why := range causes {
		l.add(b.Select(nil, of[why.Error()]), why)
	}
}

// unacceptedError is the cause of a letter about a record that the output did not accept. The
// driver is not told about such a letter.
type unacceptedError struct{ error }

// add queues a letter with a copy of b. It discards a letter about a record that the output did not
// accept if unacceptedMost letters are queued.
func (l *deadLetters) add(b *batch.Batch, cause error) {
	n := letter{copyOf(b), cause}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !n.isRefused() && len(l.queue) >= unacceptedMost {
		return
	}
	l.queue = append(l.queue, n)
	if l.idle == nil {
		l.idle = make(chan struct{})
		go l.work()
	}
}

// full reports whether too many letters wait.
func (l *deadLetters) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) >= maxLetters
}

// unwritten returns the number of refused records without a dead letter, because writing the letter
// failed or has not happened yet. Close reports them as lost.
func (l *deadLetters) unwritten() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = l.failed.Load()
	for i := range l.queue {
		if l.queue[i].isRefused() {
			n += countable(l.queue[i].b)
		}
	}
	return n
}

// work writes the queued letters, oldest first, and closes idle when there are none. A letter that
// fails is not retried, because the handler has had its timeout and other letters are waiting.
func (l *deadLetters) work() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			close(l.idle)
			l.idle = nil
			l.mu.Unlock()
			l.wake()
			return
		}
		oldest := l.queue[0]
		l.mu.Unlock()
		n := oldest.b.Len()
		out := l.g.call(context.Background(), oldest.cause, oldest.b)
		err := out.Err()
		l.mu.Lock()
		l.queue[0] = letter{}
		l.queue = l.queue[1:]
		if oldest.isRefused() {
			l.failed.Add(uint64(out.Open.Len(n) + out.Refused.Len(n) + out.Unnamed))
		}
		first := err != nil && l.failing.begin()
		if err == nil {
			l.failing.end()
		}
		l.mu.Unlock()
		if first {
			l.events.Post("dead-letter", err, uint64(n))
		}
		l.wake()
	}
}

// wait waits until all letters are written, or ctx ends.
func (l *deadLetters) wait(ctx context.Context) {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// letters returns the handler of dead letters, or nil if there is none. If notify is not nil, the
// handler first calls notify with the records that the destination refused. Then it calls
// o.DeadLetter.
func (o *Options) letters(notify func(cause error, b *batch.Batch)) ErrorHandler {
	next := o.DeadLetter
	if next == nil && notify == nil {
		return nil
	}
	return contextHandler(func(ctx context.Context, cause error, b *batch.Batch) batch.Outcome {
		// The driver is notified only about records that it has refused itself.
		if u, ok := cause.(unacceptedError); ok {
			cause = u.error
		} else if notify != nil {
			notify(cause, b)
		}
		if next == nil {
			return batch.Outcome{}
		}
		return askHandler(ctx, next, cause, b)
	})
}
