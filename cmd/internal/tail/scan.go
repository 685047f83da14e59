package tail

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// scan looks for files that the patterns name.
func (t *Tailer) scan(now time.Time) {
	t.scans++
	for _, p := range t.o.Patterns {
		paths := []string{p}
		literal := !IsPattern(p)
		if !literal {
			paths, _ = filepath.Glob(p) // the pattern is a good one
			slices.Sort(paths)
		}
		if len(paths) == 0 && t.initial {
			t.missed++
			t.say("%s: no such file%s", p, t.waiting())
		}
		for _, path := range paths {
			if t.paths[path] != nil {
				continue
			}
			st, err := os.Stat(path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				if t.initial {
					t.missed++
					t.say("%s: no such file%s", path, t.waiting())
				}
				delete(t.skipped, path)
			case err != nil:
				t.skipPath(path, id{}, "it cannot be read: "+plain(err).Error())
			case st.IsDir():
				t.skipPath(path, idOf(path, st), "it is a directory; for the files in it, write "+filepath.Join(path, "*"))
			case !st.Mode().IsRegular():
				t.skipPath(path, idOf(path, st), "it is no regular file")
			default:
				t.lead(path, st, now)
			}
		}
	}
	if t.initial {
		t.orphans(now)
	}
}

func (t *Tailer) waiting() string {
	if t.o.Once {
		return ""
	}
	return " yet; waiting for one"
}

// skipPath tells why a path is not followed, once.
func (t *Tailer) skipPath(path string, what id, why string) {
	if old, told := t.skipped[path]; !told || old != what {
		t.skipped[path] = what
		t.missed++
		t.say("%s: %s", path, why)
	}
}

// lead follows the file that path leads to.
func (t *Tailer) lead(path string, st fs.FileInfo, now time.Time) {
	what := idOf(path, st)
	if f := t.ids[what]; f != nil {
		if f.detached { // it is here now
			f.detached, f.path, f.due = false, path, now
			f.real = realPath(path)
			t.paths[path] = f
			t.news = true
		}
		return // or it has two names
	}
	f := &follow{id: what, path: path, real: realPath(path), src: sourceOf(path), due: now, active: now}
	e, known := t.saved[what]
	delete(t.saved, what)
	switch {
	case known && st.Size() >= e.at.off && isFile(path, e.head, e.at):
		f.at, f.head, f.cut, f.size = e.at, e.head, e.cut, e.at.off
	case known:
		// It was truncated, or its inode was used again.
		if f.after = t.copyOf(e, now); f.after == nil {
			t.say("%s: it is another file than in the earlier run, or was truncated; reading from its start", path)
		}
	case t.o.FromEnd && t.fresh && t.initial:
		if !t.fromEnd(f, st) {
			return
		}
	}
	if !t.initial && f.after == nil {
		for _, o := range t.files {
			if o.detached && o.path == path {
				f.after = o
			}
		}
	}
	f.limit = st.Size()
	delete(t.skipped, path)
	t.files = append(t.files, f)
	t.ids[what] = f
	t.paths[path] = f
	f.committed = f.at
	t.news = true
}

func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// fromEnd puts f behind the last line that is complete.
func (t *Tailer) fromEnd(f *follow, st fs.FileInfo) bool {
	file, err := os.Open(f.path)
	if err == nil {
		defer file.Close()
		err = t.seekEnd(f, file, st.Size())
	}
	if err != nil {
		t.skipPath(f.path, f.id, "it cannot be read: "+plain(err).Error())
		return false
	}
	return true
}

func (t *Tailer) seekEnd(f *follow, file *os.File, size int64) error {
	buf := make([]byte, min(size, 64<<10))
	if _, err := file.ReadAt(buf, size-int64(len(buf))); err != nil {
		return err
	}
	at := size
	for i := len(buf) - 1; i >= 0; i-- {
		if buf[i] == '\n' {
			at = size - int64(len(buf)-1-i)
			break
		}
		if i == 0 && len(buf) == int(size) {
			at = 0
		}
	}
	var err error
	if f.at, err = markAt(file, at); err != nil {
		return err
	}
	if f.head, err = headOf(file, at); err != nil {
		return err
	}
	f.size = f.at.off
	if what := t.kind(file); what != "" {
		f.skip = true
		t.say("%s: it is %s; it is not followed", f.path, what)
	}
	return nil
}

// orphans goes on with files of the earlier run that their path does not lead to any
// more. They come before what has come in their place.
func (t *Tailer) orphans(now time.Time) {
	saved := make([]entry, 0, len(t.saved))
	for _, e := range t.saved {
		saved = append(saved, e)
	}
	t.saved = map[id]entry{}
	slices.SortFunc(saved, func(a, b entry) int {
		switch {
		case a.path < b.path:
			return 1
		case a.path > b.path:
			return -1
		}
		return 0
	})
	for _, e := range saved {
		if !t.Matches(e.path) {
			if st, err := os.Stat(e.path); err == nil && idOf(e.path, st) == e.id {
				t.parked = append(t.parked, e)
			}
			continue
		}
		var c *follow
		if path := t.rest(e, true); path != "" {
			c = t.adoptRest(path, e, now)
		} else {
			c = t.copyOf(e, now)
		}
		if f := t.paths[e.path]; f != nil {
			f.after = c
		}
		if c == nil {
			t.say("%s: the file of the earlier run is gone; what it had behind byte %d was not read", e.path, e.at.off)
		}
	}
}

// copyOf follows the copy of a file that was truncated while no process followed it.
// It returns nil if there is none.
func (t *Tailer) copyOf(e entry, now time.Time) *follow {
	if e.head.n == 0 {
		return nil
	}
	path := t.rest(e, false)
	if path == "" {
		return nil
	}
	c := t.adoptRest(path, e, now)
	if c != nil {
		c.copied = true
	}
	return c
}
