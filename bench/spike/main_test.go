package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Exit codes and messages of the command.
func TestRun(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "out.svg")
	for _, tt := range []struct {
		args string
		code int
		want string // in one of the outputs
	}{
		{"-compare forebay -duration 300ms -stall 0s -rate 2000 -assert max=10s -plot " + plot, 0, "p99.9"},
		{"-compare forebay -duration 100ms -stall 0s -rate 1000 -assert max=1ns", exitAssert, "-assert max=1ns: it was"},
		{"-compare forebay -duration 50ms -stall 10ms -rate 0.01 -assert max=10s", exitFailed, "no call was due within -duration"},
		{"-compare sync -assert max=1s", exitUsage, "leaves out"},
		{"-compare fast", exitUsage, "sync,buffered,forebay"},
		{"-assert p99", exitUsage, "PERCENTILE=DURATION"},
		{"-assert pNaN=1s", exitUsage, "PERCENTILE=DURATION"},
		{"-every 100ms -stall 1s", exitUsage, "stall all the time"},
		{"-duration 100ms -stall 200ms", exitUsage, "no stall of 200ms fits in"},
		{"-duration 25h", exitUsage, "at most 24h"},
		{"-msg-size 8", exitUsage, "use 32 to"},
		{"-drain-rate 1000000", exitUsage, "always too slow"},
		{"extra", exitUsage, "extra"},
	} {
		var out, notes bytes.Buffer
		if code := run(t.Context(), strings.Fields(tt.args), &out, &notes); code != tt.code || !strings.Contains(out.String()+notes.String(), tt.want) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s%s", tt.args, code, tt.code, tt.want, &out, &notes)
		}
	}
	if drawn, err := os.ReadFile(plot); err != nil || !strings.HasPrefix(string(drawn), "<svg") {
		t.Errorf("the plot is %.100q, %v", drawn, err)
	}
}

// An interrupt prints the figures up to then.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var out, notes bytes.Buffer
	code := run(ctx, strings.Fields("-latency 10ms -duration 10m -stall 4m -every 5m -slabs 8 -compare sync"), &out, &notes)
	if code != exitFailed || !strings.Contains(notes.String(), "interrupted while driving sync") || !strings.Contains(out.String(), "caller waits") {
		t.Errorf("exit code %d:\n%s%s", code, &out, &notes)
	}
}
