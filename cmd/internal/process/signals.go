package process

import (
	"errors"
	"os"
	"time"
)

// ErrForced is the cause of the cancellation if a second signal interrupts the delivery during the
// shutdown.
var ErrForced = errors.New("stopped by a second signal")

// SameSignal is a period after the first signal. If the same signal arrives once more in this
// period, it is ignored. For example, timeout(1) signals a process and then its process group, so
// that the process receives the signal twice.
const SameSignal = 250 * time.Millisecond

// Signals counts the signals that end the program.
type Signals struct {
	first os.Signal // nil before the first signal
	at    time.Time // time of the first signal
	count int
}

// Second counts the signal s and reports whether s forces the program to end. The first signal does
// not. One repetition of the first signal within SameSignal does not, either.
func (g *Signals) Second(s os.Signal) bool {
	if g.count++; g.first == nil {
		g.first, g.at = s, time.Now()
		return false
	}
	return s != g.first || g.count > 2 || time.Since(g.at) >= SameSignal
}
