package loki

import (
	"sync/atomic"
	"time"
)

// A tenant is what is known of a tenant.
//
// A 401, 403 or 260 is about the credentials, and then everything waits until somebody
// changes them; or it is about the tenant of the request, and then other tenants must
// not wait. Other tenants tell which it is. While one of them may still be let in, only
// the records of the refused tenant are held.
type tenant struct {
	pace   pace         // of its limit
	used   atomic.Bool  // records of it were made, or read from disk
	denied atomic.Int64 // when it was refused last, in Unix ns; 0: it was let in since, or never refused
}

// deniedFor is how long a refusal of a tenant counts. Without an end, a tenant that is
// let in again would wait for ever behind records of one that is not.
const deniedFor = 5 * time.Minute

// use notes that there are records of t.
func (t *tenant) use() {
	if !t.used.Load() {
		t.used.Store(true)
	}
}

// onlyTenant reports whether a tenant other than t may be let in: one that has records
// and was not refused of late.
func (r *registry) onlyTenant(t *tenant, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.tenants {
		if other == t || !other.used.Load() {
			continue
		}
		if at := other.denied.Load(); at == 0 || now.Sub(time.Unix(0, at)) > deniedFor {
			return true
		}
	}
	return false
}

// A pace is what is known of a rate limit of Loki, of a tenant or of a stream. Such
// a limit lets through at once what has gathered while nothing was sent, up to its
// burst. Answers tell the rate but not the burst, and what is larger than that is
// refused for ever. It is found by the time: what has gathered since something was
// last let through is enough, unless it is more than the burst, or others send to
// the same tenant. Then smaller requests do no harm.
type pace struct {
	passed  atomic.Int64 // when something was last let through, in Unix ns
	stuck   atomic.Int64 // time of a single record that was refused, in Unix ns
	since   atomic.Int64 // when it was refused first, likewise
	refused atomic.Int64 // how often it was refused although it should not
}

const (
	// A single record is refused for good after so many refusals over so long a
	// time, if it has so many bytes: others may use up the rate, but hardly as often,
	// and a short one comes through then.
	stuckTimes  = 6
	stuckFor    = 20 * time.Second
	stuckLength = 32 << 10
)

// sticks notes that a single record of time t was refused, and reports whether
// that was so often that it will be for ever.
func (pc *pace) sticks(t int64, now time.Time, gathers time.Duration) bool {
	if pc.stuck.Swap(t) != t || pc.since.Load() == 0 {
		pc.since.Store(now.UnixNano())
		pc.refused.Store(0)
	}
	return pc.refused.Add(1) >= stuckTimes && now.Sub(time.Unix(0, pc.since.Load())) >= stuckFor+2*gathers
}
