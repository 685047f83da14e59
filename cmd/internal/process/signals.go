package process

import (
	"errors"
	"os"
	"time"
)

// ErrForced ends delivery before everything was delivered.
var ErrForced = errors.New("stopped by a second signal")

// SameSignal is the time after the first signal in which a second one of the same kind does not
// count: timeout(1) signals the process and then its group.
const SameSignal = 250 * time.Millisecond

// Signals counts the signals that end a pipeline.
type Signals struct {
	first os.Signal // nil: no signal was received
	at    time.Time
	count int
}

// Second records a signal and reports whether it is the second one. A repetition of the first
// signal within SameSignal is ignored once.
func (g *Signals) Second(s os.Signal) bool {
	if g.count++; g.first == nil {
		g.first, g.at = s, time.Now()
		return false
	}
	return s != g.first || g.count > 2 || time.Since(g.at) >= SameSignal
}
