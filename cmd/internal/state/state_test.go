package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestFailedSaveKeepsOldText(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d, err := Open(dir, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "x"); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), "wait until") {
		t.Error(err)
	}
	if _, err := d.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, text := range []string{"one", "a longer one", ""} {
		if err := d.Save([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Load(); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	// If the new text cannot be written, the file keeps the old text.
	if err := os.Mkdir(d.Path()+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if d.Save([]byte("lost")) == nil {
		t.Error("Save returned no error, although a directory has the name of the new file")
	}
	if got, err := d.Load(); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
	if err := d.SetAside(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path() + ".bad"); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	d, err = Open(dir, "x")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}
