// Package top displays the state of a running forebay on a terminal.
package top

import (
	"time"

	"github.com/forebay-log/forebay/cmd/internal/control"
)

// samples is the maximum number of samples in a History for each output. It is the width of the
// widest curve.
const samples = 120

// A History contains the last two states of a program. For each output, it also contains how long
// callers waited in earlier intervals between two states. The zero value is empty.
type History struct {
	before, now *control.State // the last two states; nil until they are added
	waits       map[string]*waits
}

// waits describes how long callers have waited for room in the memory of an output.
type waits struct {
	shares     []float64     // for each interval between two states, the share of time (0 to 1) in which a caller waited; the last one is the newest
	unfinished time.Duration // part of the current wait that is already counted in shares
}

// Add adds a state. If the state belongs to another process, it first empties h.
func (h *History) Add(s *control.State) {
	if h.now != nil && (h.now.PID != s.PID || !h.now.Start.Equal(s.Start)) {
		*h = History{}
	}
	h.before, h.now = h.now, s
	if h.before == nil {
		return
	}
	took := h.interval()
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

// add appends the share of an interval in which a caller waited. The interval lasts from the state
// before to the state now, and took is its length.
//
// The program reports a wait only when the wait ends. Until then, add counts each interval in full
// and sums up these intervals in w.unfinished. When the wait is reported, add subtracts
// w.unfinished, so that no time counts twice.
func (w *waits) add(before, now *control.Waits, took time.Duration) {
	reported := time.Duration((now.Seconds - before.Seconds) * float64(time.Second))
	waited := reported - min(reported, w.unfinished)
	if now.Count != before.Count {
		w.unfinished = 0
	}
	if now.Now > 0 && now.Count == before.Count && before.Now > 0 {
		w.unfinished += took
		waited = took
	}
	share := min(1, max(0, waited.Seconds()/took.Seconds()))
	if w.shares = append(w.shares, share); len(w.shares) > samples {
		w.shares = w.shares[1:]
	}
}

// earlier returns the state of the named output in h.before, or nil.
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

// interval returns the time between the last two states.
func (h *History) interval() time.Duration {
	if h.before == nil {
		return 0
	}
	return h.now.Now.Sub(h.before.Now)
}

// perSecond returns the rate at which a counter has increased. The arguments before and now are its
// values in the last two states. If there is only one state, the rate is 0.
func (h *History) perSecond(before, now uint64) float64 {
	took := h.interval().Seconds()
	if took <= 0 || now < before {
		return 0
	}
	return float64(now-before) / took
}

// State returns the last state, or nil.
func (h *History) State() *control.State { return h.now }
