package forebay

import (
	"path/filepath"
	"testing"

	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A file output has one goroutine, even while records are written.
func TestFileOutputHasOneGoroutine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		want := testkit.Goroutines(t)
		log, err := New(File(filepath.Join(t.TempDir(), "app.log")))
		if err != nil {
			t.Fatal(err)
		}
		want("before the first record", 1)
		for range 1000 {
			log.Info("a record")
		}
		if err := log.Router().Flush(t.Context()); err != nil {
			t.Error(err)
		}
		want("after a Flush", 1)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		want("after Close", 0)
	})
}
