package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/cmd/internal/units"
	"github.com/forebay-log/forebay/internal/fleet"
)

// fleetConfig is what the flags of fleet say.
type fleetConfig struct {
	load
	hosts         int
	outage        duration
	fail          duration
	session       duration
	flush         duration
	spool         size
	partitions    int
	partitionRate size
	catchUp       duration
	compression   float64
	keyed         bool
	accept        rate
	cost          float64
	seed          uint64
	plot          string
	output        choice
}

func newFleet() *cobra.Command {
	c := &fleetConfig{
		load: newLoad(), outage: duration(10 * time.Minute), session: duration(30 * time.Second),
		flush: duration(pipeFlush),
		spool: size{value: 1 << 30}, partitionRate: size{value: 10 << 20, min: 1}, accept: 200,
		output: choice{value: "text", of: []string{"text", "json"}},
	}
	c.rate, c.latency, c.window = 100, duration(10*time.Millisecond), 3
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Plan for many hosts that send to one engine, and simulate an outage",
		Long: `Plan for many hosts that send to one engine, such as Kafka: the number of partitions,
the bytes per second, the spool on each host, and the time until all hosts have caught up
after an outage of the engine. The hosts are simulated twice, with the delays of forebay's
circuit breaker and with the same delays without jitter. Without jitter, hosts that failed
together return together.

--rate and --msg-size describe one host. The slabs are planned for one host, by the formula
of forebay size. A host sends its records to one random partition, so that some partitions
have more hosts than others. With --keyed it sends to all partitions.

Without --partitions, the plan has enough partitions for all hosts to catch up within
--catch-up. --partition-rate and --cost count compressed bytes; --compression is the ratio
of uncompressed to compressed bytes.

The engine accepts --accept-rate new sessions per second. A host that waits 10 s for a
session fails and tries again later. --session is the time for which a session retries
every second before its circuit counts a failure: 30s for Kafka, 0 for destinations that do
not retry.

A host has one request in flight, which needs --latency. A healthy host sends a request
every --flush-interval. The backlog of its spool is sent in requests of up to 256 KiB.

docs/FLEET.md lists the limits of the simulation.`,
		Example: `  forebay fleet --hosts 10000 --rate 100/s --msg-size 256 --outage 10m
  forebay fleet --hosts 500 --measure app.log --outage 1h --cost 0.05
  forebay fleet --outage 30m --plot herd.svg
  forebay fleet --partitions 32 --outage 10m -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runFleet(c, cmd) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&c.hosts, "hosts", 10_000, "number `N` of hosts")
	c.add(cmd, "number `N` of slabs on each host (default 0: computed)")
	fs.Var(&c.outage, "outage", "duration of the outage")
	fs.Var(&c.fail, "fail-after", "time until an attempt fails during the outage (default 0: connections are refused)")
	fs.Var(&c.session, "session", "time for which a session retries before it fails")
	fs.Var(&c.flush, "flush-interval", "longest wait of a record for its slab to fill")
	fs.Var(&c.spool, "spool-max", "spool of each host; 0: none")
	fs.IntVar(&c.partitions, "partitions", 0, "number `N` of partitions (default 0: computed)")
	fs.Var(&c.partitionRate, "partition-rate", "compressed bytes per second that one partition accepts")
	fs.Var(&c.catchUp, "catch-up", "time to deliver the backlog after the outage (default 0: the duration of the outage, at least 5m)")
	fs.Float64Var(&c.compression, "compression", 4, "`RATIO` of uncompressed to compressed bytes")
	fs.BoolVar(&c.keyed, "keyed", false, "send the records of each host to all partitions")
	fs.Var(&c.accept, "accept-rate", "new sessions per second that the engine accepts; 0: no limit")
	fs.Float64Var(&c.cost, "cost", 0, "`PRICE` of one compressed GB, 10^9 bytes (default 0)")
	fs.Uint64Var(&c.seed, "seed", 1, "`SEED` of the random partitions and delays")
	fs.StringVar(&c.plot, "plot", "", "write an SVG chart of the attempts per second to `FILE` (default: none)")
	c.output.add(cmd, "output", "o", "output format")
	return cmd
}

// A forecast is what fleet prints.
type forecast struct {
	cfg             fleet.Config
	measured        *measured
	cost            float64
	apart, together *fleet.Result // with jitter, and without
}

// check refuses flags that make no sense.
func (c *fleetConfig) check(cmd *cobra.Command) error {
	set := cmd.Flags().Changed
	for _, bad := range []struct {
		is   bool
		text string
	}{
		{c.hosts < 1 || c.hosts > fleet.MaxHosts, fmt.Sprintf("--hosts %d: use 1 to %d", c.hosts, fleet.MaxHosts)},
		{c.rate == 0, "--rate 0: without records there is nothing to send"},
		{time.Duration(c.outage) > fleet.Longest, fmt.Sprintf("--outage %v: use at most %s", &c.outage, days(fleet.Longest))},
		{time.Duration(c.session) > time.Hour, fmt.Sprintf("--session %v: use at most 1h", &c.session)},
		{time.Duration(c.fail) > time.Hour, fmt.Sprintf("--fail-after %v: use at most 1h", &c.fail)},
		{c.flush <= 0 || time.Duration(c.flush) > time.Hour, fmt.Sprintf("--flush-interval %v: use more than 0 and at most 1h", &c.flush)},
		{c.partitions < 0 || c.partitions > fleet.MaxPartitions, fmt.Sprintf("--partitions %d: use 1 to %d, or 0 to have it worked out", c.partitions, fleet.MaxPartitions)},
		{c.partitions > 0 && set("catch-up"), "--partitions and --catch-up: either say how many there are, or have it worked out"},
		{!(c.compression > 0 && c.compression <= 1000), fmt.Sprintf("--compression %v: use more than 0 and at most 1000", c.compression)},
		{!(c.cost >= 0) || math.IsInf(c.cost, 1), fmt.Sprintf("--cost %v: use 0 or more", c.cost)},
	} {
		if bad.is {
			return usageError(errors.New(bad.text))
		}
	}
	return nil
}

func days(d time.Duration) string { return fmt.Sprintf("%dd", d/(24*time.Hour)) }

// config returns what is to be simulated.
func (c *fleetConfig) config(cmd *cobra.Command) (cfg fleet.Config, m *measured, err error) {
	if err := c.check(cmd); err != nil {
		return cfg, nil, err
	}
	w, m, err := c.workload(cmd)
	if err != nil {
		return cfg, nil, err
	}
	if w.Rate <= 0 {
		return cfg, nil, runtimeError(errNoRate)
	}
	s, err := c.plan(w)
	if err != nil {
		return cfg, nil, err
	}
	cfg = fleet.Config{
		Hosts: c.hosts, Rate: w.Rate, RecordBytes: w.RecordBytes, Slabs: s, SpoolBytes: c.spool.value,
		Outage: time.Duration(c.outage), Fail: time.Duration(c.fail), Within: time.Duration(c.session),
		Window: c.window + 1, Flush: time.Duration(c.flush),
		Partitions: c.partitions, PartitionBytes: float64(c.partitionRate.value), Ratio: c.compression, Keyed: c.keyed,
		Latency: w.Latency, Accept: float64(c.accept), Seed: c.seed,
	}
	if cfg.Partitions == 0 {
		in := time.Duration(c.catchUp)
		if in == 0 {
			in = max(cfg.Outage, 5*time.Minute)
		}
		if cfg.Partitions, err = cfg.Plan(in); err != nil {
			return cfg, nil, runtimeError(fmt.Errorf("cannot plan: %w", err))
		}
	}
	return cfg, m, nil
}

func runFleet(c *fleetConfig, cmd *cobra.Command) error {
	cfg, m, err := c.config(cmd)
	if err != nil {
		return err
	}
	plot, err := openPlot(c.plot)
	if err != nil {
		return runtimeError(err)
	}
	defer plot.discard()
	f := forecast{cfg: cfg, measured: m, cost: c.cost}
	if f.apart, err = cfg.Run(); err == nil {
		cfg.Together = true
		f.together, err = cfg.Run()
	}
	if err != nil {
		return runtimeError(fmt.Errorf("cannot simulate: %w", err))
	}
	if c.output.value == "json" {
		err = f.printJSON(cmd.OutOrStdout())
	} else {
		err = f.printText(cmd.OutOrStdout())
	}
	if err != nil {
		return runtimeError(err)
	}
	if err := plot.write(func(w io.Writer) error { return fleet.WriteSVG(w, &f.cfg, f.apart, f.together) }); err != nil {
		return runtimeError(err)
	}
	return nil
}

// records is how many arrive per second at the engine.
func (f *forecast) records() float64 { return float64(f.cfg.Hosts) * f.cfg.Rate }

// wire is how many bytes of them are sent per second.
func (f *forecast) wire() float64 { return f.records() * f.cfg.RecordBytes / f.cfg.Ratio }

// paid is what a day costs.
func (f *forecast) paid() float64 { return f.wire() * 86400 / 1e9 * f.cost }

// spoolFlag is a quota with which no host drops anything, a power of two. It is twice what
// waits, or more: a spool gives back space by segments, which are a quarter of it or 8 MiB.
func (f *forecast) spoolFlag() string {
	quota := int64(1 << 20)
	for quota < 2*f.apart.SpoolNeed && quota < 1<<62 {
		quota *= 2
	}
	return units.FlagSize(quota)
}

// tries is how often a host tries during the outage.
func tries(r *fleet.Result, hosts int) float64 {
	n := 0
	for _, v := range r.Attempts[:min(r.Outage, len(r.Attempts))] {
		n += v
	}
	return float64(n) / float64(hosts)
}

func (f *forecast) printText(w io.Writer) error {
	c, apart, together := &f.cfg, f.apart, f.together
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	hosts := float64(c.Hosts)
	if m := f.measured; m != nil {
		row("measured", "%s: %s lines, %s each", m.File, units.Count(m.Lines), units.Size(m.MeanBytes))
	}
	row("hosts", "%s, each with %s records/s of %s", units.Count(uint64(c.Hosts)), units.Rate(c.Rate), units.Size(c.RecordBytes))
	row("engine", "%s records/s, %s/s as sent, %s a day", units.Rate(f.records()), units.Size(f.wire()), units.Size(f.wire()*86400))
	row("", "%s requests/s while all is well", units.Rate(c.Requests()))
	if f.cost > 0 {
		row("", "%s a day, %s in 30 days, at %v per GB", money(f.paid()), money(f.paid()*30), f.cost)
	}
	spread := fmt.Sprintf("the busiest has %s hosts, %s is the mean", units.Count(uint64(apart.Busiest)), units.Rate(math.Round(hosts/float64(c.Partitions))))
	if c.Keyed {
		spread = "each host writes to all"
	}
	row("partitions", "%s, %s/s each; %s", units.Count(uint64(c.Partitions)), units.Size(c.PartitionBytes), spread)
	row("memory", "%s per host: %d slabs of %s", units.Size(float64(c.Slabs.MemoryBytes)), c.Slabs.SlabCount, units.Size(float64(c.Slabs.SlabBytes)))
	row("outage", "%s; a host tries %s times meanwhile", units.Duration(c.Outage), units.Rate(math.Round(tries(apart, c.Hosts))))
	if c.SpoolBytes > 0 {
		row("spool", "%s on the fullest host, %s on all", units.Size(float64(apart.SpoolBytes)), units.Size(float64(apart.SpoolTotal)))
	} else {
		row("spool", "none")
	}
	if apart.Dropped > 0 {
		row("", "too little: it takes --spool-max %s to keep everything", f.spoolFlag())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	both := func(name string, of func(r *fleet.Result) string) {
		fmt.Fprintf(t, "%s\t%s\t%s\n", name, of(apart), of(together))
	}
	fmt.Fprint(t, "after the outage\twith jitter\twithout\n")
	both("attempts per second, at most", func(r *fleet.Result) string { return units.Count(uint64(r.Peak)) })
	both("attempts that time out", func(r *fleet.Result) string { return units.Count(uint64(r.TimedOut)) })
	both("all are connected", func(r *fleet.Result) string { return units.Duration(r.Connected.Max) })
	both("half have caught up", func(r *fleet.Result) string { return units.Duration(r.CaughtUp.P50) })
	both("all have caught up", func(r *fleet.Result) string { return units.Duration(r.CaughtUp.Max) })
	both("records dropped", func(r *fleet.Result) string { return units.Count(uint64(math.Round(r.Dropped))) })
	if err := t.Flush(); err != nil {
		return err
	}
	use := fmt.Sprintf("forebay pipe --slab-size %s --slabs %d", units.FlagSize(int64(c.Slabs.SlabBytes)), c.Slabs.SlabCount)
	if c.Flush != pipeFlush {
		use += " --flush-interval " + units.Duration(c.Flush)
	}
	if c.SpoolBytes > 0 {
		use += " --when-full spill --spool DIR --spool-max " + f.spoolFlag()
	}
	_, err := fmt.Fprintf(w, "\nuse  %s\n", use)
	return err
}

// money is an amount, to the cent where that says something.
func money(v float64) string {
	if v >= 100 {
		return units.Count(uint64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// printJSON prints what is asked and the answer. Times are in seconds.
func (f *forecast) printJSON(w io.Writer) error {
	type spread struct {
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
		Max float64 `json:"max"`
	}
	type result struct {
		Peak      int     `json:"attempts_per_second_peak"`
		TimedOut  int     `json:"attempts_timed_out"`
		Tries     float64 `json:"attempts_per_host_during_outage"`
		Tripped   int     `json:"hosts_with_open_circuit"`
		Connected spread  `json:"connected_seconds"`
		CaughtUp  spread  `json:"caught_up_seconds"`
		Spool     int64   `json:"spool_bytes_per_host"`
		SpoolAll  int64   `json:"spool_bytes"`
		SpoolNeed int64   `json:"spool_bytes_needed_per_host"`
		Accepted  uint64  `json:"records_accepted"`
		Delivered uint64  `json:"records_delivered"`
		Dropped   uint64  `json:"records_dropped"`
		Attempts  []int   `json:"attempts_per_second"` // from the beginning of the outage on
	}
	seconds := func(s fleet.Spread) spread { return spread{s.P50.Seconds(), s.P99.Seconds(), s.Max.Seconds()} }
	count := func(v float64) uint64 { return uint64(math.Round(v)) }
	of := func(r *fleet.Result) result {
		return result{r.Peak, r.TimedOut, tries(r, f.cfg.Hosts), r.Tripped, seconds(r.Connected), seconds(r.CaughtUp),
			r.SpoolBytes, r.SpoolTotal, r.SpoolNeed, count(r.Accepted), count(r.Delivered), count(r.Dropped), r.Attempts}
	}
	c := &f.cfg
	out := struct {
		Measured    *measured `json:"measured,omitempty"`
		Hosts       int       `json:"hosts"`
		Rate        float64   `json:"records_per_second_per_host"`
		RecordBytes float64   `json:"record_bytes"`
		Outage      float64   `json:"outage_seconds"`
		Engine      float64   `json:"records_per_second"`
		Sent        float64   `json:"sent_bytes_per_second"`
		Requests    float64   `json:"requests_per_second"`
		CostPerDay  *float64  `json:"cost_per_day,omitempty"`
		Partitions  int       `json:"partitions"`
		Busiest     int       `json:"hosts_on_busiest_partition"`
		SlabBytes   int       `json:"slab_bytes"`
		SlabCount   int       `json:"slab_count"`
		Seed        uint64    `json:"seed"`
		Apart       result    `json:"with_jitter"`
		Together    result    `json:"without_jitter"`
	}{
		f.measured, c.Hosts, c.Rate, c.RecordBytes, c.Outage.Seconds(), f.records(), f.wire(), c.Requests(), nil,
		c.Partitions, f.apart.Busiest, c.Slabs.SlabBytes, c.Slabs.SlabCount, c.Seed, of(f.apart), of(f.together),
	}
	if paid := f.paid(); f.cost > 0 {
		out.CostPerDay = &paid
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}
