package deliver

import "context"

// A ctxLock is a mutex whose method acquire gives up when a context ends. Waiters are served in
// order.
type ctxLock chan struct{}

func newCtxLock() ctxLock { return make(ctxLock, 1) }

// acquire waits until no other goroutine holds t, or until ctx ends. After success the caller must
// call release.
func (t ctxLock) acquire(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t ctxLock) release() { <-t }

// signal makes the next receive from ch return at once. ch has capacity 1.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// isClosed reports whether ch is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
