package tail

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/testkit"
)

// A walker changes files at random while a Tailer reads them. It is also the sink of the Tailer. It
// checks that the lines of a path arrive in order, and that each line is delivered or reported as
// lost.
type walker struct {
	t     *testing.T
	rnd   *rand.Rand
	dir   string
	globs []string
	tail  *Tailer
	now   time.Time
	names []string
	paths map[string]*writtenPath
	files int
	ticks time.Duration // added to the last modification time, to make the times distinct
	log   []string
	inPut bool // Put is making changes and must not start further changes
	fail  bool // makes Commit return an error
	lost  int64

	charset string
}

// A writtenPath records the lines that were written to a path, and how many of them were delivered.
type writtenPath struct {
	path  string
	w     *os.File
	lines []writtenLine
	open  bool               // the last line has no newline
	cur   *writtenGeneration // current generation of the file
	n     int                // number of the last line

	got       int  // index of the next expected line
	committed int  // lines before this index were committed
	saved     int  // lines before this index were committed and stored
	repeats   bool // after a kill, lines from the index saved on may be delivered again
}

// A writtenLine is a line that was written to a path.
type writtenLine struct {
	text      string
	gen       *writtenGeneration // generation that contains the end of the line
	end       int64              // offset of the end of the line
	delivered bool
	split     bool // the line extends over several generations
}

// A writtenGeneration describes one generation of a file.
type writtenGeneration struct {
	size      int64
	seen      int64 // size at the last scan in which the file could be opened
	stored    int64 // value of the field seen when positions were last stored
	detached  bool  // the path leads to another file or to none
	removed   bool  // the file cannot be opened under another name either
	mayBeLost bool  // no scan has found the file, or its position was not stored; its loss may remain unreported
}

func (w *walker) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *walker) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("after\n%s\n%s", strings.Join(w.log, "\n"), fmt.Sprintf(format, args...))
}

func (*walker) Begin() {}
func (*walker) End()   {}

// Put checks that l is the next line of its path. Sometimes it makes random changes before it
// returns, as if the sink were blocked during the changes.
func (w *walker) Put(l *Line) error {
	p, text := w.paths[l.Source.Path], string(l.Text)
	at, low := p.got, p.got
	if p.repeats {
		low = p.saved
		at = p.saved
		for at < p.got && p.lines[at].text != text {
			at++
		}
	}
	for i := at; ; i++ {
		if i == len(p.lines) {
			if p.fragment(low, text) {
				break
			}
			w.fatalf("got %q, want line %d of %+v", text, p.got, p.lines)
		}
		if p.lines[i].text == text {
			p.lines[i].delivered, p.got, p.repeats = true, i+1, false
			break
		}
	}
	if !w.inPut && w.rnd.IntN(40) == 0 {
		w.inPut = true
		w.note("  blocked at %q", text)
		for range 1 + w.rnd.IntN(12) {
			w.change(w.paths[w.names[w.rnd.IntN(len(w.names))]])
		}
		w.note("  unblocked")
		w.inPut = false
	}
	return nil
}

// fragment reports whether text can consist of parts of lines. Only a part of a line is delivered
// if the line extends over several generations and one of them is lost. The text may end with the
// end of a line whose index is at least minIndex; fragment marks this line as delivered. If several
// lines match, it marks the one with the longest matching part.
func (p *writtenPath) fragment(minIndex int, text string) bool {
	whole, begin := strings.TrimSuffix(text, "\n"), 0
	for more := true; more; {
		more = false
		for i, l := range p.lines {
			if !l.split && (!p.open || i < len(p.lines)-1 || !l.gen.detached) {
				continue
			}
			n := begin
			for n < len(text) && strings.Contains(l.text, text[begin:n+1]) {
				n++
			}
			if more = more || n > begin; n > begin {
				begin = n
			}
		}
	}
	best, longest := -1, 1
	for i := minIndex; i < len(p.lines); i++ {
		l := &p.lines[i]
		n := 0
		for n < min(len(text), len(l.text)) && text[len(text)-1-n] == l.text[len(l.text)-1-n] {
			n++
		}
		if begin+n >= len(text) && n > longest && (l.split || n == len(l.text)) {
			best, longest = i, n
		}
	}
	if best >= 0 {
		p.lines[best].delivered, p.got = true, best+1
		return true
	}
	return begin >= len(whole)
}

// Commit returns an error if the field fail is true.
func (w *walker) Commit(context.Context) error {
	if w.fail {
		return errors.New("not delivered")
	}
	return nil
}

// start starts a Tailer with random limits, as a new process would.
func (w *walker) start() {
	o := Options{
		Charset:  charsetOf(w.t, w.charset),
		Patterns: w.globs, Dir: filepath.Join(w.dir, "state"), MaxRecord: 500 * len(encoded(w.charset, "x")), MaxOpen: 1 + w.rnd.IntN(4),
		MaxGenerations: 1 + w.rnd.IntN(8),
		Say:            func(s string) { w.note("  message: %s", s) }, Lost: func(n int64) { w.lost += n },
	}
	var err error
	if w.tail, err = New(o, w); err != nil {
		w.fatalf("%v", err)
	}
	for _, e := range w.tail.index.saved {
		w.note("  stored: %s (%s) inode %d at %d of %d", filepath.Base(e.path), filepath.Base(e.real), e.id.ino, e.at.off, e.seen)
	}
	w.tail.o.now = func() time.Time { return w.now }
	w.tail.begin()
	w.recordSeen(true)
}

// scan runs the scanner once.
func (w *walker) scan() {
	w.now = w.now.Add(1100 * time.Millisecond) // later than Options.Poll and Options.Rescan require, so that every file is examined
	w.tail.scanner.look(w.now)
	saved := !w.inPut && w.rnd.IntN(2) == 0 // the keeper may save at any time
	if saved {
		w.save()
	}
	w.recordSeen(saved)
}

// save stores the committed positions.
func (w *walker) save() {
	if w.tail.keeper.save() != nil {
		w.fatalf("positions cannot be stored")
	}
	for _, p := range w.paths {
		p.saved = p.committed
	}
}

// recordSeen stores the sizes that the scanner has found. saved reports that positions were stored
// after the scan.
func (w *walker) recordSeen(saved bool) {
	for _, p := range w.paths {
		for _, l := range p.generations() {
			if !l.removed && (l == p.cur || l.seen > 0) {
				l.seen = l.size
			}
			if saved {
				l.stored = l.seen
			}
		}
	}
}

// generations returns the generations that contain lines.
func (p *writtenPath) generations() (all []*writtenGeneration) {
	for i := range p.lines {
		if l := p.lines[i].gen; len(all) == 0 || all[len(all)-1] != l {
			all = append(all, l)
		}
	}
	return all
}

// read makes the reader read the available lines.
func (w *walker) read() {
	for i := 0; ; i++ {
		next, err := w.tail.reader.deliver(context.Background(), w.now)
		if err != nil {
			w.fatalf("%v", err)
		}
		w.tail.reader.commits.running.Wait()
		if next.After(w.now) {
			break
		}
		if i > 1000 {
			w.fatalf("the reader still has lines to read after 1000 calls")
		}
	}
	if !w.fail && w.tail.reader.commits.count == 0 && len(w.tail.reader.commits.touched) == 0 && len(w.tail.reader.commits.failed) == 0 {
		for _, p := range w.paths {
			if !p.repeats {
				p.committed = p.got
			}
		}
	}
}

// begin begins a new generation of p.
func (p *writtenPath) begin() {
	p.cur = &writtenGeneration{}
}

// create creates the file of p.
func (w *walker) create(p *writtenPath) {
	var err error
	if p.w, err = os.OpenFile(p.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		w.fatalf("%v", err)
	}
	p.begin()
}

// setTime sets the modification time of a file by the simulated clock. Each call sets a different
// time.
func (w *walker) setTime(path string) {
	w.ticks++
	at := w.now.Add(w.ticks * time.Microsecond)
	if err := os.Chtimes(path, at, at); err != nil {
		w.fatalf("%v", err)
	}
}

// write appends text to the file of p. The text may be a part of a line, or several lines.
func (w *walker) write(p *writtenPath, text string) {
	raw := encoded(w.charset, text)
	if n := w.rnd.IntN(4 * len(raw)); n < len(raw) { // sometimes scan between two writes, even within a character
		if _, err := p.w.Write(raw[:n]); err != nil {
			w.fatalf("%v", err)
		}
		w.setTime(p.path)
		raw = raw[n:]
		w.now = w.now.Add(1100 * time.Millisecond)
		w.tail.scanner.look(w.now)
	}
	if _, err := p.w.Write(raw); err != nil {
		w.fatalf("%v", err)
	}
	w.setTime(p.path)
	for part := range strings.SplitAfterSeq(text, "\n") {
		if part == "" {
			continue
		}
		p.cur.size += int64(len(encoded(w.charset, part)))
		if last := len(p.lines) - 1; p.open {
			p.lines[last].text += part
			p.lines[last].split = p.lines[last].split || p.lines[last].gen != p.cur
			p.lines[last].gen, p.lines[last].end = p.cur, p.cur.size
		} else {
			p.lines = append(p.lines, writtenLine{text: part, gen: p.cur, end: p.cur.size})
		}
		p.open = !strings.HasSuffix(part, "\n")
	}
}

// newLine returns the next line for p. Its text is unique.
func (w *walker) newLine(p *writtenPath) string {
	p.n++
	return fmt.Sprintf("%06d %s %s\n", p.n, filepath.Base(p.path), strings.Repeat("x", w.rnd.IntN(120)))
}

// completeLine writes the end of the last line of p if the line has no newline.
func (w *walker) completeLine(p *writtenPath) {
	if p.open {
		w.write(p, "!\n")
	}
}

// endGeneration is called when the path of p no longer leads to the current generation. removed
// reports that no other path leads to this generation either.
func (w *walker) endGeneration(p *writtenPath, removed bool) {
	p.cur.detached, p.cur.removed = true, removed
	p.cur.mayBeLost = p.cur.mayBeLost || p.cur.seen == 0
}

// change makes a random change to p.
func (w *walker) change(p *writtenPath) {
	name := filepath.Base(p.path)
	switch what := w.rnd.IntN(12); {
	case what < 3:
		w.note("scan")
		w.scan()
	case p.w == nil:
		w.note("create %s", name)
		w.create(p)
		if w.rnd.IntN(4) > 0 {
			w.write(p, w.newLine(p))
		}
	case what < 6:
		n := 1 + w.rnd.IntN(5)
		w.note("append %d to %s", n, name)
		for range n {
			w.write(p, w.newLine(p))
		}
	case what == 6:
		w.note("append a partial line to %s", name)
		text := w.newLine(p)
		w.write(p, text[:len("000000")+w.rnd.IntN(len(text)-len("000000"))]) // cut the line after its number, so that the text is unique
	case what == 7:
		w.note("append the rest of the line to %s", name)
		w.completeLine(p)
	case what == 8 || what == 9:
		w.files++
		to := fmt.Sprintf("%s.%d", p.path, w.files)
		w.note("rename %s to %s", name, filepath.Base(to))
		if err := os.Rename(p.path, to); err != nil {
			w.fatalf("%v", err)
		}
		p.w.Close()
		p.w = nil
		w.endGeneration(p, false)
		if w.rnd.IntN(3) > 0 {
			w.create(p)
		}
	case what == 10:
		w.completeLine(p)
		copied := w.rnd.IntN(4) > 0
		w.files++
		to := fmt.Sprintf("%s.%d", p.path, w.files)
		w.note("copy %s to %s (%v), and truncate it", name, filepath.Base(to), copied)
		if copied {
			text, err := os.ReadFile(p.path)
			if err == nil {
				err = os.WriteFile(to, text, 0o600)
			}
			if err != nil {
				w.fatalf("%v", err)
			}
			w.setTime(to)
		}
		if err := os.Truncate(p.path, 0); err != nil {
			w.fatalf("%v", err)
		}
		w.endGeneration(p, !copied)
		p.begin()
		w.write(p, w.newLine(p))
	case what == 11:
		w.completeLine(p)
		w.note("delete %s", name)
		if err := os.Remove(p.path); err != nil {
			w.fatalf("%v", err)
		}
		p.w.Close()
		p.w = nil
		w.endGeneration(p, true)
		if w.rnd.IntN(2) == 0 { // the new file may get the inode of the deleted file
			w.create(p)
			w.write(p, w.newLine(p))
		}
	}
}

// step makes a random step: it reads, advances the clock, restarts or kills the process, makes
// Commit fail or changes a file.
func (w *walker) step() {
	switch w.rnd.IntN(12) {
	case 0, 1, 2:
		w.note("read")
		w.read()
	case 3:
		w.note("10 s pass")
		w.now = w.now.Add(10 * time.Second)
		w.scan()
		w.read()
	case 4:
		w.note("restart")
		w.fail = false
		if err := w.tail.Finish(true); err != nil {
			w.fatalf("%v", err)
		}
		for _, p := range w.paths {
			if !p.repeats {
				p.committed, p.saved = p.got, p.got
			}
			for _, l := range p.generations() {
				l.stored = l.seen
			}
		}
		w.recordUnreadable()
		w.start()
	case 5:
		w.note("kill")
		if err := w.tail.Finish(false); err != nil {
			w.fatalf("%v", err)
		}
		for _, p := range w.paths {
			p.repeats, p.committed = true, p.saved
		}
		w.recordUnreadable()
		w.start()
	case 6:
		w.fail = !w.fail
	default:
		w.change(w.paths[w.names[w.rnd.IntN(len(w.names))]])
	}
}

// recordUnreadable stores which data the next process cannot read. For a deleted file, the next
// process reports at most the bytes up to the stored size as lost.
func (w *walker) recordUnreadable() {
	for _, p := range w.paths {
		for _, l := range p.generations() {
			l.mayBeLost = l.mayBeLost || l.detached && l.stored == 0
			if l.removed {
				l.seen = min(l.seen, l.stored)
			}
		}
	}
}

// walk makes 60 random steps and delivers the remaining lines. It checks that each undelivered line
// was reported as lost.
func walk(t *testing.T, seed uint64) {
	w := &walker{charset: []string{"utf-8", "utf-16le", "utf-16be"}[seed%3], t: t, rnd: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), now: time.Now(), paths: map[string]*writtenPath{}}
	for _, name := range []string{"a.log", "b.log"} {
		path := filepath.Join(w.dir, name)
		w.names = append(w.names, path)
		w.paths[path] = &writtenPath{path: path}
	}
	w.globs = []string{filepath.Join(w.dir, "*.log")}
	if seed%2 == 0 {
		w.globs = w.names
	}
	w.note("seed %d", seed)
	w.start()
	for range 60 {
		w.step()
	}
	w.note("deliver the remaining lines")
	w.fail, w.inPut = false, true
	for _, p := range w.paths {
		if p.w == nil {
			w.create(p)
		}
		w.completeLine(p)
		w.write(p, w.newLine(p))
	}
	for range 4 {
		w.now = w.now.Add(6 * time.Second)
		w.scan()
		w.read()
	}
	missing := int64(0)
	for _, p := range w.paths {
		before := int64(0)
		for i, l := range p.lines {
			if i > 0 && p.lines[i-1].gen == l.gen {
				before = p.lines[i-1].end
			} else {
				before = 0
			}
			switch {
			case l.delivered, l.split, l.gen.mayBeLost, l.end > l.gen.seen && l.gen.removed:
			case !l.gen.detached:
				w.fatalf("%q was not delivered", l.text)
			default:
				w.note("missing: %q of %+v", l.text, *l.gen)
				missing += l.end - before
			}
		}
		p.w.Close()
	}
	if missing > w.lost {
		w.fatalf("%d bytes were not delivered, but only %d are reported as lost", missing, w.lost)
	}
	w.tail.reader.commits.running.Wait()
	if err := w.tail.Finish(true); err != nil {
		w.fatalf("%v", err)
	}
}

// Lines of a path are delivered in order while files are changed, rotated and deleted at random,
// the sink blocks and the process is killed. Each line is delivered or reported as lost. Only a
// kill may repeat lines.
func TestWalk(t *testing.T) {
	for seed := range testkit.Walks(t, 60) {
		walk(t, seed)
	}
}
