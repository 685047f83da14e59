package file

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/DeRuina/timberjack"
)

// rotateRetry is the delay before another attempt after a failed rotation. Until then the file
// grows beyond its limit, because that is better than losing records.
const rotateRetry = time.Minute

var errIrregular = errors.New("it is not a regular file, so it cannot be rotated: leave rotation off")

// rotator decides when to rotate a file and performs the rotation. The lock of the File guards
// it.
type rotator struct {
	// tj renames, compresses and removes files. It has a separate descriptor of the live
	// file, to which it never writes. It is nil after Reopen, until a rotation.
	tj     *timberjack.Logger
	ended  chan struct{} // closed when the previous tj has finished compressing; nil: there is none
	began  time.Time     // a time in the period of the file
	failed time.Time     // last failed attempt; zero: the last one succeeded
}

// startLocked starts the compression and removal of files left by an earlier process.
func (f *File) startLocked() error {
	const day = 24 * time.Hour
	f.rotator.tj = f.mover()
	f.rotator.tj.MaxBackups = f.o.KeepFiles
	f.rotator.tj.MaxAge = int((f.o.KeepFor + day - 1) / day)
	if f.o.Compress != "" {
		f.rotator.tj.Compression = f.o.Compress
	}
	// An empty write opens the file and starts the housekeeping. If timberjack cannot
	// open the file, however, it renames it, and our open file would be compressed and
	// removed.
	_, _ = f.rotator.tj.Write(nil)
	ours, err := f.h.Stat()
	if err != nil {
		return cause(err)
	}
	if now, err := os.Stat(f.path); err != nil || !os.SameFile(ours, now) {
		unclaim(f.h)
		f.h.Close() // nothing was written through it yet
		f.h = nil
		return f.openLocked()
	}
	return nil
}

// mover returns a timberjack.Logger that renames files and keeps old ones unchanged.
func (f *File) mover() *timberjack.Logger {
	return &timberjack.Logger{
		Filename:    f.path,
		MaxSize:     math.MaxInt32, // MiB: it must not rotate automatically
		Compression: "none",
		FileMode:    f.o.Mode,
		// Old files are counted by the time in their name: with milliseconds,
		// two of one millisecond would count as one.
		BackupTimeFormat:   "2006-01-02T15-04-05.000000",
		AppendTimeAfterExt: ambiguous(f.path),
	}
}

// ambiguous reports whether timberjack cannot recognize the old files of path. For a name such
// as a.log.log-x it would look for names with a prefix (a.log-) and a suffix (.log-x) that can
// overlap: old files of a.log-x match, which makes it panic. For such names the time is placed
// at the end of the file name.
func ambiguous(path string) bool {
	ext := filepath.Ext(path)
	begin := strings.TrimSuffix(filepath.Base(path), ext) + "-"
	for n := range len(ext) {
		if strings.HasSuffix(begin, ext[:n+1]) {
			return true
		}
	}
	return false
}

// stop ends the housekeeping goroutine and waits for it.
func (r *rotator) stop() {
	r.release()
	if r.ended != nil {
		<-r.ended
	}
}

// release ends the housekeeping without waiting for the compression, which can take long.
func (r *rotator) release() {
	tj := r.tj
	if tj == nil {
		return
	}
	r.tj = nil
	ended := make(chan struct{})
	r.ended = ended
	go func() {
		defer close(ended)
		tj.Close() // closes a descriptor nothing was written through
	}()
}

// resumeLocked restarts the housekeeping after release, unless the previous one is still
// running: two would compress the same file.
func (f *File) resumeLocked() error {
	select {
	case <-f.rotator.ended:
		f.rotator.ended = nil
		return f.startLocked()
	default:
		return nil
	}
}

// due returns the reason to rotate a file of size bytes before writing n more, or "".
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

// Room returns the number of bytes that the next Write can have before a file exceeds
// Options.RotateBytes: the remaining bytes of the open file or, once that is full, of a whole
// file. Without RotateBytes, and while files cannot be rotated, it returns math.MaxInt64. The
// Output of a File calls it, so that records that fit do not make a file too long.
func (f *File) Room() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &f.rotator
	if f.o.RotateBytes == 0 || !r.failed.IsZero() && time.Since(r.failed) < rotateRetry {
		return math.MaxInt64
	}
	room := f.o.RotateBytes - f.size - int64(len(f.before))
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
	f.lookLocked(time.Now())
	switch {
	case f.h == nil:
		return f.openAgainLocked()
	case f.size == 0 || f.watched.stray == movedAway:
		return nil
	}
	tj := f.rotator.tj
	if tj == nil {
		if err := f.resumeLocked(); err != nil {
			return fmt.Errorf("file: cannot open %q to rotate it: %w", f.name, err)
		}
		if f.size == 0 {
			return nil // the file was renamed
		}
		if tj = f.rotator.tj; tj == nil {
			tj = f.mover() // the file it makes is compressed after the next one
			defer tj.Close()
		}
	}
	if st, err := f.h.Stat(); err == nil {
		tj.FileMode = st.Mode().Perm()
	}
	// Closed first: the old file is compressed from now on, and Windows moves
	// no open files.
	unclaim(f.h)
	giveBack := f.giveBackLocked()
	err := f.h.Close()
	f.h = nil
	if err == nil {
		err = tj.RotateWithReason(reason)
	}
	giveBack()
	if err != nil {
		first := f.rotator.failed.IsZero()
		f.rotator.failed = time.Now()
		if first {
			f.events.Post(fmt.Errorf("file: cannot rotate %q, continuing in the old file: %w", f.name, cause(err)))
		}
	} else {
		f.rotator.failed = time.Time{}
	}
	began := f.rotator.began
	if err := f.openLocked(); err != nil {
		return fmt.Errorf("file: cannot open %q after rotating it: %w", f.name, err)
	}
	if !f.rotator.failed.IsZero() {
		f.rotator.began = began // still the old file: its period is over
	}
	return nil
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
		return fmt.Errorf("file: cannot rotate %q: see OnError", f.name)
	}
	return nil
}
