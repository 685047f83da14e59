package deliver

import (
	"errors"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// Sends of an inline outlet: the loop makes the calls of the session.

// hand sends e in the goroutine of the loop. The answer comes within Send.
func (l *life) hand(e *entry) {
	l.sending = e
	if err := l.make(l.send); err == errUnsent {
		l.post(report{kind: reportUnsent, e: e})
	} else {
		l.sent(e, err)
	}
}

// sent notes the end of the Send of e.
func (l *life) sent(e *entry, err error) {
	l.mu.Lock()
	silent := !l.pass.over && !slices.ContainsFunc(l.queue, func(r report) bool { return r.kind == reportAnswer && r.b == e.out })
	l.mu.Unlock()
	l.sending = e
	if err == nil && silent {
		err = &panicError{errNoAnswer} // the outlet would wait for ever
	}
	if err != nil {
		l.failed(err)
	}
}

var errNoAnswer = errors.New("the destination declared that it answers within Send, but did not")

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

// rename turns an answer to b into an answer to e.
func (l *life) rename(b *batch.Batch, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.queue {
		if l.queue[i].b == b {
			l.queue[i].b = e.out
		}
	}
}

// closeNow closes the session.
func (l *life) closeNow() {
	l.call = callClose
	l.step()
}

func (l *life) sendDirect() error { return l.sess.Send(l.direct) }
