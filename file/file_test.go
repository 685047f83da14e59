package file

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// mustOpen opens path. It closes the file at the end of the test.
func mustOpen(t *testing.T, path string, o *Options) *File {
	t.Helper()
	f, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// write requires that w accepts all of s.
func write(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
		t.Fatalf("Write(%.20q) = %d, %v", s, n, err)
	}
}

// content returns the content of the file at path.
func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantFile requires that the content of the file at path is want.
func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if got := content(t, path); got != want {
		t.Errorf("%s contains %q, want %q", filepath.Base(path), got, want)
	}
}

// Options.Mode is the mode of new files, 0600 by default. Existing files keep their mode, even
// after rotation.
func TestOpenMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no permission bits")
	}
	dir := t.TempDir()
	for _, c := range []struct {
		name     string
		o        *Options
		existing fs.FileMode // 0: no file
		want     fs.FileMode
	}{
		{"default", nil, 0, 0o600},
		{"set", &Options{Mode: 0o640}, 0, 0o640},
		{"kept", nil, 0o604, 0o604},
		{"rotating", &Options{RotateBytes: 10}, 0, 0o600},
		{"rotating, kept", &Options{RotateBytes: 10}, 0o640, 0o640},
	} {
		path := filepath.Join(dir, c.name+".log")
		if c.existing != 0 {
			if err := os.WriteFile(path, []byte("existing\n"), c.existing); err != nil {
				t.Fatal(err)
			}
		}
		f := mustOpen(t, path, c.o)
		write(t, f, "1234567\n")
		write(t, f, "abcdefg\n") // causes a rotation if o has RotateBytes
		files, _ := filepath.Glob(filepath.Join(dir, c.name+"*.log"))
		if c.o != nil && c.o.RotateBytes > 0 && len(files) < 2 {
			t.Errorf("%s: not rotated: %q", c.name, files)
		}
		for _, name := range files {
			if st, err := os.Stat(name); err != nil || st.Mode().Perm() != c.want {
				t.Errorf("%s: %s has mode %v, want %v (%v)", c.name, name, st.Mode().Perm(), c.want, err)
			}
		}
	}
}

// Open rejects invalid options and files that it cannot open, and names the reason. MakeDirs
// creates directories with mode 0700.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, path string
		o          *Options
		want       string
	}{
		{"no path", "", nil, "its path is empty"},
		{"directory", dir, nil, "is a directory"},
		{"missing directory", filepath.Join(dir, "no", "x.log"), nil, "its directory does not exist"},
		{"mode", "x", &Options{Mode: 0o400}, "Options.Mode"},
		{"size", "x", &Options{RotateBytes: -1}, "Options.RotateBytes"},
		{"period", "x", &Options{RotateEvery: time.Millisecond}, "Options.RotateEvery"},
		{"count", "x", &Options{RotateBytes: 1, KeepFiles: -1}, "Options.KeepFiles"},
		{"age", "x", &Options{RotateBytes: 1, KeepFor: -1}, "Options.KeepFor"},
		{"compression", "x", &Options{RotateBytes: 1, Compress: "lzma"}, "Options.Compress"},
		{"no rotation", "x", &Options{Compress: "gzip"}, "RotateEvery"},
		{"sync", "x", &Options{Sync: "commit"}, `Options.Sync is "commit", must be "never" or "always"`},
		{"sync of copies", "x", &Options{RotateBytes: 1, Compress: "gzip", Sync: syncAlways}, "Options.Compress"},
		{"sync of a device", os.DevNull, &Options{Sync: syncAlways}, "no stable storage"},
		{"device", os.DevNull, &Options{RotateBytes: 1}, "not a regular file"},
	} {
		f, err := Open(c.path, c.o)
		if err == nil {
			f.Close()
			t.Errorf("%s: no error", c.name)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "file: ") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := os.Stat(os.DevNull + ".lock"); err == nil {
		os.Remove(os.DevNull + ".lock")
		t.Error("a lock file for the null device")
	}
	path := filepath.Join(dir, "a", "b", "x.log")
	write(t, mustOpen(t, path, &Options{MakeDirs: true}), "made\n")
	wantFile(t, path, "made\n")
	if st, err := os.Stat(filepath.Join(dir, "a")); err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o700 {
		t.Errorf("directory has mode %v, %v", st.Mode(), err)
	}
}

// Two Files of one path append their records.
func TestAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	a, b := mustOpen(t, path, nil), mustOpen(t, path, nil)
	write(t, a, "a1\n")
	write(t, b, "b1\n")
	write(t, a, "a2\n")
	wantFile(t, path, "a1\nb1\na2\n")
	if err := a.Sync(); err != nil {
		t.Error(err)
	}
}

// A file created by rotation is also opened with O_APPEND.
func TestAppendsAfterRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	f := mustOpen(t, path, &Options{RotateBytes: 5})
	write(t, f, "old1\n")
	write(t, f, "new\n")
	other, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	write(t, other, "X")
	write(t, f, "")
	if n, err := f.h.Write([]byte("Y\n")); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	wantFile(t, path, "new\nXY\n")
}

// If the last line of an existing file has no newline, the first Write adds one. Later writes do
// not, because they may continue a line.
func TestTornTailIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	for _, c := range []struct{ existing, want string }{
		{"", "new\n"},
		{"whole\n", "whole\nnew\n"},
		{"torn", "torn\nnew\n"},
		{"torn\r", "torn\r\nnew\n"},
		{"\n", "\nnew\n"},
	} {
		if err := os.WriteFile(path, []byte(c.existing), 0o600); err != nil {
			t.Fatal(err)
		}
		f := mustOpen(t, path, nil)
		wantFile(t, path, c.existing) // Open itself does not add the newline
		write(t, f, "new\n")
		write(t, f, "no newline")
		wantFile(t, path, c.want+"no newline")
		write(t, f, ", go on\n") // continues the line that this process has begun
		wantFile(t, path, c.want+"no newline, go on\n")
		f.Close()
	}
}

// After Close, all methods return errors, except that Close returns nil.
func TestClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	f := mustOpen(t, path, &Options{RotateBytes: 100})
	write(t, f, "x\n")
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	n, err := f.Write([]byte("y\n"))
	if n != 0 || !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), path) {
		t.Errorf("Write after Close: %d, %v", n, err)
	}
	for name, err := range map[string]error{"Sync": f.Sync(), "Reopen": f.Reopen(), "Rotate": f.Rotate()} {
		if err == nil {
			t.Errorf("%s after Close: no error", name)
		}
	}
	wantFile(t, path, "x\n")
}

// Reopen opens the path again if the file was renamed. The test writes without pauses, because the
// first Write after a pause checks the path.
func TestReopen(t *testing.T) {
	for _, o := range []*Options{nil, {RotateBytes: 1 << 20}} {
		bubble.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.log")
			f := mustOpen(t, path, o)
			write(t, f, "one\n")
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			write(t, f, "two\n")
			if err := f.Reopen(); err != nil {
				t.Fatal(err)
			}
			write(t, f, "three\n")
			wantFile(t, path+".1", "one\ntwo\n")
			wantFile(t, path, "three\n")
			if err := f.Reopen(); err != nil { // the path still names the open file
				t.Fatal(err)
			}
			write(t, f, "four\n")
			wantFile(t, path, "three\nfour\n")
		})
	}
}

// If Reopen cannot open the path, the open file stays in use.
func TestReopenFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	path := filepath.Join(dir, "x.log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, path, nil)
	write(t, f, "one\n")
	if err := os.Rename(dir, dir+"2"); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err == nil || !strings.Contains(err.Error(), "the old file stays in use") {
		t.Errorf("Reopen without a directory: %v", err)
	}
	write(t, f, "two\n")
	wantFile(t, filepath.Join(dir+"2", "x.log"), "one\ntwo\n")
}

// A fullHandle writes *budget bytes to its file and then fails with err. Several handles can share
// the budget, which mu guards.
type fullHandle struct {
	*os.File
	mu     *sync.Mutex
	budget *int
	err    error
}

func (h fullHandle) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(len(p), *h.budget)
	*h.budget -= n
	if n > 0 {
		if m, err := h.File.Write(p[:n]); err != nil {
			return m, err
		}
	}
	if n < len(p) {
		return n, &fs.PathError{Op: "write", Path: h.Name(), Err: h.err}
	}
	return n, nil
}

// fullDisk returns an open function for handles that share budget.
func fullDisk(budget *int, mu *sync.Mutex, err error) func(string, int, fs.FileMode) (handle, error) {
	return func(name string, flag int, perm fs.FileMode) (handle, error) {
		f, oerr := os.OpenFile(name, flag, perm)
		if oerr != nil {
			return nil, oerr
		}
		return fullHandle{f, mu, budget, err}, nil
	}
}

// The error of a full disk names the path once and contains a hint for the operator.
func TestDiskFull(t *testing.T) {
	for _, c := range []struct {
		err  error
		hint string
	}{{syscall.ENOSPC, "free some space"}, {syscall.EDQUOT, "quota"}, {syscall.EFBIG, "ulimit"}, {syscall.EIO, ""}} {
		path := filepath.Join(t.TempDir(), "x.log")
		budget, mu := 6, new(sync.Mutex)
		f, err := openWith(path, &Options{RotateBytes: 8}, system{open: fullDisk(&budget, mu, c.err)})
		if err != nil {
			t.Fatal(err)
		}
		write(t, f, "1\n")
		n, err := f.Write([]byte("2345678\n"))
		if n != 0 && n != 4 || !errors.Is(err, c.err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.hint) ||
			strings.Count(err.Error(), path) != 1 {
			t.Errorf("%v: %d, %v", c.err, n, err)
		}
		f.Close()
	}
}

// If an error cuts a record, its rest goes to the same file as its beginning. Rotation and Reopen
// wait until the record is complete.
func TestCutRecordStaysTogether(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	budget, mu := 10, new(sync.Mutex)
	f, err := openWith(path, &Options{RotateBytes: 8}, system{open: fullDisk(&budget, mu, syscall.ENOSPC)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec := []byte("0123456789abcdef\n")
	n, err := f.Write(rec)
	if n != 10 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(n, err)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := f.Reopen(); err != nil {
		t.Fatal(err)
	}
	if err := f.Rotate(); err == nil {
		t.Error("Rotate inside a record returns no error")
	}
	if n, err := f.Write(rec[10:]); n != 0 || err == nil {
		t.Fatalf("still full: %d, %v", n, err)
	}
	budget = 1 << 20
	write(t, f, string(rec[10:]))
	write(t, f, "next\n")
	wantFile(t, path+".moved", string(rec))
	wantFile(t, path, "next\n")

	// A write that ends after a complete record cuts no record.
	budget = 2
	if n, err := f.Write([]byte("a\nb\n")); n != 2 || err == nil {
		t.Fatal(n, err)
	}
	budget = 1 << 20
	if f.cut {
		t.Error("f.cut is true at the end of a record")
	}
}

// If the disk is full at times, an Output loses no record and leaves none incomplete, even with
// rotation and Reopen.
func TestDiskFullWithOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	budget, mu := 1000, new(sync.Mutex)
	f, err := openWith(path, &Options{RotateBytes: 5000}, system{open: fullDisk(&budget, mu, syscall.ENOSPC)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := deliver.NewOutput(deliver.ToWriteCloser(f), &deliver.OutputOptions{OnError: func(batch.Event) {},
		Slab: slab.Options{SlabBytes: 2048, SlabCount: 4, WhenFull: slab.Block()},
		Deliver: deliver.Options{Retry: &deliver.RetryOptions{Min: time.Microsecond, Max: time.Microsecond, BudgetRatio: 1e6, BudgetPerSecond: 1e6},
			Breaker: &deliver.BreakerOptions{OpenMin: time.Microsecond, OpenMax: time.Microsecond}}})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				mu.Lock()
				budget += 97 // frees some space
				mu.Unlock()
				if i%100 == 0 {
					f.Reopen()
				}
				runtime.Gosched()
			}
		}
	})
	const n = 2000
	for i := range n {
		fmt.Fprintf(w, "record %d %s\n", i, strings.Repeat("x", i%100))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	report, err := w.Shutdown(ctx)
	close(stop)
	wg.Wait()
	if err != nil || report.Delivered != n {
		t.Fatalf("%v, %v", report, err)
	}
	if err := report.Check(); err != nil {
		t.Error(err)
	}
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "x*.log"))
	seen := map[string]bool{}
	for _, name := range files {
		for line := range strings.Lines(content(t, name)) {
			var k int
			if _, err := fmt.Sscanf(line, "record %d ", &k); err != nil || line != fmt.Sprintf("record %d %s\n", k, strings.Repeat("x", k%100)) {
				t.Errorf("%s: torn line %q", name, line)
			}
			if seen[line] {
				t.Errorf("duplicate record: %q", line)
			}
			seen[line] = true
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d records in %d files", len(seen), n, len(files))
	}
}

// Sync of a device that cannot be synced returns no error.
func TestSyncOfDevices(t *testing.T) {
	f := mustOpen(t, os.DevNull, nil)
	write(t, f, "gone\n")
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
}

// Only one File at a time can have a rotating file open. Files without rotation can be shared.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	rotating := &Options{RotateBytes: 1 << 20}

	// Files without rotation are shared, without a lock file.
	a, b := mustOpen(t, path, nil), mustOpen(t, path, nil)
	a.Close()
	b.Close()
	if _, err := os.Stat(path + ".lock"); err == nil {
		t.Error("a lock file without rotation")
	}

	f := mustOpen(t, path, rotating)
	for o, what := range map[*Options]string{nil: "writes to it and rotates it", rotating: "it cannot be rotated"} {
		_, err := Open(path, o)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), fmt.Sprintf("process (%d)", os.Getpid())) ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("second Open with %+v: %v", o, err)
		}
	}
	f.Close()
	f = mustOpen(t, path, rotating) // a leftover lock file does not lock
	f.Close()
	shared := mustOpen(t, path, nil)
	mustOpen(t, path, nil).Close()
	if f, err := Open(path, rotating); err == nil {
		f.Close()
		t.Error("Open for rotation of a file in use returns no error")
	}
	shared.Close()

	// The lock belongs to the file rather than to its name.
	link := filepath.Join(dir, "link.log")
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	mustOpen(t, path, rotating)
	for _, o := range []*Options{nil, rotating} {
		if g, err := Open(link, o); err == nil {
			g.Close()
			t.Errorf("opened through a link with %+v", o)
		}
	}
}

// The lock of a file is found under each of its names, even by processes that opened the file
// without a lock file. Rotation moves the lock to the new file, and Reopen keeps it.
func TestLockOfLinks(t *testing.T) {
	switch runtime.GOOS {
	case "darwin", "dragonfly", "freebsd", "linux", "netbsd", "openbsd":
	default:
		t.Skip("no flock(2)")
	}
	dir := t.TempDir()
	path, hard, dangling := filepath.Join(dir, "x.log"), filepath.Join(dir, "hard.log"), filepath.Join(dir, "soft.log")
	rotating := &Options{RotateBytes: 10}
	refused := func(when, name string, o *Options) {
		t.Helper()
		g, err := Open(name, o)
		if err == nil {
			g.Close()
			t.Errorf("%s: opened %s with %+v", when, name, o)
		} else if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), " process") {
			t.Errorf("%s: %v", when, err)
		}
	}

	plain := mustOpen(t, path, nil) // creates no lock file
	refused("in use", path, rotating)
	plain.Close()

	if err := os.Symlink("x.log", dangling); err != nil {
		t.Skip(err)
	}
	os.Remove(path)
	f := mustOpen(t, dangling, rotating)
	refused("symbolic link that led nowhere", path, rotating)
	refused("symbolic link that led nowhere", path, nil)
	link := func() {
		t.Helper()
		os.Remove(hard)
		os.Remove(hard + ".lock")
		if err := os.Link(path, hard); err != nil {
			t.Skip(err)
		}
	}
	link()
	refused("hard link", hard, rotating)
	refused("hard link", hard, nil)

	write(t, f, "one1\n")
	write(t, f, "two2two2\n") // causes a rotation
	wantFile(t, path, "two2two2\n")
	old := mustOpen(t, hard, nil) // the old file is no longer locked
	old.Close()
	link()
	refused("after rotation", hard, rotating)
	if err := f.Reopen(); err != nil { // opens the same file
		t.Fatal(err)
	}
	refused("after reopening", hard, nil)
	write(t, f, "3\n")
	f.Close()

	// If another File rotates the file that g's path now names, Reopen fails and g keeps its old
	// file. If the old file was deleted, Write fails.
	g := mustOpen(t, filepath.Join(dir, "g.log"), nil)
	defer g.Close()
	if err := os.Rename(hard, filepath.Join(dir, "g2.log")); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, "g.log"))
	if err := os.Link(path, filepath.Join(dir, "g.log")); err != nil {
		t.Fatal(err)
	}
	f = mustOpen(t, path, rotating)
	defer f.Close()
	if err := g.Reopen(); err == nil || !strings.Contains(err.Error(), "the old file stays in use") {
		t.Error(err)
	}
	if n, err := g.Write([]byte("still\n")); n != 0 || err == nil || !strings.Contains(err.Error(), "rotates it") {
		t.Error(n, err)
	}
}

// The lock of another process is found, and the error contains its process ID.
func TestLockOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FILE_TEST_HOLD="+path)
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatal(line, err)
	}
	_, err := Open(path, &Options{RotateBytes: 1})
	if want := fmt.Sprintf("another process (%d)", cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q, got %v", want, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	mustOpen(t, path, &Options{RotateBytes: 1}).Close()
}

// Write, Reopen, Rotate and Sync can be called concurrently.
func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	f := mustOpen(t, path, &Options{RotateBytes: 2000, OnError: func(err error) { t.Error(err) }})
	const writers, each = 4, 200
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := fmt.Fprintf(f, "writer %d record %d\n", w, i); err != nil {
					t.Error(err)
				}
				switch i % 50 {
				case 10:
					if err := f.Reopen(); err != nil {
						t.Error(err)
					}
				case 20:
					if err := f.Rotate(); err != nil {
						t.Error(err)
					}
				case 30:
					if err := f.Sync(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	lines := 0
	files, _ := filepath.Glob(filepath.Join(dir, "x*.log"))
	for _, name := range files {
		for line := range strings.Lines(content(t, name)) {
			lines++
			var a, b int
			if _, err := fmt.Sscanf(line, "writer %d record %d\n", &a, &b); err != nil {
				t.Errorf("%q", line)
			}
		}
	}
	if lines != writers*each {
		t.Errorf("%d lines in %d files", lines, len(files))
	}
}
