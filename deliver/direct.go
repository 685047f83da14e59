package deliver

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
)

// newDirect implements [outputhook.Direct].
func newDirect(dest Destination) (send func(ctx context.Context, b *batch.Batch) batch.Outcome, closeDest func(ctx context.Context) error) {
	s := &direct{driver: newDriver(dest, new(callback.Reporter), func() uint64 { return 0 }), lock: newCtxLock()}
	return s.send, s.close
}

// The type direct sends batches to a destination without an outlet. The goroutine that calls its
// method send makes the calls of the session.
type direct struct {
	driver *driver
	lock   ctxLock // guards the other fields
	life   *life   // nil: no session is open
	sent   uint64  // number of batches sent so far
	closed bool
}

// send passes b to the session. If no session is open, or the open session accepts no more batches,
// send opens a new one.
func (s *direct) send(ctx context.Context, b *batch.Batch) batch.Outcome {
	if b.Len() == 0 {
		return batch.Outcome{}
	}
	if err := s.lock.acquire(ctx); err != nil {
		return batch.FailedOutcome(err)
	}
	defer s.lock.release()
	if s.closed {
		return batch.FailedOutcome(errClosed)
	}
	if s.life != nil && s.life.isOver() {
		s.leave(errFinished)
	}
	for old := s.life != nil; ; old = false {
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

// errRefused is wrapped by the error for a session that refused a Send without having ended.
var errRefused = errors.New("the session accepts no more records")

// exchange sends b and waits for the answer. It opens a session if there is none. If ctx ends
// first, exchange ends the session.
func (s *direct) exchange(ctx context.Context, b *batch.Batch) (o batch.Outcome, err error) {
	if s.life == nil {
		// No outlet reads the reports of this session, so this goroutine reads them.
		s.life = newLife(context.Background(), s.driver, make(chan struct{}, 1), 0)
	}
	l := s.life
	stop := context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })
	defer stop()
	if l.call == callOpen {
		l.open()
	}
	if l.call == callSend {
		s.sent++
		l.transmit(&entry{out: b, round: s.sent})
	}
	for {
		for _, r := range l.reports(nil) {
			switch {
			case r.kind == reportAnswer && r.b == b:
				return r.o, nil
			case r.kind == reportOpened && r.err != nil:
				return o, r.err
			case r.kind == reportRefused:
				return o, fmt.Errorf("%w: %w", errRefused, r.err)
			case r.kind == reportEnd:
				return o, cmp.Or(r.err, errEnded)
			}
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return o, context.Cause(ctx)
		}
	}
}

// leave ends the session, which then no longer uses the memory of its batches.
func (s *direct) leave(why error) {
	if s.life.fence(why); s.life.call != callNone {
		s.life.close()
	}
	s.life = nil
}

// close ends the session and closes the destination.
func (s *direct) close(ctx context.Context) error {
	if err := s.lock.acquire(ctx); err != nil {
		return err
	}
	defer s.lock.release()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.life != nil {
		s.leave(errFinished)
	}
	return s.driver.end(ctx, true).err()
}
