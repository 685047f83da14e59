package main

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
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

// A Config says what is driven and how.
type Config struct {
	Rate     float64       // records per second, all callers together
	Size     int           // bytes of a record
	Callers  int           // goroutines that write
	Latency  time.Duration // of each write of the destination
	Drain    float64       // bytes per second that the destination takes; 0: any
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
	// Late is how many calls were due and could not be made in time, because those
	// before them hung. Hist and Worst have them with what they had waited when the
	// run ended.
	Late   uint64
	Stalls []time.Duration // their beginnings, counted from the start
	// Stalled is how many of the stalls held up a write.
	Stalled int
	Memory  int // bytes set aside for records
}

// Quantile returns the latency that a share q (0 to 1) of the calls did not
// exceed.
func (r *Result) Quantile(q float64) time.Duration {
	if q >= 1 {
		return time.Duration(r.Hist.Max())
	}
	return time.Duration(r.Hist.ValueAtPercentile(q * 100))
}

// stalls returns when the destination stalls: about every c.Every, not at the very
// start, each shifted by up to a tenth. If the run is too short for that, there is
// one in its middle. None begins that would not end within the run by half.
func (c *Config) stalls() []time.Duration {
	if c.Stall <= 0 || c.Every <= 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	var out []time.Duration
	for at := c.Every / 2; at < c.Duration; at += c.Every {
		if s := at + time.Duration(rng.Float64()*0.1*float64(c.Every)); s+c.Stall/2 < c.Duration {
			out = append(out, s)
		}
	}
	if len(out) == 0 && c.Stall < c.Duration {
		out = append(out, (c.Duration-c.Stall)/2)
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
		o.MaxRecord = max(slab.DefaultMaxRecord, c.Size)
		w, err := deliver.NewOutput(deliver.ToWriter(d), &deliver.OutputOptions{Slab: *o})
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
//
// Callers that are behind when c.Duration is over may catch up for as long as a
// stall and half a second more. Then, or when ctx is done, the destination stops
// delaying, and Run returns what there is with a nil error; see Result.Late.
func (c *Config) Run(ctx context.Context, mode string) (*Result, error) {
	d := &dst{latency: c.Latency, rate: c.Drain, stalls: c.stalls(), stall: c.Stall}
	w, err := c.open(mode, d)
	if err != nil {
		return nil, err
	}
	res := &Result{Mode: mode, Stalls: d.stalls, Memory: w.memory, Hist: c.newHist(),
		Worst: make([]float64, c.buckets())}
	var mu sync.Mutex
	var wg sync.WaitGroup
	records, callers := make([][]byte, c.Callers), make([]*caller, c.Callers)
	for i := range records {
		records[i] = make([]byte, c.Size)
		callers[i] = &caller{hist: c.newHist(), worst: make([]float64, c.buckets())}
	}
	runtime.GC()
	// Time counts from here: memory may take longer to be had than all the rest.
	run, end := context.WithTimeout(ctx, c.Duration+c.Stall+grace)
	defer end()
	d.ctx, d.start = run, time.Now()
	for i := range c.Callers {
		wg.Go(func() {
			k := callers[i]
			c.drive(run, w, d.start, i, records[i], k)
			mu.Lock()
			defer mu.Unlock()
			res.Hist.Merge(k.hist)
			res.Written += k.calls
			res.Late += k.late
			for i := range k.worst {
				res.Worst[i] = max(res.Worst[i], k.worst[i])
			}
		})
	}
	wg.Wait()
	end() // nobody waits for what is left
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	lost, err := w.close(closeCtx)
	d.mu.Lock()
	defer d.mu.Unlock()
	res.Stalled = d.hit
	res.Arrived = d.bytes / uint64(c.Size)
	res.Lost = max(lost, res.Written-min(res.Written, res.Arrived))
	return res, err
}

const (
	grace   = 500 * time.Millisecond // to catch up, besides the length of a stall
	closing = 5 * time.Second        // for a destination that does not delay any more
	// nap is how long a caller may sleep without looking whether the run is over.
	nap = 20 * time.Millisecond
)

func (c *Config) buckets() int { return int(c.Duration/bucket) + 1 }

// newHist returns a histogram that takes the longest wait there can be.
func (c *Config) newHist() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(max(10*time.Minute, c.Duration+c.Stall+grace+closing)), 3)
}

// caller is what one caller found.
type caller struct {
	hist        *hdrhistogram.Histogram
	worst       []float64
	calls, late uint64
}

// note adds n calls that were due at from and took lat.
func (k *caller) note(from, lat time.Duration, n int64) {
	_ = k.hist.RecordValues(min(max(1, int64(lat)), k.hist.HighestTrackableValue()), n)
	if b := int(from / bucket); b < len(k.worst) {
		k.worst[b] = max(k.worst[b], lat.Seconds())
	}
}

// giveUp notes the calls from due on that should have been made by now.
func (k *caller) giveUp(due, until, now time.Duration, gap float64) {
	left := int64(math.Ceil(float64(min(until, now)-due) / gap))
	if left <= 0 {
		return
	}
	k.late += uint64(left)
	step := max(1, left/1000) // close enough, and quick however many they are
	for i := int64(0); i < left; i += step {
		from := due + time.Duration(float64(i)*gap)
		k.note(from, now-from, min(step, left-i))
	}
}

// drive is one caller, which writes p and notes in k what it finds.
func (c *Config) drive(ctx context.Context, w io.Writer, start time.Time, id int, p []byte, k *caller) {
	rng := rand.New(rand.NewPCG(c.Seed, uint64(100+id)))
	copy(p, fmt.Sprintf("caller %d ", id))
	p[len(p)-1] = '\n'
	gap := float64(time.Second) * float64(c.Callers) / c.Rate
	due := rng.Float64() * gap // from start
	for {
		at := time.Duration(due)
		if at >= c.Duration {
			return
		}
		from := time.Since(start)
		if ctx.Err() != nil {
			k.giveUp(at, c.Duration, from, gap)
			return
		}
		if from < at {
			if at-from > nap {
				pause(ctx, at-from)
			} else {
				time.Sleep(at - from)
			}
			from = time.Since(start)
			if ctx.Err() != nil {
				k.giveUp(at, c.Duration, from, gap) // none, unless the timer overslept
				return
			}
		} else if k.calls > 0 { // else it was due before this goroutine had begun
			from = at // it was due while the call before was under way
		}
		woke := from
		for ctx.Err() == nil { // everything that is due by now
			begin := from
			_, _ = w.Write(p) // what is lost shows in the count
			end := time.Since(start)
			k.note(begin, end-begin, 1)
			k.calls++
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
