// Package state stores the state of an input for the next process, such as the position up to which
// data was delivered. The state is a small file in a directory that only one process uses at a
// time.
package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/internal/written"
)

// ErrInUse is wrapped by the error of Open if another process has locked the directory.
var ErrInUse = errors.New("the directory is in use: wait until the other process has ended, or stop it; use a separate directory only for a second instance")

// A Dir is a locked directory. It is not safe for concurrent use.
type Dir struct {
	fs   vfs.FS
	path string // path of the file in the directory
	lock io.Closer

	f   vfs.File // file to which Append writes; nil if it is not open
	end int64    // length of the file; 0 if Save must precede the next Append
}

// Open locks dir, and creates it if it does not exist. name is the name of the file in dir. If
// another process has locked dir, the error of Open wraps ErrInUse.
func Open(dir, name string) (*Dir, error) { return open(vfs.OS, dir, name) }

// open implements Open for any file system.
func open(fsys vfs.FS, dir, name string) (*Dir, error) {
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return nil, vfs.DirError(dir, err)
	}
	lock, err := fsys.Lock(filepath.Join(dir, "lock"))
	if errors.Is(err, vfs.ErrLocked) {
		err = fmt.Errorf("%w: %w", err, ErrInUse)
	}
	if err != nil {
		return nil, err
	}
	d := &Dir{fs: fsys, path: filepath.Join(dir, name), lock: lock}
	if _, err := fsys.Size(d.path); err != nil {
		if err := syncNames(fsys, dir); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// syncNames syncs the parent directories of dir, as far as permissions allow. Without this, a new
// directory could disappear in a power loss.
func syncNames(fsys vfs.FS, dir string) error {
	for dir, err := filepath.Abs(dir); ; dir = filepath.Dir(dir) {
		if err == nil {
			err = syncDir(fsys, filepath.Dir(dir))
		}
		switch {
		case err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS):
			return err
		case filepath.Dir(dir) == dir:
			return nil
		}
	}
}

// Path returns the path of the file.
func (d *Dir) Path() string { return d.path }

// Load returns the stored text. If no text is stored, it returns fs.ErrNotExist.
func (d *Dir) Load() ([]byte, error) {
	f, err := d.fs.OpenFile(d.path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, size))
}

// SetAside renames a damaged file. The new name ends in .bad.
func (d *Dir) SetAside() error { return d.fs.Rename(d.path, d.path+".bad") }

// Save replaces the stored text. If a crash or a power loss interrupts Save, the file contains
// either the old or the new text. After Save has returned nil, the new text survives a power loss.
func (d *Dir) Save(text []byte) error {
	d.shut()
	err := replace(d.fs, d.path, text)
	if err == nil {
		d.end = int64(len(text))
	}
	return err
}

// Append appends text to the file. After Append has returned nil, the text survives the end of the
// process. After the next Sync it also survives a power loss; before that, a power loss may leave a
// part of the text. After an error, Save must be called before Append.
func (d *Dir) Append(text []byte) error {
	if d.end == 0 {
		return errors.New("state: append without a save")
	}
	if d.f == nil {
		f, err := d.fs.OpenFile(d.path, os.O_RDWR, 0)
		if err != nil {
			return d.failed(err)
		}
		d.f = f
	}
	_, err := d.f.WriteAt(text, d.end)
	d.end += int64(len(text))
	return d.failed(err)
}

// Sync syncs the appended text to stable storage. After an error, Save must be called before
// Append.
func (d *Dir) Sync() error {
	if d.f == nil {
		return nil
	}
	return d.failed(d.f.Sync())
}

// failed returns err. If err is not nil, it also closes the file, so that Save must precede the
// next Append.
func (d *Dir) failed(err error) error {
	if err != nil {
		d.shut()
	}
	return err
}

// shut closes the file, so that Save must precede the next Append.
func (d *Dir) shut() {
	if d.f != nil {
		d.f.Close()
	}
	d.f, d.end = nil, 0
}

// Replace replaces another file in the directory of a Dir, with the same guarantees as [Dir.Save].
// The caller must have locked the directory.
func Replace(path string, text []byte) error { return replace(vfs.OS, path, text) }

// replace writes text to a new file, syncs it and renames it to path.
func replace(fsys vfs.FS, path string, text []byte) error {
	f, err := fsys.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	return syncDir(fsys, filepath.Dir(path))
}

// syncDir syncs the names of the files in dir to stable storage. If the system cannot sync
// directories, it does nothing.
func syncDir(fsys vfs.FS, dir string) error {
	if err := fsys.SyncDir(dir); !written.CannotSync(err) {
		return err
	}
	return nil
}

// Close closes the file and unlocks the directory. It does not sync the file.
func (d *Dir) Close() error {
	d.shut()
	return d.lock.Close()
}
