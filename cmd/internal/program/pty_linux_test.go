package program

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal returns both ends of a new pseudo-terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals:", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skip("no pseudo-terminals:", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Skip("no pseudo-terminals:", err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals:", err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// On a terminal, the program shows a live line. It removes the line at the end.
func TestLiveLineIsRemovedAtEnd(t *testing.T) {
	master, slave := terminal(t)
	path := t.TempDir() + "/x.log"
	p := startWith(t, func(_ *child, cmd *exec.Cmd) {
		cmd.Stderr = slave
		cmd.Env = append(cmd.Env, "TERM=xterm")
	}, "pipe", "--to", "file:"+path)
	p.write("one\ntwo\n")
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), "records/s") {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatal(err, seen.String())
		}
		seen.Write(buf[:n])
	}
	p.in.Close()
	code, _ := p.wait()
	for !strings.Contains(seen.String(), "delivered=2") {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatal(err, seen.String())
		}
		seen.Write(buf[:n])
	}
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	wantMatch(t, seen.String(), `\r[0-9.]+ records/s  [0-9.]+ B/s  slabs [0-9]+/16  dropped 0\x1b\[K`)
	wantMatch(t, seen.String(), `\x1b\[K\r\x1b\[Kforebay: read 2 records`)
}

// The live line is not shown with --quiet, or if an output writes to the terminal.
func TestNoLiveLine(t *testing.T) {
	for _, args := range [][]string{{"pipe", "--to", "stderr:"}, {"pipe", "-q"}} {
		master, slave := terminal(t)
		p := startWith(t, func(_ *child, cmd *exec.Cmd) { cmd.Stderr = slave }, args...)
		p.write("one\n")
		p.in.Close()
		if code, _ := p.wait(); code != 0 {
			t.Errorf("%q: exit code %d", args, code)
		}
		slave.Close()
		var seen []byte
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			seen = append(seen, buf[:n]...)
			if err != nil { // EIO: no process has the slave open any more
				break
			}
		}
		if strings.Contains(string(seen), "records/s") || strings.Contains(string(seen), "\x1b") {
			t.Errorf("%q wrote %q", args, seen)
		}
	}
}

// If the program has an open terminal, SIGHUP reopens files. If the terminal was closed, SIGHUP
// ends the program.
func TestTerminalIsClosed(t *testing.T) {
	master, slave := terminal(t)
	dir := t.TempDir()
	path, in := dir+"/x.log", dir+"/in.log"
	if err := os.WriteFile(in, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startWith(t, func(_ *child, cmd *exec.Cmd) { cmd.Stderr = slave }, "tail", "-q", "--from", "start", "--to", "file:"+path, in)
	await(t, path, "one\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	p.signal(unix.SIGHUP)
	await(t, path, "")
	slave.Close()
	master.Close()
	p.signal(unix.SIGHUP)
	if code, _ := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
