package tail

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var walkSeed = flag.Uint64("walk.seed", 0, "walk this seed alone")

// A generation is a file as somebody writes it. Its lines say which one they are.
type generation struct {
	name    string
	path    string // that somebody writes to; "" once it is rotated or deleted
	disk    string // where it is
	w       *os.File
	lines   []string // that are complete or begun
	partial string   // what is missing of the last one
	seen    bool     // by the Tailer, since it was made or truncated

	got  int  // the next line that must come
	safe int  // lines before it were committed
	kill bool // lines may come again from now on
	lost bool // it is deleted: what was not committed cannot come again
}

// A walker is what happens to files and a Tailer, and what must come of it.
type walker struct {
	t     *testing.T
	rnd   *rand.Rand
	dir   string
	globs []string
	now   time.Time
	tail  *Tailer
	gens  map[string]*generation
	cur   map[string]*generation // by path
	n     int
	ticks time.Duration
	log   []string
	mu    sync.Mutex // Commit is called beside the rest
	fail  bool       // Commit fails
}

func (w *walker) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *walker) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("after\n%s\n%s", strings.Join(w.log, "\n"), fmt.Sprintf(format, args...))
}

// Put checks that it is this line's turn.
func (w *walker) Put(l Line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(l.Text)
	name, _, _ := strings.Cut(text, " ")
	g := w.gens[name]
	if g == nil {
		w.fatalf("a line that nobody wrote: %q of %s", text, l.Source.Path)
	}
	if g.got < len(g.lines) && g.lines[g.got] == text {
		g.got++
		return nil
	}
	for i, line := range g.lines[:g.got] {
		if line == text && g.kill {
			g.got, g.kill = i+1, false // what follows comes again, too
			return nil
		}
	}
	w.fatalf("%q came, and it is the turn of %d of %q", text, g.got, g.lines)
	return nil
}

func (w *walker) Commit(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail {
		return errors.New("not delivered")
	}
	for _, g := range w.gens {
		g.safe = g.got
	}
	return nil
}

func (w *walker) start() {
	o := Options{Patterns: w.globs, Dir: filepath.Join(w.dir, "state"), MaxRecord: 500, MaxOpen: 1 + w.rnd.IntN(3), Say: func(s string) { w.note("  said: %s", s) }}
	var err error
	if w.tail, err = New(o, w); err != nil {
		w.fatalf("%v", err)
	}
	for _, e := range w.tail.saved {
		w.note("  stored: %s (%s) inode %d at %d", filepath.Base(e.path), filepath.Base(e.real), e.id.ino, e.at.off)
	}
	w.tail.now = func() time.Time { return w.now }
}

// settle waits for a commit that is under way.
func (w *walker) settle() {
	if w.tail.committing {
		w.tail.settle(<-w.tail.committed)
	}
}

func (w *walker) pass() {
	for i := 0; ; i++ {
		if _, err := w.tail.pass(context.Background(), w.now); err != nil {
			w.fatalf("%v", err)
		}
		w.now = w.now.Add(1100 * time.Millisecond) // everything is due
		behind := false
		for _, f := range w.tail.files {
			behind = behind || f.behind() || f.after != nil
		}
		if !behind && i >= 2 {
			break
		}
		if i > 1000 {
			w.fatalf("it does not come to an end")
		}
	}
	if w.rnd.IntN(2) == 0 {
		return
	}
	// A file is known after a kill once its name is stored.
	for w.settle(); w.tail.news; w.settle() {
		w.tail.commit(context.Background(), w.now)
	}
	for _, g := range w.cur {
		if !w.gone(g) {
			g.seen = true
		}
	}
}

func (w *walker) create(path string) *generation {
	w.n++
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.fatalf("%v", err)
	}
	w.t.Cleanup(func() { f.Close() })
	g := &generation{name: fmt.Sprintf("g%d", w.n), path: path, disk: path, w: f}
	w.know(g)
	return g
}

func (w *walker) know(g *generation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gens[g.name], w.cur[g.path] = g, g
}

func (w *walker) write(g *generation, s string) {
	if _, err := g.w.WriteString(s); err != nil {
		w.fatalf("%v", err)
	}
	w.touch(g.disk)
}

// touch gives a file a time of its own: this is faster than the clock of a file system.
func (w *walker) touch(path string) {
	w.ticks++
	at := w.now.Add(w.ticks * time.Microsecond)
	if err := os.Chtimes(path, at, at); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.fatalf("%v", err)
	}
}

func (w *walker) append(g *generation) {
	w.complete(g)
	for range 1 + w.rnd.IntN(5) {
		line := fmt.Sprintf("%s %d %s", g.name, len(g.lines), strings.Repeat("x", w.rnd.IntN(150)))
		if w.rnd.IntN(4) == 0 {
			line += "\r"
		}
		g.lines = append(g.lines, line+"\n")
		w.write(g, line+"\n")
	}
}

func (w *walker) half(g *generation) {
	w.complete(g)
	line := fmt.Sprintf("%s %d %s\n", g.name, len(g.lines), strings.Repeat("y", 100))
	n := 1 + w.rnd.IntN(len(line)-1)
	g.lines, g.partial = append(g.lines, line), line[n:]
	w.write(g, line[:n])
}

func (w *walker) complete(g *generation) {
	w.write(g, g.partial)
	g.partial = ""
}

func (w *walker) gone(g *generation) bool { return g == nil || g.path == "" }

// hasRead reports whether the Tailer would know a copy of g.
func (w *walker) hasRead(g *generation) bool {
	for _, f := range w.tail.files {
		if f.path == g.path && !f.detached {
			return f.at.off > 0
		}
	}
	return false
}

func (w *walker) step(path string) {
	g := w.cur[path]
	switch what := w.rnd.IntN(14); {
	case what < 2:
		w.note("pass")
		w.pass()
		if w.rnd.IntN(2) == 0 {
			w.settle()
		}
	case w.gone(g):
		w.note("create %s: g%d", path, w.n+1)
		w.append(w.create(path))
	case what < 5:
		w.note("append %s", g.name)
		w.append(g)
	case what == 5:
		w.note("half %s", g.name)
		w.half(g)
	case what == 6:
		w.note("complete %s", g.name)
		w.complete(g)
	case what == 7 && g.seen: // rename, and somebody may write on
		w.note("rename %s", g.name)
		w.n++
		to := fmt.Sprintf("%s.%d", path, w.n)
		if err := os.Rename(path, to); err != nil {
			w.fatalf("%v", err)
		}
		g.disk = to
		if w.rnd.IntN(2) == 0 {
			w.append(w.create(path))
		} else {
			w.cur[path] = nil
		}
		if w.rnd.IntN(2) == 0 {
			w.append(g)
		}
		w.complete(g)
		g.path = ""
	case what == 8 && g.seen && w.hasRead(g):
		w.note("copytruncate %s to g%d", g.name, w.n+2)
		w.complete(g)
		text, err := os.ReadFile(path)
		if err == nil {
			w.n++
			err = os.WriteFile(fmt.Sprintf("%s.%d", path, w.n), text, 0o600)
		}
		if err == nil {
			err = os.Truncate(path, 0)
		}
		if err != nil {
			w.fatalf("%v", err)
		}
		w.touch(path)
		g.path, g.disk = "", ""
		w.n++
		next := &generation{name: fmt.Sprintf("g%d", w.n), path: path, disk: path, w: g.w}
		w.know(next)
		if w.rnd.IntN(2) == 0 {
			w.append(next)
		}
	case what == 9: // what was not read is lost, so it is read before
		w.note("delete %s", g.name)
		w.complete(g)
		w.pass()
		if err := os.Remove(path); err != nil {
			w.fatalf("%v", err)
		}
		g.path, g.lost, w.cur[path] = "", true, nil
		if w.rnd.IntN(2) == 0 {
			w.note("create %s with the same inode, perhaps: g%d", path, w.n+1)
			w.append(w.create(path))
		}
	case what == 10:
		w.note("time passes")
		w.now = w.now.Add(10 * time.Second)
		w.pass()
	case what == 11:
		w.note("restart")
		w.settle()
		if err := w.tail.Finish(true); err != nil {
			w.fatalf("%v", err)
		}
		for _, g := range w.gens {
			g.safe = g.got
		}
		w.start()
	case what == 12:
		w.note("kill")
		w.settle() // killed before or after it
		if err := w.tail.Finish(false); err != nil {
			w.fatalf("%v", err)
		}
		for _, g := range w.gens {
			g.kill = true
			if !g.lost {
				g.got = min(g.got, g.safe)
			}
		}
		w.start()
	case what == 13:
		w.mu.Lock()
		w.fail = !w.fail
		w.mu.Unlock()
	}
}

func walk(t *testing.T, seed uint64) {
	w := &walker{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), now: time.Now(),
		gens: map[string]*generation{}, cur: map[string]*generation{},
	}
	paths := []string{filepath.Join(w.dir, "a.log"), filepath.Join(w.dir, "b.log")}
	w.globs = []string{filepath.Join(w.dir, "*.log")}
	if seed%2 == 0 {
		w.globs = paths
	}
	w.note("seed %d", seed)
	w.start()
	for range 60 {
		w.step(paths[w.rnd.IntN(2)])
	}
	for _, g := range w.gens {
		w.complete(g)
	}
	for _, g := range w.cur {
		if !w.gone(g) {
			w.append(g)
		}
	}
	w.note("the end")
	w.pass()
	w.pass()
	for name, g := range w.gens {
		if g.got != len(g.lines) {
			w.fatalf("%s: %d of %d lines came", name, g.got, len(g.lines))
		}
	}
	w.settle()
	if err := w.tail.Finish(true); err != nil {
		w.fatalf("%v", err)
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "state", positionsName))
	if err != nil || !bytes.HasPrefix(text, []byte(positionsHead)) {
		w.fatalf("%v", err)
	}
}

// Whatever happens to files and to the process, every line comes, in the order of its
// file, and once unless the process was killed.
func TestWalk(t *testing.T) {
	if *walkSeed != 0 {
		walk(t, *walkSeed)
		return
	}
	n := uint64(50)
	if os.Getenv("FOREBAY_TORTURE") != "" {
		n = 20000
	}
	for seed := uint64(1); seed <= n; seed++ {
		walk(t, seed)
		if t.Failed() {
			return
		}
	}
}
