package experiments

import (
	"io"
	"strconv"
	"sync"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/rivals"
)

// The pressure rows do between two writes what a caller of a logger does: take a
// buffer from a pool, render some fields into it, give it back, and use memory of
// its own, more than a first-level cache holds. Only then does it show what else
// a call moves between processors: counters under the lock cost nothing in a loop
// that does nothing but write.

const (
	ownBytes  = 256 << 10 // of each worker
	ownStride = 64
	ownSteps  = 32 // cache lines touched per record
)

type worker struct {
	own []byte
	at  int
	n   int
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// render makes a record of 200 B.
func (k *worker) render() *[]byte {
	b := buffers.Get().(*[]byte)
	p := append((*b)[:0], `{"level":"info","msg":"request served","worker":`...)
	p = strconv.AppendInt(p, int64(k.n), 10)
	p = append(p, `,"elapsed":`...)
	p = strconv.AppendFloat(p, float64(k.n)/7, 'g', -1, 64)
	for len(p) < recordBytes-1 {
		p = append(p, ' ')
	}
	*b = append(p[:recordBytes-1], '\n')
	k.n++
	return b
}

func (k *worker) touch() {
	for range ownSteps {
		k.own[k.at]++
		k.at = (k.at + 5*ownStride) % len(k.own)
	}
}

func pressed(name, note string, kind h.Kind, mk func(io.Writer) rivals.Writer, goroutines int) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, New: func(*h.Env) (*h.Subject, error) {
		d := new(rivals.Discard)
		w := mk(d)
		workers := make([]worker, goroutines)
		for i := range workers {
			workers[i].own = make([]byte, ownBytes)
		}
		s := &h.Subject{
			Run: func(g, n int) {
				k := &workers[g]
				for range n {
					b := k.render()
					k.touch()
					w.Write(*b)
					buffers.Put(b)
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

// nothing takes records and does nothing.
type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }
func (nothing) Drain() error                { return nil }

func registerPressure() {
	const none = "no write"
	for _, g := range []int{1, 10} {
		cs := []h.Contender{pressed(none, "the work between two writes", h.Reference, func(io.Writer) rivals.Writer { return nothing{} }, g)}
		for _, v := range variants() {
			cs = append(cs, pressed(v.name, v.note, kindOf(v), v.mk, g))
		}
		register(h.Row{
			Name: "experiments/pressure-" + strconv.Itoa(g) + "g",
			What: "the experiments under cache pressure: pool, rendering, 32 lines of 256 KiB of its own between two writes of 200 B, discard, drain timed",
			// The figure to compare is the difference to "no write".
			Target: "none: what else was tried", Reference: none, Goroutines: g,
			Contenders: cs, Verdict: measured(shipped),
		})
	}
}
