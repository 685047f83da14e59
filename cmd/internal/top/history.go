// Package top draws the state of a running forebay.
package top

import (
	"time"

	"github.com/forebay-log/forebay/cmd/internal/control"
)

// samples is how many looks a History remembers of each output: as many as the widest
// curve has columns.
const samples = 120

// A History has the observed states of a program. The zero value is empty.
type History struct {
	before, now *control.State // the last two looks; nil: none yet
	waits       map[string]*waits
}

// waits has the observed waiting times of the callers of an output.
type waits struct {
	shares []float64     // of the time between two looks, 0 to 1; the newest last
	ahead  time.Duration // of a wait that is not over: counted in shares, and not by the program
}

// Add adds a state. A state of another process begins a new history.
func (h *History) Add(s *control.State) {
	if h.now != nil && (h.now.PID != s.PID || !h.now.Start.Equal(s.Start)) {
		*h = History{}
	}
	h.before, h.now = h.now, s
	if h.before == nil {
		return
	}
	took := h.took()
	seen := make(map[string]*waits, len(s.Outputs))
	for i := range s.Outputs {
		o := &s.Outputs[i]
		before := h.earlier(o.To)
		if before == nil || took <= 0 {
			continue
		}
		w := h.waits[o.To]
		if w == nil {
			w = new(waits)
		}
		w.add(&before.Waits, &o.Waits, took)
		seen[o.To] = w
	}
	h.waits = seen
}

// add notes what share of the time callers waited between two looks. The program counts a
// wait when it is over; one that is not is counted here, and taken off later.
func (w *waits) add(before, now *control.Waits, took time.Duration) {
	reported := time.Duration((now.Seconds - before.Seconds) * float64(time.Second))
	waited := reported - min(reported, w.ahead)
	if now.Count != before.Count {
		w.ahead = 0
	}
	if now.Now > 0 && now.Count == before.Count && before.Now > 0 {
		w.ahead += took
		waited = took
	}
	share := min(1, max(0, waited.Seconds()/took.Seconds()))
	if w.shares = append(w.shares, share); len(w.shares) > samples {
		w.shares = w.shares[1:]
	}
}

// earlier returns the state of an output before the last one, or nil.
func (h *History) earlier(to string) *control.Output {
	if h.before == nil {
		return nil
	}
	for i := range h.before.Outputs {
		if o := &h.before.Outputs[i]; o.To == to {
			return o
		}
	}
	return nil
}

// took is the time between the last two looks.
func (h *History) took() time.Duration {
	if h.before == nil {
		return 0
	}
	return h.now.Now.Sub(h.before.Now)
}

// perSecond is the rate of a counter between the last two looks. It is 0 if there is none.
func (h *History) perSecond(before, now uint64) float64 {
	took := h.took().Seconds()
	if took <= 0 || now < before {
		return 0
	}
	return float64(now-before) / took
}

// State returns the last look, nil if there was none.
func (h *History) State() *control.State { return h.now }
