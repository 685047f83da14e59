package file

import (
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/internal/bubble"
)

// old returns the old files of path, oldest first.
func old(t *testing.T, path string) []string {
	t.Helper()
	ext := filepath.Ext(path)
	names, err := filepath.Glob(strings.TrimSuffix(path, ext) + "-*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// A write that would exceed RotateBytes goes to a new file. A write larger than RotateBytes gets a
// separate file.
func TestRotateBySize(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.log")
		f, err := Open(path, &Options{RotateBytes: 10})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, s := range []string{"1234\n", "5678\n", "9\n", "a write of more than ten\n", "b\n", "c\n"} {
			write(t, f, s)
			time.Sleep(time.Millisecond)
		}
		var got []string
		for _, name := range append(old(t, path), path) {
			got = append(got, content(t, name))
		}
		want := []string{"1234\n5678\n", "9\n", "a write of more than ten\n", "b\nc\n"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// RotateBytes includes the size of a file from an earlier process.
func TestRotateExisting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	if err := os.WriteFile(path, []byte("12345678"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, path, &Options{RotateBytes: 10})
	write(t, f, "9\n") // RotateBytes ignores the newline that ends the previous line
	write(t, f, "10\n")
	wantFile(t, path, "10\n")
	if names := old(t, path); len(names) != 1 || content(t, names[0]) != "12345678\n9\n" {
		t.Errorf("old files %q", names)
	}
}

// The first write after the end of a period rotates the file.
func TestRotateByTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.log")
		f, err := Open(path, &Options{RotateEvery: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		// The clock of a bubble starts at midnight UTC.
		write(t, f, "day 1, 0h\n")
		time.Sleep(24*time.Hour - time.Nanosecond)
		write(t, f, "day 1, 23h\n")
		time.Sleep(time.Nanosecond)
		if len(old(t, path)) != 0 {
			t.Error("rotated before a write")
		}
		write(t, f, "day 2, 0h\n")
		time.Sleep(72 * time.Hour)
		write(t, f, "day 5, 0h\n")
		time.Sleep(time.Hour)
		write(t, f, "day 5, 1h\n")
		var got []string
		for _, name := range append(old(t, path), path) {
			got = append(got, content(t, name))
		}
		want := []string{"day 1, 0h\nday 1, 23h\n", "day 2, 0h\n", "day 5, 0h\nday 5, 1h\n"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// After a restart, the time of the last change of a file determines the file's period.
func TestRotateByTimeAfterRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	for i, c := range []struct {
		age  time.Duration
		olds int
	}{{0, 0}, {25 * time.Hour, 1}} {
		if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-c.age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		// The period is long, so it rarely ends during the test.
		f := mustOpen(t, path, &Options{RotateEvery: 24 * time.Hour})
		if c.age == 0 && period(time.Now().Add(time.Minute), 24*time.Hour) != period(at, 24*time.Hour) {
			t.Skip("a minute before midnight")
		}
		write(t, f, "after\n")
		f.Close()
		if n := len(old(t, path)); n != c.olds {
			t.Errorf("%d: %d old files, want %d", i, n, c.olds)
		}
	}
}

// KeepFiles is the number of old files that are kept. They have the mode of the log file, and are
// compressed if Compress is set.
func TestKeepFilesAndCompress(t *testing.T) {
	for kind, suffix := range map[string]string{"": ".log", "gzip": ".log.gz"} {
		path := filepath.Join(t.TempDir(), "x.log")
		// Files with similar names are not removed.
		neighbor := filepath.Join(filepath.Dir(path), "x-other.log")
		if err := os.WriteFile(neighbor, []byte("of another program\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := mustOpen(t, path, &Options{RotateBytes: 6, KeepFiles: 2, Compress: kind})
		for i := range 6 {
			write(t, f, fmt.Sprintf("line%d\n", i))
		}
		f.Close() // waits for the compression
		os.Remove(neighbor)
		names := old(t, path)
		if len(names) != 2 {
			t.Errorf("Compress %q: old files %q", kind, names)
			continue
		}
		for i, name := range names {
			if !strings.HasSuffix(name, suffix) {
				t.Errorf("%q: %q", kind, name)
			}
			if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%q: mode %v, %v", kind, st.Mode(), err)
			}
			r, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			var in io.Reader = r
			if kind != "" {
				if in, err = gzip.NewReader(r); err != nil {
					t.Fatal(err)
				}
			}
			b, err := io.ReadAll(in)
			r.Close()
			if want := fmt.Sprintf("line%d\n", i+3); err != nil || string(b) != want {
				t.Errorf("%q: %s contains %q, want %q (%v)", kind, name, b, want, err)
			}
		}
	}
}

// Rotation, compression and removal work for unusual file names. They leave files with similar
// names unchanged.
func TestStrangeNames(t *testing.T) {
	for name, neighbor := range map[string]string{
		"a.log.log-x":   "a.log-x",
		"a.b.b-":        "a.b-",
		"-":             "--",
		".log":          "-.log",
		"a b\n\"c%.l g": "a b\n\"c%-.l g",
		"\xff.log":      "\xff-.log",
		"app":           "app-.lock",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, neighbor), []byte("of another program\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := mustOpen(t, path, &Options{RotateBytes: 6, KeepFiles: 2, Compress: "gzip"})
		for i := range 6 {
			write(t, f, fmt.Sprintf("line%d\n", i))
		}
		if err := f.Close(); err != nil { // waits for the compression
			t.Error(err)
		}
		wantFile(t, path, "line5\n")
		wantFile(t, filepath.Join(dir, neighbor), "of another program\n")
		all, err := filepath.Glob(filepath.Join(dir, "*"))
		packed, perr := filepath.Glob(filepath.Join(dir, "*.gz"))
		if err != nil || perr != nil || len(all)-len(packed) != 3 || len(packed) != 2 { // the file, the lock file and the neighbor
			t.Errorf("%q: %q", name, all)
		}
	}
}

// Open compresses the old files that an earlier process left uncompressed, and removes those older
// than KeepFor.
func TestHousekeepingAtOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	day := func(n int) string {
		return filepath.Join(dir, "x-"+time.Now().UTC().Add(-time.Duration(n)*24*time.Hour).Format("2006-01-02T15-04-05.000000")+"-size.log")
	}
	for _, n := range []int{1, 5, 9} {
		if err := os.WriteFile(day(n), fmt.Appendf(nil, "%d\n", n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustOpen(t, path, &Options{RotateBytes: 1 << 20, KeepFor: 6*24*time.Hour - time.Hour, Compress: "gzip"}).Close()
	names := old(t, path)
	if len(names) != 2 || !strings.HasSuffix(names[0], ".gz") || !strings.HasSuffix(names[1], ".gz") {
		t.Errorf("old files %q", names)
	}
}

// If a file cannot be renamed, Write continues with the same file, and OnError gets the error once.
func TestRotationFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		// The name of the old file would exceed the maximum of 255 bytes.
		path := filepath.Join(t.TempDir(), strings.Repeat("x", 245)+".log")
		var errs []error
		opened := 0
		f, err := openWith(path, &Options{RotateBytes: 10, OnError: func(err error) { errs = append(errs, err) }},
			system{open: func(name string, flag int, perm fs.FileMode) (handle, error) {
				opened++
				return os.OpenFile(name, flag, perm)
			}})
		if err != nil {
			t.Skip(err) // a file system with a lower limit
		}
		defer f.Close()
		want := ""
		for i := range 20 {
			s := fmt.Sprintf("line %d\n", i)
			write(t, f, s)
			want += s
			time.Sleep(10 * time.Second)
		}
		wantFile(t, path, want)
		synctest.Wait() // OnError runs in a goroutine
		if opened < 3 || opened > 5 {
			t.Errorf("opened %d times, want 3 to 5: one attempt each minute", opened)
		}
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), "cannot rotate") || !strings.Contains(errs[0].Error(), "continuing in the old file") {
			t.Errorf("OnError got %q", errs)
		}
		if err := f.Rotate(); err == nil {
			t.Error("Rotate returns no error")
		}
	})
}

// Rotate renames a file that is not empty. It returns an error if the File was opened without
// rotation.
func TestRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	f := mustOpen(t, path, &Options{RotateBytes: 1 << 20})
	if err := f.Rotate(); err != nil || len(old(t, path)) != 0 {
		t.Errorf("empty: %v, %q", err, old(t, path))
	}
	write(t, f, "one\n")
	if err := f.Rotate(); err != nil {
		t.Error(err)
	}
	write(t, f, "two\n")
	wantFile(t, path, "two\n")
	if names := old(t, path); len(names) != 1 || content(t, names[0]) != "one\n" {
		t.Errorf("old files %q", names)
	}
	g := mustOpen(t, filepath.Join(t.TempDir(), "y.log"), nil)
	if err := g.Rotate(); err == nil {
		t.Error("Rotate without a way of rotation returns no error")
	}
}

// Rotation renames the target of a symbolic link, not the link.
func TestRotateThroughLink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "real.log"), filepath.Join(dir, "link.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	f := mustOpen(t, link, &Options{RotateBytes: 5})
	write(t, f, "one1\n")
	write(t, f, "two2\n")
	if st, err := os.Lstat(link); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is now %v, %v", st.Mode(), err)
	}
	wantFile(t, link, "two2\n")
	if names := old(t, path); len(names) != 1 {
		t.Errorf("old files %q", names)
	}
}

// If an old file cannot be compressed, OnError gets the error, and the file is unchanged.
func TestOldFileThatCannotBeCompressed(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "x-2020-01-01T00-00-00.000000-size.log")
	if err := os.WriteFile(left, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(left+".gz.tmp", 0o700); err != nil { // prevents the creation of the copy
		t.Fatal(err)
	}
	errs := make(chan error, 10)
	f := mustOpen(t, filepath.Join(dir, "x.log"), &Options{RotateBytes: 100, Compress: "gzip", OnError: func(err error) { errs <- err }})
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := <-errs; !strings.Contains(err.Error(), "cannot compress the old file") {
		t.Error(err)
	}
	wantFile(t, left, "old\n")
}

// Open removes incomplete compressed copies left by a killed process, even if Compress now has
// another value or none. It keeps files with similar names.
func TestOpenRemovesIncompleteCopies(t *testing.T) {
	for _, compress := range []string{"", "gzip"} {
		dir := t.TempDir()
		name := filepath.Join(dir, "x-2020-01-01T00-00-00.000000-size.log")
		keep := []string{"x-2020-01-01T00-00-00.000000-size.log.tmp", "x.log.gz.tmp", "y-2020-01-01T00-00-00.000000-size.log.gz.tmp"}
		for _, path := range append(keep, name+".gz.tmp", name+".zst.tmp") {
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), []byte("part"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f := mustOpen(t, filepath.Join(dir, "x.log"), &Options{RotateBytes: 100, Compress: compress})
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
		for i := range left {
			left[i] = filepath.Base(left[i])
		}
		if slices.Sort(keep); err != nil || !slices.Equal(left, keep) {
			t.Errorf("Compress %q: %q are left, want %q", compress, left, keep)
		}
	}
}

// Open returns an error for "zstd" in a program that does not import package compress.
func TestUnknownCompression(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "x.log"), &Options{RotateBytes: 100, Compress: "zstd"})
	if err == nil || !strings.Contains(err.Error(), "import github.com/forebay-log/forebay/compress") {
		t.Error(err)
	}
}
