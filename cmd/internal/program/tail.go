package program

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/input"
	"github.com/forebay-log/forebay/cmd/internal/setting"
)

func newTail(stdin, stderr *os.File) *cobra.Command {
	cmd, c := pipeCommand(stdin, stderr)
	f := &input.Tail{From: setting.Choice{Of: []string{"start", "end"}}, Rotated: *input.NewMaxRotated()}
	c.Tail = f
	cmd.Use = "tail FILE..."
	cmd.Short = "Follow files and deliver their lines"
	cmd.Long = `Follow files and deliver their lines to every --to.

FILE is a path or a pattern with *, ? and []. Quote a pattern, because the shell would expand
it only once. New files are opened as soon as the system reports them, at most a second after
they appear, and are read from their start. A file that is renamed, deleted, or copied and
truncated is read to its end before its successor, even if outputs were blocked at that moment;
up to --max-rotated such files are kept open. A record that is incomplete when its file is rotated
continues in the next file of the same path. Files that were rotated before the start, such as
app.log.1 for app.log*, are separate files. Compressed and binary files are reported and skipped.

Without --state, reading begins at the end of the files, as in tail -F, and nothing is kept on
disk. --state DIR stores, for each file, the position up to which every output has delivered the
lines or written them to --spool. The next start continues there. If the program is killed, no
line is lost. Lines in flight and lines delivered within the last second, at most about 1 MiB,
are delivered twice. Each process needs a separate DIR.

Every line is a record. Lines longer than --max-record are dropped and counted. NUL bytes
before a line are removed, because truncated files have holes. The last line waits for its
newline; see --partial-after. A line delivered without its newline has the field partial=true.

` + multilineHelp + `

Records of a file in /var/log/containers get the fields pod, namespace and container from its
path. These fields are delivered with --encode json or logfmt, to forward:, and, with --metadata,
to loki:.

The other flags are described by forebay pipe --help.

` + strings.NewReplacer(
		"records were lost, or standard input could not be read", "records or bytes of a file were lost, or with --once a file was skipped or could not be read",
		"--spool or --crash-safe", "--spool or --crash-safe, or read again with --state",
		"a destination is wrong", "a destination or --state is wrong",
	).Replace(exitHelp)
	cmd.Example = `  forebay tail /var/log/syslog --to loki://logs:3100 --label host=web1 --state /var/lib/forebay/syslog
  forebay tail '/var/log/containers/*.log' --multiline auto --encode json --state /var/lib/forebay/pods --to tcp://logs:5170
  forebay tail --once --multiline java server.log --encode json > server.jsonl`
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if f.Files = args; len(args) == 0 {
			return exit.Usage(errors.New("no file is given: add a path or a pattern"))
		}
		return usageErrorOf(checkTail(f, cmd))
	}
	// The help lists the flags of tail before the flags that tail and pipe have in common.
	rest := cmd.Flags()
	rest.Lookup("to").Usage = "destination `DEST`, see forebay pipe --help; may be repeated (default stdout:)"
	cmd.ResetFlags()
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.State, "state", "", "store the delivered position of each file in `DIR` (default: none)")
	f.From.Add(cmd, "from", "", "where to begin in files that exist at the start and have no position in --state (default end; start with --once, or if --state has positions of other files)")
	fs.BoolVar(&f.Once, "once", false, "read to the end of the files and exit")
	fs.StringVar(&f.PathKey, "path-key", "", "field `NAME` for the path of the file, delivered with --encode json or logfmt, to forward:, and, with --label-from or --metadata, to loki: (default: none)")
	fs.Var(&f.Partial, "partial-after", "time without growth after which a last line without a newline is delivered (default 0: wait for the newline)")
	fs.Var(&f.Rotated, "max-rotated", "number `N` of rotated files of a path to keep open until they are read; older ones are lost and reported")
	fs.AddFlagSet(rest)
	return cmd
}

// usageErrorOf returns err as a usage error. If err is nil, it returns nil.
func usageErrorOf(err error) error {
	if err == nil {
		return nil
	}
	return exit.Usage(err)
}

// checkTail returns an error if flags of forebay tail are invalid or contradict each other.
func checkTail(f *input.Tail, cmd *cobra.Command) error {
	if cmd.Flags().Changed("state") && f.State == "" {
		return errors.New("--state is empty")
	}
	for _, path := range f.Files {
		if path == "" || path == "-" {
			return fmt.Errorf("%q is not a file; for standard input, use forebay pipe", path)
		}
	}
	return nil
}
