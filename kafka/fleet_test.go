package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/fleet"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// A slowNetwork is the network of a broker. It can fail, has a latency and transfers a limited
// number of bytes per second.
type slowNetwork struct {
	kfake.VirtualNetwork
	perSecond float64
	latency   time.Duration

	mu    sync.Mutex
	down  bool
	conns []net.Conn
	free  time.Time // time at which the bytes written so far are transferred
	bytes int
}

func (e *slowNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	e.mu.Lock()
	down := e.down
	e.mu.Unlock()
	if down {
		return nil, errors.New("connection refused")
	}
	c, err := e.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conns = append(e.conns, c)
	return &slow{c, e}, nil
}

// set begins an outage and closes all connections, or ends the outage if down is false.
func (e *slowNetwork) set(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down = down; !down {
		return
	}
	for _, c := range e.conns {
		c.Close()
	}
	e.conns, e.free = nil, time.Time{}
}

type slow struct {
	net.Conn
	e *slowNetwork
}

// Write waits until p is transferred after all earlier bytes.
func (s *slow) Write(p []byte) (int, error) {
	e, now := s.e, time.Now()
	e.mu.Lock()
	if e.free.Before(now) {
		e.free = now
	}
	e.free = e.free.Add(time.Duration(float64(len(p)) / e.perSecond * 1e9))
	e.bytes += len(p)
	through := e.free
	e.mu.Unlock()
	time.Sleep(through.Sub(now) + e.latency)
	return s.Conn.Write(p)
}

// A countingDriver is a Driver that stores the times at which its sessions begin, fail to begin and
// connect.
type countingDriver struct {
	*Driver
	e      *slowNetwork
	mu     sync.Mutex
	failed []time.Time
	took   time.Duration // total duration of the attempts counted in failed
	begun  []time.Time
	dialed time.Time // time of the last successful dial after a failed one
	fails  bool      // the last dial failed
}

func (d *countingDriver) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.e.dial(ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && (d.fails || d.dialed.IsZero()) {
		d.dialed = time.Now()
	}
	d.fails = err != nil
	return c, err
}

func (d *countingDriver) Open(l deliver.Life) (deliver.Session, error) {
	at := time.Now()
	s, err := d.Driver.Open(l)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.failed = append(d.failed, at)
		d.took += time.Since(at)
		return nil, err
	}
	d.begun = append(d.begun, at)
	return s, nil
}

// Traits limits batches to catchUpBytes, so that a backlog needs many requests, as after a long
// outage.
func (d *countingDriver) Traits() deliver.Traits {
	t := d.Driver.Traits()
	t.Limits.Bytes = catchUpBytes
	return t
}

const (
	recordBytes  = 1000
	catchUpBytes = 10 * recordBytes
	// burst is the length of an interval. At its end, a host writes the records of the interval as
	// one batch.
	burst = 2 * time.Second
)

// A scenario describes an outage of a broker to which a small fleet of hosts sends through real
// outputs.
type scenario struct {
	name    string
	hosts   int
	rate    int // records per second of each host
	outage  time.Duration
	latency time.Duration
	takes   float64       // records per second that the broker accepts
	within  time.Duration // Config.Timeout
}

// An observation contains the measurements of one run of a scenario.
type observation struct {
	connected, caughtUp []time.Duration // times of each host, counted from the end of the outage, sorted
	during              int             // attempts to begin a session during the outage
	peak                int             // largest number of attempts in a second after the outage
	fail                time.Duration   // mean duration of a failed attempt
	ratio               float64         // bytes of records per byte sent
	waiting             uint64          // largest number of records in the spool of a host
	accepted, delivered uint64
}

// sessions returns how long a session that is open at the beginning of the outage may retry. Its
// retries do not count as attempts to begin a session.
func (c *scenario) sessions() time.Duration {
	if c.within == 0 {
		return 0
	}
	return c.within + 2*time.Second
}

func (c *scenario) run(t *testing.T) (f observation) {
	record := []byte(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"` + strings.Repeat("x", recordBytes-57) + "\"}\n")
	dir, err := testkit.InMemory(t)
	if err != nil {
		dir = t.TempDir()
	}
	bubble.Test(t, func(t *testing.T) {
		e := &slowNetwork{perSecond: c.takes * recordBytes * 1.1, latency: c.latency}
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.SeedTopics(1, "logs"), kfake.ListenFn(e.Listen))
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		dests, outs := make([]*countingDriver, c.hosts), make([]*deliver.Output, c.hosts)
		for i := range outs {
			d := &countingDriver{e: e}
			d.Driver, err = New(Config{
				Brokers: []string{"127.0.0.1:9092"}, Topic: "logs", Compression: "none", Dial: d.dial, Timeout: max(c.within, time.Millisecond),
			})
			if err != nil {
				t.Fatal(err)
			}
			dests[i] = d
			outs[i], err = deliver.NewOutput(dests[i], &deliver.OutputOptions{
				Name: "kafka", Codec: encode.JSON(nil).Codec(), SpoolDir: fmt.Sprintf("%s/%d", dir, i),
				Slab:    slab.Options{WhenFull: slab.Spill(), FlushInterval: burst * 9 / 10},
				OnError: func(batch.Event) {}, CloseTimeout: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		stop := make(chan struct{})
		var writers sync.WaitGroup
		for i, out := range outs {
			writers.Go(func() {
				time.Sleep(time.Duration(i) * burst / time.Duration(c.hosts))
				tick := time.NewTicker(burst)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
						for range c.rate * int(burst/time.Second) {
							out.Write(record)
						}
					}
				}
			})
		}
		time.Sleep(4*burst + burst/3)
		began := time.Now()
		e.set(true)
		time.Sleep(c.outage)
		e.set(false)
		back := time.Now()
		f.caughtUp = make([]time.Duration, c.hosts)
		for left := c.hosts; left > 0; {
			time.Sleep(250 * time.Millisecond)
			if time.Since(back) > 3*c.outage+10*time.Minute {
				t.Errorf("%d of %d hosts have not caught up %v after the outage", left, c.hosts, time.Since(back))
				break
			}
			for i, out := range outs {
				s := out.Stats()
				f.waiting = max(f.waiting, s.Pending.Spill)
				if f.caughtUp[i] == 0 && dests[i].isBack(back) && s.Pending.Total() <= uint64(3*c.rate) && s.Deliver.Breaker == deliver.Closed {
					f.caughtUp[i] = time.Since(back)
					left--
				}
			}
		}
		close(stop)
		writers.Wait()
		perSecond, failed, took := map[int]int{}, 0, time.Duration(0)
		for i, out := range outs {
			rep, err := out.Shutdown(t.Context())
			if err != nil {
				t.Errorf("host %d: %v", i, err)
			}
			f.accepted += rep.Account.Accepted
			f.delivered += rep.Account.Delivered
			d := dests[i]
			failed += len(d.failed)
			took += d.took
			for _, at := range slices.Concat(d.failed, d.begun) {
				if at.Before(back) && !at.Before(began.Add(c.sessions())) {
					f.during++
				} else if !at.Before(back) {
					perSecond[int(at.Sub(back)/time.Second)]++
				}
			}
			f.connected = append(f.connected, d.dialed.Sub(back))
		}
		for _, n := range perSecond {
			f.peak = max(f.peak, n)
		}
		f.fail = took / time.Duration(max(1, failed))
		f.ratio = float64(f.delivered) * recordBytes / float64(e.bytes)
	})
	slices.Sort(f.connected)
	slices.Sort(f.caughtUp)
	return f
}

func (d *countingDriver) isBack(since time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dialed.After(since)
}

// model returns the results of package fleet for the scenario, with ten seeds.
func (c *scenario) model(t *testing.T, f observation) (all []*fleet.Result) {
	for seed := range uint64(10) {
		m := fleet.Config{
			Hosts: c.hosts, Rate: float64(c.rate), RecordBytes: recordBytes, SpoolBytes: 1 << 30,
			Slabs:  slab.Sizing{SlabBytes: 64 << 10, SlabCount: 8, SlabRecords: 63, DrainRate: 63 / c.latency.Seconds()},
			Outage: c.outage, Fail: f.fail, Within: c.within, Window: 4, Partitions: 1, PartitionBytes: c.takes * recordBytes * 1.1,
			Ratio: f.ratio, Latency: c.latency, Flush: burst, RequestBytes: catchUpBytes, Seed: seed,
		}
		r, err := m.Run()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// The model of package fleet predicts how real outputs behave in an outage of their broker: the
// number of attempts, the times of the reconnects, the backlog of a host, and the time to catch up.
// The model and the outputs are random, so the bounds add a margin to the range of ten runs of the
// model.
func TestFleetModelMatchesRealOutputs(t *testing.T) {
	seed := testkit.Seed(t)
	for i, c := range []scenario{
		{name: "limited by the broker", hosts: 50, rate: 5, outage: 90 * time.Second, latency: 10 * time.Millisecond, takes: 500},
		{name: "sessions retry first", hosts: 50, rate: 5, outage: 90 * time.Second, latency: 10 * time.Millisecond, takes: 500, within: 30 * time.Second},
		{name: "sessions outlast the outage", hosts: 50, rate: 5, outage: 20 * time.Second, latency: 10 * time.Millisecond, takes: 500, within: 30 * time.Second},
		{name: "limited by latency", hosts: 20, rate: 5, outage: 90 * time.Second, latency: 800 * time.Millisecond, takes: 10000},
	} {
		if !testkit.Share(seed, i, 4) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.compare(t) })
	}
}

func (c *scenario) compare(t *testing.T) {
	f := c.run(t)
	if f.accepted != f.delivered || f.accepted < uint64(c.hosts*c.rate*int(c.outage.Seconds())) {
		t.Errorf("%d records were accepted, %d delivered", f.accepted, f.delivered)
	}
	if len(f.connected) != c.hosts || len(f.caughtUp) != c.hosts {
		t.Fatalf("%+v", f)
	}
	all := c.model(t, f)
	// near requires that got is in the range of the model, extended by the fraction share of its
	// bounds and by an absolute margin.
	near := func(name string, got, share, margin float64, of func(r *fleet.Result) float64) {
		least, most := of(all[0]), of(all[0])
		for _, r := range all {
			least, most = min(least, of(r)), max(most, of(r))
		}
		t.Logf("%s: %.4g; the model: %.4g to %.4g", name, got, least, most)
		if got < least*(1-share)-margin || got > most*(1+share)+margin {
			t.Errorf("%s is %.4g, want %.4g to %.4g as in the model", name, got, least, most)
		}
	}
	last, middle := c.hosts-1, (c.hosts-1)/2
	near("half are connected, s", f.connected[middle].Seconds(), 0.5, 3, func(r *fleet.Result) float64 { return r.Connected.P50.Seconds() })
	near("all are connected, s", f.connected[last].Seconds(), 0.25, 0.5, func(r *fleet.Result) float64 { return r.Connected.Max.Seconds() })
	near("half have caught up, s", f.caughtUp[middle].Seconds(), 0.3, 2, func(r *fleet.Result) float64 { return r.CaughtUp.P50.Seconds() })
	near("all have caught up, s", f.caughtUp[last].Seconds(), 0.15, 3, func(r *fleet.Result) float64 { return r.CaughtUp.Max.Seconds() })
	if c.outage < c.within { // Timeout exceeds the outage, so no session ends
		if f.during+f.peak > 0 || all[0].Tripped > 0 {
			t.Errorf("%d sessions began in the outage, and %d after it; in the model %d circuits opened", f.during, f.peak, all[0].Tripped)
		}
		return
	}
	near("records wait on one host", float64(f.waiting), 0.1, float64(3*c.rate), func(r *fleet.Result) float64 { return r.Backlog })
	near("come back in one second", float64(f.peak), 0.5, 2, func(r *fleet.Result) float64 { return float64(r.Peak) })
	near("attempts in the outage", float64(f.during), 0.25, 10, func(r *fleet.Result) (n float64) {
		for _, v := range r.Attempts[c.sessions()/time.Second : r.Outage] {
			n += float64(v)
		}
		return n
	})
}
