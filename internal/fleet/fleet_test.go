package fleet

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/slab"
)

func slabs(t testing.TB, rate, bytes float64, latency time.Duration) slab.Sizing {
	t.Helper()
	s, err := slab.Plan(slab.Workload{Rate: rate, RecordBytes: bytes, Latency: latency, Spike: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tenThousand returns the Config of a fleet of ten thousand hosts.
func tenThousand(t testing.TB) Config {
	return Config{
		Hosts: 10_000, Rate: 100, RecordBytes: 256, Slabs: slabs(t, 100, 256, 10*time.Millisecond), SpoolBytes: 1 << 30,
		Outage: 10 * time.Minute, Partitions: 16, PartitionBytes: 10 << 20, Ratio: 4, Latency: 10 * time.Millisecond, Seed: 1,
	}
}

// randomFleet returns the Config of a small random fleet whose backend can keep up. shape, if not
// nil, changes it.
func randomFleet(t testing.TB, rng *rand.Rand, shape func(c *Config)) Config {
	upTo := func(least, most float64) float64 { return least * math.Pow(most/least, rng.Float64()) }
	c := Config{
		Hosts: 1 + rng.IntN(300), Rate: upTo(0.1, 5000), RecordBytes: upTo(50, 2000), Seed: rng.Uint64(),
		Outage: time.Duration(upTo(0.01, 3600) * 1e9), Ratio: upTo(0.5, 10), Partitions: 1 + rng.IntN(20),
		Keyed: rng.IntN(2) == 0, Together: rng.IntN(4) == 0,
	}
	if rng.IntN(2) == 0 {
		c.Latency = time.Duration(upTo(1e-4, 2e-2) * 1e9)
	}
	if rng.IntN(2) == 0 {
		c.Flush = time.Duration(upTo(1e-2, 10) * 1e9)
	}
	if rng.IntN(2) == 0 {
		c.SpoolBytes = int64(upTo(1<<14, 1<<34))
	}
	if rng.IntN(3) == 0 {
		c.Within, c.Window = time.Duration(upTo(1, 30)*1e9), 1+rng.IntN(8)
	}
	if rng.IntN(3) == 0 {
		c.Fail = time.Duration(upTo(0.1, 10) * 1e9)
	}
	if rng.IntN(2) == 0 {
		c.Accept = upTo(2, 1000)
	}
	if shape != nil {
		shape(&c)
	}
	c.Slabs = slabs(t, c.Rate, c.RecordBytes, c.Latency)
	c.Flush = max(c.Flush, 2*c.Latency)
	n := float64(c.busiest(c.Partitions))
	if c.Keyed {
		n = float64(c.Hosts) / float64(c.Partitions)
	}
	c.PartitionBytes = n * c.Rate * c.RecordBytes / c.Ratio * upTo(1.05, 20)
	return c
}

func run(t testing.TB, c Config) *Result {
	t.Helper()
	r, err := c.Run()
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return r
}

func sum(n []int) (all int) {
	for _, v := range n {
		all += v
	}
	return all
}

// The accepted records are the sum of delivered, waiting and dropped records. All logged records
// are accepted, and none is dropped unnecessarily.
func TestEveryRecordIsAccountedFor(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(t, 60, 2000) {
		c := randomFleet(t, rng, nil)
		r := run(t, c)
		about := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-6*(1+r.Accepted) {
				t.Errorf("%+v: %s is %v, want %v: %+v", c, what, got, want, r)
			}
		}
		about("accepted", r.Accepted, float64(c.Hosts)*c.Rate*r.Ended.Seconds())
		about("the account", r.Delivered+r.Waiting+r.Dropped, r.Accepted)
		about("what waits in the end", r.Waiting, 0)
		limit := float64(c.Slabs.SlabCount*c.Slabs.SlabRecords) + float64(c.SpoolBytes)/c.onDisk()
		if r.Dropped > 0 && r.Backlog < limit*0.999999 || r.Backlog > limit*1.000001 {
			t.Errorf("%+v: %v wait on one host that holds at most %v, and %v are dropped", c, r.Backlog, limit, r.Dropped)
		}
		if r.SpoolBytes > c.SpoolBytes || r.SpoolTotal > int64(c.Hosts)*r.SpoolBytes {
			t.Errorf("%+v: a spool has %d bytes, all have %d", c, r.SpoolBytes, r.SpoolTotal)
		}
		if enough := c; r.Dropped > 0 {
			enough.SpoolBytes = r.SpoolNeed
			if all := run(t, enough); all.Dropped > 0 {
				t.Errorf("%+v: with a spool of %d bytes %v are dropped", c, r.SpoolNeed, all.Dropped)
			}
		}
		if r.Connected.Max > r.CaughtUp.Max || r.CaughtUp.P50 > r.CaughtUp.P99 || r.CaughtUp.P99 > r.CaughtUp.Max {
			t.Errorf("%+v: connected %+v, caught up %+v", c, r.Connected, r.CaughtUp)
		}
		if r.Peak > sum(r.Attempts) || r.TimedOut > sum(r.Attempts[min(r.Outage, len(r.Attempts)):]) {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}

// The hosts of the busiest partition catch up when a simple calculation predicts it, or slightly
// later.
func TestBusiestPartitionCatchesUpAsCalculated(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(t, 40, 1000) {
		c := randomFleet(t, rng, func(c *Config) {
			c.Keyed, c.Accept, c.Within, c.Fail = false, 0, 0, 0
			c.Latency, c.Flush = 0, 0 // hosts send at their maximum rate
			c.SpoolBytes = 1 << 50
			c.Outage += 2 * time.Second
			c.Rate += 2 // each host has records during the outage
		})
		r := run(t, c)
		n := float64(r.Busiest) * c.Rate
		spare := c.capacity() - n
		least := n * c.Outage.Seconds() / spare
		most := c.Back().Seconds() + n*(c.Outage+c.Back()).Seconds()/spare
		if got, slack := r.CaughtUp.Max.Seconds(), 0.01*(most+c.Outage.Seconds()); got < least-slack || got > most+slack {
			t.Errorf("%+v: all have caught up after %v s, want %v to %v", c, got, least, most)
		}
	}
}

// More capacity does not make the result worse, and more load does not make it better.
func TestMoreCapacityNeverHurts(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for range testkit.Rounds(t, 30, 1000) {
		c := randomFleet(t, rng, func(c *Config) {
			c.Keyed, c.Accept = true, 0 // the partition of a host does not depend on the number of partitions, and no host queues
		})
		a := run(t, c)
		// A step may leave capacity unused. Capacity that exceeds the load makes up for that later.
		load := float64(c.Hosts) * c.Rate / float64(c.Partitions) / c.capacity()
		slack := func(b *Result) time.Duration {
			return 50*time.Millisecond + time.Duration((4+1/(1-load))*float64(a.Ended+b.Ended)/steps)
		}

		b := c
		b.Partitions *= 2
		if more := run(t, b); more.CaughtUp.Max > a.CaughtUp.Max+slack(more) || more.Dropped > a.Dropped*1.01 {
			t.Errorf("%+v: twice as many partitions: %+v, and then %+v", c, a, more)
		}
		b = c
		b.SpoolBytes = 2*c.SpoolBytes + 1<<20
		if more := run(t, b); more.Dropped > a.Dropped || more.CaughtUp.Max < a.CaughtUp.Max-slack(more) || more.SpoolBytes < a.SpoolBytes {
			t.Errorf("%+v: more spool: %+v, and then %+v", c, a, more)
		}
		b = c
		b.Outage = 4*c.Outage + 3*time.Second + 2*c.Within + 4*c.Fail
		if more := run(t, b); more.Backlog < a.Backlog*0.999999 || more.Dropped < a.Dropped || more.SpoolBytes < a.SpoolBytes {
			t.Errorf("%+v: a longer outage: %+v, and then %+v", c, a, more)
		}
	}
}

// A partition receives nothing before hosts send, even if a step is long. All hosts return 0.9 s
// after the outage with full memory, and the capacity hardly exceeds the load.
func TestNothingFlowsBeforeHostsSend(t *testing.T) {
	c := Config{
		Hosts: 251, Rate: 2084, RecordBytes: 108, Slabs: slabs(t, 2084, 108, 215*time.Microsecond), Outage: 27675 * time.Millisecond,
		Fail: 537 * time.Millisecond, Within: 29460 * time.Millisecond, Window: 2, Partitions: 6, PartitionBytes: 4.5e6, Ratio: 2.277,
		Keyed: true, Latency: 215 * time.Microsecond, Flush: 67 * time.Millisecond, Together: true, Seed: 1,
	}
	r := run(t, c)
	all := c.capacity() * float64(c.Partitions)
	least := float64(c.Hosts) * r.Backlog / (all - float64(c.Hosts)*c.Rate)
	if got := (r.CaughtUp.Max - r.Connected.P50).Seconds(); got < 0.9*least || got > 1.2*least {
		t.Errorf("all have caught up %v s after they were back, want %v: %+v", got, least, r)
	}
}

// All hosts catch up in time with the number of partitions that Plan returns.
func TestPlanSuffices(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	planned := 0
	for range testkit.Rounds(t, 60, 2000) {
		c := randomFleet(t, rng, func(c *Config) { c.Within, c.Fail, c.Accept, c.Together = 0, 0, 0, false })
		c.PartitionBytes *= 4
		in := c.Back() + time.Duration((1+9*rng.Float64())*float64(c.Outage+time.Second))
		p, err := c.Plan(in)
		if errors.Is(err, ErrTooSlow) {
			continue
		} else if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		planned++
		c.Partitions = p
		if r := run(t, c); r.CaughtUp.Max > in+(r.Ended)/100 {
			t.Errorf("%+v: caught up within %v, and not %v", c, r.CaughtUp.Max, in)
		}
	}
	if planned < 10 {
		t.Errorf("%d fleets were planned", planned)
	}
}

// Hosts whose circuits open at the same time reconnect together, unless their delays are random.
func TestHerdIsSpreadByJitter(t *testing.T) {
	race.Skip(t)
	c := tenThousand(t)
	jittered := run(t, c)
	c.Together = true
	together := run(t, c)
	if jittered.Peak > 400 || together.Peak < 9000 {
		t.Errorf("with jitter %d come back in one second, without %d", jittered.Peak, together.Peak)
	}
	if jittered.Connected.Max > time.Minute || jittered.Tripped != c.Hosts || together.Tripped != c.Hosts {
		t.Errorf("with jitter %+v, without %+v", jittered.Connected, together.Connected)
	}
	// If the backend accepts 200 sessions per second, hosts that arrive at the same time queue, and
	// some time out again.
	c.Accept = 200
	together, c.Together = run(t, c), false
	jittered = run(t, c)
	if jittered.TimedOut > 0 || jittered.Connected.Max > 65*time.Second || together.TimedOut < c.Hosts || together.Connected.Max < 4*time.Minute {
		t.Errorf("with jitter %d fail and the last is back after %v, without %d and %v",
			jittered.TimedOut, jittered.Connected.Max, together.TimedOut, together.Connected.Max)
	}
	// If sessions retry for longer than the outage, all hosts reconnect within about a second.
	c.Accept, c.Outage, c.Within = 0, 20*time.Second, 30*time.Second
	if r := run(t, c); r.Tripped > 0 || r.Connected.Max > 1100*time.Millisecond || r.SpoolBytes == 0 {
		t.Errorf("%+v", r)
	}
}

// The same seed gives the same result, and another seed a different one.
func TestSeedDeterminesResult(t *testing.T) {
	c := tenThousand(t)
	c.Hosts, c.Partitions = 500, 3
	a, b := run(t, c), run(t, c)
	c.Seed++
	if other := run(t, c); !reflect.DeepEqual(a, b) || reflect.DeepEqual(a.Attempts, other.Attempts) {
		t.Errorf("%+v, %+v, and with another seed %+v", a, b, other)
	}
}

// The shares of all hosts add up to the capacity, or to all records that the hosts can send. A host
// that can send less than its share sends all its records.
func TestLevelSharesCapacityFairly(t *testing.T) {
	rng := testkit.Rand(testkit.Seed(t))
	for range 2000 {
		wants, all := make([]float64, 1+rng.IntN(20)), 0.0
		for i := range wants {
			wants[i] = math.Floor(rng.ExpFloat64() * 10)
			all += wants[i]
		}
		available := rng.Float64() * 200
		got, fair := 0.0, level(wants, available)
		for _, w := range wants {
			got += min(w, fair)
		}
		if math.Abs(got-min(available, all)) > 1e-9*(1+all) {
			t.Fatalf("%v of %v are divided among %v", got, available, wants)
		}
	}
}

func TestInvalidConfigIsRejected(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"0 hosts":                         func(c *Config) { c.Hosts = 0 },
		"a rate of 0":                     func(c *Config) { c.Rate = 0 },
		"a rate of NaN":                   func(c *Config) { c.Rate = math.NaN() },
		"records of +Inf bytes":           func(c *Config) { c.RecordBytes = math.Inf(1) },
		"0 slabs":                         func(c *Config) { c.Slabs = slab.Sizing{} },
		"a spool of -1":                   func(c *Config) { c.SpoolBytes = -1 },
		"an outage of":                    func(c *Config) { c.Outage = Longest + 1 },
		"a time is below 0":               func(c *Config) { c.Fail = -1 },
		"a window of -1":                  func(c *Config) { c.Window = -1 },
		"0 partitions":                    func(c *Config) { c.Partitions = 0 },
		"0 bytes per second":              func(c *Config) { c.PartitionBytes = 0 },
		"requests of -1 bytes":            func(c *Config) { c.RequestBytes = -1 },
		"a ratio of -1":                   func(c *Config) { c.Ratio = -1 },
		"-1 new sessions":                 func(c *Config) { c.Accept = -1 },
		"10000 hosts need days to return": func(c *Config) { c.Accept = 1e-3 },
		"a host sends 64 records/s at most, in batches of 1024, and 100 arrive": func(c *Config) { c.Latency = 16 * time.Second },
		"to the busiest of 16":        func(c *Config) { c.PartitionBytes = 1 << 20 },
		"more partitions would do it": func(c *Config) { c.Keyed = true; c.Partitions = 1; c.PartitionBytes = 64e6 * (1 + 1e-5) },
	} {
		c := tenThousand(t)
		change(&c)
		if _, err := c.Run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	for want, change := range map[string]func(*Config) time.Duration{
		"0 hosts":                        func(c *Config) time.Duration { c.Hosts = 0; return time.Hour },
		"1m0s to catch up is too little": func(c *Config) time.Duration { return time.Minute },
		"however many partitions":        func(c *Config) time.Duration { c.Slabs.DrainRate = 110; return 10 * time.Minute },
		"with a key":                     func(c *Config) time.Duration { c.PartitionBytes = 1000; return 10 * time.Minute },
		"more than 100000 partitions":    func(c *Config) time.Duration { c.PartitionBytes, c.Keyed = 1000, true; return 10 * time.Minute },
	} {
		c := tenThousand(t)
		in := change(&c)
		if _, err := c.Plan(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func BenchmarkTenThousand(b *testing.B) {
	for b.Loop() {
		run(b, tenThousand(b))
	}
}
