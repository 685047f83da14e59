package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/internal/vfs"
)

// directory is the directory of a spool. It records changes of the names in it for the next sync,
// and repeats deletions that failed.
type directory struct {
	fs   vfs.FS
	path string
	lock io.Closer // changed by open and restore only; nil: another process has it

	// mu guards the rest. It is a leaf lock: no I/O inside it.
	mu        sync.Mutex
	changes   uint64   // of names
	synced    uint64   // of them, those on stable storage
	parents   []string // directories that lead to path and may not be on stable storage
	undeleted []string // files whose deletion failed; tried again
}

// openDirectory makes the directory if it is missing, and locks it.
func openDirectory(fsys vfs.FS, path string) (*directory, error) {
	d := &directory{fs: fsys, path: path}
	return d, d.claim()
}

// claim makes the directory if it is missing, and locks it. A lock that it holds is released first.
func (d *directory) claim() error {
	parents, err := vfs.MakeDirs(d.fs, d.path, 0o700)
	if err != nil {
		return fmt.Errorf("spool: cannot make directory %s: %w", d.path, err)
	}
	if parents == nil { // an earlier process may have had no sync
		parents = []string{filepath.Dir(filepath.Clean(d.path))}
	}
	if err := d.unlock(); err != nil {
		return err
	}
	if d.lock, err = lockDir(d.fs, d.path); err != nil {
		d.lock = nil
		return fmt.Errorf("spool: cannot open %s: %w", d.path, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parents = parents
	d.changes++
	return nil
}

// unlock releases the lock, if it is held.
func (d *directory) unlock() error {
	if d.lock == nil {
		return nil
	}
	l := d.lock
	d.lock = nil
	return l.Close()
}

// lockDir acquires the lock of a spool directory.
func lockDir(fsys vfs.FS, dir string) (io.Closer, error) {
	l, err := fsys.Lock(filepath.Join(dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, ErrLocked
	}
	return l, err
}

// file returns the path of a file.
func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

// open opens a file; flag is as in [vfs.FS].
func (d *directory) open(name string, flag int) (vfs.File, error) {
	return d.fs.OpenFile(d.file(name), flag, 0o600)
}

// has reports whether the file of g is there. Another process may have replaced it by one of the same
// name.
func (d *directory) has(g *segment) bool {
	now, _ := segmentFile(g.name)
	err := now.load(d.fs, d.path)
	return !isNotExist(err) && (err != nil || now.uuid == g.uuid)
}

func (d *directory) rename(from, to string) error {
	err := d.fs.Rename(d.file(from), d.file(to))
	if err == nil {
		d.touch()
	}
	return err
}

// remove deletes files. Failed deletions are repeated by the next call, which may name no file.
func (d *directory) remove(names ...string) {
	d.mu.Lock()
	names = append(names, d.undeleted...)
	d.undeleted = nil
	d.mu.Unlock()
	for _, name := range names {
		if err := d.fs.Remove(d.file(name)); err != nil && !isNotExist(err) {
			d.mu.Lock()
			d.undeleted = append(d.undeleted, name)
			d.mu.Unlock()
			continue
		}
		d.touch()
	}
}

// setAside renames a damaged segment file so that no Open looks at it again, and returns its new
// name, or "" if there is no such file. If it fails otherwise the file stays, and the next Open
// finds the same damage.
func (d *directory) setAside(name string) string {
	to := name + corruptSuffix
	for i := 1; i < 1000; i++ {
		if _, err := d.fs.Size(d.file(to)); isNotExist(err) {
			break
		}
		to = fmt.Sprintf("%s.%d%s", name, i, corruptSuffix)
	}
	switch err := d.rename(name, to); {
	case isNotExist(err):
		return ""
	case err != nil:
		return name
	}
	return to
}

// touch notes that a name changed.
func (d *directory) touch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
}

// sync syncs the directory, and those that lead to a new one, if names changed since the last time.
func (d *directory) sync() error {
	d.mu.Lock()
	now, ok, parents := d.changes, d.changes == d.synced, d.parents
	d.mu.Unlock()
	if ok {
		return nil
	}
	for _, dir := range append(slices.Clone(parents), d.path) {
		err := d.fs.SyncDir(dir)
		if errors.Is(err, fs.ErrPermission) && dir != d.path {
			continue // not ours to read, so it was there before
		}
		if err != nil {
			return fmt.Errorf("spool: cannot sync directory %s: %w", dir, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced, d.parents = max(d.synced, now), nil
	return nil
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// openIn opens a file of dir for reading.
func openIn(fsys vfs.FS, dir, name string) (vfs.File, error) {
	return fsys.OpenFile(filepath.Join(dir, name), os.O_RDONLY, 0)
}
