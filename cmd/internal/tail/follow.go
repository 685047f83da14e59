package tail

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/join"
)

// A follow is a file that is followed.
type follow struct {
	id   id
	path string
	real string // without symbolic links
	src  *Source

	at   mark // of the first byte that is not taken
	head head // of what was taken; more than what is committed
	cut  bool // the line before at was delivered without its end

	committed mark // the sink has everything before it

	long      int64 // bytes of the line too long that at lies in; 0: none
	longStart mark
	hold      *join.Joiner[mark] // nil: nothing is held

	size  int64 // as it was seen last
	known int64 // the size at which it still held what was read of it, without NUL bytes at its end
	mtime time.Time
	limit int64 // how far Options.Once reads
	stuck bool  // the rest, up to size, cannot be taken yet: it has no newline
	since time.Time

	f        *os.File // nil: closed
	used     time.Time
	detached bool    // no path leads to it any more; f is open
	copied   bool    // it is a copy, which does not grow
	scan     uint64  // the last one before it was detached
	after    *follow // what is in it comes first; nil: nothing
	skip     bool    // it is compressed or binary
	bare     bool    // a line not of a container was told of
	failed   bool    // it was said that it cannot be read
	done     bool
	due      time.Time
	idle     time.Duration
	active   time.Time // when it changed last
}

// stored is the position of the first byte that is not committed.
func (f *follow) stored() mark { return f.committed }

// ended is the position of a file that needs none.
var ended = mark{off: -1}

// safe is the position of the first byte that the sink was not given.
func (f *follow) safe() mark {
	if f.done {
		return ended
	}
	m := f.at
	if f.long > 0 {
		m = f.longStart
	}
	if f.hold != nil {
		for start := range f.hold.Held {
			if start.off < m.off {
				m = start
			}
		}
	}
	return m
}

// entry is f at m.
func (f *follow) entry(m mark) entry {
	e := entry{id: f.id, path: f.path, real: f.real, at: m, head: f.head}
	e.cut = f.cut && m == f.at
	return e
}

// look looks at f, and takes what is new. The error is the sink's.
func (t *Tailer) look(f *follow, now time.Time) error {
	f.due = now.Add(t.o.Poll)
	if !f.detached {
		st, err := os.Stat(f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && !st.Mode().IsRegular():
			return t.detach(f, now)
		case err != nil:
			t.cannot(f, err)
			return nil
		case idOf(f.path, st) != f.id:
			if err := t.detach(f, now); err != nil {
				return err
			}
			t.lead(f.path, st, now)
			return nil
		}
		return t.follow(f, st, now)
	}
	st, err := f.f.Stat()
	if err != nil {
		t.cannot(f, err)
		return nil
	}
	if err := t.follow(f, st, now); err != nil || f.done {
		return err
	}
	if !f.behind() && (f.copied || f.scan < t.scans && now.Sub(f.active) >= t.o.RotateWait) {
		return t.end(f, now)
	}
	return nil
}

// behind reports whether there is more to take of f, as far as is known.
func (f *follow) behind() bool { return !f.done && f.at.off < f.size && !f.stuck && !f.skip }

// follow takes what is new in f, of which st is known.
func (t *Tailer) follow(f *follow, st fs.FileInfo, now time.Time) error {
	seen := !f.mtime.IsZero()
	changed := st.Size() != f.size || !st.ModTime().Equal(f.mtime)
	before := f.size
	if f.stuck { // f.known says it
		before = 0
	}
	if st.Size() < f.at.off || f.skip && st.Size() < f.size {
		return t.truncated(f, st, before, now)
	}
	f.size, f.mtime = st.Size(), st.ModTime()
	if changed {
		f.stuck = false
		f.idle, f.active, f.since = 0, now, now
	}
	if changed && seen && f.size == f.at.off && !f.skip && !t.holds(f, now) {
		return t.truncated(f, st, before, now)
	}
	if !f.behind() {
		if f.stuck && t.o.PartialWait > 0 && now.Sub(f.since) >= t.o.PartialWait {
			return t.takePartial(f, now)
		}
		f.idle = min(f.idle+t.o.Poll, 10*t.o.Poll)
		f.due = now.Add(f.idle)
		return nil
	}
	err := t.turn(f, now)
	if errors.Is(err, errOther) {
		// The size is that of the new content if nothing has changed since. Else it may
		// have been that of the old one.
		if again, err := f.f.Stat(); err != nil || again.Size() != st.Size() || !again.ModTime().Equal(st.ModTime()) {
			before = max(before, st.Size())
		}
		return t.truncated(f, st, before, now)
	}
	if errors.Is(err, errReplaced) {
		return nil
	}
	if fe := (*fs.PathError)(nil); errors.As(err, &fe) {
		t.cannot(f, err)
		return nil
	}
	f.failed = false
	if f.behind() {
		f.due = now
	}
	return err
}

// holds reports whether f, which has grown by nothing, still holds what was read of it: it may
// have been truncated and written to again. Of one that cannot be read it says so.
func (t *Tailer) holds(f *follow, now time.Time) bool {
	if t.ensure(f, now) != nil {
		return true // the next look tells why
	}
	ok, err := is(f.f, f.head, f.at)
	return ok || err != nil
}

// errOther says that a file does not hold what was read of it: it was truncated, and
// has grown since.
var errOther = errors.New("tail: another content")

// errReplaced says that a path leads to another file. The next look sees it.
var errReplaced = errors.New("tail: another file")

// cannot tells that f cannot be read, once.
func (t *Tailer) cannot(f *follow, err error) {
	f.due = t.now().Add(10 * t.o.Poll)
	if t.o.Once {
		f.stuck = true
	}
	if !f.failed {
		t.missed++
		f.failed = true
		t.say("%s: cannot be read: %s; trying again", f.path, plain(err))
	}
}

// ensure opens f.
func (t *Tailer) ensure(f *follow, now time.Time) error {
	f.used = now
	if f.f != nil {
		return nil
	}
	if t.open >= t.o.MaxOpen {
		t.shutOldest()
	}
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	st, err := file.Stat()
	if err == nil && idOf(f.path, st) != f.id {
		err = errReplaced
	}
	if err != nil {
		file.Close()
		return err
	}
	f.f = file
	t.open++
	return nil
}

// shut closes the file of f.
func (t *Tailer) shut(f *follow) {
	if f.f != nil {
		f.f.Close()
		f.f = nil
		t.open--
	}
}

// shutOldest closes the file that was used longest ago. One that no path leads to
// stays open.
func (t *Tailer) shutOldest() {
	var oldest *follow
	for _, f := range t.files {
		if f.f != nil && !f.detached && (oldest == nil || f.used.Before(oldest.used)) {
			oldest = f
		}
	}
	if oldest != nil {
		t.shut(oldest)
	}
}

// turn takes up to turnBytes of f. An error is the sink's, errOther, or an
// *fs.PathError.
func (t *Tailer) turn(f *follow, now time.Time) error {
	if err := t.ensure(f, now); err != nil {
		return err
	}
	if f.at.off == 0 && f.long == 0 {
		if what := t.kind(f.f); what != "" {
			f.skip = true
			t.shut(f)
			t.say("%s: it is %s; it is not followed", f.path, what)
			return nil
		}
	}
	for begin := f.at.off; f.at.off < f.size && f.at.off-begin < turnBytes; {
		if t.stopped.Load() {
			return ErrStopped
		}
		if t.buf == nil {
			t.buf = make([]byte, firstBuf)
		}
		back := int(min(tailBytes, f.at.off))
		want := int(min(int64(len(t.buf)-back), f.size-f.at.off))
		n, err := f.f.ReadAt(t.buf[:back+want], f.at.off-int64(back))
		if err != nil && err != io.EOF {
			return err
		}
		if n <= back || sum(t.buf[:back]) != f.at.sum {
			return errOther
		}
		f.known = f.size
		used, err := t.lines(f, t.buf[:n], back, now)
		if used > back {
			f.at = markIn(t.buf, used, f.at.off-int64(back))
			t.dirty = true
		}
		if err == nil && f.head.n < headBytes && int64(f.head.n) < f.at.off {
			h, herr := headOf(f.f, f.at.off)
			if herr != nil {
				return errOther
			}
			t.news = t.news || f.head.n == 0 // a copy of it can be known from now on
			f.head = h
		}
		if err != nil {
			return err
		}
		if used > back {
			continue
		}
		// No line ends in what was read.
		switch {
		case t.buf[back] == 0 && zeros(t.buf[back:n]) == n-back:
			f.known = f.at.off // NUL bytes are no loss
			found, err := t.skipHole(f)
			if err != nil || !found {
				f.stuck = err == nil
				return err
			}
		case n-back >= t.o.MaxRecord+2:
			f.longStart, f.long = f.at, int64(n-back)
			f.at = markIn(t.buf, n, f.at.off-int64(back))
		case n == len(t.buf):
			t.buf = make([]byte, min(2*len(t.buf), tailBytes+t.o.MaxRecord+2))
		default:
			f.stuck = true
			return nil
		}
	}
	return nil
}

// byteOrderMark is what programs of Windows put in front of UTF-8.
var byteOrderMark = []byte("\xef\xbb\xbf")

// lines takes the lines in p[at:] and returns how far it came. The error is the sink's.
func (t *Tailer) lines(f *follow, p []byte, at int, now time.Time) (int, error) {
	base := f.at.off - int64(at)
	if f.at.off == 0 && bytes.HasPrefix(p, byteOrderMark) {
		at = len(byteOrderMark)
	}
	for at < len(p) {
		rest := p[at:]
		if f.cut {
			// The end of a line whose beginning was delivered.
			if rest[0] == '\r' && len(rest) == 1 {
				return at, nil
			}
			if bytes.HasPrefix(rest, []byte("\r\n")) {
				at++
			}
			if p[at] == '\n' {
				at++
			}
			f.cut = false
			continue
		}
		if f.long > 0 {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				f.long += int64(len(rest))
				return len(p), nil
			}
			if err := t.tooLong(f, f.long+int64(i)+1); err != nil {
				return at, err
			}
			at, f.long = at+i+1, 0
			continue
		}
		if rest[0] == 0 { // a hole
			n := zeros(rest)
			if n == len(rest) {
				return at, nil
			}
			at += n
			continue
		}
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return at, nil
		}
		line := rest[: i+1 : i+1]
		var err error
		switch {
		case i > t.o.MaxRecord && len(join.TrimEnd(line)) > t.o.MaxRecord:
			err = t.tooLong(f, int64(len(line)))
		case t.o.Join == nil: // for a function that says where it begins, each would take memory
			err = t.put(f, line, "", time.Time{})
		default:
			start := at
			err = t.line(f, line, func() mark { return markIn(p, start, base) }, base+int64(at+i+1), now)
		}
		if err != nil {
			return at, err
		}
		at += i + 1
	}
	return at, nil
}

// tooLong tells the sink of a line that is too long.
func (t *Tailer) tooLong(f *follow, n int64) error {
	if t.stopped.Load() {
		return ErrStopped
	}
	return t.sink.Put(Line{Source: f.src, TooLong: n})
}

// zeros returns how many NUL bytes p begins with.
func zeros(p []byte) int {
	for i, c := range p {
		if c != 0 {
			return i
		}
	}
	return len(p)
}

// skipHole moves f behind the NUL bytes at its position, if something else follows.
func (t *Tailer) skipHole(f *follow) (found bool, err error) {
	for off := f.at.off; off < f.size; {
		n, err := f.f.ReadAt(t.buf[:min(int64(len(t.buf)), f.size-off)], off)
		if err != nil && err != io.EOF {
			return false, err
		}
		if z := zeros(t.buf[:n]); z < n {
			m, err := markAt(f.f, off+int64(z))
			if err != nil {
				return false, errOther
			}
			f.at = m
			return true, nil
		}
		if n == 0 {
			return false, errOther
		}
		off += int64(n)
	}
	return false, nil
}

// kind says what the file is if it is not text.
func (t *Tailer) kind(r io.ReaderAt) string {
	var buf [512]byte
	n, _ := r.ReadAt(buf[:], 0)
	return binary(buf[:n])
}

// takePartial takes the last line of f without its end.
func (t *Tailer) takePartial(f *follow, now time.Time) error {
	if f.long > 0 {
		if err := t.tooLong(f, f.long); err != nil {
			return err
		}
		f.long, t.dirty = 0, true
		return nil
	}
	n := int(f.size - f.at.off)
	if n <= 0 || f.skip {
		return nil
	}
	if err := t.ensure(f, now); err != nil {
		if !errors.Is(err, errReplaced) {
			t.cannot(f, err)
		}
		return nil
	}
	back := int(min(tailBytes, f.at.off))
	if back+n > len(t.buf) { // a hole, which no line needs, or a line too long
		return nil
	}
	got, err := f.f.ReadAt(t.buf[:back+n], f.at.off-int64(back))
	if got < back+n || sum(t.buf[:back]) != f.at.sum {
		if err != nil && err != io.EOF {
			t.cannot(f, err)
		}
		return nil // the next look sees what became of it
	}
	text := t.buf[back : back+n : back+n]
	if zeros(text) == n || f.cut && text[0] == '\r' && n == 1 {
		return nil
	}
	at, line := f.at, text[zeros(text):]
	if len(line) > t.o.MaxRecord {
		err = t.tooLong(f, int64(len(line)))
	} else {
		err = t.line(f, line, func() mark { return at }, f.size, now)
	}
	if err != nil {
		return err
	}
	f.at = markIn(t.buf, back+n, f.at.off-int64(back))
	f.cut, f.stuck, t.dirty = true, false, true
	return nil
}

// end takes everything that is left of f, and ends it.
func (t *Tailer) end(f *follow, now time.Time) error {
	if f.stuck || f.long > 0 {
		if err := t.takePartial(f, now); err != nil {
			return err
		}
	}
	if err := t.release(f, now, true); err != nil {
		return err
	}
	if t.o.Once && !f.detached {
		return nil
	}
	t.forget(f)
	return nil
}

// forget ends f.
func (t *Tailer) forget(f *follow) {
	t.shut(f)
	f.done, t.dirty = true, true
	delete(t.holding, f)
	if t.ids[f.id] == f {
		delete(t.ids, f.id)
	}
	if t.paths[f.path] == f {
		delete(t.paths, f.path)
	}
}

// detach goes on with a file whose path leads elsewhere or nowhere: what is in it is
// read before what has come in its place.
func (t *Tailer) detach(f *follow, now time.Time) error {
	if t.paths[f.path] == f {
		delete(t.paths, f.path)
	}
	if f.skip {
		t.forget(f)
		return nil
	}
	if f.f == nil {
		path := t.rest(f.entry(f.at), true)
		if path != "" {
			if file, err := os.Open(path); err == nil {
				f.f = file
				f.real = path
				t.open++
			}
		}
		if f.f == nil {
			if err := t.release(f, now, true); err != nil {
				return err
			}
			if f.size > f.at.off && !f.stuck {
				t.say("%s: it is gone, and %d bytes of it were not read", f.path, f.size-f.at.off)
			}
			t.forget(f)
			return nil
		}
	}
	f.detached, f.scan, f.active, f.due, t.news = true, t.scans, now, now, true
	return nil
}

// truncated begins f anew. What was not read of it is looked for in a copy that
// whoever truncated it may have made. It had up to before bytes, as far as is known.
func (t *Tailer) truncated(f *follow, st fs.FileInfo, before int64, now time.Time) error {
	if err := t.release(f, now, true); err != nil {
		return err
	}
	e, committed := f.entry(f.safe()), f.committed
	unread := max(0, f.known-f.at.off)
	perhaps := before - f.at.off - unread
	skip := f.skip
	f.committed, f.known = mark{}, 0
	f.at, f.head, f.cut, f.long, f.stuck, f.skip = mark{}, head{}, false, 0, false, false
	f.size, f.mtime, f.idle, f.active, f.since, f.due = st.Size(), st.ModTime(), 0, now, now, now
	f.limit = f.size
	t.dirty = true
	if skip || e.head.n == 0 {
		return nil
	}
	if path := t.rest(e, false); path != "" {
		if f.after = t.adoptRest(path, e, now); f.after != nil {
			f.after.copied, f.after.committed = true, committed
			t.say("%s: it was truncated; the rest of its copy %s is read, then it from its start", f.path, path)
			return nil
		}
	}
	t.say("%s: it was truncated; reading from its start", f.path)
	if unread > 0 {
		t.say("%s: %d bytes before that were not read, and no copy has them", f.path, unread)
	}
	if perhaps > 0 {
		t.say("%s: up to %d bytes before that may not have been read, and no copy has them", f.path, perhaps)
	}
	return nil
}

// adoptRest follows the file at path, which holds the rest of e, until it ends.
func (t *Tailer) adoptRest(path string, e entry, now time.Time) *follow {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	st, err := file.Stat()
	if err != nil {
		file.Close()
		return nil
	}
	c := &follow{
		id: idOf(path, st), path: e.path, real: path, src: sourceOf(e.path), at: e.at, committed: e.at, head: e.head, cut: e.cut,
		f: file, detached: true, scan: t.scans, active: now, limit: st.Size(), size: e.at.off,
	}
	t.open++
	t.files = append([]*follow{c}, t.files...)
	t.ids[c.id] = c
	t.dirty, t.news = true, true
	return c
}

// rest returns the path of the file that holds what e was made of: the file itself
// under another name or, if renamed is false, a copy of it. "": there is none.
func (t *Tailer) rest(e entry, renamed bool) string {
	dir := filepath.Dir(e.real)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	stem := filepath.Base(e.real)
	stem = stem[:len(stem)-len(filepath.Ext(stem))]
	best, newest := "", time.Time{}
	for _, de := range entries {
		path := filepath.Join(dir, de.Name())
		if !de.Type().IsRegular() || !renamed && (len(de.Name()) < len(stem) || de.Name()[:len(stem)] != stem || path == e.real) {
			continue
		}
		st, err := de.Info()
		if err != nil || st.Size() < max(e.at.off, int64(e.head.n)) {
			continue
		}
		same := idOf(path, st) == e.id
		switch {
		case renamed && (!same || !isFile(path, e.head, e.at)):
		case !renamed && (same || t.ids[idOf(path, st)] != nil || t.Matches(path) || !isFile(path, e.head, e.at)):
		case best == "" || st.ModTime().After(newest):
			best, newest = path, st.ModTime()
		}
	}
	return best
}
