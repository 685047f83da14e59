package loki

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// A spread counts the values of a label. Each value makes at least one stream, and Loki limits the
// number of streams. When a label has more values than Config.MaxLabelValues, it becomes metadata
// permanently: even its existing streams get no further records.
//
//	narrow ──one value too many──▶ wide
type spread struct {
	wide atomic.Bool

	mu   sync.Mutex // guards seen; no other lock is acquired while it is held
	seen map[uint64]struct{}
}

// addValue adds a value, and reports whether this exceeds the limit for the first time.
func (s *spread) addValue(value uint64, most int) bool {
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

// demoteWide moves labels with too many values to the metadata before a new stream is created. It
// reports whether there are any.
func (e *encoder) demoteWide(p *picked) (changed bool) {
	if e.c.Limits.MaxLabelValues < 0 {
		return false
	}
	for i, v := range p.labels {
		if len(v) == 0 {
			continue
		}
		slot := e.slots[i]
		if slot.spread.addValue(maphash.Bytes(e.streams.seed, v), e.c.Limits.MaxLabelValues) {
			e.reports.Post("label-values", fmt.Errorf("loki: the label %s has more than %d values (max_label_values): it becomes metadata", slot.from, e.c.Limits.MaxLabelValues), 0)
		}
		if slot.spread.wide.Load() {
			e.demote(p, i, labelSpread)
			changed = true
		}
	}
	return changed
}
