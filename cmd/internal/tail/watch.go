package tail

import (
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// A watcher receives events about changes in directories from the operating system. If the
// operating system reports no event for a change, the scanner finds the change, after
// Options.Rescan at the latest.
type watcher struct {
	w      *fsnotify.Watcher
	events chan fsnotify.Event
	errors chan error
	dirs   map[string]id // watched directories
}

// Events enables the events of the operating system. Tests in a synctest bubble set it to false,
// because the goroutine that receives events would stop the clock of the bubble.
var Events = true

// newWatcher returns a watcher. If the operating system does not support events, the watcher never
// receives one.
func newWatcher() *watcher {
	w := &watcher{dirs: map[string]id{}}
	if !Events {
		return w
	}
	if fw, err := fsnotify.NewBufferedWatcher(4096); err == nil {
		w.w, w.events, w.errors = fw, fw.Events, fw.Errors
	}
	return w
}

// add watches the directories that match pattern. It adds directories that are already watched
// again: a removed directory is no longer watched, even if a new directory has its name and id.
func (w *watcher) add(pattern string) {
	if w == nil || w.w == nil {
		return
	}
	dirs := []string{pattern}
	if IsPattern(pattern) {
		dirs, _ = filepath.Glob(pattern)
	}
	for _, dir := range dirs {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() {
			delete(w.dirs, dir)
			continue
		}
		dirID := idOf(dir, st)
		if old, known := w.dirs[dir]; known && old != dirID {
			w.w.Remove(dir) // if the old directory was renamed, it is still watched
		}
		if w.w.Add(dir) == nil {
			w.dirs[dir] = dirID
		}
	}
}

// forget removes dir from the watched directories, and reports whether dir was one of them. It is
// called when dir is removed or renamed, because a new directory may later have the same name and
// id.
func (w *watcher) forget(dir string) bool {
	_, watched := w.dirs[dir]
	delete(w.dirs, dir)
	return watched
}

func (w *watcher) close() {
	if w.w != nil {
		w.w.Close()
	}
}

// signal sends a value to c, unless c is full. The capacity of c is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
