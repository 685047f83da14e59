package deliver

import (
	"sync"
	"time"
)

// Defaults of [NewBudget].
const (
	defaultBudgetRatio     = 0.1
	defaultBudgetPerSecond = 1
	budgetBurst            = 10
)

// A Budget bounds how much of the traffic to a destination is retries, so that
// an overloaded destination is not kept down by retries. Over any time t in which s
// Sends succeeded it lets through at most ratio·s + perSecond·t + 10 retries; later ones
// wait. Several outlets may share one. It is safe for concurrent use. The probes of an open
// circuit are no retries: the circuit says when they are.
//
// It is a token bucket: a success puts ratio tokens in, a second perSecond, a
// retry takes one out. It holds 10 and begins full, so that the first retries of
// an outage do not wait. A retry that finds it empty takes its token in advance
// and waits until it is there.
type Budget struct {
	ratio, rate float64

	mu     sync.Mutex
	tokens float64
	last   time.Time // when rate was last added
}

// NewBudget returns a budget of ratio retries per success and perSecond retries
// per second. A ratio of 0 or less means 0.1, a perSecond of 0 or
// less means 1.
func NewBudget(ratio, perSecond float64) *Budget {
	b := &Budget{ratio: ratio, rate: perSecond, tokens: budgetBurst}
	if !(b.ratio > 0) {
		b.ratio = defaultBudgetRatio
	}
	if !(b.rate > 0) {
		b.rate = defaultBudgetPerSecond
	}
	return b
}

// success notes that a Send succeeded.
func (b *Budget) success() {
	b.mu.Lock()
	b.tokens = min(b.tokens+b.ratio, budgetBurst)
	b.mu.Unlock()
}

// take takes the token of one retry and returns how long that must wait.
func (b *Budget) take(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.last.IsZero() {
		b.tokens = min(b.tokens+b.rate*max(0, now.Sub(b.last).Seconds()), budgetBurst)
	}
	b.last = now
	b.tokens--
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / b.rate * float64(time.Second))
}
