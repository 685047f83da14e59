package loki

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// Equal records of several sources get different times, even if the clocks of the sources differ by
// any amount.
func TestInterleavedSourcesGetUniqueTimes(t *testing.T) {
	gaps := []int64{1 << 26, 10e9, 40e9, 3600e9, -1 << 26, 1<<26 - 1, 1}
	for k := range 200 {
		gaps = append(gaps, int64(k)*1e9, int64(1)<<(k%62), int64(k)<<pageBits)
	}
	for _, gap := range gaps {
		r := new(usedTimes)
		seen := map[int64]bool{}
		for range 10 {
			for _, source := range []int64{0, gap} {
				at, own := r.take(1e18 + source)
				if seen[at] || !own {
					t.Fatalf("%d apart: %d was used twice", gap, at)
				}
				seen[at] = true
			}
		}
	}
	// There are 40 sources, whose clocks differ by 50 s. Each has two records per millisecond.
	r := new(usedTimes)
	for ms := range int64(1000) {
		for source := range int64(40) {
			for k := range int64(2) {
				at, own := r.take(1e18 + ms*1e6 + source*50e9)
				if want := 1e18 + ms*1e6 + source*50e9 + k; at != want || !own {
					t.Fatalf("source %d, %d ms: got %d, want %d", source, ms, at-1e18, want-1e18)
				}
			}
		}
	}
}

// The type usedTimes behaves like a model that stores all used times. It reports a time that is
// used twice, shifts no time more than necessary, and removes no page below the limits.
func TestUniqueTimesModel(t *testing.T) {
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	r := new(usedTimes)
	seen := map[int64]bool{}
	const base, span = int64(1e18) >> pageBits << pageBits, maxRemoved << pageBits
	removed := 0
	for i := range 200_000 {
		at := base + rng.Int64N([]int64{1 << 4, 1 << 21, 1 << 28, span - maxTimeShift}[i%4])
		got, own := r.take(at)
		if len(r.removed) < removed {
			t.Fatalf("seed %d: %d removed pages are forgotten", seed, removed)
		}
		removed = len(r.removed)
		switch {
		case own && seen[got]:
			t.Fatalf("seed %d: %d was used twice", seed, got)
		case got < at || got-at > maxTimeShift:
			t.Fatalf("seed %d: shifted by %d", seed, got-at)
		}
		seen[got] = true
	}
	if len(r.pages) > maxPages || len(r.removed) > maxRemoved {
		t.Errorf("%d pages, %d removed pages", len(r.pages), len(r.removed))
	}
}

// If the page of a time was removed, the time is counted as not unique. The memory for all streams
// together is limited.
func TestRemovedPagesAreReported(t *testing.T) {
	e := &encoded{t: t, s: sinkFor(t, new(peer), Config{UniqueTimes: true})}
	now := time.Now()
	for i := range maxPages + 1 {
		e.add(nil, encode.Record{Time: now.Add(-time.Duration(i) << pageBits), Message: "x"})
	}
	if n := e.s.observed.counts()[timeNotUnique]; n != 0 {
		t.Fatalf("counted %d", n)
	}
	e.add(nil, encode.Record{Time: now, Message: "x"})
	if n := e.s.observed.counts()[timeNotUnique]; n != 1 {
		t.Errorf("counted %d, want 1", n)
	}
	var extraPages atomic.Int64
	extraPages.Store(allPages - 10)
	r := &usedTimes{extraPages: &extraPages}
	for i := range int64(1000) {
		r.take(i << pageBits)
	}
	if len(r.pages) != ownPages+10 || extraPages.Load() != allPages {
		t.Errorf("%d pages, extraPages %d", len(r.pages), extraPages.Load())
	}
	if n := allocs.PerRun(100, func() { r.take(time.Now().UnixNano()) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
