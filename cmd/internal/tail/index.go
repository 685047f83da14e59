package tail

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// An index contains the generations of each path; a [generation] is the content of a file until its
// rotation. The scanner adds generations, the reader reads and ends them, and the keeper stores
// their positions.
type index struct {
	o            *Options
	queue        queue         // series that the reader must process
	unsavedReady chan struct{} // receives a value if there are positions to store; nil if Options.Dir is empty

	// mu guards the fields below, all generations, and some fields of series. A goroutine that
	// holds mu may acquire queue.mu, but no other lock.
	mu        sync.Mutex
	initial   bool    // the first scan has not ended
	saved     []entry // entries of the earlier runs
	unmatched []entry // entries of earlier runs whose paths match no pattern; they are stored again
	number    uint64  // number of the newest generation
	ids       map[id]*generation
	paths     map[string]*series
	list      []*series          // the values of paths
	reals     map[string]*series // series whose paths are symbolic links, by the path of their target
	skipped   map[string]skip    // the last report about each path that is not followed
	files     files
	missed    int    // number of paths that could not be read
	scans     uint64 // number of completed scans
	unsaved   []*generation
}

// stored reports whether positions are stored.
func (x *index) stored() bool { return x.unsavedReady != nil }

// allSeries returns a copy of the list of all series.
func (x *index) allSeries() []*series {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.list)
}

// allRead reports whether Run may end if Options.Once is set: each file was read up to the size
// that it had when it was found, or cannot be read.
func (x *index) allRead() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.list {
		for _, g := range s.gens {
			if g.hasUnread() && !g.failed && (g.at.off < g.limit || g.state == unavailable) {
				return false
			}
		}
	}
	return true
}

// find follows the file at path. If the file does not exist and missing is true, find reports that.
// The caller holds mu.
func (x *index) find(path string, now time.Time, missing bool) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(x.skipped, path)
		if missing {
			x.skipPath(path, id{}, "no such file"+x.o.waitingSuffix())
		}
	case err != nil:
		x.skipPath(path, id{}, x.o.unreadableText(err))
	case st.IsDir():
		x.skipPath(path, idOf(path, st), "it is a directory; for the files in it, write "+filepath.Join(path, "*"))
	case !st.Mode().IsRegular():
		x.skipPath(path, idOf(path, st), "it is not a regular file")
	default:
		x.followPath(path, st, now)
	}
}

// A skip is a report about a path that is not followed.
type skip struct {
	file id // zero if no file was examined
	why  string
}

// skipPath reports that the file at path is not followed, and why. It reports the same file and
// reason only once. The caller holds mu.
func (x *index) skipPath(path string, fileID id, why string) {
	old, reported := x.skipped[path]
	if !reported {
		x.missed++
	}
	if now := (skip{fileID, why}); old != now {
		x.skipped[path] = now
		x.o.report("%s: %s", path, why)
	}
}

// checkDir reports dir if its files cannot be listed. It returns false in that case. The caller
// holds mu.
func (x *index) checkDir(dir string) bool {
	key := dir + string(filepath.Separator) // not dir, because a pattern may match dir
	f, err := os.Open(dir)
	if err == nil {
		f.Close()
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		delete(x.skipped, key)
		return true
	}
	x.skipPath(key, id{}, x.o.unreadableText(err))
	return false
}

// observe compares the generations of s with the files on disk, and updates the states and sizes of
// the generations. The caller holds mu.
func (x *index) observe(s *series, now time.Time) {
	s.idle = min(s.idle+x.o.Poll, 10*x.o.Poll)
	s.due = now.Add(s.idle)
	cur := s.current()
	if cur != nil {
		st, err := os.Stat(s.path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && !st.Mode().IsRegular():
			x.detach(cur, now)
		case err != nil:
			x.unreadable(cur, err)
		case idOf(s.path, st) != cur.id:
			x.detach(cur, now)
			x.followPath(s.path, st, now)
		default:
			x.updateSize(cur, st, now)
		}
	}
	for _, g := range slices.Clone(s.gens) {
		if g.state != moved || g.f == nil {
			continue
		}
		st, err := g.f.Stat()
		if err != nil {
			x.unreadable(g, err)
			continue
		}
		x.updateSize(g, st, now)
		if g.state == moved && g.checkDeleted(st) {
			x.markUnsaved(g)
		}
	}
}

// updateSize updates the size and modification time of the generation g. If the file was truncated,
// it ends g. The caller holds mu.
func (x *index) updateSize(g *generation, st fs.FileInfo, now time.Time) {
	if st.Size() == g.size && st.ModTime().Equal(g.mtime) {
		return
	}
	if st.Size() < g.data.off || g.state == skipped && st.Size() < g.size || !x.files.unchanged(g) {
		x.truncated(g, st, now)
		return
	}
	if g.state == skipped {
		g.size, g.mtime = st.Size(), st.ModTime()
		return
	}
	g.size, g.mtime, g.active = st.Size(), st.ModTime(), now
	g.remainder = readable
	g.s.idle, g.s.due = 0, now.Add(x.o.Poll)
	x.files.measure(g)
	x.markUnsaved(g)
	x.queue.wake(g.s)
}

// followPath follows the file at path, whose status is st. The caller holds mu.
func (x *index) followPath(path string, st fs.FileInfo, now time.Time) {
	fileID := idOf(path, st)
	g := x.ids[fileID]
	if g != nil && g == g.s.current() { // observe detects a deleted file whose inode is reused
		x.observe(g.s, now)
		g = x.ids[fileID]
	}
	if g != nil {
		switch {
		case g.state == moved && g.s.path == path:
			x.reattach(g, now)
		case g.state == moved:
			g.otherPath = path
			g.real = realPath(path)
			x.markUnsaved(g)
		}
		return // if g is not moved, path is another name of a followed file
	}
	g, err := x.files.openNew(path, fileID)
	if err != nil {
		x.skipPath(path, id{}, x.o.unreadableText(err))
		return
	}
	if g == nil { // the file was replaced; the next scan finds the new file
		return
	}
	delete(x.skipped, path)
	g.active = now
	known := x.paths[path] != nil // in the first scan, true means that a position of the path is stored
	x.add(x.seriesOf(path), g)
	if x.initial {
		g.limit = g.size
		if !known && x.o.From != FromStart && (x.o.Before == nil || !x.o.Before.Matches(path)) {
			x.fromEnd(g)
		}
	}
	x.files.measure(g)
	x.limitGenerations(g.s)
	x.queue.wake(g.s)
}

// seriesOf returns the series of path, and creates it if necessary. The caller holds mu.
func (x *index) seriesOf(path string) *series {
	s := x.paths[path]
	if s == nil {
		s = &series{path: path, src: sourceOf(path)}
		x.paths[path] = s
		x.list = append(x.list, s)
	}
	return s
}

// resume creates the generations that earlier runs have stored. The caller holds mu.
func (x *index) resume(now time.Time) {
	latest := map[string]resumedFile{}
	owner := map[id]int{} // index in saved of the last generation with this id
	for i, e := range x.saved {
		if x.o.matches(e.path) {
			owner[e.id] = i
		}
	}
	for i, e := range x.saved {
		st, err := os.Stat(e.path)
		here := err == nil && st.Mode().IsRegular() && idOf(e.path, st) == e.id
		if !x.o.matches(e.path) {
			if here {
				x.number++
				e.no = x.number
				x.unmatched = append(x.unmatched, e)
			}
			continue
		}
		g := &generation{id: e.id, real: e.real, at: e.at, head: e.head, data: e.at, size: e.at.off, active: now}
		find := search{e, e.at}
		path := ""
		s := x.seriesOf(e.path)
		switch {
		case e.head.n == 0: // the file was empty, so it cannot be recognized
			continue
		case e.id == deletedID && e.seen <= e.at.off: // it was read completely before it was deleted
			g.state = moved
		case here && st.Size() >= e.at.off && owner[e.id] == i && isFile(e.path, e.head, e.at):
		case here:
			g.state, path = copied, x.copyOf(find)
			if path == "" {
				x.o.report("%s: it was replaced or truncated since the earlier run; reading from its start", e.path)
			}
		default:
			if owner[e.id] == i { // otherwise the file was deleted, and a later file has its inode
				g.state, path = moved, find.renamed()
			}
			if path == "" {
				g.state, path = copied, x.copyOf(find)
			}
			if path == "" {
				x.o.report("%s: the file of the earlier run is gone; content after byte %d, if any, was not read", e.path, e.at.off)
			}
		}
		latest[e.path] = resumedFile{e.real, time.Unix(0, e.mtime), g.state == current || e.mtime == 0}
		if g.state != current {
			if g.f, err = os.Open(path); err == nil {
				st, err = g.f.Stat()
			}
			if path == "" || err != nil {
				x.o.reportLost(s, e.seen-e.at.off)
				continue
			}
			latest[e.path] = resumedFile{real: e.real, mtime: st.ModTime()}
			g.id, g.real = idOf(path, st), path
			if g.size, g.mtime = st.Size(), st.ModTime(); g.state == copied {
				x.o.report("%s: reading the rest of its copy %s, then the file from its start", e.path, path)
			}
		}
		g.limit = st.Size()
		x.add(s, g)
		if g.settled.cut = e.cut; e.cut {
			s.rest = unfinished{kind: cutOff, in: g}
		}
		if g.state != current {
			x.files.measure(g)
			x.o.reportLost(s, e.seen-max(g.data.off, e.at.off))
		}
		x.queue.wake(s)
	}
	x.saved = nil
	for path, g := range latest {
		if unread := x.rotatedAfter(g); len(unread) > 0 {
			x.missed++
			x.o.report("%s: rotated more than once since the earlier run; not read: %s", path, strings.Join(unread, ", "))
		}
	}
}

// add makes g the newest generation of s. The caller holds mu.
func (x *index) add(s *series, g *generation) {
	x.number++
	g.no, g.order, g.s = x.number, x.number, s
	g.snapped, g.settled = resumePoint{position: g.at}, resumePoint{position: g.at}
	s.gens = append(s.gens, g)
	if g.state == current && g.real != s.path {
		x.reals[g.real] = s
	}
	s.due, s.idle = x.o.now(), 0
	if g.state == copied {
		x.ids[g.id] = g
	} else if x.ids[g.id] == nil || x.ids[g.id].state != current {
		x.ids[g.id] = g
	}
	if g.f != nil {
		x.files.open = append(x.files.open, g)
	}
	x.markUnsaved(g)
}

// unlist removes g from x.ids, unless x.ids contains another generation with the same id. The
// caller holds mu.
func (x *index) unlist(g *generation) {
	if x.ids[g.id] == g {
		delete(x.ids, g.id)
	}
}

// follows reports whether a generation reads the file fileID. If the generation has closed its
// file, another file may have got the same inode. In this case, follows also requires that the file
// is at the path of the generation. The caller holds mu.
func (x *index) follows(fileID id) bool {
	g := x.ids[fileID]
	if g == nil || g.f != nil {
		return g != nil
	}
	return isAt(g.s.path, fileID)
}

// reattach is called when a moved file is at its path again, or at g.otherPath if that is set. It
// makes g the current generation of this path. The caller holds mu.
func (x *index) reattach(g *generation, now time.Time) {
	path := g.s.path
	if g.otherPath != "" {
		path = g.otherPath
	}
	s := x.seriesOf(path)
	if cur := s.current(); cur != nil {
		if g.s == s {
			return
		}
		x.detach(cur, now)
	}
	g.s.gens = slices.DeleteFunc(g.s.gens, func(o *generation) bool { return o == g })
	x.queue.add(g.s)
	g.s, g.otherPath = s, ""
	x.number++
	g.order = x.number
	s.gens = append(s.gens, g)
	s.due, s.idle = now, 0
	g.become(current)
	x.markUnsaved(g)
	x.queue.wake(s)
}

// detach is called when the file of the generation g is no longer at its path. The reader then
// continues to read g from the open file. If the file is not open, detach searches for the renamed
// file or a copy. The caller holds mu.
func (x *index) detach(g *generation, now time.Time) {
	switch {
	case g.state == skipped:
		g.become(read)
		x.unlist(g)
		x.drop(g)
		x.markUnsaved(g)
		return
	case g.f == nil:
		find := search{g.entry(), g.at}
		path, to := find.renamed(), moved
		if path == "" { // the file may have been copied and truncated before it was deleted
			path, to = x.copyOf(find), copied
		}
		if f, err := os.Open(path); err == nil {
			x.substitute(g, f, path, to, now)
		} else {
			g.become(unavailable)
			x.unlist(g)
		}
		x.markUnsaved(g)
		x.limitGenerations(g.s)
		x.queue.wake(g.s)
		return
	}
	g.become(moved)
	g.scan, g.active = x.scans, now
	g.s.due, g.s.idle = now, 0
	if st, err := g.f.Stat(); err == nil {
		x.updateSize(g, st, now)
	}
	x.markUnsaved(g)
	x.limitGenerations(g.s)
	x.queue.wake(g.s)
}

// substitute makes the reader continue in f, another file that contains the unread data of g. path
// is the path of f, and state is the new state of g. The caller holds mu.
func (x *index) substitute(g *generation, f *os.File, path string, state genState, now time.Time) {
	before := g.data.off
	x.unlist(g)
	if st, err := f.Stat(); err == nil {
		g.id, g.size, g.mtime = idOf(path, st), st.Size(), st.ModTime()
	}
	g.f, g.real, g.deleted, g.remainder, g.data = f, path, false, readable, g.at
	g.scan, g.active = x.scans, now
	g.s.due, g.s.idle = now, 0
	x.files.open = append(x.files.open, g)
	x.ids[g.id] = g
	g.become(state)
	x.files.measure(g)
	x.o.reportLost(g.s, before-g.data.off)
}

// truncated is called when the file of the generation g was truncated. It adds a new generation for
// the file. If there is a copy of the old content, the reader continues to read g from the copy.
// The caller holds mu.
func (x *index) truncated(g *generation, st fs.FileInfo, now time.Time) {
	n := &generation{id: g.id, real: g.real, size: st.Size(), mtime: st.ModTime(), active: now, limit: st.Size(), state: g.state, scan: g.scan, otherPath: g.otherPath}
	if g.state == skipped {
		n.state = current
	}
	known := g.state != skipped && g.head.n > 0
	f := g.f
	if f != nil {
		x.files.open = slices.DeleteFunc(x.files.open, func(o *generation) bool { return o == g })
		g.f, n.f = nil, f
	}
	x.unlist(g)
	path := ""
	if known {
		path = x.copyOf(search{g.entry(), g.at})
	}
	switch c, err := os.Open(path); {
	case g.state == skipped:
		g.become(read)
	case path != "" && err == nil:
		x.substitute(g, c, path, copied, now)
		x.o.report("%s: it was truncated; reading the rest of its copy %s, then the file from its start", g.s.path, path)
	default:
		g.become(unavailable)
		if known {
			x.o.report("%s: it was truncated; reading from its start", g.s.path)
		}
	}
	x.add(g.s, n)
	if g.state == read {
		x.drop(g)
	}
	x.markUnsaved(g)
	x.files.measure(n)
	x.limitGenerations(g.s)
	x.queue.wake(g.s)
}

// changed is called when the reader finds that the data in f does not match the checksums of g.
func (x *index) changed(g *generation, f *os.File, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch st, err := f.Stat(); {
	case g.f != f: // the scanner has already handled it
	case g.state == copied:
		g.become(unavailable)
		x.files.closeFile(g)
		x.queue.wake(g.s)
	case err != nil:
		x.unreadable(g, err)
	default:
		x.truncated(g, st, now)
	}
}

// limitGenerations abandons the oldest generations of s if there are more than
// Options.MaxGenerations. The caller holds mu.
func (x *index) limitGenerations(s *series) {
	open := 0
	for _, g := range s.gens {
		if g.state != read && g.state != unavailable {
			open++
		}
	}
	for _, g := range s.gens {
		if open <= x.o.MaxGenerations {
			return
		}
		if g == x.files.reading || g.state != moved && g.state != copied {
			continue
		}
		if g.unread() > 0 {
			x.o.report("%s: more than %d rotated files wait to be read; the oldest one that is not being read is abandoned", s.path, x.o.MaxGenerations)
		}
		g.become(unavailable)
		x.unlist(g)
		x.files.closeFile(g)
		open--
		x.queue.wake(s)
	}
}

// unreadable is called when the file of g cannot be read. It reports each generation once. The
// caller holds mu.
func (x *index) unreadable(g *generation, err error) {
	if g.remainder == readable {
		g.remainder = partialLine
	}
	g.mtime = time.Time{} // the next scan tries again
	g.s.due = x.o.now().Add(10 * x.o.Poll)
	if !g.failed {
		x.missed++
		g.failed = true
		x.o.report("%s: %s", g.s.path, x.o.unreadableText(err))
	}
}

// fromEnd moves the position of g to the end of its last complete line. The caller holds mu.
func (x *index) fromEnd(g *generation) {
	if kind := x.o.kind(g.f); kind != "" {
		x.skip(g, kind)
		return
	}
	buf := make([]byte, min(g.size, 64<<10))
	at := g.size
	if _, err := g.f.ReadAt(buf, at-int64(len(buf))); err != nil && err != io.EOF {
		x.unreadable(g, err)
		return
	}
	start := at - int64(len(buf))
	if n := x.files.charsetOf(g, g.f).LastLineEnd(buf, start); n > 0 {
		at = start + int64(n)
	} else if start == 0 {
		at = 0
	}
	m, err := positionAt(g.f, at)
	if err != nil {
		x.unreadable(g, err)
		return
	}
	g.at, g.settled, g.snapped = m, resumePoint{position: m}, resumePoint{position: m}
	x.files.recordSeen(g, m)
}

// skip is called when the file of g is not text, and reports that the file is not followed. The
// caller holds mu.
func (x *index) skip(g *generation, kind string) {
	if g.state == unavailable {
		return
	}
	g.become(skipped)
	x.missed++
	x.files.closeFile(g)
	x.o.report("%s: it is %s; it is not followed", g.s.path, kind)
}

// drop removes g from its series. The caller holds mu.
func (x *index) drop(g *generation) {
	g.dropped = true
	x.files.closeFile(g)
	if x.reals[g.real] == g.s {
		delete(x.reals, g.real)
	}
	g.s.gens = slices.DeleteFunc(g.s.gens, func(o *generation) bool { return o == g })
	x.queue.add(g.s) // the reader removes the series if it has no generations
}

// forget removes s from the index if it has no generations and no unfinished records.
func (x *index) forget(s *series) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(s.gens) == 0 && s.joiner == nil && s.rest.kind != carried && x.paths[s.path] == s {
		delete(x.paths, s.path)
		x.list = slices.DeleteFunc(x.list, func(o *series) bool { return o == s })
	}
}

// markUnsaved makes the keeper store the position of g. The caller holds mu.
func (x *index) markUnsaved(g *generation) {
	if !x.stored() || g.unsaved {
		return
	}
	g.unsaved = true
	x.unsaved = append(x.unsaved, g)
	signal(x.unsavedReady)
}

// copyOf returns the path of a copy of the file of e, or "". A file that was last modified before
// e.mtime is not a copy: it is an earlier generation with the same beginning.
func (x *index) copyOf(e search) string {
	stem := filepath.Base(e.real)
	stem = stem[:len(stem)-len(filepath.Ext(stem))]
	return e.sibling(func(path string, st fs.FileInfo) bool {
		name, fileID := filepath.Base(path), idOf(path, st)
		return st.ModTime().UnixNano() >= e.mtime && fileID != e.id && len(name) >= len(stem) && name[:len(stem)] == stem && path != e.real &&
			!x.follows(fileID) && !x.o.matches(path) && isFile(path, e.head, e.passed)
	})
}

// entries returns the entries of all generations. It omits files that are not text. The caller
// holds mu.
func (x *index) entries() []entry {
	entries := slices.Clone(x.unmatched)
	all := make([]*generation, 0, len(x.list))
	for _, s := range x.list {
		all = append(all, s.gens...)
	}
	slices.SortFunc(all, func(a, b *generation) int { return int(int64(a.order) - int64(b.order)) })
	for _, g := range all {
		if g.state != skipped {
			entries = append(entries, g.entry())
		}
	}
	return entries
}

// changes returns the entries that have changed since the last call of changes. If the parameter
// all is true, it returns all entries.
func (x *index) changes(all bool) (entries []entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range x.unsaved {
		g.unsaved = false
		if !all {
			entries = append(entries, g.entry())
			entries[len(entries)-1].ended = g.dropped
		}
	}
	x.unsaved = nil
	if all {
		return x.entries()
	}
	return entries
}

// snapshot returns the positions that have changed since the last snapshot. It examines the
// generations of the series in touched.
func (x *index) snapshot(touched []*series) (items []item) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range touched {
		for _, g := range s.gens {
			if at := s.resumePoint(g); at != g.snapped && g.state != skipped {
				g.snapped = at
				items = append(items, item{g, at})
			}
		}
	}
	return items
}

// settle handles the result of committing the snapshot shot. If committed is true, the keeper
// stores the positions in shot. If committed is false, settle returns the series that a later
// snapshot must include.
func (x *index) settle(shot snapshot, committed bool) (failed []*series) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, i := range shot.items {
		switch g := i.g; {
		case !committed:
			g.snapped = resumePoint{position: position{off: -1}}
			failed = append(failed, g.s)
		case g.settledNo < shot.no && !g.dropped:
			g.settledNo, g.settled = shot.no, i.resumePoint
			if i.ended {
				x.drop(g)
			}
			x.markUnsaved(g)
		}
	}
	return failed
}

// settleAll marks all positions as committed and returns all entries. It is called when everything
// that was passed to the sink is delivered or in a spool.
func (x *index) settleAll() []entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.list {
		for _, g := range s.gens {
			g.settled = s.resumePoint(g)
			if g.f == nil || g.state != moved && isAt(s.path, g.id) {
				continue
			}
			if st, err := g.f.Stat(); err == nil {
				g.checkDeleted(st)
			}
		}
		s.gens = slices.DeleteFunc(s.gens, func(g *generation) bool { return g.settled.ended })
	}
	return x.entries()
}

// A queue contains the series that the reader must process.
type queue struct {
	ready chan struct{} // receives a value when a series is added

	mu     sync.Mutex
	active []*series
}

// add adds s to the queue, unless it is already queued. It does not wake the goroutine of Run.
func (q *queue) add(s *series) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.queued {
		s.queued = true
		q.active = append(q.active, s)
	}
}

// wake adds s to the queue and wakes the goroutine of Run.
func (q *queue) wake(s *series) {
	q.add(s)
	signal(q.ready)
}

// takeAll returns the series in the queue and empties it.
func (q *queue) takeAll() []*series {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.active
	q.active = nil
	for _, s := range all {
		s.queued = false
	}
	return all
}
