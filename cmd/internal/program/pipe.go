package program

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/cmd/internal/transform"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/slab"
)

// maxRecordFlag is the most that --max-record takes. Written as JSON a line can
// become longer than it is, and a record cannot exceed slab.MaxSlabBytes.
const maxRecordFlag = slab.MaxSlabBytes / 2

// pipeConfig is what the flags of pipe say.
type pipeConfig struct {
	name    string
	to      []string
	dests   []destination
	options givenOptions // for all outputs
	reading
	maxRecord    setting.Size
	drainTimeout setting.Duration
	failOnDrop   bool
	quiet        bool
	dryRun       bool
	multiline    []string
	tail         *tailFlags // nil: the input is standard input
	ops          opsFlags
	named        bool // outputs have names of their own, and --to is called to

	// What settle makes of it.
	join      *join.Rules // nil: each line is a record
	declared  []string    // names of inputs in a file, the faulty ones included
	partial   bool        // a file was not read to its end
	inputs    []*inputConfig
	rules     []transform.Rule
	outs      []*outputConfig
	fallbacks map[string]*outputConfig // by what --fallback says
}

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

// multilineHelp describes --multiline in the help of pipe and tail.
const multilineHelp = `--multiline joins several lines to one record. go, java, dotnet, node, python, ruby and rust
join stack traces. cri and docker join the partial lines of container runtimes and remove
their wrapping. auto selects all of these. Any other value is a regular expression for the
first line of a record, such as '^\d{4}-'. The flag may be repeated: --multiline cri
--multiline java. A record ends a second after its last line, after 1000 lines, or at
--max-record.`

// pipeCommand returns pipe, and what its flags set.
func pipeCommand(stdin, stderr *os.File) (*cobra.Command, *pipeConfig) {
	c := &pipeConfig{
		dests:        destinations(),
		options:      newGivenOptions(),
		maxRecord:    *setting.SizeBetween(slab.DefaultMaxRecord, 1, maxRecordFlag),
		drainTimeout: setting.Duration(30 * time.Second),
	}
	format := setting.Choice{Value: record.Auto.String(), Of: record.Formats()}
	times := setting.Choice{Value: "line", Of: timeNames}
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

` + multilineHelp + ` If the last line has no newline, one is added.

Format: --format auto detects for each line whether it is a JSON object, logfmt or text. A
line that cannot be parsed is text and is never lost.

Time: in JSON and logfmt the time is read from the usual fields. In text it is the first date
with a time in the first 96 bytes, in the form of nginx, Apache, syslog, PostgreSQL, MySQL,
Redis, Java, Python, klog, auditd, Cisco and others. A date without a year means its latest
occurrence, and is used only if no full date follows. The time is sent to Loki and Forward and
in the header of syslog, and is written when text becomes JSON or logfmt. A line without a
time has its arrival time at Loki, Forward and syslog, and no time in JSON and logfmt.
--time now uses the arrival time for all lines, and leaves fields of JSON and logfmt unchanged.

Level: in JSON and logfmt the level is read from the usual fields. In text it is a word in a
position for levels: in brackets ([error]), in a column (12:00:00 [main] INFO), before the
message (error: x), or in the forms of glog, Android, syslog and Cisco. A word in a sentence is
not a level. --explain prints the reasons. --level drops lines below a level; lines without a
recognized level are delivered.

End: at the end of the input, or on Ctrl-C or SIGTERM, the remaining lines are delivered for at
most --drain-timeout. A second signal ends the program at once; the same signal again within
0.25 s, as timeout(1) sends it, counts once. With --spool the program does not wait for a
destination that is down; the next run delivers the lines in the spool. SIGHUP reopens files.
One line on standard error accounts for every record; docs/OPERATING.md explains it and all
other messages.

An output ends when its reader has closed the pipe (| head). Its lines go to --fallback,
--spool or --dead-letter if given, and are counted as failed otherwise. The other outputs
continue.

Failures: failed lines are sent again in order. While a destination is down, lines go to
--fallback when more than --pending-limit wait, else to --spool, else they wait in the slabs.
The next run with the same --to reads the spool and delivers it first. Lines that a
destination refuses permanently go to --dead-letter or, with --spool, to dead-letters.jsonl in
the spool directory of the destination; without both they are only counted. On the network,
and with any of --fallback, --spool, --dead-letter and --retry-age, a failed line is dropped
when it is older than --retry-age.

Crashes: --crash-safe keeps lines that were read and not yet delivered, even if the program is
killed. The next run delivers them first, and forebay spool shows them. A line that was being
accepted may be delivered twice, and a line that was partly read may be cut. The best place is
a tmpfs. If --crash-safe is unavailable, the program reports that and uses slabs in memory,
unless --crash-safe-required is given.

Dry run: with --dry-run nothing is sent, and the data that would be sent is printed on standard
output. The records of earlier runs are neither printed nor changed, and --fallback, --spool,
--dead-letter and --crash-safe are not used. A destination without a dry run is refused (78).
The exit code is 0 if every line was printed, and 1 if a line would be refused or could not be
printed.

Destinations:
` + usageOf(c.dests) + `
Flags described with ` + console.InWords(append([]string{"file", "TLS", "forward", "loki", "otlp", "http"}, moreFamilies...), "or") + ` apply only to these destinations.

The flags from --encode on are options of every --to that supports them. An option can also
follow a ? in a --to, under the same name and for that destination alone, as in the third
example. Such an option overrides the flag; label and metadata replace all values of the flag.
A switch needs no value (?mkdirs). The options of syslog (facility, hostname, app, procid,
msgid) have no flag. --fallback accepts the options of its kind of destination.

The first ? of a --to begins its options. In a path, write %3F for ? and %25 for %. In the
value of an option, write %26 for &, %25 for %, and %40 for @, because a --to with a server
must not contain @. No option holds a secret: passwords, keys and tokens are in files.

Records in --spool and --crash-safe belong to a --to without its options, except label,
label-from, tenant, tag, tag-from, resource, hec and the options of syslog. The other options
may change from run to run.

A flag that no --to supports is an error, and so is an option that its --to does not support.

` + exitHelp,
		Example: `  myapp 2>&1 | forebay pipe --to file:app.log --rotate-size 100MiB --keep 7 --compress gzip
  myapp 2>&1 | forebay pipe --multiline java --encode json --to tcp://logs:5170
  myapp | forebay pipe --to 'file:all.log?rotate-size=100MiB&keep=7' --to 'loki://logs:3100?level=warn&label=app:shop'
  forebay pipe --encode json --level warn --to file:warnings.jsonl < app.log
  myapp | forebay pipe --to stdout: --to file:all.log --when-full drop-newest | less
  myapp | forebay pipe --to file:/mnt/nfs/app.log --spool /var/spool/forebay --spool-max 10GiB
  myapp | forebay pipe --to tcp://logs:5170 --crash-safe /dev/shm/forebay`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.format, _ = record.ParseFormat(format.Value)
			c.times = parseTimes(times.Value)
			if explain {
				if err := c.settle(); err != nil {
					return err
				}
				return c.explain(cmd.OutOrStdout(), stdin)
			}
			return runPipe(c, stdin, stderr)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVar(&c.to, "to", nil, "destination `DEST`, see above; may be repeated (default stdout:)")
	format.Add(cmd, "format", "f", "format of the lines")
	times.Add(cmd, "time", "", "time of a record: its time in the line, its arrival, or its arrival if the line has none, marked time_from=arrival")
	fs.Var(&c.zone, "zone", "`ZONE` of times without a zone, such as Europe/Berlin or +02:00 (default: the system's)")
	fs.StringArrayVar(&c.multiline, "multiline", nil, "join lines to records: go, java, dotnet, node, python, ruby, rust, cri, docker, auto, or a `PATTERN` of first lines; may be repeated (default: off)")
	setting.Complete(cmd, "multiline", join.Names...)
	fs.Var(&c.maxRecord, "max-record", "maximum length of a line; longer lines are dropped and counted")
	fs.Var(&c.drainTimeout, "drain-timeout", "time to deliver remaining lines after the end of the input or a signal")
	fs.BoolVar(&c.failOnDrop, "fail-on-drop", false, "exit with code 3 if a record was dropped")
	fs.StringVar(&c.name, "name", "forebay", "`NAME` of this process, printed before its messages")
	fs.BoolVarP(&c.quiet, "quiet", "q", false, "print only errors, without the live line and the text summary")
	fs.BoolVar(&c.dryRun, "dry-run", false, "print the data on standard output instead of sending it; not for files, standard streams, lines and syslog")
	fs.BoolVar(&explain, "explain", false, "print format, time and level of the first ten lines with the reasons, and deliver nothing")
	c.ops.add(cmd)
	c.options.addFlags(cmd, anyOption)
	var schemes []string
	for _, d := range c.dests {
		schemes = append(schemes, d.Scheme()+":")
	}
	for _, flag := range []string{"to", "fallback"} {
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(schemes, cobra.ShellCompDirectiveNoSpace)); err != nil {
			panic(err) // no such flag
		}
	}
	return cmd, c
}

// settle works out what each output is told. The error has its exit code.
func (c *pipeConfig) settle() error {
	if err := c.ops.check(); err != nil {
		return exit.Usage(err)
	}
	var err error
	if c.join, err = join.Parse(c.multiline); err != nil {
		return exit.Usage(fmt.Errorf("--multiline: %w", err))
	}
	if len(c.to) == 0 {
		c.to = []string{"stdout:"}
	}
	c.options.base.dryRun = c.dryRun
	c.outs, c.fallbacks = nil, map[string]*outputConfig{}
	for _, to := range c.to {
		out, err := c.options.output(c.dests, "--to", to, anyOption)
		if err != nil {
			return err
		}
		c.outs = append(c.outs, out)
	}
	for _, out := range c.outs {
		if out.Text("fallback") == "" || c.fallbacks[out.Text("fallback")] != nil {
			continue
		}
		f, err := c.options.output(c.dests, "--fallback", out.Text("fallback"), ownOption)
		if err != nil {
			return err
		}
		c.fallbacks[out.Text("fallback")] = f
	}
	return c.options.unheeded()
}

// noArgs refuses arguments and guesses what was meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	const head = "%s has no arguments, but %q is given; "
	switch path, arg := cmd.CommandPath(), args[0]; cmd.Name() {
	case "pipe":
		return exit.Usage(fmt.Errorf(head+"redirect the input (< %s), and give destinations with --to", path, arg, arg))
	case "size":
		return exit.Usage(fmt.Errorf(head+"to measure a file, write --measure %s", path, arg, arg))
	default:
		return exit.Usage(fmt.Errorf(head+"use its flags", path, arg))
	}
}
