package fluent

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Ours registers nothing globally: one program has it beside each of those that
// register their extension types with package msgp. No two of those start in one
// program (type 0 is registered twice), with ours in it or not.
func TestBesideOthers(t *testing.T) {
	for _, tc := range []struct {
		tags   string
		events int // that arrive
		starts bool
	}{
		{"official", 2, true}, {"ibm", 2, true}, {"otel", 1, true},
		{"official,ibm", 0, false}, {"official,ibm,alone", 0, false},
		{"official,otel", 0, false}, {"official,otel,alone", 0, false},
		{"ibm,otel", 0, false}, {"ibm,otel,alone", 0, false},
	} {
		t.Run(tc.tags, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			exe := filepath.Join(t.TempDir(), "beside.exe")
			if out, err := exec.CommandContext(ctx, "go", "build", "-tags", tc.tags, "-o", exe, "./beside").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			addr := freeAddr(t)
			sink, _ := startOTel(t, addr)
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, exe, addr).CombinedOutput()
			if !tc.starts {
				if err == nil || !strings.Contains(string(out), "msgp") || !strings.Contains(string(out), "panic") {
					t.Errorf("it starts now: let the test above have it: %v\n%s", err, out)
				}
				return
			}
			if err != nil || !strings.Contains(string(out), "started") {
				t.Fatalf("%v\n%s", err, out)
			}
			for end := time.Now().Add(time.Minute); sink.LogRecordCount() < tc.events && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			if n := sink.LogRecordCount(); n != tc.events {
				t.Errorf("%d events, want %d", n, tc.events)
			}
		})
	}
}
