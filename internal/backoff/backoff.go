// Package backoff computes the delays between attempts. They grow exponentially and have jitter, so
// that clients that failed at the same time do not retry at the same time (Marc Brooker,
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
package backoff

import (
	"math/rand/v2"
	"time"
)

// RetryMin and RetryMax are the default limits of the delays between retries.
const (
	RetryMin = 200 * time.Millisecond
	RetryMax = 30 * time.Second
)

// Ceil returns the maximum delay before attempt n, counted from 0: minDelay·2ⁿ, limited to
// maxDelay.
func Ceil(minDelay, maxDelay time.Duration, n int) time.Duration {
	if n < 62 && minDelay<<n>>n == minDelay {
		return min(maxDelay, minDelay<<n)
	}
	return maxDelay
}

// Jitter returns a uniformly distributed duration in [lo, hi]. If hi is less than lo, it returns
// lo.
func Jitter(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(rand.Uint64N(uint64(hi-lo)+1))
}
