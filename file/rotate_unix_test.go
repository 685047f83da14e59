//go:build unix

package file

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// An old file that is being compressed, which takes long, keeps neither Reopen nor
// Write nor the next rotation waiting. The housekeeping goes on when it is done.
func TestReopenWhileCompressing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	left := filepath.Join(dir, "x-2020-01-01T00-00-00.000000-size.log")
	if err := os.WriteFile(left, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Compressing it hangs until somebody reads this.
	if err := unix.Mkfifo(left+".gz.tmp", 0o600); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, path, &Options{RotateBytes: 8, Compress: "gzip"})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, rec := range []string{"one\n", "two\n", "three\n"} { // the last one rotates
			write(t, f, rec)
			if err := f.Reopen(); err != nil {
				t.Error(err)
			}
		}
	}()
	release := func() {
		r, err := os.Open(left + ".gz.tmp")
		if err != nil {
			t.Error(err)
			return
		}
		io.Copy(io.Discard, r)
		r.Close()
	}
	select {
	case <-done:
		wantFile(t, path, "three\n")
	case <-time.After(10 * time.Second):
		t.Error("it waits for the old file to be compressed")
	}
	release()
	<-done
	write(t, f, "four\n") // rotates, and begins the housekeeping anew
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	os.Remove(left + ".gz")
	wantFile(t, path, "four\n")
	names := old(t, path)
	for _, name := range names {
		if !strings.HasSuffix(name, ".gz") {
			t.Errorf("%s is not compressed", name)
		}
	}
	if len(names) != 2 {
		t.Errorf("old files %q", names)
	}
}

// A file that rotates stays the one it was when Reopen finds something that cannot
// be rotated.
func TestReopenIrregular(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	f := mustOpen(t, path, &Options{RotateBytes: 8})
	write(t, f, "one\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.DevNull, path); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err == nil || !strings.Contains(err.Error(), errIrregular.Error()) {
		t.Errorf("Reopen: %v", err)
	}
	write(t, f, "two\n")
	wantFile(t, path+".1", "one\ntwo\n")
}
