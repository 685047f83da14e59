package program

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

// execute runs the command line and returns the exit code.
func execute(args []string) int {
	ignoreBrokenPipes()
	out := &answers{w: os.Stdout}
	root := newRoot(os.Stdin, out, os.Stderr)
	root.SetArgs(withVerb(args, os.Stdin))
	cmd, err := root.ExecuteC()
	if out.err != nil {
		err = out.failure()
	}
	if err == nil {
		return 0
	}
	report(os.Stderr, cmd, err)
	return exit.Code(err)
}

// answers is where commands print what they were asked for. It remembers that this
// failed, which not every command looks at.
type answers struct {
	w   io.Writer
	err error
}

func (a *answers) Write(p []byte) (int, error) {
	n, err := a.w.Write(p)
	if a.err == nil {
		a.err = err
	}
	return n, err
}

// failure is how the program ends then. A reader that has seen enough (| head)
// need not be told so.
func (a *answers) failure() error {
	if errors.Is(a.err, syscall.EPIPE) {
		return exit.Runtime(nil)
	}
	return exit.Runtime(fmt.Errorf("cannot write standard output: %w", console.Unpathed(a.err)))
}

// report says what is wrong, and where help is.
func report(w io.Writer, cmd *cobra.Command, err error) {
	text := err.Error()
	if text == "" {
		return
	}
	texts := faultLines{text}
	errors.As(err, &texts)
	for _, text := range texts {
		fmt.Fprintf(w, "forebay: %s\n", setting.RedactText(strings.TrimRight(text, "\n")))
	}
	if exit.Code(err) == exit.UsageCode {
		fmt.Fprintf(w, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
}

// withVerb makes pipe the default when something is piped in: `myapp | forebay
// --to file:app.log` says what it wants.
func withVerb(args []string, stdin *os.File) []string {
	if len(args) > 0 {
		switch args[0] {
		case "-h", "--help", "--version", "-v":
			return args
		}
		if !strings.HasPrefix(args[0], "-") {
			return args
		}
		return append([]string{"pipe"}, args...)
	}
	st, err := stdin.Stat()
	if err != nil || st.Mode()&fs.ModeCharDevice != 0 { // a terminal, or /dev/null
		return args
	}
	return []string{"pipe"}
}

func newRoot(stdin *os.File, stdout io.Writer, stderr *os.File) *cobra.Command {
	var versionAsked bool
	root := &cobra.Command{
		Use:   "forebay",
		Short: "Deliver log lines to their destinations, and account for each",
		Long: `Deliver log lines to their destinations, and account for each line. Each destination has a
bounded memory pool, so that a program that logs does not wait for a slow destination.

Without a command, flags belong to pipe: myapp | forebay --to file:app.log`,
		Example: `  myapp 2>&1 | forebay pipe --to file:app.log --rotate-size 100MiB --keep 7
  journalctl -o json -f | forebay pipe --level warn --to file:warnings.log --to stdout:
  forebay size --rate 10k/s --msg-size 256 --latency 10ms --spike 200ms`,
		SilenceErrors: true,
		SilenceUsage:  true,
		// No Args: cobra then suggests commands for unknown ones.
		RunE: func(cmd *cobra.Command, _ []string) error {
			if versionAsked {
				printVersion(cmd)
				return nil
			}
			return cmd.Help()
		},
	}
	// Cobra's own flag wants a template: with text/template in the program the linker keeps every
	// method that has an exported name.
	root.Flags().BoolVarP(&versionAsked, "version", "v", false, "print the version of forebay")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(newPipe(stdin, stderr), newSize(), newMoved("spike"), newMoved("fleet"), newSpoolCmd(), newTail(stdin, stderr),
		newRun(stdin, stderr), newValidate(stdin, stdout), newInit(stdout), newReceive(os.Stdout, stderr),
		newTop(stdin, os.Stdout, stderr), newVersion())
	strict(root)
	return root
}
