package slab

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
)

// slowAccount is a courier whose account takes a while.
type slowAccount struct {
	*courier
	closing  chan struct{}
	returned chan struct{}
	late     bool
}

func (s *slowAccount) Account(read func(batch.Account)) {
	select {
	case <-s.closing:
		select {
		case <-s.returned:
		case <-time.After(time.Second):
			s.late = true
		}
	default:
	}
	s.courier.Account(read)
}

// Shutdown whose time is over answers a blocked write before it asks for the account of a
// consumer that hangs.
func TestShutdownWakesWritersFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		s := &slowAccount{courier: courierFor(g), closing: make(chan struct{}), returned: make(chan struct{})}
		w, err := newPump(s, &Options{SlabBytes: 1024, SlabCount: 2, WhenFull: Block()})
		if err != nil {
			t.Fatal(err)
		}
		var refused error
		go func() {
			defer close(s.returned)
			for i := 0; refused == nil; i++ {
				refused = w.WriteRecord(line(i, 100), batch.Meta{})
			}
		}()
		time.Sleep(time.Second)
		close(s.closing)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begun := time.Now()
		if _, err := w.Shutdown(ctx); err == nil {
			t.Error("nothing is lost")
		}
		<-s.returned
		if took := time.Since(begun); s.late || took > 250*time.Millisecond || !errors.Is(refused, ErrClosed) {
			t.Errorf("late %v, after %v: %v", s.late, took, refused)
		}
		g.open()
	})
}
