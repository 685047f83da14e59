package loki

import (
	"math"
	"sync/atomic"
	"time"
)

// The type tenant is the state of a tenant of Loki. All fields are safe for concurrent use.
//
// A response with status 401, 403 or 260 can have two causes. If the credentials are wrong, all
// records must wait until the credentials are changed. If Loki refuses only the tenant of the
// request, the records of other tenants must not wait. The responses to other tenants show which
// cause applies. While another tenant may still be accepted, only the records of the refused tenant
// wait.
type tenant struct {
	pace                pace         // state of the tenant's rate limit
	streamsLimitedUntil atomic.Int64 // time, in Unix ns, until which Loki may refuse new streams
	hasRecords          atomic.Bool  // the tenant has had records, new or from disk
	// deniedAt is the time of the last refusal, in Unix ns. It is 0 if Loki has accepted the tenant
	// since, or has never refused it.
	deniedAt atomic.Int64
}

// denialPeriod is the time after which the refusal of a tenant no longer counts. Without it, a
// tenant that Loki accepts again could wait forever while Loki refuses other tenants.
const denialPeriod = 5 * time.Minute

// markUsed sets hasRecords to true. It stores only if necessary, because goroutines would contend
// for the cache line if each record caused a store.
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
// accumulates up to the burst. Responses contain the rate but not the burst. A request that exceeds
// the burst is always refused. The client recognizes such a request by time: Loki refuses it
// although the capacity accumulated since the last accepted request is sufficient. Then either the
// request exceeds the burst, or other processes send to the same tenant. In both cases the client
// must send smaller requests.
type pace struct {
	lastAccepted atomic.Int64 // time of the last accepted request, in Unix ns
	// stuckTime, stuckSince and stuckCount describe the last record that was refused although its
	// request contained no other. stuckTime is the time of that record and identifies it,
	// stuckSince is the time of its first refusal, both in Unix ns, and stuckCount is the number of
	// its refusals.
	stuckTime  atomic.Int64
	stuckSince atomic.Int64
	stuckCount atomic.Int64

	// rate is the rate at the time reportedAt, when Loki last reported the limit. It is in bytes
	// per second, stored as the bits of a float64. reportedAt is in Unix ns. See rateAt.
	rate       atomic.Uint64
	reportedAt atomic.Int64
	// nextAt is the earliest time of the next request, in Unix ns. It keeps the client below the
	// rate.
	nextAt atomic.Int64
	// Until the time closedUntil, in Unix ns, no requests are sent, because Loki reported the limit
	// as reached.
	closedUntil atomic.Int64
}

const (
	// A record of stuckLength bytes or more that is alone in its request is refused permanently
	// after stuckRefusals refusals during stuckPeriod. Other senders may use up the rate, but
	// rarely so often. A shorter record is sent again without a limit, because it fits into the
	// capacity that other senders leave.
	stuckRefusals = 6
	stuckPeriod   = 20 * time.Second
	stuckLength   = 32 << 10 // bytes
)

// noteStuck is called when Loki has refused a request with a single record although the accumulated
// capacity was sufficient. It reports whether this has happened so often that the record must be
// refused permanently. t is the time of the record, in Unix ns, and identifies it. refill is the
// time in which the capacity for the record accumulates.
func (pc *pace) noteStuck(t int64, now time.Time, refill time.Duration) bool {
	if pc.stuckTime.Swap(t) != t || pc.stuckSince.Load() == 0 {
		pc.stuckSince.Store(now.UnixNano())
		pc.stuckCount.Store(0)
	}
	return pc.stuckCount.Add(1) >= stuckRefusals && now.Sub(time.Unix(0, pc.stuckSince.Load())) >= stuckPeriod+2*refill
}

// These constants determine the reaction to a response with status 429 that reports a rate limit.
const (
	belowLimit = 0.9 // fraction of the reported limit that is used
	// The new rate is backOff times the current rate if that is more than belowLimit times the
	// reported limit.
	backOff     = 0.7
	limitPeriod = 15 * time.Minute // time without a 429 response after which the rate is unlimited again
	maxPause    = time.Second      // longest pause after a 429 response
)

// noteLimit is called when Loki has refused a request of size bytes because of a limit in bytes per
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
// minute without a refusal, by 5 % × (2^minutes − 1). It may exceed the reported limit, which is
// only an estimate: Loki accepts more with several distributors, and less from this client if
// others send to the same tenant.
func (pc *pace) rateAt(now time.Time) float64 {
	sinceReport := now.Sub(time.Unix(0, pc.reportedAt.Load()))
	if sinceReport > limitPeriod {
		return 0
	}
	minutes := math.Floor(max(sinceReport, 0).Minutes())
	return math.Float64frombits(pc.rate.Load()) * (1 + 0.05*(math.Exp2(minutes)-1))
}

// reserve returns how long a request of size bytes must wait. It delays the following requests by
// the time that the request takes at the current rate. If the wait would exceed maxWait, it returns
// false and delays nothing.
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
