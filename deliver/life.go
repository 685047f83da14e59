package deliver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// life is the outlet's side of one session. One goroutine, which is the loop at an inline outlet, makes
// all calls of the driver: Open, then Send for each batch, then Close. Results, answers and the end
// are in one queue: an answer before the end counts, an answer after it does not.
type life struct {
	o      *outlet
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   chan *entry // capacity: the window and a control record
	stop   func() bool // inline: detaches ctx from the context of the outlet

	// The goroutine of the session uses these.
	call    call
	sess    Session
	sending *entry
	direct  *batch.Batch // inline: a batch that is sent without an entry

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

// counts notes r. It reports whether the outlet gets it.
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

// A report is one event of a session.
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

func newLife(o *outlet) *life {
	l := &life{o: o, work: make(chan *entry, o.m.set.window+1)}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	if o.inline {
		l.stop = context.AfterFunc(o.ctx, func() { l.cancel(errNoTime) })
	}
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

// post queues r for the outlet.
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
		l.o.driver.accepted()
	}
	if then != nil && r.kind == reportClosed {
		then()
	}
	signal(l.o.wake)
}

// reports removes and returns the queued reports.
func (l *life) reports() []report {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queue
	l.queue, l.spare = l.spare[:0], nil
	return q
}

// keep stores the memory of reports for reuse.
func (l *life) keep(q []report) {
	clear(q)
	l.mu.Lock()
	l.spare = q[:0]
	l.mu.Unlock()
}

// fence ends the session for the outlet: no answer counts from now on.
func (l *life) fence(why error) {
	l.mu.Lock()
	l.pass.over = true
	l.mu.Unlock()
	if l.stop != nil {
		l.stop()
	}
	l.cancel(why)
	close(l.work)
}

// run makes the calls of the driver, one at a time. A driver that calls
// runtime.Goexit ends the goroutine; the next one continues after that call.
func (l *life) run() {
	finished := false
	defer func() {
		if !finished {
			l.failed(&panicError{errGoexit})
			go l.run()
		}
	}()
	for l.step() {
	}
	finished = true
}

// call is the current or the next call of the driver.
type call uint8

const (
	callOpen call = iota
	callSend
	callClose
	callNone
)

// step makes the next call. It reports false when there is none.
func (l *life) step() bool {
	switch l.call {
	case callOpen:
		if err := l.make(l.open); err != nil {
			l.failed(err)
			break
		}
		l.call = callSend
		l.post(report{kind: reportOpened})
	case callSend:
		e, ok := <-l.work
		if !ok {
			l.call = callClose
			break
		}
		l.sending = e
		if err := l.make(l.send); err == errUnsent {
			l.post(report{kind: reportUnsent, e: e})
		} else if err != nil {
			l.failed(err)
		}
	case callClose:
		if err := l.make(l.close); err != nil {
			l.failed(err)
			break
		}
		l.call = callNone
		l.post(report{kind: reportClosed})
	}
	return l.call != callNone
}

// begin reports whether e may be sent, and notes that it is.
func (l *life) begin(e *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pass.admits(e)
}

func (l *life) open() (err error) {
	if l.sess, err = l.o.driver.dest.Open(l); err == nil && l.sess == nil {
		err = errors.New("the destination has opened a nil session")
	}
	return err
}

// errUnsent means that Send was not called.
var errUnsent = errors.New("the session accepts no new records")

// send calls Send, unless a report that arrived during the wait for the driver forbids it.
func (l *life) send() error {
	if !l.begin(l.sending) {
		return errUnsent
	}
	return l.sess.Send(l.sending.out)
}

func (l *life) close() error { l.sess.Close(); return nil }

// failed handles the error, panic or Goexit of the current call.
func (l *life) failed(err error) {
	switch l.call {
	case callOpen:
		l.call = callNone
		l.post(report{kind: reportOpened, err: err})
		l.post(report{kind: reportClosed})
	case callSend:
		if _, broke := err.(*panicError); broke {
			l.End(err)
		} else {
			l.post(report{kind: reportRefused, e: l.sending, err: err})
		}
	case callClose:
		l.call = callNone
		l.post(report{kind: reportClosed})
	}
}

// make makes a call of the driver: no other one is under way.
func (l *life) make(f func() error) error {
	l.o.driver.calls <- struct{}{}
	defer l.o.driver.release()
	return l.o.driver.contain(f)
}

// whenClosed calls f when the session has closed: the outlet has ended.
func (l *life) whenClosed(f func()) {
	l.mu.Lock()
	l.then = f
	closed := slices.ContainsFunc(l.queue, func(r report) bool { return r.kind == reportClosed })
	l.mu.Unlock()
	if closed {
		f()
	}
}
