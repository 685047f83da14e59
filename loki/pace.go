package loki

import (
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A pace is what is known of a rate limit of Loki, of a tenant or of a stream. Such
// a limit lets through at once what has gathered while nothing was sent, up to its
// burst. Answers tell the rate but not the burst, and what is larger than that is
// refused for ever. It is found by the time: what has gathered since something was
// last let through is enough, unless it is more than the burst, or others send to
// the same tenant. Then smaller requests do no harm.
type pace struct {
	passed  atomic.Int64 // when something was last let through, in Unix ns
	size    atomic.Int64 // of the smallest request that was found to be too large; 0: none
	until   atomic.Int64 // when that is forgotten, in Unix ns
	stuck   atomic.Int64 // time of a single record that was refused, in Unix ns
	since   atomic.Int64 // when it was refused first, likewise
	refused atomic.Int64 // how often it was refused although it should not
	denied  atomic.Int64 // since when a tenant, and no other, is answered with 401 or 403, in Unix ns; 0: it is not
}

const (
	paceKnown = 10 * time.Minute // how long a size that is too large is remembered
	minBurst  = 64 << 10         // bytes: requests this small are not made smaller beforehand
	// A single record is refused for good after so many refusals over so long a
	// time, if it has so many bytes: others may use up the rate, but hardly as often,
	// and a short one comes through then.
	stuckTimes  = 6
	stuckFor    = 20 * time.Second
	stuckLength = 32 << 10
)

var (
	rateLimit   = regexp.MustCompile(`limit: (\d+) bytes/sec\).* totaling '(\d+)' bytes`)
	streamLimit = regexp.MustCompile(`(?i)per stream rate limit exceeded \(limit: (\d+(?:\.\d+)?)\s?([KMGT]?)B/sec\)`)
)

// overBurst reports whether a request that a rate limit has refused is to be made
// smaller, or refused if it cannot be. first is the time of its first record.
func (s *Pusher) overBurst(text []byte, size int, segs []segment, first int64, now time.Time) bool {
	pc := segs[0].st.tenantPace
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
	gathers := time.Hour
	if total < limit*gathers.Seconds() {
		gathers = time.Duration(total / limit * float64(time.Second))
	}
	waited := now.Sub(time.Unix(0, pc.passed.Load())) >= gathers
	if pc != segs[0].st.tenantPace {
		// Entries of the stream that fit were let through, and have used up what
		// had gathered.
		defer pc.passed.Store(now.UnixNano())
	}
	if entriesOf(segs) > 1 {
		if waited && size >= minBurst {
			pc.learn(int64(size), now)
		}
		return waited || total > limit
	}
	return waited && size >= stuckLength && pc.sticks(first, now, gathers)
}

// learn notes that a request of size bytes is too large.
func (pc *pace) learn(size int64, now time.Time) {
	if have := pc.known(now); have == 0 || size < have {
		pc.size.Store(size)
	}
	pc.until.Store(now.Add(paceKnown).UnixNano())
}

// known returns from which size on requests are too large, 0 if that is not known.
func (pc *pace) known(now time.Time) int64 {
	if n := pc.size.Load(); n != 0 && now.UnixNano() < pc.until.Load() {
		return n
	}
	return 0
}

// sticks notes that a single record of time t was refused, and reports whether
// that was so often that it will be for ever.
func (pc *pace) sticks(t int64, now time.Time, gathers time.Duration) bool {
	if pc.stuck.Swap(t) != t || pc.since.Load() == 0 {
		pc.since.Store(now.UnixNano())
		pc.refused.Store(0)
	}
	return pc.refused.Add(1) >= stuckTimes && now.Sub(time.Unix(0, pc.since.Load())) >= stuckFor+2*gathers
}

// paced notes that a request was let through.
func paced(segs []segment, now time.Time) {
	for i := range segs {
		st := segs[i].st
		st.pace.passed.Store(now.UnixNano())
		st.tenantPace.passed.Store(now.UnixNano())
	}
}

// deny notes that a tenant, and no other, is refused, and returns since when. Another
// goroutine may find at the same time that it is let in.
func (pc *pace) deny(now time.Time) (since time.Time) {
	for {
		if t := pc.denied.Load(); t != 0 {
			return time.Unix(0, t)
		}
		if pc.denied.CompareAndSwap(0, now.UnixNano()) {
			return now
		}
	}
}

// tooLargeNow reports whether a segment is known to be too large for a rate limit.
func (s *Pusher) tooLargeNow(p *push, seg segment) bool {
	if len(seg.order) < 2 || seg.st.pace.size.Load()|seg.st.tenantPace.size.Load() == 0 {
		return false
	}
	now := time.Now()
	n := int64(2*len(seg.st.labels)) + 256 // what is around the entries, in any form
	for _, i := range seg.order {
		n += int64(len(p.recs[i].data))
	}
	for _, pc := range []*pace{&seg.st.pace, seg.st.tenantPace} {
		if known := pc.known(now); known != 0 && n >= known {
			return true
		}
	}
	return false
}
