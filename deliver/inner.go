package deliver

import (
	"context"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// inner is the sink that another one is built around. Its methods hand the
// optional parts of the seam through, so that a wrapper hides none of them.
type inner struct{ sink batch.Sink }

// Limits returns the limits of the sink within, none if it states none.
func (in inner) Limits() batch.Limits {
	if l, ok := in.sink.(batch.Limiter); ok {
		return l.Limits()
	}
	return batch.Limits{}
}

// Flush flushes the sink within, if it holds records.
func (in inner) Flush(ctx context.Context) error {
	if f, ok := in.sink.(batch.Flusher); ok {
		return f.Flush(ctx)
	}
	return nil
}

// Sync puts what the sink within was given on stable storage, if it can.
func (in inner) Sync() error {
	if s, ok := in.sink.(batch.Syncer); ok {
		return s.Sync()
	}
	return nil
}

// Account returns the account of what the sink within has in its custody.
func (in inner) Account() batch.Account {
	if a, ok := in.sink.(batch.Accounter); ok {
		return a.Account()
	}
	return batch.Account{}
}

// Drain tells the sink within that its producer has begun to close.
func (in inner) Drain(deadline time.Time) {
	if d, ok := in.sink.(batch.Drainer); ok {
		d.Drain(deadline)
	}
}

// Close closes the sink within, if it can be closed.
func (in inner) Close(ctx context.Context) error {
	if c, ok := in.sink.(batch.Closer); ok {
		return c.Close(ctx)
	}
	return nil
}
