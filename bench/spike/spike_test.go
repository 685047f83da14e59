package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

func config(slabs slab.Sizing) *Config {
	return &Config{Rate: 10_000, Size: 256, Callers: 4, Stall: 200 * time.Millisecond, Every: 5 * time.Second,
		Duration: 12 * time.Second, Seed: 7, Slabs: slabs}
}

// In a bubble a call takes no time, so that every nanosecond measured is waiting.
func TestPlannedSlabsHideTheStall(t *testing.T) {
	s, err := slab.Plan(slab.Workload{Rate: 10_000, RecordBytes: 256, Spike: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		r, err := config(s).Run(t.Context(), "forebay")
		if err != nil {
			t.Fatal(err)
		}
		// Arrivals are random: at the end of a stall a few more may have come than
		// the rate says.
		if got := r.Quantile(.999); got > time.Microsecond {
			t.Errorf("callers wait %v at p99.9", got)
		}
		if r.Written < 110_000 || r.Written > 130_000 || r.Lost != 0 || r.Arrived != r.Written {
			t.Errorf("%d written, %d arrived, %d lost", r.Written, r.Arrived, r.Lost)
		}
		if len(r.Stalls) != 2 {
			t.Errorf("stalls at %v", r.Stalls)
		}
	})
}

func TestTooFewSlabsShow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := config(slab.Sizing{SlabBytes: 16 << 10, SlabCount: 4, MemoryBytes: 64 << 10})
		r, err := c.Run(t.Context(), "forebay")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Quantile(1); got < 150*time.Millisecond || got > 200*time.Millisecond {
			t.Errorf("worst call %v, want most of the stall of 200ms", got)
		}
		// Calls that were due while others hung count from when they were due: about
		// 200 ms × 10k/s of 120k calls were, twice.
		if got := r.Quantile(.98); got < time.Millisecond {
			t.Errorf("p98 is %v: calls that were due during the stall are left out", got)
		}
	})
}

func TestSameSeedSameLoad(t *testing.T) {
	var written [2]uint64
	for i := range written {
		bubble.Test(t, func(t *testing.T) {
			c := config(slab.Sizing{SlabBytes: 64 << 10, SlabCount: 32, MemoryBytes: 2 << 20})
			c.Duration = 2 * time.Second
			r, err := c.Run(t.Context(), "forebay")
			if err != nil {
				t.Fatal(err)
			}
			written[i] = r.Written
		})
	}
	if written[0] != written[1] {
		t.Errorf("%d and %d records with the same seed", written[0], written[1])
	}
}

func TestOtherModes(t *testing.T) {
	for _, mode := range []string{"sync", "buffered"} {
		c := config(slab.Sizing{SlabBytes: 64 << 10, SlabCount: 4})
		c.Callers, c.Duration, c.Stall = 1, 200*time.Millisecond, 0
		r, err := c.Run(t.Context(), mode)
		if err != nil || r.Lost != 0 || r.Written == 0 || r.Arrived != r.Written {
			t.Errorf("%s: %v, %+v", mode, err, r)
		}
	}
	if _, err := config(slab.Sizing{}).Run(t.Context(), "nonsense"); err == nil {
		t.Error("an unknown mode ran")
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := config(slab.Sizing{SlabBytes: 64 << 10, SlabCount: 32, MemoryBytes: 2 << 20})
		r, err := c.Run(t.Context(), "forebay")
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := WriteSVG(&b, c, []*Result{r}); err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}
