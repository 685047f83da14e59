package file

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// Writing costs no memory, whatever watches over the file, nor does a standard stream.
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
	var b batch.Batch
	for range 1000 { // more than one write into a pipe
		b.Append(data, 0, batch.Meta{})
	}
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s, lines := NewStdio(out, "null"), &b
	if n := allocs.PerRun(100, func() {
		if err := s.send(t.Context(), lines).Why; err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("stream: %v allocations per batch", n)
	}
}
