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

// sendAside sends one more batch, for which the window has no room: it has the
// window put aside, because the producer is full.
func sendAside(t *testing.T, k *Keeper, b *batch.Batch, full *atomic.Bool, press func()) {
	t.Helper()
	sent := make(chan error)
	go func() { sent <- k.Send(t.Context(), b) }()
	synctest.Wait()
	full.Store(true)
	press()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	full.Store(false)
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
		sendAside(t, k, m.Batch(1, 32, batch.Meta{}), &full, press)
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

// blinkSpill fails to read once.
type blinkSpill struct {
	testkit.Spill
	reads atomic.Int32
	fails int32 // which Next
}

func (s *blinkSpill) Next() (*batch.Batch, uint64, error) {
	if s.reads.Add(1) == s.fails {
		return nil, 0, testkit.ErrDisk
	}
	return s.Spill.Next()
}

// A read of the spill fails while the window is put aside, and the next one does not:
// every batch is delivered and counted all the same, in order.
func TestAsideReadFails(t *testing.T) {
	for fails := range int32(4) {
		for _, answer := range []error{nil, testkit.ErrDown} {
			synctest.Test(t, func(t *testing.T) {
				sink := &handSink{window: 3}
				store := &blinkSpill{fails: fails}
				k, _ := mustKeeper(t, sink, KeeperOptions{Spill: store, When: func(error) bool { return false }})
				var full atomic.Bool
				press, err := k.SpillWhen(full.Load)
				if err != nil {
					t.Fatal(err)
				}
				m := &testkit.Model{}
				for range 3 {
					send(t, m, k, m.Batch(1, 32, batch.Meta{}))
				}
				sendAside(t, k, m.Batch(1, 32, batch.Meta{}), &full, press)
				time.Sleep(time.Minute)
				mustFirsts(t, sink, 1, 2, 3) // nothing more than the window has room for
				for i := range 3 {
					time.Sleep(time.Minute)
					sink.answer(i, answer)
				}
				for i := 3; k.Account().Pending.Total() > 0 && i < 20; i++ {
					if time.Sleep(time.Minute); i < len(sink.firsts()) {
						sink.answer(i, nil)
					}
				}
				a := k.Account()
				if err := a.Check(); err != nil || a.Delivered != 4 {
					t.Errorf("read %d fails, answer %v: %v: %v", fails, answer, err, a)
				}
				if err := m.Verify(sink.got, 4); err != nil {
					t.Errorf("read %d fails, answer %v: %v: %v", fails, answer, err, sink.got)
				}
				if answer != nil {
					if got := sink.firsts(); len(got) < 7 {
						t.Errorf("read %d fails: started %v only", fails, got)
					}
				}
				if err := k.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
