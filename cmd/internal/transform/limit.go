package transform

import (
	"math"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/record"
)

// Limit drops records above a rate.
type Limit struct {
	// PerSecond is the average number of records per second that pass.
	PerSecond float64
	// Burst is the number of records that pass at once after a pause. Default: PerSecond, but at
	// least 1.
	Burst int
	// By is the name of a field. Each value of the field has a separate rate; records without the
	// field share one rate. Default (""): all records share one rate.
	By string
}

// limitKeys is the maximum number of values of Limit.By that have a separate rate. All further
// values share one rate, to limit the memory.
const limitKeys = 10_000

// A limiter enforces a Limit. It has a token bucket for each value of Limit.By. Clones of a chain
// share it.
type limiter struct {
	by          string
	rate, burst float64

	mu      sync.Mutex
	buckets map[string]*bucket
	swept   time.Time // time at which full buckets were last removed
}

// A bucket contains tokens, of which each passing record removes one. Limit.PerSecond tokens are
// added per second.
type bucket struct {
	tokens float64
	at     time.Time
}

// check validates l and returns its limiter. It calls the function fault for each error.
func (l *Limit) check(fault func(field, format string, args ...any)) *limiter {
	if !(l.PerSecond > 0) || math.IsInf(l.PerSecond, 0) {
		fault("limit.per_second", "%v: use the number of records per second, such as 100", l.PerSecond)
	}
	if l.Burst < 0 {
		fault("limit.burst", "%d: use 1 or more", l.Burst)
	}
	burst := float64(l.Burst)
	if burst == 0 {
		burst = max(1, l.PerSecond)
	}
	return &limiter{by: l.By, rate: l.PerSecond, burst: burst, buckets: map[string]*bucket{}}
}

// admits removes a token for ev. It returns false if no token is left.
func (l *limiter) admits(ev *record.Event) bool {
	var buf [64]byte
	var key []byte
	if l.by != "" {
		key, _ = fieldText(ev, l.by, buf[:0])
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[string(key)]
	if b == nil {
		b = l.add(string(key), now)
	}
	b.tokens = min(l.burst, b.tokens+now.Sub(b.at).Seconds()*l.rate)
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// add returns a new, full bucket for key. If limitKeys buckets exist, it first removes full
// buckets. If none is full, it returns the bucket that all further keys share.
func (l *limiter) add(key string, now time.Time) *bucket {
	if len(l.buckets) >= limitKeys && now.Sub(l.swept) > time.Second {
		l.swept = now
		for k, b := range l.buckets {
			if b.tokens+now.Sub(b.at).Seconds()*l.rate >= l.burst { // a new bucket would be equal
				delete(l.buckets, k)
			}
		}
	}
	if len(l.buckets) >= limitKeys {
		if b := l.buckets[""]; b != nil {
			return b
		}
		key = ""
	}
	b := &bucket{tokens: l.burst, at: now}
	l.buckets[key] = b
	return b
}
