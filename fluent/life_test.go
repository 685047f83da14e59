package fluent

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// life is a [deliver.Life] that keeps what a session reports.
type life struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{}

	mu       sync.Mutex
	answers  map[*batch.Batch]batch.Outcome
	order    []*batch.Batch
	news     chan struct{} // closed at the next answer
	over     bool
	err      error
	nonsense []string
}

func newLife() *life {
	l := &life{ended: make(chan struct{}), answers: map[*batch.Batch]batch.Outcome{}, news: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

func (l *life) Context() context.Context { return l.ctx }

func (l *life) Answer(b *batch.Batch, o batch.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, twice := l.answers[b]; twice || l.over {
		l.nonsense = append(l.nonsense, "a batch has two answers, or one after the end")
		return
	}
	if err := o.Check(b.Len()); err != nil {
		l.nonsense = append(l.nonsense, err.Error())
	}
	l.answers[b] = o
	l.order = append(l.order, b)
	close(l.news)
	l.news = make(chan struct{})
}

func (l *life) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		l.nonsense = append(l.nonsense, "a session has two ends")
		return
	}
	l.over, l.err = true, err
	close(l.ended)
}

// wait waits for the answer to b, or the end of the session or of ctx.
func (l *life) wait(ctx context.Context, b *batch.Batch) (o batch.Outcome, ok bool) {
	for {
		l.mu.Lock()
		o, ok = l.answers[b]
		news := l.news
		l.mu.Unlock()
		if ok {
			return o, true
		}
		select {
		case <-news:
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

// peer is a Driver and the session that is open, as an outlet has them.
type peer struct {
	*Driver
	t testing.TB
	l *life
	s deliver.Session
}

func newTestClient(t testing.TB, c testConfig) *peer {
	t.Helper()
	client, err := c.driver()
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{Driver: client, t: t}
	t.Cleanup(p.close)
	return p
}

// open opens a session, if there is none.
func (p *peer) open(ctx context.Context) error {
	if p.s != nil {
		return nil
	}
	p.l = newLife()
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
func (p *peer) close() {
	if p.s == nil {
		return
	}
	p.l.cancel(context.Canceled)
	p.s.Close()
	p.s = nil
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	for _, text := range p.l.nonsense {
		p.t.Error(text)
	}
}

// A result is what became of one batch: an answer, or else why there is none.
type result struct {
	batch.Outcome
	answered bool
	err      error // of Open, or of the end, where not all of those sent have an answer
}

// settled are the indexes of the records of n that need not be sent again.
func (r *result) settled(n int) (indexes []int) {
	for i := range n {
		if r.answered && !r.Open.Has(i) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// send sends batches, all at once where the session takes them, and waits for what
// becomes of them. What a session that has left refuses goes to the next one. Once one
// is not settled nothing more is sent.
func (p *peer) send(ctx context.Context, bs ...*batch.Batch) []result {
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
		if fresh && at == from { // it takes nothing: its end is under way
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

// try sends one batch.
func (p *peer) try(b *batch.Batch) result { return p.send(context.Background(), b)[0] }

// sendOK sends batches that must be settled.
func sendOK(t testing.TB, p *peer, bs ...*batch.Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for i, r := range p.send(ctx, bs...) {
		if !r.answered || !r.Open.Empty() || !r.Refused.Empty() {
			t.Fatalf("batch %d: %+v", i, r)
		}
	}
}

// persist sends b again as an outlet does, until it is settled.
func (p *peer) persist(b *batch.Batch, tries int) (r result) {
	p.t.Helper()
	for range tries {
		if r = p.try(b); r.answered && r.Open.Empty() {
			return r
		}
	}
	p.t.Fatalf("not settled after %d attempts: %+v", tries, r)
	return r
}
