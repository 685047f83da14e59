package fluent

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The Forward client registers no extension types globally, so a program can contain it together
// with one of the other clients, which register theirs with package msgp. A program with two of
// those other clients panics at startup, with or without the Forward client, because both register
// type 0.
func TestLinkedWithOtherClients(t *testing.T) {
	for _, tc := range []struct {
		tags   string
		events int // number of events that arrive
		starts bool
	}{
		{"official", 2, true}, {"ibm", 2, true}, {"otel", 1, true},
		{"official,ibm", 0, false}, {"official,ibm,noforebay", 0, false},
		{"official,otel", 0, false}, {"official,otel,noforebay", 0, false},
		{"ibm,otel", 0, false}, {"ibm,otel,noforebay", 0, false},
	} {
		t.Run(tc.tags, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			exe := filepath.Join(t.TempDir(), "linked.exe")
			if out, err := exec.CommandContext(ctx, "go", "build", "-tags", tc.tags, "-o", exe, "./linked").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			addr := freeAddr(t)
			sink, _ := startOTel(t, addr)
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, exe, addr).CombinedOutput()
			if !tc.starts {
				if err == nil || !strings.Contains(string(out), "msgp") || !strings.Contains(string(out), "panic") {
					t.Errorf("the program starts now: expect that it does: %v\n%s", err, out)
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
