package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/slab"
)

// newDisk returns a disk with the content of mem on stable storage, and the directory of the disk.
// A nil mem means an empty disk.
func newDisk(t *testing.T, r *rand.Rand, mem *vfs.Mem) (d *vfs.Disk, dir string) {
	t.Helper()
	dir = t.TempDir()
	d, err := vfs.NewDisk(dir, mem, r)
	if err != nil {
		t.Fatal(err)
	}
	d.Full, d.Failing = r.Intn(2) == 0, r.Intn(2) == 0
	return d, dir
}

// systemOf returns a system whose files are on d.
func systemOf(d *vfs.Disk) system {
	return system{
		open:    func(name string, flag int, perm fs.FileMode) (handle, error) { return d.OpenAppend(name, flag, perm) },
		syncDir: d.SyncDir,
	}
}

// filesOn returns the content of each file of mem, by name.
func filesOn(t *testing.T, mem *vfs.Mem) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	names, _ := mem.ReadDir("/")
	for _, name := range names {
		f, err := mem.OpenFile("/"+name, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		all[name] = make([]byte, size)
		f.ReadAt(all[name], 0)
	}
	return all
}

// A copyOf is one copy of a record. A life is the time from the opening of the File to a loss of
// power. Records that were lost are written again in the next life, with the number of that life.
type copyOf struct{ n, life int }

// text returns the line of c. It contains the fields of c and a checksum.
func (c copyOf) text() []byte {
	p := fmt.Appendf(nil, "%d %d %s ", c.n, c.life, strings.Repeat("x", 3+c.n*7919%1500))
	return fmt.Appendf(p, "%08x\n", crc32.ChecksumIEEE(p))
}

// copiesIn returns the complete records in text, in order. Of several equal records it returns the
// last.
func copiesIn(text []byte) (all []copyOf) {
	for l := range bytes.Lines(text) {
		var c copyOf
		if _, err := fmt.Sscanf(string(l), "%d %d ", &c.n, &c.life); err == nil && bytes.Equal(l, c.text()) {
			if i := slices.Index(all, c); i >= 0 {
				all = slices.Delete(all, i, i+1)
			}
			all = append(all, c)
		}
	}
	return all
}

// A powerWalk writes records to a disk that repeatedly loses its power. After each loss it
// continues with the first record that Write did not count as written.
type powerWalk struct {
	t    *testing.T
	r    *rand.Rand
	o    Options
	disk *vfs.Disk
	dir  string
	life int
	// unordered contains the lives in which the disk fails syncs. Records after a failed sync are
	// written again, so their order is not checked.
	unordered map[int]bool
	counted   []copyOf // records that Write has counted as written
	// moved is the number of files that were renamed so far.
	moved int
	lost  int // number of records that were counted as written but are in no file
}

// live opens the file and writes records to it until the disk loses its power.
func (w *powerWalk) live() {
	d := w.disk
	path := filepath.Join(w.dir, "x.log")
	f, err := openWith(path, &w.o, systemOf(d))
	if err != nil {
		if !errors.Is(err, vfs.ErrPower) && !errors.Is(err, syscall.EIO) {
			w.t.Fatal(err)
		}
		return
	}
	defer f.Close()
	var rest [][]byte // the bytes that Write has not counted yet
	w.life++
	w.unordered[w.life] = d.Failing
	next := len(w.counted)
	var uncounted []copyOf // the records of rest
	d.CutPower(1 + w.r.Intn(60))
	for lost := false; !lost; {
		select {
		case <-d.PowerLost():
			lost = true
			continue
		default:
		}
		switch k := w.r.Intn(20); {
		case k == 0:
			os.Rename(path, fmt.Sprintf("%s.%d", path, w.moved))
			w.moved++
			f.Reopen()
			continue
		case k == 1 && w.o.rotates():
			f.Rotate()
			continue
		case k == 2:
			f.Reopen()
			continue
		}
		if len(rest) == 0 {
			for range 1 + w.r.Intn(5) {
				var buf []byte
				for range w.r.Intn(6) {
					c := copyOf{next, w.life}
					buf, uncounted = append(buf, c.text()...), append(uncounted, c)
					next++
				}
				rest = append(rest, buf)
			}
		}
		n, err := f.Writev(rest)
		complete := bytes.Count(bytes.Join(rest, nil)[:n], []byte{'\n'})
		w.counted, uncounted = append(w.counted, uncounted[:complete]...), uncounted[complete:]
		for len(rest) > 0 && n >= int64(len(rest[0])) {
			n -= int64(len(rest[0]))
			rest = rest[1:]
		}
		if len(rest) > 0 {
			rest[0] = rest[0][n:]
		}
		if err == nil && len(rest) > 0 {
			w.t.Fatal("Writev wrote a part and returned no error")
		}
	}
}

// check compares the files after a loss of power with the records that were counted as written.
func (w *powerWalk) check(mem *vfs.Mem) {
	seen := map[copyOf]bool{}
	for name, text := range filesOn(w.t, mem) {
		last := -1
		for _, c := range copiesIn(text) {
			if c.n >= len(w.counted) || c != w.counted[c.n] {
				continue // not counted as written
			}
			if c.n < last && w.o.Sync == syncAlways && !w.unordered[c.life] {
				w.t.Fatalf("%s: record %d comes after %d", name, c.n, last)
			}
			seen[c], last = true, c.n
		}
	}
	for _, c := range w.counted {
		if !seen[c] {
			w.lost++
			if w.o.Sync == syncAlways {
				w.t.Fatalf("record %d of the %d that were counted is lost", c.n, len(w.counted))
			}
		}
	}
}

// With Sync "always", each record that Write has counted as written is in a file after a loss of
// power at any moment, in order, even after failed writes and syncs. With Sync "never", records may
// be lost.
func TestPowerLoss(t *testing.T) {
	for _, policy := range []string{syncNever, syncAlways} {
		t.Run(policy, func(t *testing.T) {
			lost, failed, short := 0, 0, 0
			for seed := range testkit.Walks(t, 25) {
				r := rand.New(rand.NewSource(int64(seed)))
				w := &powerWalk{t: t, r: r, unordered: map[int]bool{}, o: Options{Sync: policy, OnError: func(error) {}}}
				if r.Intn(2) == 0 {
					w.o.RotateBytes = int64(1000 + r.Intn(20_000))
				}
				var mem *vfs.Mem
				for range 1 + r.Intn(6) {
					w.disk, w.dir = newDisk(t, r, mem)
					w.live()
					mem = w.disk.After()
					if w.check(mem); t.Failed() {
						t.Fatalf("seed %d", seed)
					}
					_, f, s := w.disk.Calls()
					failed, short = failed+f, short+s
				}
				lost += w.lost
			}
			t.Logf("%d records lost, %d syncs failed, %d writes cut short", lost, failed, short)
			if policy == syncNever && lost == 0 || policy == syncAlways && failed == 0 || short == 0 {
				t.Error("no records lost, no failed sync or no short write in all walks")
			}
		})
	}
}

// With Sync "always", records that an Output has committed to the file survive a loss of power.
func TestCommitSurvivesPowerLoss(t *testing.T) {
	for seed := range testkit.Walks(t, 30) {
		bubble.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewSource(int64(seed)))
			d, dir := newDisk(t, r, nil)
			f, err := openWith(filepath.Join(dir, "x.log"), &Options{Sync: syncAlways, RotateBytes: 20_000, OnError: func(error) {}}, systemOf(d))
			if errors.Is(err, syscall.EIO) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			out, err := deliver.NewOutput(deliver.ToWriteCloser(f), &deliver.OutputOptions{OnError: func(batch.Event) {},
				Slab: slab.Options{SlabBytes: 4096, SlabCount: 4, WhenFull: slab.Block()}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				select {
				case <-d.PowerLost():
					cancel()
				case <-ctx.Done():
				}
			}()
			d.CutPower(1 + r.Intn(60))
			next, committed := 0, 0
			for ctx.Err() == nil {
				// All these records fit into the four slabs.
				for range 1 + r.Intn(8) {
					out.Write(copyOf{next, 1}.text())
					next++
				}
				if out.Commit(ctx) == nil {
					committed = next
				}
			}
			ended, cancelEnded := context.WithCancel(context.Background())
			cancelEnded()
			out.Shutdown(ended)
			synctest.Wait()
			seen := map[int]bool{}
			for _, text := range filesOn(t, d.After()) {
				for _, c := range copiesIn(text) {
					seen[c.n] = true
				}
			}
			for n := range committed {
				if !seen[n] {
					t.Fatalf("seed %d: record %d of the %d that were committed is lost", seed, n, committed)
				}
			}
		})
	}
}

// The directories that contain the names of a new file are synced before the first Write returns,
// and not again.
func TestNamesAreSynced(t *testing.T) {
	var synced []string
	sys := operatingSystem
	sys.syncDir = func(dir string) error {
		synced = append(synced, dir)
		return &fs.PathError{Op: "fsync", Err: syscall.EINVAL} // some systems cannot sync directories
	}
	dir := resolve(t.TempDir())
	path := filepath.Join(dir, "a", "b", "x.log")
	f, err := openWith(path, &Options{Sync: syncAlways, MakeDirs: true, RotateBytes: 10}, sys)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(t, f, "1\n")
	write(t, f, "2\n")
	want := []string{dir, filepath.Join(dir, "a"), filepath.Dir(path)}
	if !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
	write(t, f, "1234567\n")
	write(t, f, "8\n")
	if want = append(want, want[2]); !slices.Equal(synced, want) {
		t.Errorf("after rotation: synced %q, want %q", synced, want)
	}
	sys.syncDir = func(string) error { return syscall.EIO }
	if _, err := openWith(filepath.Join(dir, "y.log"), &Options{Sync: syncAlways}, sys); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open with a directory that cannot be synced: %v", err)
	}
}
