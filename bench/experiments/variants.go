package experiments

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/forebay-log/forebay/bench/own"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/slab"
)

const (
	slabSize  = 64 << 10
	slabCount = 8
)

// A variant is one experiment.
type variant struct {
	name string
	note string
	// ordered says that the variant claims strict order.
	ordered bool
	mk      func(io.Writer) rivals.Writer
}

const (
	shipped   = "slab.Writer"
	lanesMany = "lanes"
	mutex     = "mutex"
	atomics   = "atomics"
)

// variants returns all experiments.
func variants() []variant {
	vs := []variant{
		{shipped, "one shard, the default", true, func(d io.Writer) rivals.Writer { return newSlab(d, &slab.Options{}) }},
		{lanesMany, "one slab, and lanes while contention lasts: atomic ticket, scatter merge", true, newManyLanes},
		{mutex, "lock, copy, plain counters", true, func(d io.Writer) rivals.Writer { return newMutex(d, slabSize, slabCount) }},
		{atomics, "the same, atomic counters under the lock", true, func(d io.Writer) rivals.Writer { return newAtomics(d, slabSize, slabCount) }},
		{"torn", "no early swap: fills slabs to the last byte, in a loop", true, func(d io.Writer) rivals.Writer { return &tornWriter{newLadder(d, slabSize, slabCount)} }},
		{"loop", "early swap, and the loop still there", true, func(d io.Writer) rivals.Writer { return &loopWriter{newLadder(d, slabSize, slabCount)} }},
		{"sometimes", "records are counted only by a policy that drops", true, func(d io.Writer) rivals.Writer { return &sometimesWriter{newLadder(d, slabSize, slabCount)} }},
		{"oversize", "a record larger than a slab has memory of its own", true, func(d io.Writer) rivals.Writer { return &oversizeWriter{newLadder(d, slabSize, slabCount)} }},
		{"contained", "a destination that panics ends nothing", true, func(d io.Writer) rivals.Writer { return newMutex(contained{d}, slabSize, slabCount) }},
		{"cas", "reserve by compare-and-swap", true, func(d io.Writer) rivals.Writer { return newCAS(d, slabSize, slabCount) }},
		{"add", "reserve by one addition: ticket and place", true, func(d io.Writer) rivals.Writer { return newAdd(d, slabSize, slabCount) }},
		{"combine", "whoever has the lock copies for those who wait", true, func(d io.Writer) rivals.Writer { return newCombine(d, slabSize, slabCount) }},
		{"outside", "reserve under the lock, copy outside", true, func(d io.Writer) rivals.Writer { return newOutside(d, slabSize, slabCount) }},
		{"spin", "spinlock in plain Go", true, func(d io.Writer) rivals.Writer { return newSpin(d, slabSize, slabCount) }},
	}
	for _, n := range shardCounts() {
		vs = append(vs,
			variant{fmt.Sprintf("naive(%d)", n), "no order", n == 1, func(d io.Writer) rivals.Writer { return newNaive(d, slabSize, slabCount, n) }},
			variant{fmt.Sprintf("ticketed(%d)", n), "atomic ticket, scatter merge", true,
				func(d io.Writer) rivals.Writer { return newSharded(d, slabSize, slabCount, n, tickets) }},
		)
	}
	last := shardCounts()[len(shardCounts())-1]
	return append(vs,
		variant{fmt.Sprintf("clock(%d)", last), "time, waited out, k-way merge", true,
			func(d io.Writer) rivals.Writer { return newSharded(d, slabSize, slabCount, last, clockWait) }},
		variant{fmt.Sprintf("clock(%d), no wait", last), "time, k-way merge", false,
			func(d io.Writer) rivals.Writer { return newSharded(d, slabSize, slabCount, last, clockPlain) }},
	)
}

// shardCounts are 1, 2, 4 and the number of processors, if that is more.
func shardCounts() []int {
	ns := []int{1, 2, 4}
	if n := runtime.GOMAXPROCS(0); n > 4 {
		ns = append(ns, min(n, 64))
	}
	return ns
}

// newManyLanes are as many lanes as processors, at least 4.
func newManyLanes(dst io.Writer) rivals.Writer {
	n := max(4, runtime.GOMAXPROCS(0))
	return newLanes(dst, slabSize, slabCount+2*n, n)
}

// slabWriter is the shipped writer.
type slabWriter struct{ *deliver.Output }

func newSlab(dst io.Writer, o *slab.Options) slabWriter {
	o.SlabBytes = slabSize
	if o.SlabCount == 0 {
		o.SlabCount = slabCount
	}
	o.WhenFull = slab.Block()
	w, err := deliver.NewOutput(deliver.ToWriter(own.NoSync(dst)), &deliver.OutputOptions{Slab: *o})
	if err != nil {
		panic(err)
	}
	return slabWriter{w}
}

// Drain closes the writer and requires that nothing was left behind.
func (w slabWriter) Drain() error {
	rep, err := w.Shutdown(context.Background())
	if err == nil && rep.Undelivered() > 0 {
		err = fmt.Errorf("%s", rep.Account)
	}
	return err
}
