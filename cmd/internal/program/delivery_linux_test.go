package program

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/internal/testkit"
)

// With --crash-safe, the lines that the program has read survive SIGKILL.
func TestCrashSafeLinesSurviveKill(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"", "--spool spool --when-full spill"} {
		t.Run(flags, func(t *testing.T) { crashSafe(t, strings.Fields(flags)) })
	}
}

func crashSafe(t *testing.T, flags []string) {
	dir := t.TempDir()
	if len(flags) > 0 {
		flags[1] = filepath.Join(dir, flags[1])
	}
	path := filepath.Join(dir, "out")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"pipe", "--to", "file:" + path, "--crash-safe", filepath.Join(dir, "crash")}, flags...)
	p := start(t, append(args, "--to", "file:"+filepath.Join(dir, "other"))...)
	p.write("one\ntwo\n")
	await(t, filepath.Join(dir, "other"), "one\ntwo\n") // all outputs have the lines in their slabs now
	p.signal(syscall.SIGKILL)
	p.wait()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	p = start(t, args...)
	p.write("three\n")
	p.in.Close()
	code, stderr := p.wait()
	if got, _ := os.ReadFile(path); code != 0 || string(got) != "one\ntwo\nthree\n" {
		t.Errorf("exit code %d, file %q", code, got)
	}
	wantMatch(t, stderr, `accepted=1 recovered=2 delivered=3$`)
}

// A second signal ends the delivery immediately; the remaining records are written to the spool.
func TestForcedEndSpools(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "pipe", "--to", "file:/dev/full", "--spool", filepath.Join(dir, "spool"), "--to", "file:"+filepath.Join(dir, "other"))
	p.write("one\ntwo\n")
	await(t, filepath.Join(dir, "other"), "one\ntwo\n")
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGINT)
	code, stderr := p.wait()
	if code != exit.KeptCode {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	wantMatch(t, stderr, `file:/dev/full accepted=2 delivered=0 pending=2\{slab=0 spill=2 inflight=0\}`)
}

// While the disk of the spool is full, the program stops reading and loses nothing. After the
// destination has recovered, everything is delivered in order.
func TestFullSpoolStopsReading(t *testing.T) {
	t.Parallel()
	disk := testkit.Tmpfs(t, "size=512k")
	dir := t.TempDir()
	sock := filepath.Join(dir, "sock")
	messages, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Close()
	p := startWith(t, func(_ *child, cmd *exec.Cmd) { cmd.Stderr = messages }, "pipe", "--to", "unix:"+sock, "--spool", disk, "--slab-size", "4KiB")
	var text strings.Builder
	for i := range 40_000 { // 1 MB, twice the size of the disk
		fmt.Fprintf(&text, "a line of some length, %d\n", i)
	}
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(p.in, text.String())
		written <- errors.Join(err, p.in.Close())
	}()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		b, _ := os.ReadFile(messages.Name())
		if strings.Contains(string(b), "no space left on device; free some space there; retrying") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the disk is not full: %s", b)
		}
	}
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer conn.Close()
		b, _ := io.ReadAll(conn)
		got <- string(b)
	}()
	if err := <-written; err != nil {
		t.Error(err)
	}
	code, _ := p.wait()
	b, _ := os.ReadFile(messages.Name())
	if code != 0 {
		t.Errorf("exit code %d: %s", code, b)
	}
	wantMatch(t, string(b), `sock accepted=40000 delivered=40000$`)
	if <-got != text.String() {
		t.Error("the lines did not come in order")
	}
}

// If a spool is locked by another program or not writable, the program reports an error before it
// reads any input.
func TestSpoolThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"pipe", "--drain-timeout", "1s", "--to", "file:/dev/full", "--spool", filepath.Join(dir, "spool")}
	first := start(t, append(args, "--to", "file:"+filepath.Join(dir, "other"))...)
	first.write("one\n")
	await(t, filepath.Join(dir, "other"), "one\n")
	second := start(t, args...)
	second.in.Close()
	code, stderr := second.wait()
	if code != exit.ConfigCode {
		t.Errorf("exit code %d", code)
	}
	wantMatch(t, stderr, fmt.Sprintf(`^forebay: --spool .*: .*another process \(%d\).*wait until the other process has ended`, first.cmd.Process.Pid))
	first.signal(syscall.SIGTERM)
	first.signal(syscall.SIGTERM)
	if code, stderr := first.wait(); code != exit.KeptCode {
		t.Errorf("exit code %d: %s", code, stderr)
	}

	disk := testkit.Tmpfs(t, "size=64k,ro")
	p := start(t, "pipe", "--to", "file:"+filepath.Join(dir, "out"), "--spool", disk)
	p.in.Close()
	code, stderr = p.wait()
	if code != exit.ConfigCode {
		t.Errorf("exit code %d", code)
	}
	wantMatch(t, stderr, `^forebay: --spool .*: .*read-only file system`)
}

// The dead-letter file may be any writable file, also a pipe or a device, which cannot be synced.
func TestDeadLetterToNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{os.DevNull, pipe, "/dev/stderr"} {
		p := start(t, "pipe", "--to", "file:"+filepath.Join(dir, "out"), "--dead-letter", to)
		p.write("one\n")
		p.in.Close()
		if code, stderr := p.wait(); code != 0 || strings.Contains(stderr, "not delivered") || strings.Contains(stderr, "cannot") {
			t.Errorf("%s: %d %s", to, code, stderr)
		}
	}
}

// The program warns if --when-full drops lines although a spool is configured.
func TestSpoolWithDropPolicyWarns(t *testing.T) {
	dir := t.TempDir()
	for policy, warned := range map[string]bool{"drop-newest": true, "drop-oldest": true, "block": false, "spill": false} {
		p := start(t, "pipe", "--to", "file:"+filepath.Join(dir, "out"), "--spool", filepath.Join(dir, "spool"), "--when-full", policy)
		p.in.Close()
		if code, stderr := p.wait(); code != 0 || strings.Contains(stderr, "use --when-full spill to store them there") != warned {
			t.Errorf("%s: %d %s", policy, code, stderr)
		}
	}
}

// Destinations may have different --crash-safe directories, or none. After a kill, the next run
// delivers to each the lines that it has not received. The line that was being written may be
// repeated.
func TestCrashSafeOfSome(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"a", "b"} {
		if err := os.Symlink("/dev/full", in(name)); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"pipe", "--to", "file:" + in("a") + "?crash-safe=" + in("safe-a"),
		"--to", "file:" + in("b") + "?crash-safe=" + in("safe-b"), "--to", "file:" + in("other")}
	p := start(t, args...)
	p.write("one\ntwo\n")
	await(t, in("other"), "one\ntwo\n") // all outputs have the lines in their slabs now
	p.signal(syscall.SIGKILL)
	p.wait()
	for _, name := range []string{"a", "b"} {
		if err := os.Remove(in(name)); err != nil {
			t.Fatal(err)
		}
	}
	p = start(t, args...)
	p.write("three\n")
	p.in.Close()
	code, stderr := p.wait()
	for _, name := range []string{"a", "b", "other"} {
		got, _ := os.ReadFile(in(name))
		if text := strings.Replace(string(got), "two\ntwo\n", "two\n", 1); code != 0 || text != "one\ntwo\nthree\n" || name != "other" && text != string(got) {
			t.Errorf("exit code %d, %s contains %q, %s", code, name, got, stderr)
		}
	}
	wantMatch(t, stderr, `a accepted=1 recovered=2 delivered=3; .*b accepted=1 recovered=2 delivered=3; `)
}
