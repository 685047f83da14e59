package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/dest"
)

// Writeback of a large file is started about once per 8 MiB. For a small file it is never started.
func TestWritebackStartsPerStep(t *testing.T) {
	calls := map[string]int{}
	original := dest.BeginSync
	dest.BeginSync = func(path string) { calls[filepath.Base(path)]++; original(path) }
	defer func() { dest.BeginSync = original }()
	line := strings.Repeat("x", 1023) + "\n"
	for name, c := range map[string]struct{ bytes, min, max int }{
		"none.log": {0, 0, 0}, "small.log": {4 << 20, 0, 0}, "large.log": {33 << 20, 2, 4},
	} {
		text := strings.Repeat(line, c.bytes/len(line))
		path := filepath.Join(t.TempDir(), name)
		if stderr, err := runText(t, newConfig("file:"+path), text); err != nil {
			t.Fatal(err, stderr)
		}
		if n := calls[name]; n < c.min || n > c.max {
			t.Errorf("%s: writeback was started %d times, want %d to %d", name, n, c.min, c.max)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, want %d; %v", name, len(got), len(text), err)
		}
	}
}
