package program

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/tool"
	"github.com/forebay-log/forebay/internal/testkit"
)

// numbered returns the lines with the numbers n for which first <= n < end.
func numbered(first, end int) []byte {
	var b []byte
	for i := first; i < end; i++ {
		b = fmt.Appendf(b, "line %06d %s\n", i, strings.Repeat("x", i*7%90))
	}
	return b
}

// inCharset returns text in the given charset. The text must be ASCII.
func inCharset(charset string, text []byte) (b []byte) {
	for _, c := range text {
		switch charset {
		case "utf-16le":
			b = append(b, c, 0)
		case "utf-16be":
			b = append(b, 0, c)
		default:
			b = append(b, c)
		}
	}
	return b
}

// wantNumbered checks that got consists of numbered(0, n). At most maxRepeats lines may occur twice
// in a row.
func wantNumbered(t *testing.T, got []byte, n, maxRepeats int) {
	t.Helper()
	next, repeats := 0, 0
	for line := range bytes.Lines(got) {
		var at int
		if _, err := fmt.Sscanf(string(line), "line %d", &at); err != nil || !bytes.Equal(line, numbered(at, at+1)) {
			t.Fatalf("after line %d comes %q, which was not written", next-1, line)
		}
		switch at {
		case next:
			next++
		case next - 1:
			repeats++
		default:
			t.Fatalf("line %d comes after line %d", at, next-1)
		}
	}
	if next != n || repeats > maxRepeats {
		t.Errorf("got %d lines and %d repeats, want %d lines and at most %d repeats", next, repeats, n, maxRepeats)
	}
}

// withInput writes text to the input of the program before the program starts. A single read then
// returns all of the text, before the slabs are full. The text must fit in a pipe.
func withInput(text string) func(*child, *exec.Cmd) {
	return func(p *child, _ *exec.Cmd) { p.write(text) }
}

// awaitRead waits until the program has read everything from the pipe.
func awaitRead(t *testing.T, pipe *os.File) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d bytes are not read, %v", n, err)
		}
		if n == 0 {
			return
		}
	}
}

// awaitUnchanged waits until the file has not changed for 0.4 s. It returns the content of the
// file.
func awaitUnchanged(t *testing.T, path string) []byte {
	t.Helper()
	var got []byte
	for since := time.Now(); time.Since(since) < 400*time.Millisecond; time.Sleep(20 * time.Millisecond) {
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(now) != len(got) {
			got, since = now, time.Now()
		}
	}
	return got
}

// If the program is killed while its slabs are full, the next run delivers the input that was read
// but not yet in a slab. Each destination receives only the records that it has not received.
func TestReadAheadSurvivesKill(t *testing.T) {
	t.Parallel()
	t.Run("disk", func(t *testing.T) { readAheadSurvives(t, t.TempDir(), 904, "utf-8") })
	t.Run("UTF-16", func(t *testing.T) { readAheadSurvives(t, t.TempDir(), 450, "utf-16be") })
	t.Run("tmpfs", func(t *testing.T) {
		dir, err := os.MkdirTemp("/dev/shm", "forebay-test-*")
		if err != nil {
			t.Skipf("SKIPPED: no tmpfs: %v", err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		readAheadSurvives(t, dir, 904, "utf-8")
	})
}

// Without --crash-safe, the input that a killed program has read is lost. The next run delivers
// only new input.
func TestReadAheadDiesWithHeap(t *testing.T) {
	dir := t.TempDir()
	down := full(t, dir)
	args := []string{"pipe", "--slab-size", "4KiB", "--slabs", "2", "--when-full", "block", "--to", "file:" + down}
	p := startWith(t, withInput(string(numbered(0, 904))), args...)
	awaitRead(t, p.in)
	p.signal(syscall.SIGKILL)
	p.wait()
	if err := os.Remove(down); err != nil {
		t.Fatal(err)
	}
	p = start(t, args...)
	p.write("new\n")
	p.in.Close()
	if code, stderr := p.wait(); code != 0 || strings.Contains(stderr, "earlier") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if got, err := os.ReadFile(down); err != nil || string(got) != "new\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func readAheadSurvives(t *testing.T, dir string, n int, charset string) {
	t.Helper()
	down, up, safe := full(t, dir), filepath.Join(dir, "up"), filepath.Join(dir, "safe")
	args := []string{"pipe", "--slab-size", "4KiB", "--slabs", "2", "--when-full", "block", "--crash-safe", safe, "--to", "file:" + up, "--to", "file:" + down, "--charset", charset}
	p := startWith(t, withInput(string(inCharset(charset, numbered(0, n)))), args...)
	awaitRead(t, p.in)
	awaitIn(t, up, "line 000000 ")
	delivered := awaitUnchanged(t, up)
	p.signal(syscall.SIGKILL)
	p.wait()
	if len(delivered) == 0 || len(delivered) > len(numbered(0, n))/2 {
		t.Fatalf("the working destination received %d bytes of %d: want only the lines that fit into the slabs", len(delivered), len(numbered(0, n)))
	}
	if files, _ := filepath.Glob(filepath.Join(safe, "*.input")); len(files) != 1 {
		t.Errorf("files %v", files)
	} else if st, err := os.Stat(files[0]); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}

	// A run with other destinations reports the input of the earlier run, and does not change it.
	other := start(t, "pipe", "--crash-safe", safe, "--to", "file:"+filepath.Join(dir, "other"))
	other.in.Close()
	_, stderr := other.wait()
	wantMatch(t, stderr, `^forebay: --crash-safe: .* of input for other destinations wait in .*: run forebay pipe with the same --to$`)

	if err := os.Remove(down); err != nil {
		t.Fatal(err)
	}
	p = start(t, args...)
	p.write(string(inCharset(charset, []byte("new\n")))) // input of the next run
	p.in.Close()
	code, stderr := p.wait()
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	wantMatch(t, stderr, `^forebay: [0-9.]+ KiB of input of an earlier run is delivered first$`)
	for _, path := range []string{down, up} {
		got, err := os.ReadFile(path)
		got, newer := bytes.CutSuffix(got, []byte("new\n"))
		if err != nil || !newer {
			t.Errorf("%s: %v, %v", path, newer, err)
		}
		wantNumbered(t, got, n, 1)
	}
	if files, _ := filepath.Glob(filepath.Join(safe, "*.input*")); len(files) > 0 {
		t.Errorf("files left after delivery: %v", files)
	}
}

// If forebay pipe is killed at random moments and restarted with the same standard input, no line
// is lost or split.
func TestKilledReaderGoesOn(t *testing.T) {
	t.Parallel()
	seeds := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(t, 3, 60) {
		rng, pieces := testkit.Rand(seeds.Uint64()), testkit.Rand(seeds.Uint64())
		dir := t.TempDir()
		down, safe := full(t, dir), filepath.Join(dir, "safe")
		args := []string{"pipe", "--crash-safe", safe, "--to", "file:" + down, "--slab-size", "4KiB", "--slabs"}
		if rng.IntN(2) == 0 {
			args = append(args, "2")
		} else {
			args = append(args, "64")
		}
		charset := []string{"utf-8", "utf-16le", "utf-16be"}[rng.IntN(3)]
		args = append(args, "--charset", charset)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		const kills = 8
		n := 20_000
		quit, done := make(chan struct{}), make(chan int)
		go func() { // the writer splits lines until the program was killed for the last time
			defer w.Close()
			var text []byte
			last := 0
			for {
				select {
				case <-quit:
					w.Write(text)
					done <- last
					return
				default:
				}
				for len(text) < 4096 && last < n {
					text = append(text, inCharset(charset, numbered(last, last+1))...)
					last++
				}
				if len(text) == 0 {
					<-quit
					done <- last
					return
				}
				k := 1 + pieces.IntN(len(text))
				w.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
				k, _ = w.Write(text[:k])
				w.SetWriteDeadline(time.Time{})
				text = text[k:]
			}
		}()
		last, got := killRepeatedly(t, rng, kills, r, down, quit, done, args...)
		wantNumbered(t, got, last, kills)
	}
}

// With forebay spool, a user can list, print, verify, replay and purge input that a killed program
// had read but not put into a slab.
func TestSpoolOfReadAhead(t *testing.T) {
	const n = 904
	for _, purge := range []bool{false, true} {
		dir := t.TempDir()
		safe, late := filepath.Join(dir, "safe"), filepath.Join(dir, "late")
		p := startWith(t, withInput(string(numbered(0, n-1))+"the beginning of a line"),
			"pipe", "--slab-size", "4KiB", "--slabs", "2", "--crash-safe", safe, "--to", "file:"+full(t, dir))
		awaitRead(t, p.in)
		if out, errs, code := runSpool(t, nil, "ls", safe); code != 0 || strings.Contains(out, tool.KindInput) {
			t.Errorf("ls lists the input of a running program: %d %s%s", code, out, errs)
		}
		p.signal(syscall.SIGKILL)
		p.wait()
		const torn = "the beginning of a line\n"
		wantAll := func(got []byte) { // a line may be repeated if its position was not stored before the kill
			t.Helper()
			lines, ok := bytes.CutSuffix(got, []byte(torn))
			if !ok {
				t.Errorf("the incomplete last line is missing: %q", got[max(0, len(got)-100):])
			}
			wantNumbered(t, lines, n-1, 1)
		}

		out, errs, code := runSpool(t, nil, "ls", safe)
		if code != 0 || strings.Count(out, tool.KindInput) != 1 || !strings.Contains(out, "dead") {
			t.Errorf("ls: %d %s%s", code, out, errs)
		}
		if out, errs, code := runSpool(t, nil, "verify", safe); code != 0 || !strings.Contains(out, "in input read by a program that has ended: ok") {
			t.Errorf("verify: %d %s%s", code, out, errs)
		}
		out, errs, code = runSpool(t, nil, "cat", "--raw", safe)
		if code != 0 {
			t.Errorf("cat: %d %s", code, errs)
		}
		wantAll([]byte(out))
		if purge {
			if out, errs, code := runSpool(t, nil, "purge", safe); code != exit.UsageCode || !strings.Contains(out, "would delete 1 file with ") {
				t.Errorf("purge: %d %s%s", code, out, errs)
			}
			if out, errs, code := runSpool(t, nil, "purge", safe, "--yes"); code != 0 {
				t.Errorf("purge: %d %s%s", code, out, errs)
			}
		} else {
			out, errs, code := runSpool(t, nil, "replay", safe, "--to", "file:"+late)
			got, err := os.ReadFile(late)
			if code != 0 || err != nil {
				t.Errorf("replay: %d %s%s, %v", code, out, errs, err)
			}
			wantAll(got)
		}
		if out, errs, code := runSpool(t, nil, "cat", "--raw", safe); code != 0 || out != "" {
			t.Errorf("cat of the empty spool: %d %s%s", code, out, errs)
		}
		if left, _ := filepath.Glob(filepath.Join(safe, "*.input*")); len(left) > 0 {
			t.Errorf("files left: %v", left)
		}
	}
}

// awaitReadAhead waits until the program has mapped the file for its read-ahead input. A kill
// before this moment loses no input.
func (p *child) awaitReadAhead() {
	maps := fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(maps)
		if err != nil || time.Now().After(end) {
			p.t.Fatalf("no read-ahead input is mapped: %v", err)
		}
		if bytes.Contains(b, []byte(".input")) {
			return
		}
	}
}

// killRepeatedly runs the program with the input r and kills it several times, while the file at
// the path down blocks the destination. Then it removes this file, ends the writer of r by closing
// quit, and runs the program to its end. This run creates a new file at the path down.
// killRepeatedly returns the value that the writer sends to done, and the content of the new file.
func killRepeatedly(t *testing.T, rng *rand.Rand, kills int, r *os.File, down string, quit chan<- struct{}, done <-chan int, args ...string) (n int, got []byte) {
	t.Helper()
	run := func() *child {
		return startWith(t, func(_ *child, cmd *exec.Cmd) { cmd.Stdin = r }, args...)
	}
	for range kills {
		p := run()
		if rng.IntN(4) > 0 {
			p.awaitReadAhead()
		}
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		p.signal(syscall.SIGKILL)
		p.wait()
	}
	if err := os.Remove(down); err != nil {
		t.Fatal(err)
	}
	close(quit)
	p := run()
	n = <-done
	if code, stderr := p.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	got, err := os.ReadFile(down)
	if err != nil {
		t.Fatal(err)
	}
	return n, got
}
