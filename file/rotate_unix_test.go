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

// Reopen, Write and rotation do not wait for the compression of an old file. Files rotated
// meanwhile are compressed after that file.
func TestReopenWhileCompressing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	left := filepath.Join(dir, "x-2020-01-01T00-00-00.000000-size.log")
	if err := os.WriteFile(left, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The compression hangs until the pipe is read.
	if err := unix.Mkfifo(left+".gz.tmp", 0o600); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, path, &Options{RotateBytes: 8, Compress: "gzip"})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, rec := range []string{"one\n", "two\n", "three\n"} { // the last one causes a rotation
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
		t.Error("Write or Reopen waits for the compression of the old file")
	}
	release()
	<-done
	write(t, f, "four\n") // rotates the file and starts another pass of compression
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

// The new file and the compressed copy of the old file have the old file's permission, regardless
// of the umask, and its owner.
func TestRotateKeepsModeAndOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	uid := os.Getuid()
	err := os.WriteFile(path, []byte("one\n"), 0o600)
	if err == nil {
		err = os.Chmod(path, 0o666) // a umask would clear some of these bits
	}
	if err == nil && uid == 0 { // only the superuser can change owners
		uid = 65534
		err = os.Chown(path, uid, uid)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, path, &Options{RotateBytes: 4, Compress: "gzip"})
	write(t, f, "two\n")
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	names := append(old(t, path), path)
	if len(names) != 2 || !strings.HasSuffix(names[0], ".gz") {
		t.Errorf("files %q", names)
	}
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil || st.Mode&0o777 != 0o666 || int(st.Uid) != uid {
			t.Errorf("%s: mode %o, owner %d, %v", name, st.Mode, st.Uid, err)
		}
	}
}

// If Reopen finds a file that cannot be rotated, the open file stays in use.
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
