package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// PageBytes is the unit in which [Mem.CrashClone] keeps or discards writes.
const PageBytes = 4096

// Mem is a file system in memory. In addition to the visible state, it tracks the state that
// [File.Sync] and [FS.SyncDir] have written to stable storage.
//
// A test that simulates the end of a process uses the same Mem again after [Mem.ReleaseLocks]:
// nothing is lost. A test that simulates a loss of power uses a [Mem.CrashClone].
type Mem struct {
	// Ordered means that name changes reach stable storage in order and renames are atomic, as in
	// journaling file systems. If it is false, each name reaches stable storage independently. It
	// must be set before the first use.
	Ordered bool

	mu sync.Mutex
	// all directories; the value is true once SyncDir of the parent has synced the name
	dirs   map[string]bool
	names  map[string]*node // visible to readers
	synced map[string]*node // names as of the last SyncDir
	// the changes of names since the last SyncDir, in order, if Ordered is set
	log   []func(names map[string]*node)
	locks map[string]bool
}

// A node is the content of a file, guarded by Mem.mu.
type node struct {
	data   []byte
	synced []byte         // data as of the last Sync
	dirty  map[int64]bool // numbers of the pages written or truncated since the last Sync
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{
		dirs: map[string]bool{}, names: map[string]*node{},
		synced: map[string]*node{}, locks: map[string]bool{},
	}
}

// ReleaseLocks releases all locks, as if the processes that hold them had ended.
func (m *Mem) ReleaseLocks() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.locks)
}

// CrashClone returns a state that a loss of power could leave. It has everything that was synced,
// and a random selection of later changes to pages, sizes and names. Each change survives with
// probability keep. If a size survives without the pages within it, the pages read as zeros. The
// clone has no locks and shares no memory with m.
func (m *Mem) CrashClone(r *rand.Rand, keep float64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMem()
	c.Ordered = m.Ordered
	for _, dir := range slices.Sorted(maps.Keys(m.dirs)) { // parents first
		parent := filepath.Dir(dir)
		if (m.dirs[dir] || r.Float64() < keep) && (parent == dir || hasDir(c.dirs, parent)) {
			c.dirs[dir] = true
		}
	}
	all := m.namesAfterCrash(r, keep)
	clones := map[*node]*node{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		n := all[name]
		if !hasDir(c.dirs, filepath.Dir(name)) {
			continue
		}
		if clones[n] == nil {
			clones[n] = n.crash(r, keep)
		}
		c.names[name], c.synced[name] = clones[n], clones[n]
	}
	return c
}

// namesAfterCrash returns a set of names that could survive. The caller holds m.mu.
func (m *Mem) namesAfterCrash(r *rand.Rand, keep float64) map[string]*node {
	left := maps.Clone(m.synced)
	if m.Ordered {
		kept := len(m.log)
		if r.Float64() >= keep {
			kept = int(keep * float64(r.Intn(len(m.log)+1)))
		}
		for _, change := range m.log[:kept] {
			change(left)
		}
		return left
	}
	all := maps.Clone(m.names)
	maps.Copy(all, m.synced)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if cur := m.names[name]; cur == left[name] || r.Float64() >= keep {
			continue
		} else if cur == nil {
			delete(left, name)
		} else {
			left[name] = cur
		}
	}
	return left
}

// change calls the function how with the names and, if m is Ordered, records it for
// namesAfterCrash. The caller holds m.mu.
func (m *Mem) change(how func(names map[string]*node)) {
	how(m.names)
	if m.Ordered {
		m.log = append(m.log, how)
	}
}

// hasDir reports whether dirs contains dir, synced or not.
func hasDir(dirs map[string]bool, dir string) bool {
	_, ok := dirs[dir]
	return ok
}

// crash returns a copy of n with a content that could survive. The caller holds Mem.mu.
func (n *node) crash(r *rand.Rand, keep float64) *node {
	data := slices.Clone(n.synced)
	size := int64(len(data))
	if len(n.data) != len(n.synced) && r.Float64() < keep {
		size = int64(len(n.data))
	}
	for _, p := range slices.Sorted(maps.Keys(n.dirty)) {
		if r.Float64() >= keep {
			continue
		}
		lo := p * PageBytes
		hi := min(lo+PageBytes, int64(len(n.data)))
		if lo >= hi {
			continue
		}
		if grow := hi - int64(len(data)); grow > 0 {
			data = append(data, make([]byte, grow)...)
		}
		copy(data[lo:hi], n.data[lo:hi])
		if len(n.data) > len(n.synced) {
			size = max(size, hi)
		}
	}
	if grow := size - int64(len(data)); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	data = data[:size]
	return &node{data: data, synced: slices.Clone(data), dirty: map[int64]bool{}}
}

// MkdirAll implements [FS].
func (m *Mem) MkdirAll(dir string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if d == filepath.Dir(d) {
			m.dirs[d] = true
			return nil
		}
		if !hasDir(m.dirs, d) {
			m.dirs[d] = false
		}
	}
}

// pathErr returns the error of operation op on the file name.
func pathErr(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// OpenFile implements [FS].
func (m *Mem) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	n := m.names[name]
	switch {
	case n == nil && flag&os.O_CREATE == 0, n == nil && !hasDir(m.dirs, filepath.Dir(name)):
		return nil, pathErr("open", name, fs.ErrNotExist)
	case n != nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathErr("open", name, fs.ErrExist)
	case n == nil:
		n = &node{dirty: map[int64]bool{}}
		m.change(func(names map[string]*node) { names[name] = n })
	}
	f := &memFile{m: m, n: n, name: name, write: flag&(os.O_RDWR|os.O_WRONLY) != 0}
	if flag&os.O_TRUNC != 0 {
		n.resize(0)
	}
	return f, nil
}

// Remove implements [FS].
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if m.names[name] == nil {
		return pathErr("remove", name, fs.ErrNotExist)
	}
	m.change(func(names map[string]*node) { delete(names, name) })
	return nil
}

// Rename implements [FS].
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldname, newname = filepath.Clean(oldname), filepath.Clean(newname)
	n := m.names[oldname]
	if n == nil {
		return pathErr("rename", oldname, fs.ErrNotExist)
	}
	m.change(func(names map[string]*node) {
		delete(names, oldname)
		names[newname] = n
	})
	return nil
}

// ReadDir implements [FS].
func (m *Mem) ReadDir(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	if !hasDir(m.dirs, dir) {
		return nil, pathErr("open", dir, fs.ErrNotExist)
	}
	var names []string
	for name := range m.names {
		if filepath.Dir(name) == dir {
			names = append(names, strings.TrimPrefix(name[len(dir):], string(filepath.Separator)))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Size implements [FS].
func (m *Mem) Size(name string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[filepath.Clean(name)]
	if n == nil {
		return 0, pathErr("stat", name, fs.ErrNotExist)
	}
	return int64(len(n.data)), nil
}

// SyncDir implements [FS].
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	if m.Ordered { // all directories share one journal
		m.synced, m.log = maps.Clone(m.names), nil
	}
	maps.DeleteFunc(m.synced, func(name string, _ *node) bool {
		return filepath.Dir(name) == dir && m.names[name] == nil
	})
	for name, n := range m.names {
		if filepath.Dir(name) == dir {
			m.synced[name] = n
		}
	}
	for d := range m.dirs {
		if filepath.Dir(d) == dir {
			m.dirs[d] = true
		}
	}
	return nil
}

// Lock implements [FS].
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if m.locks[name] {
		return nil, fmt.Errorf("%s is %w", name, ErrLocked)
	}
	m.locks[name] = true
	if m.names[name] == nil {
		n := &node{dirty: map[int64]bool{}}
		m.change(func(names map[string]*node) { names[name] = n })
	}
	return &memLock{m: m, name: name}, nil
}

// A memLock is a lock that is held until Close. Close is idempotent.
type memLock struct {
	once sync.Once
	m    *Mem
	name string
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.locks, l.name)
	})
	return nil
}

// resize sets the size in bytes. New bytes are zeros. The caller holds Mem.mu.
func (n *node) resize(size int64) {
	old := int64(len(n.data))
	if size < old {
		clear(n.data[size:])
		n.data = n.data[:size]
	} else {
		n.data = append(n.data, make([]byte, size-old)...)
	}
	for p := min(old, size) / PageBytes; p*PageBytes < max(old, size); p++ {
		n.dirty[p] = true
	}
}

// sync makes the content durable. It copies only the dirty pages. The caller holds Mem.mu.
func (n *node) sync() {
	if grow := len(n.data) - len(n.synced); grow > 0 {
		n.synced = append(n.synced, make([]byte, grow)...)
	}
	n.synced = n.synced[:len(n.data)]
	for p := range n.dirty {
		if lo := p * PageBytes; lo < int64(len(n.data)) {
			copy(n.synced[lo:min(lo+PageBytes, int64(len(n.data)))], n.data[lo:])
		}
	}
	clear(n.dirty)
}

// FailSync has the effect of a failed [File.Sync] of f on Linux: the data counts as
// written, so that the next Sync succeeds, but each page has reached stable storage only
// with probability keep. f must be a file of m.
func (m *Mem) FailSync(f File, r *rand.Rand, keep float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := f.(*memFile).n
	for _, p := range slices.Sorted(maps.Keys(n.dirty)) {
		lo := p * PageBytes
		hi := min(lo+PageBytes, int64(len(n.data)))
		if r.Float64() >= keep || lo >= hi {
			continue
		}
		if grow := hi - int64(len(n.synced)); grow > 0 {
			n.synced = append(n.synced, make([]byte, grow)...)
		}
		copy(n.synced[lo:hi], n.data[lo:hi])
	}
	clear(n.dirty)
}

// A memFile is an open file of a [Mem].
type memFile struct {
	m    *Mem
	n    *node
	name string
	// write reports whether the file was opened for writing
	write  bool
	closed bool
}

// lock locks f.m for the operation op. It returns an error without locking if f is closed, or if
// write is set and f was opened only for reading.
func (f *memFile) lock(op string, write bool) (unlock func(), err error) {
	f.m.mu.Lock()
	switch {
	case f.closed:
		err = pathErr(op, f.name, fs.ErrClosed)
	case write && !f.write:
		err = pathErr(op, f.name, fs.ErrPermission)
	default:
		return f.m.mu.Unlock, nil
	}
	f.m.mu.Unlock()
	return nil, err
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	unlock, err := f.lock("read", false)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	unlock, err := f.lock("write", true)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if len(p) == 0 {
		return 0, nil
	}
	end := off + int64(len(p))
	if end > int64(len(f.n.data)) {
		f.n.resize(end)
	}
	copy(f.n.data[off:], p)
	for pg := off / PageBytes; pg*PageBytes < end; pg++ {
		f.n.dirty[pg] = true
	}
	return len(p), nil
}

func (f *memFile) Truncate(size int64) error {
	unlock, err := f.lock("truncate", true)
	if err != nil {
		return err
	}
	defer unlock()
	f.n.resize(size)
	return nil
}

func (f *memFile) Size() (int64, error) {
	unlock, err := f.lock("stat", false)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return int64(len(f.n.data)), nil
}

func (f *memFile) Sync() error {
	unlock, err := f.lock("sync", false)
	if err != nil {
		return err
	}
	defer unlock()
	f.n.sync()
	return nil
}

func (f *memFile) Close() error {
	unlock, err := f.lock("close", false)
	if err != nil {
		return err
	}
	defer unlock()
	f.closed = true
	return nil
}
