package loki

import (
	"sync/atomic"
	"time"
)

// A trust records how well Loki has confirmed a stream. It decides whether the stream may share
// a request with other streams, and at which place.
//
// A 204 confirms only the last stream of a request: an ingester of Loki continues after an
// error and returns the outcome of the last stream (instance.Push in pkg/ingester). A
// distributor reports everything that it refuses itself: labels, times that are too old or
// too new, long lines, metadata, the rate of a tenant. An entry of another stream than the
// last can be lost silently for three reasons:
//
//	too many streams   Streams that Loki may have to create come last, those idle for the
//	                   longest time after the others: if Loki could create the last one, it
//	                   could create all. After a refusal for this reason, a stream without a
//	                   recent confirmation has its own requests.
//	too far behind     Loki accepts entries up to an hour older than the newest entry of
//	                   their stream, and at most 10 minutes in the future. An entry shares a
//	                   request if it is younger than 15 minutes, or if Loki has just
//	                   confirmed such entries, and if it is not older than that compared
//	                   with the entries sent before.
//	rate of a stream   3 MB/s by default. A stream shares requests up to 1 MiB/s, and only
//	                   while Loki has reported no limit for it.
//
// These rules can fail: other processes may write to the same stream or create streams, and
// the limits of a server may be lower. Therefore the last place of a request goes to the
// stream whose confirmation is the oldest. All streams take turns, so Loki reports a stream
// that it refuses after at most as many requests as there are streams.
type trust struct {
	assured atomic.Int64 // time of the last confirmation, in Unix ns
	aged    atomic.Int64 // time of the last confirmation of entries older than fresh, in Unix ns
	newest  atomic.Int64 // the latest time of an entry, in Unix ns
	due     atomic.Int64 // when the bytes sent so far would have been sent at sharedRate, in Unix ns
}

const (
	fresh       = 15 * time.Minute
	agedFor     = time.Minute      // for which aged counts
	keptFor     = 20 * time.Minute // Loki keeps a stream for half an hour after its last entry
	sharedRate  = 1 << 20          // bytes a second of a stream that shares requests
	sharedBurst = 4 * time.Second  // of sharedRate, at once
)

// mayShare reports whether entries with times from first to last may be sent in one request
// with other streams.
func (t *trust) mayShare(first, last int64, now time.Time) bool {
	ns := now.UnixNano()
	switch {
	case first < 0, last-first > int64(fresh), t.newest.Load()-first > int64(fresh):
		return false
	case first < ns-int64(fresh) && t.aged.Load() < ns-int64(agedFor):
		return false
	}
	return t.due.Load()-ns < int64(sharedBurst)
}

// rank orders the streams of a request: the one with the smallest rank comes last. passed is
// the time of the last request with the stream that Loki accepted.
func (t *trust) rank(passed int64, now time.Time) int64 {
	if idle := now.UnixNano() - passed; idle > int64(keptFor) { // Loki may have to make it
		return -idle
	}
	return max(1, t.assured.Load())
}

// known reports whether Loki has confirmed the stream recently.
func (t *trust) known(now time.Time) bool {
	return now.UnixNano()-t.assured.Load() < int64(keptFor)
}

// took notes that Loki accepted a request with size bytes of the stream, with times from
// first to last, and whether that confirms them.
func (t *trust) took(first, last int64, size int, confirmed bool, now time.Time) {
	ns := now.UnixNano()
	t.newest.Store(max(t.newest.Load(), last))
	t.due.Store(min(max(t.due.Load(), ns)+int64(size)*int64(time.Second)/sharedRate, ns+2*int64(sharedBurst)))
	if !confirmed {
		return
	}
	t.assured.Store(ns)
	if first < ns-int64(fresh) {
		t.aged.Store(ns)
	}
}
