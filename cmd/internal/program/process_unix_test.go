//go:build unix

package program

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/internal/testkit"
)

// A child is the program in a separate process. Pipes are its standard streams.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     *os.File // this process's end of the pipe that is its standard input
	out    *os.File // this process's end of the pipe that is its standard output
	stderr bytes.Buffer
	killer *time.Timer
}

// start starts the program, which is the test binary: its TestMain calls Main. If the process does
// not exit within a minute, it is killed and the test fails.
func start(t *testing.T, args ...string) *child {
	t.Helper()
	return startWith(t, func(*child, *exec.Cmd) {}, args...)
}

func startWith(t *testing.T, adjust func(*child, *exec.Cmd), args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &child{t: t, cmd: exec.Command(exe, args...)}
	p.cmd.Args[0] = "forebay"
	p.cmd.Env = append(os.Environ(), "TZ=UTC")
	p.cmd.Stderr = &p.stderr
	stdin, stdout := p.pipe(), p.pipe()
	p.cmd.Stdin, p.in = stdin[0], stdin[1]
	p.out, p.cmd.Stdout = stdout[0], stdout[1]
	adjust(p, p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdin[0].Close()
	stdout[1].Close()
	p.killer = time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	return p
}

func (p *child) pipe() [2]*os.File {
	r, w, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { r.Close(); w.Close() })
	return [2]*os.File{r, w}
}

// wait waits until the process exits. It returns the exit code and the messages.
func (p *child) wait() (code int, stderr string) {
	p.t.Helper()
	p.cmd.Wait()
	if !p.killer.Stop() {
		p.t.Errorf("%q does not end; standard error: %q", p.cmd.Args, p.stderr.String())
	}
	return p.cmd.ProcessState.ExitCode(), p.stderr.String()
}

func (p *child) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *child) write(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, s); err != nil {
		p.t.Fatal(err)
	}
}

// A record that waits for more lines is delivered after the maximum wait, even if only an
// incomplete line arrives.
func TestHeldWhileInputWaits(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	p := start(t, "pipe", "--multiline", "java", "--to", "file:"+out)
	p.write("a.BException\n\tat x\n\tat")
	await(t, out, "a.BException\n\tat x\n")
	p.write(" y\na.CException\n")
	p.in.Close()
	if code, stderr := p.wait(); code != 0 || !strings.Contains(stderr, "read 3 records, ") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	await(t, out, "a.BException\n\tat x\n\tat y\na.CException\n")
}

// await waits until the file contains exactly want.
func await(t *testing.T, path, want string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	var got []byte
	for time.Now().Before(deadline) {
		var err error
		if got, err = os.ReadFile(path); err == nil && string(got) == want {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("%s contains %q, want %q", path, got, want)
}

func wantMatch(t *testing.T, text, pattern string) {
	t.Helper()
	if !regexp.MustCompile("(?m)" + pattern).MatchString(text) {
		t.Errorf("no match for %q in %q", pattern, text)
	}
}

// After SIGTERM or SIGINT, everything that was read is delivered, even if the last line is
// incomplete.
func TestSIGTERMDeliversWhatWasRead(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		path := filepath.Join(t.TempDir(), "x.log")
		p := start(t, "pipe", "--to", "file:"+path)
		p.write("one\ntwo\n")
		await(t, path, "one\ntwo\n") // the program is running now
		p.write("three\nfou")
		await(t, path, "one\ntwo\nthree\n")
		p.signal(sig)
		code, stderr := p.wait()
		if got, _ := os.ReadFile(path); code != 0 || string(got) != "one\ntwo\nthree\nfou" {
			t.Errorf("%v: exit code %d, file %q", sig, code, got)
		}
		wantMatch(t, stderr, `read 4 records, 17 B .*accepted=4 delivered=4$`)
	}
}

// startBlocked starts forebay pipe. It does not read the output of the program, and writes input
// until the program is blocked.
func startBlocked(t *testing.T, args ...string) *child {
	p := start(t, append([]string{"pipe", "--slab-size", "4KiB", "--slabs", "2"}, args...)...)
	p.write("first\n")
	if _, err := io.ReadFull(p.out, make([]byte, 6)); err != nil { // the program is running now
		t.Fatal(err)
	}
	// While the program is stopped, fill the pipe, so that a single read returns more lines than
	// the slabs can hold.
	const pipe = 64 << 10
	line := []byte(strings.Repeat("x", 99) + "\n")
	written := 0
	fill := func(timeoutMillis int) {
		for {
			fds := [1]unix.PollFd{{Fd: int32(p.in.Fd()), Events: unix.POLLOUT}}
			if n, err := unix.Poll(fds[:], timeoutMillis); err != nil || n == 0 {
				return
			}
			n, err := p.in.Write(line)
			if written += n; err != nil {
				t.Fatal(err)
			}
		}
	}
	p.signal(syscall.SIGSTOP)
	fill(0)
	p.signal(syscall.SIGCONT)
	// The program is blocked if its standard output is full and it has read more than the slabs can
	// hold. A full pipe of 16 pages may contain as little as 31 lines per page, the content of a
	// slab. If slabs were written before they were full, the pipe and the slabs may contain less.
	// The program is also considered blocked if its pipes do not change for five seconds.
	in := func(f *os.File) int {
		fionread := uint(0x541b) // value of FIONREAD on Linux
		if runtime.GOOS != "linux" {
			fionread = 0x4004667f
		}
		n, err := unix.IoctlGetInt(int(f.Fd()), fionread)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for unchanged := 0; unchanged < 50; unchanged++ {
		before := written
		fill(100)
		switch out := in(p.out); {
		case out > pipe*3/4 && written-in(p.in)-out > 2*4000+len("first\n"):
			return p
		case written != before || written < pipe*7/4: // the program is reading, or the pipes still have room
			unchanged = 0
		}
	}
	return p
}

// After the first signal, the program waits for a blocked output. After the second signal, it exits
// and counts the undelivered records as lost.
func TestSecondSignalDoesNotWait(t *testing.T) {
	t.Parallel()
	p := startBlocked(t)
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGINT) // a different signal, because the kernel may merge equal signals
	code, stderr := p.wait()
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantMatch(t, stderr, `^forebay: [0-9]+ records? not delivered: stopped by a second signal$`)
	wantBalance(t, stderr)
}

// If a signal is repeated within a short time, the program continues to wait for its output.
func TestSameSignalTwice(t *testing.T) {
	t.Parallel()
	p := startBlocked(t)
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGTERM)
	got, _ := io.ReadAll(p.out)
	code, stderr := p.wait()
	if code != 0 || len(got) == 0 {
		t.Error(code, stderr)
	}
	wantBalance(t, stderr)
}

func TestDrainTimeoutNamesTheCause(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]int{"": 1, "--fail-on-drop": 3} {
		p := startBlocked(t, append([]string{"--drain-timeout", "50ms"}, strings.Fields(args)...)...)
		p.signal(syscall.SIGTERM)
		code, stderr := p.wait()
		if code != want {
			t.Errorf("exit code %d, want %d", code, want)
		}
		wantMatch(t, stderr, `^forebay: [0-9]+ records? not delivered: the delivery time of --drain-timeout is over; allow more time, or keep them for the next run with --spool$`)
		wantBalance(t, stderr)
	}
}

// If a destination accepts a connection but does not answer, the message after the drain timeout
// names the destination.
func TestDrainTimeoutWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := "loki://" + l.Addr().String()
	p := start(t, "pipe", "--to", to, "--drain-timeout", "500ms")
	if _, err := io.WriteString(p.in, "a line\n"); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept() // the record has been sent, or will be sent soon
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.in.Close()
	code, stderr := p.wait()
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantMatch(t, stderr, "^forebay: "+regexp.QuoteMeta(to)+": no response in time; 1 record sent without an acknowledgement, which may have arrived$")
	wantBalance(t, stderr)
}

// loseLine runs forebay pipe for a line that it cannot deliver, and returns its messages.
func loseLine(t *testing.T, args ...string) (stderr string) {
	t.Helper()
	p := start(t, append([]string{"pipe", "--drain-timeout", "500ms"}, args...)...)
	if _, err := io.WriteString(p.in, "a line\n"); err != nil {
		t.Fatal(err)
	}
	p.in.Close()
	code, stderr := p.wait()
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantBalance(t, stderr)
	return stderr
}

// If a destination closes each connection without an answer, the message after the drain timeout has
// the error of the destination, because the destination does not hang.
func TestDrainTimeoutAfterAFailure(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 64<<10))
			c.Close()
		}
	}()
	to := "forward://" + l.Addr().String()
	stderr := loseLine(t, "--to", to)
	wantMatch(t, stderr, "^forebay: "+regexp.QuoteMeta(to)+": lost the connection to .*; 1 record sent without an acknowledgement, which may have arrived$")
	if strings.Contains(stderr, "no response in time") {
		t.Error(stderr)
	}
}

// If the program could not begin a session, the message after the drain timeout names the
// destination. The record was not sent, so its outcome does not count as unknown.
func TestDrainTimeoutWithoutASession(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // no Accept: the kernel establishes the connection
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	to := "forward://" + l.Addr().String()
	stderr := loseLine(t, "--to", to, "--shared-key-file", key)
	wantMatch(t, stderr, "^forebay: "+regexp.QuoteMeta(to)+": no session in time: the destination did not answer; nothing was sent$")
}

// If a receiver refuses records of a batch without identifying them, the program reports them as
// dropped, and the exit code is 1. A replay of a spool does not send the batch again.
func TestRefusedWithoutNames(t *testing.T) {
	var requests atomic.Int32
	down := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1); down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"too old"}}`)
	}))
	defer srv.Close()
	to := "otlp" + strings.TrimPrefix(srv.URL, "http")
	spool := filepath.Join(t.TempDir(), "spool")
	pipe := func(args ...string) (int, string) {
		p := start(t, append([]string{"pipe", "--to", to, "--drain-timeout", "500ms"}, args...)...)
		if _, err := io.WriteString(p.in, "one\ntwo\nthree\n"); err != nil {
			t.Fatal(err)
		}
		p.in.Close()
		return p.wait()
	}
	if code, stderr := pipe("--spool", spool, "--drain-timeout", "2s"); code != exit.KeptCode {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	down = false
	code, stderr := pipe()
	if code != exit.RuntimeCode || !strings.Contains(stderr, "they are counted but are not in the dead letters") || !strings.Contains(stderr, "accepted=3 delivered=2 dropped=1{poison=1}\n") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	requests.Store(0)
	for _, want := range []int{exit.RuntimeCode, 0} { // the first replay removes the batch from the spool
		p := start(t, "spool", "replay", spool, "--to", to)
		p.in.Close()
		code, stderr = p.wait()
		if code != want || strings.Contains(stderr, "the destination refused 1 record without naming them") != (want != 0) {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// At the drain timeout, an output may have no room for a line that was read. The summary also
// counts such a line. The blocked output drops it or, with --crash-safe, keeps it for the next run.
// Other outputs deliver it.
//
// The test is not parallel, because the reader has only 100 ms to write these lines.
func TestDrainTimeoutCoversEveryLine(t *testing.T) {
	for _, safe := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "other.log")
		args := []string{"--drain-timeout", "3s", "--to", "stdout:", "--to", "file:" + path}
		wantCode, wantAccount := 1, `dropped=[0-9]+\{shutdown=[0-9]+\}`
		wantText := `^forebay: stdout: [1-9][0-9]* records?, read but not yet accepted when the time limit expired, counted as dropped\{shutdown\}$`
		if safe {
			args = append(args, "--crash-safe", filepath.Join(dir, "safe"))
			wantCode, wantAccount = exit.KeptCode, `pending=[1-9]`
			wantText = `^forebay: stdout: [1-9][0-9]* records kept for the next run, in `
		}
		p := startBlocked(t, args...)
		p.signal(syscall.SIGTERM)
		code, stderr := p.wait()
		if code != wantCode {
			t.Errorf("exit code %d, want %d", code, wantCode)
		}
		wantBalance(t, stderr)
		wantMatch(t, stderr, `stdout accepted=[0-9]+ delivered=[0-9]+ `+wantAccount)
		wantMatch(t, stderr, wantText)
		other, err := os.ReadFile(path)
		if n := bytes.Count(other, []byte("\n")); err != nil || !strings.Contains(stderr, fmt.Sprintf("read %d records", n)) ||
			!strings.Contains(stderr, fmt.Sprintf("other.log accepted=%d delivered=%d\n", n, n)) {
			t.Errorf("%d lines in the other file, %v: %s", n, err, stderr)
		}
		if !safe {
			continue
		}
		kept := wantNumber(t, stderr, `stdout: ([0-9]+) records kept`)
		p = start(t, append([]string{"pipe"}, append(args, "--drain-timeout", "1m")...)...)
		p.in.Close()
		got, _ := io.ReadAll(p.out)
		if code, stderr := p.wait(); code != 0 || !bytes.HasSuffix(other, got) || bytes.Count(got, []byte("\n")) != kept {
			t.Errorf("exit code %d, got %d lines of %d: %s", code, bytes.Count(got, []byte("\n")), kept, stderr)
		}
	}
}

// wantNumber returns the number that the group in pattern matches in text.
func wantNumber(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no match for %q in %q", pattern, text)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// wantBalance checks that the summary accounts for every record that the program has read.
func wantBalance(t *testing.T, stderr string) {
	t.Helper()
	field := func(name string) (n int) {
		m := regexp.MustCompile(name + `[= ]([0-9]+)`).FindStringSubmatch(stderr)
		if m != nil {
			n, _ = strconv.Atoi(m[1])
		}
		return n
	}
	read, sum := field("read"), field("delivered")+field("dropped")+field("pending")
	if read == 0 || read != sum || field("accepted") != read || strings.Contains(stderr, "refused") {
		t.Errorf("%d records read, %d accounted for: %s", read, sum, stderr)
	}
}

// With --when-full drop-newest, the program continues to read while its output is blocked, and
// counts the dropped records. With --fail-on-drop, it exits with code 3.
func TestDropNewestCountsDrops(t *testing.T) {
	t.Parallel()
	p := start(t, "pipe", "--slab-size", "4KiB", "--slabs", "2", "--when-full", "drop-newest", "--fail-on-drop")
	const n = 100_000
	w := bufio.NewWriter(p.in)
	for i := range n {
		fmt.Fprintf(w, "line %d\n", i)
	}
	w.Flush()
	p.in.Close()
	got, _ := io.ReadAll(p.out)
	code, stderr := p.wait()
	if code != 3 {
		t.Errorf("exit code %d", code)
	}
	wantMatch(t, stderr, `^forebay: stdout: its memory is full; dropping records \(--when-full drop-newest\)$`)
	wantMatch(t, stderr, fmt.Sprintf(`read %d records, .*accepted=%d delivered=%d dropped=%d\{full=`, n, n, bytes.Count(got, []byte("\n")), n-bytes.Count(got, []byte("\n"))))
	last := -1
	for line := range bytes.Lines(got) {
		var k int
		if _, err := fmt.Sscanf(string(line), "line %d\n", &k); err != nil || k <= last {
			t.Fatalf("%q after line %d", line, last)
		}
		last = k
	}
}

func TestSIGHUPReopensFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.log")
	p := start(t, "pipe", "--to", "file:"+path, "--to", "stdout:")
	p.write("one\n")
	await(t, path, "one\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	await(t, path, "")
	p.write("two\n")
	await(t, path, "two\n")
	await(t, path+".1", "one\n")
	p.in.Close()
	if code, stderr := p.wait(); code != 0 {
		t.Error(code, stderr)
	}
}

// If the reader of an output exits, only this output ends. If no output has a reader any more, the
// program exits, even if its input is open.
func TestBrokenPipeEndsOnlyItsOutput(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.log")
	p := start(t, "pipe", "--to", "stdout:", "--to", "file:"+path)
	p.out.Close()
	p.write("one\n")
	await(t, path, "one\n")
	p.write("two\n")
	await(t, path, "one\ntwo\n")
	p.in.Close()
	code, stderr := p.wait()
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	wantMatch(t, stderr, `^forebay: stdout: cannot write stdout: broken pipe: its reader is gone; this output is closed$`)
	wantMatch(t, stderr, `stdout accepted=2 delivered=0 dropped=2\{failed=2\} \(its reader is gone\); file:.* accepted=2 delivered=2$`)

	p = start(t, "pipe")
	p.out.Close()
	p.write("one\n")
	if code, stderr := p.wait(); code != 1 { // the input is still open
		t.Error(code, stderr)
	}
}

// If the reader of an output has exited, the remaining lines go to the fallback, the spool or the
// dead-letter file.
func TestBrokenPipeElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 1, `dropped=3\{failed=3\} \(its reader is gone\)$`},
		{[]string{"--retry-age", "1h"}, 1, `^forebay: stdout: cannot write stdout: broken pipe: its reader is gone; this output is closed\n.*dropped=3\{failed=3\}`},
		{[]string{"--dead-letter", dir + "/dead"}, 1, `dropped=3\{poison=3\} \(its reader is gone\)$`},
		{[]string{"--fallback", "file:" + dir + "/fallback"}, 0, `delivered=0 handled=3 \(its reader is gone\)$`},
		{[]string{"--fallback", "file:" + dir + "/fallback2"}, 0, `^forebay: no output has a reader: reading stops; lines already read go to --fallback file:.*/fallback2$`},
		{[]string{"--spool", dir + "/spool"}, 75, `3 records kept for the next run, in `},
	} {
		p := start(t, append([]string{"pipe"}, tt.args...)...)
		p.out.Close()
		p.write("one\ntwo\nthree\n")
		code, stderr := p.wait() // the input is still open
		if code != tt.code || strings.Contains(stderr, "no longer dropping") {
			t.Errorf("%q: exit code %d, %s", tt.args, code, stderr)
		}
		wantMatch(t, stderr, tt.want)
	}
	if b, _ := os.ReadFile(dir + "/fallback"); string(b) != "one\ntwo\nthree\n" {
		t.Errorf("fallback %q", b)
	}
	if b, _ := os.ReadFile(dir + "/dead"); bytes.Count(b, []byte("broken pipe")) != 3 {
		t.Errorf("dead letters %q", b)
	}
}

// If the reader of an output has exited, the fallback receives only complete lines, even though the
// program stops reading.
func TestBrokenPipeWholeLines(t *testing.T) {
	t.Parallel()
	fallback := filepath.Join(t.TempDir(), "fallback")
	var lines strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	p := start(t, "pipe", "--fallback", "file:"+fallback)
	p.out.Close()
	p.in.WriteString(lines.String()) // returns EPIPE when the program exits
	code, stderr := p.wait()
	got, _ := os.ReadFile(fallback)
	if code != 0 || len(got) == 0 || !bytes.HasSuffix(got, []byte("\n")) || !strings.HasPrefix(lines.String(), string(got)) {
		t.Errorf("exit code %d, %d bytes, the last ones %q", code, len(got), got[max(0, len(got)-20):])
	}
	wantMatch(t, stderr, fmt.Sprintf(`^forebay: read %d records,`, bytes.Count(got, []byte("\n"))))
}

// Standard input and output may be non-blocking pipes. The program loses nothing.
func TestNonBlockingPipesLoseNothing(t *testing.T) {
	p := startWith(t, func(p *child, cmd *exec.Cmd) {
		for _, f := range []any{cmd.Stdin, cmd.Stdout} {
			if err := unix.SetNonblock(int(f.(*os.File).Fd()), true); err != nil {
				t.Fatal(err)
			}
		}
	}, "pipe")
	var want bytes.Buffer
	for i := range 50_000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	go func() {
		p.in.Write(want.Bytes())
		p.in.Close()
	}()
	got, _ := io.ReadAll(bufio.NewReaderSize(p.out, 100))
	if code, stderr := p.wait(); code != 0 || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("exit code %d, %d of %d bytes, %s", code, len(got), want.Len(), stderr)
	}
}

// If the program stops, unread input remains in the pipe for another program.
func TestStopLeavesTheRest(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	in, err := input.NewInput(r, intake.Text{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	buf := make([]byte, 4)
	w.WriteString("123\nrest")
	if n, err := in.Read(buf); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	in.Stop()
	in.Stop()
	for range 2 {
		if n, err := in.Read(buf); n != 0 || err != intake.ErrStopped {
			t.Fatal(n, err)
		}
	}
	if n, err := r.Read(buf); string(buf[:n]) != "rest" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

// If the program stops within a line, it reads the rest of the line, and nothing after the line. If
// the rest does not arrive soon, the incomplete line is delivered.
func TestInputStopsAfterLine(t *testing.T) {
	const big = "\xfe\xff"
	utf16, err := charset.Parse("utf-16")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][2]string{
		"1\x00\n\x002\x00":                 {"1\x00\n\x00", "2\x00"}, // 0x0a as a part of a UTF-16 character is not a newline
		"12\x00\x0a\n\x003\x00\n\x00x\x00": {"12\x00\x0a\n\x00", "3\x00\n\x00x\x00"},
		big + "\x00a\x00\n\x00b":           {big + "\x00a\x00\n", "\x00b"},
		"123\nrest":                        {"123\n", "rest"},
		"12345678\nrest":                   {"12345678\n", "rest"},
		"12345678\n\nrest":                 {"12345678\n", "\nrest"},
		"12345678, no end":                 {"12345678, no end", ""},
		"1234":                             {"1234", ""},
		"1\n34\nrest\nothers":              {"1\n34\n", "rest\nothers"},
	} {
		for _, kind := range []string{"pipe", "file"} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			if kind == "file" {
				r.Close()
				w.Close()
				if w, err = os.Create(filepath.Join(t.TempDir(), "in")); err != nil {
					t.Fatal(err)
				}
				if r, err = os.Open(w.Name()); err != nil {
					t.Fatal(err)
				}
			}
			var of intake.Text
			if strings.Contains(text, "\x00") {
				of.Charset = utf16
			}
			in, err := input.NewInput(r, of)
			if err != nil {
				t.Fatal(err)
			}
			w.WriteString(text)
			buf := make([]byte, 4)
			n, err := in.Read(buf)
			got := string(buf[:n])
			in.Stop()
			for err == nil {
				n, err = in.Read(buf)
				got += string(buf[:n])
			}
			w.Close()
			if left, _ := io.ReadAll(r); got != want[0] || err != intake.ErrStopped || string(left) != want[1] {
				t.Errorf("%s %q: read %q, %v, and left %q", kind, text, got, err, left)
			}
			in.Close()
			r.Close()
		}
	}

	// A line is read to its end even if it is longer than the pipe, so that its writer must wait
	// for the reader.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in, err := input.NewInput(r, intake.Text{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	line := strings.Repeat("x", 100_000) + "\n"
	w.WriteString(line[:1000])
	buf := make([]byte, 64<<10)
	n, err := in.Read(buf)
	in.Stop()
	time.AfterFunc(10*time.Millisecond, func() {
		defer w.Close()
		w.WriteString(line[1000:] + line)
	})
	for got := n; err == nil; got += n {
		if n, err = in.Read(buf); err != nil && got != len(line) {
			t.Errorf("%d of %d bytes were read, %v", got, len(line), err)
		}
	}
	if left, _ := io.ReadAll(r); string(left) != line {
		t.Errorf("%d bytes are left", len(left))
	}
}

// inputSize returns the number of bytes of input for TestMemoryIsFlat.
func inputSize() int64 { return int64(testkit.Scale(16, 1024)) << 20 }

// The memory of the program does not grow with the size of the input, nor with the length of a
// line.
func TestMemoryIsFlat(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--encode raw", "--encode json --level info"} {
		small, large := memoryFor(t, 1<<20, args), memoryFor(t, inputSize(), args)
		if large > small+16<<10 {
			t.Errorf("%s: %d KiB for 1 MiB of input, %d KiB for %d MiB", args, small, large, inputSize()>>20)
		}
		t.Logf("%s: %d KiB, %d KiB", args, small, large)
	}
}

// memoryFor passes about n bytes through the program. It returns the maximum resident size of the
// program in KiB.
func memoryFor(t *testing.T, n int64, args string) int64 {
	path := filepath.Join(t.TempDir(), "out")
	p := start(t, append([]string{"pipe", "--to", "file:" + path}, strings.Fields(args)...)...)
	p.killer.Reset(10 * time.Minute)
	w := bufio.NewWriterSize(p.in, 1<<20)
	lines, raw := 0, int64(0)
	text := strings.Repeat("the quick brown fox jumps over the lazy dog ", 8)
	for raw < n {
		fmt.Fprintf(w, "2026-11-20 14:03:05.%06d INFO [worker-%d] %s\n", lines%1e6, lines%7, text[:lines%300])
		raw += int64(len("2026-11-20 14:03:05.000000 INFO [worker-0] \n") + lines%300)
		lines++
		if lines%1000 == 0 { // every thousandth line is long
			for range min(n>>12, 40) {
				w.WriteString(text[:300])
			}
			w.WriteByte('\n')
			raw += min(n>>12, 40)*300 + 1
			lines++
		}
	}
	longLine := bytes.Repeat([]byte("y"), 1<<20)
	long := min(n>>22*8, 256) // MiB of a line that is longer than --max-record: more than the program may use
	for range long {
		w.Write(longLine)
	}
	w.WriteString("end\n")
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	p.in.Close()
	code, stderr := p.wait()
	tooLong := 0
	if long > 0 {
		tooLong = 1
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	want := fmt.Sprintf(`accepted=%d delivered=%d`, lines+1, lines+1-tooLong)
	if tooLong > 0 {
		want += fmt.Sprintf(` dropped=%d\{oversize=%d\}`, tooLong, tooLong)
	}
	wantMatch(t, stderr, want+"$")
	if args == "--encode raw" {
		if st, err := os.Stat(path); err != nil || st.Size() != raw+int64(1-tooLong)*4 {
			t.Errorf("%d bytes arrived, want %d, %v", st.Size(), raw, err)
		}
	}
	max := p.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if runtime.GOOS == "darwin" {
		max >>= 10 // darwin reports bytes, other systems KiB
	}
	return int64(max)
}
