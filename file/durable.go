package file

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/forebay-log/forebay/internal/written"
)

// durable is what a File knows of stable storage, where Options.Sync is "always". Each
// Write syncs before it returns, so all that was written before it is safe. Its File's
// lock guards it.
//
// After a failed sync the system may have dropped the pages, and another sync succeeds
// without them. So what was not synced at once is never synced again: it is written again.
type durable struct {
	named bool     // the name of the file that is open is on stable storage
	dirs  []string // that have a new directory in them, whose names are not
	torn  []byte   // the beginning of the record that was cut, which is on stable storage
}

var errUnsyncable = errors.New("it is not a regular file, and has no stable storage: leave Sync off")

// beginSyncedLocked finds out at once whether the file can be synced.
func (f *File) beginSyncedLocked() error {
	if !f.regular {
		return errUnsyncable
	}
	return f.syncNamedLocked()
}

// syncNamedLocked puts the file that is open on stable storage, and the names that lead
// to it.
func (f *File) syncNamedLocked() error {
	if err := f.h.Sync(); err != nil {
		return cause(err)
	}
	if f.durable.named {
		return nil
	}
	for _, dir := range append(f.durable.dirs, filepath.Dir(resolve(f.path))) {
		if err := f.sys.syncDir(dir); err != nil && !written.CannotSync(err) {
			return fmt.Errorf("directory %q: %w", dir, cause(err))
		}
	}
	f.durable.named, f.durable.dirs = true, nil
	return nil
}

// settleLocked syncs the first n bytes of bufs, which were just appended. If that fails
// they do not count: the caller brings them again. They are written on a new line then, if
// they began within a record behind its beginning.
func (f *File) settleLocked(bufs [][]byte, n int64, wasCut bool) error {
	d := &f.durable
	if err := f.syncNamedLocked(); err != nil {
		f.before = []byte{'\n'} // whatever the disk has there, a line begins behind it
		if f.cut = wasCut; wasCut {
			f.before = append(f.before, d.torn...)
		}
		return fmt.Errorf("file: cannot sync %q: %w", f.name, err)
	}
	if !f.cut {
		d.torn = nil
		return nil
	}
	last := bytes.Join(bufs, nil)[:n]
	if end := bytes.LastIndexByte(last, '\n'); end >= 0 {
		d.torn, last = nil, last[end+1:]
	}
	d.torn = append(d.torn, last...)
	return nil
}
