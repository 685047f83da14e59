package main

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
	"text/tabwriter"
	"time"

	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/forebay/internal/spike"
	"github.com/forebay-log/forebay/cmd/forebay/internal/units"
	"github.com/forebay-log/forebay/slab"
)

// exitAssert is the exit code when a bound of --assert is broken.
const exitAssert = 99

type spikeConfig struct {
	rate     rate
	msgSize  size
	latency  duration
	memory   size
	slabSize size
	slabs    int
	callers  int
	stall    duration
	every    duration
	length   duration
	compare  []string
	seed     uint64
	plot     string
	asserts  []string
}

func newSpike() *cobra.Command {
	c := &spikeConfig{
		rate: 10_000, msgSize: size{value: 256, min: 32, max: slab.MaxSlabBytes},
		slabSize: size{min: slab.MinSlabBytes, max: slab.MaxSlabBytes},
		stall:    duration(200 * time.Millisecond), every: duration(5 * time.Second), length: duration(30 * time.Second),
	}
	cmd := &cobra.Command{
		Use:   "spike",
		Short: "Show what callers notice when the destination stalls",
		Long: `Drive a load at a destination that stalls now and then, and show how long the
calls take that log: with one write per record (sync), behind a mutex and a buffer
of 64 KiB (buffered), and behind slabs (forebay), planned as forebay size does for
the stall unless --slabs is given.

The load is paced by a schedule. A call that was due while an earlier one hung
counts from when it was due.

--assert P=DURATION ends with exit code 99 if the latency of forebay at that
percentile is above it: p50, p99, p99.9, …, max. It may be repeated.`,
		Example: `  forebay spike
  forebay spike --rate 50k/s --stall 1s --every 10s --plot spike.svg
  forebay spike --compare forebay --duration 10s --assert p99=50us --assert max=5ms`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSpike(c, cmd) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(&c.rate, "rate", "R", "records per second, such as 10k/s")
	fs.VarP(&c.msgSize, "msg-size", "M", "length of a record")
	fs.VarP(&c.latency, "latency", "L", "how long the destination takes for one write")
	fs.Var(&c.memory, "memory", "the most memory to use (0: as much as it takes)")
	fs.Var(&c.slabSize, "slab-size", "use slabs of this size (0: work it out)")
	fs.IntVar(&c.slabs, "slabs", 0, "use `N` slabs (0: work it out)")
	fs.IntVar(&c.callers, "callers", 4, "`N` goroutines that write")
	fs.Var(&c.stall, "stall", "how long the destination stalls")
	fs.Var(&c.every, "every", "from the start of one stall to that of the next")
	fs.Var(&c.length, "duration", "how long to drive each of --compare")
	fs.StringSliceVar(&c.compare, "compare", spike.Modes(), "what to compare")
	fs.Uint64Var(&c.seed, "seed", 1, "`SEED` of the moments of calls and stalls")
	fs.StringVar(&c.plot, "plot", "", "write the chart to this `FILE`, as SVG")
	fs.StringArrayVar(&c.asserts, "assert", nil, "a bound on forebay, such as p99.9=20us; may be repeated")
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
		if err != nil || !strings.HasPrefix(name, "p") || p <= 0 || p > 100 {
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

func (c *spikeConfig) resolve() (*spike.Config, []bound, error) {
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
	switch {
	case len(c.compare) == 0:
		return nil, nil, usageError(errors.New("--compare: nothing to drive"))
	case len(bounds) > 0 && !slices.Contains(c.compare, "forebay"):
		return nil, nil, usageError(errors.New("--assert is about forebay, which --compare leaves out"))
	case c.rate <= 0:
		return nil, nil, usageError(errors.New("--rate 0: without records there is nothing to measure"))
	case c.callers < 1 || c.callers > 10_000:
		return nil, nil, usageError(fmt.Errorf("--callers %d: use 1 to 10000", c.callers))
	case c.length <= 0:
		return nil, nil, usageError(errors.New("--duration: use more than 0"))
	case c.stall > 0 && c.every <= c.stall:
		return nil, nil, usageError(fmt.Errorf("--every %v: the destination would stall all the time, use more than --stall %v", time.Duration(c.every), time.Duration(c.stall)))
	}
	w := slab.Workload{Rate: float64(c.rate), RecordBytes: float64(c.msgSize.value), Latency: time.Duration(c.latency),
		Spike: time.Duration(c.stall), MemoryBytes: c.memory.value, SlabBytes: int(c.slabSize.value)}
	s, err := slab.Plan(w)
	if c.slabs > 0 {
		bytes := int(c.slabSize.value)
		if bytes == 0 {
			bytes = slab.DefaultSlabBytes
		}
		s, err = slab.Absorb(w, bytes, c.slabs)
	}
	if err != nil {
		return nil, nil, runtimeError(errors.New(plain(err)))
	}
	return &spike.Config{
		Rate: float64(c.rate), Size: int(c.msgSize.value), Callers: c.callers, Latency: time.Duration(c.latency),
		Stall: time.Duration(c.stall), Every: time.Duration(c.every), Duration: time.Duration(c.length), Seed: c.seed, Slabs: s,
	}, bounds, nil
}

func runSpike(c *spikeConfig, cmd *cobra.Command) error {
	cfg, bounds, err := c.resolve()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
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
		if err != nil {
			return runtimeError(fmt.Errorf("%s: %w", m, err))
		}
		results = append(results, r)
		if ctx.Err() != nil {
			break
		}
	}
	printTable(out, results)
	printChart(out, results)
	if c.plot != "" {
		if err := writePlot(c.plot, cfg, results); err != nil {
			return runtimeError(err)
		}
	}
	if ctx.Err() != nil {
		return runtimeError(errors.New("interrupted"))
	}
	return check(bounds, results)
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
	fmt.Fprint(t, "records\tlost\tmemory\t\n")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t", r.Mode)
		for _, s := range shown {
			fmt.Fprintf(t, "%s\t", units.Duration(r.Quantile(s.q)))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", units.Count(r.Written), units.Count(r.Lost), units.Size(float64(r.Memory)))
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

func writePlot(path string, cfg *spike.Config, results []*spike.Result) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("cannot write the plot: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return spike.WriteSVG(f, cfg, results)
}

func check(bounds []bound, results []*spike.Result) error {
	var broken []string
	for _, r := range results {
		if r.Mode != "forebay" {
			continue
		}
		for _, b := range bounds {
			if got := r.Quantile(b.quantile); got > b.limit {
				broken = append(broken, fmt.Sprintf("--assert %s: it was %v", b.text, got))
			}
		}
		if len(bounds) > 0 && r.Lost > 0 {
			broken = append(broken, fmt.Sprintf("%d records were lost", r.Lost))
		}
	}
	if len(broken) > 0 {
		return &codeError{exitAssert, errors.New(strings.Join(broken, "; "))}
	}
	return nil
}
