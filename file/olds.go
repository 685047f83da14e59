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

// olds are the old files of a File: it compresses and removes them in a goroutine that runs while
// there is work.
type olds struct {
	path    string // of the File
	keep    int    // number of old files; 0: all
	age     time.Duration
	zip     compression.Format // without a suffix: none
	writer  compression.Writer // memory of compress while the goroutine runs
	report  func(error)
	running sync.WaitGroup

	mu   sync.Mutex
	work work
}

// work is the state of the goroutine.
//
//	idle ──tidy──▶ once ──tidy──▶ again ──pass──▶ once ──pass──▶ idle
type work uint8

const (
	idle  work = iota
	once       // a pass over the directory is in progress
	again      // another one follows: a file may have come after the list was read
)

// startLocked compresses and removes the files left by an earlier process.
func (f *File) startLocked() {
	const day = 24 * time.Hour
	o := &f.rotator.olds
	o.path, o.keep, o.report = f.path, f.o.KeepFiles, f.events.Post
	o.age = (f.o.KeepFor + day - 1) / day * day
	if f.o.Compress != "" {
		o.zip, _ = compression.Find(f.o.Compress) // checked with the Options
	}
	o.tidy()
}

// tidy starts a pass, or has one repeated. The lock of the File prevents calls during wait.
func (o *olds) tidy() {
	if o.keep == 0 && o.age == 0 && o.zip.Suffix == "" {
		return
	}
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
			if o.work == once { // the last pass
				o.writer = nil
			}
			o.work--
			more = o.work != idle
			o.mu.Unlock()
		}
	})
}

// wait waits for the end of the goroutine.
func (o *olds) wait() { o.running.Wait() }

// pass removes the files that are too many or too old, and compresses the others.
func (o *olds) pass() {
	names, err := o.list()
	if err != nil {
		o.report(fmt.Errorf("file: cannot list the old files of %q: %w", o.path, vfs.Cause(err)))
		return
	}
	kept, last := 0, ""
	cutoff := time.Now().Add(-o.age)
	for _, name := range slices.Backward(names) { // the newest first
		at, _ := o.timeOf(name)
		if key := at.Format(oldTime); key != last { // a file and its copy, if the process was killed in between, count once
			kept, last = kept+1, key
		}
		path := filepath.Join(filepath.Dir(o.path), name)
		switch {
		case o.keep > 0 && kept > o.keep, o.age > 0 && at.Before(cutoff):
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				o.report(fmt.Errorf("file: cannot remove the old file %q: %w", path, vfs.Cause(err)))
			}
		case o.zip.Suffix != "" && !compressed(name):
			if err := o.compress(path); err != nil {
				o.report(fmt.Errorf("file: cannot compress the old file %q: %w", path, vfs.Cause(err)))
			}
		}
	}
}

// list returns the names of the old files, the oldest first.
func (o *olds) list() (names []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(o.path))
	for _, e := range entries { // sorted by name
		if _, ok := o.timeOf(e.Name()); ok && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// timeOf returns the time in the name of an old file. It reports false for other names.
func (o *olds) timeOf(name string) (t time.Time, ok bool) {
	ext := filepath.Ext(o.path)
	rest, begins := strings.CutPrefix(name, strings.TrimSuffix(filepath.Base(o.path), ext)+"-")
	if !begins || len(rest) < len(oldTime)+2 || rest[len(oldTime)] != '-' {
		return t, false
	}
	reason := rest[len(oldTime)+1:]
	if !slices.ContainsFunc([]string{ext, ext + ".gz", ext + ".zst"}, func(end string) bool { return strings.HasSuffix(reason, end) }) {
		return t, false
	}
	t, err := time.Parse(oldTime, rest[:len(oldTime)])
	return t, err == nil
}

// compressed reports whether the file with this name is compressed.
func compressed(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".gz" || ext == ".zst"
}

// compress replaces the file at path by a compressed copy. The copy has its name only when it is
// complete, so that a killed process leaves no partial one.
func (o *olds) compress(path string) error {
	whole := path + o.zip.Suffix
	if st, err := os.Stat(whole); err == nil && st.Size() > 0 {
		return os.Remove(path) // the process was killed before it could
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
	part := whole + ".tmp"
	out, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, st.Mode().Perm())
	if err != nil {
		return err
	}
	if o.writer == nil {
		o.writer = o.zip.NewWriter(compression.Small)
	}
	o.writer.Reset(out)
	_, err = io.Copy(o.writer, in)
	err = errors.Join(err, o.writer.Close(), resemble(out, st), out.Close(), in.Close()) // Windows does not remove open files
	if err == nil {
		err = os.Rename(part, whole)
	}
	if err != nil {
		os.Remove(part)
		return err
	}
	return os.Remove(path)
}
