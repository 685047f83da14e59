package forebay

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
)

// For each way in which a program may end, docs/CRASH-SAFETY.md lists the records that survive, in
// ordinary memory and in crash-safe memory on a tmpfs or a disk. The next start delivers exactly
// these records.
func TestSurvives(t *testing.T) {
	if how := os.Getenv("FOREBAY_END"); how != "" {
		endAs(how)
		return
	}
	for how, want := range withClose(testkit.Deaths) {
		for _, where := range []string{"heap", "tmpfs", "disk"} {
			t.Run(how+"/"+where, func(t *testing.T) {
				safe, kept := "", 1
				switch where {
				case "heap":
					kept = 0
				case "tmpfs":
					dir, err := testkit.InMemory(t)
					if err != nil {
						t.Skipf("SKIPPED: no tmpfs: %v", err)
					}
					safe = dir
				case "disk":
					safe = t.TempDir()
				}
				cmd := testkit.NewChild("^TestSurvives$", "FOREBAY_END="+how, "FOREBAY_SAFE="+safe, testkit.RacesApart(t))
				cmd.Dir = t.TempDir()
				want := want
				if safe == "" && how == "close" {
					want = "shutdown"
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				cmd.AwaitDeath(t, want)
				if _, err := os.Stat(filepath.Join(cmd.Dir, "logged")); err != nil {
					t.Fatalf("%v: %s", err, &cmd.Said)
				}
				if b, err := os.ReadFile(filepath.Join(cmd.Dir, "app.log")); err != nil || len(b) > 0 {
					t.Fatalf("delivered before the end: %q, %v", b, err)
				}
				var got lines
				log, err := New(quiet(), survivor(&got, safe))
				if err != nil {
					t.Fatal(err)
				}
				log.Info("after")
				if err := log.Close(); err != nil {
					t.Error(err)
				}
				all := strings.Join(got.all(), "")
				if n := strings.Count(all, `"before"`); n != kept {
					t.Errorf("%d records survived, want %d: %q", n, kept, all)
				}
				if n := strings.Count(all, `"after"`); n != 1 {
					t.Errorf("%q", all)
				}
			})
		}
	}
}

// survivor returns an output that delivers nothing before Close. The parameter safe is the
// directory of crash-safe memory; "" means ordinary memory.
func survivor(w interface{ Write([]byte) (int, error) }, safe string) OutputSpec {
	opts := []OutputOption{Name("app"), Delivery(func(o *deliver.OutputOptions) { o.Slab.FlushInterval = -1 })}
	if safe != "" {
		opts = append(opts, CrashSafe(safe))
	}
	return Writer(w, opts...)
}

// endAs runs in a child process, which it ends in the given way.
func endAs(way string) {
	f, err := os.Create("app.log")
	testkit.Must(err)
	log, err := New(survivor(writerFunc(func(p []byte) (int, error) {
		if way == "close" {
			select {}
		}
		return f.Write(p)
	}), os.Getenv("FOREBAY_SAFE")))
	testkit.Must(err)
	log.Info("before")
	testkit.Must(os.WriteFile("logged", nil, 0o600))
	if way != "close" {
		testkit.Die(way)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	rep, _ := log.Router().Close(ctx)
	if rep.Outputs[0].Report.Kept() == 1 {
		os.Stderr.WriteString("kept\n")
	} else {
		os.Stderr.WriteString(rep.Outputs[0].Report.Dropped.String())
	}
	os.Exit(1)
}

// withClose returns deaths with the additional key "close": a Close that does not finish in time.
func withClose(deaths map[string]string) map[string]string {
	all := maps.Clone(deaths)
	all["close"] = "kept"
	return all
}
