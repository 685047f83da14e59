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

// rotateRetry is the delay before another attempt after a failed rotation. Until then the file
// grows beyond its limit, because that is better than losing records.
const rotateRetry = time.Minute

// errIrregular is the error for a pipe, a device or a directory where a file that rotates is needed.
var errIrregular = errors.New("it is not a regular file, so it cannot be rotated: leave rotation off")

// rotator decides when to rotate a file. The lock of the File guards it.
type rotator struct {
	old    oldFiles
	began  time.Time // a time in the period of the open file, for Options.RotateEvery
	failed time.Time // last failed attempt to rotate; zero: the last one succeeded
}

// due returns the reason to rotate a file of size bytes before writing n more, or "". The reason is
// part of the name of the old file. An empty file is never rotated, so a record larger than
// RotateBytes gets a file for itself.
func (r *rotator) due(o *Options, size int64, n int) string {
	reason := ""
	switch {
	case o.RotateBytes > 0 && size+int64(n) > o.RotateBytes:
		reason = "size"
	case o.RotateEvery > 0 && period(time.Now(), o.RotateEvery) != period(r.began, o.RotateEvery):
		reason = "time"
	}
	if reason != "" && !r.failed.IsZero() && time.Since(r.failed) < rotateRetry {
		return "" // it has just failed
	}
	return reason
}

// Room returns the number of bytes that the next Write may contain without making a file exceed
// Options.RotateBytes: the remaining bytes of the open file or, once that is full, of a whole file.
// Without RotateBytes, and while files cannot be rotated, it returns math.MaxInt64. A
// deliver.Output calls it, so that it writes only records for which the file has room and
// RotateBytes is not exceeded.
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

// period returns the start of the period of length every, in UTC, that contains t.
func period(t time.Time, every time.Duration) int64 {
	// Time.Truncate counts from the year 1, a Monday: weeks begin on Mondays.
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
	// Closed first: the old file is compressed from now on, and Windows does not
	// rename open files.
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
	// If renaming failed, this opens the old file again, and the period continues.
	began := f.rotator.began
	if err := f.openLocked(); err != nil {
		return fmt.Errorf("file: cannot open %q after rotating it: %w", f.name, err)
	}
	if !f.rotator.failed.IsZero() {
		f.rotator.began = began // still the old file: its period is over
	}
	return nil
}

// replace renames the file at path and creates an empty one with the permission and the owner of
// old. It renames nothing if another program has moved or deleted the file. After an error the file is
// at path again.
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

// resemble gives h the permission of old, regardless of the umask, and its owner. Only the superuser
// can change the owner; otherwise the owner of the process remains.
func resemble(h *os.File, old fs.FileInfo) error {
	_ = chown(h, old)
	return h.Chmod(old.Mode().Perm())
}

// oldTime is the form of the time in the name of an old file. With milliseconds, two files of one
// millisecond would have one name.
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
