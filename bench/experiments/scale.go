package experiments

import (
	"fmt"
	"io"
	"runtime"
	"time"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/slab"
)

// scaleSteps are the numbers of goroutines of experiments/scale.
var scaleSteps = []int{4, 8, 16, 32, 64}

// scaleNoise is by how much a step may seem slower than the one before.
const scaleNoise = 1.05

func scaleName(writer string, goroutines int) string {
	return fmt.Sprintf("%s, %dg", writer, goroutines)
}

// scaleRow compares numbers of goroutines, which a row otherwise fixes: each
// contender brings its own.
func scaleRow() h.Row {
	row := h.Row{
		Name: "experiments/scale", What: "records of 200 B, slabs of 64 KiB, 4 to 64 goroutines, discard, drain timed, 8 processors or more",
		Target: fmt.Sprintf("throughput never falls as goroutines are added (each step ≤ %g × the one before); lanes ≥ 2 × slab.Writer at 16", scaleNoise),
		MinCPU: 8, Reference: scaleName(shipped, 16),
		Verdict: h.Verdict(h.NeverSlower(scaleNames(lanesMany), scaleNoise), h.Versus(scaleName(lanesMany, 16), scaleName(shipped, 16), 0.5)),
	}
	for _, v := range []variant{
		{name: shipped, note: "with as much memory", mk: func(w io.Writer) rivals.Writer {
			return newSlab(w, &slab.Options{SlabCount: slabCount + 2*max(4, runtime.GOMAXPROCS(0))})
		}},
		{name: lanesMany, note: "as many as processors while contention lasts", mk: newManyLanes},
	} {
		for _, g := range scaleSteps {
			c := contender(scaleName(v.name, g), v.note, kindOf(v), v.mk)
			row.Contenders = append(row.Contenders, h.ByMany(c, g))
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

// mergeRow tells what merging the lanes costs beyond copying their records.
func mergeRow() h.Row {
	const merge = "merge"
	return h.Row{
		Name: "experiments/merge", What: "records of 200 B that alternate between 4 lanes; what sweep and merge cost beyond copying the same records",
		Target: "≤ 20 ns per record", Unit: "ns/record", MaxCount: 5,
		Contenders: []h.Contender{{Name: merge, Kind: h.Rival, Note: "sweep, scatter and gather", Sample: merging}},
		Verdict:    h.Verdict(h.AtMost(merge, 20)),
	}
}

func merging(env *h.Env) (*h.Sample, error) {
	const lanes = 4
	rounds := 500
	if env.Quick {
		rounds = 1
	}
	w := makeLanes(new(rivals.Discard), slabSize, slabCount, lanes)
	w.procs = lanes
	w.open()
	p := record()
	flat := make([]byte, 0, slabSize)
	var merged, copied time.Duration
	records := 0
	for range rounds {
		for i := range lanes {
			w.lanes[i].cur = w.take()
		}
		for w.lanes[lanes-1].cur.fits(p) {
			for i := range lanes {
				w.lanes[i].cur.store(p, w.ticket)
				records++
			}
		}
		var filled [lanes]stamped
		for i := range lanes {
			filled[i] = *w.lanes[i].cur
			w.lanes[i].full, w.lanes[i].cur = append(w.lanes[i].full, w.lanes[i].cur), nil
		}

		start := time.Now()
		w.sweep(false)
		w.d.scatter(w.cut)
		w.d.flush()
		merged += time.Since(start)

		// The same bytes from the same places, in the order of the lanes.
		start = time.Now()
		for i := range lanes {
			flat = flat[:0]
			for _, e := range filled[i].index {
				flat = append(flat, filled[i].p[e.off:e.off+e.len]...)
			}
		}
		copied += time.Since(start)
		w.give()
	}
	ns := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(records) }
	return &h.Sample{Value: ns(merged - copied), Ops: 1, More: map[string]float64{"merge": ns(merged), "copy": ns(copied)}}, nil
}
