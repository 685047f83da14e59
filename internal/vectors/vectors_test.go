package vectors

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Write accepts more buffers than one system call does.
func TestManyBuffers(t *testing.T) {
	if !Have {
		t.Skip("no writev")
	}
	for _, n := range []int{0, 1, 1024, 1025, 5000} {
		path := filepath.Join(t.TempDir(), "out")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		var bufs [][]byte
		for i := range n {
			bufs = append(bufs, fmt.Appendf(nil, "%d\n", i))
		}
		want := bytes.Join(bufs, nil)
		if got, err := Write(f, bufs); err != nil || got != int64(len(want)) {
			t.Errorf("%d buffers: %d bytes, %v", n, got, err)
		}
		f.Close()
		if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
			t.Errorf("%d buffers: %d bytes in the file, want %d", n, len(got), len(want))
		}
	}
}
