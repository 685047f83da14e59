package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/testkit"
)

// A recordingSink records the messages that it has accepted, and those that were committed.
type recordingSink struct {
	mu       sync.Mutex
	accepted []string      // accepted messages
	safe     []string      // committed messages
	long     []int64       // lengths of messages that were too long
	refuse   bool          // if true, Commit returns an error
	room     int           // number of entries to accept before Put returns an error; 0: no limit
	commits  int           // number of calls of Commit
	changed  chan struct{} // receives a value after each change
}

var errFull = errors.New("full")

func newRecordingSink() *recordingSink { return &recordingSink{changed: make(chan struct{}, 1)} }

// signal wakes a call of until.
func (s *recordingSink) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *recordingSink) Put(e Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	if s.room > 0 && len(s.accepted) == s.room {
		return errFull
	}
	if e.TooLong > 0 {
		s.long = append(s.long, e.TooLong)
		return nil
	}
	s.accepted = append(s.accepted, strings.TrimSuffix(string(e.Text), "\n"))
	return nil
}

func (s *recordingSink) Commit(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	s.commits++
	if s.refuse {
		return errors.New("refused")
	}
	s.safe = slices.Clone(s.accepted)
	return nil
}

// until waits until the function done returns true. It calls this function with s.mu locked. The
// text what names the condition in the error message.
func (s *recordingSink) until(t testing.TB, what string, done func() bool) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		s.mu.Lock()
		ok := done()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-s.changed:
		case <-timeout:
			t.Fatalf("timeout while waiting for %s: got %d entries and %d commits", what, len(s.accepted), s.commits)
		}
	}
}

// A runner runs a Journal and collects its messages.
type runner struct {
	*Journal
	t       testing.TB
	s       *recordingSink
	done    chan error
	mu      sync.Mutex
	reports []string
	ended   bool // Run has returned
}

// start starts a Journal that runs a fake of journalctl.
func start(t testing.TB, s *recordingSink, o Options) *runner {
	t.Helper()
	h := &runner{t: t, s: s, done: make(chan error, 1)}
	o.Command = []string{os.Args[0]}
	if o.CommitEvery == 0 {
		o.CommitEvery = time.Millisecond
	}
	o.Say = func(text string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.reports = append(h.reports, text)
		s.signal()
	}
	var err error
	if h.Journal, err = New(o, s); err != nil {
		t.Fatal(err)
	}
	h.minWait, h.maxWait = time.Millisecond, 2*time.Millisecond
	go func() { h.done <- h.Run() }()
	t.Cleanup(h.end)
	return h
}

// end stops the Journal and closes its files. It does not call Finish, and so simulates a kill.
func (h *runner) end() {
	if !h.ended {
		h.ended = true
		h.Stop()
		if err := <-h.done; !errors.Is(err, ErrStopped) && !errors.Is(err, errFull) {
			h.t.Errorf("Run: %v", err)
		}
	}
	if h.store != nil {
		h.store.Close()
	}
}

// has returns a function that reports whether any message contains text.
func (h *runner) has(text string) func() bool {
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.ContainsFunc(h.reports, func(s string) bool { return strings.Contains(s, text) })
	}
}

// messages returns the messages of the entries with the numbers n for which first <= n < end.
func messages(first, end int) (m []string) {
	for n := first; n < end; n++ {
		m = append(m, fmt.Sprintf("message %d", n))
	}
	return m
}

// want waits for the given messages, and checks that the sink has accepted no others.
func (s *recordingSink) want(t testing.TB, want []string) {
	t.Helper()
	s.until(t, "entries", func() bool { return len(s.accepted) >= len(want) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.accepted, want) {
		t.Errorf("%d entries, want %d: %q", len(s.accepted), len(want), s.accepted)
	}
}

// stored returns the cursor that is stored in dir.
func stored(t testing.TB, dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, cursorName))
	if err != nil {
		t.Fatal(err)
	}
	p, err := parsePosition(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(p.cursor)
}

// The Journal reads the existing entries and then new ones. The next run continues after the last
// entry.
func TestExistingAndNewEntriesAreRead(t *testing.T) {
	d, dir, s := newJournald(t), t.TempDir(), newRecordingSink()
	d.add(0, 100)
	h := start(t, s, Options{Dir: dir})
	s.want(t, messages(0, 100))
	d.add(100, 150)
	s.want(t, messages(0, 150))
	h.Stop()
	if err := <-h.done; err != ErrStopped {
		t.Error(err)
	}
	h.ended = true
	if err := h.Finish(true); err != nil {
		t.Error(err)
	}
	if got := stored(t, dir); !strings.HasPrefix(got, "s=fake;i=95;") {
		t.Error(got)
	}
	if len(h.reports) != 0 {
		t.Errorf("%q", h.reports)
	}
	d.add(150, 160)
	s = newRecordingSink()
	start(t, s, Options{Dir: dir, FromEnd: true}) // FromEnd has no effect, because a cursor is stored
	s.want(t, messages(150, 160))
}

// If journalctl is killed after any number of bytes, no entry is lost or repeated.
func TestJournalctlIsKilled(t *testing.T) {
	seed := testkit.Seed(t)
	d, s := newJournald(t), newRecordingSink()
	t.Setenv("FAKE_DEATH", fmt.Sprint(seed))
	d.add(0, 1000)
	h := start(t, s, Options{})
	s.want(t, messages(0, 1000))
	h.end()
	runs, _ := os.ReadFile(filepath.Join(d.dir, "runs"))
	if len(runs) < 5 {
		t.Errorf("seed %d: the fake was started %d times, want 5 or more", seed, len(runs))
	}
	if !h.has("journalctl has ended (signal: killed); restarting it")() || !h.has("journalctl works again")() {
		t.Errorf("%q", h.reports)
	}
	if h.Damaged() > 0 {
		t.Errorf("seed %d: %d lines were not entries, want 0", seed, h.Damaged())
	}
}

// If the process and journalctl are killed at random times, every entry is committed in the end.
// Only entries after the last commit of a process are read again.
func TestProcessIsKilled(t *testing.T) {
	const entries = 400
	seed := testkit.Seed(t)
	rng := testkit.Rand(seed)
	d, dir := newJournald(t), t.TempDir()
	t.Setenv("FAKE_DEATH", fmt.Sprint(seed))
	d.add(0, entries)
	var safe []string
	for process := 0; ; process++ {
		if process > 1000 {
			t.Fatalf("seed %d: after 1000 processes, only %d entries are committed", seed, len(safe))
		}
		s := newRecordingSink()
		s.room, s.refuse = 1+rng.IntN(60), rng.IntN(4) == 0
		h := start(t, s, Options{Dir: dir, CommitEvery: time.Duration(rng.IntN(3)+1) * time.Millisecond})
		next := 0
		if len(safe) > 0 {
			fmt.Sscanf(safe[len(safe)-1], "message %d", &next)
			next++
		}
		enough := min(1+rng.IntN(60), entries-next)
		s.until(t, fmt.Sprintf("seed %d", seed), func() bool { return len(s.accepted) >= min(enough, s.room) })
		if rng.IntN(2) == 0 && !s.refuse {
			s.until(t, "commit", func() bool { return len(s.safe) > 0 })
		}
		h.end()
		if len(s.accepted) > 0 {
			var first int
			fmt.Sscanf(s.accepted[0], "message %d", &first)
			if first > next {
				t.Fatalf("seed %d: process %d begins with entry %d, but entry %d is not committed", seed, process, first, next)
			}
			if again := next - first; again > 60 {
				t.Fatalf("seed %d: %d entries were read again, want at most 60", seed, again)
			}
			if want := messages(first, first+len(s.accepted)); !slices.Equal(s.accepted, want) {
				t.Fatalf("seed %d: %q, want %q", seed, s.accepted, want)
			}
			if len(s.safe) > next-first {
				safe = append(safe, s.safe[next-first:]...)
			}
		}
		if len(safe) == entries {
			break
		}
	}
	if !slices.Equal(safe, messages(0, entries)) {
		t.Errorf("seed %d: %q", seed, safe)
	}
}

// The first run skips entries before Since. With FromEnd, it skips the entries that are older than
// the run. If the first run commits nothing, the next run skips the same entries.
func TestFromEndSkipsOlderEntries(t *testing.T) {
	d, dir := newJournald(t), t.TempDir()
	o := Options{Dir: dir, Since: time.UnixMicro(base + 10_000)}
	d.add(0, 10)
	s := newRecordingSink()
	h := start(t, s, o)
	s.until(t, "a stored start", func() bool {
		_, err := os.Stat(filepath.Join(dir, cursorName))
		s.signal()
		return err == nil
	})
	h.end()
	d.add(10, 20)
	s = newRecordingSink()
	start(t, s, Options{Dir: dir, FromEnd: true})
	s.want(t, messages(10, 20))

	s = newRecordingSink()
	start(t, s, Options{FromEnd: true})
	n := int(time.Now().Add(time.Hour).UnixMicro()-base) / 1000
	d.add(n, n+1)
	s.want(t, messages(n, n+1))
}

// If the entry of the stored cursor is no longer in the journal, reading continues with the first
// existing entry.
func TestEntryOfCursorWasRemoved(t *testing.T) {
	d, dir, s := newJournald(t), t.TempDir(), newRecordingSink()
	d.add(0, 10)
	h := start(t, s, Options{Dir: dir})
	s.until(t, "the commit of 10 entries", func() bool { return len(s.safe) == 10 })
	s.until(t, "a stored cursor", func() bool { s.signal(); return strings.HasPrefix(stored(t, dir), "s=fake;i=9;") })
	h.end()
	d.add(10, 30)
	d.vacuum(20)
	s = newRecordingSink()
	start(t, s, Options{Dir: dir})
	s.want(t, messages(20, 30))
}

// The cursor of an entry is stored only after the entry was committed.
func TestNoCursorBeforeCommit(t *testing.T) {
	d, dir, s := newJournald(t), t.TempDir(), newRecordingSink()
	d.add(0, 10)
	s.refuse = true
	h := start(t, s, Options{Dir: dir})
	s.until(t, "commits", func() bool { return len(s.accepted) == 10 && s.commits > 3 })
	h.Stop()
	<-h.done
	h.ended = true
	if got := stored(t, dir); got != "" {
		t.Error(got)
	}
	if err := h.Finish(false); err != nil {
		t.Error(err)
	}
	if got := stored(t, dir); got != "" {
		t.Error(got)
	}
}

func TestFailedStoreIsReported(t *testing.T) {
	d, dir, s := newJournald(t), t.TempDir(), newRecordingSink()
	blocker := filepath.Join(dir, cursorName+".new") // a directory at the path of the temporary file makes each save fail
	if err := os.Mkdir(blocker, 0o700); err != nil {
		t.Fatal(err)
	}
	d.add(0, 10)
	h := start(t, s, Options{Dir: dir})
	s.until(t, "commits", func() bool { return s.commits > 3 })
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	s.until(t, "recovery", h.has("the cursor can be stored again in "+dir))
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.reports) != 2 || !strings.HasPrefix(h.reports[0], "cannot store the cursor in "+dir+": ") {
		t.Errorf("%q", h.reports)
	}
}

// If Put returns an error, Run returns it, and the next run reads the rejected entry again.
func TestSinkErrorEndsJournal(t *testing.T) {
	d, dir, s := newJournald(t), t.TempDir(), newRecordingSink()
	d.add(0, 100)
	s.room = 7
	h := start(t, s, Options{Dir: dir})
	if err := <-h.done; err != errFull {
		t.Error(err)
	}
	h.ended = true
	h.Finish(true)
	s = newRecordingSink()
	start(t, s, Options{Dir: dir})
	s.want(t, messages(7, 100))
}

// If a message is too long, the sink receives only its length. Lines that are not entries are
// skipped and counted.
func TestInvalidLinesAreSkipped(t *testing.T) {
	d, s := newJournald(t), newRecordingSink()
	long := func(n, size int) string {
		return strings.Replace(entry(n), fmt.Sprintf("message %d", n), strings.Repeat("x", size), 1)
	}
	d.add(0, 1)
	d.write("no JSON\n[]\n{}\n" + `{"MESSAGE":"no cursor"}` + "\n")
	d.add(1, 2)
	d.write(long(2, 1001) + long(3, 1000) + long(4, 1<<20))
	d.add(5, 6)
	h := start(t, s, Options{MaxRecord: 1000})
	s.want(t, []string{"message 0", "message 1", strings.Repeat("x", 1000), "message 5"})
	h.end()
	if len(s.long) != 2 || s.long[0] != 1001 || s.long[1] != int64(len(long(4, 1<<20))) || h.Damaged() != 4 {
		t.Error(s.long, h.Damaged())
	}
	if len(h.reports) != 1 || h.reports[0] != "journalctl wrote a line that is not an entry; such lines are skipped" {
		t.Errorf("%q", h.reports)
	}
}

// A line that journalctl writes repeatedly to its standard error is reported once. If journalctl
// ends repeatedly, only the first end is reported. When it works again, one message reports that.
func TestErrorsOfJournalctlAreReportedOnce(t *testing.T) {
	d, s := newJournald(t), newRecordingSink()
	fails := filepath.Join(d.dir, "fails")
	lines := "Failed to open: \x1b[31mno\n" + strings.Repeat("y", 10_000) + "\n"
	for i := range 100 {
		lines += fmt.Sprintf("line %d\n", i)
	}
	if err := os.WriteFile(fails, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	d.add(0, 1)
	h := start(t, s, Options{})
	s.until(t, "a message about the end of journalctl", h.has("journalctl has ended (exit status 1); restarting it"))
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	s.want(t, messages(0, 1))
	h.end()
	if len(h.reports) != maxStderrLines+3 || h.reports[0] != "journalctl: Failed to open: [31mno" || len(h.reports[1]) > maxStderrLine+20 ||
		h.reports[maxStderrLines] != "journalctl: further messages are not shown" || h.reports[len(h.reports)-1] != "journalctl works again" {
		t.Errorf("%q", h.reports)
	}
}

func TestNewReportsMissingProgram(t *testing.T) {
	_, err := New(Options{Command: []string{"no-such-journalctl"}}, newRecordingSink())
	if err == nil || err.Error() != "cannot read the journal: cannot run no-such-journalctl: executable file not found in $PATH; install it (it is part of systemd), or give its path" {
		t.Error(err)
	}
	dir := t.TempDir()
	o := Options{Command: []string{os.Args[0]}, Dir: dir}
	j, err := New(o, newRecordingSink())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(o, newRecordingSink()); err == nil || !strings.Contains(err.Error(), "is locked by this process") {
		t.Error(err)
	}
	j.Finish(false)

	if err := os.WriteFile(filepath.Join(dir, cursorName), []byte("forebay journal 1\ncursor \"x\"\nend 00000000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var reports string
	o.Say, o.FromEnd = func(text string) { reports += text }, true
	if j, err = New(o, newRecordingSink()); err != nil {
		t.Fatal(err)
	}
	if j.at.position.since != 0 || !strings.Contains(reports, "cursor is damaged: it is truncated, or its checksum is wrong; renamed to cursor.bad; reading the journal from its start") {
		t.Errorf("%q, %+v", reports, j.at.position)
	}
	j.Finish(false)
	if _, err := os.Stat(filepath.Join(dir, "cursor.bad")); err != nil {
		t.Error(err)
	}
}

func TestArgsContinueAtPosition(t *testing.T) {
	j := Journal{o: Options{Command: []string{"/bin/journalctl", "--namespace=x"}, ThisBoot: true, Units: []string{"a", "b*"}, Identifiers: []string{"c"}, Directory: "/d"}}
	const always, fields = "--namespace=x --follow --no-pager --no-tail --all --output=json ", argFields + " "
	const filters = "--boot --unit=a --unit=b* --identifier=c --directory=/d"
	for _, c := range []struct {
		p    position
		want string
	}{
		{position{}, always + fields + filters}, {position{since: 1_500_000}, always + fields + "--since=@1 " + filters}, {position{cursor: []byte("s=1;i=2"), since: 3}, always + fields + "--cursor=s=1;i=2 " + filters},
	} {
		for range 2 { // the second call fails if the first has modified the options
			if got := strings.Join(j.args(c.p), " "); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		}
	}
	j.o = Options{Command: []string{"journalctl"}, AllFields: true}
	if got := strings.Join(j.args(position{}), " "); got != argsAlways {
		t.Error(got)
	}
}

// parsePosition returns an error if a byte of a stored position is changed or missing.
func TestDamagedPositionIsDetected(t *testing.T) {
	for _, p := range []position{{}, {since: 1 << 50}, {cursor: []byte("s=5a4c33cf35124c0ebfe49aa9d5912ee9;i=1;b=61d6561022484c05bc19191457254bea")}, {cursor: []byte("\"\n\xff")}} {
		text := appendPosition(nil, p)
		got, err := parsePosition(text)
		if err != nil || string(got.cursor) != string(p.cursor) || got.since != p.since {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		for i := range text {
			bad := slices.Clone(text)
			bad[i] ^= 1 << (i % 8)
			if got, err := parsePosition(bad); err == nil {
				t.Errorf("damaged position %q was accepted as %+v", bad, got)
			}
			if got, err := parsePosition(text[:i]); err == nil {
				t.Errorf("truncated position %q was accepted as %+v", text[:i], got)
			}
		}
	}
}
