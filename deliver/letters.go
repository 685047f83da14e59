package deliver

import (
	"context"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// deadLetters writes dead letters on a separate goroutine, because the handler may be slow or hang.
// A refused record is settled when its letter is queued, and no letter may be dropped; so the
// machine sends nothing while maxLetters are queued. A letter that fails is not retried, because the
// handler has had its timeout and other letters are waiting.
type deadLetters struct {
	g       *guarded // nil: no dead letters
	events  *callback.Reporter
	wake    func() // wakes the loop when there is room again
	queue   *callback.Runner[letter]
	failing episode // only the goroutine of queue uses it

	mu     sync.Mutex // leaf lock; guards the fields below
	queued int        // number of letters that are not written yet
	unsent uint64     // number of refused records in these letters
	failed uint64     // number of refused records whose dead letter could not be written
}

// A letter is a dead letter: a copy of refused records, with the reason.
type letter struct {
	b     *batch.Batch
	cause error
	// refused is the number of records that the destination refused. It is 0 if the output itself
	// did not accept the record, so that no account of the destination has it.
	refused uint64
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
	l.queue = callback.New(l.send, callback.Unlimited)
	if h != nil {
		l.g = newGuarded(h, timeout)
	}
	return l
}

// write queues dead letters with a copy of the records of b. If cause has a method
// DeadLetterCause(k int) error, its result is the reason for record k, and there is no letter for
// that record if it is nil. Records with the same reason share a letter.
func (l *deadLetters) write(b *batch.Batch, cause error) {
	if l.g == nil {
		return
	}
	reasons, ok := cause.(interface{ DeadLetterCause(k int) error })
	if !ok {
		l.add(b, cause)
		return
	}
	var causes []error
	of := map[string][]int{} // indexes of records, by the text of the reason
	for k := range b.Len() {
		why := reasons.DeadLetterCause(k)
		if why == nil {
			continue
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
	n := letter{b: copyOf(b), cause: cause}
	_, unaccepted := cause.(unacceptedError)
	if !unaccepted {
		n.refused = countable(b)
	}
	l.mu.Lock()
	discard := unaccepted && l.queued >= unacceptedMost
	if !discard {
		l.queued++
		l.unsent += n.refused
	}
	l.mu.Unlock()
	if !discard {
		l.queue.Post(n)
	}
}

// full reports whether too many letters wait.
func (l *deadLetters) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued >= maxLetters
}

// lost returns the number of refused records without a dead letter: writing the letter failed, or
// has not happened yet. Close reports both as lost.
func (l *deadLetters) lost() (failed, unsent uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed, l.unsent
}

// send passes a letter to the handler.
func (l *deadLetters) send(n letter) {
	records := n.b.Len()
	out := l.g.call(context.Background(), n.cause, n.b)
	l.mu.Lock()
	l.queued--
	l.unsent -= n.refused
	l.failed += min(n.refused, uint64(out.Open.Len(records)+out.Refused.Len(records)+out.Unnamed))
	l.mu.Unlock()
	if err := out.Err(); err == nil {
		l.failing.end()
	} else if l.failing.begin() {
		l.events.Post("dead-letter", err, uint64(records))
	}
	l.wake()
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
