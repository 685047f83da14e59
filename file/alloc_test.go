package file

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// Writes to a file do not allocate memory, with or without rotation configured.
func TestWritesAllocateNothing(t *testing.T) {
	data := []byte("a line of a log\n")
	for name, o := range map[string]*Options{
		"plain":    nil,
		"rotating": {RotateBytes: 1 << 30, RotateEvery: 24 * time.Hour, OnError: func(err error) { t.Error(err) }},
	} {
		f := mustOpen(t, filepath.Join(t.TempDir(), "x.log"), o)
		if n := allocs.PerRun(100, func() { f.Write(data) }); n > 0 {
			t.Errorf("%s: %v allocations per write", name, n)
		}
	}
}
