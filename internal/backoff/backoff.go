// Package backoff computes the waits between attempts. They grow, and they are random, so that
// clients that failed together do not retry together (Marc Brooker, "Exponential Backoff And
// Jitter", AWS Architecture Blog, 2015).
package backoff

import (
	"math/rand/v2"
	"time"
)

// RetryMin and RetryMax are the default limits of the waits between retries.
const (
	RetryMin = 200 * time.Millisecond
	RetryMax = 30 * time.Second
)

// Ceil returns the longest wait before attempt n, counting from 0: least·2ⁿ, but
// no more than most. It is most, too, where least·2ⁿ is more than a Duration holds.
func Ceil(least, most time.Duration, n int) time.Duration {
	if n < 62 && least<<n>>n == least {
		return min(most, least<<n)
	}
	return most
}

// Jitter returns a duration that is uniform in [lo, hi], or lo where hi is below.
func Jitter(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(rand.Uint64N(uint64(hi-lo)+1))
}
