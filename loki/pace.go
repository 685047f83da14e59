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
	rateLimit   = lazy.Regexp(`limit: (\d+) bytes/sec\).* totaling '(\d+)' bytes`)
	streamLimit = lazy.Regexp(`(?i)per stream rate limit exceeded \(limit: (\d+(?:\.\d+)?)\s?([KMGT]?)B/sec\)`)
)

// waitFor waits until the known limits of Loki permit a request of size bytes. If the wait would be
// too long, it returns an answer instead. While other tenants or streams have capacity, they must not
// wait long.
func (s *client) waitFor(ctx context.Context, segs []segment, size int) answer {
	now := time.Now()
	var wait time.Duration
	for i, pc := range [...]*pace{&segs[0].st.owner.pace, &segs[0].st.pace} {
		if i > 0 && len(segs) > 1 { // streams with a known limit do not share requests, see placeOf
			break
		}
		most, ofStream := s.c.HTTP.Timeout, i > 0
		if pc.closedUntil.Load() > now.UnixNano() || pc.free.Load() > now.UnixNano() {
			if s.others(segs[0].st, ofStream, now) {
				most = min(most, s.c.BatchAge/4)
				if left := time.Duration(pc.closedUntil.Load() - now.UnixNano()); left > 0 {
					return answer{verdict: limited, err: errNoRoom, after: left, stream: ofStream}
				}
			}
		}
		w, ok := pc.reserve(size, most, now)
		if !ok {
			return answer{verdict: limited, err: errNoRoom, after: w, stream: ofStream}
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
	case <-ctx.Done(): // nothing was sent
		return answer{verdict: tryAgain, err: context.Cause(ctx)}
	}
}

// others reports whether there may be room for records that are not subject to the limit
// of st's tenant or, if ofStream, of st.
func (s *client) others(st *stream, ofStream bool, now time.Time) bool {
	if ofStream {
		return s.recentStreams.another(st, now)
	}
	return s.streams.othersFit(st.owner, now)
}

// limitReached handles a response that reports a limit as reached. Nothing is sent for the tenant, or the
// stream, until a.after has passed.
func (s *client) limitReached(a answer, text []byte, segs []segment, now time.Time) answer {
	pc := &segs[0].st.owner.pace
	if a.stream = ofStream(text); a.stream {
		pc = &segs[0].st.pace
	}
	if s.others(segs[0].st, a.stream, now) {
		a.after = max(a.after, time.Duration(pc.free.Load()-now.UnixNano()))
	}
	pc.closedUntil.Store(now.Add(a.after).UnixNano())
	a.verdict = limited
	return a
}

// ofStream reports whether a 429 is about the rate of a stream, not of the tenant.
func ofStream(text []byte) bool { return streamLimit().Match(text) && !rateLimit().Match(text) }

// shrink halves the size limit of requests with several streams after one of size bytes was too large.
func (s *client) shrink(size int, segs []segment) {
	if len(segs) > 1 {
		s.fits.Store(max(int64(size/2), leastLimit))
	}
}

var errNoRoom error = &httpclient.Error{Package: "loki", Message: "the rate limit of the tenant leaves no room at present"}

// overBurst reports whether a request that a rate limit has refused must be split, or its single
// record refused. first is the time of its first record.
func (s *client) overBurst(text []byte, size int, segs []segment, first int64, now time.Time) bool {
	ofTenant := &segs[0].st.owner.pace
	pc := ofTenant
	var limit, total float64 // bytes a second, bytes
	if m := rateLimit().FindSubmatch(text); m != nil {
		limit, _ = strconv.ParseFloat(string(m[1]), 64)
		total, _ = strconv.ParseFloat(string(m[2]), 64)
	} else if m := streamLimit().FindSubmatch(text); m != nil {
		pc = &segs[0].st.pace
		limit, _ = strconv.ParseFloat(string(m[1]), 64)
		if len(m[2]) == 1 {
			for range strings.IndexByte("KMGT", m[2][0]&^0x20) + 1 {
				limit *= 1024
			}
		}
		total = float64(size)
	} else {
		return false
	}
	if limit > 0 {
		pc.limited(limit, total, now)
	}
	gathers := time.Hour
	if total < limit*gathers.Seconds() {
		gathers = time.Duration(total / limit * float64(time.Second))
	}
	waited := now.Sub(time.Unix(0, pc.passed.Load())) >= gathers
	if pc != ofTenant {
		// Loki has accepted the entries that fit, and they have used up the capacity of the
		// stream.
		defer pc.passed.Store(now.UnixNano())
	}
	if entriesOf(segs) > 1 {
		return waited || total > limit
	}
	return waited && size >= stuckLength && pc.sticks(first, now, gathers)
}

// passed records that a request of size bytes was accepted.
func (s *client) passed(p *push, segs []segment, size int, now time.Time) {
	if most := s.fits.Load(); most < int64(s.c.Limits.MaxRequestBytes) {
		s.fits.Store(min(most+most/4096+1, int64(s.c.Limits.MaxRequestBytes)))
	}
	for i := range segs {
		st, order := segs[i].st, segs[i].order
		s.recentStreams.note(st, now)
		if len(segs) > 1 {
			size = segs[i].g.bytes
		}
		st.trust.took(p.recs[order[0]].time, p.recs[order[len(order)-1]].time, size, i == len(segs)-1, now)
		st.pace.passed.Store(now.UnixNano())
		st.owner.pace.passed.Store(now.UnixNano())
	}
}
