package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/forebay/internal/units"
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
	name          string
	to            []string
	dests         []destination
	format        record.Format
	encoding      record.Encoding
	level         level
	slabSize      size
	slabs         int
	flushInterval duration
	whenFull      whenFull
	maxRecord     size
	slabsGiven    bool // one of the two flags
	drainTimeout  duration
	failOnDrop    bool
	quiet         bool
	dryRun        bool
	ops           opsFlags
	deliveryFlags
}

func newPipe(stdin, stderr *os.File) *cobra.Command {
	c := &pipeConfig{
		dests:         destinations(),
		slabSize:      size{slab.DefaultSlabBytes, slab.MinSlabBytes, slab.MaxSlabBytes},
		flushInterval: duration(100 * time.Millisecond),
		whenFull:      whenFull{slab.Block()},
		maxRecord:     size{slab.DefaultMaxRecord, 1, maxRecordFlag},
		drainTimeout:  duration(30 * time.Second),
		deliveryFlags: newDeliveryFlags(),
	}
	format := choice{value: record.Auto.String(), of: record.Formats()}
	encoding := choice{value: record.AsRaw.String(), of: record.Encodings()}
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

--format auto looks at each line: a JSON object, logfmt, or text. What cannot be
parsed is text, never lost.

--level leaves out lines below a level. Lines without a recognisable level stay.

At the end of the input, and when stopped (Ctrl-C, SIGTERM), everything read is
delivered, for at most --drain-timeout; a second signal gives up at once. With
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
Flags whose text begins with file, TLS, forward or loki concern these alone.

` + exitHelp,
		Example: `  myapp 2>&1 | forebay pipe --to file:app.log --rotate-size 100MiB --keep 7 --compress gzip
  forebay pipe --encode json --level warn --to file:warnings.jsonl < app.log
  myapp | forebay pipe --to stdout: --to file:all.log --when-full drop-newest | less
  myapp | forebay pipe --to file:/mnt/nfs/app.log --spool /var/spool/forebay --spool-max 10GiB
  myapp | forebay pipe --to tcp://logs:5170 --crash-safe /dev/shm/forebay`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.format, _ = record.ParseFormat(format.value)
			c.encoding, _ = record.ParseEncoding(encoding.value)
			if err := c.settle(cmd); err != nil {
				return usageError(err)
			}
			return runPipe(c, stdin, stderr)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVar(&c.to, "to", nil, "`DEST` to deliver to, see above; may be repeated (default stdout:)")
	format.add(cmd, "format", "f", "what the lines are")
	encoding.add(cmd, "encode", "", "what to deliver them as")
	fs.Var(&c.level, "level", "the lowest level to deliver: trace, debug, info, warn, error or fatal")
	fs.Var(&c.slabSize, "slab-size", "size of one slab of memory, and of one write")
	fs.IntVar(&c.slabs, "slabs", 8, "use `N` slabs for each destination, see forebay size; file: uses 16 and loki: 64 unless this or --slab-size is given")
	fs.Var(&c.flushInterval, "flush-interval", "how long a line waits at most for its slab to fill")
	fs.Var(&c.whenFull, "when-full", "when no slab is free: block, block-for=DURATION, drop-newest, drop-oldest, spill")
	fs.Var(&c.maxRecord, "max-record", "the longest line; longer ones are dropped, and counted")
	fs.Var(&c.drainTimeout, "drain-timeout", "how long to go on delivering after the end of the input or a signal")
	fs.BoolVar(&c.failOnDrop, "fail-on-drop", false, "exit with 3 if a record was dropped")
	fs.StringVar(&c.name, "name", "forebay", "`NAME` of this pipe, in front of its messages")
	fs.BoolVarP(&c.quiet, "quiet", "q", false, "no live line and no summary in words, errors only")
	c.ops.add(cmd)
	c.deliveryFlags.add(cmd)
	for _, d := range c.dests {
		d.Flags(cmd)
	}
	var schemes []string
	for _, d := range c.dests {
		schemes = append(schemes, d.Scheme()+":")
	}
	for _, flag := range []string{"to", "fallback"} {
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(schemes, cobra.ShellCompDirectiveNoSpace)); err != nil {
			panic(err) // no such flag
		}
	}
	complete(cmd, "level", "trace", "debug", "info", "warn", "error", "fatal")
	complete(cmd, "when-full", "block", "block-for=250ms", "drop-newest", "drop-oldest", "spill")
	return cmd
}

// settle checks the flags of cmd against each other, and fills in what depends on
// which of them are given.
func (c *pipeConfig) settle(cmd *cobra.Command) error {
	c.slabsGiven = cmd.Flags().Changed("slabs") || cmd.Flags().Changed("slab-size")
	if c.slabs < 2 || c.slabs > slab.MaxSlabCount {
		return fmt.Errorf("--slabs %d: use 2 (one is filled while the other is written) to %d", c.slabs, slab.MaxSlabCount)
	}
	if total := int64(c.slabs) * c.slabSize.value; total > maxMemory {
		return fmt.Errorf("--slabs %d of --slab-size %s are %s of memory for each destination: use %s or less",
			c.slabs, units.FlagSize(c.slabSize.value), units.FlagSize(total), units.FlagSize(maxMemory))
	}
	if err := c.ops.check(); err != nil {
		return err
	}
	if err := c.deliveryFlags.check(cmd); err != nil {
		return err
	}
	if c.spills() && c.spool == "" {
		return errors.New("--when-full spill needs a place for what it puts aside: add --spool DIR")
	}
	if len(c.to) == 0 {
		c.to = []string{"stdout:"}
	}
	if c.dryRun = cmd.Flag("dry-run").Value.String() == "true"; c.dryRun {
		// Nothing is sent: what an earlier run has left stays where it is, and
		// nothing is added to it.
		c.deliveryFlags = newDeliveryFlags()
		if c.spills() {
			c.whenFull = whenFull{slab.Block()}
		}
	}
	return nil
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

// spills reports whether lines go to the spool when the slabs are full.
func (c *pipeConfig) spills() bool { return c.whenFull.WhenFull == slab.Spill() }

// slabOptions returns the options of an output with directories of that name.
func (c *pipeConfig) slabOptions(dir string, t *target) *slab.Options {
	o := &slab.Options{
		SlabBytes:     int(c.slabSize.value),
		SlabCount:     c.slabs,
		FlushInterval: max(time.Duration(c.flushInterval), time.Microsecond), // 0 is "at once" here
		WhenFull:      c.whenFull.WhenFull,
		Codec:         c.encoding.Codec(),
	}
	if c.crashSafe != "" {
		o.Crash = slab.CrashSafe(filepath.Join(c.crashSafe, dir))
		o.Crash.Required = c.mustBeSafe
		if t.encode == nil { // it takes lines of any kind, such as those of another --encode
			o.Crash.Codec = lineCodec
		}
	}
	if !c.slabsGiven {
		o.SlabCount = max(o.SlabCount, t.memory/o.SlabBytes)
	}
	switch {
	case t.encode != nil:
		o.MaxRecord, o.Codec = slab.MaxSlabBytes, t.codec
	case c.encoding == record.AsRaw:
		o.MaxRecord = int(c.maxRecord.value) + len("\r\n")
	default:
		// A line at the limit may grow: "\u0000" stands for one byte.
		o.MaxRecord = int(min(6*c.maxRecord.value+4<<10, slab.MaxSlabBytes))
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
