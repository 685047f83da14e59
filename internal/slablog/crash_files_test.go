//go:build linux || darwin

package slablog

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/mapped"
	"github.com/forebay-log/forebay/slab"
)

// dictWriter is a Writer with a dictionary.
type dictWriter struct {
	io.Writer
	dict batch.Dictionary
}

func (d dictWriter) Dictionary() batch.Dictionary { return d.dict }

// Only the owner may read the files, because they contain log records. All blocks of the slab file
// are allocated from the start, its length does not change, and it stays locked while the process
// runs.
func TestCrashFilesArePrivateAndWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	g := newGate()
	// Stream names that do not fit into the dictionary of the file are written to a separate file.
	sink := dictWriter{g, &dictSink{names: []string{"", strings.Repeat("x", crashfile.DictLen)}}}
	w := mustSink(t, sink, &slab.Options{SlabBytes: 4096, SlabCount: 4, Crash: &slab.Crash{Dir: dir, Required: true}})
	size := crashfile.Size(4096, 4)
	checkFiles := func() (files int) {
		t.Helper()
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			st, err := e.Info()
			if err != nil {
				return err
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			} else {
				files++
			}
			if st.Mode().Perm() != want {
				t.Errorf("%s has mode %v, want %v", e.Name(), st.Mode().Perm(), want)
			}
			if strings.HasSuffix(path, crashfile.Suffix) {
				if st.Size() != size {
					t.Errorf("%s is %d bytes long, want %d", e.Name(), st.Size(), size)
				}
				if b := st.Sys().(*syscall.Stat_t).Blocks * 512; b < size {
					t.Errorf("%d bytes of %d are allocated", b, size)
				}
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				defer f.Close()
				if err := mapped.Lock(f); !mapped.IsLocked(err) {
					t.Errorf("the file of a living process can be locked: %v", err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return files
	}
	if n := checkFiles(); n != 1 {
		t.Errorf("%d files at first, want 1", n)
	}
	for i := range 50 {
		if err := w.WriteRecord(line(i, 100), batch.Meta{Stream: 1}); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(t, w, 50, 5000) // the record is larger than a slab
	if n := checkFiles(); n != 3 {
		t.Errorf("%d files of slabs, streams and large records, want 3", n)
	}
	g.open()
	closeNow(t, w)
}
