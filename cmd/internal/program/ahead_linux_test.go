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

// numbered returns the lines with the numbers from up to and excluding to.
func numbered(from, to int) []byte {
	var b []byte
	for i := from; i < to; i++ {
		b = fmt.Appendf(b, "line %06d %s\n", i, strings.Repeat("x", i*7%90))
	}
	return b
}

// inCharset returns ASCII text in a charset.
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

// wantNumbered checks that got is numbered(0, n), except that up to again lines may be repeated
// directly after themselves.
func wantNumbered(t *testing.T, got []byte, n, again int) {
	t.Helper()
	next, twice := 0, 0
	for line := range bytes.Lines(got) {
		var at int
		if _, err := fmt.Sscanf(string(line), "line %d", &at); err != nil || !bytes.Equal(line, numbered(at, at+1)) {
			t.Fatalf("torn, or made up: %q behind line %d", line, next-1)
		}
		switch at {
		case next:
			next++
		case next - 1:
			twice++
		default:
			t.Fatalf("line %d comes behind line %d", at, next-1)
		}
	}
	if next != n || twice > again {
		t.Errorf("%d of %d lines, %d of them twice", next, n, twice)
	}
}

// given writes text to the input of the program before it starts, so that one read returns all of
// it. The text must fit in a pipe. Otherwise the program could fill its slabs before it reads the
// end.
func given(text string) func(*child, *exec.Cmd) {
	return func(p *child, _ *exec.Cmd) { p.write(text) }
}

// awaitRead waits until everything in a pipe was read.
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

// awaitStill returns the content of a file that has not changed for a while.
func awaitStill(t *testing.T, path string) []byte {
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

// Input that was read while the slabs were full survives SIGKILL. The next run delivers it after
// the records in the slabs, and sends to each destination only what it has not received.
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

// Without --crash-safe, input that was read ahead is lost with the program, and the next run starts
// with its own input.
func TestReadAheadDiesWithHeap(t *testing.T) {
	dir := t.TempDir()
	down := full(t, dir)
	args := []string{"pipe", "--slab-size", "4KiB", "--slabs", "2", "--when-full", "block", "--to", "file:" + down}
	p := startWith(t, given(string(numbered(0, 904))), args...)
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
	down, beside, safe := full(t, dir), filepath.Join(dir, "beside"), filepath.Join(dir, "safe")
	args := []string{"pipe", "--slab-size", "4KiB", "--slabs", "2", "--when-full", "block", "--crash-safe", safe, "--to", "file:" + beside, "--to", "file:" + down, "--charset", charset}
	p := startWith(t, given(string(inCharset(charset, numbered(0, n)))), args...)
	awaitRead(t, p.in)
	had := awaitStill(t, beside)
	p.signal(syscall.SIGKILL)
	p.wait()
	if len(had) == 0 || len(had) > len(numbered(0, n))/2 {
		t.Fatalf("%d bytes were delivered beside the destination that is down: want those that found room", len(had))
	}
	if files, _ := filepath.Glob(filepath.Join(safe, "*.input")); len(files) != 1 {
		t.Errorf("files %v", files)
	} else if st, err := os.Stat(files[0]); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}

	// A run with another destination leaves the input unchanged and reports it.
	other := start(t, "pipe", "--crash-safe", safe, "--to", "file:"+filepath.Join(dir, "other"))
	other.in.Close()
	_, stderr := other.wait()
	wantMatch(t, stderr, `^forebay: --crash-safe: .* of input for other destinations wait in .*: run forebay pipe with the same --to$`)

	if err := os.Remove(down); err != nil {
		t.Fatal(err)
	}
	p = start(t, args...)
	p.write(string(inCharset(charset, []byte("new\n")))) // from another pipe
	p.in.Close()
	code, stderr := p.wait()
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	wantMatch(t, stderr, `^forebay: [0-9.]+ KiB of input of an earlier run is delivered first$`)
	for _, path := range []string{down, beside} {
		got, err := os.ReadFile(path)
		got, newer := bytes.CutSuffix(got, []byte("new\n"))
		if err != nil || !newer {
			t.Errorf("%s: %v, %v", path, newer, err)
		}
		wantNumbered(t, got, n, 1)
	}
	if files, _ := filepath.Glob(filepath.Join(safe, "*.input*")); len(files) > 0 {
		t.Errorf("left: %v", files)
	}
}

// A pipe that is killed at random moments and continues with the same standard input loses no line
// and splits none.
func TestKilledReaderGoesOn(t *testing.T) {
	t.Parallel()
	seeds := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(3, 60) {
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
		go func() { // writes pieces of lines until the last kill
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
		last, got := killed(t, rng, kills, r, down, quit, done, args...)
		wantNumbered(t, got, last, kills)
	}
}

// forebay spool lists, prints, verifies, replays and purges input that a killed program had read.
func TestSpoolOfReadAhead(t *testing.T) {
	const n = 904
	for _, purge := range []bool{false, true} {
		dir := t.TempDir()
		safe, late := filepath.Join(dir, "safe"), filepath.Join(dir, "late")
		p := startWith(t, given(string(numbered(0, n-1))+"the beginning of a line"),
			"pipe", "--slab-size", "4KiB", "--slabs", "2", "--crash-safe", safe, "--to", "file:"+full(t, dir))
		awaitRead(t, p.in)
		if out, errs, code := runSpool(t, nil, "ls", safe); code != 0 || strings.Contains(out, tool.KindInput) {
			t.Errorf("of a living program: %d %s%s", code, out, errs)
		}
		p.signal(syscall.SIGKILL)
		p.wait()
		const torn = "the beginning of a line\n"
		wantAll := func(got []byte) { // a kill between two stores repeats one line
			t.Helper()
			lines, ok := bytes.CutSuffix(got, []byte(torn))
			if !ok {
				t.Errorf("the line that was not ended is missing: %q", got[max(0, len(got)-100):])
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
			t.Errorf("after: %d %s%s", code, out, errs)
		}
		if left, _ := filepath.Glob(filepath.Join(safe, "*.input*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// killed runs the program with r as its input and kills it repeatedly. Then it removes the obstacle
// at down, and stops the writer of r with quit. A last run ends by itself. killed returns the value
// that done receives from the writer, and the content of down.
func killed(t *testing.T, rng *rand.Rand, kills int, r *os.File, down string, quit chan<- struct{}, done <-chan int, args ...string) (n int, got []byte) {
	t.Helper()
	run := func() *child {
		return startWith(t, func(_ *child, cmd *exec.Cmd) { cmd.Stdin = r }, args...)
	}
	for range kills {
		p := run()
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
