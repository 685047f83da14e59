package file

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/vfs"
)

// rotateRetry is the delay before the next attempt after a failed rotation. Until that attempt, the
// file may exceed its limit, so that no records are lost.
const rotateRetry = time.Minute

// errIrregular is the error for a file that should be rotated but is not a regular file. It may be
// a pipe, a device or a directory.
var errIrregular = errors.New("it is not a regular file, so it cannot be rotated: leave rotation off")

// rotator decides when to rotate a file. The lock of the File guards it.
type rotator struct {
	old oldFiles
	// began is any time within the period (see Options.RotateEvery) to which the open file belongs.
	began time.Time
	// failed is the time of the last attempt to rotate. It is zero if that attempt succeeded.
	failed time.Time
}

// due returns the reason to rotate a file of size bytes before n more bytes are written, or "". The
// reason becomes part of the name of the old file. An empty file is never rotated, so a record
// larger than RotateBytes gets a separate file.
func (r *rotator) due(o *Options, size int64, n int) string {
	reason := ""
	switch {
	case o.RotateBytes > 0 && size+int64(n) > o.RotateBytes:
		reason = "size"
	case o.RotateEvery > 0 && period(time.Now(), o.RotateEvery) != period(r.began, o.RotateEvery):
		reason = "time"
	}
	if reason != "" && !r.failed.IsZero() && time.Since(r.failed) < rotateRetry {
		return "" // the last attempt has just failed
	}
	return reason
}

// Room returns the number of bytes that the next Write may have without exceeding
// Options.RotateBytes. That is the free space of the open file or, if the file is full, the size of
// a whole file. Without RotateBytes, and while files cannot be rotated, Room returns math.MaxInt64.
// A deliver.Output calls Room, and then writes only as many records as fit into the file.
func (f *File) Room() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &f.rotator
	if f.o.RotateBytes == 0 || !r.failed.IsZero() && time.Since(r.failed) < rotateRetry {
		return math.MaxInt64
	}
	room := f.o.RotateBytes - f.size - int64(len(f.lineEnd))
	if room <= 0 && !f.cut {
		return f.o.RotateBytes
	}
	return max(room, 0)
}

// period returns the beginning of the period that contains t, in Unix ns. Periods are counted in
// UTC, and the parameter every is their length.
func period(t time.Time, every time.Duration) int64 {
	// Time.Truncate counts from the year 1, which began on a Monday. Therefore weeks begin on
	// Mondays.
	return t.UTC().Truncate(every).UnixNano()
}

// rotateLocked renames the file and opens a new one. If renaming fails, it reports the error to
// OnError and opens the old file again. It returns an error only if no file can be opened.
func (f *File) rotateLocked(reason string) error {
	f.checkPathLocked(time.Now())
	switch {
	case f.h == nil:
		return f.openAgainLocked()
	case f.size == 0 || f.watched.pathState == moved:
		return nil
	}
	// The file is closed before it is renamed, because Windows cannot rename open files, and
	// because the renamed file may be compressed at once.
	unclaim(f.h)
	releaseReserved := f.releaseReservedLocked()
	old, err := f.h.Stat()
	if closed := f.h.Close(); err == nil {
		err = closed
	}
	f.h = nil
	if err == nil {
		err = replace(f.path, old, reason)
	}
	releaseReserved()
	if err != nil {
		first := f.rotator.failed.IsZero()
		f.rotator.failed = time.Now()
		if first {
			f.events.Post(fmt.Errorf("file: cannot rotate %q, continuing in the old file: %w", f.name, vfs.Cause(err)))
		}
	} else {
		f.rotator.failed = time.Time{}
		f.rotator.old.tidy()
	}
	// If the rename failed, openLocked opens the old file again.
	began := f.rotator.began
	if err := f.openLocked(); err != nil {
		return fmt.Errorf("file: cannot open %q after rotating it: %w", f.name, err)
	}
	if !f.rotator.failed.IsZero() {
		f.rotator.began = began // the file is still the old one, whose period has ended
	}
	return nil
}

// replace renames the file at path and creates an empty file with the permission and the owner of
// old. If another program has moved or deleted the file, replace does nothing. After an error, the
// file is at path again.
func replace(path string, old fs.FileInfo, reason string) error {
	name := oldName(path, reason)
	if err := os.Rename(path, name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	h, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, old.Mode().Perm())
	if err == nil {
		err = resemble(h, old)
		h.Close()
		if err != nil {
			os.Remove(path)
		}
	}
	if err != nil {
		return errors.Join(err, os.Rename(name, path))
	}
	return nil
}

// resemble gives h the permission of old, regardless of the umask, and the owner of old. If the
// process may not change the owner, h keeps its owner.
func resemble(h *os.File, old fs.FileInfo) error {
	_ = chown(h, old)
	return h.Chmod(old.Mode().Perm())
}

// oldTime is the format of the time in the name of an old file. It has microseconds, because two
// files may be rotated in the same millisecond.
const oldTime = "2006-01-02T15-04-05.000000"

// oldName returns an unused name for the file at path: app-TIME-REASON.log for app.log.
func oldName(path, reason string) string {
	ext := filepath.Ext(path)
	for t := time.Now().UTC(); ; t = t.Add(time.Microsecond) {
		name := fmt.Sprintf("%s-%s-%s%s", strings.TrimSuffix(path, ext), t.Format(oldTime), reason, ext)
		if !slices.ContainsFunc(copySuffixes, func(suffix string) bool { return exists(name + suffix) }) {
			return name
		}
	}
}

// exists reports whether there is a file of any kind at path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Rotate rotates the file now, regardless of its size and age. It does nothing if the file is
// empty. It returns an error if the File was opened without rotation, if it is closed, or if its
// last record is incomplete.
func (f *File) Rotate() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed || f.h == nil:
		return fmt.Errorf("file: cannot rotate %q: it is not open", f.name)
	case !f.o.rotates():
		return fmt.Errorf("file: cannot rotate %q: set RotateBytes or RotateEvery when opening it", f.name)
	case f.cut:
		return fmt.Errorf("file: cannot rotate %q: its last record is not complete yet", f.name)
	case f.size == 0:
		return nil
	}
	f.rotator.failed = time.Time{}
	if err := f.rotateLocked("manual"); err != nil {
		return err
	}
	if !f.rotator.failed.IsZero() {
		return fmt.Errorf("file: cannot rotate %q: the reason was reported to OnError", f.name)
	}
	return nil
}
