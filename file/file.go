package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/vectors"
	"github.com/forebay-log/forebay/internal/vfs"
)

// A File is a log file. Its methods are safe for concurrent use.
//
// Every byte is appended (O_APPEND). So several processes may write to a file if none of them
// rotates it. A file that rotates belongs to one process: Open locks a file path.lock in the same
// directory and, on systems with flock(2), the log file itself. The second lock detects a process
// that uses the file under another name, such as a symbolic or hard link.
type File struct {
	o    Options
	name string // path as given, for messages
	path string // absolute
	sys  system

	events *callback.Runner[error] // calls Options.OnError

	// mu guards the fields below. It is held while writing, so that rotation and Reopen happen
	// between two records.
	mu sync.Mutex
	// h is nil if the last attempt to open failed, or if the file was deleted. The next Write then
	// opens the file.
	h       handle
	regular bool // h is a regular file: it can be rotated, synced and watched
	// size is the size of the open file in bytes. For a pipe or device it is the number of bytes
	// written.
	size    int64
	lineEnd []byte // written before the next data, to end an incomplete line
	cut     bool   // the last Write ended inside a record
	reopen  bool   // Reopen was called during an incomplete record
	closed  bool
	watched              // whether the path names the open file
	durable              // used with Options.Sync "always"
	lock    *flock.Flock // nil: none
	rotator
	reserved int64    // size at which reserveLocked must be called
	vec      [][]byte // reused by appendLocked
}

// handle is the part of *os.File used by File.
type handle = vfs.Appender

// A system contains the operations of the operating system that File uses. Tests replace it.
type system struct {
	open    func(name string, flag int, perm fs.FileMode) (handle, error)
	syncDir func(dir string) error
}

// operatingSystem is the system that Open uses. It reads vfs.OS at each call, because tests of
// whole programs replace vfs.OS.
var operatingSystem = system{
	open: func(name string, flag int, perm fs.FileMode) (handle, error) {
		return vfs.OS.OpenAppend(name, flag, perm)
	},
	syncDir: func(dir string) error { return vfs.OS.SyncDir(dir) },
}

// Open opens the log file at path for appending. If the file does not exist, Open creates it. A nil
// o means the zero Options.
//
// If the file ends without a newline, for example after a crash during a write, a newline is
// written before the first record, so that only one line is incomplete. Open fails if another
// process rotates the file, or if this process is configured to rotate it and another process uses
// it. The error contains the path.
func Open(path string, o *Options) (*File, error) { return openWith(path, o, operatingSystem) }

// openWith implements Open for the given system.
func openWith(path string, o *Options, sys system) (*File, error) {
	if o == nil {
		o = &Options{}
	}
	r, err := o.resolve()
	if err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errors.New("file: cannot open a log file: its path is empty; give one, such as \"app.log\"")
	}
	f := &File{o: r, name: path, sys: sys, events: callback.New(r.OnError, 0)}
	fail := func(err error) (*File, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.releaseLocked()
		return nil, fmt.Errorf("file: cannot open %q: %w%s", path, err, remedy(err))
	}
	if f.path, err = filepath.Abs(path); err != nil {
		return fail(err)
	}
	if err := f.makeDirsLocked(); err != nil {
		return fail(err)
	}
	if r.rotates() {
		// Rotation renames the file, not a link to it.
		f.path = resolve(f.path)
		if st, err := os.Stat(f.path); err == nil && !st.Mode().IsRegular() {
			return fail(errIrregular)
		}
	}
	if err := f.acquire(); err != nil {
		return fail(err)
	}
	f.mu.Lock()
	err = f.openLocked()
	if err == nil && r.rotates() {
		f.startLocked()
	}
	if err == nil && r.Sync == syncAlways {
		err = f.beginSyncedLocked()
	}
	if err == nil {
		f.watchIdleLocked()
	}
	f.mu.Unlock()
	if err != nil {
		return fail(err)
	}
	return f, nil
}

// openLocked opens path and determines the state of the file. It does not close the previous
// handle. If it fails, it changes nothing.
func (f *File) openLocked() error {
	if err := f.makeDirsLocked(); err != nil {
		return err
	}
	if err := f.relock(); err != nil {
		return err
	}
	flag := os.O_WRONLY | os.O_APPEND | os.O_CREATE
	h, err := f.sys.open(f.path, flag, f.o.Mode)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			if _, bad := os.Stat(filepath.Dir(f.path)); bad != nil {
				return fmt.Errorf("its directory does not exist: %w; create it", vfs.Cause(err))
			}
			return fmt.Errorf("cannot create a file in its directory: %w", vfs.Cause(err))
		}
		return vfs.Cause(err)
	}
	st, err := h.Stat()
	if err != nil {
		h.Close()
		return vfs.Cause(err)
	}
	if f.o.rotates() && !st.Mode().IsRegular() {
		h.Close()
		return errIrregular
	}
	if st.Mode().IsRegular() && !claim(h, f.o.rotates()) {
		h.Close()
		return errClaimed(f.o.rotates())
	}
	// The file is usable. No statement below can fail.
	f.h = h
	f.watched.pathState = linked
	f.regular = st.Mode().IsRegular()
	f.size = 0
	f.lineEnd = nil
	f.durable.named = false
	f.admitLocked()
	f.rotator.began = time.Now()
	if f.regular {
		f.size = st.Size()
		if f.size > 0 {
			f.rotator.began = st.ModTime()
			if !endsLine(f.path, st) {
				f.lineEnd = []byte{'\n'}
			}
		}
	}
	return nil
}

// endsLine reports whether the file at path ends with a newline. st describes the open file. If
// path names another file, or the file cannot be read, endsLine returns true.
func endsLine(path string, st fs.FileInfo) bool {
	r, err := os.Open(path)
	if err != nil {
		return true
	}
	defer r.Close()
	if now, err := r.Stat(); err != nil || !os.SameFile(now, st) {
		return true
	}
	var last [1]byte
	if _, err := r.ReadAt(last[:], st.Size()-1); err != nil {
		return true
	}
	return last[0] == '\n'
}

// Write appends p, which must consist of whole records. If rotation is due, it first rotates the
// file.
//
// If only a part of p can be written, for example because the disk is full, Write returns the
// number of written bytes and the reason. The next Write must then begin with the remainder of the
// record that was cut, or with a newline to abandon that record. It goes to the same file, even if
// Reopen or a rotation was requested. A forebay.SlabWriter follows this rule.
//
// With Options.Sync "always", all bytes that Write counts are on stable storage. If syncing fails,
// Write counts none of them. If the caller writes them again, the file may contain their records
// twice.
//
// If the file was moved or deleted, Write first opens the path again, see Check. After Close, Write
// returns an error that wraps os.ErrClosed. Write does not retain p.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.Writev([][]byte{p})
	return int(n), err
}

// Writev is like Write for several buffers of whole records. It writes them in order and with as
// few system calls as possible. It rotates the file between two buffers, never within one. The
// caller keeps ownership of bufs. If Writev fails, n is the number of bytes of bufs that are in
// files. n does not include a newline that ends the line of a crashed process.
func (f *File) Writev(bufs [][]byte) (n int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, fmt.Errorf("file: cannot write %q: %w", f.name, os.ErrClosed)
	}
	for len(bufs) > 0 {
		if len(bufs[0]) == 0 {
			bufs = bufs[1:]
			continue
		}
		if err := f.prepareLocked(len(bufs[0])); err != nil {
			return n, err
		}
		k := f.fittingLocked(bufs)
		wasCut := f.cut
		m, err := f.appendLocked(bufs[:k])
		// Sync the written bytes even after an error, because Writev may report only synced bytes
		// as written.
		if m > 0 && f.o.Sync == syncAlways {
			if err := f.settleLocked(bufs[:k], m, wasCut); err != nil {
				return n, err
			}
		}
		n += m
		// Reopen was called while a record was incomplete, and the record is now complete.
		if f.reopen && !f.cut {
			f.reopen = false
			if err := f.reopenLocked(); err != nil {
				f.events.Post(err)
			}
		}
		if err != nil {
			return n, f.writeError(err)
		}
		bufs = bufs[k:]
	}
	return n, nil
}

// prepareLocked prepares f for the next n bytes. It checks the path, opens the file if necessary,
// rotates the file if rotation is due, and ends an incomplete line.
func (f *File) prepareLocked(n int) error {
	f.checkDueLocked()
	if f.h == nil {
		if err := f.openAgainLocked(); err != nil {
			return err
		}
	}
	if !f.cut && f.size > 0 && f.o.rotates() {
		if reason := f.rotator.due(&f.o, f.size, n); reason != "" {
			if err := f.rotateLocked(reason); err != nil {
				return err
			}
		}
	}
	// lineEnd is written separately, because after a short write its bytes must not count as the
	// caller's.
	for len(f.lineEnd) > 0 {
		n, err := f.h.Write(f.lineEnd)
		f.size += int64(n)
		f.lineEnd = f.lineEnd[n:]
		if err != nil {
			return f.writeError(err)
		}
	}
	return nil
}

// fittingLocked returns how many of bufs fit into the open file. It returns at least 1, and exactly
// 1 if the first buffer completes a partly written record.
func (f *File) fittingLocked(bufs [][]byte) int {
	if f.cut {
		return 1
	}
	size := f.size
	for k, b := range bufs {
		size += int64(len(b))
		if k > 0 && f.o.RotateBytes > 0 && size > f.o.RotateBytes {
			return k
		}
	}
	return len(bufs)
}

// appendLocked appends bufs with one system call if possible. It sets f.cut if the write ends
// within a record. It returns the number of bytes in the file, even if it fails.
func (f *File) appendLocked(bufs [][]byte) (n int64, err error) {
	if f.size >= f.reserved {
		f.reserveLocked()
	}
	if file, ok := f.h.(*os.File); ok && len(bufs) > 1 && f.regular && vectors.Have {
		f.vec = slices.DeleteFunc(append(f.vec[:0], bufs...), func(b []byte) bool { return len(b) == 0 })
		n, err = vectors.Write(file, f.vec)
		clear(f.vec)
	} else {
		for _, b := range bufs {
			var m int
			m, err = f.h.Write(b)
			if n += int64(m); err == nil && m < len(b) {
				err = io.ErrShortWrite
			}
			if err != nil {
				break
			}
		}
	}
	f.size += n
	// Find the buffer in which the write ended. A buffer that is completely written ends with a
	// complete record.
	left := n
	for _, b := range bufs {
		switch left -= int64(len(b)); {
		case left > 0 || n == 0:
			continue
		case left == 0:
			f.cut = false
		default:
			f.cut = b[int64(len(b))+left-1] != '\n'
		}
		break
	}
	return n, err
}

// writeError returns err with the path of the file and, if known, the remedy.
func (f *File) writeError(err error) error {
	err = vfs.Cause(err)
	todo := ""
	switch {
	case errors.Is(err, syscall.ENOSPC):
		todo = ": free some space there"
	case errors.Is(err, syscall.EFBIG):
		todo = ": raise the file size limit (ulimit -f), or rotate at a smaller size"
	case errors.Is(err, syscall.EDQUOT):
		todo = ": free some of the owner's space, or raise the quota"
	}
	return fmt.Errorf("file: cannot write %q: %w%s", f.name, err, todo)
}

// Sync writes the data of the open file to stable storage. Rotated files and directory entries are
// on stable storage only with Options.Sync "always". For a pipe, a terminal or /dev/null, Sync
// returns nil.
func (f *File) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("file: cannot sync %q: %w", f.name, os.ErrClosed)
	}
	f.checkPathLocked(time.Now())
	if f.h == nil || !f.regular {
		return nil
	}
	if err := f.h.Sync(); err != nil {
		return fmt.Errorf("file: cannot sync %q: %w", f.name, vfs.Cause(err))
	}
	return nil
}

// Reopen opens the path again and closes the old file. It is for tools that move log files and then
// send SIGHUP. If the path cannot be opened, Reopen returns the error, and the File continues to
// write to the old file. If the last Write ended within a record, Reopen returns nil immediately,
// and the path is opened again when the record is complete.
func (f *File) Reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("file: cannot reopen %q: %w", f.name, os.ErrClosed)
	}
	if f.cut {
		f.reopen = true
		return nil
	}
	return f.reopenLocked()
}

// reopenLocked implements Reopen. It opens the new file before it closes the old one, so that the
// File has an open file even after an error.
func (f *File) reopenLocked() error {
	old := f.h
	if old != nil {
		unclaim(old) // the new file may be the same file
		defer f.releaseReservedLocked()()
	}
	if err := f.openLocked(); err != nil {
		if old != nil {
			claim(old, f.o.rotates())
		}
		return fmt.Errorf("file: cannot reopen %q, the old file stays in use: %w", f.name, err)
	}
	if old != nil {
		if err := old.Close(); err != nil {
			return fmt.Errorf("file: reopened %q, but closing the old file failed: %w", f.name, vfs.Cause(err))
		}
	}
	return nil
}

// Close closes the file and releases the locks. It waits until the compression of an old file is
// complete, and for a short time for OnError. It may be called several times.
func (f *File) Close() error {
	err := f.close()
	f.events.WaitBriefly(context.Background())
	return err
}

// close implements Close without the wait for OnError. During that wait, f.mu must not be held,
// because OnError may call methods of the File.
func (f *File) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	if f.watched.idle != nil {
		f.watched.idle.Stop()
	}
	if err := f.releaseLocked(); err != nil {
		return fmt.Errorf("file: cannot close %q: %w", f.name, vfs.Cause(err))
	}
	return nil
}

// releaseLocked closes the open file, if there is one, waits for the goroutine that handles old
// files, and releases the locks. A failed Open also calls it.
func (f *File) releaseLocked() (err error) {
	if f.h != nil {
		unclaim(f.h)
		defer f.releaseReservedLocked()()
		err = f.h.Close()
		f.h = nil
	}
	f.rotator.old.wait()
	if f.lock != nil {
		f.lock.Unlock() // closing the descriptor releases the lock, even if Unlock fails
		f.lock = nil
	}
	return err
}

// remedy returns a remedy for an error of Open, or "".
func remedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "; let the user of this process write there, or give another path"
	case errors.Is(err, syscall.EISDIR):
		return "; give the path of a file in it"
	case errors.Is(err, syscall.ENOTDIR):
		return "; a part of the path is a file: give another path"
	}
	return ""
}
