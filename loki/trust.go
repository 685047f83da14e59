package loki

import (
	"sync/atomic"
	"time"
)

// The type trust stores which entries of a stream Loki has confirmed. It determines whether the
// stream may share a request with other streams, and in which order. All fields are safe for
// concurrent use.
//
// A response with status 204 confirms only the last stream of a request: an ingester of Loki
// continues after an error and returns the outcome of the last stream (instance.Push in
// pkg/ingester). A distributor reports everything that it refuses itself: labels, times that are
// too old or too new, long lines, metadata, the rate of a tenant. An entry of any stream but the
// last can be lost without an error for three reasons:
//
//	too many streams   Streams that Loki may have to create come last, those idle for the
//	                   longest time after the others: if Loki could create the last one, it
//	                   could create all. After a refusal for this reason, a stream without a
//	                   recent confirmation has its own requests.
//	too far behind     Loki accepts entries up to an hour older than the newest entry of
//	                   their stream, and at most 10 minutes in the future. An entry shares a
//	                   request if it is at most 15 minutes older than the newest entry of its
//	                   stream, and at most 15 minutes older than the present. If Loki has
//	                   confirmed older entries within the last minute, the second condition
//	                   does not apply.
//	rate of a stream   3 MB/s by default. A stream shares requests up to 1 MiB/s, and only
//	                   while Loki has reported no limit for it.
//
// These rules can fail: other processes may write to the same stream or create streams, and the
// limits of a server may be lower. Therefore the last place of a request goes to the stream whose
// confirmation is the oldest. All streams take turns at the last place. So if Loki refuses a
// stream, it reports this after at most as many requests as there are streams.
type trust struct {
	confirmed atomic.Int64 // time of the last confirmation, in Unix ns
	// oldConfirmed is the time of the last confirmation of entries that were older than
	// maxSharedAge, in Unix ns.
	oldConfirmed atomic.Int64
	// newestEntry is the time of the latest entry that Loki accepted, in Unix ns.
	newestEntry atomic.Int64
	// busyUntil is the time, in Unix ns, at which all bytes sent so far would have been transmitted
	// if they were sent at sharedRate.
	busyUntil atomic.Int64
}

// These are the limits of a stream that shares requests with others.
const (
	maxSharedAge       = 15 * time.Minute // a quarter of the hour that Loki accepts
	oldConfirmedPeriod = time.Minute      // period during which oldConfirmed is valid
	// confirmedPeriod is how long a confirmation is valid. It is shorter than the 30 minutes for
	// which Loki keeps a stream in memory after its last entry (chunk_idle_period).
	confirmedPeriod = 20 * time.Minute
	// sharedRate is the maximum rate, in bytes per second, of a stream that shares requests.
	sharedRate = 1 << 20
	// If busyUntil is further in the future than sharedBurst, the stream does not share requests.
	sharedBurst = 4 * time.Second
)

// mayShare reports whether entries may be sent in one request with other streams. The times of the
// entries are between first and last, in Unix ns.
func (t *trust) mayShare(first, last int64, now time.Time) bool {
	ns := now.UnixNano()
	switch {
	case first < 0, last-first > int64(maxSharedAge), t.newestEntry.Load()-first > int64(maxSharedAge):
		return false
	case first < ns-int64(maxSharedAge) && t.oldConfirmed.Load() < ns-int64(oldConfirmedPeriod):
		return false
	}
	return t.busyUntil.Load()-ns < int64(sharedBurst)
}

// rank returns the rank of the stream in a request; the stream with the smallest rank comes last.
// The parameter lastAccepted is the time, in Unix ns, of the last request with the stream that Loki
// accepted.
func (t *trust) rank(lastAccepted int64, now time.Time) int64 {
	// If the stream was idle for a long time, Loki may have to create it again, so it comes last.
	if idle := now.UnixNano() - lastAccepted; idle > int64(confirmedPeriod) {
		return -idle
	}
	return max(1, t.confirmed.Load())
}

// isConfirmed reports whether Loki has confirmed the stream less than confirmedPeriod before now.
func (t *trust) isConfirmed(now time.Time) bool {
	return now.UnixNano()-t.confirmed.Load() < int64(confirmedPeriod)
}

// noteAccepted is called when Loki has accepted a request with size bytes of the stream. The times
// of the entries are between first and last, in Unix ns. The parameter confirmed reports whether
// the stream was the last one of the request.
func (t *trust) noteAccepted(first, last int64, size int, confirmed bool, now time.Time) {
	ns := now.UnixNano()
	t.newestEntry.Store(max(t.newestEntry.Load(), last))
	t.busyUntil.Store(min(max(t.busyUntil.Load(), ns)+int64(size)*int64(time.Second)/sharedRate, ns+2*int64(sharedBurst)))
	if !confirmed {
		return
	}
	t.confirmed.Store(ns)
	if first < ns-int64(maxSharedAge) {
		t.oldConfirmed.Store(ns)
	}
}
