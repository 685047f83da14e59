package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/internal/vfs"
	"github.com/forebay-log/forebay/slab"
)

// sizeConfig contains the values of the flags of forebay size.
type sizeConfig struct {
	rate     setting.Rate
	msgSize  setting.Size
	latency  setting.Duration
	spike    setting.Duration
	memory   setting.Size
	slabSize setting.Size
	slabs    setting.Count
	window   setting.Count
	drain    setting.Size
	measure  string
	output   setting.Choice
}

func newSizeConfig() *sizeConfig {
	return &sizeConfig{
		output:   setting.Choice{Value: "text", Of: []string{"text", "json", "go"}},
		rate:     10_000,
		msgSize:  setting.Size{Value: 256, Min: 1, Max: layout.MaxSlabBytes},
		spike:    setting.Duration(200 * time.Millisecond),
		slabSize: setting.Size{Min: layout.MinSlabBytes, Max: layout.MaxSlabBytes},
	}
}

// add adds the flags for the workload and the memory to cmd.
func (c *sizeConfig) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(&c.rate, "rate", "R", "rate of records, such as 10k/s or 600/min")
	fs.VarP(&c.msgSize, "msg-size", "M", "mean length of a record in bytes")
	fs.VarP(&c.latency, "latency", "L", "duration of one write to the destination; 0: negligible")
	fs.VarP(&c.spike, "spike", "S", "longest stall of the destination that must not delay callers")
	fs.Var(&c.memory, "memory", "limit on the memory (default 0: none)")
	fs.Var(&c.slabSize, "slab-size", "size of a slab (default 0: computed)")
	fs.Var(&c.slabs, "slabs", "compute the stall that `N` slabs absorb (default 0: compute the number of slabs)")
	fs.Var(&c.window, "window", "number `N` of further writes that may be sent before the first is answered; 0: one write at a time")
	fs.Var(&c.drain, "drain-rate", "bytes per second that the destination accepts (default 0: one slab per --latency)")
	fs.StringVar(&c.measure, "measure", "", "measure --rate and --msg-size in `FILE`; -: standard input (default: none)")
}

// workload returns the load that the flags describe. With --measure, it measures a log and returns
// the measurements, too. If no line of the log contains a time, the rate is 0.
func (c *sizeConfig) workload(cmd *cobra.Command) (w slab.Workload, m *measured, err error) {
	fs := cmd.Flags()
	switch {
	case c.rate == 0:
		return w, nil, exit.Usage(errors.New("--rate 0: without records there is nothing to " + cmd.Name()))
	case c.slabs.Value != 0 && c.memory.Value != 0:
		return w, nil, exit.Usage(errors.New("--slabs and --memory exclude each other: use one"))
	case c.slabs.Value != 0 && fs.Changed("spike"):
		return w, nil, exit.Usage(errors.New("--slabs and --spike exclude each other: --slabs computes the stall, --spike the number of slabs"))
	}
	w = slab.Workload{
		Rate: float64(c.rate), RecordBytes: float64(c.msgSize.Value),
		Latency: time.Duration(c.latency), Spike: time.Duration(c.spike),
		Window: c.window.Value, MemoryBytes: c.memory.Value, SlabBytes: int(c.slabSize.Value),
		DrainBytesPerSecond: float64(c.drain.Value),
	}
	if c.measure == "" {
		return w, nil, nil
	}
	if m, err = measureFile(c.measure, cmd.InOrStdin()); err != nil {
		return w, nil, exit.Runtime(err)
	}
	if !fs.Changed("msg-size") {
		w.RecordBytes = m.MeanBytes
	}
	if !fs.Changed("rate") {
		w.Rate = m.PeakRate
	}
	return w, m, nil
}

// plan computes the sizing. If --slabs is given, it calls slab.Absorb, otherwise slab.Plan.
func (c *sizeConfig) plan(w slab.Workload) (s slab.Sizing, err error) {
	if c.slabs.Value == 0 {
		s, err = slab.Plan(w)
	} else {
		bytes := int(c.slabSize.Value)
		if bytes == 0 {
			alone := w
			alone.Spike = 0
			if s, err = slab.Plan(alone); err == nil {
				bytes = s.SlabBytes
			}
		}
		if err == nil {
			s, err = slab.Absorb(w, bytes, c.slabs.Value)
		}
	}
	if err != nil {
		return s, exit.Runtime(errors.New(sizeFlagNames.Replace(console.Plain(err))))
	}
	return s, nil
}

// sizeFlagNames replaces the field names of slab.Workload in errors by names of flags.
var sizeFlagNames = strings.NewReplacer("DrainBytesPerSecond", "--drain-rate", "set SlabBytes", "set --slab-size")

// errNoRate is returned if --rate is not given and the measured log contains no times.
var errNoRate = errors.New("no line has a recognized time, so the rate is unknown: add --rate")

// NewSize returns the command forebay size.
func NewSize() *cobra.Command {
	c := newSizeConfig()
	cmd := &cobra.Command{
		Use:   "size",
		Short: "Compute the number and size of slabs for a load",
		Long: `Compute the number and size of slabs that let callers continue without waiting while the
destination stalls. The result depends on the rate of records, their mean length, the
duration of one write, and the longest expected stall.

With --slabs, or --slabs and --slab-size, the command computes the longest stall that the
given slabs absorb.

--measure reads the rate and the mean length from a log file. The rate is the rate of its
busiest second. Flags on the command line override the measured values.

The formula is documented at slab.Plan: a slab holds more records than arrive during one
write. The number of slabs is the number filled during the stall, plus two: when the stall
begins, one slab is in flight and one is partly filled.`,
		Example: `  forebay size --rate 50k/s --msg-size 300 --latency 5ms --spike 1s
  forebay size --rate 10k/s --slabs 8 --slab-size 64KiB
  forebay size --measure app.log --spike 2s -o go`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSize(c, cmd) },
	}
	c.add(cmd)
	c.output.Add(cmd, "output", "o", "output format")
	return cmd
}

// sizeResult is the result of forebay size.
type sizeResult struct {
	Measured *measured
	Workload slab.Workload
	Sizing   *slab.Sizing // nil if the rate is unknown
	Inverse  bool         // --slabs was given, and the result is the duration of the stall that the slabs absorb
}

func runSize(c *sizeConfig, cmd *cobra.Command) error {
	w, m, err := c.workload(cmd)
	if err != nil {
		return err
	}
	a := sizeResult{Measured: m, Workload: w, Inverse: c.slabs.Value != 0}
	if w.Rate > 0 {
		s, err := c.plan(w)
		if err != nil {
			return err
		}
		a.Sizing = &s
	}
	switch c.output.Value {
	case "json":
		return a.printJSON(cmd.OutOrStdout())
	case "go":
		return a.printGo(cmd.OutOrStdout())
	}
	return a.printText(cmd.OutOrStdout())
}

func (a *sizeResult) printText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	if m := a.Measured; m != nil {
		row("measured", "%s: %s lines, %s, %s each", m.File, units.Count(m.Lines), units.Size(float64(m.Bytes)), units.Size(m.MeanBytes))
		if m.Timed == 0 {
			row("", "%v", errNoRate)
		} else {
			row("", "%s/s in its busiest second, %s/s over %s", units.Rate(m.PeakRate), units.Rate(m.MeanRate), units.Duration(m.Span()))
		}
	}
	s := a.Sizing
	if s == nil {
		return t.Flush()
	}
	wl := a.Workload
	row("workload", "%s records/s of %s, %s/s", units.Rate(wl.Rate), units.Size(wl.RecordBytes), units.Size(wl.Rate*wl.RecordBytes))
	row("destination", "%s for one write, %s records/s", units.Duration(wl.Latency), units.Rate(s.DrainRate))
	if a.Inverse {
		row("given", "%d slabs of %s, %s of memory", s.SlabCount, units.Size(float64(s.SlabBytes)), units.Size(float64(s.MemoryBytes)))
	} else {
		row("stall", "%s", units.Duration(wl.Spike))
		row("plan", "%d slabs of %s, %s of memory", s.SlabCount, units.Size(float64(s.SlabBytes)), units.Size(float64(s.MemoryBytes)))
	}
	row("", "%d records per slab, each with a slot of %d B", s.SlabRecords, layout.SlotBytes)
	row("absorbs", "%s without a waiting caller", units.Duration(s.Absorbs))
	row("catches up", "in %s after a stall of %s", units.Duration(s.CatchUp), units.Duration(a.stall()))
	row("beyond that", "callers wait, or %s records/s are dropped: see --when-full", units.Rate(wl.Rate))
	row("use", "forebay pipe --slab-size %s --slabs %d", units.FlagSize(int64(s.SlabBytes)), s.SlabCount)
	return t.Flush()
}

// stall returns the duration of the stall that the slabs absorb.
func (a *sizeResult) stall() time.Duration {
	if a.Inverse {
		return a.Sizing.Absorbs
	}
	return a.Workload.Spike
}

func (a *sizeResult) printGo(w io.Writer) error {
	s := a.Sizing
	if s == nil {
		return exit.Runtime(errNoRate)
	}
	size := fmt.Sprint(s.SlabBytes)
	for _, u := range []struct{ bits, size int }{{20, 1 << 20}, {10, 1 << 10}} {
		if s.SlabBytes%u.size == 0 {
			size = fmt.Sprintf("%d << %d", s.SlabBytes/u.size, u.bits)
			break
		}
	}
	_, err := fmt.Fprintf(w, `// %s records/s of %s, %s per write: absorbs %s.
&slab.Options{
	SlabBytes: %s,
	SlabCount: %d,
}
`, units.Rate(a.Workload.Rate), units.Size(a.Workload.RecordBytes), units.Duration(a.Workload.Latency), units.Duration(s.Absorbs), size, s.SlabCount)
	return err
}

func (a *sizeResult) printJSON(w io.Writer) error {
	type plan struct {
		SlabBytes      int      `json:"slab_bytes"`
		SlabCount      int      `json:"slab_count"`
		SlabRecords    int      `json:"slab_records"`
		MemoryBytes    int64    `json:"memory_bytes"`
		AbsorbsSeconds float64  `json:"absorbs_seconds"`
		CatchUpSeconds float64  `json:"catch_up_seconds"`
		DrainRate      *float64 `json:"drain_records_per_second"` // null if it is unlimited
	}
	type workload struct {
		Rate           float64 `json:"records_per_second"`
		RecordBytes    float64 `json:"record_bytes"`
		LatencySeconds float64 `json:"latency_seconds"`
		SpikeSeconds   float64 `json:"spike_seconds,omitempty"`
		Window         int     `json:"window,omitempty"`
		MemoryBytes    int64   `json:"memory_bytes,omitempty"`
		DrainBytes     float64 `json:"drain_bytes_per_second,omitempty"`
	}
	out := struct {
		Measured *measured `json:"measured,omitempty"`
		Workload *workload `json:"workload"` // null if the rate is unknown
		Plan     *plan     `json:"plan"`
	}{Measured: a.Measured}
	if s := a.Sizing; s != nil {
		out.Workload = &workload{a.Workload.Rate, a.Workload.RecordBytes, a.Workload.Latency.Seconds(), a.stall().Seconds(),
			a.Workload.Window, a.Workload.MemoryBytes, a.Workload.DrainBytesPerSecond}
		out.Plan = &plan{s.SlabBytes, s.SlabCount, s.SlabRecords, s.MemoryBytes, s.Absorbs.Seconds(), s.CatchUp.Seconds(), nil}
		if !math.IsInf(s.DrainRate, 1) {
			out.Plan.DrainRate = &s.DrainRate
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// measureFile measures the log at path. The path "-" means standard input.
func measureFile(path string, stdin io.Reader) (*measured, error) {
	if path == "-" {
		return MeasureLog("standard input", stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot measure %s: %w", path, vfs.Cause(err))
	}
	defer f.Close()
	return MeasureLog(path, f)
}
