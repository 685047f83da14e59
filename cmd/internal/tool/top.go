package tool

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/control"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/top"
	"github.com/forebay-log/forebay/internal/neterr"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/internal/units"
)

// onceBetween is the time between the two queries of --once. Rates are computed from the difference
// of their results.
const onceBetween = 250 * time.Millisecond

// plainWidth is the number of columns if the output is not a terminal.
const plainWidth = 80

// topConfig contains the values of the flags of forebay top.
type topConfig struct {
	every  setting.Duration
	once   bool
	output setting.Choice
}

// NewTop returns the command forebay top.
func NewTop(stdin *os.File, stdout, stderr *os.File) *cobra.Command {
	c := &topConfig{every: setting.Duration(time.Second), output: setting.Choice{Value: "text", Of: []string{"text", "json"}}}
	cmd := &cobra.Command{
		Use:   "top [NAME|PID|PATH]",
		Short: "Monitor a running forebay",
		Long: `Monitor a running forebay (run, pipe or tail). The screen shows the input and, for each
destination, the delivered records, the lag, the use of memory and spool, the dropped
records with their reasons, and current failures. The lag is the time since the oldest
undelivered line was read.

NAME is the --name of the program, PID its process, and PATH its --control socket. PATH
needs no ./ unless a running program has that name. Without an argument, the running
program is shown; if several are running, a list is offered. Programs of the same user are
found; root finds the programs of all users.

The wait curve is the share of time in which a caller, such as the part of forebay pipe that
reads standard input, waited for free memory. It includes every wait.

If standard output is not a terminal, or with --once, one snapshot is printed. Without a
terminal its lines have up to 80 columns. -o json prints the state in the form that the
socket serves.

Keys: q and Ctrl-C quit, p pauses, j and k scroll.

Exit codes:
  0   the program was shown, or its end was reported
  1   no program is running, or it cannot be monitored
  2   the command line is wrong, or several programs are running and none was named`,
		Example: `  forebay top
  forebay top shop --every 5s
  kubectl exec forebay-x7k2p -- forebay top --once
  watch -n 5 forebay top --once shop`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return exit.Usage(fmt.Errorf("forebay top shows one process, but %d are given", len(args)))
			case len(args) == 1 && args[0] == "":
				return exit.Usage(errors.New("the name is empty"))
			case time.Duration(c.every) < 10*time.Millisecond:
				return exit.Usage(fmt.Errorf("--every %s: use 10ms or more", c.every.String()))
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			found, _ := control.Find(context.Background())
			for _, r := range found {
				names = append(names, r.State.Name, fmt.Sprintf("%d\t%s", r.State.PID, r.State.Name))
			}
			return names, cobra.ShellCompDirectiveDefault
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return c.run(strings.Join(args, ""), stdin, stdout, stderr)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Var(&c.every, "every", "interval between updates")
	fs.BoolVar(&c.once, "once", false, "print one snapshot and exit")
	c.output.Add(cmd, "output", "o", "format of a snapshot; json implies --once")
	return cmd
}

// run shows the state of a program. target is the name of the program, its process id or the path
// of its socket.
func (c *topConfig) run(target string, stdin, stdout, stderr *os.File) error {
	if !control.Supported {
		return exit.Runtime(errors.New("forebay top needs unix sockets in a private directory, which this system does not have"))
	}
	signals := make(chan os.Signal, 4)
	process.Notify(signals)
	process.NotifyReopen(signals) // at SIGHUP, top must restore the terminal before it ends
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	live := !c.once && c.output.Value == "text" && console.IsTerminal(stdout) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
	path, err := c.find(ctx, target, live && console.IsTerminal(stdin), stdin, stderr)
	if err != nil || path == "" {
		return err
	}
	look := func(ctx context.Context) (*control.State, error) { return control.Get(ctx, path) }
	first, err := look(ctx)
	if err != nil {
		return c.failed(path, err)
	}
	h := new(top.History)
	h.Add(first)
	style := top.Style{Color: os.Getenv("NO_COLOR") == "" && live, ASCII: onlyASCII()}
	switch {
	case c.output.Value == "json":
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return writeError(enc.Encode(first))
	case !live:
		wait(ctx, min(onceBetween, time.Duration(c.every)))
		if next, err := look(ctx); err == nil {
			h.Add(next)
		}
		style.Width, _ = size(stdout)
		return writeError(printLines(stdout, h.Lines(style)))
	}
	return c.live(ctx, h, look, style, stdin, stdout)
}

// live updates the display until the user quits or the observed program ends.
func (c *topConfig) live(ctx context.Context, h *top.History, look func(context.Context) (*control.State, error), style top.Style, stdin, stdout *os.File) error {
	resized := make(chan os.Signal, 1)
	process.NotifyResize(resized)
	defer signal.Stop(resized)
	keys, restore := readKeys(stdin)
	defer restore()
	scr := top.Screen{
		W: stdout, Keys: keys, Resized: resized, Style: style,
		Size: func() (width, height int) { return size(stdout) },
	}
	ended, err := top.Live(ctx, scr, h, time.Duration(c.every), look)
	restore()
	if err != nil || !ended {
		return writeError(err)
	}
	style.Width, _ = size(stdout)
	last := h.Lines(style)
	s := h.State()
	return writeError(printLines(stdout, append(last, "", fmt.Sprintf("forebay: %s (pid %d) has ended; this is its last state", s.Name, s.PID))))
}

// size returns the size of the terminal, or a default.
func size(stdout *os.File) (width, height int) {
	width, height, err := term.GetSize(int(stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return plainWidth, 24
	}
	return max(10, width), height
}

// readKeys returns a channel for the keys that the user types, and a function that restores the
// terminal.
func readKeys(stdin *os.File) (keys <-chan []byte, restore func()) {
	if !console.IsTerminal(stdin) {
		return nil, func() {}
	}
	fd := int(stdin.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, func() {}
	}
	typed := make(chan []byte)
	go func() { // runs until the process exits, because a read from a terminal cannot be canceled
		defer close(typed)
		for {
			buf := make([]byte, 64)
			n, err := stdin.Read(buf)
			if n > 0 {
				typed <- buf[:n]
			}
			if err != nil {
				return
			}
		}
	}()
	return typed, func() { _ = term.Restore(fd, before) }
}

// find returns the path of a program's socket. target is the name of the program, its process id or
// a path. If several programs match and ask is true, the user selects one. If the user selects
// none, path is "".
func (c *topConfig) find(ctx context.Context, target string, ask bool, stdin, stderr *os.File) (path string, err error) {
	if strings.ContainsRune(target, os.PathSeparator) {
		return target, nil
	}
	found, failed := control.Find(ctx)
	if target != "" {
		found = matching(found, target)
	}
	if len(found) == 0 && target != "" {
		here := "." + string(os.PathSeparator) + target
		if st, err := os.Stat(here); err == nil && st.Mode()&os.ModeSocket != 0 {
			return here, nil
		}
	}
	switch {
	case len(found) == 1:
		return found[0].Path, nil
	case len(found) == 0:
		return "", exit.Runtime(notFound(target, failed))
	case !ask:
		return "", exit.Usage(fmt.Errorf("%s are running%s; select one by its PID:\n%s", plural.Of(len(found), "forebay"), named(target), strings.Join(listOf(found), "\n")))
	}
	for i, line := range listOf(found) {
		fmt.Fprintf(stderr, "%3d %s\n", i+1, line)
	}
	in := bufio.NewReader(stdin)
	for {
		fmt.Fprintf(stderr, "Which one? 1 to %d: ", len(found))
		answers := make(chan string, 1)
		go func() { // runs until the user answers or the process exits
			line, err := in.ReadString('\n')
			if line = strings.TrimSpace(line); err != nil && line == "" {
				line = "q"
			}
			answers <- line
		}()
		select {
		case answer := <-answers:
			if n, err := strconv.Atoi(answer); err == nil && n >= 1 && n <= len(found) {
				return found[n-1].Path, nil
			}
			if answer == "q" {
				return "", nil
			}
		case <-ctx.Done():
			fmt.Fprintln(stderr)
			return "", nil
		}
	}
}

// matching returns the programs whose name or process id is target.
func matching(found []control.Running, target string) (those []control.Running) {
	for _, r := range found {
		if strconv.Itoa(r.State.PID) == target {
			return []control.Running{r}
		}
		if r.State.Name == target {
			those = append(those, r)
		}
	}
	return those
}

func named(target string) string {
	if target == "" {
		return ""
	}
	return " by the name " + target
}

// listOf describes programs, one per line.
func listOf(found []control.Running) (lines []string) {
	for _, r := range found {
		s := r.State
		var to []string
		for i := range s.Outputs {
			to = append(to, s.Outputs[i].To)
		}
		lines = append(lines, fmt.Sprintf("pid %-8d %s  %s to %s, up %s", s.PID, s.Name, s.Verb, strings.Join(to, ", "), units.Duration(s.Now.Sub(s.Start).Truncate(time.Second))))
	}
	return lines
}

// notFound returns the error for a program that was not found. The error lists possible reasons.
func notFound(target string, failed []error) error {
	text := fmt.Sprintf("no running forebay%s was found: there is no socket in %s", named(target), strings.Join(control.Places(), ", "))
	for _, err := range failed {
		text += "\n  " + err.Error()
	}
	if target != "" {
		text += fmt.Sprintf("\n%s was tried as a --name, as a process id and as a socket in this directory; a path has a %c in it, such as .%c%[1]s.",
			target, os.PathSeparator, os.PathSeparator)
	}
	text += "\n"
	if os.Geteuid() != 0 {
		text += "Only root sees processes of other users. "
	}
	return errors.New(text + "For a process that was started with --control PATH, give PATH.")
}

// failed returns the error for a failed query of the socket at path.
func (c *topConfig) failed(path string, err error) error {
	if control.Ended(err) {
		return exit.Runtime(fmt.Errorf("%s: no forebay listens there", path))
	}
	return exit.Runtime(fmt.Errorf("%s: %w", path, neterr.Cause(err)))
}

// onlyASCII reports whether the locale does not support UTF-8. If no locale is set, it returns
// false.
func onlyASCII() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(os.Getenv(name)); locale != "" {
			return !strings.Contains(locale, "utf-8") && !strings.Contains(locale, "utf8")
		}
	}
	return false
}

func printLines(w io.Writer, lines []string) error {
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// writeError returns the error for a failed write to standard output.
func writeError(err error) error {
	if err == nil {
		return nil
	}
	return (&console.Answers{Err: err}).Failure()
}

// wait waits for the duration d, or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
