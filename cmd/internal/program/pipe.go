package program

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/join"
	"github.com/forebay-log/forebay/cmd/internal/transform"
	"github.com/forebay-log/forebay/cmd/internal/units"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/slab"
)

// maxRecordFlag is the most that --max-record takes. Written as JSON a line can
// become longer than it is, and a record cannot exceed slab.MaxSlabBytes.
const maxRecordFlag = slab.MaxSlabBytes / 2

// maxMemory is the most memory that the slabs of one destination may take. Beyond
// what a machine has, the Go runtime ends the program without a useful word.
const maxMemory = 64 << 30

// pipeConfig is what the flags of pipe say.
type pipeConfig struct {
	name    string
	to      []string
	dests   []destination
	options givenOptions // for all outputs
	reading
	maxRecord    size
	drainTimeout duration
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
	fallbacks map[path]*outputConfig // by what --fallback says
}

func newPipe(stdin, stderr *os.File) *cobra.Command {
	cmd, _ := pipeCommand(stdin, stderr)
	return cmd
}

// multilineHelp is what pipe and tail say of --multiline.
const multilineHelp = `--multiline makes several lines one record: go, java, dotnet, node, python, ruby and rust
know stack traces; cri and docker are what container runtimes write, whose lines are put together and taken
out of their wrapping; auto is all of them; everything else is a regular expression for
the first line of a record, such as '^\d{4}-'. It may be repeated: --multiline cri
--multiline java. A record ends a second after its last line, after 1000 lines, or at
--max-record.`

// pipeCommand returns pipe, and what its flags set.
func pipeCommand(stdin, stderr *os.File) (*cobra.Command, *pipeConfig) {
	c := &pipeConfig{
		dests:        destinations(),
		options:      newGivenOptions(),
		maxRecord:    size{slab.DefaultMaxRecord, 1, maxRecordFlag},
		drainTimeout: duration(30 * time.Second),
	}
	format := choice{value: record.Auto.String(), of: record.Formats()}
	times := choice{value: "line", of: timeNames}
	explain := false
	cmd := &cobra.Command{
		Use:   "pipe",
		Short: "Read lines from standard input and deliver them",
		Long: `Read lines from standard input and deliver them to every --to.

Each destination has a pool of memory of its own (--slabs × --slab-size). As long
as it is not full, a destination that stalls is not noticed by the program that
writes. When it is full, --when-full says what happens: in a pipe, reading waits.
With spill the oldest lines go to --spool instead, and come back from there in order.

A line is a record, an empty one too. It may be of any length up to --max-record,
and hold any bytes. With --encode raw it is delivered byte for byte; json and
logfmt make a record of it, with the time and level that the line has.

` + multilineHelp + ` A last line without a newline gets one.

--format auto looks at each line: a JSON object, logfmt, or text. What cannot be
parsed is text, never lost.

The time is that in the usual fields of JSON and logfmt; in text it is the first date with
a time in the first 96 bytes, in the form of nginx, Apache, syslog, PostgreSQL, MySQL, Redis,
Java, Python, klog, auditd, Cisco and others. One without a year is the last such one, and
counts only if no full date follows. It becomes the time of a record at Loki and Forward,
in the header of syslog, and where text becomes JSON or logfmt; a line without a time has
that of its arrival there, and none in JSON and logfmt. --time now takes the arrival for
all lines; fields of JSON and logfmt stay as they are.

The level is that in the usual fields of JSON and logfmt. In text it is a word in a place for
levels: in brackets ([error]), in a column (12:00:00 [main] INFO), in front of the message
(error: x), or what glog, Android, syslog and Cisco have for it. No word of a sentence is.
--explain prints the reasons.

--level leaves out lines below a level. Lines without a recognisable level stay.

At the end of the input, and when stopped (Ctrl-C, SIGTERM), everything read is
delivered, for at most --drain-timeout; a second signal gives up at once (the same
one again within 0.25 s, as timeout(1) sends it, counts once). With
--spool it does not wait for a destination that is down: the next run delivers what
is there. SIGHUP opens files anew. One line on standard error tells what became of
every record; docs/OPERATING.md explains its words, and what to do about other
messages.

An output whose reader is gone (| head) ends. Its lines are counted as failed, or
go to --fallback, --spool or --dead-letter if there is one; the others go on.

What a destination does not take is tried again, in order. While a destination is
down, lines go to --fallback (once more than --pending-limit wait), else into
--spool, else they wait in the slabs. A spool is read by the next run with the
same --to, which delivers it first. Lines that a destination refuses for good go
to --dead-letter or, with --spool, to dead-letters.jsonl in the directory of their
destination there; without both they are only counted. On the network, and with any of
--fallback, --spool, --dead-letter and --retry-age, a line that failed is given up
when it is older than --retry-age. --crash-safe keeps what was read and not yet
delivered even if the program is killed; the next run delivers it first, and forebay
spool shows it. The line that was just being accepted may come twice, and one that was
half read be cut. A tmpfs is the best place for it. Where it cannot be had, that is
said, and the slabs are in memory as ever, unless --crash-safe-required is given.

With --dry-run nothing is sent: what would be is shown on standard output. What an
earlier run has left is not shown and stays where it is, and --fallback, --spool,
--dead-letter and --crash-safe are left alone. Destinations that have no dry run are
refused (78), not written to. The program exits with 0 if every line was shown, with
1 if one would be refused, or could not be shown.

Destinations:
` + usageOf(c.dests) + `
Flags whose text begins with ` + inWords(append([]string{"file", "TLS", "forward", "loki", "otlp", "http"}, moreFamilies...), "or") + ` concern these alone.

From --encode on, a flag is an option of every --to that knows it. A --to can have options
of its own behind a ?, by the same names, as in the second example. They win over the
flags; label and metadata stand in place of all that the flag says. A switch needs no
value (?mkdirs). Those of syslog (facility, hostname, app, procid, msgid) have no flag.
--fallback takes the options of its kind of destination.

The first ? of a --to begins its options. In a path, %3F is a ? and %25 a %. In the value of
an option, %26 is a &, %25 a %, and %40 an @, which no --to with a server may have. No option
holds a secret: passwords, keys and tokens are in files.

Records in --spool and --crash-safe belong to a --to without its options, but for label,
label-from, tenant, tag, tag-from, resource, hec and those of syslog: the others may change
from run to run.

A flag that no --to knows is an error, and so is an option that its --to does not know.

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
			c.format, _ = record.ParseFormat(format.value)
			c.times = parseTimes(times.value)
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
	fs.StringArrayVar(&c.to, "to", nil, "`DEST` to deliver to, see above; may be repeated (default stdout:)")
	format.add(cmd, "format", "f", "what the lines are")
	times.add(cmd, "time", "", "the time of a line: the one in it, the one when it is read, or that where it has none, with time_from=arrival")
	fs.Var(&c.zone, "zone", "the `ZONE` of times that name none, such as Europe/Berlin or +02:00 (default: the system's)")
	fs.StringArrayVar(&c.multiline, "multiline", nil, "which lines are one record: go, java, dotnet, node, python, ruby, rust, cri, docker, auto, or a `PATTERN`; may be repeated")
	complete(cmd, "multiline", join.Names...)
	fs.Var(&c.maxRecord, "max-record", "the longest line; longer ones are dropped, and counted")
	fs.Var(&c.drainTimeout, "drain-timeout", "how long to go on delivering after the end of the input or a signal")
	fs.BoolVar(&c.failOnDrop, "fail-on-drop", false, "exit with 3 if a record was dropped")
	fs.StringVar(&c.name, "name", "forebay", "`NAME` of this pipe, in front of its messages")
	fs.BoolVarP(&c.quiet, "quiet", "q", false, "no live line and no summary in words, errors only")
	fs.BoolVar(&c.dryRun, "dry-run", false, "show on standard output what would be sent, and send nothing; not for files, standard streams, lines and syslog")
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
		return usageError(err)
	}
	var err error
	if c.join, err = join.Parse(c.multiline); err != nil {
		return usageError(fmt.Errorf("--multiline: %w", err))
	}
	if len(c.to) == 0 {
		c.to = []string{"stdout:"}
	}
	c.options.base.dryRun = c.dryRun
	c.outs, c.fallbacks = nil, map[path]*outputConfig{}
	for _, to := range c.to {
		out, err := c.options.output(c.dests, "--to", to, anyOption)
		if err != nil {
			return err
		}
		c.outs = append(c.outs, out)
	}
	for _, out := range c.outs {
		if out.Fallback == "" || c.fallbacks[out.Fallback] != nil {
			continue
		}
		f, err := c.options.output(c.dests, "--fallback", string(out.Fallback), ownOption)
		if err != nil {
			return err
		}
		c.fallbacks[out.Fallback] = f
	}
	return c.options.unheeded()
}

// noArgs refuses arguments and guesses what was meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	const head = "%s takes no argument, and %q is one; "
	switch path, arg := cmd.CommandPath(), args[0]; cmd.Name() {
	case "pipe":
		return usageError(fmt.Errorf(head+"the input is standard input (< %s) and destinations are given with --to", path, arg, arg))
	case "size":
		return usageError(fmt.Errorf(head+"to measure a file, write --measure %s", path, arg, arg))
	default:
		return usageError(fmt.Errorf(head+"use its flags", path, arg))
	}
}

// slabOptions returns the options of the memory of an output, whose directories have
// that name. No line is longer than maxRecord.
func (c *outputConfig) slabOptions(dir string, t *target, maxRecord int) *slab.Options {
	o := &slab.Options{
		SlabBytes:     int(c.SlabSize.value),
		SlabCount:     c.Slabs.value,
		FlushInterval: max(time.Duration(c.FlushInterval), time.Microsecond), // 0 is "at once" here
		WhenFull:      c.WhenFull.WhenFull,
		Codec:         c.encoding().Codec(),
	}
	if c.CrashSafe != "" {
		o.Crash = slab.CrashSafe(filepath.Join(string(c.CrashSafe), dir))
		o.Crash.Required = bool(c.CrashSafeRequired)
		if t.newEncoder == nil { // it takes lines of any kind, such as those of another --encode
			o.Crash.Codec = lineCodec
		}
	}
	if !c.given["slabs"] && !c.given["slab-size"] {
		o.SlabCount = max(o.SlabCount, t.memory/o.SlabBytes)
	}
	if t.batched {
		o.FlushLevel = slog.Level(math.MaxInt8 + 1) // no record has it
	}
	switch {
	case t.newEncoder != nil:
		o.MaxRecord, o.Codec = slab.MaxSlabBytes, t.codec
	case c.encoding() == record.AsRaw:
		o.MaxRecord = maxRecord + len("\r\n")
	default:
		// A line at the limit may grow: "\u0000" stands for one byte.
		o.MaxRecord = min(6*maxRecord+4<<10, slab.MaxSlabBytes)
	}
	return o
}

// lineCodec returns the codec of a form whose records are lines.
func lineCodec(contentType string, _ uint32) (batch.Codec, bool) {
	if contentType == "" {
		return nil, true
	}
	return encode.CodecFor(contentType)
}

// memory describes what an output takes.
func memory(o *slab.Options) string {
	return fmt.Sprintf("%d × %s", o.SlabCount, units.Size(float64(o.SlabBytes)))
}
