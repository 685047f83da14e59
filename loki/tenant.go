package loki

import (
	"math"
	"sync/atomic"
	"time"
)

// A tenant is the state of a tenant of Loki. All fields are safe for concurrent use.
//
// A response with status 401, 403 or 260 can have two causes. If the credentials are wrong, all
// records must wait until the credentials are changed. If Loki refuses only the tenant of the
// request, the records of other tenants must not wait. The responses to other tenants show which
// cause applies. While another tenant may still be accepted, only the records of the refused tenant
// are held.
type tenant struct {
	pace                pace         // state of the tenant's rate limit
	streamsLimitedUntil atomic.Int64 // time, in Unix ns, until which Loki may refuse new streams
	hasRecords          atomic.Bool  // the tenant has had records, new or from disk
	// deniedAt is the time of the last refusal, in Unix ns. It is 0 if Loki has never refused the
	// tenant or has accepted it since.
	deniedAt atomic.Int64
}

// denialPeriod is the time after which the refusal of a tenant no longer counts. Without this time,
// a tenant that Loki accepts again could wait forever while Loki refuses other tenants.
const denialPeriod = 5 * time.Minute

// markUsed sets hasRecords. It stores only if necessary, because a store for each record would
// contend for the cache line.
func (t *tenant) markUsed() {
	if !t.hasRecords.Load() {
		t.hasRecords.Store(true)
	}
}

// acceptable reports whether t was not refused within denialPeriod before now.
func (t *tenant) acceptable(now time.Time) bool {
	at := t.deniedAt.Load()
	return at == 0 || now.Sub(time.Unix(0, at)) > denialPeriod
}

// A pace is the state of a rate limit of Loki for a tenant or a stream. All fields are safe for
// concurrent use.
//
// Loki uses a token bucket (golang.org/x/time/rate): capacity that is unused while nothing is sent
// accumulates up to the burst. Responses contain the rate but not the burst. A request above the
// burst is always refused. The client detects such a request by time: Loki refuses it, although the
// capacity accumulated since the last accepted request is sufficient. Then either the request
// exceeds the burst, or other processes send to the same tenant. In both cases the client must send
// smaller requests.
type pace struct {
	lastAccepted atomic.Int64 // time of the last accepted request, in Unix ns
	// stuckTime is the time of the last single record that was refused, in Unix ns. It identifies
	// the record. stuckSince is the time of its first refusal, in Unix ns, and stuckCount the
	// number of its refusals.
	stuckTime  atomic.Int64
	stuckSince atomic.Int64
	stuckCount atomic.Int64

	// rate is the rate in bytes per second when Loki last reported the limit, as bits of a float64.
	// reportedAt is the time of that report, in Unix ns. See rateAt.
	rate       atomic.Uint64
	reportedAt atomic.Int64
	// nextAt is the earliest time of the next request, in Unix ns. It limits the rate of the
	// client.
	nextAt atomic.Int64
	// closedUntil is the time, in Unix ns, until which no requests are sent, because Loki reported
	// the limit as reached.
	closedUntil atomic.Int64
}

const (
	// A single record of stuckLength bytes or more is refused permanently after stuckRefusals
	// refusals during stuckPeriod. Other senders may use up the rate, but rarely that often. A
	// shorter record is sent again without a limit, because it fits into the capacity that other
	// senders leave.
	stuckRefusals = 6
	stuckPeriod   = 20 * time.Second
	stuckLength   = 32 << 10 // bytes
)

// noteStuck is called when a request with a single record was refused, although the accumulated
// capacity was sufficient. It reports whether the refusal is permanent, because this has happened
// too often. t is the time of the record, in Unix ns, and identifies it. refill is the time in
// which the capacity for the record accumulates.
func (pc *pace) noteStuck(t int64, now time.Time, refill time.Duration) bool {
	if pc.stuckTime.Swap(t) != t || pc.stuckSince.Load() == 0 {
		pc.stuckSince.Store(now.UnixNano())
		pc.stuckCount.Store(0)
	}
	return pc.stuckCount.Add(1) >= stuckRefusals && now.Sub(time.Unix(0, pc.stuckSince.Load())) >= stuckPeriod+2*refill
}

// These constants determine the reaction to a 429 response that reports a rate limit.
const (
	belowLimit = 0.9 // fraction of the reported limit that is used
	// backOff is the fraction of the current rate that is used, if it exceeds belowLimit of the
	// reported limit.
	backOff     = 0.7
	limitPeriod = 15 * time.Minute // time without a 429 response after which the rate is unlimited again
	maxPause    = time.Second      // longest pause after a 429 response
)

// noteLimit is called when a request of size bytes was refused because of a limit in bytes per
// second. It sets the rate of further requests and a pause of up to maxPause.
func (pc *pace) noteLimit(limit, size float64, now time.Time) {
	rate := max(belowLimit*limit, backOff*pc.rateAt(now))
	pc.rate.Store(math.Float64bits(rate))
	pc.reportedAt.Store(now.UnixNano())
	gap := maxPause
	if size < rate {
		gap = time.Duration(size / rate * float64(maxPause))
	}
	if next := now.Add(gap).UnixNano(); next > pc.nextAt.Load() {
		pc.nextAt.Store(next)
	}
}

// rateAt returns the current rate in bytes per second; 0 means unlimited. The rate grows with each
// minute without a refusal, by 5 % × (2^minutes − 1). The reported limit is only an estimate: Loki
// has a larger capacity with several distributors, and a smaller one for this client if others send
// to the same tenant.
func (pc *pace) rateAt(now time.Time) float64 {
	sinceReport := now.Sub(time.Unix(0, pc.reportedAt.Load()))
	if sinceReport > limitPeriod {
		return 0
	}
	minutes := math.Floor(max(sinceReport, 0).Minutes())
	return math.Float64frombits(pc.rate.Load()) * (1 + 0.05*(math.Exp2(minutes)-1))
}

// reserve returns how long a request of size bytes must wait. It delays the following requests by
// the time that the request takes at the current rate. If the wait exceeds maxWait, it returns
// false and reserves nothing.
func (pc *pace) reserve(size int, maxWait time.Duration, now time.Time) (wait time.Duration, ok bool) {
	rate := pc.rateAt(now)
	if rate == 0 {
		return 0, true
	}
	takes := int64(float64(size) / rate * float64(time.Second))
	for {
		free := pc.nextAt.Load()
		start := max(free, now.UnixNano())
		if wait = time.Duration(start - now.UnixNano()); wait > maxWait {
			return wait, false
		}
		if pc.nextAt.CompareAndSwap(free, start+takes) {
			return wait, true
		}
	}
}
