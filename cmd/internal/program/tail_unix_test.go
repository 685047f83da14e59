//go:build unix

package program

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/internal/testkit"
)

// awaitIn waits until the file contains the text want.
func awaitIn(t *testing.T, path, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got, err := os.ReadFile(path); err == nil && bytes.Contains(got, []byte(want)) {
			return
		}
	}
	t.Fatalf("%s does not hold %q", path, want)
}

func appendTo(t *testing.T, path, text string) {
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

// forebay tail follows a file, also after a rotation, until a signal arrives.
func TestTailFollowsRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.log"), filepath.Join(dir, "out.txt")
	appendTo(t, in, "old\n")
	p := start(t, "tail", in, "--to", "file:"+out, "--partial-after", "50ms", "--state", filepath.Join(dir, "state"))
	awaitIn(t, filepath.Join(dir, "state", "positions"), "in.log") // the program is running now
	appendTo(t, in, "one\n")
	await(t, out, "one\n")
	appendTo(t, in, "two")
	await(t, out, "one\ntwo\n")
	appendTo(t, in, "\nthree\n")
	await(t, out, "one\ntwo\nthree\n")
	if err := os.Rename(in, in+".1"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, in, "five\n")
	awaitIn(t, out, "five\n")
	two := start(t, "tail", in, "--state", filepath.Join(dir, "state"))
	if code, stderr := two.wait(); code != exit.ConfigCode || !strings.Contains(stderr, "is locked by another process (") {
		t.Error(code, stderr)
	}
	p.signal(syscall.SIGTERM)
	code, stderr := p.wait()
	if code != 0 {
		t.Error(code, stderr)
	}
	wantMatch(t, stderr, `read 4 records, .*accepted=4 delivered=4$`)
	appendTo(t, in, "six\n")
	p = start(t, "tail", in, "--to", "file:"+out, "--once", "--state", filepath.Join(dir, "state"))
	if code, stderr := p.wait(); code != 0 {
		t.Error(code, stderr)
	}
	await(t, out, "one\ntwo\nthree\nfive\nsix\n")
}

// If the program is killed at random moments while the followed file is rotated, no line is lost.
func TestKilledTailLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.log"), filepath.Join(dir, "out.txt")
	n := 0
	lines := func(count int) string {
		var sb strings.Builder
		for range count {
			// Each line has 64 bytes, so that lines end at the ends of pages, where a kill can cut
			// a write.
			fmt.Fprintf(&sb, "line %6d %s\n", n, strings.Repeat("x", 51))
			n++
		}
		return sb.String()
	}
	args := []string{"tail", in, "--from", "start", "--state", filepath.Join(dir, "state"), "--to", "file:" + out, "--no-reserve"}
	// stored waits until the program has stored the position of the current file. Without a stored
	// position, the next run could not find the file after two renames.
	stored := func() {
		st, err := os.Stat(in)
		if err != nil {
			t.Fatal(err)
		}
		awaitIn(t, filepath.Join(dir, "state", "positions"), fmt.Sprintf(" %x ", st.Sys().(*syscall.Stat_t).Ino))
	}
	appendTo(t, in, lines(1))
	p := start(t, args...)
	rng := testkit.Rand(testkit.Seed(t))
	for round := range testkit.Rounds(t, 6, 100) {
		stored()
		killed := time.AfterFunc(time.Duration(rng.IntN(300))*time.Millisecond, func() { p.cmd.Process.Kill() })
		for range 10 {
			appendTo(t, in, lines(100))
			time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
		}
		if err := os.Rename(in, fmt.Sprintf("%s.%d", in, round)); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			appendTo(t, in, lines(100))
			time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
		}
		p.cmd.Process.Kill()
		killed.Stop()
		p.wait()
		p = start(t, args...)
		awaitIn(t, out, fmt.Sprintf("line %6d ", n-1))
	}
	// When this line is delivered, the process handles signals. If a signal were sent earlier, it
	// might kill the process.
	appendTo(t, in, lines(1))
	awaitIn(t, out, fmt.Sprintf("line %6d ", n-1))
	p.signal(syscall.SIGTERM)
	if code, stderr := p.wait(); code != 0 {
		t.Error(code, stderr)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]int, n)
	for line := range bytes.Lines(got) {
		var k int
		if _, err := fmt.Sscanf(string(line), "line %d x", &k); err != nil || len(line) != 64 || k >= n {
			t.Fatalf("%q", line)
		}
		seen[k]++
	}
	twice := 0
	for k, times := range seen {
		if times == 0 {
			t.Fatalf("line %d of %d is lost", k, n)
		}
		twice += times - 1
	}
	t.Logf("%d lines, %d of them came again", n, twice)
}
