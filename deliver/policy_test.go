package deliver_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// TestPolicyFigures reproduces the table of ADR 39: the records that each policy drops, and the
// longest call, during one stall of the destination. Four goroutines write 10,000 records of 256 B
// per second in total, each record at its scheduled time. Memory is the default, 8 × 64 KiB, and
// one write takes 1 ms.
func TestPolicyFigures(t *testing.T) {
	block, wait, drop := slab.Block(), slab.BlockFor(250*time.Millisecond), slab.DropNewest()
	for _, tt := range []struct {
		policy  slab.WhenFull
		stall   time.Duration
		dropped uint64
		longest time.Duration // the longest call of Write
	}{
		{wait, 100 * time.Millisecond, 0, 0},
		{block, 100 * time.Millisecond, 0, 0},
		{drop, 100 * time.Millisecond, 0, 0},
		{wait, 300 * time.Millisecond, 0, 119 * time.Millisecond},
		{block, 300 * time.Millisecond, 0, 119 * time.Millisecond},
		{drop, 300 * time.Millisecond, 1196, 0},
		{wait, 2 * time.Second, 18196, 250 * time.Millisecond},
		{block, 2 * time.Second, 0, 1819 * time.Millisecond},
		{drop, 2 * time.Second, 18196, 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			const callers, rate, records = 4, 10_000, 40_000
			start := time.Now()
			stalls := start.Add(time.Second)
			out := mustOutput(t, deliver.SendFunc(deliver.Traits{Inline: true}, func(context.Context, *batch.Batch) batch.Outcome {
				time.Sleep(time.Millisecond)
				if now := time.Now(); !now.Before(stalls) && now.Before(stalls.Add(tt.stall)) {
					time.Sleep(stalls.Add(tt.stall).Sub(now))
				}
				return batch.Outcome{}
			}), &deliver.OutputOptions{Slab: slab.Options{WhenFull: tt.policy}})
			line := append(bytes.Repeat([]byte("x"), 255), '\n')
			longest := make(chan time.Duration, callers)
			for g := range callers {
				go func() {
					var most time.Duration
					for i := g; i < records; i += callers {
						time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / rate)))
						began := time.Now()
						out.Write(line)
						most = max(most, time.Since(began))
					}
					longest <- most
				}()
			}
			var most time.Duration
			for range callers {
				most = max(most, <-longest)
			}
			rep, err := out.Shutdown(t.Context())
			if err != nil {
				t.Error(err)
			}
			near := func(got, want int64) bool { return got >= want-want/50 && got <= want+want/50 }
			if !near(int64(rep.Dropped[batch.Full]), int64(tt.dropped)) || !near(int64(most), int64(tt.longest)) {
				t.Errorf("%s, a stall of %s: %d dropped, want %d; the longest call took %s, want %s",
					tt.policy, tt.stall, rep.Dropped[batch.Full], tt.dropped, most, tt.longest)
			}
		})
	}
}
