package program

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/internal/vfs"
)

//go:embed example.yaml
var exampleConfig string

// configName is the default name of the configuration file in the commands init, run and validate.
const configName = "forebay.yaml"

func newRun(stdin, stderr *os.File) *cobra.Command {
	var file string
	var watch, quiet bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the inputs and outputs of a configuration file",
		Long: `Run the inputs and outputs of a configuration file.

Inputs are standard input, growing files, the systemd journal, and listeners for Forward,
Loki's push API and syslog. Transforms add, rename, remove and redact fields, and sample and
drop records. Each output is a destination with separate memory, delivery and spool. An
output can select inputs, fields and levels. docs/CONFIG.md describes every key; forebay init
writes an example.

A listener acknowledges a message, and the position in a file is stored, only after each output
that selects the records has delivered them or written them to its spool. An input stops reading
while one of its outputs is full.

SIGHUP reads the configuration again and reopens the files of outputs. With --watch, a change
to the configuration file has the same effect. Unchanged inputs and outputs continue without
interruption. A changed output is closed after it has delivered its records or written them to
its spool. The new configuration is ignored if it has an error, or if an output that must be
closed can neither deliver its records nor write them to a spool.

The command ends like forebay pipe: at the end of standard input if there is no other input,
and on Ctrl-C or SIGTERM. A second signal ends it at once.

` + runExitHelp,
		Example: `  forebay init
  forebay validate
  forebay run
  forebay run -c /etc/forebay/forebay.yaml --watch`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usage(fmt.Errorf("forebay run has no arguments, but %q is given; for a file, write -c %s", args[0], args[0]))
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return runFile(file, stdin, stderr, watch, quiet) },
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&file, "config", "c", configName, "configuration `FILE`")
	cmd.Flags().BoolVar(&watch, "watch", false, "read the file again when it changes; it is checked every second")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only errors: no progress line on the terminal and no text summary")
	return cmd
}

const runExitHelp = `Exit codes:
  0   no record was lost, except records dropped by when-full or max-record
  1   records were lost, or an input could not be read
  2   the command line is wrong
  3   a record was dropped, and fail-on-drop is set
  75  drain-timeout expired; undelivered records are kept for the next run or read again
  78  the configuration is wrong, or a file or address in it cannot be opened`

// runFile runs a pipeline as configured in file. If watch is true, it applies later changes of the
// file.
func runFile(file string, stdin, stderr *os.File, watch, quiet bool) error {
	c, data, err := config.Load(file, stdin)
	if err != nil {
		return err
	}
	c.Quiet = quiet
	p := run.New(c, stderr)
	p.Console.Plain = config.WithoutFlags
	p.Changes, p.File = run.NewReloader(file, data, stdin, watch), file
	return asInFile(run.Run(p, stdin, stderr))
}

// asInFile adapts an error to configuration files: it replaces the names of flags by names of keys.
func asInFile(err error) error {
	if err == nil || err.Error() == "" {
		return err
	}
	return exit.With(exit.Code(err), errors.New(config.WithoutFlags(err.Error())))
}

func newValidate(stdin *os.File, stdout io.Writer) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Validate a configuration file",
		Long: `Validate a configuration file, and report every error with its line and column. Files with
keys, passwords and certificates are read. Files and directories that the user of this command
may not write are errors. Nothing is written or created, no connection is made, and no spool is
opened. Labels that are renamed for Loki are listed, secrets that every user of this machine can
read, and outputs that need a spool so that other outputs do not get records twice.

Exit codes:
  0   the configuration is valid
  2   the command line is wrong
  78  the configuration has errors`,
		Example: `  forebay validate
  forebay validate /etc/forebay/forebay.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if cmd.Flags().Changed("config") {
					return exit.Usage(errors.New("the file is given twice: as an argument, and with -c"))
				}
				file = args[0]
			}
			c, data, err := config.Load(file, stdin)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "%s is valid: %s, %s, %s\n", file,
				console.Amount(uint64(len(c.Inputs)), "input"), console.Amount(uint64(len(c.Rules)), "transform"), console.Amount(uint64(len(c.Outs)), "output"))
			var notes []string
			for _, in := range c.Inputs {
				if l, ok := in.Kind.(*input.Listen); ok {
					notes = append(notes, l.OpenFiles("inputs."+in.Name+".")...)
				}
			}
			for _, out := range c.Outs {
				notes = append(notes, dest.RenamedLabels(out)...)
				notes = append(notes, out.VisibleIn(file, data)...)
			}
			for _, note := range append(notes, c.Repeats()...) {
				_, err2 := fmt.Fprintln(stdout, note)
				err = errors.Join(err, err2)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", configName, "configuration `FILE`")
	return cmd
}

func newInit(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write an example configuration file",
		Long: `Write an example configuration file that runs without changes. FILE is forebay.yaml by
default; - writes to standard output. An existing file is not changed.

Exit codes:
  0   the file was written
  2   the command line is wrong
  78  the file exists or cannot be written`,
		Example: `  forebay init
  forebay init - | less`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file := configName
			if len(args) > 0 {
				file = args[0]
			}
			if file == "-" {
				_, err := io.WriteString(stdout, exampleConfig)
				return err
			}
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			switch {
			case errors.Is(err, os.ErrExist):
				return exit.Config(fmt.Errorf("%s already exists; name another file", file))
			case err != nil:
				return exit.Config(errors.New(console.WriteRemedy(fmt.Sprintf("cannot write %s: %s", file, vfs.Cause(err)))))
			}
			_, err = f.WriteString(exampleConfig)
			if err = errors.Join(err, f.Close()); err != nil {
				return exit.Config(fmt.Errorf("cannot write %s: %w", file, vfs.Cause(err)))
			}
			_, err = fmt.Fprintf(stdout, "%s is written; start with: forebay run\n", file)
			return err
		},
	}
}
