package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// ErrPower is returned by every operation of a [Disk] after its power is lost.
var ErrPower = errors.New("vfs: the power is lost")

// A Disk is a directory of the real file system with a simulated loss of power. It can run code
// that uses files in ways [FS] does not support. A [Mem] tracks which content is on stable storage.
//
// Other code may change names in the directory, for example by a rename; the next operation of the
// Disk detects this. Name changes reach stable storage in order ([Mem.Ordered]). Locked files and
// files that end in .lock are not simulated.
type Disk struct {
	// Full makes some writes fail with ENOSPC. Failing makes some syncs fail with EIO. Both must be
	// set before the first use.
	Full, Failing bool

	root string
	r    *rand.Rand
	keep float64 // probability that an unsynced change survives; see Mem.CrashClone

	mu        sync.Mutex // guards the fields below
	mem       *Mem
	files     map[string]fs.FileInfo // plain files as of the last update, by name in mem
	locks     map[string]bool        // names in mem of the files that were locked
	untilLoss int                    // number of operations until the loss of power; 0: never
	after     *Mem                   // the state that survives; nil while the power is on
	powerLost chan struct{}          // closed by the loss of power

	syncs, failedSyncs int
	shortWrites        int // number of writes that failed with ENOSPC
}

// NewDisk returns a Disk with the power on. It replaces the content of root with the files in mem,
// which may be nil, and uses mem from then on. r decides which unsynced changes survive the loss of
// power and which operations fail.
func NewDisk(root string, mem *Mem, r *rand.Rand) (*Disk, error) {
	d := &Disk{
		root: root, r: r, keep: []float64{0, 0.3, 0.5, 0.9, 1}[r.Intn(5)],
		mem: NewMem(), files: map[string]fs.FileInfo{}, locks: map[string]bool{}, powerLost: make(chan struct{}),
	}
	d.mem.Ordered = true
	if mem != nil {
		d.mem = mem
	}
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(root, e.Name())))
	}
	err = errors.Join(err, d.mem.MkdirAll("/", 0o700))
	for dir := range d.mem.dirs {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	for name, n := range d.mem.names {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, name), n.data, 0o600))
		if err == nil {
			d.files[name], err = os.Lstat(filepath.Join(root, name))
		}
	}
	return d, err
}

// CutPower makes the power fail during the n-th operation from now, so that this operation fails
// too.
func (d *Disk) CutPower(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.untilLoss = n
}

// PowerLost returns a channel that is closed when the power is lost.
func (d *Disk) PowerLost() <-chan struct{} { return d.powerLost }

// After returns the state that survives the loss of power, for the next Disk. If the power is still
// on, After cuts it.
func (d *Disk) After() *Mem {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.after == nil {
		d.updateNames()
		d.loseLocked()
	}
	return d.after
}

// Calls returns the numbers of syncs, of failed syncs and of writes that failed with ENOSPC.
func (d *Disk) Calls() (syncs, failed, short int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs, d.failedSyncs, d.shortWrites
}

// loseLocked decides what survives the loss of power. The caller holds d.mu.
func (d *Disk) loseLocked() {
	d.after = d.mem.CrashClone(d.r, d.keep)
	close(d.powerLost)
}

// call locks d for one operation and returns the function that unlocks it. After the loss of power,
// it returns ErrPower without locking d.
func (d *Disk) call() (done func(), err error) {
	d.mu.Lock()
	if d.after == nil {
		d.updateNames()
		if d.untilLoss--; d.untilLoss == 0 {
			d.loseLocked()
		}
	}
	if d.after != nil {
		d.mu.Unlock()
		return nil, ErrPower
	}
	return d.mu.Unlock, nil
}

// name returns the name in mem for a path at or below the root.
func (d *Disk) name(path string) string {
	return filepath.Clean("/" + strings.TrimPrefix(filepath.Clean(path), d.root))
}

// walk returns the plain files below the root by name. A single pass could miss a file that is
// renamed meanwhile, so walk repeats until two passes agree.
func (d *Disk) walk() map[string]fs.FileInfo {
	same := func(a, b fs.FileInfo) bool { return os.SameFile(a, b) }
	for before := d.walkOnce(); ; {
		now := d.walkOnce()
		if maps.EqualFunc(before, now, same) {
			return now
		}
		before = now
	}
}

// walkOnce returns the plain files that one walk finds, by name. It adds new directories to mem.
func (d *Disk) walkOnce() map[string]fs.FileInfo {
	now := map[string]fs.FileInfo{}
	_ = filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		name := d.name(path)
		switch {
		case err != nil: // removed in the meantime
		case e.IsDir():
			if !hasDir(d.mem.dirs, name) {
				_ = d.mem.MkdirAll(name, 0)
			}
		case e.Type().IsRegular() && !d.locks[name] && filepath.Ext(name) != ".lock":
			if st, err := e.Info(); err == nil {
				now[name] = st
			}
		}
		return nil
	})
	return now
}

// updateNames applies to mem all name changes below the root since the last call. The caller holds
// d.mu.
func (d *Disk) updateNames() {
	now := d.walk()
	for _, was := range slices.Sorted(maps.Keys(d.files)) {
		st := d.files[was]
		if now[was] != nil && os.SameFile(now[was], st) {
			continue
		}
		delete(d.files, was)
		to, size := "", int64(-1)
		if n := d.mem.names[was]; n != nil {
			size = int64(len(n.data))
		}
		for name, st2 := range now {
			// A file of another size is a new file with the inode of the removed one.
			if os.SameFile(st2, st) && st2.Size() == size {
				to = name
			}
		}
		if to == "" {
			_ = d.mem.Remove(was)
			continue
		}
		_ = d.mem.Rename(was, to)
		d.files[to] = now[to]
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if d.files[name] == nil {
			_, _ = d.mem.OpenFile(name, os.O_RDWR|os.O_CREATE, 0)
			d.files[name] = now[name]
		}
	}
}

// MkdirAll implements [FS].
func (d *Disk) MkdirAll(dir string, perm fs.FileMode) error {
	done, err := d.call()
	if err != nil {
		return err
	}
	defer done()
	defer d.updateNames()
	return osFS{}.MkdirAll(dir, perm)
}

// mirror returns the file in mem that corresponds to the file at path, which was just opened with
// flag.
func (d *Disk) mirror(path string, flag int) (File, error) {
	d.updateNames()
	m, err := d.mem.OpenFile(d.name(path), os.O_RDWR, 0)
	if err == nil && flag&os.O_TRUNC != 0 {
		err = m.Truncate(0)
	}
	return m, err
}

// OpenFile implements [FS].
func (d *Disk) OpenFile(path string, flag int, perm fs.FileMode) (File, error) {
	done, err := d.call()
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := osFS{}.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	m, err := d.mirror(path, flag)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &diskFile{File: f, mirror: mirror{d, m}}, nil
}

// OpenAppend implements [System].
func (d *Disk) OpenAppend(path string, flag int, perm fs.FileMode) (Appender, error) {
	done, err := d.call()
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	m, err := d.mirror(path, flag)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &diskAppender{File: f, mirror: mirror{d, m}}, nil
}

// Remove implements [FS].
func (d *Disk) Remove(path string) error {
	done, err := d.call()
	if err != nil {
		return err
	}
	defer done()
	defer d.updateNames()
	return os.Remove(path)
}

// Rename implements [FS].
func (d *Disk) Rename(from, to string) error {
	done, err := d.call()
	if err != nil {
		return err
	}
	defer done()
	defer d.updateNames()
	return os.Rename(from, to)
}

// ReadDir implements [FS].
func (d *Disk) ReadDir(dir string) ([]string, error) {
	done, err := d.call()
	if err != nil {
		return nil, err
	}
	defer done()
	return osFS{}.ReadDir(dir)
}

// Size implements [FS].
func (d *Disk) Size(path string) (int64, error) {
	done, err := d.call()
	if err != nil {
		return 0, err
	}
	defer done()
	return osFS{}.Size(path)
}

// SyncDir implements [FS].
func (d *Disk) SyncDir(dir string) error {
	done, err := d.call()
	if err != nil {
		return err
	}
	defer done()
	return d.mem.SyncDir(d.name(dir))
}

// Lock implements [FS].
func (d *Disk) Lock(path string) (io.Closer, error) {
	done, err := d.call()
	if err != nil {
		return nil, err
	}
	defer done()
	d.locks[d.name(path)] = true
	return osFS{}.Lock(path)
}

// A mirror is an open file of mem that receives the writes to a real file. The real file is never
// synced.
type mirror struct {
	d *Disk
	m File
}

// storable returns how many of n bytes a write stores. If it stores less than n, the error is
// ENOSPC. The caller holds d.mu.
func (m mirror) storable(n int) (int, error) {
	if !m.d.Full || n == 0 || m.d.r.Intn(6) != 0 {
		return n, nil
	}
	m.d.shortWrites++
	return m.d.r.Intn(n), syscall.ENOSPC
}

// Sync syncs the file in mem only.
func (m mirror) Sync() error {
	done, err := m.d.call()
	if err != nil {
		return err
	}
	defer done()
	m.d.syncs++
	if m.d.Failing && m.d.r.Intn(8) == 0 {
		m.d.failedSyncs++
		m.d.mem.FailSync(m.m, m.d.r, m.d.keep)
		return syscall.EIO
	}
	return m.m.Sync()
}

// A diskFile is an open file of a Disk. Its writes go to the real file, then to the mirror.
type diskFile struct {
	File
	mirror
}

func (f *diskFile) Sync() error { return f.mirror.Sync() }

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	done, err := f.d.call()
	if err != nil {
		return 0, err
	}
	defer done()
	return f.File.ReadAt(p, off)
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	done, err := f.d.call()
	if err != nil {
		return 0, err
	}
	defer done()
	limit, errFull := f.storable(len(p))
	n, err := f.File.WriteAt(p[:limit], off)
	_, merr := f.m.WriteAt(p[:n], off)
	return n, errors.Join(err, merr, errFull)
}

func (f *diskFile) Truncate(size int64) error {
	done, err := f.d.call()
	if err != nil {
		return err
	}
	defer done()
	return errors.Join(f.File.Truncate(size), f.m.Truncate(size))
}

// A diskAppender is an open file of a Disk whose writes append.
type diskAppender struct {
	*os.File
	mirror
}

func (f *diskAppender) Sync() error { return f.mirror.Sync() }

func (f *diskAppender) Write(p []byte) (int, error) {
	done, err := f.d.call()
	if err != nil {
		return 0, err
	}
	defer done()
	limit, errFull := f.storable(len(p))
	n, err := f.File.Write(p[:limit])
	size, merr := f.m.Size()
	if merr == nil {
		_, merr = f.m.WriteAt(p[:n], size)
	}
	return n, errors.Join(err, merr, errFull)
}
