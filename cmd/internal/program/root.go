package program

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/process"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/tool"
)

// execute runs the command line args and returns the exit code.
func execute(args []string) int {
	process.IgnoreBrokenPipes()
	out := &console.Answers{W: os.Stdout}
	root := newRoot(os.Stdin, out, os.Stderr)
	root.SetArgs(withVerb(args, os.Stdin))
	cmd, err := root.ExecuteC()
	if out.Err != nil {
		err = out.Failure()
	}
	if err == nil {
		return 0
	}
	report(os.Stderr, cmd, err)
	return exit.Code(err)
}

// report prints an error of cmd. It names the command that prints the help for cmd.
func report(w io.Writer, cmd *cobra.Command, err error) {
	text := err.Error()
	if text == "" {
		return
	}
	texts := config.FaultLines{text}
	errors.As(err, &texts)
	for _, text := range texts {
		fmt.Fprintf(w, "forebay: %s\n", setting.RedactText(strings.TrimRight(text, "\n")))
	}
	if exit.Code(err) == exit.UsageCode {
		fmt.Fprintf(w, "Run '%s --help' for usage.\n", cmd.CommandPath())
	}
}

// withVerb adds the command pipe to a command line without a command, as in myapp | forebay --to
// file:app.log. It adds nothing if standard input is a terminal.
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
	if err != nil || st.Mode()&fs.ModeCharDevice != 0 { // standard input is a terminal or /dev/null
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

If no command is given, the flags are those of forebay pipe: myapp | forebay --to file:app.log`,
		Example: `  myapp 2>&1 | forebay pipe --to file:app.log --rotate-size 100MiB --keep 7
  journalctl -o json -f | forebay pipe --level warn --to file:warnings.log --to stdout:
  forebay size --rate 10k/s --msg-size 256 --latency 10ms --spike 200ms`,
		SilenceErrors: true,
		SilenceUsage:  true,
		// The field Args is not set, so that cobra suggests a command if the given one is unknown.
		RunE: func(cmd *cobra.Command, _ []string) error {
			if versionAsked {
				printVersion(cmd)
				return nil
			}
			return cmd.Help()
		},
	}
	// Cobra's version flag is not used, because it requires text/template. With text/template, the
	// linker keeps every exported method, which makes the program larger.
	root.Flags().BoolVarP(&versionAsked, "version", "v", false, "print the version of forebay")
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(newPipe(stdin, stderr), tool.NewSize(), newMoved("spike"), newMoved("fleet"), tool.NewSpoolCmd(), newTail(stdin, stderr),
		newRun(stdin, stderr), newValidate(stdin, stdout), newInit(stdout), tool.NewReceive(os.Stdout, stderr),
		tool.NewTop(stdin, os.Stdout, stderr), newVersion())
	strict(root)
	return root
}
