package loki

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A tenant is the state of a tenant.
//
// A 401, 403 or 260 concerns either the credentials, and then all records wait until they
// are changed, or the tenant of the request, and then other tenants must not wait. The
// responses to other tenants show which case applies. While one of them may still be
// accepted, only the records of the refused tenant are held.
type tenant struct {
	pace                pace         // state of the tenant's rate limit
	streamsLimitedUntil atomic.Int64 // Unix ns until which new streams may be refused
	used                atomic.Bool  // there were records of it, new or from disk
	denied              atomic.Int64 // Unix ns of the last refusal; 0 if never refused or accepted since
}

// deniedFor is how long a refusal of a tenant is valid. Without an end, a tenant that is
// accepted again would wait forever for records of a refused one.
const deniedFor = 5 * time.Minute

// use records that there are records of t.
func (t *tenant) use() {
	if !t.used.Load() {
		t.used.Store(true)
	}
}

// onlyTenant reports whether a tenant other than t may be accepted: one that has records
// and was not refused recently.
func (r *registry) onlyTenant(t *tenant, now time.Time) bool {
	return r.another(t, func(other *tenant) bool { return other.acceptable(now) })
}

// othersFit reports whether a tenant other than t may have room: one that has records, was
// not refused recently, and has not reached its limit.
func (r *registry) othersFit(t *tenant, now time.Time) bool {
	return r.another(t, func(other *tenant) bool {
		return other.acceptable(now) && other.pace.closedUntil.Load() <= now.UnixNano()
	})
}

// acceptable reports whether t was not refused recently.
func (t *tenant) acceptable(now time.Time) bool {
	at := t.denied.Load()
	return at == 0 || now.Sub(time.Unix(0, at)) > deniedFor
}

// another reports whether a tenant other than t has records and satisfies is.
func (r *registry) another(t *tenant, is func(*tenant) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.tenants {
		if other != t && other.used.Load() && is(other) {
			return true
		}
	}
	return false
}

// recentStreams holds the last two streams of which Loki accepted records. It identifies the
// streams that a limit does not apply to.
type recentStreams struct {
	mu sync.Mutex // leaf lock; guards the fields below
	of [2]struct {
		st *stream
		at time.Time
	}
}

// recentFor is how long a stream counts as in use.
const recentFor = 5 * time.Minute

// note records that Loki accepted records of st.
func (l *recentStreams) note(st *stream, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[0].st != st {
		l.of[1] = l.of[0]
		l.of[0].st = st
	}
	l.of[0].at = now
}

// another reports whether records of a stream other than st were accepted recently.
func (l *recentStreams) another(st *stream, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.of {
		if o.st != nil && o.st != st && now.Sub(o.at) < recentFor {
			return true
		}
	}
	return false
}

// A pace is the state of a rate limit of Loki for a tenant or a stream. Such a limit has a
// burst: capacity that is unused while nothing is sent accumulates up to the burst.
// Responses contain the rate but not the burst, and a request above the burst is always
// refused. The client detects this by time: the capacity accumulated since the last
// accepted request is sufficient, unless the request exceeds the burst or others send to
// the same tenant. In both cases smaller requests are safe.
type pace struct {
	passed  atomic.Int64 // time of the last accepted request, in Unix ns
	stuck   atomic.Int64 // time of a single record that was refused, in Unix ns
	since   atomic.Int64 // time of its first refusal, in Unix ns
	refused atomic.Int64 // number of its unexpected refusals

	rate        atomic.Uint64 // bytes per second when Loki reported the limit, as bits of a float64
	reportedAt  atomic.Int64  // time of the last report, in Unix ns; see rateAt
	free        atomic.Int64  // earliest time of the next request, in Unix ns
	closedUntil atomic.Int64  // Loki accepts no records until this time, in Unix ns
}

const (
	// A single record of stuckLength bytes or more is given up after stuckTimes refusals over
	// stuckFor: other senders may use up the rate, but rarely that often, and a short
	// record is accepted then.
	stuckTimes  = 6
	stuckFor    = 20 * time.Second
	stuckLength = 32 << 10
)

// sticks records that a single record of time t was refused, and reports whether that
// happened so often that the refusal is permanent.
func (pc *pace) sticks(t int64, now time.Time, gathers time.Duration) bool {
	if pc.stuck.Swap(t) != t || pc.since.Load() == 0 {
		pc.since.Store(now.UnixNano())
		pc.refused.Store(0)
	}
	return pc.refused.Add(1) >= stuckTimes && now.Sub(time.Unix(0, pc.since.Load())) >= stuckFor+2*gathers
}

// Constants of the reaction to a rate limit in a 429 response.
const (
	belowLimit = 0.9              // fraction of the reported limit that is used
	backOff    = 0.7              // fraction of the current rate that remains, if that is more
	pacedFor   = 15 * time.Minute // time without a 429 after which the limit is dropped
	leastGap   = time.Second      // longest pause after a 429
)

// limited records that a request of size bytes was refused because of a limit in bytes per
// second.
func (pc *pace) limited(limit, size float64, now time.Time) {
	rate := max(belowLimit*limit, backOff*pc.rateAt(now))
	pc.rate.Store(math.Float64bits(rate))
	pc.reportedAt.Store(now.UnixNano())
	gap := leastGap
	if size < rate {
		gap = time.Duration(size / rate * float64(leastGap))
	}
	if free := now.Add(gap).UnixNano(); free > pc.free.Load() {
		pc.free.Store(free)
	}
}

// rateAt returns the rate in bytes per second; 0 means unlimited. The rate grows with each
// minute without a refusal, slowly at first: the reported limit is the limit of one
// distributor of Loki, and there may be more of them, or fewer other senders.
func (pc *pace) rateAt(now time.Time) float64 {
	sinceReport := now.Sub(time.Unix(0, pc.reportedAt.Load()))
	if sinceReport > pacedFor {
		return 0
	}
	minutes := math.Floor(max(sinceReport, 0).Minutes())
	return math.Float64frombits(pc.rate.Load()) * (1 + 0.05*(math.Exp2(minutes)-1))
}

// reserve returns how long a request of size bytes must wait, and delays the following
// requests accordingly. It reports false and reserves nothing if the wait exceeds most.
func (pc *pace) reserve(size int, most time.Duration, now time.Time) (wait time.Duration, ok bool) {
	rate := pc.rateAt(now)
	if rate == 0 {
		return 0, true
	}
	takes := int64(float64(size) / rate * float64(time.Second))
	for {
		free := pc.free.Load()
		start := max(free, now.UnixNano())
		if wait = time.Duration(start - now.UnixNano()); wait > most {
			return wait, false
		}
		if pc.free.CompareAndSwap(free, start+takes) {
			return wait, true
		}
	}
}
