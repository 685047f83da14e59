package forebay

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// A file output has one goroutine, also while records are written.
func TestGoroutinesOfAFile(t *testing.T) {
	before := runtime.NumGoroutine()
	log, err := New(File(filepath.Join(t.TempDir(), "app.log")))
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string) {
		t.Helper()
		n := runtime.NumGoroutine() - before
		for range 100 { // a callback may be about to end
			if n == 1 {
				return
			}
			time.Sleep(10 * time.Millisecond)
			n = runtime.NumGoroutine() - before
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
