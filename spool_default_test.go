package forebay

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
)

// A destination that hangs is not down, so the circuit breaker stays closed. An output with a
// Spool stores the records that memory has no room for, unless WhenFull has another policy.
func TestSpoolIsUsedWhileTheDestinationHangs(t *testing.T) {
	for _, tt := range []struct {
		opts  []OutputOption
		drops bool
	}{
		{nil, false},
		{[]OutputOption{WhenFull("drop-newest")}, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			hang := deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome { <-release; return batch.Outcome{} })
			out, err := Open(To(hang, append(tt.opts, Spool(t.TempDir()), Buffer(64<<10), OnError(func(batch.Event) {}))...))
			if err != nil {
				t.Fatal(err)
			}
			record := []byte(strings.Repeat("x", 999) + "\n")
			began := time.Now()
			for range 200 {
				_, _ = out.Write(record)
			}
			if waited := time.Since(began); waited > 0 {
				t.Errorf("calls waited %v", waited)
			}
			if n := out.Account().Dropped[batch.Full]; (n > 0) != tt.drops {
				t.Errorf("%d records dropped, %v", n, out.Stats().Account)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = out.Shutdown(ctx)
		})
	}
}
