// Package state stores the state that an input passes to its next process, such as the delivered
// position. The state is one small file in a directory that one process uses at a time.
package state

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/internal/written"
)

// ErrInUse reports that another process has locked the directory.
var ErrInUse = errors.New("another forebay uses it; use a separate directory")

// A Dir is a locked directory. It is not for concurrent use.
type Dir struct {
	fs   vfs.FS
	path string // of the file
	lock io.Closer

	f   vfs.File // for Append; nil: not open
	end int64    // length of the saved text; 0: Append is not allowed
}

// Open locks dir for the file of that name, and creates dir if it does not exist. It returns
// ErrInUse if another process has locked dir.
func Open(dir, name string) (*Dir, error) { return open(vfs.OS, dir, name) }

func open(fsys vfs.FS, dir, name string) (*Dir, error) {
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := fsys.Lock(filepath.Join(dir, "lock"))
	if errors.Is(err, vfs.ErrLocked) {
		err = ErrInUse
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

// syncNames syncs the directories that lead to dir, as far as this user may. Otherwise a loss of
// power could remove a new directory with all files in it.
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

// Load returns the stored text, or fs.ErrNotExist if none was stored yet.
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

// SetAside renames the file, which is damaged, to one with .bad at its end.
func (d *Dir) SetAside() error { return d.fs.Rename(d.path, d.path+".bad") }

// Save replaces the stored text. After a crash or a loss of power the file has the old or the new
// text; after Save has returned nil, the new one.
func (d *Dir) Save(text []byte) error {
	d.shut()
	err := replace(d.fs, d.path, text)
	if err == nil {
		d.end = int64(len(text))
	}
	return err
}

// Append adds text to the text of the last Save. Once Append has returned nil, the text survives
// the process, and after a Sync also a loss of power. Before that, only a part of it may be stored,
// and nothing after that part. After an error, Save must be called before the next Append.
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

// Sync writes the appended text to stable storage. Its errors are those of Append.
func (d *Dir) Sync() error {
	if d.f == nil {
		return nil
	}
	return d.failed(d.f.Sync())
}

func (d *Dir) failed(err error) error {
	if err != nil {
		d.shut()
	}
	return err
}

// shut ends appending.
func (d *Dir) shut() {
	if d.f != nil {
		d.f.Close()
	}
	d.f, d.end = nil, 0
}

// Replace writes another file in the directory of a Dir, as [Dir.Save] does. The caller has locked
// the directory.
func Replace(path string, text []byte) error { return replace(vfs.OS, path, text) }

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

// syncDir puts the names in dir on stable storage, where a system can.
func syncDir(fsys vfs.FS, dir string) error {
	if err := fsys.SyncDir(dir); !written.CannotSync(err) {
		return err
	}
	return nil
}

// Close unlocks the directory.
func (d *Dir) Close() error {
	d.shut()
	return d.lock.Close()
}
