package arch

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Only internal/bubble calls synctest.Test, because the race detector of Go 1.26 sometimes crashes
// in it.
func TestBubblesAreOpenedByBubble(t *testing.T) {
	opener, found := []byte("synctest."+"Test("), 0
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, opener) {
			return err
		}
		if found++; filepath.Base(filepath.Dir(path)) != "bubble" {
			t.Errorf("%s opens a bubble by itself", path)
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Fatalf("%d files open bubbles, %v", found, err)
	}
}
