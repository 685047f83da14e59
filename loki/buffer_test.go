package loki

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
)

// The number of records waiting in memory reaches nearly BufferRecords and never exceeds it.
func TestBufferRecordsLimitsWaitingRecords(t *testing.T) {
	for _, limit := range []int{5, 9, 40, 100, 1000, 5000} {
		for name, test := range map[string]struct {
			c   Config
			opt forebay.OutputOption
		}{
			"batches":    {Config{}, forebay.Name("loki")},
			"slabs":      {Config{}, delivery(func(o *deliver.OutputOptions) { o.Slab.SlabCount, o.Slab.SlabBytes = 20, 256<<10 })},
			"crash-safe": {Config{}, forebay.CrashSafe(t.TempDir())},
			"few":        {Config{BatchRecords: 3}, forebay.Name("loki")},
		} {
			bubble.Test(t, func(t *testing.T) {
				down := &peer{answer: func(int, *request) (int, string, http.Header) { return 503, "down", nil }}
				h := handlerFor(t, down, test.c, test.opt, forebay.WhenFull("drop-newest"), delivery(func(o *deliver.OutputOptions) { o.BufferRecords = limit }))
				most := uint64(0)
				for i := range 2 * limit {
					text := "x"
					if i == limit/2 { // larger than a slab
						text = strings.Repeat("x", 300<<10)
					}
					slog.New(h).Info(text, "i", i)
					if i%97 == 0 {
						synctest.Wait()
					}
					most = max(most, h.Sink.Account().Pending.Total())
				}
				time.Sleep(time.Minute)
				most = max(most, h.Sink.Account().Pending.Total())
				if int(most) > limit || int(most) < limit*3/4-2 {
					t.Errorf("%s: %d of at most %d records wait", name, most, limit)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				h.Close(ctx)
			})
		}
	}
}

// If BufferRecords records are in memory, a caller waits. It continues as soon as there are fewer
// records, regardless of their sizes.
func TestCallersWaitingForBufferRecordsAreServed(t *testing.T) {
	for _, limit := range []int{5, 20, 333} {
		bubble.Test(t, func(t *testing.T) {
			var up atomic.Bool
			p := &peer{answer: func(int, *request) (int, string, http.Header) {
				if up.Load() {
					return 204, "", nil
				}
				return 503, "down", nil
			}}
			h := handlerFor(t, p, Config{BatchAge: time.Hour}, forebay.WhenFull("block"), forebay.Delivery(func(o *deliver.OutputOptions) {
				o.BufferRecords = limit
				o.Deliver.Breaker = &deliver.BreakerOptions{OpenMax: time.Second}
			}))
			const callers, each = 20, 40
			var done atomic.Int32
			for k := range callers {
				go func() {
					for i := range each {
						text := ""
						if (i+k)%17 == 0 {
							text = strings.Repeat("x", 300<<10)
						}
						slog.New(h).Info(text, "caller", k, "i", i)
						done.Add(1)
					}
				}()
			}
			time.Sleep(time.Minute)
			if n := h.Sink.Account().Pending.Total(); int(n) > limit || done.Load() == callers*each {
				t.Errorf("%d records of at most %d wait, %d calls have returned", n, limit, done.Load())
			}
			up.Store(true)
			time.Sleep(10 * time.Minute)
			if n := done.Load(); n != callers*each {
				t.Errorf("%d of %d calls have returned", n, callers*each)
			}
			if rep, err := h.Close(t.Context()); err != nil || rep.Delivered != callers*each {
				t.Errorf("%v %v", rep, err)
			}
		})
	}
}

// If Loki rejects a tenant, the tenant's records are parked. They use at most BufferBytes in
// addition to the memory of the output. After an hour, parked records that do not fit become dead
// letters. Records of other tenants are delivered.
func TestParkedRecordsOfDeniedTenantAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := &gateway{denied: map[string]int{"bad": 403}, lines: map[string]int{}}
		var deadLetters atomic.Int64
		h := handlerFor(t, g, Config{
			TenantAttr: "t",
		}, forebay.WhenFull("drop-newest"), forebay.Delivery(func(o *deliver.OutputOptions) {
			o.BufferBytes = 256 << 10
			o.Slab.SlabBytes = 16 << 10
			o.Deliver.DeadLetter = deliver.ErrorHandlerFunc(func(_ error, b *batch.Batch) batch.Outcome { deadLetters.Add(int64(b.Len())); return batch.Outcome{} })
		}))
		stored := func() int {
			synctest.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.lines["good"]
		}
		log := func(n int) {
			for range n {
				slog.New(h).Info(strings.Repeat("x", 1000), "t", "bad")
				time.Sleep(time.Second)
			}
		}
		slog.New(h).Info("y", "t", "good")
		log(1000)
		if n := h.Sink.Account().Pending.Total(); n < 400 || n > 2*256 {
			t.Errorf("%d records of 1 kB wait in 256 KiB, and as much beside", n)
		}
		log(3000)
		before := stored()
		for range 100 {
			slog.New(h).Info("y", "t", "good")
			log(10)
		}
		if n := stored() - before; n < 95 || n > 100 || deadLetters.Load() < 1000 {
			t.Errorf("%d of 100 records of another tenant were stored, %d dead letters: %v", n, deadLetters.Load(), h.Sink.Account())
		}
		g.mu.Lock()
		clear(g.denied)
		g.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if rep, err := h.Close(t.Context()); err != nil || rep.Dropped[batch.Poison] != uint64(deadLetters.Load()) || rep.Pending.Total() != 0 {
			t.Errorf("%v %v, %d dead letters", rep, err, deadLetters.Load())
		}
	})
}

// If memory is full, even in the first minutes, parked records of a rejected tenant become dead
// letters before records of other tenants are dropped.
func TestDeniedTenantYieldsMemoryToOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := &gateway{denied: map[string]int{"bad": 403}, lines: map[string]int{}}
		h := handlerFor(t, g, Config{TenantAttr: "t"}, forebay.WhenFull("drop-newest"), forebay.Delivery(func(o *deliver.OutputOptions) { o.BufferBytes = 256 << 10; o.Slab.SlabBytes = 16 << 10 }))
		for range 2000 {
			slog.New(h).Info("y", "t", "good")
			slog.New(h).Info(strings.Repeat("x", 1000), "t", "bad")
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		g.mu.Lock()
		n := g.lines["good"]
		g.mu.Unlock()
		if a := h.Sink.Account(); n < 1900 || a.Dropped[batch.Full] != 0 || a.Dropped[batch.Poison] == 0 || a.Check() != nil {
			// Some records of the good tenant may still be in memory, after records of the rejected
			// tenant.
			t.Errorf("%d of 2000 records of another tenant were stored: %v", n, a)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = h.Close(ctx)
	})
}
