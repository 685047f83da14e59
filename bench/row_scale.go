package main

import (
	"fmt"
	"io"
	"runtime"
	"sync"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/slab"
)

// scaleSteps are the numbers of goroutines of order/scale.
var scaleSteps = []int{4, 8, 16, 32, 64}

// scaleNoise is by how much a step may seem slower than the one before.
const scaleNoise = 1.05

func scaleName(writer string, goroutines int) string {
	return fmt.Sprintf("%s, %dg", writer, goroutines)
}

// scaleRow compares numbers of goroutines, which a row otherwise fixes: each
// contender brings its own.
func scaleRow() h.Row {
	const one, many = "one shard", "shards"
	row := h.Row{
		Name: "order/scale", What: "records of 200 B, slabs of 64 KiB, 4 to 64 goroutines, discard, drain timed, 8 processors or more",
		Target: fmt.Sprintf("throughput never falls as goroutines are added (each step ≤ %g × the one before); shards ≥ 2 × one shard at 16", scaleNoise),
		MinCPU: 8, Reference: scaleName(one, 16),
		Verdict: h.Verdict(h.NeverSlower(scaleNames(many), scaleNoise), h.Versus(scaleName(many, 16), scaleName(one, 16), 0.5)),
	}
	for _, w := range []struct {
		name, note string
		mk         func(io.Writer) rivals.Writer
	}{
		{one, "the default, with as much memory", func(w io.Writer) rivals.Writer {
			return newSlab(w, &slab.Options{SlabCount: 8 + 2*max(4, runtime.GOMAXPROCS(0))})
		}},
		{many, "as many as processors while contention lasts", sharded},
	} {
		for _, g := range scaleSteps {
			c := writerTo(scaleName(w.name, g), h.Ours, w.note, 200, w.mk)
			row.Contenders = append(row.Contenders, shared(c, g))
		}
	}
	return row
}

func scaleNames(writer string) (names []string) {
	for _, g := range scaleSteps {
		names = append(names, scaleName(writer, g))
	}
	return names
}

// shared has the work of c done by so many goroutines.
func shared(c h.Contender, goroutines int) h.Contender {
	mk := c.New
	c.New = func(env *h.Env) (*h.Subject, error) {
		s, err := mk(env)
		if err != nil {
			return nil, err
		}
		run := s.Run
		s.Run = func(_, n int) {
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() { run(g, share(n, goroutines, g)) })
			}
			wg.Wait()
		}
		return s, nil
	}
	return c
}

// share is worker g's part of n operations.
func share(n, workers, g int) int {
	part := n / workers
	if g < n%workers {
		part++
	}
	return part
}
