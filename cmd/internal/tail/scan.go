package tail

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// watch looks for changes until ctx ends. It never waits for the sink.
func (t *Tailer) watch(ctx context.Context, w *watcher) {
	for {
		timer := time.NewTimer(time.Until(t.look(t.now(), w)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case ev := <-w.events:
			t.notice(ev, t.now())
		case <-w.errors: // events are missing
			t.nextScan = time.Time{}
		case <-timer.C:
		}
		timer.Stop()
	}
}

// look scans if it is time to, and looks at the files that are due. It returns when something
// is due again.
func (t *Tailer) look(now time.Time, w *watcher) (next time.Time) {
	if !now.Before(t.nextScan) {
		t.scanPaths(now, w)
		t.nextScan = now.Add(t.o.Rescan)
	}
	next = t.nextScan
	t.mu.Lock()
	all := t.all[:0]
	for _, s := range t.list {
		if now.Before(s.due) {
			next = soonest(next, s.due)
		} else {
			all = append(all, s)
		}
	}
	t.mu.Unlock()
	for _, s := range all {
		t.mu.Lock()
		if t.paths[s.path] == s {
			t.observe(s, now)
			next = soonest(next, s.due)
		}
		t.mu.Unlock()
	}
	clear(all)
	t.all = all
	return next
}

// scanPaths looks for files that the patterns name.
func (t *Tailer) scanPaths(now time.Time, w *watcher) {
	for _, p := range t.o.Patterns {
		w.add(filepath.Dir(p))
		paths := []string{p}
		if IsPattern(p) {
			paths, _ = filepath.Glob(p) // the pattern is a good one
			slices.Sort(paths)
		}
		if len(paths) == 0 && t.initial {
			t.mu.Lock()
			t.skipPath(p, id{}, "no such file"+t.waiting())
			t.mu.Unlock()
		}
		for _, path := range paths {
			t.mu.Lock()
			if s := t.paths[path]; s == nil || s.current() == nil {
				t.find(path, now, t.initial)
			}
			t.mu.Unlock()
		}
	}
	t.mu.Lock()
	t.scans++
	t.initial = false
	for real := range t.reals {
		w.add(filepath.Dir(real))
	}
	t.mu.Unlock()
	signal(t.ready)
}

func (t *Tailer) waiting() string {
	if t.o.Once {
		return ""
	}
	return " yet; waiting for one"
}

// find follows the file at path, if it exists. If missing is set, a missing file is reported. The
// caller holds mu.
func (t *Tailer) find(path string, now time.Time, missing bool) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(t.skipped, path)
		if missing {
			t.skipPath(path, id{}, "no such file"+t.waiting())
		}
	case err != nil:
		t.skipPath(path, id{}, "it cannot be read: "+plain(err).Error())
	case st.IsDir():
		t.skipPath(path, idOf(path, st), "it is a directory; for the files in it, write "+filepath.Join(path, "*"))
	case !st.Mode().IsRegular():
		t.skipPath(path, idOf(path, st), "it is not a regular file")
	default:
		t.lead(path, st, now)
	}
}

// skipPath reports once why a path is not followed.
func (t *Tailer) skipPath(path string, what id, why string) {
	if old, told := t.skipped[path]; !told || old != what {
		t.skipped[path] = what
		t.missed++
		t.report("%s: %s", path, why)
	}
}

// observe looks at the generations of s. The caller holds mu.
func (t *Tailer) observe(s *series, now time.Time) {
	s.idle = min(s.idle+t.o.Poll, 10*t.o.Poll)
	s.due = now.Add(s.idle)
	cur := s.current()
	if cur != nil {
		st, err := os.Stat(s.path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && !st.Mode().IsRegular():
			t.detach(cur, now)
		case err != nil:
			t.cannot(cur, err)
		case idOf(s.path, st) != cur.id:
			t.detach(cur, now)
			t.lead(s.path, st, now)
		default:
			t.grow(cur, st, now)
		}
	}
	for _, g := range slices.Clone(s.gens) {
		if g.state != moved || g.f == nil {
			continue
		}
		if st, err := g.f.Stat(); err != nil {
			t.cannot(g, err)
		} else {
			t.grow(g, st, now)
		}
	}
}

// grow notes the size of g. The caller holds mu.
func (t *Tailer) grow(g *generation, st fs.FileInfo, now time.Time) {
	if st.Size() == g.size && st.ModTime().Equal(g.mtime) {
		return
	}
	if st.Size() < g.data.off || g.state == skipped && st.Size() < g.size || !t.same(g) {
		t.truncated(g, st, now)
		return
	}
	if g.state == skipped {
		g.size, g.mtime = st.Size(), st.ModTime()
		return
	}
	g.size, g.mtime, g.active = st.Size(), st.ModTime(), now
	g.stuck, g.moot = false, false
	g.s.idle, g.s.due = 0, now.Add(t.o.Poll)
	t.measure(g)
	t.unsave(g)
	t.wake(g.s)
}

// same reports whether g still has the content that was seen before. The caller holds mu.
func (t *Tailer) same(g *generation) bool {
	if g.state == skipped {
		return true
	}
	f, err := t.ensure(g)
	if err != nil {
		return true // the next look reports why
	}
	ok, err := is(f, g.head, g.data)
	return ok || err != nil
}

// measure reads what g is known by. The caller holds mu.
func (t *Tailer) measure(g *generation) {
	f, err := t.ensure(g)
	if err != nil {
		return
	}
	var buf [4096]byte
	n := min(g.size, int64(len(buf)))
	if _, err := f.ReadAt(buf[:n], g.size-n); err != nil {
		return
	}
	end := n
	for end > 0 && buf[end-1] == 0 { // space that may be filled later
		end--
	}
	unit, start := int64(t.charsetOf(g, f).Unit()), g.size-n
	end = (start+end+unit-1)/unit*unit - start // a NUL may be half of a code unit
	if end > n {
		end -= unit
	}
	if back := min(tailBytes, g.size-n+end); end >= back && end > 0 {
		t.seen(g, mark{g.size - n + end, sum(buf[end-back : end])})
	}
}

// seen notes that g goes up to m. The caller holds mu.
func (t *Tailer) seen(g *generation, m mark) {
	if m.off > g.data.off {
		g.data = m
	}
	if g.head.n < headBytes && int64(g.head.n) < g.data.off {
		if f, err := t.ensure(g); err == nil {
			if h, err := headOf(f, g.data.off); err == nil {
				g.head = h
				t.unsave(g)
			}
		}
	}
}

// lead follows the file that path leads to. The caller holds mu.
func (t *Tailer) lead(path string, st fs.FileInfo, now time.Time) {
	what := idOf(path, st)
	if g := t.ids[what]; g != nil {
		switch {
		case g.state == moved && g.s.path == path:
			t.rehome(g, now)
		case g.state == moved:
			g.home = path
			g.real = realPath(path)
			t.unsave(g)
		}
		return // or it has two names
	}
	g, err := t.open(path, what)
	if err != nil {
		t.skipPath(path, id{}, "cannot be read: "+plain(err).Error()+"; retrying")
		return
	}
	if g == nil { // something else is there already: the next look sees it
		return
	}
	delete(t.skipped, path)
	g.active = now
	t.add(t.seriesOf(path), g)
	if t.initial {
		g.limit = g.size
		if t.o.FromEnd && t.fresh {
			t.fromEnd(g)
		}
	}
	t.measure(g)
	t.bound(g.s)
	t.wake(g.s)
}

// open opens a file that was not known. It returns nil if another one is there.
func (t *Tailer) open(path string, what id) (*generation, error) {
	t.room()
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil || idOf(path, st) != what {
		f.Close()
		return nil, err
	}

	return &generation{id: what, real: realPath(path), f: f, size: st.Size(), mtime: st.ModTime()}, nil
}

// seriesOf returns the series of path. The caller holds mu.
func (t *Tailer) seriesOf(path string) *series {
	s := t.paths[path]
	if s == nil {
		s = &series{path: path, src: sourceOf(path)}
		t.paths[path] = s
		t.list = append(t.list, s)
	}
	return s
}

// resume continues with the generations of the earlier run. The caller holds mu.
func (t *Tailer) resume(now time.Time) {
	for _, e := range t.saved {
		st, err := os.Stat(e.path)
		here := err == nil && st.Mode().IsRegular() && idOf(e.path, st) == e.id
		if !t.Matches(e.path) {
			if here {
				t.number++
				e.no = t.number
				t.parked = append(t.parked, e)
			}
			continue
		}
		g := &generation{id: e.id, real: e.real, at: e.at, head: e.head, data: e.at, size: e.at.off, active: now}
		find := search{e, e.at}
		path := ""
		switch {
		case e.head.n == 0: // it was empty, and its inode may be another file's by now
			continue
		case here && st.Size() >= e.at.off && t.ids[e.id] == nil && isFile(e.path, e.head, e.at):
		case here:
			g.state, path = copied, t.copyOf(find)
			if path == "" {
				t.report("%s: it was replaced or truncated since the earlier run; reading from its start", e.path)
			}
		default:
			if g.state, path = moved, t.elsewhere(find); path == "" {
				g.state, path = copied, t.copyOf(find)
			}
			if path == "" {
				t.report("%s: the file of the earlier run is gone; its content after byte %d was not read", e.path, e.at.off)
			}
		}
		s := t.seriesOf(e.path)
		if g.state != current {
			if g.f, err = os.Open(path); err == nil {
				st, err = g.f.Stat()
			}
			if path == "" || err != nil {
				t.lose(s, e.seen-e.at.off)
				continue
			}
			g.id, g.real = idOf(path, st), path
			if g.size, g.mtime = st.Size(), st.ModTime(); g.state == copied {
				t.report("%s: reading the rest of its copy %s, then the file from its start", e.path, path)
			}
		}
		g.limit = st.Size()
		t.add(s, g)
		if g.settled.cut = e.cut; e.cut {
			s.rest = unfinished{kind: cutOff, in: g}
		}
		if g.state != current {
			t.measure(g)
			t.lose(s, e.seen-max(g.data.off, e.at.off))
		}
		t.wake(s)
	}
	t.saved = nil
}

// add makes g the newest generation of s. The caller holds mu.
func (t *Tailer) add(s *series, g *generation) {
	t.number++
	g.no, g.order, g.s = t.number, t.number, s
	g.snapped, g.settled = spot{mark: g.at}, spot{mark: g.at}
	s.gens = append(s.gens, g)
	if g.state == current && g.real != s.path {
		t.reals[g.real] = s
	}
	s.due, s.idle = t.now(), 0
	if g.state == copied {
		t.ids[g.id] = g
	} else if t.ids[g.id] == nil || t.ids[g.id].state != current {
		t.ids[g.id] = g
	}
	if g.f != nil {
		t.files = append(t.files, g)
	}
	t.unsave(g)
}

// rehome makes g, which was moved, the newest generation of the path that leads to it. The
// caller holds mu.
func (t *Tailer) rehome(g *generation, now time.Time) {
	path := g.s.path
	if g.home != "" {
		path = g.home
	}
	s := t.seriesOf(path)
	if cur := s.current(); cur != nil {
		if g.s == s {
			return
		}
		t.detach(cur, now)
	}
	g.s.gens = slices.DeleteFunc(g.s.gens, func(o *generation) bool { return o == g })
	t.queue(g.s)
	g.s, g.home = s, ""
	t.number++
	g.order = t.number
	s.gens = append(s.gens, g)
	s.due, s.idle = now, 0
	g.become(current)
	t.unsave(g)
	t.wake(s)
}

// detach continues with a generation that is no longer at its path. The caller holds mu.
func (t *Tailer) detach(g *generation, now time.Time) {
	switch {
	case g.state == skipped:
		g.become(read)
		delete(t.ids, g.id)
		t.drop(g)
		t.unsave(g)
		return
	case g.f == nil:
		find := g.entry().moving(g.at)
		path, to := t.elsewhere(find), moved
		if path == "" { // it was truncated before
			path, to = t.copyOf(find), copied
		}
		if f, err := os.Open(path); err == nil {
			t.substitute(g, f, path, to, now)
		} else {
			g.become(gone)
			delete(t.ids, g.id)
		}
		t.unsave(g)
		t.bound(g.s)
		t.wake(g.s)
		return
	}
	g.become(moved)
	g.scan, g.active = t.scans, now
	g.s.due, g.s.idle = now, 0
	if st, err := g.f.Stat(); err == nil {
		t.grow(g, st, now)
	}
	t.unsave(g)
	t.bound(g.s)
	t.wake(g.s)
}

// substitute continues g in another file that has the rest of its content. The caller holds mu.
func (t *Tailer) substitute(g *generation, f *os.File, path string, to genState, now time.Time) {
	before := g.data.off
	delete(t.ids, g.id)
	if st, err := f.Stat(); err == nil {
		g.id, g.size, g.mtime = idOf(path, st), st.Size(), st.ModTime()
	}
	g.f, g.real, g.stuck, g.data = f, path, false, g.at
	g.scan, g.active = t.scans, now
	g.s.due, g.s.idle = now, 0
	t.files = append(t.files, g)
	t.ids[g.id] = g
	g.become(to)
	t.measure(g)
	t.lose(g.s, before-g.data.off)
}

// truncated replaces g, whose content is gone, with a new generation. Unread content is searched in
// a copy made before the truncation. The caller holds mu.
func (t *Tailer) truncated(g *generation, st fs.FileInfo, now time.Time) {
	n := &generation{id: g.id, real: g.real, size: st.Size(), mtime: st.ModTime(), active: now, limit: st.Size(), state: g.state, scan: g.scan, home: g.home}
	if g.state == skipped {
		n.state = current
	}
	known := g.state != skipped && g.head.n > 0
	f := g.f
	if f != nil {
		t.files = slices.DeleteFunc(t.files, func(o *generation) bool { return o == g })
		g.f, n.f = nil, f
	}
	delete(t.ids, g.id)
	path := ""
	if known {
		path = t.copyOf(g.entry().moving(g.at))
	}
	switch c, err := os.Open(path); {
	case g.state == skipped:
		g.become(read)
	case path != "" && err == nil:
		t.substitute(g, c, path, copied, now)
		t.report("%s: it was truncated; reading the rest of its copy %s, then the file from its start", g.s.path, path)
	default:
		g.become(gone)
		if known {
			t.report("%s: it was truncated; reading from its start", g.s.path)
		}
	}
	t.add(g.s, n)
	if g.state == read {
		t.drop(g)
	}
	t.unsave(g)
	t.measure(n)
	t.bound(g.s)
	t.wake(g.s)
}

// changed looks at g, of which its reader has found that f holds something else.
func (t *Tailer) changed(g *generation, f *os.File, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch st, err := f.Stat(); {
	case g.f != f: // it was seen already
	case g.state == copied:
		g.become(gone)
		t.shut(g)
		t.wake(g.s)
	case err != nil:
		t.cannot(g, err)
	default:
		t.truncated(g, st, now)
	}
}

// bound gives up generations of s that are too many. The caller holds mu.
func (t *Tailer) bound(s *series) {
	open := 0
	for _, g := range s.gens {
		if g.state != read && g.state != gone {
			open++
		}
	}
	for _, g := range s.gens {
		if open <= t.o.MaxGenerations {
			return
		}
		if g == t.reading || g.state != moved && g.state != copied {
			continue
		}
		if g.unread() > 0 {
			t.report("%s: more than %d rotated files wait to be read; the oldest one that is not being read is abandoned", s.path, t.o.MaxGenerations)
		}
		g.become(gone)
		delete(t.ids, g.id)
		t.shut(g)
		open--
		t.wake(s)
	}
}

// lose reports and counts bytes of a generation that cannot be read any more.
func (t *Tailer) lose(s *series, n int64) {
	if n > 0 {
		t.o.Lost(n)
		t.report("%s: %d bytes of it are lost: they were not read, and no copy of them exists", s.path, n)
	}
}

// cannot reports once that g cannot be read. The caller holds mu.
func (t *Tailer) cannot(g *generation, err error) {
	g.stuck = true
	g.mtime = time.Time{} // the next look tries again
	g.s.due = t.now().Add(10 * t.o.Poll)
	if !g.failed {
		t.missed++
		g.failed = true
		t.report("%s: cannot be read: %s; retrying", g.s.path, plain(err))
	}
}

// errReplaced reports that the path leads to another file. The next scan detects it.
var errReplaced = errors.New("tail: another file")

// ensure opens g. The caller holds mu.
func (t *Tailer) ensure(g *generation) (*os.File, error) {
	g.used = t.now()
	if g.f != nil {
		return g.f, nil
	}
	t.room()
	f, err := os.Open(g.s.path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && idOf(g.s.path, st) != g.id {
		err = errReplaced
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	g.f = f

	t.files = append(t.files, g)
	return f, nil
}

// room closes the file that was used longest ago, if too many are open. The caller holds mu.
func (t *Tailer) room() {
	for len(t.files) >= t.o.MaxOpen {
		var oldest *generation
		for _, g := range t.files {
			if g.state != current || g == t.reading {
				continue // nothing leads to it, or it is in use
			}
			if oldest == nil || !g.hasUnread() && oldest.hasUnread() || g.hasUnread() == oldest.hasUnread() && g.used.Before(oldest.used) {
				oldest = g
			}
		}
		if oldest == nil {
			return
		}
		t.shut(oldest)
	}
}

// shut closes the file of g. The caller holds mu.
func (t *Tailer) shut(g *generation) {
	if g.f != nil {
		g.f.Close()
		g.f = nil
		t.files = slices.DeleteFunc(t.files, func(o *generation) bool { return o == g })
	}
}

func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// fromEnd moves g to the end of its last complete line. The caller holds mu.
func (t *Tailer) fromEnd(g *generation) {
	if what := t.kind(g.f); what != "" {
		t.leaveOut(g, what)
		return
	}
	buf := make([]byte, min(g.size, 64<<10))
	at := g.size
	if _, err := g.f.ReadAt(buf, at-int64(len(buf))); err != nil && err != io.EOF {
		t.cannot(g, err)
		return
	}
	start := at - int64(len(buf))
	if n := t.charsetOf(g, g.f).LastLineEnd(buf, start); n > 0 {
		at = start + int64(n)
	} else if start == 0 {
		at = 0
	}
	m, err := markAt(g.f, at)
	if err != nil {
		t.cannot(g, err)
		return
	}
	g.at, g.settled, g.snapped = m, spot{mark: m}, spot{mark: m}
	t.seen(g, m)
}

// A search describes the file to look for.
type search struct {
	entry
	taken mark
}

// moving is e at a mark.
func (e entry) moving(m mark) search { return search{e, m} }

// elsewhere returns the path of the file of e, which was renamed; "": there is none.
func (t *Tailer) elsewhere(e search) string {
	return t.siblings(e, func(path string, st fs.FileInfo) bool {
		return idOf(path, st) == e.id && isFile(path, e.head, e.taken)
	})
}

// copyOf returns the path of a copy of the file of e; "": there is none. A file that has not
// changed since e was seen last is an older generation that begins alike.
func (t *Tailer) copyOf(e search) string {
	stem := filepath.Base(e.real)
	stem = stem[:len(stem)-len(filepath.Ext(stem))]
	return t.siblings(e, func(path string, st fs.FileInfo) bool {
		name, what := filepath.Base(path), idOf(path, st)
		return st.ModTime().UnixNano() >= e.mtime && what != e.id && len(name) >= len(stem) && name[:len(stem)] == stem && path != e.real &&
			t.ids[what] == nil && !t.Matches(path) && isFile(path, e.head, e.taken)
	})
}

// siblings returns the file in the directory of e for which ok returns true. Of several, it is the
// one modified first: files modified later belong to later generations.
func (t *Tailer) siblings(e search, ok func(path string, st fs.FileInfo) bool) (best string) {
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
