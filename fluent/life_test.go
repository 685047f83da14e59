package fluent

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// The type fakeLife is a [deliver.Life] that stores what a session reports.
type fakeLife struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{}

	mu         sync.Mutex
	answers    map[*batch.Batch]batch.Outcome
	order      []*batch.Batch
	changed    chan struct{} // closed at the next outcome
	over       bool
	err        error
	violations []string
}

func newFakeLife() *fakeLife {
	l := &fakeLife{ended: make(chan struct{}), answers: map[*batch.Batch]batch.Outcome{}, changed: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

func (l *fakeLife) Context() context.Context { return l.ctx }

func (l *fakeLife) Answer(b *batch.Batch, o batch.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.answers[b]; twice || l.over {
		l.violations = append(l.violations, "a batch has two answers, or one after the end")
		return
	}
	if err := o.Check(b.Len()); err != nil {
		l.violations = append(l.violations, err.Error())
	}
	l.answers[b] = o
	l.order = append(l.order, b)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *fakeLife) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		l.violations = append(l.violations, "a session has two ends")
		return
	}
	l.over, l.err = true, err
	close(l.ended)
}

// wait waits for the outcome of b, or for the end of the session or of ctx.
func (l *fakeLife) wait(ctx context.Context, b *batch.Batch) (o batch.Outcome, ok bool) {
	for {
		l.mu.Lock()
		o, ok = l.answers[b]
		changed := l.changed
		l.mu.Unlock()
		if ok {
			return o, true
		}
		select {
		case <-changed:
		case <-l.ended:
			l.mu.Lock()
			defer l.mu.Unlock()
			o, ok = l.answers[b]
			return o, ok
		case <-ctx.Done():
			return o, false
		}
	}
}

// A testClient is a Driver and its open session. Its methods call the session like package deliver
// does.
type testClient struct {
	*Driver
	t testing.TB
	l *fakeLife
	s deliver.Session
}

func newTestClient(t testing.TB, c testConfig) *testClient {
	t.Helper()
	client, err := c.driver()
	if err != nil {
		t.Fatal(err)
	}
	p := &testClient{Driver: client, t: t}
	t.Cleanup(p.close)
	return p
}

// open opens a session if none is open.
func (p *testClient) open(ctx context.Context) error {
	if p.s != nil {
		return nil
	}
	p.l = newFakeLife()
	defer context.AfterFunc(ctx, func() { p.l.cancel(context.Cause(ctx)) })()
	s, err := p.Driver.Open(p.l)
	if err != nil {
		p.l.cancel(nil)
		return err
	}
	p.s = s
	return nil
}

// close closes the session.
func (p *testClient) close() {
	if p.s == nil {
		return
	}
	p.l.cancel(context.Canceled)
	p.s.Close()
	p.s = nil
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	for _, text := range p.l.violations {
		p.t.Error(text)
	}
}

// A result is the outcome of one batch, or the reason why the outcome is unknown.
type result struct {
	batch.Outcome
	answered bool
	err      error // error of Open or End, if some batches have no outcome
}

// settled returns the indexes of those records of a batch that need not be sent again. n is the
// number of records of the batch.
func (r *result) settled(n int) (indexes []int) {
	for i := range n {
		if r.answered && !r.Open.Has(i) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// send sends batches, as many at the same time as the session accepts, and waits for their
// outcomes. If a session does not accept a batch, send opens the next session. After a batch with
// undelivered records, send stops.
func (p *testClient) send(ctx context.Context, bs ...*batch.Batch) []result {
	p.t.Helper()
	out := make([]result, len(bs))
	for at := 0; at < len(bs); {
		fresh := p.s == nil
		if err := p.open(ctx); err != nil {
			for i := range out[at:] {
				out[at+i].err = err
			}
			return out
		}
		l, from := p.l, at
		stop := context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })
		for at < len(bs) && p.s.Send(bs[at]) == nil {
			at++
		}
		settled := !fresh || at > from
		for i := from; i < at; i++ {
			out[i].Outcome, out[i].answered = l.wait(ctx, bs[i])
			settled = settled && out[i].answered && out[i].Open.Empty()
		}
		if fresh && at == from { // the session is about to end and accepts no more batches
			select {
			case <-l.ended:
			case <-ctx.Done():
			}
		}
		stop()
		over, err := false, ctx.Err()
		select {
		case <-l.ended:
			over, err = true, l.err
		default:
		}
		if over || at < len(bs) || err != nil {
			p.close()
		}
		if !settled {
			for i := range out[from:] {
				out[from+i].err = err
			}
			return out
		}
	}
	return out
}

// sendOne sends one batch.
func (p *testClient) sendOne(b *batch.Batch) result { return p.send(context.Background(), b)[0] }

// sendOK sends batches and fails the test unless all are delivered.
func sendOK(t testing.TB, p *testClient, bs ...*batch.Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for i, r := range p.send(ctx, bs...) {
		if !r.answered || !r.Open.Empty() || !r.Refused.Empty() {
			t.Fatalf("batch %d: %+v", i, r)
		}
	}
}

// sendUntilSettled sends b up to tries times, until no record needs to be sent again.
func (p *testClient) sendUntilSettled(b *batch.Batch, tries int) (r result) {
	p.t.Helper()
	for range tries {
		if r = p.sendOne(b); r.answered && r.Open.Empty() {
			return r
		}
	}
	p.t.Fatalf("not settled after %d attempts: %+v", tries, r)
	return r
}
