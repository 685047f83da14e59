package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// One caller: a bubble does not see through a mutex that several wait for.
func alone(c *Config) *Config {
	c.Callers = 1
	return c
}

// A writer that takes 10 ms per record is hopelessly behind 10k/s. The run ends all
// the same, and the calls that were not made count with what they had waited.
func TestBehindIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := alone(config(slab.Sizing{}))
		c.Latency, c.Duration, c.Stall = 10*time.Millisecond, 300*time.Millisecond, 0
		start := time.Now()
		r, err := c.Run(t.Context(), "sync")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(start), c.Duration+grace; got != want {
			t.Errorf("it took %v, want %v", got, want)
		}
		if r.Written < 75 || r.Written > 80 || r.Lost != 0 {
			t.Errorf("%d written, %d lost", r.Written, r.Lost)
		}
		if all := r.Written + r.Late; all < 2800 || all > 3200 || r.Hist.TotalCount() != int64(all) {
			t.Errorf("%d written and %d late of about 3000, %d in the histogram", r.Written, r.Late, r.Hist.TotalCount())
		}
		if got := r.Quantile(.5); got < 600*time.Millisecond {
			t.Errorf("p50 is %v: what was not done in time is left out", got)
		}
	})
}

// Done means done, whatever the writer is about to do, and what there is by then
// is returned.
func TestCancelEndsAtOnce(t *testing.T) {
	for _, mode := range Modes() {
		for name, change := range map[string]func(*Config){
			"busy":    func(c *Config) { c.Latency = 10 * time.Millisecond },
			"stalled": func(c *Config) { c.Stall, c.Every = 4*time.Second, 8*time.Second },
			"idle":    func(c *Config) { c.Rate = 0.01 },
		} {
			bubble.Test(t, func(t *testing.T) {
				c := alone(config(slab.Sizing{SlabBytes: 16 << 10, SlabCount: 8}))
				c.Duration = time.Hour
				change(c)
				const at = 6 * time.Second
				ctx, cancel := context.WithTimeout(t.Context(), at)
				defer cancel()
				start := time.Now()
				r, err := c.Run(ctx, mode)
				if err != nil || r.Lost != 0 {
					t.Fatalf("%s, %s: %v, %+v", mode, name, err, r)
				}
				if got := time.Since(start); got < at || got > at+nap {
					t.Errorf("%s, %s: it took %v, want %v", mode, name, got, at)
				}
			})
		}
	}
}

func TestStallsAreWithinTheRun(t *testing.T) {
	for _, c := range []struct{ stall, every, duration time.Duration }{
		{200 * time.Millisecond, 5 * time.Second, 30 * time.Second},
		{200 * time.Millisecond, 5 * time.Second, 2 * time.Second},
		{200 * time.Millisecond, 5 * time.Second, 2600 * time.Millisecond},
		{200 * time.Millisecond, 5 * time.Second, 201 * time.Millisecond},
		{20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond},
	} {
		for seed := range uint64(50) {
			cfg := Config{Stall: c.stall, Every: c.every, Duration: c.duration, Seed: seed}
			s := cfg.stalls()
			if len(s) == 0 {
				t.Fatalf("%+v, seed %d: no stall", c, seed)
			}
			for _, at := range s {
				if at < 0 || at+c.stall/2 >= c.duration {
					t.Errorf("%+v, seed %d: a stall at %v", c, seed, at)
				}
			}
		}
	}
	if s := (&Config{Stall: time.Second, Every: 2 * time.Second, Duration: time.Second}).stalls(); s != nil {
		t.Errorf("stalls at %v, where none fits", s)
	}
}

// What a stall is counted for: a write that it held up.
func TestStalledCountsWhatWasHeldUp(t *testing.T) {
	for rate, want := range map[float64]int{1000: 2, 0.01: 0} {
		bubble.Test(t, func(t *testing.T) {
			c := alone(config(slab.Sizing{SlabBytes: 64 << 10, SlabCount: 32}))
			c.Rate = rate
			r, err := c.Run(t.Context(), "forebay")
			if err != nil || r.Stalled != want {
				t.Errorf("rate %v: %d stalls held up the destination, want %d; %v", rate, r.Stalled, want, err)
			}
		})
	}
}

func TestDrainRate(t *testing.T) {
	for rate, late := range map[float64]bool{500: false, 2000: true} {
		bubble.Test(t, func(t *testing.T) {
			c := alone(config(slab.Sizing{}))
			c.Rate, c.Stall, c.Duration, c.Drain = rate, 0, 2*time.Second, 1000*256
			r, err := c.Run(t.Context(), "sync")
			if err != nil || r.Lost != 0 || (r.Late > 0) != late {
				t.Errorf("%v records/s into 1000/s: %d written, %d late, %d lost, %v", rate, r.Written, r.Late, r.Lost, err)
			}
		})
	}
}

func TestLargeRecordsArrive(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := alone(config(slab.Sizing{SlabBytes: 8 << 20, SlabCount: 4}))
		c.Rate, c.Size, c.Duration = 20, 2<<20, time.Second
		r, err := c.Run(t.Context(), "forebay")
		if err != nil || r.Written == 0 || r.Lost != 0 || r.Arrived != r.Written {
			t.Errorf("%d written, %d arrived, %d lost, %v", r.Written, r.Arrived, r.Lost, err)
		}
	})
}

// A panel of its own for each: none is hidden by another that waits for the same.
func TestSVGHasAPanelForEach(t *testing.T) {
	var results []*Result
	for _, m := range Modes() {
		r := &Result{Mode: m, Hist: new(Config).newHist(), Worst: []float64{1e-6, .2, 1e-6}, Stalls: []time.Duration{100 * time.Millisecond}}
		_ = r.Hist.RecordValue(1000)
		results = append(results, r)
	}
	c := config(slab.Sizing{})
	c.Duration = 300 * time.Millisecond
	var b bytes.Buffer
	if err := WriteSVG(&b, c, results); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, line := range strings.Split(b.String(), "\n") {
		if _, points, ok := strings.Cut(line, ` line" points="`); ok {
			points, _, _ = strings.Cut(points, `"`)
			if seen[points] {
				t.Errorf("two lines run through %s", points)
			}
			seen[points] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d lines, want 3", len(seen))
	}
}

// A wait of more than ten minutes is shown as long as it was.
func TestLongWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := alone(config(slab.Sizing{}))
		c.Rate, c.Stall, c.Every, c.Duration = 1, 20*time.Minute, time.Hour, 2*time.Hour
		r, err := c.Run(t.Context(), "sync")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Quantile(1); got < 19*time.Minute || got > 21*time.Minute {
			t.Errorf("the worst call waits %v of a stall of %v", got, c.Stall)
		}
	})
}

// What was due before the goroutine of its caller had begun did not wait for a writer.
func TestLateStartIsNoWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := alone(config(slab.Sizing{}))
		k := &caller{hist: c.newHist(), worst: make([]float64, c.buckets())}
		start := time.Now()
		time.Sleep(time.Second)
		c.drive(t.Context(), io.Discard, start, 0, make([]byte, c.Size), k)
		if want := uint64(c.Rate * c.Duration.Seconds()); k.calls < want*9/10 || k.hist.Max() > 1 {
			t.Errorf("%d calls of about %d, the worst waited %v", k.calls, want, time.Duration(k.hist.Max()))
		}
	})
}

// Who waits longer than a second is not drawn as if it were one.
func TestSVGShowsLongWaits(t *testing.T) {
	c := config(slab.Sizing{})
	c.Duration = 300 * time.Millisecond
	heights := map[string]bool{}
	for _, worst := range []float64{1, 3, 30} {
		r := &Result{Mode: "sync", Hist: c.newHist(), Worst: []float64{1e-6, worst, 1e-6}}
		var b bytes.Buffer
		if err := WriteSVG(&b, c, []*Result{r}); err != nil {
			t.Fatal(err)
		}
		_, points, _ := strings.Cut(b.String(), ` line" points="`)
		points, _, _ = strings.Cut(points, `"`)
		heights[points] = true
	}
	if len(heights) != 3 {
		t.Errorf("waits of 1, 3 and 30 s give %d pictures: %v", len(heights), heights)
	}
}
