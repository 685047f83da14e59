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

	"github.com/forebay-log/forebay/internal/testkit"
)

// If forebay tail with --multiline is killed at random moments and restarted, no record is lost or
// split. Each kill may repeat the records after the last stored position.
func TestTailOfRecordsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in, out, state := filepath.Join(dir, "in.log"), filepath.Join(dir, "out.txt"), filepath.Join(dir, "state")
	rng := testkit.Rand(testkit.Seed(t))
	rounds := testkit.Rounds(t, 5, 100)
	n := 0
	records := func(count int) string {
		var sb strings.Builder
		for range count {
			// Each record has 64 bytes, so that records end at the ends of pages, where a kill can
			// cut a write.
			fmt.Fprintf(&sb, "line %6d %s\n\tat %s\n", n, strings.Repeat("x", 19), strings.Repeat("y", 27))
			n++
		}
		return sb.String()
	}
	args := []string{"tail", in, "--from", "start", "--multiline", "^line", "--state", state, "--to", "file:" + out, "--no-reserve"}
	appendTo(t, in, records(1))
	p := start(t, args...)
	for range rounds {
		st, err := os.Stat(in)
		if err != nil {
			t.Fatal(err)
		}
		awaitIn(t, filepath.Join(state, "positions"), fmt.Sprintf(" %x ", st.Sys().(*syscall.Stat_t).Ino))
		killed := time.AfterFunc(time.Duration(rng.IntN(300))*time.Millisecond, func() { p.cmd.Process.Kill() })
		for range 20 {
			appendTo(t, in, records(50))
			time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
		}
		p.cmd.Process.Kill()
		killed.Stop()
		p.wait()
		p = start(t, args...)
		awaitIn(t, out, fmt.Sprintf("line %6d ", n-1))
	}
	// When this record is delivered, the process handles signals. If a signal were sent earlier, it
	// might kill the process.
	appendTo(t, in, records(1))
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
	for len(got) > 0 {
		var k int
		rec := got[:min(64, len(got))]
		if _, err := fmt.Sscanf(string(rec), "line %d x", &k); err != nil || k >= n || !bytes.HasSuffix(rec, []byte("y\n")) || len(rec) != 64 {
			t.Fatalf("%q", rec)
		}
		seen[k]++
		got = got[64:]
	}
	twice := 0
	for k, times := range seen {
		if times == 0 || times > 1+rounds {
			t.Fatalf("record %d of %d comes %d times", k, n, times)
		}
		twice += times - 1
	}
	t.Logf("%d records, %d of them came again", n, twice)
}

// If forebay pipe with --multiline is killed at random moments and restarted with the same standard
// input, no line is lost or split. Each kill may repeat one record.
func TestKilledJoinerGoesOn(t *testing.T) {
	t.Parallel()
	const kills, lines, each = 8, 20_000, 10
	seeds := testkit.Rand(testkit.Seed(t))
	all := numbered(0, lines)
	for range testkit.Rounds(t, 2, 60) {
		rng := testkit.Rand(seeds.Uint64())
		dir := t.TempDir()
		down, safe := full(t, dir), filepath.Join(dir, "safe")
		args := []string{"pipe", "--crash-safe", safe, "--to", "file:" + down, "--slab-size", "4KiB", "--slabs", fmt.Sprint(2 + 60*rng.IntN(2)),
			"--multiline", `^line \d+0 `}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		quit, done := make(chan struct{}), make(chan int)
		go func() {
			defer w.Close()
			text, last := all, 0
			for len(text) > 0 {
				select {
				case <-quit: // write the rest of the current line
					end := bytes.IndexByte(text, '\n') + 1
					w.Write(text[:end])
					done <- lines - bytes.Count(text[end:], []byte("\n"))
					return
				default:
				}
				k := 1 + int(last%4000)
				w.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
				k, _ = w.Write(text[:min(k*37%4096+1, len(text))])
				w.SetWriteDeadline(time.Time{})
				text = text[k:]
				last += k
			}
			<-quit
			done <- lines
		}()
		n, got := killRepeatedly(t, rng, kills, r, down, quit, done, args...)
		next, again := 0, 0
		for line := range bytes.Lines(got) {
			var at int
			if _, err := fmt.Sscanf(string(line), "line %d", &at); err != nil || !bytes.Equal(line, numbered(at, at+1)) {
				t.Fatalf("after line %d comes %q, which was not written", next-1, line)
			}
			if at > next || at < next-each {
				t.Fatalf("line %d comes after line %d", at, next-1)
			}
			if at < next {
				again++
			}
			next = at + 1
		}
		if next != n || again > kills {
			t.Errorf("got %d lines and %d repeated records, want %d lines and at most %d repeats", next, again, n, kills)
		}
	}
}
