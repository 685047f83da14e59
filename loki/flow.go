package loki

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// sendGroups sends every group in requests of its own.
func (s *client) sendGroups(ctx context.Context, p *push) {
	if len(p.groups) == 1 {
		s.sendGroup(ctx, p, &p.groups[0])
		return
	}
	s.parallel(len(p.groups), func(i int) { s.sendGroup(ctx, p, &p.groups[i]) })
}

// parallel calls f for 0 to n-1, in this order, from up to Concurrency goroutines,
// and returns when all calls have.
func (s *client) parallel(n int, f func(int)) {
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

// sendGroup sends one stream's records, in their order, until one stays open.
func (s *client) sendGroup(ctx context.Context, p *push, g *group) {
	seg := segment{st: g.st, level: g.level}
	for from := 0; from < len(g.order) && g.stop.verdict == taken; {
		to, size := from, 0
		for ; to < len(g.order); to++ {
			size += len(p.recs[g.order[to]].data) + entryExtra
			if to > from && (s.c.Exact || size > s.c.MaxRequestBytes) {
				break
			}
		}
		seg.order = g.order[from:to]
		g.stop = s.sendSegment(ctx, p, seg)
		from = to
	}
}

// entryExtra is what Loki may add to an entry before it counts bytes: the metadata
// detected_level.
const entryExtra = 40

// leastLimit is a length in bytes that no record is too large with.
const leastLimit = 4 << 10

// A segment is entries of one stream that stand in one request.
type segment struct {
	st    *stream
	level int
	order []int32
}

// sendSegment sends one request and notes what became of its records. It returns why
// some of them are open; taken: none is.
func (s *client) sendSegment(ctx context.Context, p *push, seg segment) answer {
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
	if home.isFull() {
		if to := s.streams.spare(home, seg.level); to != nil {
			move(to)
		}
	}
	a := s.post(ctx, p, seg)
	for a.verdict == tooManyStreams || a.verdict == labelsRefused {
		seg.st.why.Store(uint32(a.why))
		seg.st.full.Store(time.Now().Add(fullFor).UnixNano())
		to := s.streams.spare(home, seg.level)
		if to == nil || to == seg.st {
			break
		}
		move(to)
		a = s.post(ctx, p, seg)
	}
	if a.verdict == tooManyStreams && home.waited(time.Now()) >= streamPatience {
		return s.refuseAll(p, seg, streamsFull, a.err)
	}
	single := len(seg.order) == 1
	switch a.verdict {
	case taken:
		home.wanted.Store(0)
		s.store(p, seg.order)
		return a
	case tooLarge:
		if single && len(p.recs[seg.order[0]].data) < leastLimit {
			a.verdict = tryAgain // somebody is ill
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

// refuseAll notes that no record of seg will be taken.
func (s *client) refuseAll(p *push, seg segment, why reason, err error) answer {
	for _, i := range seg.order {
		s.refuse(p, i, why, err)
	}
	return answer{}
}

// refuseNamed notes which records of seg an answer refuses.
func (s *client) refuseNamed(ctx context.Context, p *push, seg segment, a answer) answer {
	whys, n, sure := a.faults.mark(p, seg.order)
	if n == 0 {
		a.verdict = requestRefused
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
		case s.c.TooOld == oldIsNow && ofAge(whys[k]) && !p.isStamped(i):
			old = append(old, i)
		default:
			s.refuse(p, i, whys[k], a.err)
		}
	}
	if sure || len(rest) == 0 {
		// Not sent again: what is stored now could then be too old, or too far
		// behind what was stored with it.
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
	// Loki has stored the rest, if the answer means what it seems to. Only another
	// answer makes sure.
	return a
}

// sendPacked sends groups of one tenant together as far as they fit into a
// request. A request that is not taken is sent again group by group, which tells
// what is wrong with which.
func (s *client) sendPacked(ctx context.Context, p *push) {
	byTenant := map[string][]int{}
	var tenants []string
	for i := range p.groups {
		t := p.groups[i].st.tenant
		if byTenant[t] == nil {
			tenants = append(tenants, t)
		}
		byTenant[t] = append(byTenant[t], i)
	}
	var packs [][]int
	for _, t := range tenants {
		var pack []int
		size := 0
		for _, i := range byTenant[t] {
			g := &p.groups[i]
			n := g.bytes + len(g.st.labels) + entryExtra*len(g.order)
			if len(pack) > 0 && size+n > s.c.MaxRequestBytes {
				packs = append(packs, pack)
				pack, size = nil, 0
			}
			pack = append(pack, i)
			size += n
		}
		packs = append(packs, pack)
	}
	s.parallel(len(packs), func(k int) {
		pack := packs[k]
		if len(pack) > 1 {
			segs := make([]segment, len(pack))
			for x, i := range pack {
				segs[x] = segment{st: p.groups[i].st, level: p.groups[i].level, order: p.groups[i].order}
			}
			a := s.post(ctx, p, segs...)
			switch a.verdict {
			case taken:
				for _, seg := range segs {
					s.store(p, seg.order)
				}
				return
			case limited:
				if a.stream { // others of the pack have room
					break
				}
				fallthrough
			case tryAgain, unanswered, hold, denied:
				for _, i := range pack {
					p.groups[i].stop = a
				}
				return
			}
		}
		for _, i := range pack {
			s.sendGroup(ctx, p, &p.groups[i])
		}
	})
}

// panicked makes an error of what a client panicked with.
func panicked(v any) error {
	return &PushError{Message: fmt.Sprintf("the http client panicked: %v", v), unanswered: true}
}
