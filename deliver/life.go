package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// A life is the outlet's side of one session. One goroutine makes all calls of the driver: Open, then
// Send for each batch, then Close. That is the goroutine of run or, at an inline outlet and for
// [Direct], the caller of open, transmit and close. Results, answers and the end are in one queue,
// because an answer before the end counts and an answer after it does not.
type life struct {
	driver *driver
	inline bool          // each answer comes before its Send returns
	wake   chan struct{} // signaled at each report
	ctx    context.Context
	cancel context.CancelCauseFunc
	detach func() bool // of an inline outlet: ctx no longer ends with the context of the outlet
	work   chan *entry // of run; capacity: the window and a control record

	// The goroutine that makes the calls uses these.
	call call
	sess Session

	mu    sync.Mutex // leaf; guards the rest
	queue []report
	spare []report
	pass  passage
	then  func() // called when the session has closed, instead of a report
}

// A passage decides which batches still reach a session, and which of its reports still reach the
// outlet. Both are needed, because the outlet may pass on batches before it has read an answer, and a
// session may answer after its end.
type passage struct {
	round   uint64 // of the batch that was sent last
	void    uint64 // rounds up to this have a batch with open records: nothing more of them is sent
	refuses bool   // a Send has failed: the session accepts no more records
	over    bool   // End was called, or the outlet gave up: nothing after it counts
}

// admits reports whether e may be sent. It must not be sent after the end of the session, nor
// after an answer with open records that the outlet had not read when it handed e over: the open
// records go first.
func (p *passage) admits(e *entry) bool {
	if p.over || p.refuses || e.round <= p.void {
		return false
	}
	p.round = e.round
	return true
}

// counts notes r. It reports whether the outlet gets it: answers after the end come from a goroutine of
// the driver that has not heard of it, and their batches are waiting again.
func (p *passage) counts(r *report) bool {
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

// A report is one event of a session, on its way to the machine.
type report struct {
	kind reportKind
	b    *batch.Batch
	e    *entry
	o    batch.Outcome
	err  error
}

type reportKind uint8

const (
	reportOpened  reportKind = iota // Open has returned err
	reportAnswer                    // b has been answered with o
	reportRefused                   // Send of e has returned err
	reportUnsent                    // Send of e was not called
	reportEnd                       // the session is over because of err
	reportClosed                    // Close has returned
)

var (
	errGoexit   = errors.New("destination called runtime.Goexit")
	errNoTime   = fmt.Errorf("the outlet is closing: %w", context.DeadlineExceeded)
	errFinished = errors.New("the session is no longer needed")
)

// newLife returns a life that has not begun. wake has capacity 1.
func newLife(d *driver, wake chan struct{}, window int) *life {
	l := &life{driver: d, wake: wake, work: make(chan *entry, window+1)}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
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

// End ends the session for the outlet.
func (l *life) End(err error) { l.post(report{kind: reportEnd, err: err}) }

// post queues r for the outlet. It never blocks, so that a driver may call it under its own locks. The
// queue is bounded by the driver: it has at most one answer for each batch in flight.
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

// reports removes and returns the queued reports. The next reports use the memory that keep was given.
func (l *life) reports() []report {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queue
	l.queue, l.spare = l.spare[:0], nil
	return q
}

// keep stores the memory of reports for reuse, so that answers cost no allocation.
func (l *life) keep(q []report) {
	clear(q)
	l.mu.Lock()
	l.spare = q[:0]
	l.mu.Unlock()
}

// fence ends the session for the outlet: no answer counts from now on. run then closes the session, when
// its current call has returned.
func (l *life) fence(why error) {
	l.mu.Lock()
	l.pass.over = true
	l.mu.Unlock()
	if l.detach != nil {
		l.detach()
	}
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
// goroutine; the next one continues after that call.
func (l *life) run() {
	finished := false
	defer func() {
		if !finished {
			l.unwound()
			go l.run()
		}
	}()
	if l.call == callOpen {
		l.open()
	}
	for l.call == callSend {
		if e, ok := <-l.work; ok {
			l.transmit(e)
		} else {
			l.call = callClose
		}
	}
	if l.call == callClose {
		l.close()
	}
	finished = true
}

// unwound reports the end of a call that called runtime.Goexit.
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

// errUnsent means that Send was not called.
var errUnsent = errors.New("the session accepts no new records")

// transmit sends e, unless a report that arrived during the wait for the driver forbids it.
func (l *life) transmit(e *entry) {
	err := l.make(func() error {
		if !l.begin(e) {
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

// begin reports whether e may be sent, and notes that it is.
func (l *life) begin(e *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pass.admits(e)
}

var errNoAnswer = errors.New("the destination declared that it answers within Send, but did not")

// sent reports a Send of e that failed. The Send of an inline session fails if it has not answered,
// because the outlet would wait for the answer forever.
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

// silent reports whether the session continues and has not answered b.
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

// closed reports that the session reads nothing any more.
func (l *life) closed() {
	l.call = callNone
	l.post(report{kind: reportClosed})
}

// make makes a call of the driver while no other call is in progress.
func (l *life) make(f func() error) error {
	l.driver.calls <- struct{}{}
	defer l.driver.calls.release()
	return l.driver.contain(f)
}

// isOver reports whether nothing that the session does counts any more.
func (l *life) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pass.over
}

// onlySettled reports whether the only report of the session is that all of b is settled. Then that
// report is removed.
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

// rename turns an answer to b into an answer to e, which b has become after sendNow.
func (l *life) rename(b *batch.Batch, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.queue {
		if l.queue[i].b == b {
			l.queue[i].b = e.out
		}
	}
}

// whenClosed calls f when the session has closed: the outlet has ended, and its loop reads no reports.
func (l *life) whenClosed(f func()) {
	l.mu.Lock()
	l.then = f
	closed := slices.ContainsFunc(l.queue, func(r report) bool { return r.kind == reportClosed })
	l.mu.Unlock()
	if closed {
		f()
	}
}
