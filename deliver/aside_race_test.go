package deliver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// gatedSink is a handSink whose Start waits for a gate, if there is one.
type gatedSink struct {
	handSink
	gate atomic.Pointer[chan struct{}]
}

func (s *gatedSink) Start(ctx context.Context, b *batch.Batch, done func(error)) {
	if g := s.gate.Load(); g != nil {
		<-*g
	}
	s.handSink.Start(ctx, b, done)
}

func (s *gatedSink) Send(ctx context.Context, b *batch.Batch) error {
	return batch.SendAsync(ctx, s, b)
}

// The window is put aside while it is being started again: what was not started by
// then is delivered behind what was, and before what comes.
func TestAsideWhileStartingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &gatedSink{handSink: handSink{window: 2}}
		k, _ := mustKeeper(t, sink, KeeperOptions{
			Spill: &testkit.Spill{}, When: func(error) bool { return false },
		})
		var full atomic.Bool
		press, err := k.SpillWhen(full.Load)
		if err != nil {
			t.Fatal(err)
		}
		m := &testkit.Model{}
		send(t, m, k, m.Batch(1, 32, batch.Meta{}))
		send(t, m, k, m.Batch(1, 32, batch.Meta{}))
		sink.answer(0, testkit.ErrDown)
		sink.answer(1, nil)
		time.Sleep(time.Minute) // the first is sent again, by itself
		mustFirsts(t, &sink.handSink, 1, 2, 1)
		gate := make(chan struct{})
		sink.gate.Store(&gate)
		sink.answer(2, nil) // now the second is started again, which takes a while
		send(t, m, k, m.Batch(1, 32, batch.Meta{}))
		fourth := make(chan error)
		go func() { fourth <- k.Send(t.Context(), m.Batch(1, 32, batch.Meta{})) }()
		synctest.Wait()
		full.Store(true)
		press()
		if err := <-fourth; err != nil {
			t.Fatal(err)
		}
		full.Store(false)
		sink.gate.Store(nil)
		close(gate)
		mustFirsts(t, &sink.handSink, 1, 2, 1, 2)
		sink.answer(3, nil)
		time.Sleep(time.Minute)
		mustFirsts(t, &sink.handSink, 1, 2, 1, 2, 3, 4)
		sink.answer(4, nil)
		sink.answer(5, nil)
		time.Sleep(time.Minute)
		if a := k.Account(); a.Delivered != 4 || a.Pending.Total() != 0 {
			t.Error(a)
		}
		if err := k.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
