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

// newDisk returns a disk that has what is in mem, all of it on stable storage.
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

func systemOf(d *vfs.Disk) system {
	return system{
		open:    func(name string, flag int, perm fs.FileMode) (handle, error) { return d.OpenAppend(name, flag, perm) },
		syncDir: d.SyncDir,
	}
}

// filesOn returns the content of all files.
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

// A copyOf is a record as one life of the walk writes it.
type copyOf struct{ n, life int }

// text returns the line of c, which names c and has a checksum.
func (c copyOf) text() []byte {
	p := fmt.Appendf(nil, "%d %d %s ", c.n, c.life, strings.Repeat("x", 3+c.n*7919%1500))
	return fmt.Appendf(p, "%08x\n", crc32.ChecksumIEEE(p))
}

// copiesIn returns the whole records in text. Of several equal ones the last counts.
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

// A powerWalk writes records, and goes on after each loss of power with the first one that
// Write had not counted.
type powerWalk struct {
	t     *testing.T
	r     *rand.Rand
	o     Options
	disk  *vfs.Disk
	dir   string
	life  int
	twice map[int]bool // lives that wrote records twice: what a failed sync has left may be in any order
	safe  []copyOf     // records that Write has counted
	moved int
	lost  int // records that were counted and are gone
}

// live writes until the power is lost.
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
	var rest [][]byte // what Write has not counted
	w.life++
	w.twice[w.life] = d.Failing
	next := len(w.safe)
	var put []copyOf // that Write has not counted
	d.CutPower(1 + w.r.Intn(60))
	for dark := false; !dark; {
		select {
		case <-d.Dark():
			dark = true
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
					buf, put = append(buf, c.text()...), append(put, c)
					next++
				}
				rest = append(rest, buf)
			}
		}
		n, err := f.Writev(rest)
		whole := bytes.Count(bytes.Join(rest, nil)[:n], []byte{'\n'})
		w.safe, put = append(w.safe, put[:whole]...), put[whole:]
		for len(rest) > 0 && n >= int64(len(rest[0])) {
			n -= int64(len(rest[0]))
			rest = rest[1:]
		}
		if len(rest) > 0 {
			rest[0] = rest[0][n:]
		}
		if err == nil && len(rest) > 0 {
			w.t.Fatal("not all is written, and there is no error")
		}
	}
}

// check looks at what the loss of power has left.
func (w *powerWalk) check(mem *vfs.Mem) {
	seen := map[copyOf]bool{}
	for name, text := range filesOn(w.t, mem) {
		last := -1
		for _, c := range copiesIn(text) {
			if c.n >= len(w.safe) || c != w.safe[c.n] {
				continue // nobody was told that it is there
			}
			if c.n < last && w.o.Sync == syncAlways && !w.twice[c.life] {
				w.t.Fatalf("%s: record %d comes after %d", name, c.n, last)
			}
			seen[c], last = true, c.n
		}
	}
	for _, c := range w.safe {
		if !seen[c] {
			w.lost++
			if w.o.Sync == syncAlways {
				w.t.Fatalf("record %d of the %d that were counted is lost", c.n, len(w.safe))
			}
		}
	}
}

// With Sync "always", what Write has counted is there after a loss of power at any moment,
// in order, whatever the disk has failed to do before; without, it may be lost.
func TestPowerLoss(t *testing.T) {
	for _, policy := range []string{syncNever, syncAlways} {
		t.Run(policy, func(t *testing.T) {
			lost, failed, short := 0, 0, 0
			for seed := range int64(testkit.Rounds(25, 5000)) {
				r := rand.New(rand.NewSource(seed))
				w := &powerWalk{t: t, r: r, twice: map[int]bool{}, o: Options{Sync: policy, OnError: func(error) {}}}
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
			t.Logf("%d records lost, %d syncs failed, %d writes cut", lost, failed, short)
			if policy == syncNever && lost == 0 || policy == syncAlways && failed == 0 || short == 0 {
				t.Error("the walk tries nothing")
			}
		})
	}
}

// What an Output before such a file has committed is there after a loss of power.
func TestCommitSurvivesPowerLoss(t *testing.T) {
	for seed := range int64(testkit.Rounds(30, 2000)) {
		bubble.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewSource(seed))
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
				case <-d.Dark():
					cancel()
				case <-ctx.Done():
				}
			}()
			d.CutPower(1 + r.Intn(60))
			next, safe := 0, 0
			for ctx.Err() == nil {
				for range 1 + r.Intn(8) {
					out.Write(copyOf{next, 1}.text()) // four slabs take as many
					next++
				}
				if out.Commit(ctx) == nil {
					safe = next
				}
			}
			now, end := context.WithCancel(context.Background())
			end()
			out.Shutdown(now)
			synctest.Wait()
			seen := map[int]bool{}
			for _, text := range filesOn(t, d.After()) {
				for _, c := range copiesIn(text) {
					seen[c.n] = true
				}
			}
			for n := range safe {
				if !seen[n] {
					t.Fatalf("seed %d: record %d of the %d that were committed is lost", seed, n, safe)
				}
			}
		})
	}
}

// The names that lead to a new file are synced before the first Write returns, and not
// again.
func TestNamesAreSynced(t *testing.T) {
	var synced []string
	sys := operatingSystem
	sys.syncDir = func(dir string) error {
		synced = append(synced, dir)
		return &fs.PathError{Op: "fsync", Err: syscall.EINVAL} // not every system syncs directories
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
		t.Errorf("opened where names cannot be synced: %v", err)
	}
}
