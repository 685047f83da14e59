package forebay

import (
	"context"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"
)

var goroutineHeader = regexp.MustCompile(`(?m)^goroutine (\d+) \[`)

// goroutines returns the numbers of all goroutines.
func goroutines() map[string]bool {
	buf := make([]byte, 1<<20)
	all := map[string]bool{}
	for _, m := range goroutineHeader.FindAllSubmatch(buf[:runtime.Stack(buf, true)], -1) {
		all[string(m[1])] = true
	}
	return all
}

// A file output has one goroutine, also while records are written.
func TestGoroutinesOfAFile(t *testing.T) {
	before := goroutines() // of tests that ran earlier, some may still be ending
	log, err := New(File(filepath.Join(t.TempDir(), "app.log")))
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string) {
		t.Helper()
		n := 0
		for range 100 { // a callback may be about to end
			n = 0
			for id := range goroutines() {
				if !before[id] {
					n++
				}
			}
			if n == 1 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s: %d goroutines, want 1", when, n)
	}
	want("at first")
	for range 1000 {
		log.Info("a record")
	}
	if err := log.Router().Flush(context.Background()); err != nil {
		t.Error(err)
	}
	want("after a Flush")
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}
