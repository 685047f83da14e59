package backoff

import (
	"math"
	"testing"
	"time"
)

func TestCeilDoublesUpToMaximum(t *testing.T) {
	const ms = time.Millisecond
	for n, want := range []time.Duration{200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000} {
		if got := Ceil(200*ms, 30*time.Second, n); got != want*ms {
			t.Errorf("Ceil(%d) = %s, want %s", n, got, want*ms)
		}
	}
	for _, least := range []time.Duration{1, 200 * ms, 5 * time.Second, 1<<34 + 1, 100 * time.Hour, math.MaxInt64} {
		last := time.Duration(0)
		for n := range 100 {
			got := Ceil(least, math.MaxInt64, n)
			if got < last || got < least {
				t.Errorf("Ceil(%s, the longest, %d) = %s after %s", least, n, got, last)
			}
			last = got
		}
		if last != math.MaxInt64 {
			t.Errorf("Ceil(%s) ends at %s", least, last)
		}
	}
}

// The values of Jitter cover the whole range.
func TestJitterCoversWholeRange(t *testing.T) {
	for _, hi := range []time.Duration{time.Microsecond, time.Second, math.MaxInt64} {
		for _, lo := range []time.Duration{0, hi / 2} {
			span, low, high := hi-lo, 0, 0
			for range 200 {
				d := Jitter(lo, hi)
				if d < lo || d > hi {
					t.Fatalf("Jitter(%s, %s) = %s", lo, hi, d)
				}
				if d-lo < span/4 {
					low++
				}
				if hi-d < span/4 {
					high++
				}
			}
			if low < 20 || high < 20 {
				t.Errorf("Jitter(%s, %s): %d below a quarter, %d above three", lo, hi, low, high)
			}
		}
	}
	if a, b := Jitter(5, 5), Jitter(5, 4); a != 5 || b != 5 {
		t.Errorf("%d and %d, not 5", a, b)
	}
}
