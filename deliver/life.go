package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// A life is one session, as the outlet uses it. It implements [Life].
//
// One goroutine makes all calls of the driver: Open, then Send for each batch, then Close. That
// goroutine runs the method run or, for an inline outlet and for [Direct], calls open, transmit and
// close. The results of calls, the answers and the end of the session are in one queue, because
// their order matters: an answer before the end counts, and an answer after the end does not.
type life struct {
	driver *driver
	inline bool          // the driver answers each batch before its Send returns
	wake   chan struct{} // receives a value after each report
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   chan *entry // batches to be sent by run; capacity: Window+1

	// Only the goroutine that makes the calls uses call and sess.
	call call
	sess Session

	mu    sync.Mutex // leaf lock; guards the fields below
	queue []report
	pass  sessionFilter
	then  func() // called when the session closes after the end of the loop; nil: no function
}

// A sessionFilter decides which batches may still be sent to a session, and which of its reports
// still reach the outlet. The outlet may pass a batch before it has read an answer, and a session
// may answer after its end.
//
// The batches of a session are numbered in rounds: each answer with open records ends a round.
// Batches of that round that were not sent yet are not sent, because the open records must be sent
// first.
type sessionFilter struct {
	round   uint64 // number of the round of the last batch that was sent
	void    uint64 // batches of rounds up to this number are not sent
	refuses bool   // a Send has failed, so the session accepts no more records
	over    bool   // End was called, or the outlet gave up the session; later reports do not count
}

// admits reports whether e may be sent. It may not be sent after the end of the session, nor if an
// earlier batch of the same round was answered with open records.
func (p *sessionFilter) admits(e *entry) bool {
	if p.over || p.refuses || e.round <= p.void {
		return false
	}
	p.round = e.round
	return true
}

// counts reports whether the outlet gets the report r, and updates the filter. An answer after the
// end of the session is ignored, because its batch already waits to be sent again.
func (p *sessionFilter) counts(r *report) bool {
	switch {
	case r.kind == reportOpened || r.kind == reportClosed:
	case p.over:
		return false
	case r.kind == reportEnd:
		p.over = true
	case r.kind == reportRefused:
		p.refuses = true
	case r.kind == reportAnswer && !r.o.Open.Empty():
		p.void = p.round
	}
	return true
}

// A report is one event of a session for the machine. The kind determines which fields are set.
type report struct {
	kind reportKind
	b    *batch.Batch
	e    *entry
	o    batch.Outcome
	err  error
}

// A reportKind is the kind of a report. The outlet gets reportOpened and reportClosed even after
// the end of the session.
type reportKind uint8

const (
	reportOpened  reportKind = iota // Open has returned err
	reportAnswer                    // b has been answered with o
	reportRefused                   // Send of e has returned err
	reportUnsent                    // Send of e was not called
	reportEnd                       // the session is over because of err
	reportClosed                    // Close has returned
)

var errFinished = errors.New("the session is no longer needed")

// newLife returns a life that has not begun. Its context ends with parent. The channel wake has
// capacity 1.
func newLife(parent context.Context, d *driver, wake chan struct{}, window int) *life {
	l := &life{driver: d, wake: wake, work: make(chan *entry, window+1)}
	l.ctx, l.cancel = context.WithCancelCause(parent)
	return l
}

// Context ends with the session.
func (l *life) Context() context.Context { return l.ctx }

// Answer reports the outcome of b.
func (l *life) Answer(b *batch.Batch, o batch.Outcome) {
	if b == nil {
		return
	}
	if err := o.Check(b.Len()); err != nil {
		o = batch.Outcome{Open: batch.All(), Why: fmt.Errorf("%w: %w", err, cause(o.Why))}
	}
	l.post(report{kind: reportAnswer, b: b, o: o})
}

// End reports that the session has ended.
func (l *life) End(err error) { l.post(report{kind: reportEnd, err: err}) }

// post queues r for the outlet. It never blocks, so that a driver may call it under its own locks.
// The queue cannot grow without limit: a driver makes at most one answer for each batch in flight.
func (l *life) post(r report) {
	l.mu.Lock()
	if !l.pass.counts(&r) {
		l.mu.Unlock()
		return
	}
	l.queue = append(l.queue, r)
	then := l.then
	l.mu.Unlock()
	if r.kind == reportAnswer && r.o.Open.Empty() {
		l.driver.accepted()
	}
	if then != nil && r.kind == reportClosed {
		then()
	}
	signal(l.wake)
}

// reports removes and returns the queued reports. The queue then uses the memory of spare, so that
// answers cost no allocation.
func (l *life) reports(spare []report) []report {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queue
	l.queue = spare[:0]
	return q
}

// fence ends the session for the outlet, so that no later answer counts. The method run closes the
// session when its current call has returned.
func (l *life) fence(why error) {
	l.mu.Lock()
	l.pass.over = true
	l.mu.Unlock()
	l.cancel(why)
	close(l.work)
}

// call is the current or the next call of the driver.
type call uint8

const (
	callOpen call = iota
	callSend
	callClose
	callNone
)

// run makes the calls of the driver, one at a time. A driver that calls runtime.Goexit ends the
// goroutine; a new goroutine continues after that call.
func (l *life) run() {
	finished := false
	defer func() {
		if !finished {
			l.unwound()
			go l.run()
		}
	}()
	for l.call != callNone {
		switch l.call {
		case callOpen:
			l.open()
		case callSend:
			if e, ok := <-l.work; ok {
				l.transmit(e)
			} else {
				l.call = callClose
			}
		case callClose:
			l.close()
		}
	}
	finished = true
}

// unwound is called after the current call of the driver has called runtime.Goexit, and reports
// that the call failed.
func (l *life) unwound() {
	switch err := (&panicError{errGoexit}); l.call {
	case callOpen:
		l.opened(err)
	case callSend:
		l.End(err)
	case callClose:
		l.closed()
	}
}

// open opens the session.
func (l *life) open() {
	l.opened(l.make(func() (err error) {
		if l.sess, err = l.driver.dest.Open(l); err == nil && l.sess == nil {
			err = errors.New("the destination has opened a nil session")
		}
		return err
	}))
}

// opened reports the result of Open. After an error there is nothing to close.
func (l *life) opened(err error) {
	l.call = callSend
	l.post(report{kind: reportOpened, err: err})
	if err != nil {
		l.closed()
	}
}

// errUnsent is the error of a batch for which Send was not called.
var errUnsent = errors.New("the session accepts no new records")

// transmit sends e when no call of the driver is in progress. A report of the session in the
// meantime may forbid the send; transmit then reports e as unsent.
func (l *life) transmit(e *entry) {
	err := l.make(func() error {
		l.mu.Lock()
		admitted := l.pass.admits(e)
		l.mu.Unlock()
		if !admitted {
			return errUnsent
		}
		return l.sess.Send(e.out)
	})
	if err == errUnsent {
		l.post(report{kind: reportUnsent, e: e})
	} else {
		l.sent(e, err)
	}
}

var errNoAnswer = errors.New("the destination declared that it answers within Send, but did not")

// sent processes err, the result of a Send of e. An inline session that has not answered also
// fails, because the outlet would wait for the answer forever.
func (l *life) sent(e *entry, err error) {
	if err == nil && l.inline && l.silent(e.out) {
		err = &panicError{errNoAnswer}
	}
	if _, broke := err.(*panicError); broke {
		l.End(err)
	} else if err != nil {
		l.post(report{kind: reportRefused, e: e, err: err})
	}
}

// silent reports whether the session has not answered b and has not ended.
func (l *life) silent(b *batch.Batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.pass.over && !slices.ContainsFunc(l.queue, func(r report) bool { return r.kind == reportAnswer && r.b == b })
}

// close closes the session.
func (l *life) close() {
	l.call = callClose
	_ = l.make(func() error { l.sess.Close(); return nil })
	l.closed()
}

// closed reports that the session no longer reads any batch. It ends the context, which nothing else
// does if Open has failed.
func (l *life) closed() {
	l.call = callNone
	l.cancel(errFinished)
	l.post(report{kind: reportClosed})
}

// make calls f, which calls the driver, when no call of the driver is in progress.
func (l *life) make(f func() error) error {
	l.driver.calls <- struct{}{}
	defer l.driver.calls.release()
	return l.driver.contain(f)
}

// isOver reports whether the session has ended for the outlet, so that its reports are ignored.
func (l *life) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pass.over
}

// onlySettled reports whether the queue contains exactly one report, and this settles all records
// of b. If so, it removes the report.
func (l *life) onlySettled(b *batch.Batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) != 1 {
		return false
	}
	r := &l.queue[0]
	if r.kind != reportAnswer || r.b != b || !r.o.Open.Empty() || !r.o.Refused.Empty() || r.o.Unnamed > 0 {
		return false
	}
	*r = report{}
	l.queue = l.queue[:0]
	return true
}

// whenClosed calls f when the session has closed. It is for an outlet whose loop has ended and
// reads no more reports.
func (l *life) whenClosed(f func()) {
	l.mu.Lock()
	l.then = f
	closed := slices.ContainsFunc(l.queue, func(r report) bool { return r.kind == reportClosed })
	l.mu.Unlock()
	if closed {
		f()
	}
}
