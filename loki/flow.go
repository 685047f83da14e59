package loki

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sendGroups sends all groups of p in as few requests as possible; see assignRequests. Up to
// Concurrency requests are sent at the same time. sendGroups returns when every request has a
// response or has failed.
func (s *client) sendGroups(ctx context.Context, p *push) {
	if len(p.groups) == 1 {
		s.sendGroup(ctx, p, &p.groups[0])
		return
	}
	s.assignRequests(p)
	s.parallel(len(p.requestEnds), func(i int) {
		from := 0
		if i > 0 {
			from = p.requestEnds[i-1]
		}
		s.sendShared(ctx, p, p.segs[from:p.requestEnds[i]])
	})
}

// assignRequests divides the groups of p among requests. A request contains as many streams of one
// tenant as fit, in the order that [trust] determines. A group that must not share a request, or
// does not fit into one, gets separate requests. The result is in p.segs and p.requestEnds.
func (s *client) assignRequests(p *push) {
	now := time.Now()
	p.segs, p.requestEnds = p.segs[:0], p.requestEnds[:0]
	for i := range p.groups {
		p.groups[i].place = s.placeOf(p, &p.groups[i], now)
	}
	// The limit is read once for the whole batch, because concurrent requests may lower it.
	most := int(s.maxShared.Load())
	for i := range p.groups {
		g := &p.groups[i]
		if g.place == placed {
			continue
		}
		// Group g is the first group of a request. Later groups of the same tenant are added as
		// long as they fit.
		from, size := len(p.segs), g.size()
		p.segs = append(p.segs, segment{st: g.st, level: g.level, order: g.order, g: g})
		for k := i + 1; k < len(p.groups) && g.place == shares; k++ {
			o := &p.groups[k]
			if o.place == shares && o.st.owner == g.st.owner && size+o.size() <= most {
				p.segs = append(p.segs, segment{st: o.st, level: o.level, order: o.order, g: o})
				o.place, size = placed, size+o.size()
			}
		}
		// A response with status 204 confirms only the last stream, so the order determines which
		// stream is confirmed next.
		slices.SortStableFunc(p.segs[from:], func(a, b segment) int {
			return cmp.Compare(b.st.trust.rank(b.st.pace.lastAccepted.Load(), now), a.st.trust.rank(a.st.pace.lastAccepted.Load(), now))
		})
		p.requestEnds = append(p.requestEnds, len(p.segs))
	}
}

// placeOf returns the constant shares if the records of g may share a request with other streams,
// and the constant alone if they may not.
func (s *client) placeOf(p *push, g *group, now time.Time) place {
	st, ns := g.st, now.UnixNano()
	first, last := p.recs[g.order[0]].time, p.recs[g.order[len(g.order)-1]].time
	switch {
	// Loki has recently refused the stream or limited its rate, so it may refuse the stream
	// again.
	case st.fullUntil.Load() > ns, st.pace.rateAt(now) > 0, st.pace.closedUntil.Load() > ns:
		return alone
	// The tenant has too many streams, so Loki may not be able to create this one.
	case st.owner.streamsLimitedUntil.Load() > ns && !st.trust.isConfirmed(now):
		return alone
	case g.size() > s.c.Limits.MaxRequestBytes, !st.trust.mayShare(first, last, now):
		return alone
	}
	return shares
}

// parallel starts the calls f(0) to f(n-1) in this order, at most Concurrency at the same time, and
// waits for all of them.
func (s *client) parallel(n int, f func(int)) {
	if n == 1 {
		f(0)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, s.c.Concurrency) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(i)
			}
		})
	}
	wg.Wait()
}

// sendGroup sends the records of one stream in order, in requests of at most MaxRequestBytes. If a
// record must be sent again, sendGroup stops and stores the reason in g.openCause, because later
// records must not be stored before that record.
func (s *client) sendGroup(ctx context.Context, p *push, g *group) {
	seg := segment{st: g.st, level: g.level, g: g}
	for from := 0; from < len(g.order) && g.openCause.kind == accepted; {
		to, size := from, 0
		for ; to < len(g.order); to++ {
			// At least one record is sent. If it exceeds the limit, the server may still accept it.
			size += len(p.recs[g.order[to]].data) + entryExtra
			if to > from && size > s.c.Limits.MaxRequestBytes {
				break
			}
		}
		seg.order = g.order[from:to]
		g.openCause = s.sendSegment(ctx, p, seg)
		from = to
	}
}

// sendSegment sends the entries of one stream in one request and stores the outcome of each record.
// If Loki has no room for the stream or refuses its labels, the entries move to a spare stream and
// are sent again; see [registry.spare]. If every record is stored or refused, the returned answer
// has the kind accepted.
func (s *client) sendSegment(ctx context.Context, p *push, seg segment) answer {
	// The variable home is the stream of the records before any move, and the map own contains
	// their original entries. Each move starts from the original entries, because otherwise a
	// second move would add the metadata twice.
	home, own := seg.st, map[int32]rec(nil)
	move := func(to *stream) {
		if own == nil {
			own = make(map[int32]rec, len(seg.order))
		}
		for _, i := range seg.order {
			if r, moved := own[i]; moved {
				p.recs[i] = r
			} else {
				own[i] = p.recs[i]
			}
		}
		seg.st = home
		s.move(p, &seg, to)
	}
	// A recently refused stream is not tried first, because each attempt costs a request.
	if home.isFull() {
		if to := s.streams.spare(home, seg.level); to != nil {
			move(to)
		}
	}
	a := s.post(ctx, p, seg)
	if a.kind == tooManyStreams {
		home.owner.streamsLimitedUntil.Store(time.Now().Add(fullPeriod).UnixNano())
	}
	for a.kind == tooManyStreams || a.kind == labelsRefused {
		seg.st.fullReason.Store(uint32(a.why))
		seg.st.fullUntil.Store(time.Now().Add(fullPeriod).UnixNano())
		to := s.streams.spare(home, seg.level)
		// No other stream is left, so the records must be sent again later.
		if to == nil || to == seg.st {
			break
		}
		move(to)
		a = s.post(ctx, p, seg)
	}
	// Records must not wait forever for a stream that Loki never accepts.
	if a.kind == tooManyStreams && home.unacceptedFor(time.Now()) >= streamTimeout {
		return s.refuseAll(p, seg, streamsFull, a.err)
	}
	single := len(seg.order) == 1
	switch a.kind {
	case accepted:
		// The acceptance of a spare stream also counts, because the records did not have to wait.
		home.unacceptedSince.Store(0)
		s.store(p, seg.order)
		return a
	case tooLarge:
		if single && len(p.recs[seg.order[0]].data) < minRequestLimit {
			// Loki accepts every record that is so small, so the server or a proxy has a fault.
			a.kind = tryAgain
			return a
		}
		if single {
			return s.refuseAll(p, seg, lineTooLong, a.err)
		}
		s.splits.Add(1)
	case labelsRefused:
		return s.refuseAll(p, seg, invalid, a.err)
	case entriesRefused:
		return s.refuseNamed(ctx, p, seg, a)
	case requestRefused:
		if single {
			return s.refuseAll(p, seg, invalid, a.err)
		}
	}
	return a
}

// refuseAll refuses all records of seg for one reason. No record must be sent again, so the
// returned answer has the kind accepted.
func (s *client) refuseAll(p *push, seg segment, why reason, err error) answer {
	for _, i := range seg.order {
		s.refuse(p, i, why, err)
	}
	return answer{}
}

// refuseNamed refuses the records of seg that the response names. It marks all others as stored if
// the response proves that they are. With TooOld "now", records refused for their age are sent
// again with the current time. If every record is stored or refused, the returned answer has the
// kind accepted.
func (s *client) refuseNamed(ctx context.Context, p *push, seg segment, a answer) answer {
	whys, n, sure := a.refusals.mark(p, seg.order)
	// The text names no entry of this request, so it is treated like an unknown refusal.
	if n == 0 {
		a.kind = requestRefused
		if len(seg.order) == 1 {
			return s.refuseAll(p, seg, invalid, a.err)
		}
		return a
	}
	rest := make([]int32, 0, len(seg.order)-n)
	var old []int32
	for k, i := range seg.order {
		switch {
		case whys[k] == notRefused:
			rest = append(rest, i)
		case s.c.Limits.TooOld == tooOldNow && isAgeReason(whys[k]) && !p.isRestamped(i):
			old = append(old, i)
		default:
			s.refuse(p, i, whys[k], a.err)
		}
	}
	if sure || len(rest) == 0 {
		// The records in rest are stored. If they were sent again, Loki could refuse the copies
		// because of their age, and stored records would count as refused.
		s.store(p, rest)
		if len(old) == 0 {
			return answer{}
		}
		for _, i := range old {
			s.restamp(p, i, &p.recs[i], seg.st)
		}
		seg.order = old
		return s.sendSegment(ctx, p, seg)
	}
	// The records in rest are probably stored. Only the response to another request can confirm
	// this, so they are sent again.
	return a
}

// sendShared sends one request for several streams of one tenant. If Loki refuses the request and
// does not name entries, each half of the streams is sent separately. A single stream is sent by
// sendGroup.
func (s *client) sendShared(ctx context.Context, p *push, segs []segment) {
	if len(segs) == 1 {
		s.sendGroup(ctx, p, segs[0].g)
		return
	}
	a := s.post(ctx, p, segs...)
	switch a.kind {
	case accepted:
		for _, seg := range segs {
			s.store(p, seg.order)
		}
		return
	case limited:
		if a.stream { // one stream has reached this limit; the other streams are sent
			break
		}
		fallthrough
	case tryAgain, serverError, unanswered, hold, denied:
		for _, seg := range segs {
			seg.g.openCause = a
		}
		return
	case entriesRefused:
		if s.refuseEach(ctx, p, segs, a) {
			return
		}
	}
	s.splits.Add(1)
	half := len(segs) / 2
	s.sendShared(ctx, p, segs[:half])
	s.sendShared(ctx, p, segs[half:])
}

// refuseEach handles a response that names entries of several streams: it refuses these entries and
// marks the others as stored. If the response is ambiguous for any stream, it does nothing and
// returns false.
func (s *client) refuseEach(ctx context.Context, p *push, segs []segment, a answer) bool {
	if a.bySegment == nil {
		return false
	}
	for i, f := range a.bySegment {
		if f == nil {
			continue
		}
		if _, _, sure := f.mark(p, segs[i].order); !sure {
			return false
		}
	}
	for i, f := range a.bySegment {
		if f == nil {
			s.store(p, segs[i].order)
			continue
		}
		a.refusals = f
		segs[i].g.openCause = s.refuseNamed(ctx, p, segs[i], a)
	}
	return true
}
