// Command spike measures the latency of log calls while the destination stalls at intervals, in
// three modes: one write per record (sync), a mutex and a buffer of 64 KiB (buffered), and slabs
// (forebay), whose number and size slab.Plan chooses for the stall.
//
//	GOWORK=off go -C bench run ./spike
//	GOWORK=off go -C bench run ./spike -rate 50000 -stall 1s -every 10s -plot spike.svg
//
// Calls follow a schedule. The latency of a call is counted from its scheduled time, even if an
// earlier call delayed it.
//
// The exit code is 1 if records were lost or the command line is wrong.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/slab"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "spike:", err)
		os.Exit(1)
	}
}

// run measures all modes and prints the table.
func run(args []string, stdout io.Writer) error {
	var c Config
	fs := flag.NewFlagSet("spike", flag.ContinueOnError)
	fs.Float64Var(&c.Rate, "rate", 10_000, "`records` per second")
	fs.IntVar(&c.Size, "msg-size", 256, "length of a record in `bytes`")
	fs.DurationVar(&c.Stall, "stall", 200*time.Millisecond, "duration of a stall of the destination")
	fs.DurationVar(&c.Every, "every", 5*time.Second, "interval between the starts of stalls")
	fs.DurationVar(&c.Duration, "duration", 30*time.Second, "duration of the load in each mode")
	slabs := fs.Int("slabs", 0, "number of slabs of 64 KiB (default: planned for -stall)")
	plot := fs.String("plot", "", "write the chart to `FILE` as SVG (default: none)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.Rate <= 0 || c.Stall < 0 || c.Every <= c.Stall || c.Duration <= c.Stall || c.Size < 1 || c.Size > layout.DefaultMaxRecord {
		return errors.New("use -rate above 0, -every and -duration above -stall, and -msg-size from 1 to 1048576")
	}
	w := slab.Workload{Rate: c.Rate, RecordBytes: float64(c.Size), Spike: c.Stall}
	var err error
	if *slabs == 0 {
		c.Slabs, err = slab.Plan(w)
	} else {
		c.Slabs, err = slab.Absorb(w, layout.DefaultSlabBytes, *slabs)
	}
	if err != nil {
		return err
	}
	var results []*Result
	for _, m := range modes {
		r, err := c.Run(m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		results = append(results, r)
	}
	t := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "time in a call\tp50\tp99\tp99.9\tmax\trecords\tlost\tmemory\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t\n", r.Mode.name, units.Duration(r.Quantile(.5)), units.Duration(r.Quantile(.99)),
			units.Duration(r.Quantile(.999)), units.Duration(r.Quantile(1)), r.Written, r.Lost, units.Size(float64(r.Memory)))
		if r.Lost > 0 {
			err = errors.Join(err, fmt.Errorf("%s: %d of %d records were lost", r.Mode.name, r.Lost, r.Written))
		}
	}
	t.Flush()
	if *plot != "" {
		err = errors.Join(err, os.WriteFile(*plot, []byte(svg(&c, results)), 0o666))
	}
	return err
}
