package tail

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/testkit"
)

var walkSeed = flag.Uint64("walk.seed", 0, "walk this seed alone")

// A walker changes files at random while a Tailer, whose sink may be blocked, reads them. It checks
// that the lines of a path arrive in order: each line is delivered or reported as lost.
type walker struct {
	t     *testing.T
	rnd   *rand.Rand
	dir   string
	globs []string
	tail  *Tailer
	now   time.Time
	names []string
	paths map[string]*written
	files int
	ticks time.Duration
	log   []string
	deep  bool // Put is being called
	fail  bool // makes Commit fail
	lost  int64

	charset string
}

// A written is the record of what was written to a path.
type written struct {
	path  string
	w     *os.File
	lines []writtenLine
	open  bool // the last line has no newline
	cur   *life
	n     int

	got   int // index of the next expected line
	safe  int // lines before this index were committed
	saved int // lines before this index were committed and stored
	again bool
}

// A writtenLine is a line with the generation and the position of its end.
type writtenLine struct {
	text string
	life *life
	end  int64
	came bool
	torn bool // the line extends over several generations
}

// A life is one generation of a file.
type life struct {
	size      int64
	seen      int64 // size at the last scan while it could be read
	stored    int64 // size that the next process knows
	over      bool  // the path leads elsewhere
	ended     bool  // it can no longer be opened
	mayBeLost bool  // it was not seen or stored in time, so it may be lost without a report
}

func (w *walker) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *walker) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("after\n%s\n%s", strings.Join(w.log, "\n"), fmt.Sprintf(format, args...))
}

// Put checks that the line is the next one, and makes random changes during the call.
func (w *walker) Put(l Line) error {
	p, text := w.paths[l.Source.Path], string(l.Text)
	at, low := p.got, p.got
	if p.again {
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
			w.fatalf("%q came, and it is the turn of %d of %+v", text, p.got, p.lines)
		}
		if p.lines[i].text == text {
			p.lines[i].came, p.got, p.again = true, i+1, false
			break
		}
	}
	if !w.deep && w.rnd.IntN(40) == 0 {
		w.deep = true
		w.note("  blocked at %q", text)
		for range 1 + w.rnd.IntN(12) {
			w.change(w.paths[w.names[w.rnd.IntN(len(w.names))]])
		}
		w.note("  free")
		w.deep = false
	}
	return nil
}

// fragment reports whether text can be what remains of lines that were partly in a lost generation:
// parts of lines, and the end of one of the lines from index from on. If several match, the one
// with the most common bytes is used.
func (p *written) fragment(from int, text string) bool {
	whole, begin := strings.TrimSuffix(text, "\n"), 0
	for more := true; more; {
		more = false
		for i, l := range p.lines {
			if !l.torn && (!p.open || i < len(p.lines)-1 || !l.life.over) {
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
	for i := from; i < len(p.lines); i++ {
		l := &p.lines[i]
		n := 0
		for n < min(len(text), len(l.text)) && text[len(text)-1-n] == l.text[len(l.text)-1-n] {
			n++
		}
		if begin+n >= len(text) && n > longest && (l.torn || n == len(l.text)) {
			best, longest = i, n
		}
	}
	if best >= 0 {
		p.lines[best].came, p.got = true, best+1
		return true
	}
	return begin >= len(whole)
}

func (w *walker) Commit(context.Context) error {
	if w.fail {
		return errors.New("not delivered")
	}
	return nil
}

func (w *walker) start() {
	o := Options{
		Charset:  charsetOf(w.t, w.charset),
		Patterns: w.globs, Dir: filepath.Join(w.dir, "state"), MaxRecord: 500 * len(encoded(w.charset, "x")), MaxOpen: 1 + w.rnd.IntN(4),
		MaxGenerations: 1 + w.rnd.IntN(8),
		Say:            func(s string) { w.note("  said: %s", s) }, Lost: func(n int64) { w.lost += n },
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
	w.looked(true)
}

// scan runs the scanner once.
func (w *walker) scan() {
	w.now = w.now.Add(1100 * time.Millisecond) // so that everything is due
	w.tail.scanner.look(w.now)
	saved := !w.deep && w.rnd.IntN(2) == 0 // in production the keeper runs concurrently
	if saved {
		w.save()
	}
	w.looked(saved)
}

func (w *walker) save() {
	if w.tail.keeper.save() != nil {
		w.fatalf("it cannot be stored")
	}
	for _, p := range w.paths {
		p.saved = p.safe
	}
}

// looked records what the scanner has seen.
func (w *walker) looked(saved bool) {
	for _, p := range w.paths {
		for _, l := range p.lives() {
			if !l.ended && (l == p.cur || l.seen > 0) {
				l.seen = l.size
			}
			if saved {
				l.stored = l.seen
			}
		}
	}
}

func (p *written) lives() (all []*life) {
	for i := range p.lines {
		if l := p.lines[i].life; len(all) == 0 || all[len(all)-1] != l {
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
			w.fatalf("it does not come to an end")
		}
	}
	if !w.fail && w.tail.reader.commits.count == 0 && len(w.tail.reader.commits.touched) == 0 && len(w.tail.reader.commits.failed) == 0 {
		for _, p := range w.paths {
			if !p.again {
				p.safe = p.got
			}
		}
	}
}

// begin begins a new generation of p.
func (p *written) begin() {
	p.cur = &life{}
}

func (w *walker) create(p *written) {
	var err error
	if p.w, err = os.OpenFile(p.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		w.fatalf("%v", err)
	}
	p.begin()
}

// stamp sets the modification time of a file by the simulated clock, which is ahead of the system
// clock. Each change has a different time.
func (w *walker) stamp(path string) {
	w.ticks++
	at := w.now.Add(w.ticks * time.Microsecond)
	if err := os.Chtimes(path, at, at); err != nil {
		w.fatalf("%v", err)
	}
}

// write appends text, which is a part of a line or several lines.
func (w *walker) write(p *written, text string) {
	raw := encoded(w.charset, text)
	if n := w.rnd.IntN(4 * len(raw)); n < len(raw) { // perhaps an incomplete character
		if _, err := p.w.Write(raw[:n]); err != nil {
			w.fatalf("%v", err)
		}
		w.stamp(p.path)
		raw = raw[n:]
		w.now = w.now.Add(1100 * time.Millisecond)
		w.tail.scanner.look(w.now)
	}
	if _, err := p.w.Write(raw); err != nil {
		w.fatalf("%v", err)
	}
	w.stamp(p.path)
	for part := range strings.SplitAfterSeq(text, "\n") {
		if part == "" {
			continue
		}
		p.cur.size += int64(len(encoded(w.charset, part)))
		if last := len(p.lines) - 1; p.open {
			p.lines[last].text += part
			p.lines[last].torn = p.lines[last].torn || p.lines[last].life != p.cur
			p.lines[last].life, p.lines[last].end = p.cur, p.cur.size
		} else {
			p.lines = append(p.lines, writtenLine{text: part, life: p.cur, end: p.cur.size})
		}
		p.open = !strings.HasSuffix(part, "\n")
	}
}

func (w *walker) line(p *written) string {
	p.n++
	return fmt.Sprintf("%06d %s %s\n", p.n, filepath.Base(p.path), strings.Repeat("x", w.rnd.IntN(120)))
}

func (w *walker) complete(p *written) {
	if p.open {
		w.write(p, "!\n")
	}
}

// leave ends the current generation of p, which the scanner may not have seen.
func (w *walker) leave(p *written, ended bool) {
	p.cur.over, p.cur.ended = true, ended
	p.cur.mayBeLost = p.cur.mayBeLost || p.cur.seen == 0
}

// change makes a random change to p.
func (w *walker) change(p *written) {
	name := filepath.Base(p.path)
	switch what := w.rnd.IntN(12); {
	case what < 3:
		w.note("scan")
		w.scan()
	case p.w == nil:
		w.note("create %s", name)
		w.create(p)
		if w.rnd.IntN(4) > 0 {
			w.write(p, w.line(p))
		}
	case what < 6:
		n := 1 + w.rnd.IntN(5)
		w.note("append %d to %s", n, name)
		for range n {
			w.write(p, w.line(p))
		}
	case what == 6:
		w.note("half a line to %s", name)
		line := w.line(p)
		w.write(p, line[:len("000000")+w.rnd.IntN(len(line)-len("000000"))]) // a shorter part could match any file
	case what == 7:
		w.note("the other half to %s", name)
		w.complete(p)
	case what == 8 || what == 9:
		w.files++
		to := fmt.Sprintf("%s.%d", p.path, w.files)
		w.note("rename %s to %s", name, filepath.Base(to))
		if err := os.Rename(p.path, to); err != nil {
			w.fatalf("%v", err)
		}
		p.w.Close()
		p.w = nil
		w.leave(p, false)
		if w.rnd.IntN(3) > 0 {
			w.create(p)
		}
	case what == 10:
		w.complete(p)
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
			w.stamp(to)
		}
		if err := os.Truncate(p.path, 0); err != nil {
			w.fatalf("%v", err)
		}
		w.leave(p, !copied)
		p.begin()
		w.write(p, w.line(p))
	case what == 11:
		w.complete(p)
		w.note("delete %s", name)
		if err := os.Remove(p.path); err != nil {
			w.fatalf("%v", err)
		}
		p.w.Close()
		p.w = nil
		w.leave(p, true)
		if w.rnd.IntN(2) == 0 { // perhaps with the same inode
			w.create(p)
			w.write(p, w.line(p))
		}
	}
}

func (w *walker) step() {
	switch w.rnd.IntN(12) {
	case 0, 1, 2:
		w.note("read")
		w.read()
	case 3:
		w.note("time passes")
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
			if !p.again {
				p.safe, p.saved = p.got, p.got
			}
			for _, l := range p.lives() {
				l.stored = l.seen
			}
		}
		w.gone()
		w.start()
	case 5:
		w.note("kill")
		if err := w.tail.Finish(false); err != nil {
			w.fatalf("%v", err)
		}
		for _, p := range w.paths {
			p.again, p.safe = true, p.saved
		}
		w.gone()
		w.start()
	case 6:
		w.fail = !w.fail
	default:
		w.change(w.paths[w.names[w.rnd.IntN(len(w.names))]])
	}
}

// gone records what the next process cannot find. Of a deleted file it reports the size that was
// stored.
func (w *walker) gone() {
	for _, p := range w.paths {
		for _, l := range p.lives() {
			l.mayBeLost = l.mayBeLost || l.over && l.stored == 0
			if l.ended {
				l.seen = min(l.seen, l.stored)
			}
		}
	}
}

func walk(t *testing.T, seed uint64) {
	w := &walker{charset: []string{"utf-8", "utf-16le", "utf-16be"}[seed%3], t: t, rnd: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), now: time.Now(), paths: map[string]*written{}}
	for _, name := range []string{"a.log", "b.log"} {
		path := filepath.Join(w.dir, name)
		w.names = append(w.names, path)
		w.paths[path] = &written{path: path}
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
	w.note("the end")
	w.fail, w.deep = false, true
	for _, p := range w.paths {
		if p.w == nil {
			w.create(p)
		}
		w.complete(p)
		w.write(p, w.line(p))
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
			if i > 0 && p.lines[i-1].life == l.life {
				before = p.lines[i-1].end
			} else {
				before = 0
			}
			switch {
			case l.came, l.torn, l.life.mayBeLost, l.end > l.life.seen && l.life.ended:
			case !l.life.over:
				w.fatalf("%q did not come", l.text)
			default:
				w.note("missing: %q of %+v", l.text, *l.life)
				missing += l.end - before
			}
		}
		p.w.Close()
	}
	if missing > w.lost {
		w.fatalf("%d bytes did not come, and %d are reported", missing, w.lost)
	}
	w.tail.reader.commits.running.Wait()
	if err := w.tail.Finish(true); err != nil {
		w.fatalf("%v", err)
	}
}

// Whatever happens to the files, the sink and the process, the lines of a path are delivered in
// order. Each line is delivered once, unless the process was killed, or is reported as lost.
func TestWalk(t *testing.T) {
	if *walkSeed != 0 {
		walk(t, *walkSeed)
		return
	}
	for seed := range uint64(testkit.Rounds(60, 20_000)) {
		walk(t, seed+1)
	}
}
