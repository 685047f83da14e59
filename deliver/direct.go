package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/forebay-log/forebay/batch"
)

// Direct returns a function that sends batches to dest without an outlet, for callers that handle
// failures themselves, such as spool.Spool.Replay. send returns when its batch is answered or its
// context ends. All calls use one session. It ends when the context of a call ends before the
// answer, or with closeDest, which also closes dest like [Output.Close]. send is safe for
// concurrent use; calls run one at a time.
func Direct(dest Destination) (send func(ctx context.Context, b *batch.Batch) batch.Outcome, closeDest func(ctx context.Context) error) {
	s := &direct{dest: dest, turn: make(chan struct{}, 1)}
	return s.send, s.close
}

type direct struct {
	dest   Destination
	turn   chan struct{} // held during a call; capacity 1
	life   *soloLife     // nil: no session
	sess   Session
	closed bool
}

// send passes b to the session, or to a new one if there is none or it accepts no more batches.
func (s *direct) send(ctx context.Context, b *batch.Batch) batch.Outcome {
	if b.Len() == 0 {
		return batch.Outcome{}
	}
	if err := s.take(ctx); err != nil {
		return batch.FailedOutcome(err)
	}
	defer func() { <-s.turn }()
	if s.closed {
		return batch.FailedOutcome(errClosed)
	}
	if s.life != nil && is(s.life.over) {
		s.leave(errFinished)
	}
	for old := s.life != nil; ; old = false {
		if err := s.open(ctx); err != nil {
			return batch.FailedOutcome(err)
		}
		o, err := s.exchange(ctx, b)
		if err == nil {
			return o
		}
		s.leave(err)
		if !old || ctx.Err() != nil || !errors.Is(err, errRefused) {
			return batch.FailedOutcome(err)
		}
	}
}

func (s *direct) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// open opens a session if there is none.
func (s *direct) open(ctx context.Context) (err error) {
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

// errRefused is wrapped by the error of a Send that the session refused without having ended.
var errRefused = errors.New("the session accepts no more records")

// exchange sends b and waits for its answer.
func (s *direct) exchange(ctx context.Context, b *batch.Batch) (o batch.Outcome, err error) {
	l := s.life
	l.expect(b)
	stop := context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })
	defer stop()
	if err := s.sess.Send(b); err != nil {
		return o, fmt.Errorf("%w: %w", errRefused, err)
	}
	select {
	case o = <-l.answer: // an answer before the end counts
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

// leave ends the session. From then on it does not use the memory of its batches.
func (s *direct) leave(why error) {
	s.life.cancel(why)
	s.sess.Close()
	s.life, s.sess = nil, nil
}

// close ends the session and the destination.
func (s *direct) close(ctx context.Context) error {
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
	return end(ctx, s.dest, func(f func() error) error { return f() }).err()
}

// A soloLife is the Life of a session with at most one batch in flight.
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
