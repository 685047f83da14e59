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

// rotateRetry is how long after a failed rotation the next one is tried. Until
// then the file grows beyond its limit, which is better than losing records.
const rotateRetry = time.Minute

var errIrregular = errors.New("it is not a regular file, so it cannot be rotated: leave rotation off")

// rotator decides when a file is moved aside and has it done. Its File's lock
// guards it.
type rotator struct {
	// tj moves, compresses and removes. It holds a descriptor of its own on the
	// live file and never writes to it. Nil after Reopen, until a rotation.
	tj     *timberjack.Logger
	ended  chan struct{} // closed when the one before is done compressing; nil: there is none
	began  time.Time     // the file's period is the one this lies in
	failed time.Time     // last failed attempt; zero: the last one went well
}

// startLocked has the leftovers of an earlier process compressed and removed.
func (f *File) startLocked() error {
	const day = 24 * time.Hour
	f.rotator.tj = f.mover()
	f.rotator.tj.MaxBackups = f.o.KeepFiles
	f.rotator.tj.MaxAge = int((f.o.KeepFor + day - 1) / day)
	if f.o.Compress != "" {
		f.rotator.tj.Compression = f.o.Compress
	}
	// A write of nothing opens the file and wakes the housekeeping. When the
	// file cannot be opened, though, it is moved aside, and the one we have
	// open would be compressed away.
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

// mover returns what moves files and leaves old ones alone.
func (f *File) mover() *timberjack.Logger {
	return &timberjack.Logger{
		Filename:    f.path,
		MaxSize:     math.MaxInt32, // MiB: it must not rotate by itself
		Compression: "none",
		FileMode:    f.o.Mode,
		// Old files are counted by the time in their name: with milliseconds,
		// two of one millisecond would count as one.
		BackupTimeFormat:   "2006-01-02T15-04-05.000000",
		AppendTimeAfterExt: ambiguous(f.path),
	}
}

// ambiguous reports whether the name of the file is one, such as a.log.log-x, of
// which timberjack would look for old files by a beginning (a.log-) and an end
// (.log-x) that can share letters: those of a.log-x, which makes it panic. The time
// then stands behind the name.
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

// release ends the housekeeping without waiting for what it is compressing: that
// can take long.
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

// resumeLocked begins the housekeeping anew after release, unless it is still at it:
// two would compress the same file.
func (f *File) resumeLocked() error {
	select {
	case <-f.rotator.ended:
		f.rotator.ended = nil
		return f.startLocked()
	default:
		return nil
	}
}

// due returns why a file of size bytes must be moved aside before n more, or "".
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

// Room returns how many bytes the next Write can have, in bytes, before a file exceeds
// Options.RotateBytes: what is left of the file that is open or, once that is full, a whole
// file. Without RotateBytes, and while files cannot be moved aside, it is math.MaxInt64. The
// Output of a File asks for it, so that records that fit do not make a file too long.
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

// period returns when the period of length every began that t lies in, in UTC.
func period(t time.Time, every time.Duration) int64 {
	// Time.Truncate counts from the year 1, a Monday: weeks begin on Mondays.
	return t.UTC().Truncate(every).UnixNano()
}

// rotateLocked moves the file aside and opens a new one. If it cannot be moved,
// that is reported and the old one opened again; the error is only about a file
// that cannot be opened at all.
func (f *File) rotateLocked(reason string) error {
	f.lookLocked(time.Now())
	switch {
	case f.h == nil:
		return f.openAgainLocked()
	case f.size == 0 || f.watched.moved:
		return nil
	}
	tj := f.rotator.tj
	if tj == nil {
		if err := f.resumeLocked(); err != nil {
			return fmt.Errorf("file: cannot open %q to rotate it: %w", f.name, err)
		}
		if f.size == 0 {
			return nil // it was moved aside
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
			f.events.Post(fmt.Errorf("file: cannot rotate %q, writing goes on in it: %w", f.name, cause(err)))
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

// Rotate moves the file aside now, whatever its size and age, unless it is
// empty. It fails if the File was opened without rotation.
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
