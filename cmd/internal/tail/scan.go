package tail

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// writeDelay is the time from the first write event to the examination of the file, which then
// covers all writes. It is also the time from the creation of a directory to the next scan.
const writeDelay = 20 * time.Millisecond

// A scanner detects changes of the files that the patterns match. It never waits for the sink.
type scanner struct {
	o       *Options
	index   *index
	watcher *watcher
	next    time.Time // time of the next scan
	due     []*series // scratch memory of the method look
}

// watch scans and handles events until ctx is done. It is the goroutine of the scanner.
func (c *scanner) watch(ctx context.Context) {
	for {
		timer := time.NewTimer(time.Until(c.look(c.o.now())))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case ev := <-c.watcher.events:
			c.handleEvent(ev, c.o.now())
		case <-c.watcher.errors: // events may have been lost, so scan now
			c.next = time.Time{}
		case <-timer.C:
		}
		timer.Stop()
	}
}

// look searches for new files if a scan is due, and examines the known paths that are due. It
// returns the time at which it must be called again.
func (c *scanner) look(now time.Time) (next time.Time) {
	if !now.Before(c.next) {
		c.scanPaths(now)
		c.next = now.Add(c.o.Rescan)
	}
	next = c.next
	c.index.mu.Lock()
	due := c.due[:0]
	for _, s := range c.index.list {
		if now.Before(s.due) {
			next = soonest(next, s.due)
		} else {
			due = append(due, s)
		}
	}
	c.index.mu.Unlock()
	for _, s := range due {
		c.index.mu.Lock()
		if c.index.paths[s.path] == s {
			c.index.observe(s, now)
			next = soonest(next, s.due)
		}
		c.index.mu.Unlock()
	}
	clear(due)
	c.due = due
	return next
}

// scanPaths searches for new files that the patterns match, and makes the known ones due.
func (c *scanner) scanPaths(now time.Time) {
	for _, p := range c.o.Patterns {
		c.watchDirs(filepath.Dir(p))
		paths := []string{p}
		listed := true // all directories that the pattern matches were listed
		if IsPattern(p) {
			listed = c.checkDirs(filepath.Dir(p))
			paths, _ = filepath.Glob(p) // no error, because New has checked the pattern
			slices.Sort(paths)
		}
		if len(paths) == 0 && listed && c.index.initial {
			c.index.mu.Lock()
			c.index.skipPath(p, id{}, "no such file"+c.o.waitingSuffix())
			c.index.mu.Unlock()
		}
		for _, path := range paths {
			c.index.mu.Lock()
			if s := c.index.paths[path]; s == nil || s.current() == nil {
				c.index.find(path, now, c.index.initial)
			} else {
				s.due = now // it may have changed before its directory was watched
			}
			c.index.mu.Unlock()
		}
	}
	c.index.mu.Lock()
	c.index.scans++
	c.index.initial, c.index.o.Before = false, nil // the memory of Before is not needed any more
	for real := range c.index.reals {
		c.watcher.add(filepath.Dir(real))
	}
	c.index.mu.Unlock()
	signal(c.index.queue.ready)
}

// watchDirs watches the directories that pattern matches. If the path of a directory contains
// wildcards, its parent is also watched, because matching directories may be created there. Parents
// are watched first, so that no new directory is missed.
func (c *scanner) watchDirs(pattern string) {
	if up := filepath.Dir(pattern); up != pattern && IsPattern(pattern) {
		c.watchDirs(up)
	}
	c.watcher.add(pattern)
}

// checkDirs reports each directory that matches pattern but cannot be listed. It also reports
// parent directories that cannot be listed to find matches. It returns true if there is nothing to
// report.
func (c *scanner) checkDirs(pattern string) bool {
	if !IsPattern(pattern) {
		c.index.mu.Lock()
		defer c.index.mu.Unlock()
		return c.index.checkDir(pattern)
	}
	listed := c.checkDirs(filepath.Dir(pattern))
	dirs, _ := filepath.Glob(pattern) // no error, because New has checked the pattern
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	for _, dir := range dirs {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			listed = c.index.checkDir(dir) && listed
		}
	}
	return listed
}

// handleEvent handles an event of the operating system.
func (c *scanner) handleEvent(ev fsnotify.Event, now time.Time) {
	if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
		if c.watcher.forget(ev.Name) { // the directory may be there again, perhaps with the same inode
			c.next = soonest(c.next, now.Add(writeDelay))
		}
	}
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	s := c.index.paths[ev.Name]
	if s == nil {
		s = c.index.reals[ev.Name]
	}
	switch {
	case s != nil && ev.Op == fsnotify.Write:
		s.due = soonest(s.due, now.Add(writeDelay))
	case s != nil:
		c.index.observe(s, now)
		if s.current() == nil {
			c.index.find(s.path, now, false)
		}
	case !ev.Has(fsnotify.Create):
	case c.o.matches(ev.Name):
		c.index.find(ev.Name, now, false)
	case c.mayContainFiles(ev.Name):
		c.next = soonest(c.next, now.Add(writeDelay))
	}
}

// mayContainFiles reports whether path is a directory that matches a parent directory of a
// pattern. Such a directory may contain matching files or directories.
func (c *scanner) mayContainFiles(path string) bool {
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		return false
	}
	return slices.ContainsFunc(c.o.Patterns, func(p string) bool {
		for up := filepath.Dir(p); up != p; p, up = up, filepath.Dir(up) {
			if ok, _ := filepath.Match(up, path); ok {
				return true
			}
		}
		return false
	})
}
