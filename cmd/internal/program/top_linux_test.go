package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/forebay-log/forebay/cmd/internal/control"
)

// A topTerminal is a forebay top that runs on a pseudo-terminal.
type topTerminal struct {
	t      *testing.T
	p      *child
	master *os.File
	slave  *os.File
	seen   strings.Builder
	before unix.Termios
}

// onTerminal starts forebay top with args on a pseudo-terminal of the given size. env is added to
// its environment.
func onTerminal(t *testing.T, rows, cols uint16, env []string, args ...string) *topTerminal {
	t.Helper()
	w := &topTerminal{t: t}
	w.master, w.slave = terminal(t)
	w.resize(rows, cols)
	w.before = w.termios()
	w.p = startWith(t, func(_ *child, cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = w.slave, w.slave, w.slave
		cmd.Env = append(append(cmd.Env, "TERM=xterm", "LANG=C.UTF-8", "LC_ALL=", "LC_CTYPE=", "NO_COLOR="), env...)
	}, append([]string{"top"}, args...)...)
	return w
}

func (w *topTerminal) resize(rows, cols uint16) {
	w.t.Helper()
	if err := unix.IoctlSetWinsize(int(w.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		w.t.Fatal(err)
	}
}

// await reads from the terminal until it finds text. It returns everything that was drawn after the
// last call, up to and including text.
func (w *topTerminal) await(text string) (drawn string) {
	w.t.Helper()
	for buf := make([]byte, 4096); ; {
		if before, after, ok := strings.Cut(w.seen.String(), text); ok {
			w.seen.Reset()
			w.seen.WriteString(after)
			return before + text
		}
		n, err := w.master.Read(buf)
		if err != nil {
			w.t.Fatalf("%v; no %q in %q", err, text, w.seen.String())
		}
		w.seen.Write(buf[:n])
	}
}

func (w *topTerminal) press(keys string) {
	w.t.Helper()
	if _, err := w.master.WriteString(keys); err != nil {
		w.t.Fatal(err)
	}
}

func (w *topTerminal) termios() unix.Termios {
	w.t.Helper()
	tio, err := unix.IoctlGetTermios(int(w.slave.Fd()), unix.TCGETS)
	if err != nil {
		w.t.Fatal(err)
	}
	return *tio
}

// ended waits until the program exits. It checks that the program has restored the settings of the
// terminal.
func (w *topTerminal) ended() {
	w.t.Helper()
	if code, _ := w.p.wait(); code != 0 {
		w.t.Errorf("exit code %d", code)
	}
	if after := w.termios(); after != w.before {
		w.t.Errorf("the terminal is %+v, was %+v", after, w.before)
	}
}

func TestTopShowsProgramUntilItEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	pipe, socket, _ := controlled(t, "pipe", "--name", "shop", "--to", "file:"+path)
	pipe.write("one\ntwo\n")
	await(t, path, "one\ntwo\n")
	w := onTerminal(t, 24, 80, nil, socket, "--every", "20ms")
	w.await("\x1b[?1049h\x1b[?25l")
	w.await("\x1b[1mshop\x1b[0m  pid " + strconv.Itoa(pipe.cmd.Process.Pid) + "  pipe  up ")
	w.await("2 lines  8 B")
	w.await("\x1b[32mcircuit closed\x1b[0m")
	w.await("░░░░░░░░░░░░░░░░ 0/16")
	w.await("q quit  p pause")
	w.resize(10, 40)
	if err := w.p.cmd.Process.Signal(syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	w.await("    slabs ░░░░░░░░ 0/16")
	w.press("p")
	w.await("paused")
	w.press("p")
	w.await("p pause")
	w.press("q")
	w.await("\x1b[?25h\x1b[?1049l")
	w.ended()

	// In forebay top, Ctrl-C is an ordinary key and sends no signal. A signal from another process
	// ends forebay top.
	w = onTerminal(t, 24, 80, []string{"NO_COLOR=1", "LC_ALL=C"}, socket)
	drawn := w.await("q quit")
	if strings.Contains(drawn, "\x1b[1m") || !strings.Contains(drawn, "slabs ................ 0/16") {
		t.Errorf("%q", drawn)
	}
	w.press("\x03")
	w.await("\x1b[?1049l")
	w.ended()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		w = onTerminal(t, 24, 80, nil, socket)
		w.await("q quit")
		w.p.signal(s)
		w.await("\x1b[?1049l")
		w.ended()
	}

	// On a terminal without cursor control, forebay top prints a single snapshot.
	w = onTerminal(t, 24, 80, []string{"TERM=dumb"}, socket)
	if drawn := w.await(" 0/16"); strings.Contains(drawn, "\x1b") {
		t.Errorf("%q", drawn)
	}
	w.ended()

	// When the observed program ends, forebay top prints its last state and exits.
	w = onTerminal(t, 24, 80, nil, socket, "--every", "20ms")
	w.await("q quit")
	pipe.in.Close()
	w.await("\x1b[?1049l")
	w.await("forebay: shop (pid " + strconv.Itoa(pipe.cmd.Process.Pid) + ") has ended; this is its last state")
	w.ended()
	pipe.wait()
}

// If the observed program is busy, forebay top draws complete screens, which fit into 60 columns.
func TestTopUnderLoad(t *testing.T) {
	dir := t.TempDir()
	pipe, socket, look := controlled(t, "pipe", "--name", "shop", "--when-full", "drop-newest", "--drain-timeout", "10ms",
		"--to", "file:"+filepath.Join(dir, "a path that is much longer than the screen is wide", "out")+"?mkdirs&rotate-size=1MiB&keep=1", "--to", "file:"+full(t, dir))
	load := make(chan error)
	go func() {
		lines := strings.Repeat("a line of load\n", 1000)
		for {
			if _, err := pipe.in.WriteString(lines); err != nil {
				load <- err
				return
			}
		}
	}()
	look(func(s *control.State) bool { return s.Input.Records > 100_000 })
	w := onTerminal(t, 20, 60, nil, socket, "--every", "20ms")
	w.await("\x1b[?25l")
	w.await(" full\x1b[0m") // the second output is full and drops lines
	w.await("\x1b[H")
	sequences := regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")
	for range 3 {
		screen := strings.Split(sequences.ReplaceAllString(w.await("\x1b[H"), ""), "\r\n")
		if len(screen) != 20 || !strings.HasPrefix(screen[0], "shop  pid ") || !strings.Contains(screen[19], "q quit") {
			t.Errorf("%d lines: %q", len(screen), screen)
		}
		for _, line := range screen {
			if n := utf8.RuneCountInString(line); n > 60 {
				t.Errorf("%d columns: %q", n, line)
			}
		}
	}
	w.press("q")
	w.await("\x1b[?1049l")
	w.ended()

	// A snapshot also fits into 60 columns.
	w = onTerminal(t, 20, 60, nil, socket, "--once")
	for line := range strings.SplitSeq(w.await(" full "), "\r\n") {
		if n := utf8.RuneCountInString(line); n > 60 {
			t.Errorf("%d columns in a snapshot: %q", n, line)
		}
	}
	w.ended()
	pipe.in.Close()
	<-load
	pipe.wait()
}

// If several programs have the same name, forebay top asks the user to select one.
func TestTopAsksWhichProgram(t *testing.T) {
	dir := t.TempDir()
	var pids []string
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(dir, name)
		p := start(t, "pipe", "--name", "twin", "--to", "file:"+path)
		p.write("one\n")
		await(t, path, "one\n")
		pids = append(pids, strconv.Itoa(p.cmd.Process.Pid))
		defer func() { p.in.Close(); p.wait() }()
	}
	w := onTerminal(t, 24, 80, nil, "twin")
	w.await("  1 pid " + pids[0])
	w.await("  2 pid " + pids[1])
	w.await("Which one? 1 to 2: ")
	w.press("3\n")
	w.await("Which one? 1 to 2: ")
	w.press("2\n")
	w.await("pid " + pids[1] + "  pipe")
	w.press("q")
	w.await("\x1b[?1049l")
	w.ended()
	w = onTerminal(t, 24, 80, nil, "twin")
	w.await("Which one? 1 to 2: ")
	w.press("\x04") // Ctrl-D: the user selects no program
	w.ended()
}
