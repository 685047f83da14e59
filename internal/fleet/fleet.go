// Package fleet simulates many hosts in front of one engine, such as Kafka, through an outage
// of that engine: what piles up on each host, how the hosts come back, and how long they catch
// up. Time is simulated, and the same [Config] gives the same [Result].
//
// Two things are taken apart. When a host tries again is simulated attempt by attempt, by the
// circuit breaker and the waits of package deliver themselves (packages breaker and backoff).
// What flows is a fluid: in each small step a partition divides what it can take fairly among
// the hosts that have something to send, as a broker does that serves one request of each
// connection in turn.
//
// A host sends what it has to one partition, the one of its origin. It has a pool of slabs,
// and behind that a spool or none. When the slabs are full, records go to the spool, and
// where that is full the oldest are dropped.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/breaker"
	"github.com/forebay-log/forebay/slab"
)

// A Config says what is simulated. Every field without a default is needed.
type Config struct {
	Hosts       int         // at most MaxHosts
	Rate        float64     // records per second of each host
	RecordBytes float64     // mean length of a record, as it lies in memory
	Slabs       slab.Sizing // the memory of each host, and how fast it sends: DrainRate
	SpoolBytes  int64       // of each host; 0: it has no spool

	Outage time.Duration // for so long the engine takes nothing
	// Fail is how long an attempt takes to fail meanwhile. Default 0: connections are refused.
	Fail time.Duration
	// Within is how long a session goes on by itself after its first failure, a try every
	// second or so, before it ends: kafka.Config.Timeout. Default 0: it ends at once.
	Within time.Duration
	// Window is how many batches a session has under way; each of them is a failure when the
	// session gives up. Default 1.
	Window int

	Partitions     int     // at most MaxPartitions
	PartitionBytes float64 // what one partition takes per second, in bytes as they are sent
	// Ratio is how many bytes of records become one byte as it is sent. Default 1.
	Ratio float64
	// Keyed says that the records of a host go to all partitions. Default: to one of them.
	Keyed bool
	// Latency is how long the engine takes for one request. Default 0.
	Latency time.Duration
	// Flush is how long a record waits at most for its slab to fill. Default 100 ms.
	Flush time.Duration
	// RequestBytes is how many bytes of records are one request at most while a host takes them
	// out of its spool; there is one request of a host at a time. Default 256 KiB, which package
	// deliver makes one batch of.
	RequestBytes float64
	// Accept is how many new sessions the engine takes per second; others wait in line for
	// DialTimeout, then they fail. Default 0: any number.
	Accept      float64
	DialTimeout time.Duration // default 10 s

	// Together has every wait be the longest possible: there is no jitter. Default false.
	Together bool
	Seed     uint64
}

// Bounds of a [Config].
const (
	MaxHosts      = 1_000_000
	MaxPartitions = 100_000
	// Longest bounds Outage and, as far as it can be told beforehand, the time after it.
	Longest = 30 * 24 * time.Hour
)

const (
	defaultDialTimeout = 10 * time.Second
	defaultFlush       = 100 * time.Millisecond
	defaultRequest     = 256 << 10
	joined             = 256 // batches of a spool that become one, see spool.NextUpTo
	// tryMin and tryMax bound the waits between the tries of a session, see Config.Within.
	tryMin = 10 * time.Millisecond
	tryMax = time.Second
)

// ErrTooSlow is wrapped by the error of [Config.Run] for an engine that falls behind for good.
var ErrTooSlow = errors.New("the engine is too slow")

// A Spread is how long after the end of the outage something was true of half of the hosts,
// of 99 % and of all.
type Spread struct{ P50, P99, Max time.Duration }

// A Result is what became of the records, the hosts and the engine. It is taken when all
// hosts have caught up. Records are those of all hosts.
type Result struct {
	Accepted, Delivered, Dropped float64
	Waiting                      float64 // of them, in memory and spools
	Ended                        time.Duration

	Busiest int // hosts at the busiest partition
	Tripped int // hosts whose circuit opened

	Backlog    float64 // records that waited on the host that had most
	SpoolBytes int64   // of the fullest spool
	SpoolTotal int64   // of all spools, each when it was fullest
	SpoolNeed  int64   // Config.SpoolBytes with which no host drops anything

	// Attempts are those of all hosts to reach the engine, per second. The outage ends at
	// the beginning of second Outage.
	Attempts  []int
	Outage    int
	Peak      int // most in one second after the outage
	TimedOut  int // that waited in line for DialTimeout
	Connected Spread
	CaughtUp  Spread
}

func (c *Config) resolve() (r Config, err error) {
	r = *c
	if r.Ratio == 0 {
		r.Ratio = 1
	}
	if r.Flush == 0 {
		r.Flush = defaultFlush
	}
	if r.RequestBytes == 0 {
		r.RequestBytes = defaultRequest
	}
	if r.Window == 0 {
		r.Window = 1
	}
	if r.DialTimeout == 0 {
		r.DialTimeout = defaultDialTimeout
	}
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 1) }
	switch {
	case r.Hosts < 1 || r.Hosts > MaxHosts:
		err = fmt.Errorf("%d hosts: want 1 to %d", r.Hosts, MaxHosts)
	case !positive(r.Rate):
		err = fmt.Errorf("a rate of %v: want records per second, above 0", r.Rate)
	case !positive(r.RecordBytes):
		err = fmt.Errorf("records of %v bytes: want more than 0", r.RecordBytes)
	case r.Slabs.SlabRecords < 1 || r.Slabs.SlabCount < 2:
		err = fmt.Errorf("%d slabs of %d records: want 2 of 1 or more", r.Slabs.SlabCount, r.Slabs.SlabRecords)
	case r.SpoolBytes < 0:
		err = fmt.Errorf("a spool of %d bytes: want 0 or more", r.SpoolBytes)
	case r.Outage < 0 || r.Outage > Longest:
		err = fmt.Errorf("an outage of %v: want 0 to %v", r.Outage, Longest)
	case r.Fail < 0 || r.Within < 0 || r.Latency < 0 || r.Flush < 0 || r.DialTimeout < 0:
		err = errors.New("a time is below 0")
	case r.Window < 0:
		err = fmt.Errorf("a window of %d: want 1 or more", r.Window)
	case r.Partitions < 1 || r.Partitions > MaxPartitions:
		err = fmt.Errorf("%d partitions: want 1 to %d", r.Partitions, MaxPartitions)
	case !positive(r.PartitionBytes):
		err = fmt.Errorf("%v bytes per second and partition: want more than 0", r.PartitionBytes)
	case !positive(r.RequestBytes):
		err = fmt.Errorf("requests of %v bytes: want more than 0", r.RequestBytes)
	case !positive(r.Ratio):
		err = fmt.Errorf("a ratio of %v: want more than 0", r.Ratio)
	case !(r.Accept >= 0):
		err = fmt.Errorf("%v new sessions per second: want 0 or more", r.Accept)
	case !(r.sends() > r.Rate):
		err = fmt.Errorf("%w: a host sends %.0f records/s at most, in batches of %.0f, and %.0f arrive",
			ErrTooSlow, r.sends(), r.batch(), r.Rate)
	case r.Accept > 0 && float64(r.Hosts)/r.Accept > Longest.Seconds()/100:
		err = fmt.Errorf("%w: at %v new sessions per second, %d hosts need days to return", ErrTooSlow, r.Accept, r.Hosts)
	}
	return r, err
}

// takes is how many records a partition takes per second.
func (c *Config) takes() float64 { return c.PartitionBytes * c.Ratio / c.RecordBytes }

// batch is how many records of a host are one request while it catches up.
func (c *Config) batch() float64 {
	if c.SpoolBytes > 0 {
		small := max(1, c.Rate*cmp.Or(c.Flush, defaultFlush).Seconds())
		return min(max(1, cmp.Or(c.RequestBytes, defaultRequest)/c.RecordBytes), joined*small)
	}
	return float64(c.Slabs.SlabRecords)
}

// sends is how many records a host sends per second at most.
func (c *Config) sends() float64 {
	if c.Latency == 0 {
		return c.Slabs.DrainRate
	}
	return min(c.Slabs.DrainRate, c.batch()/c.Latency.Seconds())
}

// Requests is how many requests all hosts send per second while all is well.
func (c *Config) Requests() float64 {
	every := max(1/c.Rate, cmp.Or(c.Flush, defaultFlush).Seconds())
	return float64(c.Hosts) * max(1/every, c.Rate/float64(c.Slabs.SlabRecords))
}

// onDisk is how many bytes a record takes in a spool.
func (c *Config) onDisk() float64 { return c.RecordBytes + batch.SlotBytes }

// rand returns a source of numbers for one purpose.
func (c *Config) rand(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, purpose)) }

// assign returns the partition of each host.
func (c *Config) assign(partitions int) (of []int) {
	of = make([]int, c.Hosts)
	if c.Keyed {
		return of
	}
	rng := c.rand(1)
	for i := range of {
		of[i] = int(rng.Uint64() % uint64(partitions))
	}
	return of
}

// busiest returns the most hosts that one partition has.
func (c *Config) busiest(partitions int) (most int) {
	if c.Keyed {
		return (c.Hosts + partitions - 1) / partitions
	}
	count := make([]int, partitions)
	for _, p := range c.assign(partitions) {
		count[p]++
		most = max(most, count[p])
	}
	return most
}

// Plan returns the least number of partitions with which the busiest one has caught up within
// catchUp of the end of the outage, if hosts take their time to come back, which is
// [Config.Back]. c.Partitions is ignored.
func (c *Config) Plan(catchUp time.Duration) (int, error) {
	with := *c
	with.Partitions = 1
	r, err := with.resolve()
	if err != nil {
		return 0, err
	}
	back := r.Back()
	if catchUp <= back {
		return 0, fmt.Errorf("hosts take up to %v to come back: %v to catch up is too little", back, catchUp)
	}
	// What arrives from the beginning of the outage until all is well goes through while
	// hosts are there.
	need := r.Rate * float64(r.Outage+catchUp) / float64(catchUp-back)
	if need > r.sends() {
		return 0, fmt.Errorf("%w: a host sends %.0f records/s at most, in batches of %.0f, and takes longer than %v to catch up however many partitions there are", ErrTooSlow, r.sends(), r.batch(), catchUp)
	}
	room := math.Floor(r.takes() / need) // hosts that one partition may have
	if room < 1 && !r.Keyed {
		return 0, fmt.Errorf("%w: one host needs %.0f records/s to catch up, and a partition takes %.0f: spread its records over more partitions with a key", ErrTooSlow, need, r.takes())
	}
	if r.Keyed {
		p := math.Ceil(float64(r.Hosts) * need / r.takes())
		if p > MaxPartitions {
			return 0, errTooMany
		}
		return int(p), nil
	}
	for p := max(1, int(float64(r.Hosts)/room)); p <= MaxPartitions; p += max(1, p/100) {
		if float64(r.busiest(p)) <= room {
			return p, nil
		}
	}
	return 0, errTooMany
}

var errTooMany = fmt.Errorf("%w: it takes more than %d partitions", ErrTooSlow, MaxPartitions)

// Back is how long after the outage hosts may take to come back. The waits of a circuit
// double from half a second or more on, so that none is longer than twice the time before
// it and a little, or than a minute; and the engine may take longer than that to let all in.
func (c *Config) Back() time.Duration {
	wait := min(breaker.OpenMax, 2*c.Outage+2*time.Second)
	if c.Accept > 0 {
		wait = max(wait, time.Duration(float64(c.Hosts)/c.Accept*1e9))
	}
	return wait
}
