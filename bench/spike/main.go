// Command spike measures the latency of log calls while the destination stalls at intervals, in
// three modes: one write per record (sync), a mutex and a buffer of 64 KiB (buffered), and slabs
// (forebay), which are planned for the stall by slab.Plan.
//
//	GOWORK=off go -C bench run ./spike
//	GOWORK=off go -C bench run ./spike -rate 50000 -stall 1s -every 10s -plot spike.svg
//	GOWORK=off go -C bench run ./spike -compare forebay -duration 10s -assert p99=50us -assert max=5ms
//
// Calls follow a schedule. The latency of a call is counted from its scheduled time, even if an
// earlier call delayed it. At the end of -duration, callers may catch up for -stall plus half a
// second. Calls that were due and not made by then are counted with their wait, and reported as
// late.
//
// The exit code is 99 if a limit of -assert is exceeded. It is 1 if records were lost, if no call
// was made, or if -assert is given and no stall delayed the destination, unless -stall is 0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/slab"
)

// Exit codes. 0 is success.
const (
	exitFailed = 1
	exitUsage  = 2
	exitAssert = 99
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// A bound is the limit of one -assert.
type bound struct {
	text     string
	quantile float64
	limit    time.Duration
}

func parseBound(s string) (bound, error) {
	fail := fmt.Errorf("%q: use PERCENTILE=DURATION, such as p99.9=20us or max=1ms", s)
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return bound{}, fail
	}
	b := bound{text: s, quantile: 1}
	if name != "max" {
		p, err := strconv.ParseFloat(strings.TrimPrefix(name, "p"), 64)
		if err != nil || !strings.HasPrefix(name, "p") || !(p > 0 && p <= 100) {
			return bound{}, fail
		}
		b.quantile = p / 100
	}
	d, err := units.ParseDuration(value)
	if err != nil {
		return bound{}, fail
	}
	b.limit = d
	return b, nil
}

// minRecord is the length of a record with the number of its caller.
const minRecord = 32

// A job is what the flags ask for.
type job struct {
	Config
	modes  []string
	bounds []bound
	plot   string
}

// parse reads the flags. The error is about the command line.
func parse(args []string, stderr io.Writer) (*job, error) {
	j := &job{modes: Modes()}
	fs := flag.NewFlagSet("spike", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Float64Var(&j.Rate, "rate", 10_000, "`records` per second")
	fs.IntVar(&j.Size, "msg-size", 256, "length of a record in `bytes`")
	fs.DurationVar(&j.Latency, "latency", 0, "duration of one write to the destination")
	fs.Float64Var(&j.Drain, "drain-rate", 0, "`bytes` per second that the destination accepts (default: one slab per -latency)")
	fs.IntVar(&j.Callers, "callers", 4, "number of goroutines that write")
	fs.DurationVar(&j.Stall, "stall", 200*time.Millisecond, "duration of a stall of the destination")
	fs.DurationVar(&j.Every, "every", 5*time.Second, "interval between the starts of stalls")
	fs.DurationVar(&j.Duration, "duration", 30*time.Second, "duration of the load in each mode")
	fs.Uint64Var(&j.Seed, "seed", 1, "seed of the random times of calls and stalls")
	fs.StringVar(&j.plot, "plot", "", "write the chart to `FILE` as SVG (default: none)")
	slabs := fs.Int("slabs", 0, "number of slabs (default: planned for -stall)")
	slabBytes := fs.Int("slab-size", 0, "size of a slab in `bytes` (default: planned)")
	fs.Func("compare", "`modes` to compare, separated by commas (default sync,buffered,forebay)", func(s string) error {
		j.modes = strings.Split(s, ",")
		for _, m := range j.modes {
			if !slices.Contains(Modes(), m) {
				return fmt.Errorf("use some of %s", strings.Join(Modes(), ","))
			}
		}
		SortModes(j.modes)
		j.modes = slices.Compact(j.modes)
		return nil
	})
	fs.Func("assert", "`limit` on the latency of forebay, such as p99.9=20us; may be repeated (default: none)", func(s string) error {
		b, err := parseBound(s)
		j.bounds = append(j.bounds, b)
		return err
	})
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("spike has flags only, and %q is none", fs.Arg(0))
	case len(j.bounds) > 0 && !slices.Contains(j.modes, "forebay"):
		return nil, errors.New("-assert is about forebay, which -compare leaves out")
	case j.Callers < 1 || j.Callers > 10_000:
		return nil, fmt.Errorf("-callers %d: use 1 to 10000", j.Callers)
	case j.Duration <= 0 || j.Duration > 24*time.Hour:
		return nil, fmt.Errorf("-duration %v: use more than 0 and at most 24h", j.Duration)
	case j.Stall > 0 && j.Every <= j.Stall:
		return nil, fmt.Errorf("-every %v: the destination would stall all the time, use more than -stall %v", j.Every, j.Stall)
	case j.Stall > 0 && j.Duration <= j.Stall:
		return nil, fmt.Errorf("-duration %v: no stall of %v fits in, use more (or -stall 0 for none)", j.Duration, j.Stall)
	case j.Size < minRecord || j.Size > slab.MaxSlabBytes:
		return nil, fmt.Errorf("-msg-size %d: use %d to %d", j.Size, minRecord, slab.MaxSlabBytes)
	case j.Rate <= 0:
		return nil, fmt.Errorf("-rate %v: use more than 0", j.Rate)
	}
	w := slab.Workload{
		Rate: j.Rate, RecordBytes: float64(j.Size), Latency: j.Latency, Spike: j.Stall,
		SlabBytes: *slabBytes, DrainBytesPerSecond: j.Drain,
	}
	var err error
	if *slabs == 0 {
		j.Slabs, err = slab.Plan(w)
	} else {
		w.Spike = 0
		if *slabBytes == 0 {
			*slabBytes = slab.DefaultSlabBytes
		}
		j.Slabs, err = slab.Absorb(w, *slabBytes, *slabs)
	}
	return j, err
}

// run measures and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	j, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "spike: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "%s records/s of %s from %d callers; the destination stalls for %v every %v; slabs: %v\n",
		units.Rate(j.Rate), units.Size(float64(j.Size)), j.Callers, j.Stall, j.Every, j.Slabs)
	var results []*Result
	for _, m := range j.modes {
		fmt.Fprintf(stderr, "driving %s for %v\n", m, j.Duration)
		r, err := j.Run(ctx, m)
		if r == nil {
			fmt.Fprintf(stderr, "spike: %s: %v\n", m, err)
			return exitFailed
		}
		results = append(results, r)
		if err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", m, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	printTable(stdout, results)
	if ctx.Err() != nil {
		fmt.Fprintf(stderr, "spike: interrupted while driving %s: the figures are of what was done until then\n", results[len(results)-1].Mode)
		return exitFailed
	}
	if j.plot != "" {
		var sb strings.Builder
		if err = WriteSVG(&sb, &j.Config, results); err == nil {
			err = os.WriteFile(j.plot, []byte(sb.String()), 0o666)
		}
		if err != nil {
			fmt.Fprintf(stderr, "spike: cannot write the plot: %v\n", err)
			return exitFailed
		}
	}
	return j.check(stderr, results)
}

// shown are the percentiles of the table.
var shown = []struct {
	name string
	q    float64
}{{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p99.9", .999}, {"p99.99", .9999}, {"max", 1}}

func printTable(out io.Writer, results []*Result) {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "caller waits\t")
	for _, s := range shown {
		fmt.Fprintf(t, "%s\t", s.name)
	}
	fmt.Fprint(t, "records\tlate\tlost\tmemory\t\n")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t", r.Mode)
		for _, s := range shown {
			fmt.Fprintf(t, "%s\t", units.Duration(r.Quantile(s.q)))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", units.Count(r.Written), units.Count(r.Late), units.Count(r.Lost), units.Size(float64(r.Memory)))
	}
	t.Flush()
}

// check compares the results with the bounds and returns the exit code.
func (j *job) check(stderr io.Writer, results []*Result) int {
	code := 0
	fail := func(c int, format string, args ...any) {
		fmt.Fprintf(stderr, "spike: "+format+"\n", args...)
		code = max(code, c)
	}
	for _, r := range results {
		if r.Hist.TotalCount() == 0 {
			fail(exitFailed, "%s: no call was due within -duration: use a higher -rate or a longer -duration", r.Mode)
			continue
		}
		if r.Lost > 0 {
			fail(exitFailed, "%s: %s of %s records were lost", r.Mode, units.Count(r.Lost), units.Count(r.Written))
		}
		if r.Mode != "forebay" || len(j.bounds) == 0 {
			continue
		}
		if j.Stall > 0 && r.Stalled == 0 {
			fail(exitFailed, "-assert: the destination was not written to during any stall: use a higher -rate or a longer -duration")
		}
		for _, b := range j.bounds {
			if got := r.Quantile(b.quantile); got > b.limit {
				fail(exitAssert, "-assert %s: it was %v", b.text, got)
			}
		}
	}
	return code
}
