package program

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/spike"
	"github.com/forebay-log/forebay/cmd/internal/units"
)

// exitAssert is the exit code when a bound of --assert is broken.
const exitAssert = 99

// spikeConfig is what the flags of spike say.
type spikeConfig struct {
	load
	callers int
	stall   duration
	every   duration
	length  duration
	compare []string
	seed    uint64
	plot    string
	asserts []string
	output  choice
}

func newSpike() *cobra.Command {
	c := &spikeConfig{
		load: newLoad(), stall: duration(200 * time.Millisecond),
		every: duration(5 * time.Second), length: duration(30 * time.Second),
		output: choice{value: "text", of: []string{"text", "json"}},
	}
	cmd := &cobra.Command{
		Use:   "spike",
		Short: "Measure the latency of log calls while the destination stalls",
		Long: `Measure the latency of log calls while the destination stalls at intervals, in three modes:
one write per record (sync), a mutex and a 64 KiB buffer (buffered), and slabs (forebay). The
slabs are planned by the formula of forebay size with the same flags.

--spike is the stall that the slabs are planned for, and --stall is the actual stall. If only
one is given, it sets both. With --slabs nothing is planned. --latency and --drain-rate apply
to every write in all modes. All records have the length --msg-size, at least 32 bytes.

Calls follow a schedule. The latency of a call is counted from its scheduled time, even if an
earlier call delayed it. At the end of --duration, callers may catch up for --stall plus half a
second. Calls that were due and not made by then are counted with their wait, and reported as
late.

--assert P=DURATION sets a limit on the latency of forebay at a percentile: p50, p99, p99.9, …,
max. It may be repeated. The exit code is 99 if a limit is exceeded. It is 1 if records were
lost, if no call was made, or if --assert is given and no stall delayed the destination,
unless --stall is 0.`,
		Example: `  forebay spike
  forebay spike --rate 50k/s --stall 1s --every 10s --plot spike.svg
  forebay spike --measure app.log --spike 200ms --stall 500ms -o json
  forebay spike --compare forebay --duration 10s --assert p99=50us --assert max=5ms`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSpike(c, cmd) },
	}
	c.add(cmd, "number `N` of slabs (default 0: computed)")
	fs := cmd.Flags()
	fs.IntVar(&c.callers, "callers", 4, "number `N` of goroutines that write")
	fs.Var(&c.stall, "stall", "duration of a stall of the destination")
	fs.Var(&c.every, "every", "interval between the starts of stalls")
	fs.Var(&c.length, "duration", "duration of the load in each mode")
	fs.StringSliceVar(&c.compare, "compare", spike.Modes(), "`MODES` to compare, separated by commas")
	fs.Uint64Var(&c.seed, "seed", 1, "`SEED` of the random times of calls and stalls")
	fs.StringVar(&c.plot, "plot", "", "write the chart to `FILE` as SVG (default: none)")
	fs.StringArrayVar(&c.asserts, "assert", nil, "`LIMIT` on the latency of forebay, such as p99.9=20us; may be repeated (default: none)")
	complete(cmd, "compare", spike.Modes()...)
	c.output.add(cmd, "output", "o", "output format")
	return cmd
}

// bound is one --assert.
type bound struct {
	text     string
	quantile float64
	limit    time.Duration
}

func parseBound(s string) (bound, error) {
	fail := fmt.Errorf("--assert %q: use PERCENTILE=DURATION, such as p99.9=20us or max=1ms", s)
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

// minSpikeBytes is a record that says whose it is.
const minSpikeBytes = 32

func (c *spikeConfig) resolve(cmd *cobra.Command) (*spike.Config, []bound, error) {
	var bounds []bound
	for _, s := range c.asserts {
		b, err := parseBound(s)
		if err != nil {
			return nil, nil, usageError(err)
		}
		bounds = append(bounds, b)
	}
	for _, m := range c.compare {
		if !slices.Contains(spike.Modes(), m) {
			return nil, nil, usageError(fmt.Errorf("--compare %q: use some of %s", m, strings.Join(spike.Modes(), ",")))
		}
	}
	fs := cmd.Flags()
	if fs.Changed("stall") && !fs.Changed("spike") {
		c.spike = c.stall
	} else if fs.Changed("spike") && !fs.Changed("stall") {
		c.stall = c.spike
	}
	stall, every, length := time.Duration(c.stall), time.Duration(c.every), time.Duration(c.length)
	switch {
	case len(c.compare) == 0:
		return nil, nil, usageError(errors.New("--compare: nothing to drive"))
	case len(bounds) > 0 && !slices.Contains(c.compare, "forebay"):
		return nil, nil, usageError(errors.New("--assert is about forebay, which --compare leaves out"))
	case c.callers < 1 || c.callers > 10_000:
		return nil, nil, usageError(fmt.Errorf("--callers %d: use 1 to 10000", c.callers))
	case length <= 0 || length > 24*time.Hour:
		return nil, nil, usageError(fmt.Errorf("--duration %v: use more than 0 and at most 24h", length))
	case stall > 0 && every <= stall:
		return nil, nil, usageError(fmt.Errorf("--every %v: the destination would stall all the time, use more than --stall %v", every, stall))
	case stall > 0 && length <= stall:
		return nil, nil, usageError(fmt.Errorf("--duration %v: no stall of %v fits in, use more (or --stall 0 for none)", length, stall))
	case c.msgSize.value < minSpikeBytes:
		return nil, nil, usageError(fmt.Errorf("--msg-size %d: use %d or more, so that a record can say whose it is", c.msgSize.value, minSpikeBytes))
	}
	w, m, err := c.workload(cmd)
	if err != nil {
		return nil, nil, err
	}
	if m != nil {
		if w.Rate <= 0 {
			return nil, nil, runtimeError(errNoRate)
		}
		w.RecordBytes = max(math.Round(w.RecordBytes), minSpikeBytes) // all are of one length
	}
	s, err := c.plan(w)
	if err != nil {
		return nil, nil, err
	}
	return &spike.Config{
		Rate: w.Rate, Size: int(w.RecordBytes), Callers: c.callers, Latency: w.Latency, Drain: w.DrainBytesPerSecond,
		Stall: stall, Every: every, Duration: length, Seed: c.seed, Slabs: s,
	}, bounds, nil
}

func runSpike(c *spikeConfig, cmd *cobra.Command) error {
	cfg, bounds, err := c.resolve(cmd)
	if err != nil {
		return err
	}
	plot, err := openPlot(c.plot)
	if err != nil {
		return runtimeError(err)
	}
	defer plot.discard()
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	fmt.Fprintf(notes, "%s records/s of %s from %d callers; the destination stalls for %v every %v; slabs: %v\n",
		units.Rate(cfg.Rate), units.Size(float64(cfg.Size)), cfg.Callers, cfg.Stall, cfg.Every, cfg.Slabs)
	modes := slices.Clone(c.compare)
	spike.SortModes(modes)
	modes = slices.Compact(modes)
	var results []*spike.Result
	for _, m := range modes {
		fmt.Fprintf(notes, "driving %s for %v\n", m, cfg.Duration)
		r, err := cfg.Run(ctx, m)
		if r == nil {
			return runtimeError(fmt.Errorf("%s: %w", m, err))
		}
		results = append(results, r)
		if err != nil {
			fmt.Fprintf(notes, "%s: %v\n", m, plain(err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if c.output.value == "json" {
		if err := printSpikeJSON(out, cfg, results); err != nil {
			return runtimeError(err)
		}
	} else {
		printTable(out, results)
		printChart(out, results)
	}
	if ctx.Err() != nil {
		return runtimeError(fmt.Errorf("interrupted while driving %s: the figures are of what was done until then", results[len(results)-1].Mode))
	}
	if err := plot.write(func(w io.Writer) error { return spike.WriteSVG(w, cfg, results) }); err != nil {
		return runtimeError(err)
	}
	return check(cfg, bounds, results)
}

var shown = []struct {
	name string
	q    float64
}{{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p99.9", .999}, {"p99.99", .9999}, {"max", 1}}

func printTable(out io.Writer, results []*spike.Result) {
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

// printChart draws the worst call of each tenth of a second, as powers of ten.
func printChart(out io.Writer, results []*spike.Result) {
	var series [][]float64
	var names []string
	for _, r := range results {
		s := make([]float64, len(r.Worst))
		for i, v := range r.Worst {
			s[i] = math.Log10(max(v, 1e-7) * 1e6)
		}
		series = append(series, s)
		names = append(names, r.Mode)
	}
	colours := []asciigraph.AnsiColor{asciigraph.Red, asciigraph.Yellow, asciigraph.Blue}
	fmt.Fprintf(out, "\nworst call per 0.1 s, log10 of microseconds (0 = 1 µs, 3 = 1 ms, 5 = 100 ms)\n")
	opts := []asciigraph.Option{asciigraph.Height(12), asciigraph.Width(100), asciigraph.Precision(0)}
	if a, ok := out.(*answers); ok {
		out = a.w
	}
	if f, ok := out.(*os.File); ok && isTerminal(f) {
		opts = append(opts, asciigraph.SeriesColors(colours[:len(series)]...), asciigraph.SeriesLegends(names...))
		fmt.Fprintln(out, asciigraph.PlotMany(series, opts...))
		return
	}
	for i, s := range series { // without colour: one chart each
		fmt.Fprintf(out, "%s\n%s\n", names[i], asciigraph.Plot(s, append(opts, asciigraph.LowerBound(-1), asciigraph.UpperBound(6))...))
	}
}

// check is how the program ends.
func check(cfg *spike.Config, bounds []bound, results []*spike.Result) error {
	var broken, failed []string
	for _, r := range results {
		if r.Hist.TotalCount() == 0 {
			failed = append(failed, fmt.Sprintf("%s: no call was due within --duration, there is nothing to show: use a higher --rate or a longer --duration", r.Mode))
			continue
		}
		if r.Lost > 0 {
			failed = append(failed, fmt.Sprintf("%s: %s of %s records were lost", r.Mode, units.Count(r.Lost), units.Count(r.Written)))
		}
		if r.Mode != "forebay" || len(bounds) == 0 {
			continue
		}
		if cfg.Stall > 0 && r.Stalled == 0 {
			failed = append(failed, "--assert: the destination was not written to during any stall, so nothing was tried: use a higher --rate or a longer --duration")
		}
		for _, b := range bounds {
			if got := r.Quantile(b.quantile); got > b.limit {
				broken = append(broken, fmt.Sprintf("--assert %s: it was %v", b.text, got))
			}
		}
	}
	err := errors.New(strings.Join(slices.Concat(broken, failed), "; "))
	switch {
	case len(broken) > 0:
		return &codeError{exitAssert, err}
	case len(failed) > 0:
		return runtimeError(err)
	}
	return nil
}
