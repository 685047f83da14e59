package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// AsSink returns dest as a [batch.Sink], for callers that are no outlet and deal with
// failures themselves: each Send returns when its batch was answered, and says what
// became of it as the errors of package batch do. If some records are refused and others
// are open, Send reports all of them as open, and the former are refused again.
//
// One session is kept open from one Send to the next. It ends with the context of a
// Send that is given up, and with Close, which closes dest, too. Sends take turns.
// [FromSink] of the result is dest.
func AsSink(dest Destination) batch.Sink {
	return &destSink{dest: dest, traits: dest.Traits(), turn: make(chan struct{}, 1)}
}

type destSink struct {
	dest   Destination
	traits Traits
	turn   chan struct{} // held during Send and Close; capacity 1
	life   *soloLife     // nil: no session
	sess   Session
	closed bool
}

func (s *destSink) Limits() batch.Limits         { return s.traits.Limits }
func (s *destSink) Dictionary() batch.Dictionary { return s.traits.Dictionary }

func (s *destSink) Accepts(contentType string) bool {
	return s.traits.Accepts == nil || s.traits.Accepts(contentType)
}

// Send hands b to the session, a new one if there is none or it takes no more.
func (s *destSink) Send(ctx context.Context, b *batch.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	if s.closed {
		return errClosed
	}
	if s.life != nil && is(s.life.over) {
		s.leave(errFinished)
	}
	for old := s.life != nil; ; old = false {
		if err := s.open(ctx); err != nil {
			return err
		}
		o, err := s.exchange(ctx, b)
		if err == nil {
			return sendErrorOf(&o, b.Len())
		}
		s.leave(err)
		if !old || ctx.Err() != nil || !errors.Is(err, errRefused) {
			return err
		}
	}
}

func (s *destSink) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// open opens a session if there is none.
func (s *destSink) open(ctx context.Context) (err error) {
	if s.life != nil {
		return nil
	}
	l := newSoloLife()
	stop := context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })
	defer stop()
	if s.sess, err = s.dest.Open(l); err == nil && s.sess == nil {
		err = errors.New("the destination has opened a nil session")
	}
	if err != nil {
		l.cancel(err)
		return err
	}
	s.life = l
	return nil
}

// errRefused: the session had not ended, and took no more.
var errRefused = errors.New("the session takes no more")

// exchange sends b and waits for its answer.
func (s *destSink) exchange(ctx context.Context, b *batch.Batch) (o batch.Outcome, err error) {
	l := s.life
	l.expect(b)
	stop := context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })
	defer stop()
	if err := s.sess.Send(b); err != nil {
		return o, fmt.Errorf("%w: %w", errRefused, err)
	}
	select {
	case o = <-l.answer: // what is told before the end counts
		return o, nil
	default:
	}
	select {
	case o = <-l.answer:
		return o, nil
	case <-l.over:
		select {
		case o = <-l.answer:
			return o, nil
		default:
		}
		if l.why == nil {
			return o, errEnded
		}
		return o, l.why
	case <-ctx.Done():
		return o, context.Cause(ctx)
	}
}

// leave ends the session. The memory of its batches is the caller's again.
func (s *destSink) leave(why error) {
	s.life.cancel(why)
	s.sess.Close()
	s.life, s.sess = nil, nil
}

// Close ends the session and closes the destination.
func (s *destSink) Close(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer func() { <-s.turn }()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.life != nil {
		s.leave(errFinished)
	}
	if c, ok := s.dest.(batch.Closer); ok {
		return c.Close(ctx)
	}
	return nil
}

// A soloLife is the Life of a session with one batch under way.
type soloLife struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	answer chan batch.Outcome // capacity 1
	over   chan struct{}      // closed by End

	mu   sync.Mutex   // leaf; guards the rest
	want *batch.Batch // nil: no answer is awaited
	why  error        // of the end; to be read when over is closed
}

func newSoloLife() *soloLife {
	l := &soloLife{answer: make(chan batch.Outcome, 1), over: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

func (l *soloLife) Context() context.Context { return l.ctx }

func (l *soloLife) expect(b *batch.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want = b
}

func (l *soloLife) Answer(b *batch.Batch, o batch.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b != l.want || is(l.over) {
		return
	}
	l.want = nil
	if err := o.Check(b.Len()); err != nil {
		o = batch.Outcome{Open: batch.All(), Why: err}
	}
	l.answer <- o
}

func (l *soloLife) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !is(l.over) {
		l.why = err
		close(l.over)
	}
}

// sendErrorOf returns the error that says the same as o of a batch of n records.
func sendErrorOf(o *batch.Outcome, n int) error {
	if o.Open.Empty() {
		if o.Refused.Empty() {
			return nil
		}
		return batch.Reject(o.Refusal, o.Refused.Append(nil, n)...)
	}
	e := batch.SendError{Err: o.Why, After: o.After}
	for i := range n {
		if o.Open.Has(i) || o.Refused.Has(i) {
			e.Records = append(e.Records, i)
		}
	}
	if len(e.Records) < n {
		e.Kind = batch.KindPartial
		return &e
	}
	e.Records = nil
	switch o.Advice {
	case batch.Smaller:
		e.Kind = batch.KindTooLarge
	case batch.Search, batch.Gone:
		e.Kind = batch.KindReject
	case batch.Hold:
		e.Kind = batch.KindFatal
	}
	return &e
}
