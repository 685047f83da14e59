package harness

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// ErrAbsent is returned by a contender that does not exist on this machine, such as a daemon. The
// report shows the contender without figures.
var ErrAbsent = errors.New("absent")

// Env contains the parameters of the run that contenders need.
type Env struct {
	// Dir is the directory for files. It is removed after the run.
	Dir string
	// Benchtime is the approximate duration of a sample.
	Benchtime time.Duration
	// Quick requests the shortest sample that still executes the code.
	Quick bool
}

// A Sample is one measurement of one contender.
type Sample struct {
	// Value is the main figure in the row's unit; lower is better.
	Value float64 `json:"value"`
	// CPU is the processor time of the process per operation in nanoseconds, or 0 if it is unknown.
	// Unlike Value, it hardly depends on other processes.
	CPU float64 `json:"cpu"`
	// Allocs and AllocBytes are the heap allocations of the process per operation.
	Allocs     float64 `json:"allocs"`
	AllocBytes float64 `json:"allocBytes"`
	// RecordBytes is the mean size of a record at the destination. It is 0 if the row has no
	// destination.
	RecordBytes float64 `json:"recordBytes"`
	// More contains further figures, such as percentiles.
	More map[string]float64 `json:"more,omitempty"`
}

// measure takes a sample of n operations of c.
func measure(r *Row, c *Contender, env *Env, n int) (s *Sample, err error) {
	if c.Sample != nil {
		return safely(env, c.Sample)
	}
	sub, err := safely(env, c.New)
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
	runtime.GC() // a sample does not pay for the garbage of the one before

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	elapsed, err := timed(sub, cmp.Or(c.Goroutines, r.Goroutines, 1), n)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	if err != nil {
		return nil, err
	}
	s = &Sample{
		Value:      float64(elapsed.Nanoseconds()) / float64(n),
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

// safely calls f, and converts a panic of f to an error.
func safely[T any](env *Env, f func(*Env) (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f(env)
}

// timed runs n operations, divided among the goroutines, and then Drain. It returns the total time.
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
	gate := make(chan struct{}) // opens when the clock starts
	for g := range goroutines {
		wg.Go(func() {
			<-gate
			sub.Run(g, (n+g)/goroutines) // all together n
		})
	}
	start := time.Now()
	close(gate)
	wg.Wait()
	err := drain()
	return time.Since(start), err
}

// calibrate returns the number of operations of c for which a sample takes about env.Benchtime.
func calibrate(r *Row, c *Contender, env *Env) (int, error) {
	if c.Sample != nil {
		return 1, nil
	}
	limit := cmp.Or(r.MaxOps, 1<<30)
	for n := min(100*cmp.Or(c.Goroutines, r.Goroutines, 1), limit); ; {
		s, err := measure(r, c, env, n)
		if err != nil {
			return 0, err
		}
		took := time.Duration(s.Value * float64(n))
		if took >= env.Benchtime/2 || n >= limit {
			return max(1, min(limit, int(float64(env.Benchtime)/max(s.Value, 0.1)))), nil
		}
		// The time of a short sample is inaccurate, so n grows by at most a factor of 100.
		aim := float64(env.Benchtime) / max(s.Value, 0.1)
		n = max(n+1, min(limit, 100*n, int(aim)))
	}
}
