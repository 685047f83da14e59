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

// A Disk is a directory of the real file system with a simulated loss of power. A [Mem]
// tracks the part of it on stable storage. A Disk can therefore run code that uses files in
// ways [FS] does not support. Names changed by other code, such as a rotation, are noticed
// by the next operation; for that reason names reach stable storage in order
// ([Mem.Ordered]). Locked files and files that end in .lock are not on the disk.
type Disk struct {
	// If Full is set, writes occasionally fail with no space; if Failing is set, syncs
	// occasionally fail. Set both before the first use.
	Full, Failing bool

	root string
	r    *rand.Rand
	keep float64 // see Mem.CrashClone

	mu     sync.Mutex // guards the rest
	mem    *Mem
	known  map[string]fs.FileInfo // plain files, by name in mem
	locks  map[string]bool
	left   int // operations until the power is lost; 0: never
	after  *Mem
	dark   chan struct{}
	synced int
	failed int
	short  int
}

// NewDisk makes root contain exactly the files in mem, which may be nil. r decides the
// outcome of everything that is not synced.
func NewDisk(root string, mem *Mem, r *rand.Rand) (*Disk, error) {
	d := &Disk{
		root: root, r: r, keep: []float64{0, 0.3, 0.5, 0.9, 1}[r.Intn(5)],
		mem: NewMem(), known: map[string]fs.FileInfo{}, locks: map[string]bool{}, dark: make(chan struct{}),
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
			d.known[name], err = os.Lstat(filepath.Join(root, name))
		}
	}
	return d, err
}

// CutPower makes the n-th operation from now lose the power.
func (d *Disk) CutPower(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}

// Dark is closed when the power is lost.
func (d *Disk) Dark() <-chan struct{} { return d.dark }

// After returns the state that survives the loss of power, for the next Disk. If the power
// is still on, it is lost now.
func (d *Disk) After() *Mem {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.after == nil {
		d.look()
		d.loseLocked()
	}
	return d.after
}

// Calls returns the number of syncs, of failed syncs, and of writes that failed for lack of
// space.
func (d *Disk) Calls() (syncs, failed, short int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.synced, d.failed, d.short
}

func (d *Disk) loseLocked() {
	d.after = d.mem.CrashClone(d.r, d.keep)
	close(d.dark)
}

// call locks d for one operation and returns the function that unlocks it. After the power
// is lost, it returns ErrPower.
func (d *Disk) call() (done func(), err error) {
	d.mu.Lock()
	if d.after == nil {
		d.look()
		if d.left--; d.left == 0 {
			d.loseLocked()
		}
	}
	if d.after != nil {
		d.mu.Unlock()
		return nil, ErrPower
	}
	return d.mu.Unlock, nil
}

// name returns the name in mem for a path below the root.
func (d *Disk) name(path string) string {
	return filepath.Clean("/" + strings.TrimPrefix(filepath.Clean(path), d.root))
}

// walk returns the plain files below the root. It sees either all or none of the concurrent
// changes of names; otherwise a renamed file could appear to be missing.
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

// look updates mem with the names below the root.
func (d *Disk) look() {
	now := d.walk()
	for _, was := range slices.Sorted(maps.Keys(d.known)) {
		st := d.known[was]
		if now[was] != nil && os.SameFile(now[was], st) {
			continue
		}
		delete(d.known, was)
		to := ""
		for name, st2 := range now {
			if os.SameFile(st2, st) {
				to = name
			}
		}
		if to == "" {
			_ = d.mem.Remove(was)
			continue
		}
		_ = d.mem.Rename(was, to)
		d.known[to] = now[to]
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if d.known[name] == nil {
			_, _ = d.mem.OpenFile(name, os.O_RDWR|os.O_CREATE, 0)
			d.known[name] = now[name]
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
	defer d.look()
	return osFS{}.MkdirAll(dir, perm)
}

// mirror returns the file in mem that corresponds to a file just opened.
func (d *Disk) mirror(path string, flag int) (File, error) {
	d.look()
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
	defer d.look()
	return os.Remove(path)
}

// Rename implements [FS].
func (d *Disk) Rename(from, to string) error {
	done, err := d.call()
	if err != nil {
		return err
	}
	defer done()
	defer d.look()
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

// A mirror is the part of an open file tracked in mem.
type mirror struct {
	d *Disk
	m File
}

// room returns how many of n bytes a write can store.
func (m mirror) room(n int) (int, error) {
	if !m.d.Full || n == 0 || m.d.r.Intn(6) != 0 {
		return n, nil
	}
	m.d.short++
	return m.d.r.Intn(n), syscall.ENOSPC
}

// Sync does not sync the real file.
func (m mirror) Sync() error {
	done, err := m.d.call()
	if err != nil {
		return err
	}
	defer done()
	m.d.synced++
	if m.d.Failing && m.d.r.Intn(8) == 0 {
		m.d.failed++
		m.d.mem.FailSync(m.m, m.d.r, m.d.keep)
		return syscall.EIO
	}
	return m.m.Sync()
}

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
	room, full := f.room(len(p))
	n, err := f.File.WriteAt(p[:room], off)
	_, merr := f.m.WriteAt(p[:n], off)
	return n, errors.Join(err, merr, full)
}

func (f *diskFile) Truncate(size int64) error {
	done, err := f.d.call()
	if err != nil {
		return err
	}
	defer done()
	return errors.Join(f.File.Truncate(size), f.m.Truncate(size))
}

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
	room, full := f.room(len(p))
	n, err := f.File.Write(p[:room])
	size, merr := f.m.Size()
	if merr == nil {
		_, merr = f.m.WriteAt(p[:n], size)
	}
	return n, errors.Join(err, merr, full)
}
