// Command fleet plans for many hosts that send to one backend, such as Kafka: the number of
// partitions, the bytes per second, the spool on each host, and the time until all hosts have
// caught up after an outage of the backend. It simulates the hosts twice, with the delays of
// forebay's circuit breaker and with the same delays without jitter. docs/FLEET.md describes it.
//
//	GOWORK=off go -C bench run ./fleet -hosts 10000 -rate 100 -msg-size 256 -outage 10m
//	GOWORK=off go -C bench run ./fleet -outage 30m -plot herd.svg
//
// The exit code is 1 if the command line is wrong or there is no plan.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"github.com/forebay-log/forebay/internal/fleet"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/slab"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "fleet: %v\n", err)
		os.Exit(1)
	}
}

// A forecast contains the values of the flags, the plan, and the results of both simulations, with
// and without jitter.
type forecast struct {
	fleet.Config
	workload                  slab.Workload // the load of one host
	catchUp                   time.Duration
	plot                      string
	withJitter, withoutJitter *fleet.Result
}

// defaultFlush is the default flush interval of forebay pipe.
const defaultFlush = 100 * time.Millisecond

// parse parses the flags. It checks only what the simulation does not check.
func parse(args []string) (*forecast, error) {
	f := new(forecast)
	fs := flag.NewFlagSet("fleet", flag.ContinueOnError)
	size := func(dst *float64, name, initial, usage string) {
		set := func(s string) error {
			n, err := units.ParseSize(s)
			*dst = float64(n)
			return err
		}
		_ = set(initial)
		fs.Func(name, usage+" (default "+initial+")", set)
	}
	var spool float64
	fs.IntVar(&f.Hosts, "hosts", 10_000, "number of hosts")
	fs.Float64Var(&f.Rate, "rate", 100, "`records` per second of one host")
	fs.Float64Var(&f.RecordBytes, "msg-size", 256, "mean length of a record in `bytes`")
	fs.DurationVar(&f.Latency, "latency", 10*time.Millisecond, "duration of one request")
	fs.DurationVar(&f.workload.Spike, "spike", 200*time.Millisecond, "longest stall of the backend that the slabs of a host absorb")
	fs.IntVar(&f.Window, "window", 3, "number of unanswered requests in addition to the one in flight")
	fs.DurationVar(&f.Outage, "outage", 10*time.Minute, "duration of the outage")
	fs.DurationVar(&f.Fail, "fail-after", 0, "time until an attempt fails during the outage (default 0: connections are refused)")
	fs.DurationVar(&f.Within, "session", 30*time.Second, "time for which a session retries every second before its circuit counts a failure: 30s for Kafka, 0 for destinations that do not retry")
	fs.DurationVar(&f.Flush, "flush-interval", defaultFlush, "longest wait of a record for its slab to fill")
	size(&spool, "spool-max", "1GiB", "spool of each host, such as 64MiB; 0: none")
	fs.IntVar(&f.Partitions, "partitions", 0, "number of partitions (default 0: enough to catch up within -catch-up)")
	size(&f.PartitionBytes, "partition-rate", "10MiB", "compressed bytes per second that one partition accepts")
	fs.DurationVar(&f.catchUp, "catch-up", 0, "time to deliver the backlog after the outage (default 0: the duration of the outage, at least 5m)")
	fs.Float64Var(&f.Ratio, "compression", 4, "`ratio` of uncompressed to compressed bytes")
	fs.BoolVar(&f.Keyed, "keyed", false, "send the records of each host to all partitions")
	fs.Float64Var(&f.Accept, "accept-rate", 200, "new sessions per second that the backend accepts; 0: no limit")
	fs.Uint64Var(&f.Seed, "seed", 1, "seed of the random partitions and delays")
	fs.StringVar(&f.plot, "plot", "", "write an SVG chart of the attempts per second to `FILE` (default: none)")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	f.SpoolBytes = int64(spool)
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("fleet has flags only, and %q is none", fs.Arg(0))
	case f.Flush <= 0 || max(f.Flush, f.Within, f.Fail) > time.Hour:
		return nil, errors.New("-flush-interval, -session and -fail-after: use at most 1h, and a flush interval above 0")
	case f.Partitions > 0 && f.catchUp > 0:
		return nil, errors.New("-partitions and -catch-up: use one of the two")
	case f.Ratio == 0:
		return nil, errors.New("-compression 0: use more than 0")
	}
	f.workload.Rate, f.workload.RecordBytes, f.workload.Latency, f.workload.Window = f.Rate, f.RecordBytes, f.Latency, f.Window
	f.Window++
	return f, nil
}

// simulate computes the plan and runs both simulations.
func (f *forecast) simulate() (err error) {
	if f.Slabs, err = slab.Plan(f.workload); err != nil {
		return err
	}
	if f.Partitions == 0 {
		if f.Partitions, err = f.Plan(cmp.Or(f.catchUp, max(f.Outage, 5*time.Minute))); err != nil {
			return fmt.Errorf("cannot plan: %w", err)
		}
	}
	if f.withJitter, err = f.Run(); err == nil {
		together := f.Config
		together.Together = true
		f.withoutJitter, err = together.Run()
	}
	if err != nil {
		return fmt.Errorf("cannot simulate: %w", err)
	}
	return nil
}

// run runs the command.
func run(args []string, stdout io.Writer) error {
	f, err := parse(args)
	if err != nil {
		return err
	}
	if err := f.simulate(); err != nil {
		return err
	}
	f.print(stdout)
	if f.plot != "" {
		return os.WriteFile(f.plot, []byte(f.svg()), 0o666)
	}
	return nil
}

// wireBytes returns the compressed bytes per second of all hosts.
func (f *forecast) wireBytes() float64 { return float64(f.Hosts) * f.Rate * f.RecordBytes / f.Ratio }

// spoolFlag returns a value of --spool-max: a power of two that is at least twice the size of the
// largest backlog of a host. The factor is needed because a spool frees space by whole segments of
// 8 MiB, or of a quarter of the quota if that is less.
func (f *forecast) spoolFlag() string {
	quota := int64(1 << 20)
	for quota < 2*f.withJitter.SpoolNeed && quota < 1<<62 {
		quota *= 2
	}
	return units.FlagSize(quota)
}

func (f *forecast) print(w io.Writer) {
	withJitter, withoutJitter := f.withJitter, f.withoutJitter
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	row("hosts", "%s, each with %s records/s of %s", units.Count(uint64(f.Hosts)), units.Rate(f.Rate), units.Size(f.RecordBytes))
	row("backend", "%s records/s, %s/s of compressed traffic, %s a day", units.Rate(float64(f.Hosts)*f.Rate), units.Size(f.wireBytes()), units.Size(f.wireBytes()*86400))
	row("", "%s requests/s in normal operation", units.Rate(f.Requests()))
	spread := fmt.Sprintf("the busiest has %s hosts, the mean is %s", units.Count(uint64(withJitter.Busiest)), units.Rate(math.Round(float64(f.Hosts)/float64(f.Partitions))))
	if f.Keyed {
		spread = "each host writes to all"
	}
	row("partitions", "%s, %s/s each; %s", units.Count(uint64(f.Partitions)), units.Size(f.PartitionBytes), spread)
	row("memory", "%s per host: %d slabs of %s", units.Size(float64(f.Slabs.MemoryBytes)), f.Slabs.SlabCount, units.Size(float64(f.Slabs.SlabBytes)))
	attempts := 0 // during the outage
	for _, n := range withJitter.Attempts[:min(withJitter.Outage, len(withJitter.Attempts))] {
		attempts += n
	}
	row("outage", "%s, with %s attempts of each host", units.Duration(f.Outage), units.Rate(math.Round(float64(attempts)/float64(f.Hosts))))
	if f.SpoolBytes > 0 {
		row("spool", "%s on the fullest host, %s on all", units.Size(float64(withJitter.SpoolBytes)), units.Size(float64(withJitter.SpoolTotal)))
	} else {
		row("spool", "none")
	}
	if withJitter.Dropped > 0 {
		row("", "too small: no record is dropped with --spool-max %s", f.spoolFlag())
	}
	t.Flush()
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	both := func(name string, of func(r *fleet.Result) string) {
		fmt.Fprintf(t, "%s\t%s\t%s\n", name, of(withJitter), of(withoutJitter))
	}
	fmt.Fprint(t, "after the outage\twith jitter\twithout\n")
	both("attempts per second, at most", func(r *fleet.Result) string { return units.Count(uint64(r.Peak)) })
	both("attempts that time out", func(r *fleet.Result) string { return units.Count(uint64(r.TimedOut)) })
	both("all are connected", func(r *fleet.Result) string { return units.Duration(r.Connected.Max) })
	both("half have caught up", func(r *fleet.Result) string { return units.Duration(r.CaughtUp.P50) })
	both("all have caught up", func(r *fleet.Result) string { return units.Duration(r.CaughtUp.Max) })
	both("records dropped", func(r *fleet.Result) string { return units.Count(uint64(math.Round(r.Dropped))) })
	t.Flush()
	use := fmt.Sprintf("forebay pipe --slab-size %s --slabs %d", units.FlagSize(int64(f.Slabs.SlabBytes)), f.Slabs.SlabCount)
	if f.Flush != defaultFlush {
		use += " --flush-interval " + units.Duration(f.Flush)
	}
	if f.SpoolBytes > 0 {
		use += " --when-full spill --spool DIR --spool-max " + f.spoolFlag()
	}
	fmt.Fprintf(w, "\nuse  %s\n", use)
}
