package program

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/charset"
	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/intake"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/record"
)

// exitHelp describes the exit codes of pipe.
const exitHelp = `Exit codes:
  0   no record was lost, except records dropped by --when-full or --max-record
  1   records were lost, or standard input could not be read
  2   the command line is wrong
  3   a record was dropped, and --fail-on-drop was given
  75  --drain-timeout expired; undelivered records are kept in --spool or --crash-safe
  78  a destination is wrong or cannot be opened`

func newPipe(stdin, stderr *os.File) *cobra.Command {
	cmd, _ := pipeCommand(stdin, stderr)
	return cmd
}

// multilineHelp describes the flag --multiline in the help of forebay pipe and forebay tail.
const multilineHelp = `--multiline joins several lines into one record. go, java, dotnet, node, python, ruby and rust
join stack traces. cri and docker join the partial lines of container runtimes and remove
their wrapping. auto selects all of these. Any other value is a regular expression for the
first line of a record, such as '^\d{4}-'. The flag may be repeated: --multiline cri
--multiline java. A record ends a second after its last line, after 1000 lines, or at
--max-record.`

// pipeCommand returns the command forebay pipe and the configuration that its flags set.
func pipeCommand(stdin, stderr *os.File) (*cobra.Command, *config.Pipeline) {
	c := &config.Pipeline{
		Dests:        dest.All(),
		Options:      dest.NewGiven(),
		MaxRecord:    *setting.SizeBetween(layout.DefaultMaxRecord, 1, config.MaxRecordFlag),
		DrainTimeout: setting.Duration(30 * time.Second),
	}
	format := setting.Choice{Value: record.Auto.String(), Of: record.Formats()}
	times := setting.Choice{Value: "line", Of: intake.TimeNames}
	explain := false
	cmd := &cobra.Command{
		Use:   "pipe",
		Short: "Read lines from standard input and deliver them",
		Long: `Read lines from standard input and deliver them to every --to.

Memory: each destination has a separate pool of --slabs × --slab-size. While the pool has
room, a stalled destination does not delay the program that writes. When it is full,
--when-full selects the action; by default the pipe stops reading. With spill the oldest
lines go to --spool and are delivered from there in order.

Lines: every line is a record, even an empty one. It can have any length up to --max-record
and contain any bytes. --encode raw delivers the same bytes. json and logfmt write a record
with the time and level of the line.

` + multilineHelp + ` If the last line has no newline, --multiline adds one.

Charset: --charset names the character set of the input. Every line is converted to UTF-8 before
anything else, also with --encode raw. Without it, bytes that are not valid UTF-8 are delivered
unchanged.

Format: --format auto detects for each line whether it is a JSON object, logfmt or text. A
line that cannot be parsed is text and is never lost.

Time: in JSON and logfmt the time is read from the usual fields. In text it is the first date
with a time in the first 96 bytes, in the form of nginx, Apache, syslog, PostgreSQL, MySQL,
Redis, Java, Python, klog, auditd, Cisco and others. A date without a year is taken as its most
recent occurrence. It is used only if no full date follows. The time is sent to Loki and Forward
destinations and in the syslog header. It is also written when text is converted to JSON or
logfmt. For a line without a time, its arrival time, at which it was read, is sent to Loki,
Forward and syslog; JSON and logfmt get no time. --time now uses the arrival time for all lines,
and leaves fields of JSON and logfmt unchanged.

Level: in JSON and logfmt the level is read from the usual fields. In text it is a word in a
position for levels: in brackets ([error]), in a column (12:00:00 [main] INFO), before the
message (error: x), or in the forms of glog, Android, syslog and Cisco. A word in a sentence is
not a level. --level drops lines below a level; lines without a recognized level are delivered.
--explain prints how the format, time and level of the first lines were determined.

End: at the end of the input, or on Ctrl-C or SIGTERM, the remaining lines are delivered for at
most --drain-timeout. A second signal ends the program at once. A repetition of the first signal
within 0.25 s is ignored, because timeout(1) sends its signal twice. A destination that is down is
probed for 70 % of --drain-timeout, even with --spool; the next run delivers the lines that are
then in the spool. SIGHUP reopens files. One line on standard error accounts for every record;
docs/OPERATING.md explains it and all other messages.

An output ends when its reader has closed the pipe (| head). Its lines go to --fallback,
--spool or --dead-letter if given, and are counted as failed otherwise. The other outputs
continue.

Failures: failed lines are sent again in order. While a destination is down, lines wait in
--spool if given, otherwise in the slabs. If more than --pending-limit wait, they go to
--fallback if given. The next run with the same --to delivers the spool first. Lines that a
destination refuses permanently go to --dead-letter or, with --spool, to dead-letters.jsonl in
the spool directory of the destination; without both they are only counted. Failed lines older
than --retry-age are dropped. This paragraph applies to destinations on the network, and to all
destinations if --fallback, --spool, --dead-letter or --retry-age is given.

Crashes: --crash-safe keeps lines that were read and not yet delivered, even if the program is
killed. The next run delivers them first, and forebay spool shows them. A line that the
program was copying into a slab may be delivered twice, and a line that was partly read may be
cut. The best place for the directory is a tmpfs. If --crash-safe is unavailable, the program
reports that and uses slabs in memory, unless --crash-safe-required is given.

Dry run: with --dry-run nothing is sent, and the data that would be sent is printed on standard
output. The records of earlier runs are neither printed nor changed, and --fallback, --spool,
--dead-letter and --crash-safe are not used. A destination that does not support a dry run is
refused (78). The exit code is 0 if every line was printed, and 1 if a line would be refused or
could not be printed.

Destinations:
` + dest.UsageOf(c.Dests) + `
A flag whose description begins with ` + console.InWords(append([]string{"file", "TLS", "forward", "loki", "otlp", "http"}, dest.MoreFamilies...), "or") + ` applies only to
destinations of that kind; TLS means all destinations with encryption.

--encode and all flags listed after it are options of every --to that supports them. An option
can also follow a ? in a --to, under the same name and for that destination alone, as in the
third example. Such an option overrides the flag; label and metadata replace all values of the
flag. A switch needs no value (?mkdirs). The options of syslog (facility, hostname, app, procid,
msgid) have no flag. --fallback accepts the options of its kind of destination.

The first ? of a --to begins its options. In a path, write %3F for ? and %25 for %. In the
value of an option, write %26 for &, %25 for %, and %40 for @, because a --to that names a server
must not contain @. Put passwords, keys and tokens into files, such as --bearer-token-file. Other
users of the machine can read the command line: a header or param with a secret is accepted, with
a warning. In the file of forebay run, write ${NAME} for an environment variable.

The next run delivers the records in --spool and --crash-safe to the --to with the same
destination and the same label, label-from, tenant, tag, tag-from, resource, hec and syslog
options. The other options may change from run to run.

A flag that no --to supports is an error, and so is an option that its --to does not support.

` + exitHelp,
		Example: `  myapp 2>&1 | forebay pipe --to file:app.log --rotate-size 100MiB --keep 7 --compress gzip
  myapp 2>&1 | forebay pipe --multiline java --encode json --to tcp://logs:5170
  myapp | forebay pipe --to 'file:all.log?rotate-size=100MiB&keep=7' --to 'loki://logs:3100?level=warn&label=app:shop'
  forebay pipe --encode json --level warn --to file:warnings.jsonl < app.log
  myapp | forebay pipe --to stdout: --to file:all.log --when-full drop-newest | less
  myapp | forebay pipe --to file:/mnt/nfs/app.log --spool /var/spool/forebay --spool-max 10GiB
  myapp | forebay pipe --to tcp://logs:5170 --crash-safe /dev/shm/forebay`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.Format, _ = record.ParseFormat(format.Value)
			c.Times = intake.ParseTimes(times.Value)
			if explain {
				if err := c.Settle(); err != nil {
					return err
				}
				return explainLines(c, cmd.OutOrStdout(), stdin)
			}
			return run.RunPipe(c, stdin, stderr)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVar(&c.To, "to", nil, "destination `DEST`, see above; may be repeated (default stdout:)")
	format.Add(cmd, "format", "f", "format of the lines")
	times.Add(cmd, "time", "", "time of a record. line: the time in the line; now: the arrival time; line-or-now: the time in the line or, if it has none, the arrival time, marked time_from=arrival")
	fs.Var(&c.Zone, "zone", "`ZONE` of times without a zone, such as Europe/Berlin or +02:00 (default: the system's)")
	fs.Var(&c.Charset, "charset", "character set `NAME` of the input, such as utf-16, latin1 or windows-1252; a byte order mark at the start overrides it")
	setting.Complete(cmd, "charset", charset.Names()...)
	fs.StringArrayVar(&c.Multiline, "multiline", nil, "join lines into records: go, java, dotnet, node, python, ruby, rust, cri, docker, auto, or a `PATTERN` of first lines; may be repeated (default: off)")
	setting.Complete(cmd, "multiline", join.Names...)
	fs.Var(&c.MaxRecord, "max-record", "maximum length of a line; longer lines are dropped and counted")
	fs.Var(&c.DrainTimeout, "drain-timeout", "time to deliver remaining lines after the end of the input or a signal")
	fs.BoolVar(&c.FailOnDrop, "fail-on-drop", false, "exit with code 3 if a record was dropped")
	fs.StringVar(&c.Name, "name", "forebay", "`NAME` of this process, printed before its messages")
	fs.BoolVarP(&c.Quiet, "quiet", "q", false, "print only errors: no progress line on the terminal and no text summary")
	fs.BoolVar(&c.DryRun, "dry-run", false, "print the data on standard output instead of sending it; not supported by file:, stdout:, stderr:, tcp:, tls:, unix: and syslog destinations")
	fs.BoolVar(&explain, "explain", false, "print format, time and level of the first ten lines with the reasons, and deliver nothing")
	c.Ops.Add(cmd)
	c.Options.AddFlags(cmd, dest.AnyOption)
	var schemes []string
	for _, d := range c.Dests {
		schemes = append(schemes, d.Scheme()+":")
	}
	for _, flag := range []string{"to", "fallback"} {
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(schemes, cobra.ShellCompDirectiveNoSpace)); err != nil {
			panic(err) // cmd has no such flag
		}
	}
	return cmd, c
}
