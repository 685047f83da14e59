package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/compression"
	"github.com/forebay-log/forebay/internal/vfs"
)

// oldFiles compresses and removes the old files of a File, in a goroutine that runs while there is
// work. Until a compressed copy is complete, its name ends in partSuffix:
//
//	app-TIME-REASON.log ──▶ app-TIME-REASON.log.gz.tmp ──▶ app-TIME-REASON.log.gz
type oldFiles struct {
	path    string             // path of the File
	keep    int                // number of old files to keep; 0: all
	age     time.Duration      // age at which a file is removed; 0: never
	format  compression.Format // compression format; if it has no suffix, files are not compressed
	writer  compression.Writer // reused by compress while the goroutine runs
	report  func(error)
	running sync.WaitGroup

	mu   sync.Mutex
	work work
}

// copySuffixes are the suffixes of an old file and of its compressed copies. They include formats
// that this program cannot write, because an earlier process may have used them.
var copySuffixes = []string{"", ".gz", ".zst"}

// partSuffix is appended to the name of an incomplete copy.
const partSuffix = ".tmp"

// A work is the state of the goroutine that handles old files.
type work uint8

const (
	idle work = iota // no goroutine is running
	once             // a pass over the directory is in progress
	// again means that another pass follows, because a file may have been added after the current
	// pass read the directory.
	again
)

// startLocked sets the options of the old files and starts a pass over files of earlier processes.
// KeepFor is rounded up to whole days.
func (f *File) startLocked() {
	const day = 24 * time.Hour
	o := &f.rotator.old
	o.path, o.keep, o.report = f.path, f.o.KeepFiles, f.events.Post
	o.age = (f.o.KeepFor + day - 1) / day * day
	if f.o.Compress != "" {
		o.format, _ = compression.Find(f.o.Compress) // the Options are valid, so there is no error
	}
	o.tidy()
}

// tidy starts a pass over the old files, after the current pass if there is one. The caller holds
// the lock of the File, so tidy and wait do not run concurrently.
func (o *oldFiles) tidy() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.work != idle {
		o.work = again
		return
	}
	o.work = once
	o.running.Go(func() {
		for more := true; more; {
			o.pass()
			o.mu.Lock()
			if o.work == once { // no further pass was requested
				o.writer = nil
			}
			o.work--
			more = o.work != idle
			o.mu.Unlock()
		}
	})
}

// wait waits until the goroutine has ended. Before that, the goroutine may compress one more file
// and read the directory again.
func (o *oldFiles) wait() { o.running.Wait() }

// pass removes old files that are too many or too old, and compresses the remaining ones. It also
// removes incomplete copies left by processes that were killed during compression.
func (o *oldFiles) pass() {
	names, err := o.list()
	if err != nil {
		o.report(fmt.Errorf("file: cannot list the old files of %q: %w", o.path, vfs.Cause(err)))
		return
	}
	kept, last := 0, ""
	cutoff := time.Now().Add(-o.age)
	for _, name := range slices.Backward(names) { // from the newest to the oldest
		at, suffix, _ := o.parse(name)
		partial := strings.HasSuffix(suffix, partSuffix)
		// A killed process may have left both a file and its copy. They count as one old file.
		if key := at.Format(oldTime); key != last && !partial {
			kept, last = kept+1, key
		}
		path := filepath.Join(filepath.Dir(o.path), name)
		switch {
		case partial, o.keep > 0 && kept > o.keep, o.age > 0 && at.Before(cutoff):
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				o.report(fmt.Errorf("file: cannot remove the old file %q: %w", path, vfs.Cause(err)))
			}
		case o.format.Suffix != "" && suffix == "":
			if err := o.compress(path); err != nil {
				o.report(fmt.Errorf("file: cannot compress the old file %q: %w", path, vfs.Cause(err)))
			}
		}
	}
}

// list returns the names of the old files and their copies, from the oldest to the newest. Only
// regular files count.
func (o *oldFiles) list() (names []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(o.path))
	for _, e := range entries { // sorted by name
		if _, _, ok := o.parse(e.Name()); ok && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// parse returns the time in the name of an old file, and the suffix of a copy. The suffix of an
// incomplete copy includes partSuffix. ok is false for other names.
func (o *oldFiles) parse(name string) (t time.Time, suffix string, ok bool) {
	ext := filepath.Ext(o.path)
	rest, begins := strings.CutPrefix(name, strings.TrimSuffix(filepath.Base(o.path), ext)+"-")
	if !begins || len(rest) < len(oldTime)+2 || rest[len(oldTime)] != '-' {
		return t, "", false
	}
	complete, partial := strings.CutSuffix(rest[len(oldTime)+1:], partSuffix)
	for _, suffix = range copySuffixes {
		if strings.HasSuffix(complete, ext+suffix) && !(partial && suffix == "") {
			if partial {
				suffix += partSuffix
			}
			t, err := time.Parse(oldTime, rest[:len(oldTime)])
			return t, suffix, err == nil
		}
	}
	return t, "", false
}

// compress replaces the file at path with a compressed copy.
func (o *oldFiles) compress(path string) error {
	whole := path + o.format.Suffix
	if st, err := os.Stat(whole); err == nil && st.Size() > 0 {
		// The copy is complete, but an earlier process was killed before it removed the file.
		return os.Remove(path)
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	part := whole + partSuffix
	out, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, st.Mode().Perm())
	if err != nil {
		return err
	}
	// The writer needs several hundred kilobytes, so it is reused for all files of a pass.
	if o.writer == nil {
		o.writer = o.format.NewWriter(compression.Small)
	}
	o.writer.Reset(out)
	_, err = io.Copy(o.writer, in)
	// All files are closed before os.Remove is called, because Windows cannot remove open files.
	err = errors.Join(err, o.writer.Close(), resemble(out, st), out.Close(), in.Close())
	if err == nil {
		err = os.Rename(part, whole)
	}
	if err != nil {
		os.Remove(part)
		return err
	}
	return os.Remove(path)
}
