// Package fleet simulates many hosts that send to one backend, such as Kafka, during and after
// an outage of the backend: the backlog of each host, the reconnects, and the time until all
// backlogs are delivered. Time is simulated, and equal [Config] values give equal [Result] values.
//
// The simulation has two parts. Reconnects are discrete events: the circuit breaker and the
// backoff of package deliver (packages breaker and backoff) decide about every attempt. The
// flow of records is a fluid: in each small step the capacity of a partition is divided fairly
// among the hosts that have records, as by a broker that serves one request of each connection
// in turn.
//
// A host sends all its records to one partition, unless [Config.Keyed] is set. It has slabs in
// memory and optionally a spool. When the slabs are full, records go to the spool; when the
// spool is full as well, the oldest records are dropped.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/forebay-log/forebay/internal/breaker"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// A Config describes the hosts, the backend and the outage. Fields without a default are required.
type Config struct {
	Hosts       int         // 1 to MaxHosts
	Rate        float64     // records per second that each host logs
	RecordBytes float64     // mean size in memory of a record, in bytes
	Slabs       slab.Sizing // memory of each host; its DrainRate is the maximum sending rate of the host
	SpoolBytes  int64       // size of the spool of each host; 0 means no spool

	Outage time.Duration // time for which the backend is unreachable
	// Fail is the time that an attempt takes to fail during the outage. Default 0: connections are
	// refused at once.
	Fail time.Duration
	// Within is how long a session retries after its first failure, at most once a second. Then the
	// session ends. See kafka.Config.Timeout. Default 0: the session ends at its first failure.
	Within time.Duration
	// Window is the number of batches that a session has in flight. When the session ends, each of
	// them counts as a failure. Default 1.
	Window int

	Partitions     int     // 1 to MaxPartitions
	PartitionBytes float64 // capacity of a partition, in compressed bytes per second
	// Ratio is the compression ratio: record bytes per compressed byte. Default 1.
	Ratio float64
	// Keyed distributes the records of each host over all partitions. Default: each host sends
	// to one partition.
	Keyed bool
	// Latency is the duration of one request. Default 0.
	Latency time.Duration
	// Flush is the longest time that a record waits for its slab to fill. Default 100 ms.
	Flush time.Duration
	// RequestBytes limits the bytes of records in one request while a host reads its spool. A host
	// sends one request at a time. Default 256 KiB, the batch size of package deliver.
	RequestBytes float64
	// Accept is the number of new sessions that the backend accepts per second. Further hosts wait
	// in a queue. An attempt that waits longer than DialTimeout fails. Default 0: no limit.
	Accept      float64
	DialTimeout time.Duration // default 10 s

	// Together disables jitter: every delay is its maximum. Default false.
	Together bool
	Seed     uint64
}

// Limits of a [Config].
const (
	MaxHosts      = 1_000_000
	MaxPartitions = 100_000
	// Longest limits Outage and the estimated time until all hosts have caught up.
	Longest = 30 * 24 * time.Hour
)

const (
	defaultDialTimeout = 10 * time.Second
	defaultFlush       = 100 * time.Millisecond
	defaultRequest     = 256 << 10
	joined             = 256 // maximum number of spooled batches in one request, see spool.NextUpTo
	// tryMin and tryMax limit the delays between the attempts of a session; see Config.Within.
	tryMin = 10 * time.Millisecond
	tryMax = time.Second
)

// ErrTooSlow is wrapped by the error of [Config.Run] if the backend cannot catch up.
var ErrTooSlow = errors.New("the backend is too slow")

// A Spread holds percentiles, over all hosts, of the time between the end of the outage and an
// event.
type Spread struct{ P50, P99, Max time.Duration }

// A Result summarizes a simulation at the time when all hosts have caught up. Numbers of records
// are sums over all hosts.
type Result struct {
	Accepted, Delivered, Dropped float64
	Waiting                      float64 // records in memory and in spools
	Ended                        time.Duration

	Busiest int // number of hosts of the busiest partition
	Tripped int // number of hosts whose circuit breaker opened

	Backlog    float64 // largest number of waiting records of one host
	SpoolBytes int64   // largest size of one spool
	SpoolTotal int64   // sum of the largest sizes of all spools
	SpoolNeed  int64   // smallest Config.SpoolBytes at which no host drops records

	// Attempts is the number of connection attempts of all hosts, for each second. The outage ends
	// at the beginning of the second with index Outage.
	Attempts  []int
	Outage    int
	Peak      int // largest number of attempts in one second after the outage
	TimedOut  int // number of attempts that failed because they waited longer than DialTimeout
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
	case !(r.sendRate() > r.Rate):
		err = fmt.Errorf("%w: a host sends %.0f records/s at most, in batches of %.0f, and %.0f arrive",
			ErrTooSlow, r.sendRate(), r.batch(), r.Rate)
	case r.Accept > 0 && float64(r.Hosts)/r.Accept > Longest.Seconds()/100:
		err = fmt.Errorf("%w: at %v new sessions per second, %d hosts need days to return", ErrTooSlow, r.Accept, r.Hosts)
	}
	return r, err
}

// capacity returns the capacity of a partition in records per second.
func (c *Config) capacity() float64 { return c.PartitionBytes * c.Ratio / c.RecordBytes }

// batch returns the number of records in one request of a host while it catches up.
func (c *Config) batch() float64 {
	if c.SpoolBytes > 0 {
		small := max(1, c.Rate*cmp.Or(c.Flush, defaultFlush).Seconds())
		return min(max(1, cmp.Or(c.RequestBytes, defaultRequest)/c.RecordBytes), joined*small)
	}
	return float64(c.Slabs.SlabRecords)
}

// sendRate returns the maximum rate of a host in records per second.
func (c *Config) sendRate() float64 {
	if c.Latency == 0 {
		return c.Slabs.DrainRate
	}
	return min(c.Slabs.DrainRate, c.batch()/c.Latency.Seconds())
}

// Requests returns the number of requests per second of all hosts together, when no host has a
// backlog.
func (c *Config) Requests() float64 {
	every := max(1/c.Rate, cmp.Or(c.Flush, defaultFlush).Seconds())
	return float64(c.Hosts) * max(1/every, c.Rate/float64(c.Slabs.SlabRecords))
}

// onDisk returns the size of a record in a spool, in bytes.
func (c *Config) onDisk() float64 { return c.RecordBytes + layout.SlotBytes }

// rand returns a random generator. Its sequence depends on Seed and purpose.
func (c *Config) rand(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, purpose)) }

// assign returns the partition of each host, as an index from 0 to partitions-1.
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

// busiest returns the number of hosts that send to the busiest partition.
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

// Plan returns the smallest number of partitions with which all hosts catch up within the duration
// catchUp after the end of the outage. It assumes that the last host reconnects at [Config.Back].
// The field Partitions is ignored.
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
	// Records are logged during the outage and until all hosts have caught up. All of them are sent
	// between the last reconnect and the end of catchUp.
	need := r.Rate * float64(r.Outage+catchUp) / float64(catchUp-back)
	if need > r.sendRate() {
		return 0, fmt.Errorf("%w: a host sends %.0f records/s at most, in batches of %.0f, and takes longer than %v to catch up however many partitions there are", ErrTooSlow, r.sendRate(), r.batch(), catchUp)
	}
	perPartition := math.Floor(r.capacity() / need) // largest possible number of hosts per partition
	if perPartition < 1 && !r.Keyed {
		return 0, fmt.Errorf("%w: one host needs %.0f records/s to catch up, and a partition takes %.0f: spread its records over more partitions with a key", ErrTooSlow, need, r.capacity())
	}
	if r.Keyed {
		p := math.Ceil(float64(r.Hosts) * need / r.capacity())
		if p > MaxPartitions {
			return 0, errTooMany
		}
		return int(p), nil
	}
	for p := max(1, int(float64(r.Hosts)/perPartition)); p <= MaxPartitions; p += max(1, p/100) {
		if float64(r.busiest(p)) <= perPartition {
			return p, nil
		}
	}
	return 0, errTooMany
}

var errTooMany = fmt.Errorf("%w: it takes more than %d partitions", ErrTooSlow, MaxPartitions)

// Back returns an upper bound of the time between the end of the outage and the last reconnect. The
// circuit's wait begins at half a second and doubles, up to a minute. Therefore the last wait is at
// most about twice the outage. Config.Accept may delay the reconnects further.
func (c *Config) Back() time.Duration {
	wait := min(breaker.OpenMax, 2*c.Outage+2*time.Second)
	if c.Accept > 0 {
		wait = max(wait, time.Duration(float64(c.Hosts)/c.Accept*1e9))
	}
	return wait
}
