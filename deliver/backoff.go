package deliver

import (
	"math/rand/v2"
	"time"
)

// backoff is exponential backoff with full jitter: the delay before attempt n,
// counting from 0, is uniform in [0, min(max, min·2ⁿ)]. Spreading over the whole
// range, rather than around its end, is what keeps clients that failed together
// from coming back together (Marc Brooker, "Exponential Backoff And Jitter",
// AWS Architecture Blog, 2015).
type backoff struct {
	min, max time.Duration
}

// delay returns the delay before attempt n.
func (b backoff) delay(n int) time.Duration { return jitter(0, b.ceil(n)) }

// ceil returns the longest delay before attempt n.
func (b backoff) ceil(n int) time.Duration {
	ceil := b.max
	if n < 62 && b.min<<n>>n == b.min {
		ceil = min(ceil, b.min<<n)
	}
	return ceil
}

// jitter returns a duration that is uniform in [lo, hi].
func jitter(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(rand.Int64N(int64(hi-lo)+1))
}
