package tail

import (
	"io/fs"
	"os"
	"path/filepath"
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
	taken mark
}

// moving is e at a mark.
func (e entry) moving(m mark) search { return search{e, m} }

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
