package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"

	"github.com/gofrs/flock"
)

// OS is the real file system. Tests of whole programs replace it with a [Disk]; open files
// continue to use the system they were opened on.
var OS System = osFS{}

// osFS implements System with the functions of package os.
type osFS struct{}

// An osFile is a plain file of an osFS.
type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (osFS) MkdirAll(dir string, perm fs.FileMode) error { return os.MkdirAll(dir, perm) }
func (osFS) Remove(name string) error                    { return os.Remove(name) }
func (osFS) Rename(oldname, newname string) error        { return os.Rename(oldname, newname) }

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, flag|plainOnly, perm)
	if err != nil {
		if st, statErr := os.Lstat(name); statErr == nil && !st.Mode().IsRegular() && !errors.Is(err, fs.ErrExist) {
			return nil, notRegular("open", name)
		}
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = notRegular("open", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return osFile{f}, nil
}

func (osFS) OpenAppend(name string, flag int, perm fs.FileMode) (Appender, error) {
	f, err := OpenAppend(name, flag, perm)
	if err != nil {
		return nil, err // a nil *os.File would become a non-nil Appender
	}
	return f, nil
}

// OpenAppend opens a file of any kind for appending, like os.OpenFile, but does not wait for the
// reader of a named pipe. If the pipe has no reader, the error wraps ErrNoReader. Writes to the
// pipe block as usual while its buffer is full.
func OpenAppend(name string, flag int, perm fs.FileMode) (*os.File, error) {
	flag |= os.O_APPEND
	st, err := os.Stat(name)
	pipe := err == nil && st.Mode()&fs.ModeNamedPipe != 0
	if pipe {
		flag |= withoutWaiting
	}
	f, err := os.OpenFile(name, flag, perm)
	if pipe && errors.Is(err, noReader) {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrNoReader}
	}
	return f, err
}

func notRegular(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: ErrNotRegular}
}

func (osFS) ReadDir(dir string) ([]string, error) {
	es, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(es))
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names, nil
}

func (osFS) Size(name string) (int64, error) {
	st, err := os.Lstat(name)
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (osFS) SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows cannot flush directories; NTFS journals names
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

func (osFS) Lock(name string) (io.Closer, error) {
	l := flock.New(name, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s is %w by %s", name, ErrLocked, Holder(name))
	}
	SetHolder(name)
	return l, nil
}

// SetHolder writes the id of this process, which holds the lock, to the lock file. The id is only
// used in messages, so an error is ignored.
func SetHolder(name string) {
	_ = os.WriteFile(name, strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o600)
}

// Holder describes the process that holds the lock with that name. The result is only used in
// messages, because the file may contain the id of an earlier process.
func Holder(name string) string {
	b, err := os.ReadFile(name)
	if err != nil || len(b) > 20 {
		return "another process"
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	switch {
	case err != nil || pid <= 0: // the file does not contain the id of a process
		return "another process"
	case pid == os.Getpid():
		return fmt.Sprintf("this process (%d)", pid)
	}
	return fmt.Sprintf("another process (%d)", pid)
}
