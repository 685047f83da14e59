package tail

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// A search describes the file to look for.
type search struct {
	entry
	taken mark // the data before it was passed to the sink
}

// elsewhere returns the path of the file of e, which was renamed; "": there is none.
func (e search) elsewhere() string {
	return e.siblings(func(path string, st fs.FileInfo) bool {
		return idOf(path, st) == e.id && isFile(path, e.head, e.taken)
	})
}

// siblings returns the file in the directory of e for which ok returns true. Of several, it is the
// one modified first: files modified later belong to later generations.
func (e search) siblings(ok func(path string, st fs.FileInfo) bool) (best string) {
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
		if err != nil || st.Size() < max(e.taken.off, int64(e.head.n)) || best != "" && !st.ModTime().Before(oldest) || !ok(path, st) {
			continue
		}
		best, oldest = path, st.ModTime()
	}
	return best
}

// resumed is the latest generation of a path that an earlier run has stored.
type resumed struct {
	real    string    // where it was
	mtime   time.Time // of the file that has its content now or, if there is none, when it was last examined
	current bool      // it is still at its path, or its time is unknown
}

// rotatedAfter returns the names of rotated files that are newer than g and that nothing reads: the
// generations between g and the file at the path now. The caller holds mu.
func (x *index) rotatedAfter(g resumed) (names []string) {
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

// isRotated reports whether a file of this name can be a generation of base: app.log.1 and
// app-20261120.log are names for app.log.
func isRotated(base, name string) bool {
	const separators = ".-_"
	if rest, ok := strings.CutPrefix(name, base); ok {
		return rest != "" && strings.Contains(separators, rest[:1])
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(base, filepath.Ext(base)))
	return ok && len(rest) > 1 && strings.Contains(separators, rest[:1]) && rest[1] >= '0' && rest[1] <= '9'
}
