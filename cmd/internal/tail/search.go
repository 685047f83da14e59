package tail

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// realPath returns path without symbolic links, or path itself if it cannot be resolved.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// A search contains the properties by which a moved or copied file is found.
type search struct {
	entry
	passed position // end of the data that was passed to the sink
}

// renamed returns the path to which the file of e was renamed, or "".
func (e search) renamed() string {
	return e.sibling(func(path string, st fs.FileInfo) bool {
		return idOf(path, st) == e.id && isFile(path, e.head, e.passed)
	})
}

// sibling returns the path of a file in the directory of e that the function ok accepts, or "". If
// ok accepts several files, sibling returns the one with the oldest modification time, because
// newer files belong to later generations.
func (e search) sibling(ok func(path string, st fs.FileInfo) bool) (best string) {
	dir := filepath.Dir(e.real)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var oldest time.Time
	for _, de := range entries {
		if !de.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, de.Name())
		st, err := de.Info()
		if err != nil || st.Size() < max(e.passed.off, int64(e.head.n)) || best != "" && !st.ModTime().Before(oldest) || !ok(path, st) {
			continue
		}
		best, oldest = path, st.ModTime()
	}
	return best
}

// A resumedFile describes the newest stored generation of a path.
type resumedFile struct {
	real    string    // entry.real
	mtime   time.Time // modification time of the file that contains the generation; if there is no such file, the stored time
	current bool      // the file is still at its path, or mtime is unknown
}

// rotatedAfter returns the names of the rotated files that are newer than g, unless a generation
// reads them. Their content was written after the stored generation and before the current file.
// The caller holds mu.
func (x *index) rotatedAfter(g resumedFile) (names []string) {
	if g.current {
		return nil
	}
	dir, base := filepath.Split(g.real)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, de := range entries {
		path := filepath.Join(dir, de.Name())
		if !de.Type().IsRegular() || !isRotated(base, de.Name()) || x.o.matches(path) {
			continue
		}
		st, err := de.Info()
		if err == nil && st.ModTime().After(g.mtime) && !x.follows(idOf(path, st)) {
			names = append(names, de.Name())
		}
	}
	return names
}

// isRotated reports whether name can be the name of a rotated file of base. For example, app.log.1
// and app-20261120.log can be rotated files of app.log.
func isRotated(base, name string) bool {
	const separators = ".-_"
	if rest, ok := strings.CutPrefix(name, base); ok {
		return rest != "" && strings.Contains(separators, rest[:1])
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(base, filepath.Ext(base)))
	return ok && len(rest) > 1 && strings.Contains(separators, rest[:1]) && rest[1] >= '0' && rest[1] <= '9'
}
