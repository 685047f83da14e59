package loki

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	rateLimit   = regexp.MustCompile(`limit: (\d+) bytes/sec\).* totaling '(\d+)' bytes`)
	streamLimit = regexp.MustCompile(`(?i)per stream rate limit exceeded \(limit: (\d+(?:\.\d+)?)\s?([KMGT]?)B/sec\)`)
)

// waitFor waits until the limits that Loki has told leave room for a request of so many
// bytes. It returns an answer instead if they do not.
func (s *client) waitFor(ctx context.Context, segs []segment, size int) answer {
	now := time.Now()
	var wait time.Duration
	for _, pc := range [...]*pace{&segs[0].st.owner.pace, &segs[0].st.pace} {
		w, ok := pc.reserve(size, s.c.Timeout, now)
		if !ok {
			return answer{verdict: tryAgain, err: errNoRoom, after: w}
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

var errNoRoom error = &PushError{Message: "the rate limit of the tenant leaves no room at present"}

// overBurst reports whether a request that a rate limit has refused is to be made
// smaller, or refused if it cannot be. first is the time of its first record.
func (s *client) overBurst(text []byte, size int, segs []segment, first int64, now time.Time) bool {
	ofTenant := &segs[0].st.owner.pace
	pc := ofTenant
	var limit, total float64 // bytes a second, bytes
	if m := rateLimit.FindSubmatch(text); m != nil {
		limit, _ = strconv.ParseFloat(string(m[1]), 64)
		total, _ = strconv.ParseFloat(string(m[2]), 64)
	} else if m := streamLimit.FindSubmatch(text); m != nil {
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
		// Entries of the stream that fit were let through, and have used up what
		// had gathered.
		defer pc.passed.Store(now.UnixNano())
	}
	if entriesOf(segs) > 1 {
		return waited || total > limit
	}
	return waited && size >= stuckLength && pc.sticks(first, now, gathers)
}

// paced notes that a request was let through.
func paced(segs []segment, now time.Time) {
	for i := range segs {
		st := segs[i].st
		st.pace.passed.Store(now.UnixNano())
		st.owner.pace.passed.Store(now.UnixNano())
	}
}
