package main

import (
	"context"
	"sync"
	"time"
)

// slack is how far the destination may be ahead of --drain-rate before it waits: a
// shorter sleep is not worth its own imprecision.
const slack = time.Millisecond

// dst is a destination that takes its time and stalls. Once ctx is done it takes
// everything at once: nobody waits for it any more.
type dst struct {
	ctx     context.Context
	mu      sync.Mutex
	start   time.Time
	latency time.Duration
	rate    float64 // bytes per second; 0: any
	stalls  []time.Duration
	stall   time.Duration

	free  time.Duration // when what it took is done, counted from start
	bytes uint64
	hit   int // stalls that held up a write
}

func (d *dst) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes += uint64(len(p))
	now := time.Since(d.start)
	d.free = max(d.free, now)
	takes := d.latency
	if d.rate > 0 {
		takes = max(takes, time.Duration(float64(len(p))/d.rate*float64(time.Second)))
	}
	d.free += takes
	if wait := d.free - now; d.latency > 0 || wait > slack {
		pause(d.ctx, wait)
		now = time.Since(d.start)
	}
	for _, s := range d.stalls {
		if now >= s && now < s+d.stall {
			if d.ctx.Err() == nil { // once per stall: the next write comes after it
				d.hit++
			}
			pause(d.ctx, s+d.stall-now)
			break
		}
	}
	return len(p), nil
}

// pause sleeps, until ctx is done at most.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 || ctx.Err() != nil {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
