// Package top displays the state of a running forebay on a terminal.
package top

import (
	"time"

	"github.com/forebay-log/forebay/cmd/internal/control"
)

// samples is the number of samples that a History keeps for each output, which is the width of the
// widest curve.
const samples = 120

// A History contains the observed states of a program. The zero value is empty.
type History struct {
	before, now *control.State // the last two states; nil before the first
	waits       map[string]*waits
}

// waits contains the observed waiting times of the callers of an output.
type waits struct {
	shares     []float64     // share of the time between two states, 0 to 1; the newest is last
	unfinished time.Duration // part of an unfinished wait that is already in shares
}

// Add adds a state. The state of another process starts a new history.
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

// add adds the share of the time that callers waited between two states. The program counts a wait
// when it ends. An unfinished wait is added here and subtracted when the program counts it.
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

// earlier returns the state of an output before the latest one, or nil.
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

// perSecond returns the rate of a counter between the last two states, or 0 if there is only one.
func (h *History) perSecond(before, now uint64) float64 {
	took := h.interval().Seconds()
	if took <= 0 || now < before {
		return 0
	}
	return float64(now-before) / took
}

// State returns the latest state, or nil.
func (h *History) State() *control.State { return h.now }
