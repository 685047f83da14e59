package own

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/forebay-log/forebay/file"
	"github.com/forebay-log/forebay/internal/vectors"
)

// The destinations of the rows accept several slabs in one call and cannot be synced, because a
// sync of 100 MB would take four times as long as the rest of a sample.
func TestNothingIsSynced(t *testing.T) {
	if !vectors.Have {
		t.Skip("SKIPPED: no writev")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, w := range []io.Writer{NoSync(f), unsynced{new(file.File)}} {
		if _, ok := w.(interface{ Sync() error }); ok {
			t.Errorf("%T can be synced", w)
		}
		if _, ok := w.(interface {
			Writev([][]byte) (int64, error)
		}); !ok {
			t.Errorf("%T takes one slab at a time", w)
		}
	}
}
