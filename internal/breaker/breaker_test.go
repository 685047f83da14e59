package breaker

import (
	"slices"
	"testing"
	"time"
)

// With the maximum jitter, an unavailable destination is probed after 1, 2, 4, … 60 s. After it has
// recovered, it receives two batches of 10 records, and then the size doubles with each batch.
func TestDownAndBack(t *testing.T) {
	longest := func(_, hi time.Duration) time.Duration { return hi }
	c := New(Default(), longest, nil)
	now := time.Unix(1000, 0)
	for i := range Failures {
		if _, ok, _ := c.Admit(now); !ok || c.Failed(now, 0, false) != (i == Failures-1) {
			t.Fatalf("failure %d: %v", i, c.State())
		}
	}
	var waits []int
	for range 8 {
		_, ok, until := c.Admit(now)
		waits = append(waits, int(until.Sub(now).Seconds()))
		if _, probe, _ := c.Admit(until); ok || !probe || c.State() != HalfOpen {
			t.Fatalf("at once: %v, at its time: %v, then %v", ok, probe, c.State())
		}
		if now = until; !c.Failed(now, 0, false) {
			t.Fatal("a probe that failed leaves the circuit as it is")
		}
	}
	if want := []int{1, 2, 4, 8, 16, 32, 60, 60}; !slices.Equal(waits, want) {
		t.Errorf("it is probed after %v s, want %v", waits, want)
	}
	var sizes []int
	now = c.Until()
	for range 6 {
		n, _, _ := c.Admit(now)
		sizes = append(sizes, n)
		c.Worked(now, true)
	}
	if want := []int{10, 10, 20, 40, 80, 160}; !slices.Equal(sizes, want) {
		t.Errorf("it gets %v records, want %v", sizes, want)
	}
	c.Worked(now, false)
	if n, _, _ := c.Admit(now); n != 0 || !c.Calm() {
		t.Errorf("after a whole batch it gets %d records at most", n)
	}
}
