package tail

import (
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// A watcher has the system report changes in directories. Where it cannot, the scanner finds
// them no later than after Options.Rescan.
type watcher struct {
	w      *fsnotify.Watcher
	events chan fsnotify.Event
	errors chan error
	dirs   map[string]id
}

// Events is whether a Tailer asks the system to report changes. Tests in a synctest bubble set
// it to false: the goroutine that reads the reports would stop the clock of the bubble.
var Events = true

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

// add watches the directories that pattern names, if they are not watched yet.
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
		what := idOf(dir, st)
		if old, known := w.dirs[dir]; known && old == what {
			continue
		}
		w.w.Remove(dir)
		if w.w.Add(dir) == nil {
			w.dirs[dir] = what
		}
	}
}

func (w *watcher) close() {
	if w.w != nil {
		w.w.Close()
	}
}
