package deliver

import "time"

// budgetBurst is the capacity of a budget in tokens.
const budgetBurst = 10

// A budget limits the share of retries in the traffic to a destination, so that retries do not keep
// an overloaded destination down. It permits at most ratio·s + rate·t + 10 retries in a period of t
// seconds with s successful Sends. Further retries wait. The probes of an open circuit do not count
// as retries.
//
// It is a token bucket: each success adds ratio tokens, each second adds rate tokens, and each
// retry removes one token. The bucket holds at most 10 tokens. It is full at first, so that the
// first retries of an outage do not wait. If the bucket is empty, a retry borrows a token, and
// waits until that token would have been added.
type budget struct {
	ratio, rate float64
	tokens      float64
	last        time.Time // time at which tokens for rate were last added
}

// newBudget returns the budget configured by r, whose defaults are filled in.
func newBudget(r *RetryOptions) budget {
	return budget{ratio: r.BudgetRatio, rate: r.BudgetPerSecond, tokens: budgetBurst}
}

// success is called after each successful Send.
func (b *budget) success() { b.tokens = min(b.tokens+b.ratio, budgetBurst) }

// take removes the token of one retry and returns the time for which the retry must wait.
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
