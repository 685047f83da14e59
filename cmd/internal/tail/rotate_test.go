package tail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/join"
)

// numbered returns the lines with the numbers n for which first <= n < end.
func numbered(first, end int) (lines []string) {
	for i := first; i < end; i++ {
		lines = append(lines, fmt.Sprintf("line %d\n", i))
	}
	return lines
}

// rotate rotates the file at path as logrotate does. Each older generation is renamed to the next
// higher number. The current file gets the number 1: it is copied and truncated if copied is true,
// and renamed if copied is false.
func rotate(t testing.TB, path string, copied bool) {
	t.Helper()
	for i := 9; i > 0; i-- {
		os.Rename(fmt.Sprintf("%s.%d", path, i), fmt.Sprintf("%s.%d", path, i+1))
	}
	var err error
	if copied {
		var text []byte
		if text, err = os.ReadFile(path); err == nil {
			if err = os.WriteFile(path+".1", text, 0o600); err == nil {
				err = os.Truncate(path, 0)
			}
		}
	} else {
		err = os.Rename(path, path+".1")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// If a file is rotated several times while the sink is blocked, all generations are read in order.
// If the process is killed in the meantime, the next process reads them.
func TestRotatedWhileBlocked(t *testing.T) {
	for _, copied := range []bool{false, true} {
		for _, killed := range []bool{false, true} {
			dir := t.TempDir()
			path := filepath.Join(dir, "x.log")
			o := Options{Patterns: []string{path}, Dir: filepath.Join(dir, "state"), From: FromEndOnce}
			h := newStepper(t, o)
			var want []string
			h.advance(0)
			for i := range 4 {
				lines := numbered(100*i, 100*i+100)
				want = append(want, lines...)
				write(t, path, strings.Join(lines, ""))
				h.at = h.at.Add(2 * time.Second)
				h.scan()
				if i < 3 {
					rotate(t, path, copied)
				}
			}
			if killed {
				h.settle()
				h.must(h.Finish(false))
				h = newStepper(t, o)
			}
			h.advance(0)
			h.want(want...)
			if h.lost > 0 {
				t.Errorf("%d bytes are reported as lost", h.lost)
			}
		}
	}
}

// If a file is rotated several times while no process runs, the next process reports the
// generations that it does not read.
func TestRotatedBetweenProcesses(t *testing.T) {
	for _, c := range []struct {
		name    string
		copied  bool
		removed string // name of a rotated file that is removed; it contains the stored generation
		pattern string
		want    string
	}{
		{name: "renamed", want: "not read: x.log.1, x.log.2"},
		{name: "copied", copied: true, want: "not read: x.log.1, x.log.2"},
		{name: "removed", removed: "x.log.3", want: "not read: x.log.1, x.log.2"},
		{name: "matched", pattern: "x.log*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x.log")
			o := Options{Patterns: []string{path}, Dir: filepath.Join(dir, "state")}
			if c.pattern != "" {
				o.Patterns = append(o.Patterns, filepath.Join(dir, c.pattern))
			}
			write(t, path, "0\n")
			write(t, filepath.Join(dir, "x-other.log"), "no generation of it\n")
			h := newStepper(t, o)
			h.advance(0)
			h.want("0\n")
			h.must(h.Finish(true))
			for i := range 3 {
				rotate(t, path, c.copied)
				write(t, path, fmt.Sprintf("%d\n", i+1))
				at := time.Now().Add(time.Duration(i+1) * time.Minute)
				h.must(os.Chtimes(path, at, at))
				if c.copied {
					h.must(os.Chtimes(path+".1", at, at))
				}
			}
			if c.removed != "" {
				h.must(os.Remove(filepath.Join(dir, c.removed)))
			}
			h = newStepper(t, o)
			h.advance(0)
			if c.want != "" {
				h.want("3\n")
				h.wantMessage(c.want)
			} else if len(h.s.lines) != 3 || strings.Contains(strings.Join(h.messages, "\n"), "not read") {
				t.Errorf("%q, %q", h.s.lines, h.messages)
			}
			h.must(h.Finish(true))
			h = newStepper(t, o)
			h.advance(0)
			if messages := strings.Join(h.messages, "\n"); strings.Contains(messages, "x.log.1") {
				t.Errorf("reported again: %s", messages)
			}
		})
	}
}

// must fails the test if err is not nil.
func (h *stepper) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// The first scan stores the position of a new file before any line is delivered. If the process is
// killed and the file is copied and truncated, the next process reads all lines.
func TestFirstGenerationIsStoredAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	o := Options{Patterns: []string{path}, Dir: filepath.Join(dir, "state")}
	lines := numbered(0, 6000)
	write(t, path, strings.Join(lines, ""))
	h := newStepper(t, o)
	h.scan()
	h.must(h.Finish(false))
	rotate(t, path, true)
	write(t, path, "new\n")
	h = newStepper(t, o)
	h.advance(0)
	h.want(append(lines, "new\n")...)
}

// If a closed file is deleted and another file gets its inode before the next scan, the new file is
// read.
func TestInodeOfDeletedFile(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(dir, deleted string) error
		want []string
	}{
		{"copy", func(dir, deleted string) error {
			log, to := filepath.Join(dir, "x.log"), filepath.Join(dir, "x.log.1")
			return errors.Join(os.Rename(deleted, to), os.WriteFile(to, []byte("a\nb\n"), 0o600), os.WriteFile(log, []byte("c\n"), 0o600))
		}, []string{"b\n", "c\n"}},
		{"new file", func(dir, deleted string) error {
			to := filepath.Join(dir, "w.log")
			return errors.Join(os.Rename(deleted, to), os.WriteFile(to, []byte("c\n"), 0o600))
		}, []string{"c\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			log, deleted := filepath.Join(dir, "x.log"), filepath.Join(dir, "y.log")
			h := newStepper(t, Options{Patterns: []string{filepath.Join(dir, "*.log")}, MaxOpen: 1})
			write(t, log, "a\n")
			write(t, deleted, "deleted\n")
			write(t, filepath.Join(dir, "z.log"), "open\n")
			h.advance(0)
			h.want("a\n", "deleted\n", "open\n")
			h.must(c.do(dir, deleted)) // renaming the deleted file simulates the reuse of its inode
			h.at = h.at.Add(1100 * time.Millisecond)
			h.scan()
			h.read()
			h.want(c.want...)
		})
	}
}

// If a file was empty when its position was stored, no file is taken for it later, not even a file
// with the same inode.
func TestEmptyHeadMatchesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	write(t, path, "a\n")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := appendPositions(nil, []entry{{no: 1, id: idOf(path, st), path: path, real: path}})
	if err := os.WriteFile(filepath.Join(dir, "state", positionsName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	h := newStepper(t, Options{Patterns: []string{path}, Dir: filepath.Join(dir, "state")})
	h.advance(0)
	h.want()
}

// If there are more unread generations than MaxGenerations, the oldest ones are abandoned and
// reported as lost.
func TestTooManyGenerations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	h := newStepper(t, Options{Patterns: []string{path}, MaxGenerations: 3})
	for i := range 6 {
		write(t, path, fmt.Sprintf("%d\n", i))
		h.at = h.at.Add(2 * time.Second)
		h.scan()
		if i < 5 {
			rotate(t, path, false)
		}
	}
	h.advance(0)
	h.want("3\n", "4\n", "5\n")
	h.wantMessage("more than 3 rotated files wait to be read")
	h.wantMessage("2 bytes of it are lost: they were not read, and no copy of them exists")
	if h.lost != 6 {
		t.Errorf("%d bytes are reported as lost, want 6", h.lost)
	}
}

// If a record is incomplete at the end of a file, its rest is read from the next file. After a
// kill, the next process reads an incomplete record again.
func TestRecordsContinueInTheNextFile(t *testing.T) {
	const stamp = "2026-11-23T10:00:00.5Z "
	for _, c := range []struct{ name, rule, first, second, want string }{
		{"cri", "cri", "one" + "\n" + stamp + "stdout P tw\n", stamp + "stderr F other\n" + stamp + "stdout F o\n" + stamp + "stdout F three\n", "one\n|other\n|two\n|three\n"},
		{"cri, three files", "cri", stamp + "stdout P a\n", stamp + "stdout P b\nROTATE" + stamp + "stdout F c\n", "abc\n"},
		{"docker", "docker", `{"log":"tw","stream":"stdout","time":"2026-11-23T10:00:00.5Z"}` + "\n", `{"log":"o\n","stream":"stdout","time":"2026-11-23T10:00:01Z"}` + "\n", "two\n"},
		{"java", "java", "a.BException: c\n\tat d\n", "\tat e\nnext\n", "a.BException: c\n\tat d\n\tat e\n|next\n"},
		{"pattern", `^\d`, "1 a\n b\n", " c\n2 d\n", "1 a\n b\n c\n|2 d\n"},
		{"line", "", "one\ntw", "o\nthree\n", "one\n|two\n|three\n"},
		{"line in three files", "", "a", "bROTATEc\nd\n", "abc\n|d\n"},
		{"long line", "", strings.Repeat("x", 90), strings.Repeat("y", 90) + "\nb\n", "b\n"},
		{"long line in both", "", strings.Repeat("x", 300), strings.Repeat("y", 300) + "\nb\n", "b\n"},
	} {
		for _, copied := range []bool{false, true} {
			for _, killed := range []int{0, 1, 2} { // 0: no kill; 1: before the second file is read; 2: after it is read
				t.Run(fmt.Sprintf("%s, copied %v, killed %d", c.name, copied, killed), func(t *testing.T) {
					dir := t.TempDir()
					path := filepath.Join(dir, "x.log")
					o := Options{Patterns: []string{path}, Dir: filepath.Join(dir, "state"), MaxRecord: 150, JoinWait: time.Minute}
					if c.rule != "" {
						var err error
						if o.Join, err = join.Parse([]string{c.rule}); err != nil {
							t.Fatal(err)
						}
					}
					h := newStepper(t, o)
					parts := append([]string{c.first}, strings.Split(c.second, "ROTATE")...)
					var got, again []string
					kill := func() {
						h.settle()
						got = append(got, h.s.lines...)
						h.must(h.Finish(false))
						h = newStepper(t, o)
					}
					for i, part := range parts {
						if i > 0 {
							rotate(t, path, copied)
						}
						write(t, path, part)
						h.advance(0)
						if i == 0 && killed == 1 {
							kill()
						}
					}
					if killed == 2 {
						kill()
					}
					h.advance(10 * time.Second)
					h.advance(2 * time.Minute)
					if again = h.s.lines; killed == 2 { // skip records that were delivered twice because of the kill
						for len(again) > 0 && len(got) > 0 && strings.Contains(strings.Join(got, "|"), again[0]) {
							again = again[1:]
						}
					}
					if got := strings.Join(append(got, again...), "|"); got != c.want {
						t.Errorf("got %q, want %q; messages %q", got, c.want, h.messages)
					}
				})
			}
		}
	}
}

// A line that is longer than MaxRecord is skipped, even if it fills the buffer. A line of exactly
// MaxRecord bytes is accepted.
func TestLongLinesThatFillTheBuffer(t *testing.T) {
	const most = initialBuf + 5
	before, exact := strings.Repeat("b", 100)+"\n", strings.Repeat("x", most)+"\r\n"
	s, _ := readOnce(t, before+strings.Repeat("y", 3*most)+"\n"+exact+strings.Repeat("z", most+1)+"\r\nend\n", Options{MaxRecord: most})
	if !reflect.DeepEqual(s.lines, []string{before, exact, "end\n"}) || !reflect.DeepEqual(s.long, []int64{3*most + 1, most + 3}) {
		t.Errorf("%d lines, long ones %d", len(s.lines), s.long)
	}
}

// The method become allows exactly the transitions in edges.
func TestOnlyDrawnTransitionsAreAllowed(t *testing.T) {
	for from, next := range edges {
		for to := range genState(len(edges)) {
			func() {
				allowed := false
				for _, n := range next {
					allowed = allowed || n == to
				}
				g := &generation{state: genState(from)}
				defer func() {
					if (recover() == nil) != allowed {
						t.Errorf("transition from %s to %s: got allowed %v, want %v", genState(from), to, !allowed, allowed)
					}
				}()
				g.become(to)
			}()
		}
	}
}

// A blockingSink blocks Put while a test holds mu.
type blockingSink struct {
	recordingSink
	mu sync.Mutex
}

func (s *blockingSink) Put(l *Line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recordingSink.Put(l)
}

// await waits until the sink has n lines, and returns them.
func (s *blockingSink) await(t *testing.T, n int) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		lines := s.lines
		s.mu.Unlock()
		if len(lines) >= n {
			return lines
		}
	}
	t.Fatalf("%d lines, want %d", len(s.lines), n)
	return nil
}

// needEvents skips the test if the operating system does not report changes of files.
func needEvents(t *testing.T) {
	w := newWatcher()
	w.close()
	if w.w == nil {
		t.Skip("SKIPPED: this system reports no changes of files")
	}
}

// If the operating system reports events, new, rotated and deleted files are found without scans,
// even while the sink is blocked.
func TestEventsReplaceScans(t *testing.T) {
	needEvents(t)
	dir := t.TempDir()
	s := &blockingSink{}
	tl, err := New(Options{Patterns: []string{filepath.Join(dir, "*.log")}, Dir: filepath.Join(dir, "state"), Rescan: time.Hour, Poll: time.Hour}, s)
	if err != nil {
		t.Fatal(err)
	}
	run := make(chan error)
	go func() { run <- tl.Run() }()
	path := filepath.Join(dir, "first.log")
	for i := 0; ; i++ { // write until a line is delivered, which shows that the watcher has started
		write(t, path, "first\n")
		time.Sleep(time.Millisecond)
		s.mu.Lock()
		n := len(s.lines)
		s.mu.Unlock()
		if n > 0 {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			s.await(t, i+1)
			break
		}
	}
	s.mu.Lock()
	s.lines = nil
	path = filepath.Join(dir, "x.log")
	var want []string
	// awaitFound waits until the scanner has found the file at path and its current size.
	awaitFound := func() {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for stop := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			tl.index.mu.Lock()
			sr := tl.index.paths[path]
			ok := sr != nil && sr.current() != nil && sr.current().id == idOf(path, st) && sr.current().size == st.Size()
			tl.index.mu.Unlock()
			if ok {
				return
			}
			if time.Now().After(stop) {
				t.Fatal("the scanner has not found the file within a minute")
			}
		}
	}
	for i := range 5 {
		lines := numbered(10*i, 10*i+10)
		want = append(want, lines...)
		write(t, path, strings.Join(lines, ""))
		awaitFound()
		if i%2 == 0 {
			rotate(t, path, false)
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Unlock()
	if got := s.await(t, len(want)); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	tl.Stop()
	if err := <-run; err != ErrStopped {
		t.Error(err)
	}
	if err := tl.Finish(true); err != nil {
		t.Error(err)
	}
}

// With events of the operating system, no scans are needed to find files in new directories, even if
// a directory has the name of a removed one.
func TestEventsFindFilesInNewDirectories(t *testing.T) {
	needEvents(t)
	dir := t.TempDir()
	s := &blockingSink{}
	tl, err := New(Options{Patterns: []string{filepath.Join(dir, "*", "logs", "*.log")}, Rescan: time.Hour, Poll: time.Hour}, s)
	if err != nil {
		t.Fatal(err)
	}
	run := make(chan error)
	go func() { run <- tl.Run() }()
	for scanned := false; !scanned; time.Sleep(time.Millisecond) {
		tl.index.mu.Lock()
		scanned = tl.index.scans > 0
		tl.index.mu.Unlock()
	}
	var want []string
	for i := range 6 {
		pod := filepath.Join(dir, "pod"+strconv.Itoa(i/2))
		logs := filepath.Join(pod, "logs")
		if err := os.MkdirAll(logs, 0o700); err != nil {
			t.Fatal(err)
		}
		line := "line " + strconv.Itoa(i) + "\n"
		write(t, filepath.Join(logs, "x.log"), line)
		want = append(want, line)
		s.await(t, len(want))
		if err := os.RemoveAll(pod); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.await(t, len(want)); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	tl.Stop()
	if err := <-run; err != ErrStopped {
		t.Error(err)
	}
	if err := tl.Finish(true); err != nil {
		t.Error(err)
	}
}

// A text file with a few NUL bytes is not binary. A binary file is skipped, and Missed counts it.
func TestFewNULBytesAreNotBinary(t *testing.T) {
	s, messages := readOnce(t, "a\x00b\n", Options{})
	if !reflect.DeepEqual(s.lines, []string{"a\x00b\n"}) || messages != "" {
		t.Errorf("%q, messages %q", s.lines, messages)
	}
	if what := binary([]byte("a\x00b\x00c\x00\n\x00")); what != "binary" { // UTF-16 without a byte order mark
		t.Error(what)
	}
	path := filepath.Join(t.TempDir(), "x.gz")
	write(t, path, "\x1f\x8b\x08\x00abc")
	tl, err := New(Options{Patterns: []string{path, filepath.Dir(path)}, Once: true}, &recordingSink{})
	if err == nil {
		err = tl.Run()
	}
	if err != nil || tl.Missed() != 2 {
		t.Errorf("%v, missed %d", err, tl.Missed())
	}
	tl.Finish(true)
}
