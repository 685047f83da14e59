package process

import (
	"errors"
	"os"
	"time"
)

// ErrForced ends delivery before everything was delivered.
var ErrForced = errors.New("stopped by a second signal")

// SameSignal is how soon after the first signal one more of the same kind belongs to it:
// timeout(1) signals the process and then its group.
const SameSignal = 250 * time.Millisecond

// Signals counts the signals that end a pipeline.
type Signals struct {
	first os.Signal // nil: there was none
	at    time.Time
	count int
}

// Second notes a signal and reports whether it is the second one. A repeated first signal
// is accepted once, within sameSignal.
func (g *Signals) Second(s os.Signal) bool {
	if g.count++; g.first == nil {
		g.first, g.at = s, time.Now()
		return false
	}
	return s != g.first || g.count > 2 || time.Since(g.at) >= SameSignal
}
