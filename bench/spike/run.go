package main

import (
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/slab"
)

// A Config describes the load and the destination.
type Config struct {
	Rate     float64       // records per second of all callers together
	Size     int           // size of a record in bytes
	Stall    time.Duration // duration of a stall
	Every    time.Duration // time from the start of a stall to the start of the next one
	Duration time.Duration
	Slabs    slab.Sizing
}

const (
	callers     = 4                      // number of goroutines that write records
	seed        = 1                      // of the random times of calls and stalls
	bucket      = 100 * time.Millisecond // period of one column of the chart
	bufferBytes = 64 << 10               // size of the buffer in the mode "buffered"
)

// A mode is a way to write to the destination. open returns a writer and the size of its memory.
type mode struct {
	name, class, label string // the name is for the table; the class and the label are for the chart
	open               func(*Config, io.Writer) (w rivals.Writer, memory int)
}

var modes = []mode{
	{"sync", "theirs", "sync: one write per record", func(_ *Config, d io.Writer) (rivals.Writer, int) {
		return rivals.Unbuffered{Writer: rivals.ZapLocked(d)}, 0
	}},
	{"buffered", "other", "buffered: mutex and bufio, 64 KiB", func(_ *Config, d io.Writer) (rivals.Writer, int) {
		return rivals.NewBufio(d, bufferBytes), bufferBytes
	}},
	{"forebay", "ours", "forebay", func(c *Config, d io.Writer) (rivals.Writer, int) {
		o := c.Slabs.Options()
		o.WhenFull = slab.Block() // a lack of free memory should appear as latency
		return own.NewSlab(d, o), int(c.Slabs.MemoryBytes)
	}},
}

// A destination stalls at given times, and counts bytes.
type destination struct {
	mu     sync.Mutex
	start  time.Time
	stalls []time.Duration // times since start
	stall  time.Duration
	bytes  int
}

func (d *destination) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes += len(p)
	now := time.Since(d.start)
	for _, s := range d.stalls {
		if now >= s && now < s+d.stall {
			time.Sleep(s + d.stall - now)
		}
	}
	return len(p), nil
}

// A Result contains the figures of one mode.
type Result struct {
	Mode    mode
	Hist    *hdrhistogram.Histogram // latency of a call in nanoseconds
	Worst   []float64               // longest latency per bucket in seconds; 0 for a bucket without calls
	Written int                     // number of written records
	Lost    int                     // number of lost records
	Stalls  []time.Duration         // times of the stalls since the start of the run
	Memory  int                     // size of the memory for waiting records, in bytes
}

// Quantile returns the quantile q of the latencies, with q from 0 to 1.
func (r *Result) Quantile(q float64) time.Duration {
	return time.Duration(r.Hist.ValueAtPercentile(q * 100))
}

// stalls returns the start times of the stalls. They are about c.Every apart, and each is delayed
// by up to a tenth of that. At least half of each stall is within the run.
func (c *Config) stalls() (out []time.Duration) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for at := c.Every / 2; at < c.Duration; at += c.Every {
		if s := at + time.Duration(rng.Float64()*0.1*float64(c.Every)); s+c.Stall/2 < c.Duration {
			out = append(out, s)
		}
	}
	return out
}

// newResult returns an empty Result.
func (c *Config) newResult(m mode) *Result {
	longest := max(10*time.Minute, 2*c.Duration)
	return &Result{Mode: m, Hist: hdrhistogram.New(1, int64(longest), 3), Worst: make([]float64, int(c.Duration/bucket)+1)}
}

// Run runs one mode for c.Duration.
func (c *Config) Run(m mode) (*Result, error) {
	d := &destination{stalls: c.stalls(), stall: c.Stall}
	w, memory := m.open(c, d)
	all := c.newResult(m)
	all.Stalls, all.Memory = d.stalls, memory
	var mu sync.Mutex
	var wg sync.WaitGroup
	runtime.GC()
	d.start = time.Now()
	for i := range callers {
		wg.Go(func() {
			r := c.newResult(m)
			c.call(w, d.start, uint64(i), r)
			mu.Lock()
			defer mu.Unlock()
			all.Hist.Merge(r.Hist)
			all.Written += r.Written
			for i, v := range r.Worst {
				all.Worst[i] = max(all.Worst[i], v)
			}
		})
	}
	wg.Wait()
	err := w.Drain()
	all.Lost = all.Written - d.bytes/c.Size
	return all, err
}

// call makes the calls of one goroutine, with random arrival times (Poisson). If a call is due
// while the previous one is still running, its latency counts from the time at which it was due.
// Without this rule, a stall would count as only one slow call (coordinated omission). If the
// goroutine wakes too late from its sleep, the latency counts from the wake-up.
func (c *Config) call(w io.Writer, start time.Time, id uint64, r *Result) {
	rng := rand.New(rand.NewPCG(seed, 100+id))
	p := rivals.Record(c.Size)
	gap := float64(time.Second) * callers / c.Rate
	var free, woke time.Duration // end of the previous call; time of the last wake-up
	for next := rng.Float64() * gap; time.Duration(next) < c.Duration; next += -math.Log(1-rng.Float64()) * gap {
		due := time.Duration(next)
		if wait := due - time.Since(start); wait > 0 {
			time.Sleep(wait)
			woke = time.Since(start)
		}
		from := time.Since(start)
		if due < free && due > woke {
			from = due
		}
		_, _ = w.Write(p) // errors are not checked, because Lost counts the missing records
		free = time.Since(start)
		_ = r.Hist.RecordValue(max(1, int64(free-from)))
		if b := int(from / bucket); b < len(r.Worst) {
			r.Worst[b] = max(r.Worst[b], (free - from).Seconds())
		}
		r.Written++
	}
}
