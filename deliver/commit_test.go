package deliver_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// Commit returns when every record accepted before the call is delivered, handled or in the spool.
// So with a spool or a handler it returns while the destination is down, and otherwise when the
// destination accepts records again.
func TestCommit(t *testing.T) {
	for name, tt := range map[string]struct {
		traits        deliver.Traits
		spool, handle bool
		early         bool // Commit returns while the destination is down
	}{
		"memory":  {},
		"inline":  {traits: deliver.Traits{Inline: true}},
		"spool":   {spool: true, early: true},
		"handler": {handle: true, early: true},
	} {
		o := &deliver.OutputOptions{Slab: slab.Options{FlushInterval: time.Hour}, OnError: func(batch.Event) {}}
		if tt.spool {
			o.SpoolDir = t.TempDir()
		}
		if tt.handle {
			o.Deliver.Handler = deliver.ErrorHandlerFunc(func(error, *batch.Batch) batch.Outcome { return batch.Outcome{} })
		}
		bubble.Test(t, func(t *testing.T) {
			var up atomic.Bool
			out := mustOutput(t, deliver.SendFunc(tt.traits, func(context.Context, *batch.Batch) batch.Outcome {
				if up.Load() {
					return batch.Outcome{}
				}
				return batch.Outcome{Open: batch.All(), Why: errors.New("down")}
			}), o)
			if err := out.Commit(t.Context()); err != nil {
				t.Errorf("%s: Commit without records: %v", name, err)
			}
			for range 3 {
				out.Write([]byte("record\n"))
			}
			ended := make(chan error, 1)
			go func() { ended <- out.Commit(t.Context()) }()
			time.Sleep(20 * time.Minute)
			if early := len(ended) > 0; early != tt.early {
				t.Errorf("%s: Commit returned while the destination is down: %v", name, early)
			}
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := out.Commit(short); tt.early != (err == nil) || !tt.early && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: Commit failed within a second: %v", name, err)
			}
			up.Store(true)
			time.Sleep(20 * time.Minute)
			if len(ended) == 0 || <-ended != nil {
				t.Errorf("%s: Commit did not return after the destination recovered", name)
			}
			if err := out.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := out.Commit(t.Context()); !errors.Is(err, batch.ErrClosed) {
				t.Errorf("%s: Commit after Close: %v", name, err)
			}
		})
	}
}

// If Shutdown drops records, a waiting Commit fails.
func TestCommitBesideShutdown(t *testing.T) {
	for _, inline := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			out := mustOutput(t, deliver.SendFunc(deliver.Traits{Inline: inline}, func(context.Context, *batch.Batch) batch.Outcome {
				return batch.Outcome{Open: batch.All(), Why: errors.New("down")}
			}), &deliver.OutputOptions{OnError: func(batch.Event) {}})
			out.Write([]byte("record\n"))
			ended := make(chan error, 1)
			go func() { ended <- out.Commit(t.Context()) }()
			time.Sleep(time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if rep, _ := out.Shutdown(ctx); rep.Dropped[batch.Shutdown] != 1 {
				t.Errorf("inline %v: %v", inline, rep)
			}
			if err := <-ended; !errors.Is(err, batch.ErrClosed) {
				t.Errorf("inline %v: %v", inline, err)
			}
		})
	}
}
