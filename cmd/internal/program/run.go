package program

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

//go:embed example.yaml
var exampleConfig string

// configName is the configuration file that init writes, and run and validate read.
const configName = "forebay.yaml"

func newRun(stdin, stderr *os.File) *cobra.Command {
	var file string
	var watch, quiet bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Take records from inputs to outputs, as a configuration file says",
		Long: `Take records from inputs to outputs, as a configuration file says.

Inputs are standard input, files that grow, the journal of systemd, and listeners for Forward, Loki's push API
and syslog. Transforms add, rename, remove and redact fields, sample and drop. Each output
is a destination with memory, delivery and spool of its own, and may take some inputs,
fields or levels only. docs/CONFIG.md has every key; forebay init writes an example.

A listener acknowledges a message, and a file's position is stored, once every output
that takes the records has delivered them, or has them in its spool. An input whose output
is full stops reading.

SIGHUP reads the file again, and opens files of outputs anew; with --watch a change of the
file does, too. What is the same in both files goes on untouched. An output that changes is
closed once it has delivered all it has, or has it in its spool. A file with a fault changes
nothing, and neither does one that needs an output closed that does not deliver.

It ends as forebay pipe does: at the end of standard input, if there is no other input, and
at Ctrl-C or SIGTERM; a second one gives up at once.

` + runExitHelp,
		Example: `  forebay init
  forebay validate
  forebay run
  forebay run -c /etc/forebay/forebay.yaml --watch`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(fmt.Errorf("forebay run takes no argument, and %q is one; a file is given with -c %s", args[0], args[0]))
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return runFile(file, stdin, stderr, watch, quiet) },
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&file, "config", "c", configName, "the configuration `FILE`")
	cmd.Flags().BoolVar(&watch, "watch", false, "read the file again when it changes; it is looked at every second")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no live line and no summary in words, errors only")
	return cmd
}

const runExitHelp = `Exit codes:
  0   no record was lost, but for what when-full and max-record drop
  1   records were lost, or an input could not be read
  2   the command line is wrong
  3   a record was dropped, and fail-on-drop is set
  75  the time was up; what was not delivered is kept for the next run, or comes again
  78  the configuration is wrong, or something it names cannot be opened`

// runFile is forebay run.
func runFile(file string, stdin, stderr *os.File, watch, quiet bool) error {
	c, data, err := loadConfig(file, stdin)
	if err != nil {
		return err
	}
	c.quiet = quiet
	p := newPipeline(c, stderr)
	p.con.plain = withoutFlags
	p.changes = newChanges(file, data, stdin, watch)
	return asInFile(runPipeline(p, stdin, stderr))
}

// asInFile names options as they are named in a file.
func asInFile(err error) error {
	if err == nil || err.Error() == "" {
		return err
	}
	return &codeError{codeOf(err), errors.New(withoutFlags(err.Error()))}
}

func newValidate(stdin *os.File, stdout io.Writer) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Look for faults in a configuration file",
		Long: `Look for faults in a configuration file, and report all of them, each with its line and
column. Files with keys, passwords and certificates are read; nothing is written or created,
no connection is made, and no spool is opened.

Exit codes:
  0   forebay run can begin with it
  2   the command line is wrong
  78  there are faults`,
		Example: `  forebay validate
  forebay validate /etc/forebay/forebay.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if cmd.Flags().Changed("config") {
					return usageError(errors.New("the file is given twice: as an argument, and with -c"))
				}
				file = args[0]
			}
			c, _, err := loadConfig(file, stdin)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(stdout, "%s is sound: %s, %s, %s\n", file,
				amount(uint64(len(c.inputs)), "input"), amount(uint64(len(c.rules)), "transform"), amount(uint64(len(c.outs)), "output"))
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", configName, "the configuration `FILE`")
	return cmd
}

func newInit(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write an example of a configuration file",
		Long: `Write an example of a configuration file, which runs as it is: to FILE, by default
forebay.yaml, or to standard output if FILE is -. A file that is there stays as it is.

Exit codes:
  0   it was written
  2   the command line is wrong
  78  it cannot be written, or is there already`,
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
				return configError(fmt.Errorf("%s is there already, and stays as it is; name another file", file))
			case err != nil:
				return configError(fmt.Errorf("cannot write %s: %w", file, unpathed(err)))
			}
			_, err = f.WriteString(exampleConfig)
			if err = errors.Join(err, f.Close()); err != nil {
				return configError(fmt.Errorf("cannot write %s: %w", file, unpathed(err)))
			}
			_, err = fmt.Fprintf(stdout, "%s is written; begin with: forebay run\n", file)
			return err
		},
	}
}
