package loki

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// sendGroups sends every group in requests of its own.
func (s *Pusher) sendGroups(ctx context.Context, p *push) {
	if len(p.groups) == 1 {
		s.sendGroup(ctx, p, &p.groups[0])
		return
	}
	s.parallel(len(p.groups), func(i int) { s.sendGroup(ctx, p, &p.groups[i]) })
}

// parallel calls f for 0 to n-1, in this order, from up to Concurrency goroutines,
// and returns when all calls have.
func (s *Pusher) parallel(n int, f func(int)) {
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

// sendGroup sends one stream's records, in their order.
func (s *Pusher) sendGroup(ctx context.Context, p *push, g *group) {
	seg := segment{st: g.st, level: g.level}
	for from := 0; from < len(g.order); {
		to, size := from, 0
		for ; to < len(g.order); to++ {
			if size += len(p.recs[g.order[to]].data) + entryExtra; size > s.c.MaxRequestBytes && to > from {
				break
			}
		}
		seg.order = g.order[from:to]
		if err := s.sendRange(ctx, p, seg); err != nil {
			g.err = err
			if batch.Inspect(err).Kind != batch.KindReject {
				return // what is behind it waits
			}
		}
		from = to
	}
}

// entryExtra is what Loki may add to an entry before it counts bytes: the metadata
// detected_level.
const entryExtra = 40

// A segment is entries of one stream that stand in one request.
type segment struct {
	st    *stream
	level int
	order []int32
}

// maxAgain is how often sendRange sends again for a reason that should not recur.
const maxAgain = 10

// sendRange sends one request and deals with the answer: what is too large is
// halved, what is refused is left out and the rest is sent again. It returns nil
// if all records are stored or refused, else why they are not.
func (s *Pusher) sendRange(ctx context.Context, p *push, seg segment) error {
	for tries := 0; ; tries++ {
		if seg.st.full.Load() > time.Now().UnixNano() {
			s.move(p, &seg)
		}
		if s.tooLargeNow(p, seg) {
			return s.halves(ctx, p, seg)
		}
		r := s.post(ctx, p, seg)
		switch r.verdict {
		case taken:
			p.settle(seg.order, stored)
			s.arrived(p, seg)
			return nil
		case tooLarge:
			if len(seg.order) == 1 {
				s.refuse(p, seg.order[0], LineTooLong, r.err)
				return nil
			}
			s.splits.Add(1)
			return s.halves(ctx, p, seg)
		case tooManyStreams, labelsRefused:
			if s.spareStream(seg) != nil {
				seg.st.why.Store(uint32(r.why))
				seg.st.full.Store(time.Now().Add(fullFor).UnixNano())
				continue
			}
			if r.verdict == tooManyStreams {
				return r.err
			}
			for _, i := range seg.order {
				s.refuse(p, i, Invalid, r.err)
			}
			return nil
		case tenantRefused:
			for _, i := range seg.order {
				s.refuse(p, i, BadTenant, r.err)
			}
			return nil
		case renewed:
			if tries > maxAgain {
				return r.err
			}
		case entriesRefused:
			rest, known, sure := s.refuseMarked(p, seg.order, &r)
			if !known || tries > maxAgain {
				return s.search(ctx, p, seg, r.err)
			}
			if sure || len(rest) == 0 {
				// Not sent again: what is stored now could then be too old, or too
				// far behind what was stored with it.
				p.settle(rest, stored)
				return nil
			}
			// Loki has stored the rest, if it is what we take it for. Sending it
			// again makes sure, and no duplicates.
			seg.order = rest
		case requestRefused:
			return s.search(ctx, p, seg, r.err)
		default:
			return r.err
		}
	}
}

// refuseMarked notes which entries of order were refused, and returns the rest:
// known says whether the answer told of any, sure whether Loki stored the rest.
func (s *Pusher) refuseMarked(p *push, order []int32, r *answer) (rest []int32, known, sure bool) {
	whys, n, sure := r.faults.mark(s, p, order)
	rest = make([]int32, 0, len(order))
	for k, i := range order {
		if whys[k] != notRefused {
			s.refuse(p, i, whys[k], r.err)
		} else {
			rest = append(rest, i)
		}
	}
	return rest, n > 0, sure
}

// search halves a request that was refused for a reason that does not say for
// which entry. What is left when that has taken too many requests stays unclear:
// the deliver.Engine goes on.
func (s *Pusher) search(ctx context.Context, p *push, seg segment, err error) error {
	if len(seg.order) == 1 {
		s.refuse(p, seg.order[0], Invalid, err)
		return nil
	}
	if p.searched.Add(1) > maxSearch {
		p.settle(seg.order, unclear)
		return batch.Permanent(err)
	}
	return s.halves(ctx, p, seg)
}

// maxSearch is how many requests of one Send are halved to find an entry: enough
// for a few among ten thousand.
const maxSearch = 64

// halves sends the halves of a segment.
func (s *Pusher) halves(ctx context.Context, p *push, seg segment) error {
	half := len(seg.order) / 2
	left, right := seg, seg
	left.order, right.order = seg.order[:half], seg.order[half:]
	err := s.sendRange(ctx, p, left)
	if err != nil && batch.Inspect(err).Kind != batch.KindReject {
		return err
	}
	if err2 := s.sendRange(ctx, p, right); err2 != nil {
		return err2
	}
	return err
}

func (p *push) settle(order []int32, f fate) {
	for _, i := range order {
		p.fates[i] = f
	}
}

// sendPacked sends groups of one tenant together as far as they fit into a
// request. A request that is not taken is sent again group by group, which tells
// what is wrong with which.
func (s *Pusher) sendPacked(ctx context.Context, p *push) {
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
			r := s.post(ctx, p, segs...)
			switch r.verdict {
			case taken:
				for _, seg := range segs {
					p.settle(seg.order, stored)
				}
				return
			case tryAgain, hold:
				for _, i := range pack {
					p.groups[i].err = r.err
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
func panicked(v any) error { return fmt.Errorf("loki: cannot push: the http client panicked: %v", v) }
