package file

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/internal/written"
)

// durable is the state of a File with Options.Sync "always". Each Write syncs before it returns,
// so all earlier data is on stable storage. The lock of the File guards it.
//
// After a failed sync the system may have dropped the pages, and another sync would succeed
// without them. Therefore data whose sync failed is written again, not synced again.
type durable struct {
	named bool     // the name of the open file is on stable storage
	dirs  []string // directories whose new entries are not on stable storage
	torn  []byte   // the beginning of the record that was cut, which is on stable storage
}

// errUnsyncable is the error of Open for a pipe or a device with Options.Sync "always".
var errUnsyncable = errors.New("it is not a regular file, and has no stable storage: leave Sync off")

// beginSyncedLocked syncs the file once, so that Open fails if that is impossible, rather than the
// first Write.
func (f *File) beginSyncedLocked() error {
	if !f.regular {
		return errUnsyncable
	}
	return f.syncNamedLocked()
}

// syncNamedLocked syncs the open file and, once for each file, the directories of its path. If the
// entry of the file in its directory were not synced, a loss of power could remove the file although
// its content was synced. The error of a file system that cannot sync directories is ignored.
func (f *File) syncNamedLocked() error {
	if err := f.h.Sync(); err != nil {
		return vfs.Cause(err)
	}
	if f.durable.named {
		return nil
	}
	for _, dir := range append(f.durable.dirs, filepath.Dir(resolve(f.path))) {
		if err := f.sys.syncDir(dir); err != nil && !written.CannotSync(err) {
			return fmt.Errorf("directory %q: %w", dir, vfs.Cause(err))
		}
	}
	f.durable.named, f.durable.dirs = true, nil
	return nil
}

// settleLocked syncs the first n bytes of bufs, which were just appended. If that fails, they do
// not count, and the caller must write them again. If they began in the middle of a record,
// they are then written on a new line.
func (f *File) settleLocked(bufs [][]byte, n int64, wasCut bool) error {
	d := &f.durable
	if err := f.syncNamedLocked(); err != nil {
		f.lineEnd = []byte{'\n'} // a line begins after it, whatever the disk contains there
		if f.cut = wasCut; wasCut {
			f.lineEnd = append(f.lineEnd, d.torn...)
		}
		return fmt.Errorf("file: cannot sync %q: %w", f.name, err)
	}
	if !f.cut {
		d.torn = nil
		return nil
	}
	// Keep the beginning of the cut record: if syncing the rest of it fails, it is written again as a
	// whole, on a new line.
	last := bytes.Join(bufs, nil)[:n]
	if end := bytes.LastIndexByte(last, '\n'); end >= 0 {
		d.torn, last = nil, last[end+1:]
	}
	d.torn = append(d.torn, last...)
	return nil
}
