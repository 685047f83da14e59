package deliver

import "time"

// Defaults of RetryOptions.BudgetRatio and BudgetPerSecond.
const (
	defaultBudgetRatio     = 0.1
	defaultBudgetPerSecond = 1
	budgetBurst            = 10
)

// A budget bounds how much of the traffic to a destination is retries, so that
// an overloaded destination is not kept down by retries. Over any time t in which s
// Sends succeeded it lets through at most ratio·s + rate·t + 10 retries; later ones
// wait. The probes of an open circuit are no retries: the circuit decides when they are sent.
//
// It is a token bucket: a success puts ratio tokens in, a second rate, a
// retry takes one out. It holds 10 and begins full, so that the first retries of
// an outage do not wait. A retry that finds it empty takes its token in advance
// and waits until it is there.
type budget struct {
	ratio, rate float64
	tokens      float64
	last        time.Time // when rate was last added
}

// newBudget returns the budget of r, whose defaults are filled in.
func newBudget(r *RetryOptions) budget {
	return budget{ratio: r.BudgetRatio, rate: r.BudgetPerSecond, tokens: budgetBurst}
}

// success notes that a Send succeeded.
func (b *budget) success() { b.tokens = min(b.tokens+b.ratio, budgetBurst) }

// take takes the token of one retry and returns how long that must wait.
func (b *budget) take(now time.Time) time.Duration {
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
