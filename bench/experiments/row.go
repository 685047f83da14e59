package experiments

import (
	"bytes"
	"fmt"
	"io"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/rivals"
)

const recordBytes = 200

func record() []byte { return append(bytes.Repeat([]byte{'x'}, recordBytes-1), '\n') }

// contender writes records of 200 B into a destination that only counts.
func contender(name, note string, kind h.Kind, mk func(io.Writer) rivals.Writer) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, New: func(*h.Env) (*h.Subject, error) {
		d := new(rivals.Discard)
		w := mk(d)
		p := record()
		s := &h.Subject{
			Run: func(_, n int) {
				for range n {
					w.Write(p) // what is lost shows in the tally
				}
			},
			Drain: w.Drain,
			Tally: func() (h.Tally, error) { return d.BySize(recordBytes) },
		}
		if kind == h.Reference {
			s.Tally = nil
		}
		return s, nil
	}}
}

// contenderToFile writes into a fresh file.
func contenderToFile(v variant) h.Contender {
	return h.Contender{Name: v.name, Kind: kindOf(v), Note: v.note, New: func(env *h.Env) (*h.Subject, error) {
		f, err := env.TempFile()
		if err != nil {
			return nil, err
		}
		w := v.mk(f)
		p := record()
		return &h.Subject{
			Run: func(_, n int) {
				for range n {
					w.Write(p)
				}
			},
			Drain: w.Drain,
			Tally: func() (h.Tally, error) { return rivals.FileBySize(f, recordBytes) },
			Close: func() error { return rivals.Remove(f) },
		}, nil
	}}
}

func kindOf(v variant) h.Kind {
	if v.name == shipped {
		return h.Ours
	}
	return h.Rival
}

func all(one func(variant) h.Contender) (cs []h.Contender) {
	for _, v := range variants() {
		cs = append(cs, one(v))
	}
	return cs
}

func discard(v variant) h.Contender { return contender(v.name, v.note, kindOf(v), v.mk) }

// measured is the verdict of rows that have no target.
func measured(ours string) func(*h.Result) []h.Check {
	return func(r *h.Result) []h.Check {
		c := r.Column(ours)
		if c == nil || c.Error != "" {
			return []h.Check{{Text: ours + " was not measured", Status: h.NotMeasured}}
		}
		return []h.Check{{Text: fmt.Sprintf("%s %.1f ns", ours, c.Median), Got: c.Median, Limit: c.Median, Status: h.OK}}
	}
}

// register adds a row that is measured only if it is named.
func register(r h.Row) {
	r.Apart = true
	h.Register(r)
}

func init() {
	const floor = "mutex+copy"
	bare := contender(floor, "lock and copy, nothing delivered", h.Reference, func(io.Writer) rivals.Writer { return new(rivals.MutexCopy) })
	for _, g := range []int{1, 10} {
		register(h.Row{
			Name: fmt.Sprintf("experiments/discard-%dg", g), What: "the experiments: records of 200 B, slabs of 64 KiB, discard, drain timed",
			Target: "none: what else was tried", Reference: mutex, Goroutines: g,
			Contenders: append(all(discard), bare), Verdict: measured(shipped),
		})
	}
	register(h.Row{
		Name: "experiments/file-10g", What: "the experiments: records of 200 B, 10 goroutines, file, drain timed, no fsync",
		Target: "none: what else was tried", Reference: mutex, Goroutines: 10, MaxOps: 400_000,
		Contenders: all(contenderToFile), Verdict: measured(shipped),
	})
	for _, g := range []int{4, 8, 16, 32, 64} {
		register(h.Row{
			Name: fmt.Sprintf("experiments/discard-%dg", g), What: "the experiments: records of 200 B, slabs of 64 KiB, discard, drain timed",
			Target: "lanes ≥ 2 × slab.Writer at 16", Reference: shipped, Goroutines: g, MinCPU: 8,
			Contenders: all(discard), Verdict: scaling(g),
		})
	}
	registerPressure()
	register(scaleRow())
	register(mergeRow())
}

func scaling(goroutines int) func(*h.Result) []h.Check {
	if goroutines < 16 {
		return measured(lanesMany)
	}
	return h.Versus(lanesMany, shipped, 1./2)
}
