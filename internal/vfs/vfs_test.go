package vfs

import (
	"errors"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// each runs test with the real file system and with file systems in memory, which must behave the
// same. dir does not exist at first.
func each(t *testing.T, test func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, OS, filepath.Join(t.TempDir(), "d")) })
	t.Run("mem", func(t *testing.T) { test(t, NewMem(), filepath.FromSlash("/d")) })
	t.Run("faulty", func(t *testing.T) { test(t, NewFaulty(NewMem(), nil), filepath.FromSlash("/d")) })
}

// write creates name and writes s at its start.
func write(t *testing.T, fsys FS, name, s string) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(s), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// read returns the content of name.
func read(t *testing.T, fsys FS, name string) string {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, size)
	if n, err := f.ReadAt(p, 0); n != len(p) || err != nil && err != io.EOF {
		t.Fatal(n, err)
	}
	return string(p)
}

// All operations have the results of package os.
func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		if _, err := fsys.OpenFile(a, os.O_RDWR|os.O_CREATE, 0o600); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("no directory: %v", err)
		}
		if err := fsys.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, fsys, a, "hello")
		if _, err := fsys.OpenFile(a, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); !errors.Is(err, fs.ErrExist) {
			t.Errorf("O_EXCL: %v", err)
		}
		f, err := fsys.OpenFile(a, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			func() error { _, err := f.WriteAt([]byte("J"), 7); return err }(), // leaves a hole
			f.Truncate(9), f.Truncate(8), f.Sync(), fsys.SyncDir(dir),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		p := make([]byte, 20)
		if n, err := f.ReadAt(p, 3); n != 5 || err != io.EOF || string(p[:5]) != "lo\x00\x00J" {
			t.Errorf("%d, %v, %q", n, err, p)
		}
		if n, err := f.ReadAt(p, 100); n != 0 || err != io.EOF {
			t.Error(n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(p, 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("write after close: %v", err)
		}
		if _, err := f.ReadAt(p, 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
		write(t, fsys, b, "other")
		if names, err := fsys.ReadDir(dir); err != nil || !slices.Equal(names, []string{"a", "b"}) {
			t.Error(names, err)
		}
		if err := fsys.Rename(a, b); err != nil {
			t.Fatal(err)
		}
		if got := read(t, fsys, b); got != "hello\x00\x00J" {
			t.Errorf("%q", got)
		}
		if n, err := fsys.Size(b); n != 8 || err != nil {
			t.Error(n, err)
		}
		if f, err = fsys.OpenFile(b, os.O_RDWR|os.O_TRUNC, 0); err != nil {
			t.Fatal(err)
		}
		if n, err := f.Size(); n != 0 || err != nil {
			t.Error(n, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if f, err = fsys.OpenFile(b, os.O_RDONLY, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("x"), 0); err == nil {
			t.Error("WriteAt of a read-only file returns no error")
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := fsys.Remove(b); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			fsys.Remove(b), fsys.Rename(b, a),
			func() error { _, err := fsys.Size(b); return err }(),
			func() error { _, err := fsys.ReadDir(filepath.Join(dir, "none")); return err }(),
			func() error { _, err := fsys.OpenFile(b, os.O_RDWR, 0); return err }(),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// A lock is exclusive until it is closed. Its file is kept.
func TestLock(t *testing.T) {
	each(t, func(t *testing.T, fsys FS, dir string) {
		if err := fsys.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, "LOCK")
		l, err := fsys.Lock(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Lock(name); !errors.Is(err, ErrLocked) || fsys == OS && !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
			t.Errorf("second Lock: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l, err = fsys.Lock(name); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Size(name); err != nil {
			t.Error("the lock file is gone:", err)
		}
	})
}

// A loss of power keeps all synced changes and a random selection of the others: many clones
// contain a change, and many do not.
func TestCrashClone(t *testing.T) {
	m := NewMem()
	if err := m.MkdirAll("/d", 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := m.OpenFile("/d/f", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	page := func(c byte) []byte { return slices.Repeat([]byte{c}, PageBytes) }
	writePage := func(c byte, number int64) {
		if _, err := f.WriteAt(page(c), number*PageBytes); err != nil {
			t.Fatal(err)
		}
	}
	writePage('a', 0)
	writePage('a', 1)
	if err := errors.Join(f.Sync(), m.SyncDir("/d"), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	writePage('b', 1) // can be lost
	writePage('b', 2) // can be lost, also with the size
	write(t, m, "/d/new", "n")
	if _, err := m.Lock("/d/LOCK"); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewSource(1))
	seen := map[string]int{}
	for range 400 {
		c := m.CrashClone(r, 0.5)
		got := read(t, c, "/d/f")
		if got[:PageBytes] != string(page('a')) {
			t.Fatal("a synced page has changed")
		}
		seen["page 1 is "+string(got[PageBytes])]++
		switch len(got) {
		case 2 * PageBytes:
			seen["short"]++
		case 3 * PageBytes:
			seen["page 2 is "+string(max(got[2*PageBytes], '0'))]++
		default:
			t.Fatalf("size %d", len(got))
		}
		if _, err := c.Size("/d/new"); err == nil {
			seen["new file"]++
		} else {
			seen["no new file"]++
		}
		if l, err := c.Lock("/d/LOCK"); err != nil {
			t.Fatal(err)
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"page 1 is a", "page 1 is b", "short", "page 2 is 0", "page 2 is b", "new file", "no new file"} {
		if seen[want] < 10 {
			t.Errorf("%s: %d times of 400; %v", want, seen[want], seen)
		}
	}
	// With a probability of 1, or if all changes are synced, nothing is lost.
	for _, c := range []*Mem{m.CrashClone(r, 1), func() *Mem { _ = f.Sync(); _ = m.SyncDir("/d"); return m.CrashClone(r, 0) }()} {
		if got := read(t, c, "/d/f"); got != string(page('a'))+string(page('b'))+string(page('b')) {
			t.Error("synced content is missing")
		}
	}
	// A smaller size and a new name can also be lost.
	if err := errors.Join(f.Truncate(10), m.Rename("/d/new", "/d/old")); err != nil {
		t.Fatal(err)
	}
	clear(seen)
	for range 100 {
		c := m.CrashClone(r, 0.5)
		switch len(read(t, c, "/d/f")) {
		case 10:
			seen["cut"]++
		case 3 * PageBytes:
			seen["not cut"]++
		}
		if _, err := c.Size("/d/new"); err == nil {
			seen["not renamed"]++
		}
	}
	if seen["cut"] < 10 || seen["not cut"] < 10 || seen["cut"]+seen["not cut"] != 100 || seen["not renamed"] < 10 {
		t.Error(seen)
	}
}

// A loss of power removes a directory with its content unless all directories returned by MakeDirs
// are synced.
func TestCrashCloneOfDirectories(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for skipped := range 4 {
		m := NewMem()
		if err := m.MkdirAll("/old", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := m.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		unsynced, err := MakeDirs(m, "/old/a/b/c", 0o700)
		if want := []string{"/old", "/old/a", "/old/a/b"}; err != nil || !slices.Equal(unsynced, want) {
			t.Fatalf("%q, want %q: %v", unsynced, want, err)
		}
		if again, err := MakeDirs(m, "/old/a/b/c", 0o700); err != nil || len(again) > 0 {
			t.Errorf("second MakeDirs: %q, %v", again, err)
		}
		f, err := m.OpenFile("/old/a/b/c/f", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), m.SyncDir("/old/a/b/c")); err != nil {
			t.Fatal(err)
		}
		for i, dir := range unsynced {
			if i != skipped {
				if err := m.SyncDir(dir); err != nil {
					t.Fatal(err)
				}
			}
		}
		c := m.CrashClone(r, 0)
		if _, err := c.Size("/old/a/b/c/f"); (err == nil) != (skipped == 3) {
			t.Errorf("without a sync of number %d: %v", skipped, err)
		}
	}
}

// A Faulty returns the errors of its hook. After a failed write, the first bytes of the data are in
// the file.
func TestFaulty(t *testing.T) {
	m := NewMem()
	hook, free := NoSpace(10)
	f := NewFaulty(m, hook)
	if err := f.MkdirAll("/d", 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := f.OpenFile("/d/f", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("12345678"), 0); err != nil {
		t.Fatal(err)
	}
	if n, err := file.WriteAt([]byte("abcdefgh"), 8); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Error(n, err)
	}
	free(8)
	if n, err := file.WriteAt([]byte("abcdefgh"), 8); n != 8 || err != nil {
		t.Error(n, err)
	}
	if got := read(t, f, "/d/f"); got != "12345678abcdefgh" {
		t.Errorf("%q", got)
	}
	f.SetHook(FailOn(syscall.EIO, OpSync, OpRemove))
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	if err := f.Remove("/d/f"); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}

	// A kill during a write leaves a part of the data in the file and releases the lock. Later
	// operations fail.
	if _, err := f.Lock("/d/LOCK"); err != nil {
		t.Fatal(err)
	}
	f.SetHook(func(c Call) (int, error) {
		if c.Op == OpWrite {
			return 3, ErrKilled
		}
		return 0, nil
	})
	if n, err := file.WriteAt([]byte("XXXXX"), 16); n != 3 || !errors.Is(err, ErrKilled) {
		t.Error(n, err)
	}
	for _, err := range []error{
		file.Sync(), file.Truncate(0), f.MkdirAll("/e", 0), f.SyncDir("/d"), f.Rename("/d/f", "/d/g"), f.Remove("/d/f"),
		func() error { _, err := file.WriteAt([]byte("x"), 0); return err }(),
		func() error { _, err := file.ReadAt(make([]byte, 1), 0); return err }(),
		func() error { _, err := file.Size(); return err }(),
		func() error { _, err := f.Size("/d/f"); return err }(),
		func() error { _, err := f.ReadDir("/d"); return err }(),
		func() error { _, err := f.OpenFile("/d/f", os.O_RDONLY, 0); return err }(),
		func() error { _, err := f.Lock("/d/LOCK2"); return err }(),
	} {
		if !errors.Is(err, ErrKilled) {
			t.Errorf("after the kill: %v", err)
		}
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if got := read(t, m, "/d/f"); got != "12345678abcdefghXXX" {
		t.Errorf("%q", got)
	}
	if l, err := m.Lock("/d/LOCK"); err != nil {
		t.Error("the lock of the killed process:", err)
	} else if err := l.Close(); err != nil {
		t.Error(err)
	}
	g := NewFaulty(m, nil)
	g.Kill()
	if _, err := g.Size("/d/f"); !errors.Is(err, ErrKilled) {
		t.Error(err)
	}
}

// If another file has the inode of a removed one, a Disk does not take it for the removed file under
// a new name.
func TestDiskKnowsNewFilesWithOldInodes(t *testing.T) {
	root := t.TempDir()
	d, err := NewDisk(root, nil, rand.New(rand.NewSource(1)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.OpenFile(filepath.Join(root, "a"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("old text"), 0); err != nil {
		t.Fatal(err)
	}
	// As if "a" was removed, and its inode was used again for "b".
	err = errors.Join(f.Sync(), os.Rename(filepath.Join(root, "a"), filepath.Join(root, "b")), os.Truncate(filepath.Join(root, "b"), 0))
	b, err2 := d.OpenFile(filepath.Join(root, "b"), os.O_RDWR, 0o600)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.WriteAt([]byte("new"), 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Sync(), d.SyncDir(root)); err != nil {
		t.Fatal(err)
	}
	left := d.After()
	if n := left.names["/b"]; n == nil || string(n.data) != "new" || left.names["/a"] != nil {
		t.Errorf("after the loss of power: %v", left.names)
	}
}
