package process

import (
	"errors"
	"os"
	"time"
)

// ErrForced is the cause if a second signal ends the delivery before everything is delivered.
var ErrForced = errors.New("stopped by a second signal")

// SameSignal is the time in which a repetition of the first signal is ignored. timeout(1), for
// example, signals a process and then its process group.
const SameSignal = 250 * time.Millisecond

// Signals counts the signals that end a pipeline.
type Signals struct {
	first os.Signal // nil before the first signal
	at    time.Time
	count int
}

// Second counts a signal and reports whether it is the second one. One repetition of the first
// signal within SameSignal is ignored.
func (g *Signals) Second(s os.Signal) bool {
	if g.count++; g.first == nil {
		g.first, g.at = s, time.Now()
		return false
	}
	return s != g.first || g.count > 2 || time.Since(g.at) >= SameSignal
}
