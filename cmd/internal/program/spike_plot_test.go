package program

import (
	"os"
	"path/filepath"
	"testing"
)

// Without a plot to write, a file is as it was before.
func TestPlotDiscarded(t *testing.T) {
	dir := t.TempDir()
	fresh, old := filepath.Join(dir, "new.svg"), filepath.Join(dir, "old.svg")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fresh, old, ""} {
		p, err := openPlot(path)
		if err != nil {
			t.Fatal(err)
		}
		p.discard()
		p.discard()
	}
	if _, err := os.Stat(fresh); !os.IsNotExist(err) {
		t.Errorf("a file is left behind: %v", err)
	}
	if b, err := os.ReadFile(old); string(b) != "old" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}
