package batch_test

import (
	"context"
	"errors"
	"testing"

	"github.com/forebay-log/forebay/batch"
)

// echo answers each batch with the context's error, at once or later.
type echo struct{ later bool }

func (e echo) Window() int { return 1 }

func (e echo) Start(ctx context.Context, _ *batch.Batch, done func(error)) {
	if e.later {
		go func() {
			<-ctx.Done()
			done(ctx.Err())
		}()
		return
	}
	done(ctx.Err())
}

func (e echo) Send(ctx context.Context, b *batch.Batch) error { return batch.SendAsync(ctx, e, b) }

// SendAsync waits for done, whether that comes before Start returns or after ctx
// has ended.
func TestSendAsync(t *testing.T) {
	if err := (echo{}).Send(t.Context(), new(batch.Batch)); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if err := (echo{later: true}).Send(ctx, new(batch.Batch)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
