package file

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
)

// Writev of several buffers produces the same files as a Write of each buffer.
func TestWritevIsWrite(t *testing.T) {
	for seed := range testkit.Walks(t, 40) {
		rng := testkit.Rand(seed)
		o := &Options{}
		if rng.IntN(2) == 0 {
			o = &Options{RotateBytes: int64(20 + rng.IntN(200))}
		}
		dir := t.TempDir()
		one := mustOpen(t, filepath.Join(dir, "one"), o)
		many := mustOpen(t, filepath.Join(dir, "many"), o)
		for i := range 12 {
			var bufs [][]byte
			var sum int64
			for range rng.IntN(5) {
				line := bytes.Repeat([]byte{byte('a' + i)}, rng.IntN(60))
				if len(line) > 0 {
					line[len(line)-1] = '\n'
				}
				if _, err := one.Write(line); err != nil {
					t.Fatal(err)
				}
				bufs = append(bufs, line)
				sum += int64(len(line))
			}
			if n, err := many.Writev(bufs); err != nil || n != sum {
				t.Fatalf("seed %d: %d of %d bytes: %v", seed, n, sum, err)
			}
			if rng.IntN(6) == 0 {
				if err := errors.Join(one.Reopen(), many.Reopen()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if a, b := all(t, dir, "one"), all(t, dir, "many"); a != b {
			t.Fatalf("seed %d:\n%s\nis not\n%s", seed, b, a)
		}
		if err := errors.Join(one.Close(), many.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// all returns the content of each file of a log, quoted, one per line. It omits lock files.
func all(t *testing.T, dir, name string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, name+"*"))
	if err != nil {
		t.Fatal(err)
	}
	var sb bytes.Buffer
	for _, path := range paths {
		if filepath.Ext(path) != ".lock" {
			fmt.Fprintf(&sb, "%q\n", content(t, path))
		}
	}
	return sb.String()
}

// On a full disk, Writev returns the exact number of bytes written, and the rest of the record goes
// to the same file.
func TestWritevOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	budget, mu := 7, new(sync.Mutex)
	f, err := openWith(path, &Options{RotateBytes: 8}, system{open: fullDisk(&budget, mu, syscall.ENOSPC)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := f.Writev([][]byte{[]byte("one\n"), []byte("two\n"), []byte("three\n")})
	if n != 7 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d bytes, %v", n, err)
	}
	mu.Lock()
	budget = 100
	mu.Unlock()
	if n, err := f.Writev([][]byte{[]byte("\n"), []byte("three\n")}); n != 7 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	wantFile(t, path, "three\n")
}

// If the file fails, Writev returns the error and the number of bytes written before it. After
// Close, it returns os.ErrClosed.
func TestWritevFails(t *testing.T) {
	f := mustOpen(t, filepath.Join(t.TempDir(), "log"), nil)
	f.mu.Lock()
	f.h.Close()
	f.mu.Unlock()
	if n, err := f.Writev([][]byte{[]byte("one\n"), []byte("two\n")}); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	f.Close()
	if _, err := f.Writev([][]byte{[]byte("one\n")}); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}
