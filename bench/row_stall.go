package main

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
)

// The stalling destination and those who log into it.
const (
	stallEvery = 20 // writes
	stallFor   = 5 * time.Millisecond

	producers = 4
	tick      = time.Millisecond // each producer logs a burst per tick
	burst     = 20               // records: 80 000 records/s in all
	stallTime = 2 * time.Second  // length of a sample
)

// stalling is a destination that counts lines and stalls. Like a file it may be
// written by several goroutines, one after the other.
type stalling struct {
	every  int // writes; 0: it does not stall
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

// stalled measures how long the calls of paced producers take while the
// destination stalls.
func stalled(name string, kind h.Kind, note string, l rivals.Native, mk pipe) h.Contender {
	return timedCalls(name, kind, note, l, mk, stallEvery, produce)
}

// busy is stalled with a destination that takes everything at once, and callers that leave
// no processor idle.
func busy(name string, kind h.Kind, note string, l rivals.Native, mk pipe) h.Contender {
	return timedCalls(name, kind, note, l, mk, 0, crowd)
}

func timedCalls(name string, kind h.Kind, note string, l rivals.Native, mk pipe, every int,
	callers func(rivals.Run, *h.Env) *hdrhistogram.Histogram) h.Contender {
	c := h.Contender{Name: name, Kind: kind, Note: note,
		Sample: func(env *h.Env) (*h.Sample, error) {
			dst := &stalling{every: every}
			run, drain := mk(dst)
			runtime.GC()
			hist := callers(run, env)
			if drain != nil {
				if err := drain(); err != nil {
					return nil, err
				}
			}
			s := latencies(hist)
			if l != nil {
				s.More["lost"] = float64(hist.TotalCount()) - float64(dst.lines)
			}
			return s, nil
		}}
	if l != nil {
		c.Faults = func() []string { return faults(l, rivals.Six) }
	}
	return c
}

// produce runs the producers and returns the duration of every call.
func produce(run rivals.Run, env *h.Env) *hdrhistogram.Histogram {
	length := stallTime
	if env.Quick {
		length = 50 * time.Millisecond
	}
	hists := make([]*hdrhistogram.Histogram, producers)
	for i := range hists {
		hists[i] = newHistogram()
	}
	var wg sync.WaitGroup
	start := time.Now()
	for i := range producers {
		wg.Go(func() {
			// The producers are independent: they do not wake together.
			next := start.Add(time.Duration(i) * tick / producers)
			for end := start.Add(length); next.Before(end); {
				time.Sleep(time.Until(next))
				for range burst {
					t := time.Now()
					run(i, 1)
					hists[i].RecordValue(int64(time.Since(t)))
				}
				// Who was held up does not catch up: the figure is the call's
				// own duration, not that of a queue before it.
				if next = next.Add(tick); next.Before(time.Now()) {
					next = time.Now()
				}
			}
		})
	}
	wg.Wait()
	return merged(hists)
}

func merged(hists []*hdrhistogram.Histogram) *hdrhistogram.Histogram {
	for _, o := range hists[1:] {
		hists[0].Merge(o)
	}
	return hists[0]
}

// Callers of busy.
const (
	perProcessor = 50
	workUnits    = 2000 // about 1 µs between two calls
	busyCalls    = 4000 // of each caller
)

// crowd runs many more callers than processors. All of them work between their calls, so
// whoever gives its processor away waits for all others.
func crowd(run rivals.Run, env *h.Env) *hdrhistogram.Histogram {
	n := busyCalls
	if env.Quick {
		n = 10
	}
	hists := make([]*hdrhistogram.Histogram, perProcessor*runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range hists {
		hists[i] = newHistogram()
		wg.Go(func() {
			work := uint64(i)
			for range n {
				for range workUnits {
					work = work*31 + 7
				}
				t := time.Now()
				run(i, 1)
				hists[i].RecordValue(int64(time.Since(t)))
			}
			worked.Add(work)
		})
	}
	wg.Wait()
	return merged(hists)
}

var worked atomic.Uint64 // nobody may leave the work out

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(10*time.Second), 3)
}

// latencies returns the percentiles in microseconds.
func latencies(hist *hdrhistogram.Histogram) *h.Sample {
	us := func(v int64) float64 { return float64(v) / 1e3 }
	return &h.Sample{
		Value: us(hist.ValueAtQuantile(99)), Ops: int(hist.TotalCount()),
		More: map[string]float64{
			"p50": us(hist.ValueAtQuantile(50)), "p99.9": us(hist.ValueAtQuantile(99.9)), "max": us(hist.Max()),
		},
	}
}

func init() {
	const six = rivals.Six
	const null = "null producer"
	nothing := func(io.Writer) (rivals.Run, func() error) { return func(int, int) {}, nil }
	h.Register(h.Row{
		Name: "stall/5ms", What: "6 scalar fields; the destination stalls 5 ms at every 20th write; 4 producers, each 20 records per ms, 2 s; " +
			"duration of each call in µs; max is the median of the rounds' maxima",
		Target: "p99 ≤ 1.2 × the best competitor's, max ≤ that of a null producer + 150 µs, nothing lost",
		Unit:   "p99 µs", Reference: null, MaxCount: 5,
		Contenders: []h.Contender{
			stalled(null, h.Reference, "calls nothing", nil, nothing),
			stalled(ours, h.Ours, "Logger, Router, slabs 8 × 64 KiB", own.Native,
				func(dst io.Writer) (rivals.Run, func() error) { return own.Buffered(dst, six) }),
			stalled("zerolog+slab", h.Reference, "a rival's encoder over our writer", rivals.Zerolog,
				buffered(rivals.Zerolog, six, newSlabs(64<<10, 8))),
			stalled("zap+BWS", h.Rival, "256 KiB", rivals.Zap, buffered(rivals.Zap, six, newBWS)),
			stalled("zerolog+bufio", h.Rival, "mutexed, 256 KiB", rivals.Zerolog, buffered(rivals.Zerolog, six, newBufio)),
			stalled("phuslu+bufio", h.Rival, "mutexed, 256 KiB", rivals.Phuslu, buffered(rivals.Phuslu, six, newBufio)),
			stalled("slog+bufio", h.Rival, "mutexed, 256 KiB", rivals.Slog, buffered(rivals.Slog, six, newBufio)),
			stalled("zerolog unbuffered", h.Rival, "every record is a write", rivals.Zerolog, direct(rivals.Zerolog, six)),
		},
		Verdict: h.All(h.VersusFastest(ours, 1.2), h.FigureVersus(ours, null, "max", 150), h.Figure(ours, "lost", 0)),
	})
	h.Register(h.Row{
		Name: "stall/busy", What: "6 scalar fields; the destination takes all at once; 50 callers for each processor, who work 1 µs between calls, " +
			"4000 calls each; duration of each call in µs",
		Target: "p99 ≤ 1.2 × the best competitor's, nothing lost",
		Unit:   "p99 µs", Reference: null, MaxCount: 5,
		Contenders: []h.Contender{
			busy(null, h.Reference, "calls nothing", nil, nothing),
			busy(ours, h.Ours, "Logger, Router, slabs 8 × 64 KiB", own.Native,
				func(dst io.Writer) (rivals.Run, func() error) { return own.Buffered(dst, six) }),
			busy("zap+BWS", h.Rival, "256 KiB", rivals.Zap, buffered(rivals.Zap, six, newBWS)),
			busy("zerolog+bufio", h.Rival, "mutexed, 256 KiB", rivals.Zerolog, buffered(rivals.Zerolog, six, newBufio)),
			busy("slog+bufio", h.Rival, "mutexed, 256 KiB", rivals.Slog, buffered(rivals.Slog, six, newBufio)),
		},
		Verdict: h.All(h.VersusFastest(ours, 1.2), h.Figure(ours, "lost", 0)),
	})
}
