package file

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/internal/written"
)

// durable is the state of a File with Options.Sync "always". Each Write syncs before it returns, so
// all earlier data is on stable storage. The lock of the File guards these fields.
//
// If a sync fails, the system may have dropped the pages, and another sync would succeed without
// them. Therefore data whose sync has failed is written again before the next sync.
type durable struct {
	named bool     // the name of the open file is on stable storage
	dirs  []string // directories with new entries that are not on stable storage
	torn  []byte   // beginning of an incomplete last record; it is on stable storage
}

// errUnsyncable is the error of Open for a file that cannot be synced, such as a pipe, with
// Options.Sync "always".
var errUnsyncable = errors.New("it is not a regular file, and has no stable storage: leave Sync off")

// beginSyncedLocked syncs the file once when it is opened, so that Open, and not the first Write,
// returns the error if the file cannot be synced.
func (f *File) beginSyncedLocked() error {
	if !f.regular {
		return errUnsyncable
	}
	return f.syncNamedLocked()
}

// syncNamedLocked syncs the open file and, once for each file, the directories of its path. If only
// the content were synced, a loss of power could remove the directory entry of the file. If the
// file system cannot sync directories, the error is ignored.
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

// settleLocked syncs the first n bytes of bufs, which were just appended. If the sync fails,
// Write must not report these bytes as written, and the caller must write them again. wasCut
// reports whether these bytes begin within a record. If they do and the sync fails, the whole
// record is written again, on a new line.
func (f *File) settleLocked(bufs [][]byte, n int64, wasCut bool) error {
	d := &f.durable
	if err := f.syncNamedLocked(); err != nil {
		f.lineEnd = []byte{'\n'} // ends the line, regardless of the content of the disk
		if f.cut = wasCut; wasCut {
			f.lineEnd = append(f.lineEnd, d.torn...)
		}
		return fmt.Errorf("file: cannot sync %q: %w", f.name, err)
	}
	if !f.cut {
		d.torn = nil
		return nil
	}
	// Keep the beginning of the incomplete record. If syncing its rest fails, the whole record is
	// written again, on a new line.
	last := bytes.Join(bufs, nil)[:n]
	if end := bytes.LastIndexByte(last, '\n'); end >= 0 {
		d.torn, last = nil, last[end+1:]
	}
	d.torn = append(d.torn, last...)
	return nil
}
