// Package spike drives a paced load at writers whose destination stalls now and
// then, and measures what the callers notice.
package spike

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

// A Config says what is driven and how.
type Config struct {
	Rate     float64       // records per second, all callers together
	Size     int           // bytes of a record
	Callers  int           // goroutines that write
	Latency  time.Duration // of each write of the destination
	Stall    time.Duration // how long the destination stalls
	Every    time.Duration // from the start of one stall to that of the next
	Duration time.Duration
	Seed     uint64 // of the moments at which callers write and stalls begin
	Slabs    slab.Sizing
}

// Modes are what can be compared.
func Modes() []string { return []string{"sync", "buffered", "forebay"} }

// BufferBytes is the buffer of the mode "buffered".
const BufferBytes = 64 << 10

// bucket is the width of a column of the plot.
const bucket = 100 * time.Millisecond

// A Result is what one mode did.
type Result struct {
	Mode    string
	Hist    *hdrhistogram.Histogram // latency of a call in nanoseconds
	Worst   []float64               // worst latency per bucket, in seconds; 0: no call
	Written uint64                  // records handed in
	Arrived uint64                  // records that the destination got
	Lost    uint64
	Stalls  []time.Duration // their beginnings, counted from the start
	Memory  int             // bytes set aside for records
}

// Quantile returns the latency that a share q (0 to 1) of the calls did not
// exceed.
func (r *Result) Quantile(q float64) time.Duration {
	if q >= 1 {
		return time.Duration(r.Hist.Max())
	}
	return time.Duration(r.Hist.ValueAtPercentile(q * 100))
}

// dst counts bytes and stalls.
type dst struct {
	mu      sync.Mutex
	start   time.Time
	latency time.Duration
	stalls  []time.Duration
	stall   time.Duration
	bytes   uint64
}

func (d *dst) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.latency > 0 {
		time.Sleep(d.latency)
	}
	now := time.Since(d.start)
	for _, s := range d.stalls {
		if now >= s && now < s+d.stall {
			time.Sleep(s + d.stall - now)
			break
		}
	}
	d.bytes += uint64(len(p))
	return len(p), nil
}

// stalls returns when the destination stalls: about every c.Every, not at the very
// start, each shifted by up to a tenth.
func (c *Config) stalls() []time.Duration {
	if c.Stall <= 0 || c.Every <= 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	var out []time.Duration
	for at := c.Every / 2; at < c.Duration; at += c.Every {
		out = append(out, at+time.Duration(rng.Float64()*0.1*float64(c.Every)))
	}
	return out
}

// writer is what a mode puts between the callers and the destination.
type writer struct {
	io.Writer
	close  func(context.Context) (lost uint64, err error)
	memory int
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (c *Config) open(mode string, d *dst) (*writer, error) {
	switch mode {
	case "sync":
		return &writer{Writer: &locked{w: d}, close: func(context.Context) (uint64, error) { return 0, nil }}, nil
	case "buffered":
		b := bufio.NewWriterSize(d, BufferBytes)
		return &writer{Writer: &locked{w: b}, memory: BufferBytes,
			close: func(context.Context) (uint64, error) { return 0, b.Flush() }}, nil
	case "forebay":
		o := c.Slabs.Options()
		o.WhenFull = slab.Block() // what does not fit shows as latency
		w, err := slab.New(d, o)
		if err != nil {
			return nil, err
		}
		return &writer{Writer: w, memory: int(c.Slabs.MemoryBytes), close: func(ctx context.Context) (uint64, error) {
			r, err := w.Shutdown(ctx)
			return r.Dropped[batch.Shutdown] + r.Dropped[batch.Full], err
		}}, nil
	}
	return nil, fmt.Errorf("%q is none of %v", mode, Modes())
}

// Run drives one mode for c.Duration.
//
// Callers are paced by a schedule, not by each other: a call that was due while the
// one before it hung counts from when it was due, so that a stall is not measured
// as a single slow call (coordinated omission). A caller that overslept while
// idle counts from when it woke: that is the timer's fault and nobody's latency.
func (c *Config) Run(ctx context.Context, mode string) (*Result, error) {
	d := &dst{latency: c.Latency, stalls: c.stalls(), stall: c.Stall, start: time.Now()}
	w, err := c.open(mode, d)
	if err != nil {
		return nil, err
	}
	res := &Result{Mode: mode, Stalls: d.stalls, Memory: w.memory, Hist: newHist(),
		Worst: make([]float64, int(c.Duration/bucket)+1)}
	var mu sync.Mutex
	var wg sync.WaitGroup
	runtime.GC()
	d.start = time.Now()
	for i := range c.Callers {
		wg.Go(func() {
			h, worst, n := c.drive(ctx, w, d.start, i)
			mu.Lock()
			defer mu.Unlock()
			res.Hist.Merge(h)
			res.Written += n
			for k := range worst {
				res.Worst[k] = max(res.Worst[k], worst[k])
			}
		})
	}
	wg.Wait()
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second+2*c.Stall)
	defer cancel()
	lost, err := w.close(closeCtx)
	d.mu.Lock()
	defer d.mu.Unlock()
	res.Arrived = d.bytes / uint64(c.Size)
	res.Lost = max(lost, res.Written-min(res.Written, res.Arrived))
	return res, err
}

func newHist() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(10*time.Minute), 3) }

// drive is one caller.
func (c *Config) drive(ctx context.Context, w io.Writer, start time.Time, k int) (*hdrhistogram.Histogram, []float64, uint64) {
	rng := rand.New(rand.NewPCG(c.Seed, uint64(100+k)))
	h := newHist()
	worst := make([]float64, int(c.Duration/bucket)+1)
	p := make([]byte, c.Size)
	copy(p, fmt.Sprintf("caller %d ", k))
	p[len(p)-1] = '\n'
	gap := float64(time.Second) * float64(c.Callers) / c.Rate
	due := rng.Float64() * gap // from start
	var n uint64
	for {
		at := time.Duration(due)
		if at >= c.Duration || ctx.Err() != nil {
			return h, worst, n
		}
		from := time.Since(start)
		if from < at {
			time.Sleep(at - from)
			from = time.Since(start)
		} else {
			from = at // it was due while the call before was under way
		}
		woke := from
		for { // everything that is due by now
			begin := from
			_, _ = w.Write(p)
			end := time.Since(start)
			lat := end - begin
			_ = h.RecordValue(max(1, int64(lat)))
			if b := int(begin / bucket); b < len(worst) {
				worst[b] = max(worst[b], lat.Seconds())
			}
			n++
			due += -math.Log(1-rng.Float64()) * gap // Poisson arrivals
			if next := time.Duration(due); next > end || next >= c.Duration {
				break
			} else if next <= woke {
				from = end // due while the timer overslept
			} else {
				from = next
			}
		}
	}
}

// SortModes puts modes into the order of Modes.
func SortModes(modes []string) {
	all := Modes()
	slices.SortFunc(modes, func(a, b string) int { return slices.Index(all, a) - slices.Index(all, b) })
}
