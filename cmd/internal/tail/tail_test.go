package tail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A recordingSink records the lines that it accepts.
type recordingSink struct {
	lines   []string
	sources []Line // the accepted lines without their texts
	long    []int64
	full    func() error // called before each line; if it returns an error, Put rejects the line
	refuse  bool         // if true, Commit returns an error
	commits atomic.Int64
}

func (*recordingSink) Begin() {}
func (*recordingSink) End()   {}

func (s *recordingSink) Put(l *Line) error {
	if s.full != nil {
		if err := s.full(); err != nil {
			return err
		}
	}
	if l.TooLong > 0 {
		s.long = append(s.long, l.TooLong)
		return nil
	}
	s.lines = append(s.lines, string(l.Text))
	s.sources = append(s.sources, *l)
	s.sources[len(s.sources)-1].Text = nil // valid until Put returns
	return nil
}

func (s *recordingSink) Commit(context.Context) error {
	s.commits.Add(1)
	if s.refuse {
		return errors.New("refused")
	}
	return nil
}

func write(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readOnce writes text to a file and reads the file with Options.Once. It returns the lines and the
// messages.
func readOnce(t testing.TB, text string, o Options) (*recordingSink, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.log")
	write(t, path, text)
	return readFileOnce(t, path, o)
}

// readFileOnce reads the file at path with Options.Once. It returns the lines and the messages.
func readFileOnce(t testing.TB, path string, o Options) (*recordingSink, string) {
	t.Helper()
	var messages []string
	o.Once, o.Say = true, func(s string) { messages = append(messages, strings.ReplaceAll(s, filepath.Dir(path)+"/", "")) }
	o.Patterns = append(o.Patterns, path)
	s := &recordingSink{}
	tl, err := New(o, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := tl.Run(); err != nil {
		t.Fatal(err)
	}
	if err := tl.Finish(true); err != nil {
		t.Fatal(err)
	}
	return s, strings.Join(messages, "\n")
}

// A stepper runs a Tailer step by step with a simulated clock.
type stepper struct {
	*Tailer
	t        *testing.T
	s        *recordingSink
	messages []string
	lost     int64
	at       time.Time // simulated time
}

func newStepper(t *testing.T, o Options) *stepper {
	t.Helper()
	h := &stepper{t: t, s: &recordingSink{}, at: time.Unix(1e9, 0)}
	o.Say = func(s string) { h.messages = append(h.messages, s) }
	o.Lost = func(n int64) { h.lost += n }
	var err error
	if h.Tailer, err = New(o, h.s); err != nil {
		t.Fatal(err)
	}
	h.o.now = func() time.Time { return h.at }
	t.Cleanup(func() {
		h.settle()
		if err := h.Finish(false); err != nil {
			t.Error(err)
		}
	})
	return h
}

// advance advances the clock by d. It scans and reads three times, because renames and truncations
// take several scans.
func (h *stepper) advance(d time.Duration) {
	h.t.Helper()
	h.at = h.at.Add(d)
	for range 3 {
		h.at = h.at.Add(1100 * time.Millisecond)
		h.scan()
		h.read()
	}
}

// scan runs the scanner once.
func (h *stepper) scan() {
	if h.index.initial {
		h.begin()
	}
	h.scanner.look(h.at)
}

// read makes the reader read the available lines.
func (h *stepper) read() {
	h.t.Helper()
	for range 1000 {
		next, err := h.reader.deliver(context.Background(), h.at)
		if err != nil {
			h.t.Fatal(err)
		}
		if next.After(h.at) {
			return
		}
	}
	h.t.Fatal("the reader still has lines to read after 1000 calls")
}

// settle waits for the commits and stores positions.
func (h *stepper) settle() {
	h.reader.commits.running.Wait()
	h.keeper.save()
}

// want checks that the sink has received exactly the given lines since the last call of want.
func (h *stepper) want(lines ...string) {
	h.t.Helper()
	if !reflect.DeepEqual(h.s.lines, lines) && len(h.s.lines)+len(lines) > 0 {
		h.t.Fatalf("got %q, want %q; messages %q", h.s.lines, lines, h.messages)
	}
	h.s.lines = nil
}

// wantMessage checks that a message contains the text part.
func (h *stepper) wantMessage(part string) {
	h.t.Helper()
	if !strings.Contains(strings.Join(h.messages, "\n"), part) {
		h.t.Fatalf("messages %q, want %q", h.messages, part)
	}
}

func TestLinesOfAnyLengthAreRead(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"a\nb\n", "a\n|b\n"},
		{"a\r\n\nb", "a\r\n|\n|b\n"},
		{"\x00\x00\x00a\n", "a\n"}, // NUL bytes before a line
		{strings.Repeat("\x00", 1<<20) + "a\nb\x00\n", "a\n|b\x00\n"},                   // 1 MiB of NUL bytes before a line
		{"a\n" + strings.Repeat("\x00", 70_000), "a\n"},                                 // reserved space at the end of the file
		{"123456789\n1234567890\r\n12345678901\nb\n", "123456789\n|1234567890\r\n|b\n"}, // MaxRecord is 10
		{strings.Repeat("x", 1<<20) + "\nb\n", "b\n"},
		{strings.Repeat("x", 1<<20), ""},
	} {
		s, _ := readOnce(t, c.in, Options{MaxRecord: 10})
		if got := strings.Join(s.lines, "|"); got != c.want {
			t.Errorf("%.40q: got %q, want %q", c.in, got, c.want)
		}
	}
	s, _ := readOnce(t, strings.Repeat("x", 1<<20)+"\nb\n12345678901", Options{MaxRecord: 10})
	if !reflect.DeepEqual(s.long, []int64{1<<20 + 1, 11}) {
		t.Error(s.long)
	}
	// The lengths of the lines are around the size of the buffer.
	var want []string
	for n := initialBuf - 70; n < initialBuf+5; n += 3 {
		want = append(want, strings.Repeat("z", n)+"\n", "short\n")
	}
	s, _ = readOnce(t, strings.Join(want, ""), Options{})
	if !reflect.DeepEqual(s.lines, want) {
		t.Error("long lines differ")
	}
}

func TestFilesThatAreNotTextAreSkipped(t *testing.T) {
	for in, want := range map[string]string{
		"\x1f\x8b\x08\x00abc":               "x.log: it is compressed (gzip); it is not followed",
		"\x28\xb5\x2f\xfdabc":               "x.log: it is compressed (zstd); it is not followed",
		"\x7fELF\x02\x01\x01\x00\x00\x00\n": "x.log: it is binary; it is not followed",
		"\xff\xfea\x00\n\x00":               "x.log: it is UTF-16, which needs the charset utf-16; it is not followed",
	} {
		if s, messages := readOnce(t, in, Options{}); len(s.lines) > 0 || messages != want {
			t.Errorf("%q: %q, messages %q", in, s.lines, messages)
		}
	}
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                         "it is a directory; for the files in it, write",
		filepath.Join(dir, "no"):    "no: no such file",
		filepath.Join(dir, "*.nix"): "*.nix: no such file",
		os.DevNull:                  "it is not a regular file",
	} {
		if _, messages := readFileOnce(t, path, Options{}); !strings.Contains(messages, want) {
			t.Errorf("%s: messages %q, want %q", path, messages, want)
		}
	}
	for _, p := range []string{"a[b", "/var/log/**/*.log"} {
		if _, err := New(Options{Patterns: []string{p}}, &recordingSink{}); err == nil {
			t.Error(p)
		}
	}
}

// If positions cannot be stored, one message reports that. Positions are stored again after
// Options.CommitEvery at the earliest.
func TestFailingStoreIsReportedOnce(t *testing.T) {
	dir := t.TempDir()
	path, state := filepath.Join(dir, "x.log"), filepath.Join(dir, "state")
	in := filepath.Join(state, positionsName+".new") // a directory at the path of the temporary file makes each save fail
	h := newStepper(t, Options{Patterns: []string{path}, Dir: state})
	if err := os.Mkdir(in, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, "a\n")
	for range 3 {
		h.advance(0)
		h.settle()
	}
	h.want("a\n")
	if n := strings.Count(strings.Join(h.messages, "\n"), "cannot store positions in "); n != 1 || h.s.commits.Load() > 3*3 {
		t.Errorf("reported %d times, %d commits: %q", n, h.s.commits.Load(), h.messages)
	}
	before := h.s.commits.Load()
	for range 3 { // the clock does not advance
		h.read()
		h.settle()
	}
	if n := h.s.commits.Load() - before; n > 1 {
		t.Errorf("%d commits although no time passed, want at most 1", n)
	}
	if err := os.Remove(in); err != nil {
		t.Fatal(err)
	}
	h.advance(0)
	h.settle()
	h.wantMessage("positions can be stored again in " + state)
	if s, _ := parsePositions(must(os.ReadFile(filepath.Join(state, positionsName)))); len(s) != 1 || s[0].at.off != 2 {
		t.Errorf("%+v", s)
	}
}

// A position is stored only after the sink has committed the lines before it.
func TestNoPositionBeforeACommit(t *testing.T) {
	dir := t.TempDir()
	path, state := filepath.Join(dir, "x.log"), filepath.Join(dir, "state")
	h := newStepper(t, Options{Patterns: []string{path}, Dir: state})
	want := func(off int64) {
		t.Helper()
		for range 3 {
			h.advance(0)
			h.settle()
		}
		if s, _ := parsePositions(must(os.ReadFile(filepath.Join(state, positionsName)))); len(s) != 1 || s[0].at.off != off {
			t.Errorf("%+v, want the offset %d", s, off)
		}
	}
	write(t, path, "a\n")
	h.s.refuse = true
	want(0)
	h.want("a\n")
	h.s.refuse = false
	want(2)
}

// must returns b. It panics if err is not nil.
func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// A second process cannot use the same Options.Dir.
func TestSecondProcessIsRejected(t *testing.T) {
	dir := t.TempDir()
	newStepper(t, Options{Dir: dir})
	if _, err := New(Options{Dir: dir}, &recordingSink{}); !errors.Is(err, state.ErrInUse) {
		t.Error(err)
	}
}

// A damaged file of positions is reported and renamed, and all lines are read again.
func TestDamagedPositionsAreRenamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	write(t, path, "a\nb\n")
	state := filepath.Join(dir, "state")
	o := Options{Dir: state}
	readFileOnce(t, path, o)
	if s, _ := readFileOnce(t, path, o); len(s.lines) != 0 {
		t.Fatal(s.lines)
	}
	name := filepath.Join(state, positionsName)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	h := newStepper(t, Options{Dir: state, From: FromEnd, Patterns: []string{path}})
	h.advance(0)
	h.want("a\n", "b\n")
	h.wantMessage("positions is damaged: ")
	if _, err := os.Stat(name + ".bad"); err != nil {
		t.Error(err)
	}
}

func TestFromEndSkipsExistingLines(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	write(t, path, "old\nhal")
	h := newStepper(t, Options{Patterns: []string{filepath.Join(dir, "*.log")}, From: FromEndOnce})
	h.advance(0)
	write(t, path, "f\nnew\n")
	write(t, filepath.Join(dir, "y.log"), "all\n")
	h.advance(0)
	h.want("all\n", "half\n", "new\n")
}

// Options.From applies to files without a stored position. A file that has replaced a file with a
// position is read from its start. A file that appeared between two Tailers is also read from its
// start, if the second Tailer replaces the first in the same process.
func TestFromAppliesToFilesWithoutPosition(t *testing.T) {
	for _, c := range []struct {
		from   From
		before bool // the second Tailer replaces the first
		want   []string
	}{
		{FromStart, false, []string{"a2\n", "b1\n", "c1\n", "d1\n"}},
		{FromEndOnce, false, []string{"a2\n", "b1\n", "c1\n", "d1\n"}},
		{FromEnd, false, []string{"a2\n", "b1\n", "c1\n"}},
		{FromEnd, true, []string{"a2\n", "b1\n", "c1\n", "d1\n"}},
	} {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		o := Options{Dir: at("state"), Patterns: []string{at("*.log")}}
		write(t, at("a.log"), "a1\n")
		write(t, at("b.log"), "b0\n")
		write(t, at("c.log"), "")
		h := newStepper(t, o)
		h.advance(0)
		h.want("a1\n", "b0\n")
		h.settle()
		h.keeper.store.close()
		write(t, at("a.log"), "a2\n")
		if err := os.Rename(at("b.log"), at("b.log.1")); err != nil {
			t.Fatal(err)
		}
		write(t, at("b.log"), "b1\n")
		write(t, at("c.log"), "c1\n")
		write(t, at("d.log"), "d1\n")
		o.From = c.from
		if c.before {
			o.Before = h.Tailer
		}
		h = newStepper(t, o)
		h.advance(0)
		h.want(c.want...)
		write(t, at("d.log"), "d2\n")
		h.advance(0)
		h.want("d2\n")
	}
}

// If two stored generations have the same inode, the older one was deleted and its inode was used
// again. The file is read once.
func TestReusedInodeIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	path, state := filepath.Join(dir, "x.log"), filepath.Join(dir, "state")
	write(t, path, "one\n")
	o := Options{Patterns: []string{path}, Dir: state}
	h := newStepper(t, o)
	h.s.refuse = true
	h.advance(0)
	h.keeper.save()
	h.keeper.store.close()
	positions := filepath.Join(state, "positions")
	b, err := os.ReadFile(positions)
	if err != nil {
		t.Fatal(err)
	}
	later := h.index.entries()[0]
	later.no++
	b = appendEntry(b, later)
	if err := errors.Join(os.WriteFile(positions, b, 0o600), os.Rename(path, path+".1")); err != nil {
		t.Fatal(err)
	}
	h = newStepper(t, o)
	h.advance(0)
	h.want("one\n")
}

// The position at which FromEnd starts is stored before any line is read. If the process is
// killed before a commit, the next process starts there.
func TestFromEndSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	write(t, path, "old\n")
	o := Options{Patterns: []string{path}, From: FromEndOnce, Dir: filepath.Join(dir, "state")}
	h := newStepper(t, o)
	h.s.refuse = true
	h.advance(0)
	write(t, path, "new\n")
	h.advance(0)
	h.want("new\n")
	h.settle()
	h.keeper.store.close()
	h = newStepper(t, o)
	h.advance(0)
	h.want("new\n")
}

func TestPartialLineIsDeliveredAfterWait(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	h := newStepper(t, Options{Patterns: []string{path}, PartialWait: time.Minute})
	h.advance(0)
	write(t, path, "a\nb")
	h.advance(0)
	h.want("a\n")
	h.advance(30 * time.Second)
	h.want()
	h.advance(time.Minute)
	h.want("b\n")
	write(t, path, "\nc\n") // the newline ends the delivered partial line; it is not an empty line
	h.advance(0)
	h.want("c\n")
	write(t, path, "d")
	h.advance(time.Second)
	h.advance(time.Minute)
	h.want("d\n")
	write(t, path, "e\n")
	h.advance(0)
	h.want("e\n")
}

// A truncation is also detected if the file has become longer than before by the time of the next
// scan.
func TestTruncatedAndLonger(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.log")
	h := newStepper(t, Options{Patterns: []string{path}})
	write(t, path, "a\nb\n")
	h.advance(0)
	h.want("a\n", "b\n")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(t, path, "c\nd\ne\nf\n")
	h.advance(0)
	h.want("c\n", "d\n", "e\n", "f\n")
	h.wantMessage("it was truncated; reading from its start")
}

// The number of bytes that a truncation has destroyed is reported and passed to Options.Lost.
func TestTruncationLossIsCounted(t *testing.T) {
	big := strings.Repeat("a line\n", 3<<20/7)
	for _, c := range []struct {
		name string
		do   func(h *stepper, path string) (lost int)
	}{
		{"all was read, and the new content is longer", func(h *stepper, path string) int {
			truncate(h.t, path, "header\n3\n4\n5\n6\n")
			h.advance(0)
			h.want("header\n", "3\n", "4\n", "5\n", "6\n")
			return 0
		}},
		{"all was read, and the new content is as long", func(h *stepper, path string) int {
			truncate(h.t, path, "header\n3\n4\n")
			h.advance(0)
			h.want("header\n", "3\n", "4\n")
			return 0
		}},
		{"all was read, and the new content is shorter", func(h *stepper, path string) int {
			truncate(h.t, path, "header\n")
			h.advance(0)
			h.want("header\n")
			return 0
		}},
		{"NUL bytes were seen, which are not counted as lost", func(h *stepper, path string) int {
			write(h.t, path, strings.Repeat("\x00", 100))
			h.advance(0)
			truncate(h.t, path, "header\n3\n4\n5\n6\n"+big)
			h.advance(0)
			return 0
		}},
		{"a line without its end was seen, and the new content is longer", func(h *stepper, path string) int {
			write(h.t, path, "begun")
			h.advance(0)
			truncate(h.t, path, "header\n3\n4\n5\n6\n7\n8\n")
			h.advance(0)
			return 5
		}},
		{"a line without its end was seen, and the new content is shorter", func(h *stepper, path string) int {
			write(h.t, path, "begun")
			h.advance(0)
			truncate(h.t, path, "new\n")
			h.advance(0)
			return 5
		}},
		{"the output is blocked, and the new content is shorter", func(h *stepper, path string) int {
			write(h.t, path, big)
			h.at = h.at.Add(2 * time.Second)
			h.scan()
			truncate(h.t, path, "new\n")
			h.advance(0)
			h.want("new\n")
			return len(big)
		}},
		{"the output is blocked, and the new content has the size of the old content", func(h *stepper, path string) int {
			write(h.t, path, big)
			h.at = h.at.Add(2 * time.Second)
			h.scan()
			truncate(h.t, path, strings.Repeat("x", len("header\n1\n2\n")+len(big)-1)+"\n")
			h.advance(0)
			return len(big)
		}},
		{"the output is blocked in the middle of the content", func(h *stepper, path string) (lost int) {
			write(h.t, path, big+big)
			lost = 2 * len(big)
			h.s.full = func() error {
				if len(h.s.lines) == 7 {
					truncate(h.t, path, "new\n")
					h.at = h.at.Add(2 * time.Second)
					h.scan()
				}
				return nil
			}
			h.advance(0)
			for _, line := range h.s.lines[:len(h.s.lines)-1] {
				lost -= len(line)
			}
			return lost
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.log")
			h := newStepper(t, Options{Patterns: []string{path}, MaxRecord: 4 << 20})
			write(t, path, "header\n1\n2\n")
			h.advance(0)
			h.want("header\n", "1\n", "2\n")
			want := c.do(h, path)
			h.wantMessage("it was truncated; reading from its start")
			messages := strings.Join(h.messages[1:], "\n")
			if want != 0 && messages != fmt.Sprintf("%s: %d bytes of it are lost: they were not read, and no copy of them exists", path, want) || want == 0 && messages != "" {
				t.Errorf("messages %q, want a message about %d lost bytes after the first message", h.messages, want)
			}
			if h.lost != int64(want) {
				t.Errorf("%d bytes are lost, want %d", h.lost, want)
			}
		})
	}
}

// truncate replaces the content of the file at path and keeps the inode.
func truncate(t testing.TB, path, text string) {
	t.Helper()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(t, path, text)
}

// If a writer without O_APPEND continues after a truncation, the NUL bytes before its data are
// skipped.
func TestTruncatedWithHole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := newStepper(t, Options{Patterns: []string{path}})
	fmt.Fprint(f, strings.Repeat("a line\n", 1000))
	h.advance(0)
	if len(h.s.lines) != 1000 {
		t.Fatal(len(h.s.lines))
	}
	h.s.lines = nil
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "b\nc\n")
	h.advance(0)
	h.want("b\n", "c\n")
}

// No further line is read while Put blocks. After Stop, the position is the end of the last
// accepted line.
func TestFullSinkStopsReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	write(t, path, strings.Repeat("a line\n", 100))
	s := &recordingSink{}
	tl, err := New(Options{Patterns: []string{path}}, s)
	if err != nil {
		t.Fatal(err)
	}
	at, run := make(chan bool), make(chan error)
	s.full = func() error {
		at <- true
		<-at
		return nil
	}
	go func() { run <- tl.Run() }()
	for range 10 {
		<-at
		at <- true
	}
	<-at
	tl.Stop()
	at <- true
	if err := <-run; !errors.Is(err, ErrStopped) || len(s.lines) != 11 {
		t.Error(err, len(s.lines))
	}
	if g := tl.index.paths[path].gens[0]; g.at.off != 11*7 {
		t.Errorf("position %d, want %d", g.at.off, 11*7)
	}
	if err := tl.Finish(false); err != nil {
		t.Error(err)
	}
}

// The position of an existing file is kept even if no pattern matches the file in a later run.
func TestOtherPatternsKeepPositions(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.log"), filepath.Join(dir, "b.log")
	write(t, a, "a\n")
	write(t, b, "b\n")
	o := Options{Dir: filepath.Join(dir, "state")}
	readFileOnce(t, a, o)
	readFileOnce(t, b, o)
	if s, _ := readFileOnce(t, a, o); len(s.lines) > 0 {
		t.Errorf("%q were read again", s.lines)
	}
}

func TestSourceOfContainerLog(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	s := sourceOf("/var/log/containers/shop-7d9f-x2x_prod_web-server-" + id + ".log")
	if s.Pod != "shop-7d9f-x2x" || s.Namespace != "prod" || s.Container != "web-server" {
		t.Errorf("%+v", s)
	}
	for _, path := range []string{"/var/log/a_b_c.log", "x", "/var/log/containers/a_b-" + id + ".log"} {
		if s := sourceOf(path); s.Pod != "" || s.Path != path {
			t.Errorf("%+v", s)
		}
	}
}

// If the followed path is a symbolic link, its target is also found after it was renamed in its
// directory while no process ran.
func TestSymlinkRotation(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: needs symbolic links")
	}
	dir := t.TempDir()
	pod := filepath.Join(dir, "pods")
	if err := os.Mkdir(pod, 0o700); err != nil {
		t.Fatal(err)
	}
	link, file := filepath.Join(dir, "x.log"), filepath.Join(pod, "0.log")
	write(t, file, "a\n")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	o := Options{Patterns: []string{link}, Dir: filepath.Join(dir, "state")}
	h := newStepper(t, o)
	h.advance(0)
	h.want("a\n")
	h.settle()
	h.advance(2 * time.Second)
	h.settle()
	h.keeper.store.close()
	write(t, file, "b\n")
	if err := os.Rename(file, file+".20261123-100000"); err != nil {
		t.Fatal(err)
	}
	write(t, file, "c\n")
	h = newStepper(t, o)
	h.advance(0)
	h.want("b\n", "c\n")
}

// At most MaxOpen files are open, even if more files match the pattern or are written to.
func TestManyFilesNeedFewDescriptors(t *testing.T) {
	dir := t.TempDir()
	const all, busy, most = 2000, 100, 50
	for i := range all {
		write(t, filepath.Join(dir, fmt.Sprintf("%05d.log", i)), "first\n")
	}
	h := newStepper(t, Options{Patterns: []string{filepath.Join(dir, "*.log")}, MaxOpen: most})
	h.advance(0)
	if len(h.s.lines) != all || len(h.index.files.open) > most {
		t.Fatalf("%d lines, %d files open", len(h.s.lines), len(h.index.files.open))
	}
	h.s.lines = nil
	for range 3 {
		for i := range busy {
			write(t, filepath.Join(dir, fmt.Sprintf("%05d.log", i)), "more\n")
		}
		h.advance(0)
	}
	if len(h.s.lines) != 3*busy || len(h.index.files.open) > most {
		t.Errorf("%d lines, %d files open", len(h.s.lines), len(h.index.files.open))
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\x00\x00c\n\nd"), uint8(0))
	f.Add([]byte("d\r\x00"), uint8(0))
	f.Add([]byte("panic: x\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:1\n"), uint8(1))
	f.Add([]byte("Traceback (most recent call last):\n  File \"x\"\nValueError: y\n\nDuring handling of the above exception\n"), uint8(2))
	f.Add([]byte("a.b.CException: x\n\tat y\nCaused by: z\n"), uint8(3))
	f.Add([]byte("2026 a\n b\n2026 c\n"), uint8(4))
	names := [][]string{nil, {"go"}, {"python"}, {"java"}, {`^\d`}, {"go", "java", "python"}}
	f.Fuzz(func(t *testing.T, in []byte, which uint8) {
		if binary(in[:min(len(in), 512)]) != "" {
			return
		}
		rules, err := join.Parse(names[int(which)%len(names)])
		if err != nil {
			t.Fatal(err)
		}
		s, _ := readOnce(t, string(in), Options{Join: rules})
		var want []byte
		for line := range bytes.Lines(bytes.TrimPrefix(in, []byte("\ufeff"))) {
			line = bytes.TrimLeft(line, "\x00")
			if !bytes.HasSuffix(line, []byte("\n")) {
				line = bytes.TrimRight(line, "\x00") // NUL bytes at the end of a file are reserved space
			}
			want = append(want, line...)
		}
		if len(want) > 0 && want[len(want)-1] != '\n' {
			want = append(want, '\n')
		}
		if got := strings.Join(s.lines, ""); got != string(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func FuzzPositions(f *testing.F) {
	f.Add(appendPositions(nil, nil))
	f.Add(appendPositions(nil, []entry{{7, id{1, 2}, "/a b\"\n\xff", "/c", position{3, 4}, head{3, 6}, true, 9, 11, false}}))
	f.Add([]byte(oldPositions))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := parsePositions(text)
		if err != nil {
			return
		}
		again, err := parsePositions(appendPositions(nil, entries))
		if err != nil || !reflect.DeepEqual(entries, again) {
			t.Errorf("%q: %+v, %+v, %v", text, entries, again, err)
		}
	})
}

// oldPositions is a file of positions written by release 0.1.
const oldPositions = "forebay tail 1\nfe01 98a2f3 829 5d1c9e07 256 11aa02bd 0 \"/var/log/app.log\" \"/var/log/app.log.1\"\nfe01 2 7 00000001 7 00000001 1 \"/x\" \"/x\"\nend 2 77870791\n"

func TestPositionsOfFirstReleaseAreRead(t *testing.T) {
	entries, err := parsePositions([]byte(oldPositions))
	want := []entry{
		{0, id{0xfe01, 0x98a2f3}, "/var/log/app.log", "/var/log/app.log.1", position{829, 0x5d1c9e07}, head{256, 0x11aa02bd}, false, 829, 0, false},
		{1, id{0xfe01, 2}, "/x", "/x", position{7, 1}, head{7, 1}, true, 7, 0, false},
	}
	if err != nil || !reflect.DeepEqual(entries, want) {
		t.Errorf("%+v, %v", entries, err)
	}
}

// A damaged byte in the list of positions is detected as an error. If an entry after the list is
// damaged, only the entries before it are used.
func TestDamageOfAnyByteIsDetected(t *testing.T) {
	good := appendPositions(nil, []entry{{1, id{1, 2}, "/a", "/b", position{300, 4}, head{5, 6}, true, 300, 12, false}, {2, id{3, 4}, "/c", "", position{}, head{}, false, 0, 0, false}})
	list := len(good)
	if entries, err := parsePositions(good); err != nil || len(entries) != 2 {
		t.Fatal(entries, err)
	}
	good = appendEntry(good, entry{no: 1, ended: true})
	good = appendEntry(good, entry{no: 3, path: "/new"})
	if entries, err := parsePositions(good); err != nil || len(entries) != 2 || entries[0].no != 2 || entries[1].path != "/new" {
		t.Fatal(entries, err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 4
		entries, err := parsePositions(bad)
		if i < list && err == nil {
			t.Errorf("a change of byte %d of the list is not detected", i)
		} else if i >= list && (err != nil || len(entries) > 2 || len(entries) > 1 && entries[1].no == 3) {
			t.Errorf("after a change of byte %d: got %+v, %v", i, entries, err)
		}
		if entries, err := parsePositions(good[:i]); (err == nil) != (i >= list) || len(entries) > 2 {
			t.Errorf("truncated to %d bytes: got %+v, %v", i, entries, err)
		}
	}
}

func BenchmarkLines(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.log")
	line := strings.Repeat("x", 255) + "\n"
	write(b, path, strings.Repeat(line, 100_000))
	b.SetBytes(256)
	for n := 0; n < b.N; n += 100_000 {
		tl, err := New(Options{Patterns: []string{path}, Once: true}, discardSink{})
		if err != nil {
			b.Fatal(err)
		}
		if err := tl.Run(); err != nil {
			b.Fatal(err)
		}
		tl.Finish(true)
	}
}

// A discardSink accepts all lines and discards them.
type discardSink struct{}

func (discardSink) Begin()                       {}
func (discardSink) End()                         {}
func (discardSink) Put(*Line) error              { return nil }
func (discardSink) Commit(context.Context) error { return nil }

// A file is followed even if its directory is created after the start, or if it replaces a removed
// file. Directories are not followed.
func TestFilesComeAndGo(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "later")
	h := newStepper(t, Options{Patterns: []string{filepath.Join(dir, "*.log")}})
	want := []string{}
	expect := func(lines ...string) {
		t.Helper()
		h.advance(5 * time.Second)
		if want = append(want, lines...); !reflect.DeepEqual(append([]string{}, h.s.lines...), want) {
			t.Fatalf("%q, want %q; messages %q", h.s.lines, want, h.messages)
		}
	}
	expect()
	if err := os.MkdirAll(filepath.Join(dir, "x.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(dir, "a.log"), filepath.Join(dir, "b.log")
	write(t, a, "a1\n")
	write(t, filepath.Join(dir, "a.txt"), "no\n")
	write(t, filepath.Join(dir, "x.log", "y.log"), "no\n")
	expect("a1\n")
	write(t, b, "b1\n")
	expect("b1\n")
	write(t, a, "a2\n")
	if err := os.Remove(a); err != nil { // a2 has not been read yet
		t.Fatal(err)
	}
	expect("a2\n")
	write(t, a, "other1\n")
	expect("other1\n")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	expect()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, b, "b2 of another\n")
	expect("b2 of another\n")
}
