package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// ErrKilled is returned by every operation of a [Faulty] whose process was killed.
var ErrKilled = errors.New("vfs: process killed")

// Op names an operation of [FS] or [File].
type Op string

// The operations. Close is not one of them, because it never fails.
const (
	OpMkdir    Op = "mkdir"
	OpOpen     Op = "open"
	OpCreate   Op = "create" // OpenFile with os.O_CREATE
	OpRemove   Op = "remove"
	OpRename   Op = "rename"
	OpReadDir  Op = "readdir"
	OpSize     Op = "size"
	OpSyncDir  Op = "syncdir"
	OpLock     Op = "lock"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync"
)

// A Call describes an operation before it runs.
type Call struct {
	Op   Op
	Name string // as passed by the caller; the old name for OpRename
	Len  int    // bytes to read or write; 0 for other operations
}

// A Faulty makes selected operations of another file system fail.
type Faulty struct {
	fs FS

	// mu guards the fields below. The hook runs with it locked, one call at a time.
	mu     sync.Mutex
	hook   func(Call) (n int, err error)
	killed bool
	locks  []io.Closer
}

// NewFaulty returns a Faulty over fs. hook is called before every operation and must not use the
// Faulty. If it returns a nil error, the operation runs. If it returns an error, the operation
// returns that error and does not run, except that a write stores the first n bytes of its data. If
// the error is [ErrKilled], the process also counts as killed, as after [Faulty.Kill]. A nil hook
// fails no operation.
func NewFaulty(fs FS, hook func(Call) (n int, err error)) *Faulty {
	return &Faulty{fs: fs, hook: hook}
}

// SetHook replaces the hook for all later operations.
func (f *Faulty) SetHook(hook func(Call) (n int, err error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// Kill simulates the death of the process that uses f: every later operation returns [ErrKilled],
// and the locks of the process are released. Written data is kept.
func (f *Faulty) Kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killLocked()
}

// killLocked implements Kill. The caller holds f.mu.
func (f *Faulty) killLocked() {
	f.killed = true
	for _, l := range f.locks {
		_ = l.Close()
	}
	f.locks = nil
}

// NoSpace returns a hook that allows writes of capacity bytes in total. A write that exceeds the
// rest stores as many bytes as possible and fails with ENOSPC. Each call of the function free
// allows n more bytes.
func NoSpace(capacity int) (hook func(Call) (int, error), free func(n int)) {
	var mu sync.Mutex
	available := capacity
	return func(c Call) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if c.Op != OpWrite {
				return 0, nil
			}
			if c.Len <= available {
				available -= c.Len
				return 0, nil
			}
			n := available
			available = 0
			return n, pathErr("write", c.Name, syscall.ENOSPC)
		}, func(n int) {
			mu.Lock()
			defer mu.Unlock()
			available += n
		}
}

// FailOn returns a hook that fails every operation in ops with err.
func FailOn(err error, ops ...Op) func(Call) (int, error) {
	return func(c Call) (int, error) {
		for _, op := range ops {
			if c.Op == op {
				return 0, pathErr(string(op), c.Name, err)
			}
		}
		return 0, nil
	}
}

// beforeCall returns the result of the hook for c, or ErrKilled if the process was killed. n is
// used for writes only.
func (f *Faulty) beforeCall(c Call) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.killed {
		return 0, ErrKilled
	}
	if f.hook == nil {
		return 0, nil
	}
	n, err = f.hook(c)
	if errors.Is(err, ErrKilled) {
		f.killLocked()
	}
	return n, err
}

// MkdirAll implements [FS].
func (f *Faulty) MkdirAll(dir string, perm fs.FileMode) error {
	if _, err := f.beforeCall(Call{Op: OpMkdir, Name: dir}); err != nil {
		return err
	}
	return f.fs.MkdirAll(dir, perm)
}

// OpenFile implements [FS].
func (f *Faulty) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	op := OpOpen
	if flag&os.O_CREATE != 0 {
		op = OpCreate
	}
	if _, err := f.beforeCall(Call{Op: op, Name: name}); err != nil {
		return nil, err
	}
	file, err := f.fs.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f: f, file: file, name: name}, nil
}

// Remove implements [FS].
func (f *Faulty) Remove(name string) error {
	if _, err := f.beforeCall(Call{Op: OpRemove, Name: name}); err != nil {
		return err
	}
	return f.fs.Remove(name)
}

// Rename implements [FS].
func (f *Faulty) Rename(oldname, newname string) error {
	if _, err := f.beforeCall(Call{Op: OpRename, Name: oldname}); err != nil {
		return err
	}
	return f.fs.Rename(oldname, newname)
}

// ReadDir implements [FS].
func (f *Faulty) ReadDir(dir string) ([]string, error) {
	if _, err := f.beforeCall(Call{Op: OpReadDir, Name: dir}); err != nil {
		return nil, err
	}
	return f.fs.ReadDir(dir)
}

// Size implements [FS].
func (f *Faulty) Size(name string) (int64, error) {
	if _, err := f.beforeCall(Call{Op: OpSize, Name: name}); err != nil {
		return 0, err
	}
	return f.fs.Size(name)
}

// SyncDir implements [FS].
func (f *Faulty) SyncDir(dir string) error {
	if _, err := f.beforeCall(Call{Op: OpSyncDir, Name: dir}); err != nil {
		return err
	}
	return f.fs.SyncDir(dir)
}

// Lock implements [FS].
func (f *Faulty) Lock(name string) (io.Closer, error) {
	if _, err := f.beforeCall(Call{Op: OpLock, Name: name}); err != nil {
		return nil, err
	}
	l, err := f.fs.Lock(name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locks = append(f.locks, l)
	return l, nil
}

// A faultyFile is an open file of a [Faulty].
type faultyFile struct {
	f    *Faulty
	file File
	name string
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if _, err := f.f.beforeCall(Call{Op: OpRead, Name: f.name, Len: len(p)}); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.beforeCall(Call{Op: OpWrite, Name: f.name, Len: len(p)})
	if err != nil {
		n, werr := f.file.WriteAt(p[:min(n, len(p))], off)
		if werr != nil {
			return n, werr
		}
		return n, err
	}
	return f.file.WriteAt(p, off)
}

func (f *faultyFile) Truncate(size int64) error {
	if _, err := f.f.beforeCall(Call{Op: OpTruncate, Name: f.name}); err != nil {
		return err
	}
	return f.file.Truncate(size)
}

func (f *faultyFile) Size() (int64, error) {
	if _, err := f.f.beforeCall(Call{Op: OpSize, Name: f.name}); err != nil {
		return 0, err
	}
	return f.file.Size()
}

func (f *faultyFile) Sync() error {
	if _, err := f.f.beforeCall(Call{Op: OpSync, Name: f.name}); err != nil {
		return err
	}
	return f.file.Sync()
}

// Close always closes the file, so that a killed process leaks no file descriptor.
func (f *faultyFile) Close() error { return f.file.Close() }
