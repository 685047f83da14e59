package harness

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

// ErrAbsent is the error of a contender that this machine does not have, such as a daemon. The
// contender is reported without figures.
var ErrAbsent = errors.New("absent")

// Env describes the run to a contender.
type Env struct {
	// Dir is where files go. It belongs to the run and is removed after it.
	Dir string
	// Benchtime is about how long one sample takes.
	Benchtime time.Duration
	// Quick asks rows with samples of their own to take the shortest that still
	// exercises the code.
	Quick bool
}

// TempFile creates a file in Dir, opened as a log file is: for appending.
func (e *Env) TempFile() (*os.File, error) {
	f, err := os.CreateTemp(e.Dir, "row-*.log")
	if err != nil {
		return nil, err
	}
	name := f.Name()
	if err := f.Close(); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0o600)
}

// A Sample is one measurement of one contender.
type Sample struct {
	// Value is the main figure in the row's unit; lower is better.
	Value float64 `json:"value"`
	// Ops is the number of operations behind it.
	Ops int `json:"ops"`
	// CPU is the processor time of the whole process per operation in
	// nanoseconds, 0 where it is not known. Unlike Value it hardly grows when
	// others use the machine.
	CPU float64 `json:"cpu"`
	// Allocs and AllocBytes are heap allocations per operation, by every
	// goroutine of the process.
	Allocs     float64 `json:"allocs"`
	AllocBytes float64 `json:"allocBytes"`
	// RecordBytes is the mean size of a record at the destination, 0 if none.
	RecordBytes float64 `json:"recordBytes"`
	// More holds further figures, such as percentiles.
	More map[string]float64 `json:"more,omitempty"`
}

// measure takes one sample of n operations of c.
func measure(r *Row, c *Contender, env *Env, n int) (s *Sample, err error) {
	if c.Sample != nil {
		return customSample(c, env)
	}
	sub, err := newSubject(c, env)
	if err != nil {
		return nil, err
	}
	if sub.Close != nil {
		defer func() {
			if cerr := sub.Close(); err == nil && cerr != nil {
				s, err = nil, cerr
			}
		}()
	}
	if r.Warm > 0 {
		sub.Run(0, r.Warm)
	}
	runtime.GC()

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	elapsed, err := timed(sub, r.goroutines(), n)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	if err != nil {
		return nil, err
	}
	s = &Sample{
		Value:      float64(elapsed.Nanoseconds()) / float64(n),
		Ops:        n,
		CPU:        float64(cpu.Nanoseconds()) / float64(n),
		Allocs:     float64(after.Mallocs-before.Mallocs) / float64(n),
		AllocBytes: float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}
	if sub.Tally == nil {
		return s, nil
	}
	t, err := sub.Tally()
	if err != nil {
		return nil, err
	}
	want := uint64(n + r.Warm)
	if r.Silent {
		want = 0
	}
	if t.Records != want {
		return nil, fmt.Errorf("%d records ordered, %d at the destination", want, t.Records)
	}
	if t.Records > 0 {
		s.RecordBytes = float64(t.Bytes) / float64(t.Records)
	}
	return s, nil
}

// newSubject turns a panic while setting up into an error, so that one broken
// contender does not end the run.
func newSubject(c *Contender, env *Env) (sub *Subject, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in set-up: %v", p)
		}
	}()
	return c.New(env)
}

// timed runs n operations, divided among the goroutines, and the drain.
func timed(sub *Subject, goroutines, n int) (time.Duration, error) {
	drain := sub.Drain
	if drain == nil {
		drain = func() error { return nil }
	}
	if goroutines == 1 {
		start := time.Now()
		sub.Run(0, n)
		err := drain()
		return time.Since(start), err
	}
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for g := range goroutines {
		wg.Go(func() {
			<-gate
			sub.Run(g, share(n, goroutines, g))
		})
	}
	start := time.Now()
	close(gate)
	wg.Wait()
	err := drain()
	return time.Since(start), err
}

// calibrate returns how many operations of c take about env.Benchtime.
func calibrate(r *Row, c *Contender, env *Env) (int, error) {
	if c.Sample != nil {
		return 1, nil
	}
	limit := r.MaxOps
	if limit == 0 {
		limit = 1 << 30
	}
	for n := min(100*r.goroutines(), limit); ; {
		s, err := measure(r, c, env, n)
		if err != nil {
			return 0, err
		}
		took := time.Duration(s.Value * float64(n))
		if took >= env.Benchtime/2 || n >= limit {
			return max(1, min(limit, int(float64(env.Benchtime)/max(s.Value, 0.1)))), nil
		}
		// Aim at the whole time, but never grow more than a hundredfold on the
		// word of a sample too short to trust.
		aim := float64(env.Benchtime) / max(s.Value, 0.1)
		n = max(n+1, min(limit, 100*n, int(aim)))
	}
}

// customSample is newSubject for contenders that sample by themselves.
func customSample(c *Contender, env *Env) (s *Sample, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return c.Sample(env)
}
