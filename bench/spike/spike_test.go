package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

func config(slabs slab.Sizing) *Config {
	return &Config{Rate: 10_000, Size: 256, Stall: 200 * time.Millisecond, Every: 5 * time.Second,
		Duration: 12 * time.Second, Slabs: slabs}
}

var forebay = modes[2]

// In a synctest bubble, calls take no time, so the measured latency consists only of waiting.
func TestPlannedSlabsHideTheStall(t *testing.T) {
	s, err := slab.Plan(slab.Workload{Rate: 10_000, RecordBytes: 256, Spike: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		r, err := config(s).Run(forebay)
		if err != nil {
			t.Fatal(err)
		}
		// Arrivals are random, so a stall may meet more records than planned.
		if got := r.Quantile(.999); got > time.Microsecond {
			t.Errorf("callers wait %v at p99.9", got)
		}
		if r.Written < 110_000 || r.Written > 130_000 || r.Lost != 0 {
			t.Errorf("%d written, %d lost", r.Written, r.Lost)
		}
		if len(r.Stalls) != 2 {
			t.Errorf("stalls at %v", r.Stalls)
		}
	})
}

func TestTooFewSlabsShow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, err := config(slab.Sizing{SlabBytes: 16 << 10, SlabCount: 4, MemoryBytes: 64 << 10}).Run(forebay)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Quantile(1); got < 150*time.Millisecond || got > 201*time.Millisecond {
			t.Errorf("longest call %v, want most of the stall of 200ms", got)
		}
		// During each of the two stalls of 200 ms, about 2000 of the 120,000 calls were due.
		if got := r.Quantile(.98); got < time.Millisecond {
			t.Errorf("p98 is %v: calls that were due during the stall are missing", got)
		}
	})
}

// The command measures all modes and draws a panel for each mode.
func TestCommandMeasuresAllModes(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "out.svg")
	var out bytes.Buffer
	if err := run(strings.Fields("-rate 2000 -stall 10ms -every 100ms -duration 300ms -plot "+plot), &out); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(drawn, new(struct{})); err != nil {
		t.Fatal(err)
	}
	for _, m := range modes {
		if !strings.Contains(out.String(), m.name) || !strings.Contains(string(drawn), m.label) {
			t.Errorf("%s is missing:\n%s", m.name, &out)
		}
	}
	for _, args := range []string{"-rate 0", "-every 100ms -stall 1s", "-duration 100ms", "-msg-size 0", "-slabs -1", "-rate x"} {
		if err := run(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s: accepted", args)
		}
	}
}
