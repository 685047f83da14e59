package main

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
)

const (
	stallEvery = 20 // number of writes between two stalls
	stallFor   = 5 * time.Millisecond
)

// stalling is a destination that counts lines and stalls in every nth write.
type stalling struct {
	every  int // number of writes between two stalls; 0: no stalls
	mu     sync.Mutex
	writes int
	lines  uint64
}

func (s *stalling) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.every > 0 && s.writes%s.every == 0 {
		time.Sleep(stallFor)
	}
	s.lines += uint64(bytes.Count(p, []byte{'\n'}))
	return len(p), nil
}

// callers describes a load: several goroutines that make calls.
type callers struct {
	every int // the destination stalls once in this many writes
	count int
	run   func(env *h.Env, i int, call func()) // makes the calls of goroutine i
}

// paced is a load of four goroutines that each log 20 records per millisecond, which is 80,000
// records per second in total.
var paced = callers{stallEvery, 4, func(env *h.Env, i int, call func()) {
	const tick, burst = time.Millisecond, 20
	length := 2 * time.Second
	if env.Quick {
		length = 50 * time.Millisecond
	}
	// Shift the start, so that the goroutines wake at different times.
	next := time.Now().Add(time.Duration(i) * tick / 4)
	for end := next.Add(length); next.Before(end); {
		time.Sleep(time.Until(next))
		for range burst {
			call()
		}
		// A delayed goroutine skips the missed ticks, so the measured duration of a call contains
		// no waiting before the call.
		if next = next.Add(tick); next.Before(time.Now()) {
			next = time.Now()
		}
	}
}}

// crowd is a load of 50 goroutines per processor that work for about 1 µs between calls. A
// goroutine that yields its processor waits until all others have run.
var crowd = callers{0, 50 * runtime.GOMAXPROCS(0), func(env *h.Env, i int, call func()) {
	n, work := 4000, i
	if env.Quick {
		n = 10
	}
	for range n {
		for range 2000 {
			work = work*31 + 7
		}
		call()
	}
	runtime.KeepAlive(work) // prevents the compiler from removing the work
}}

// timedCalls returns a contender that measures the durations of the calls under a load. The figures
// of its samples are percentiles in microseconds.
func timedCalls(load callers, name string, kind h.Kind, note string, l rivals.Native, mk pipe) h.Contender {
	c := h.Contender{Name: name, Kind: kind, Note: note,
		Sample: func(env *h.Env) (*h.Sample, error) {
			dst := &stalling{every: load.every}
			sub := mk(dst)
			runtime.GC() // so that a collection of earlier garbage does not delay the calls
			hists := make([]*hdrhistogram.Histogram, load.count)
			var wg sync.WaitGroup
			for i := range hists {
				hists[i] = hdrhistogram.New(1, int64(10*time.Second), 3)
				wg.Go(func() {
					load.run(env, i, func() {
						t := time.Now()
						sub.Run(i, 1)
						hists[i].RecordValue(int64(time.Since(t)))
					})
				})
			}
			wg.Wait()
			if err := sub.Drain(); err != nil {
				return nil, err
			}
			for _, o := range hists[1:] {
				hists[0].Merge(o)
			}
			us := func(v int64) float64 { return float64(v) / 1e3 }
			all := hists[0]
			s := &h.Sample{Value: us(all.ValueAtQuantile(99)), More: map[string]float64{
				"p50": us(all.ValueAtQuantile(50)), "p99.9": us(all.ValueAtQuantile(99.9)), "max": us(all.Max()),
			}}
			if l != nil {
				s.More["lost"] = float64(all.TotalCount()) - float64(dst.lines)
			}
			return s, nil
		}}
	if l != nil {
		c.Faults = func() []string { return rivals.Check(l, rivals.Six) }
	}
	return c
}

func init() {
	const six = rivals.Six
	const null = "null producer"
	nothing := func(io.Writer) *h.Subject {
		return &h.Subject{Run: func(int, int) {}, Drain: func() error { return nil }}
	}
	contenders := func(load callers) []h.Contender {
		return []h.Contender{
			timedCalls(load, null, h.Reference, "calls nothing", nil, nothing),
			timedCalls(load, ours, h.Ours, "Logger, Router, slabs 8 × 64 KiB", own.Native,
				func(dst io.Writer) *h.Subject { return own.Buffered(dst, six) }),
			timedCalls(load, "zerolog+slab", h.Reference, "a competitor's encoder over our writer", rivals.Zerolog,
				buffered(rivals.Zerolog, six, newSlabs)),
			timedCalls(load, "zap+BWS", h.Rival, "256 KiB", rivals.Zap, buffered(rivals.Zap, six, newBWS)),
			timedCalls(load, "zerolog+bufio", h.Rival, "mutex, 256 KiB", rivals.Zerolog, buffered(rivals.Zerolog, six, newBufio)),
			timedCalls(load, "phuslu+bufio", h.Rival, "mutex, 256 KiB", rivals.Phuslu, buffered(rivals.Phuslu, six, newBufio)),
			timedCalls(load, "slog+bufio", h.Rival, "mutex, 256 KiB", rivals.Slog, buffered(rivals.Slog, six, newBufio)),
		}
	}
	h.Register(h.Row{
		Name: "stall/5ms", What: "6 scalar fields; the destination stalls 5 ms at every 20th write; 4 producers, each 20 records per ms, 2 s; " +
			"duration of each call in µs; max is the median of the rounds' maxima",
		Unit: "p99 µs", Reference: null, MaxCount: 5, Contenders: contenders(paced),
		Targets: []h.Target{h.VersusFastest(ours, 1.2), h.Above(ours, null, h.Figure("max"), 150), h.AtMost(ours, h.Figure("lost"), 0)},
	}, h.Row{
		Name: "stall/busy", What: "6 scalar fields; the destination accepts everything at once; 50 callers per processor, which work 1 µs between calls, " +
			"4000 calls each; duration of each call in µs",
		Unit: "p99 µs", Reference: null, MaxCount: 5, Contenders: contenders(crowd),
		Targets: []h.Target{h.VersusFastest(ours, 1.2), h.AtMost(ours, h.Figure("lost"), 0)},
	})
}
