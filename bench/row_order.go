package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

// Rows about order and scale: what the ticket costs, whether callers that collide
// slow each other down, and what a planned pool of slabs keeps from callers.

// steady requires that the slowest round took at most factor × the median.
func steady(ours string, factor float64) func(*h.Result) []h.Check {
	return func(r *h.Result) []h.Check {
		c := r.Column(ours)
		if c == nil || c.Error != "" || c.Median == 0 {
			return []h.Check{{Text: ours + " was not measured", Limit: factor, Status: h.NotMeasured}}
		}
		got := c.Max / c.Median
		check := h.Check{Text: fmt.Sprintf("%s: slowest of %d rounds %.2f × the median (target ≤ %g)", ours, len(c.Values), got, factor),
			Got: got, Limit: factor, Status: h.OK}
		if got > factor {
			check.Status = h.Short
		}
		return []h.Check{check}
	}
}

// The load of order/stall-200ms.
const (
	spikeCallers = 4
	spikeRate    = 10_000 // records per second, all callers together
	spikeStall   = 200 * time.Millisecond
	spikeEvery   = 5 * time.Second
	spikeBytes   = 256
)

// spiky stalls once per spikeEvery, the first time after half of it.
type spiky struct {
	mu    sync.Mutex
	next  time.Time
	stall time.Duration
	bytes int
}

func (s *spiky) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.next) {
		s.next = s.next.Add(spikeEvery)
		time.Sleep(s.stall)
	}
	s.bytes += len(p)
	return len(p), nil
}

// spiked measures the latency of paced calls. A call that was due while the one
// before it hung counts from when it was due (no coordinated omission); a caller
// that overslept while idle counts from when it woke.
func spiked(name string, kind h.Kind, note string, mk func(io.Writer) (io.Writer, func() error, error)) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, Sample: func(env *h.Env) (*h.Sample, error) {
		length, stall := spikeEvery+spikeEvery/10, spikeStall
		if env.Quick {
			length, stall = 20*time.Millisecond, time.Millisecond
		}
		dst := &spiky{stall: stall, next: time.Now().Add(length / 2)}
		w, drain, err := mk(dst)
		if err != nil {
			return nil, err
		}
		runtime.GC()
		hists := make([]*hdrhistogram.Histogram, spikeCallers)
		var wg sync.WaitGroup
		start := time.Now()
		for i := range hists {
			hists[i] = newHistogram()
			wg.Go(func() {
				p := record(spikeBytes)
				const gap = time.Second * spikeCallers / spikeRate
				due, free := start.Add(time.Duration(i)*gap/spikeCallers), start
				woke := start
				for end := start.Add(length); due.Before(end); due = due.Add(gap) {
					if wait := time.Until(due); wait > 0 {
						time.Sleep(wait)
						woke = time.Now()
					}
					from := time.Now()
					// Due while the call before it hung; not: while the caller overslept.
					if due.Before(free) && due.After(woke) {
						from = due
					}
					_, _ = w.Write(p) // what is lost shows in the count
					free = time.Now()
					hists[i].RecordValue(int64(free.Sub(from)))
				}
			})
		}
		wg.Wait()
		if err := drain(); err != nil {
			return nil, err
		}
		for _, o := range hists[1:] {
			hists[0].Merge(o)
		}
		s := latencies(hists[0])
		s.More["lost"] = float64(hists[0].TotalCount()) - float64(dst.bytes)/spikeBytes
		return s, nil
	}}
}

func plannedSlabs(dst io.Writer) (io.Writer, func() error, error) {
	plan, err := slab.Plan(slab.Workload{Rate: spikeRate, RecordBytes: spikeBytes, Spike: spikeStall})
	if err != nil {
		return nil, nil, err
	}
	o := plan.Options()
	o.WhenFull = slab.Block() // what does not fit shows as latency
	w, err := deliver.NewOutput(deliver.ToWriter(dst), &deliver.OutputOptions{Slab: *o})
	if err != nil {
		return nil, nil, err
	}
	return w, func() error { _, err := w.Shutdown(context.Background()); return err }, nil
}

func mutexed(dst io.Writer) (io.Writer, func() error, error) {
	return &lockedWriter{w: dst}, func() error { return nil }, nil
}

func mutexedBufio(dst io.Writer) (io.Writer, func() error, error) {
	b := bufio.NewWriterSize(dst, 64<<10)
	return &lockedWriter{w: b}, b.Flush, nil
}

// copied is the floor: a lock and a copy, and nothing is delivered.
func copied(io.Writer) (io.Writer, func() error, error) {
	return new(rivals.MutexCopy), func() error { return nil }, nil
}

// nothing is what the pacing and the clock cost by themselves.
func nothing(io.Writer) (io.Writer, func() error, error) {
	return io.Discard, func() error { return nil }, nil
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func init() {
	const (
		one   = "slab.Writer"
		floor = "mutex+copy"
		slabs = "planned slabs"
	)
	bare := writerTo(floor, h.Reference, "lock and copy into 64 KiB, nothing delivered", 200,
		func(io.Writer) rivals.Writer { return new(rivals.MutexCopy) })
	h.Register(h.Row{
		Name: "order/discard-1g", What: "records of 200 B with their ticket, slabs 8 × 64 KiB, 1 goroutine, discard, drain timed",
		Target: "≤ 1.3 × a bare mutex + copy", Reference: floor,
		Contenders: []h.Contender{
			writerTo(one, h.Ours, "the default", 200, newSlabs(64<<10, 8)),
			bare,
			writerTo("mutex+copy+slot", h.Reference, "what the callers cost alone: with each record's slot, slabs in turn, nothing delivered", 200,
				func(io.Writer) rivals.Writer { return new(rivals.MutexSlot) }),
		},
		Verdict: h.Verdict(h.Versus(one, floor, 1.3)),
	})
	h.Register(h.Row{
		Name: "order/discard-10g", What: "records of 200 B, slabs 8 × 64 KiB, 10 goroutines, discard, drain timed",
		Target: "no collapse: slowest of 10 rounds ≤ 1.5 × the median", Reference: floor, Goroutines: 10,
		Contenders: []h.Contender{writerTo(one, h.Ours, "the default", 200, newSlabs(64<<10, 8)), bare},
		Verdict:    steady(one, 1.5),
	})
	h.Register(h.Row{
		Name: "order/file-10g", What: "records of 200 B, slabs 8 × 64 KiB, 10 goroutines, file, drain timed, no fsync",
		Target: "no collapse: slowest of 10 rounds ≤ 1.5 × the median", Reference: one, Goroutines: 10, MaxOps: fileOps,
		Contenders: []h.Contender{rivals.RecordsToFile(one, h.Ours, "the default", 200, own.ToFile(slabs8))},
		Verdict:    steady(one, 1.5),
	})
	h.Register(h.Row{
		Name: "order/stall-200ms", What: "records of 256 B, 10 000 per second from 4 paced callers, the destination stalls 200 ms every 5 s; " +
			"latency of a call in µs, from when it was due where the call before it hung; further figures are medians over the rounds",
		Target: "p99 ≤ 1 µs, or 1.5 × lock and copy of the same run; p99.9 ≤ 20 µs, nothing lost", Unit: "p99 µs", Reference: slabs, MaxCount: 3,
		Contenders: []h.Contender{
			spiked(slabs, h.Ours, "as slab.Plan says", plannedSlabs),
			spiked("null producer", h.Reference, "calls nothing", nothing),
			spiked(floor, h.Reference, "lock and copy into 64 KiB, nothing delivered", copied),
			spiked("sync", h.Rival, "mutexed, every record is a write", mutexed),
			spiked("bufio+mutex", h.Rival, "64 KiB", mutexedBufio),
		},
		Verdict: h.Verdict(h.AtMostOr(slabs, 1, floor, 1.5), h.Figure(slabs, "p99.9", 20), h.Figure(slabs, "lost", 0)),
	})
}
