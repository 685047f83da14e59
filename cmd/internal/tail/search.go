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

// A search finds the file that has the content of an entry.
type search struct {
	entry
	taken mark // end of the data that was passed to the sink
}

// renamed returns the path of the file of e after a rename, or "".
func (e search) renamed() string {
	return e.siblings(func(path string, st fs.FileInfo) bool {
		return idOf(path, st) == e.id && isFile(path, e.head, e.taken)
	})
}

// siblings returns the file in the directory of e for which ok returns true. If there are several,
// it returns the one modified first, because later ones belong to later generations.
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

// A resumed is the latest stored generation of a path.
type resumed struct {
	real    string    // its stored path
	mtime   time.Time // time of the file that has its content now, otherwise the time of its last examination
	current bool      // the file is still at its path, or its time is unknown
}

// rotatedAfter returns the names of rotated files that are newer than g and that no generation
// reads. They are the generations between g and the file at the path now. The caller holds mu.
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

// isRotated reports whether name can be a rotated file of base, as app.log.1 and app-20261120.log
// are for app.log.
func isRotated(base, name string) bool {
	const separators = ".-_"
	if rest, ok := strings.CutPrefix(name, base); ok {
		return rest != "" && strings.Contains(separators, rest[:1])
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(base, filepath.Ext(base)))
	return ok && len(rest) > 1 && strings.Contains(separators, rest[:1]) && rest[1] >= '0' && rest[1] <= '9'
}
