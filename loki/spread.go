package loki

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// A spread counts the values of a label. Each value is a stream of its own, or several,
// and Loki has a limit of those. So a label with more values than Config.MaxLabelValues
// is metadata from then on, all of it: streams that exist get no further records.
//
//	narrow ──one value too many──▶ wide
type spread struct {
	wide atomic.Bool

	mu   sync.Mutex // leaf; guards the rest
	seen map[uint64]struct{}
}

// widens notes a value and reports whether it is the first one too many.
func (s *spread) widens(value uint64, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wide.Load() {
		return false
	}
	if s.seen == nil {
		s.seen = map[uint64]struct{}{}
	}
	if s.seen[value] = struct{}{}; len(s.seen) <= most {
		return false
	}
	s.wide.Store(true)
	s.seen = nil
	return true
}

// narrow looks at the labels of a stream that is to be made, and makes metadata of those
// that have too many values. It reports whether there are such.
func (e *encoder) narrow(p *picked) (changed bool) {
	if e.c.Limits.MaxLabelValues < 0 {
		return false
	}
	for i, v := range p.labels {
		if len(v) == 0 {
			continue
		}
		slot := e.slots[i]
		if slot.spread.widens(maphash.Bytes(e.streams.seed, v), e.c.Limits.MaxLabelValues) {
			e.reports.Post("label-values", fmt.Errorf("loki: the label %s has more than %d values (max_label_values): it becomes metadata", slot.from, e.c.Limits.MaxLabelValues), 0)
		}
		if slot.spread.wide.Load() {
			e.demote(p, i, labelSpread)
			changed = true
		}
	}
	return changed
}
