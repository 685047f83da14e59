package process

import (
	"errors"
	"os"
	"time"
)

// ErrForced is the cause if a second signal interrupts the delivery during the shutdown.
var ErrForced = errors.New("stopped by a second signal")

// SameSignal is the time in which a repetition of the first signal is ignored. For example,
// timeout(1) signals first a process and then its process group, so that the process receives the
// signal twice.
const SameSignal = 250 * time.Millisecond

// Signals counts the signals that request the end of a pipeline.
type Signals struct {
	first os.Signal // nil before the first signal
	at    time.Time // time of the first signal
	count int
}

// Second counts the signal s and reports whether it is a second request to end. If the first signal
// is repeated within SameSignal, one repetition is ignored.
func (g *Signals) Second(s os.Signal) bool {
	if g.count++; g.first == nil {
		g.first, g.at = s, time.Now()
		return false
	}
	return s != g.first || g.count > 2 || time.Since(g.at) >= SameSignal
}
