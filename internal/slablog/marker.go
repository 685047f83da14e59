package slablog

import (
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/layout"
)

// A marker creates the gap markers of a log: "n records dropped: reason". No account contains gap
// markers. Only the goroutine that calls Log.Next uses the marker.
type marker struct {
	at       time.Time   // time at which the last gap marker was made
	reported batch.Drops // drops reported by all gap markers so far
	// bad reports that the last AppendMarker panicked or called runtime.Goexit. Only the first
	// failure of a series is an event.
	bad  bool
	held *Lease // lease that follows the gap marker
}

// markerEvery is the minimum time between two gap markers.
const markerEvery = time.Second

// next returns the lease of a gap marker if records were dropped since the last one, which must be
// at least markerEvery ago. before is the lease that follows the gap marker; nil means that the log
// has ended.
func (m *marker) next(r *reader, before *Lease) *Lease {
	now := time.Now()
	if before != nil && now.Sub(m.at) < markerEvery {
		return nil
	}
	s := r.store
	s.mu.Lock()
	drops, gap := s.book.Dropped, callback.DropsSince(&s.book.Dropped, &m.reported)
	s.mu.Unlock()
	if gap.Total() == 0 {
		return nil
	}
	m.at = now
	text := m.render(r.conf, gap, now)
	if len(text) == 0 {
		return nil
	}
	m.reported = drops
	// The lease has no pieces and no open records, so it can be settled and released like any other.
	slots := [1]layout.Slot{{Len: uint32(len(text)), Time: now.UnixNano(), Flags: layout.FlagMarker}}
	l := &Lease{s: s} // with no record to settle
	l.b.Codec = r.conf.o.Codec
	l.b.Add(layout.NewRun(text, slots[:]))
	return l
}

// render calls AppendMarker of the codec. If AppendMarker panics or calls runtime.Goexit, render
// returns nil and reports the first failure of a series.
func (m *marker) render(c *config, gap batch.Drops, now time.Time) (text []byte) {
	err := contain.Call(func() { text = c.o.Codec.AppendMarker(nil, gap, now) })
	if err != nil {
		text = nil
		if !m.bad {
			c.events.Post("panic", fmt.Errorf("slab: AppendMarker of the codec: %w", err), 0)
		}
	}
	m.bad = err != nil
	return text
}
