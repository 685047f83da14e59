package deliver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A lane is the one way to the destination itself: calls come one at a time, a
// panic becomes an error, and when a close is late, attempts end.
type lane struct {
	inner
	async batch.AsyncSink // nil: it cannot pipeline
	// detached says that what is started is sent by a goroutine of its own, so that
	// nobody has to wait for a destination that cannot pipeline.
	detached bool
	events   *events
	closing  *closing
	// elsewhere says that records can be settled without the destination, so
	// that it gets its share of the time of a close only.
	elsewhere bool

	use   chan struct{} // held during a call of the sink; capacity 1
	sends atomic.Uint64 // attempts, Starts included

	// primed is a batch whose result is known already: that of a Start. Only the
	// goroutine that delivers looks at it.
	primed    *batch.Batch
	primedErr error

	startMu sync.Mutex // held during Start

	mu      sync.Mutex // leaf; guards the rest
	parent  context.Context
	derived context.Context
	cancel  context.CancelFunc
}

var (
	errLate = errors.New("closing: the destination has used up its share of the time")
	errBusy = errors.New("deliver: destination is busy")
)

// syncTimeout bounds the wait of Sync, which has no context, for a Send.
const syncTimeout = 5 * time.Second

func newLane(sink batch.Sink, ev *events, c *closing, elsewhere bool) *lane {
	l := &lane{inner: inner{sink}, events: ev, closing: c, elsewhere: elsewhere, use: make(chan struct{}, 1)}
	l.async, _ = sink.(batch.AsyncSink)
	if elsewhere {
		c.atLate = append(c.atLate, l.release)
	}
	c.atOver = append(c.atOver, l.release)
	return l
}

// flows reports whether batches may be started: they are in custody then, while
// they are sent.
func (l *lane) flows() bool { return l.async != nil || l.detached }

// window returns how many batches may be in flight.
func (l *lane) window() int {
	if l.async == nil {
		return 1
	}
	return max(1, l.async.Window())
}

// prime makes the next Send of b return err without sending anything.
func (l *lane) prime(b *batch.Batch, err error) { l.primed, l.primedErr = b, err }

// Send sends b and waits for the answer.
func (l *lane) Send(ctx context.Context, b *batch.Batch) (err error) {
	if l.primed != nil {
		known := l.primed == b
		l.primed, err = nil, l.primedErr
		l.primedErr = nil
		if known {
			return err
		}
	}
	return l.call(ctx, b)
}

// call calls the sink in its turn.
func (l *lane) call(ctx context.Context, b *batch.Batch) (err error) {
	select {
	case l.use <- struct{}{}:
	default:
		select {
		case l.use <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer l.leave(&err)
	if l.ended() {
		return errLate
	}
	l.sends.Add(1)
	return sane(b.Len(), l.sink.Send(l.limit(ctx), b))
}

// leave ends a call of the sink. A panic ends here; a Goexit goes on.
func (l *lane) leave(err *error) {
	<-l.use
	if r := recover(); r != nil {
		*err = l.panicked(r)
	}
}

func (l *lane) panicked(r any) error {
	err := fmt.Errorf("destination panicked: %v", r)
	l.events.post("panic", fmt.Errorf("%w\n%s", err, debug.Stack()), 0)
	return err
}

// start starts b. done is called exactly once, whatever the sink does in Start.
func (l *lane) start(ctx context.Context, b *batch.Batch, done func(error)) {
	if l.async == nil {
		go func() {
			err := errNoReturn
			defer func() { done(err) }()
			err = l.call(ctx, b)
		}()
		return
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		if r := recover(); r != nil {
			done(l.panicked(r))
		} else {
			done(errNoReturn)
		}
	}()
	l.startMu.Lock() // Start does not wait, and done does not come here
	defer l.startMu.Unlock()
	l.sends.Add(1)
	l.async.Start(l.limit(ctx), b, done)
	returned = true
}

// ended reports whether the destination has had its share of the time.
func (l *lane) ended() bool {
	return l.elsewhere && is(l.closing.late) || is(l.closing.over)
}

// limit returns a context that ends with ctx, or when the time is over. It is
// kept, because a producer mostly comes with the same one.
func (l *lane) limit(ctx context.Context) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parent != nil && l.parent == ctx {
		return l.derived
	}
	if l.cancel != nil {
		l.cancel()
	}
	l.derived, l.cancel = context.WithCancel(ctx)
	l.parent = nil
	if reflect.TypeOf(ctx).Comparable() {
		l.parent = ctx
	}
	if l.ended() {
		l.cancel()
	}
	return l.derived
}

// release ends the context of what is under way.
func (l *lane) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		l.cancel()
	}
}

// exclusive waits until nothing else calls the sink.
func (l *lane) exclusive(ctx context.Context) error {
	select {
	case l.use <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errBusy
	}
}

// Flush flushes the sink when nothing else calls it.
func (l *lane) Flush(ctx context.Context) error {
	if _, ok := l.sink.(batch.Flusher); !ok {
		return nil
	}
	if err := l.exclusive(ctx); err != nil {
		return err
	}
	defer func() { <-l.use }()
	return l.inner.Flush(ctx)
}

// Sync syncs the sink when nothing else calls it.
func (l *lane) Sync() error {
	if _, ok := l.sink.(batch.Syncer); !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
	defer cancel()
	if err := l.exclusive(ctx); err != nil {
		return err
	}
	defer func() { <-l.use }()
	return l.inner.Sync()
}

// Close closes the sink when nothing else calls it. If something does until ctx
// ends, the sink hangs, and stays as it is.
func (l *lane) Close(ctx context.Context) error {
	if _, ok := l.sink.(batch.Closer); !ok {
		return nil
	}
	select {
	case l.use <- struct{}{}:
	default:
		if err := l.exclusive(ctx); err != nil {
			return fmt.Errorf("deliver: cannot close the destination: a Send has not returned: %w", context.Cause(ctx))
		}
	}
	defer func() { <-l.use }()
	return l.inner.Close(ctx)
}
