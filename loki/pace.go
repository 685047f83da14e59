package loki

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/lazy"
)

var (
	// rateLimit matches Loki's text for the rate limit of a tenant, and streamLimit that for the
	// rate limit of a stream (pkg/validation/limits.go of Loki 3.7). Both capture the limit. In
	// addition, rateLimit captures the size of the request in bytes, and streamLimit the unit of
	// the limit.
	rateLimit   = lazy.Regexp(`limit: (\d+) bytes/sec\).* totaling '(\d+)' bytes`)
	streamLimit = lazy.Regexp(`(?i)per stream rate limit exceeded \(limit: (\d+(?:\.\d+)?)\s?([KMGT]?)B/sec\)`)
)

// waitFor waits until the rate limits that Loki has reported permit a request of size bytes. It
// then returns an answer of kind accepted. If the wait would exceed the timeout of a request, it
// immediately returns an answer of kind limited. The maximum wait is a quarter of BatchAge while
// other tenants or streams have capacity, because the wait delays their records.
func (s *client) waitFor(ctx context.Context, segs []segment, size int) answer {
	now := time.Now()
	var wait time.Duration
	for i, pc := range [...]*pace{&segs[0].st.owner.pace, &segs[0].st.pace} {
		// A stream with a reported limit is never in a shared request (see placeOf), so the streams
		// of a shared request are not checked.
		if i > 0 && len(segs) > 1 {
			break
		}
		most, ofStream := s.c.HTTP.Timeout, i > 0
		if pc.closedUntil.Load() > now.UnixNano() || pc.nextAt.Load() > now.UnixNano() {
			if s.othersHaveRoom(segs[0].st, ofStream, now) {
				most = min(most, s.c.BatchAge/4)
				// The limit is reached. An answer of kind limited makes package deliver keep this
				// stream's records and send the others.
				if left := time.Duration(pc.closedUntil.Load() - now.UnixNano()); left > 0 {
					return answer{kind: limited, err: errNoRoom, after: left, stream: ofStream}
				}
			}
		}
		w, ok := pc.reserve(size, most, now)
		if !ok {
			return answer{kind: limited, err: errNoRoom, after: w, stream: ofStream}
		}
		wait = max(wait, w)
	}
	if wait == 0 {
		return answer{}
	}
	s.paced.Add(1)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return answer{}
	case <-ctx.Done(): // the request was not sent
		return answer{kind: tryAgain, err: context.Cause(ctx)}
	}
}

// othersHaveRoom reports whether Loki may accept records to which the limit does not apply. The
// limit applies to the stream st if ofStream is true, otherwise to the tenant of st.
func (s *client) othersHaveRoom(st *stream, ofStream bool, now time.Time) bool {
	if ofStream {
		return s.recentStreams.anyOther(st, now)
	}
	return s.streams.othersHaveRoom(st.owner, now)
}

// limitReached handles a response that reports a rate limit as reached. It returns the answer a
// with the kind limited. Until the duration a.after has passed, no requests are sent for the tenant
// or, if the limit applies to a stream, for that stream.
func (s *client) limitReached(a answer, text []byte, segs []segment, now time.Time) answer {
	pc := &segs[0].st.owner.pace
	if a.stream = ofStream(text); a.stream {
		pc = &segs[0].st.pace
	}
	if s.othersHaveRoom(segs[0].st, a.stream, now) {
		a.after = max(a.after, time.Duration(pc.nextAt.Load()-now.UnixNano()))
	}
	pc.closedUntil.Store(now.Add(a.after).UnixNano())
	a.kind = limited
	return a
}

// ofStream reports whether the text of a response with status 429 names the rate limit of a stream,
// not of a tenant.
func ofStream(text []byte) bool { return streamLimit().Match(text) && !rateLimit().Match(text) }

// shrink handles a response that refuses a request of size bytes as too large. It halves the size
// limit of requests with several streams. It does nothing for a request with one stream, which is
// split instead.
func (s *client) shrink(size int, segs []segment) {
	if len(segs) > 1 {
		s.maxShared.Store(max(int64(size/2), minRequestLimit))
	}
}

// errNoRoom is the error of a request that was not sent, because a reported rate limit is reached.
var errNoRoom error = &httpclient.Error{Package: "loki", Message: "the rate limit of the tenant leaves no room at present"}

// overBurst is called when Loki has refused a request because of a rate limit. It reports whether
// the request exceeds the burst of that limit, so that it would be refused at any time. Such a
// request must be split. If it has a single record, the record must be refused. The parameter size
// is in bytes, and first is the time of the first record in Unix ns.
//
// Loki does not report the burst. The request is assumed to exceed it if the time since the last
// accepted request was sufficient for the size of the request at the reported rate; see [pace].
func (s *client) overBurst(text []byte, size int, segs []segment, first int64, now time.Time) bool {
	ofTenant := &segs[0].st.owner.pace
	pc := ofTenant
	var limit, total float64 // limit is in bytes per second, total in bytes
	if m := rateLimit().FindSubmatch(text); m != nil {
		limit, _ = strconv.ParseFloat(string(m[1]), 64)
		total, _ = strconv.ParseFloat(string(m[2]), 64)
	} else if m := streamLimit().FindSubmatch(text); m != nil {
		pc = &segs[0].st.pace
		limit, _ = strconv.ParseFloat(string(m[1]), 64)
		if len(m[2]) == 1 {
			for range strings.IndexByte("KMGT", m[2][0]&^0x20) + 1 { // &^0x20 makes it upper case
				limit *= 1024
			}
		}
		total = float64(size)
	} else {
		return false
	}
	if limit > 0 {
		pc.noteLimit(limit, total, now)
	}
	refill := time.Hour // time in which capacity for total bytes accumulates
	if total < limit*refill.Seconds() {
		refill = time.Duration(total / limit * float64(time.Second))
	}
	waited := now.Sub(time.Unix(0, pc.lastAccepted.Load())) >= refill
	if pc != ofTenant {
		// Loki checks the limit of a stream for each entry. The entries that it accepted have used
		// up the capacity of the stream, so the time is now measured from here.
		defer pc.lastAccepted.Store(now.UnixNano())
	}
	if entriesOf(segs) > 1 {
		return waited || total > limit
	}
	return waited && size >= stuckLength && pc.noteStuck(first, now, refill)
}

// noteAccepted is called when Loki has accepted a request of size bytes with segs. Each accepted
// request increases the size limit of shared requests by 1/4096, so that it recovers after shrink
// has reduced it.
func (s *client) noteAccepted(p *push, segs []segment, size int, now time.Time) {
	if most := s.maxShared.Load(); most < int64(s.c.Limits.MaxRequestBytes) {
		s.maxShared.Store(min(most+most/4096+1, int64(s.c.Limits.MaxRequestBytes)))
	}
	for i := range segs {
		st, order := segs[i].st, segs[i].order
		s.recentStreams.add(st, now)
		if len(segs) > 1 {
			size = segs[i].g.bytes
		}
		st.trust.noteAccepted(p.recs[order[0]].time, p.recs[order[len(order)-1]].time, size, i == len(segs)-1, now)
		st.pace.lastAccepted.Store(now.UnixNano())
		st.owner.pace.lastAccepted.Store(now.UnixNano())
	}
}
