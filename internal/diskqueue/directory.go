package diskqueue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/spool"
)

// directory is the directory of a spool. It counts changes of file names, so that a sync of the
// spool syncs the directory only if necessary.
//
// Content and name of a file reach stable storage separately. A new segment survives a loss of
// power only if its content, its name, and the names of its new parent directories are synced:
//
//	/var/lib ─▶ shop ─▶ spool ─▶ 00000007.seg
//	 parents    parents   path     content, synced by the appender or the syncer
type directory struct {
	fs   vfs.FS
	path string
	lock io.Closer // lock of the directory; if nil, another process may use the directory. Changed only by Open, restore and Close.

	// mu guards the fields below. It is a leaf lock: no I/O is done with it held.
	mu      sync.Mutex
	changes uint64   // number of changes of names so far
	synced  uint64   // how many of these changes are on stable storage
	parents []string // directories with an entry that leads to path and may not be on stable storage
}

// claim creates the directory if it is missing, and locks it. If d already has a lock, claim
// releases it first, because the locked directory may have been moved.
func (d *directory) claim() error {
	parents, err := vfs.MakeDirs(d.fs, d.path, 0o700)
	if err != nil {
		return fmt.Errorf("spool: %w", vfs.DirError(d.path, err))
	}
	if parents == nil { // an earlier process may have made the directory without syncing its name
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
	// The next sync covers the directory and its new parents, even if no name changes until then.
	d.changes++
	return nil
}

// unlock releases the lock, if d has it. After that, Append fails until claim succeeds.
func (d *directory) unlock() error {
	if d.lock == nil {
		return nil
	}
	l := d.lock
	d.lock = nil
	return l.Close()
}

// lockDir acquires the lock of a spool directory without waiting. The kernel releases the lock when
// the process ends in any way.
func lockDir(fsys vfs.FS, dir string) (io.Closer, error) {
	l, err := fsys.Lock(filepath.Join(dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("%w: %w", err, spool.ErrLocked)
	}
	return l, err
}

// file returns the path of a file.
func (d *directory) file(name string) string { return filepath.Join(d.path, name) }

// open opens the file with that name. flag is the flag of [vfs.FS.OpenFile].
func (d *directory) open(name string, flag int) (vfs.File, error) {
	return d.fs.OpenFile(d.file(name), flag, 0o600)
}

// has reports whether the file of g exists and has the uuid of g. Another process may have replaced
// the directory and created a segment of the same name. If the file cannot be read, or was set
// aside, only its existence is checked.
func (d *directory) has(g *segment) bool {
	now, _ := segmentFile(g.name)
	err := now.load(d)
	return !isNotExist(err) && (err != nil || now.status == aside || now.uuid == g.uuid)
}

// rename renames a file and counts the change. Until the next sync, a loss of power may undo it.
func (d *directory) rename(from, to string) error {
	err := d.fs.Rename(d.file(from), d.file(to))
	if err == nil {
		d.touch()
	}
	return err
}

// remove deletes a file, and reports whether no file of that name is left. Some systems cannot
// delete a file that another program reads.
func (d *directory) remove(name string) bool {
	err := d.fs.Remove(d.file(name))
	if err == nil {
		d.touch()
	}
	return err == nil || isNotExist(err)
}

// setAside renames a damaged segment file, so that a later Open does not read it. It returns the
// new name, or "" if there is no such file. If the rename fails, the file keeps its name, and the
// next Open finds the damage again. It does not replace an existing file with the new name. Such a
// file exists if an operator has copied an earlier damaged file back to its original name.
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

// touch counts a change of a name in the directory.
func (d *directory) touch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes++
}

// sync syncs the names in the directory and the names of its new parent directories, if any changed
// since the last sync. Changes during a sync are left to the next sync.
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
			continue // the process may not read this directory, so an earlier process created it
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

// isNotExist reports whether err is the error for a file that does not exist.
func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
