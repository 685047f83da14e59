package deliver

import (
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// A hold describes a stream that the destination does not accept at the moment: the stream
// is held, and its records are parked.
//
//	held ──until──▶ tried ──a minute without a new hold──▶ forgotten
//	  ▲               │ held again
//	  └───────────────┘
type hold struct {
	since time.Time // start of the hold, or time at which a record of the stream was last accepted
	until time.Time // end of the hold; after that its records are tried
	why   error
	times int  // number of consecutive holds without an accepted record
	tried bool // the hold is over, and the records are sent
}

const (
	holdMin = time.Second
	holdMax = time.Minute

	// maxHold is the time after which records of a held stream are refused if they do not fit into
	// Options.ParkedBytes.
	maxHold = time.Hour
)

// heldStreams are the streams that are held, or were held recently. An answer can hold a stream by
// its advice ([batch.HoldStreams]). A stream is also held if records of it that were accepted
// before fail when a search sends them again. The circuit stays closed while streams are held,
// because the destination accepts other streams.
type heldStreams struct {
	set    *settings
	held   map[uint32]*hold
	others time.Time // time at which a record of another stream was last accepted while some streams were held
}

// any reports whether any stream is held, or was held recently.
func (s *heldStreams) any() bool { return len(s.held) > 0 }

// IsHeld reports whether records of a stream are not sent now. It returns false for a stream that
// is tried: its parked records are sent first, and then newer ones.
func (s *heldStreams) IsHeld(stream uint32) bool {
	h := s.held[stream]
	return h != nil && !h.tried
}

// Tries returns the number of consecutive holds of a stream without an accepted record. It is at
// least 1 for a stream that is in the map held.
func (s *heldStreams) Tries(stream uint32) int {
	if h := s.held[stream]; h != nil {
		return max(1, h.times)
	}
	return 0
}

// hold holds a stream for the requested duration or, if that is 0, for up to holdMin. Each
// consecutive hold without an accepted record lasts twice as long, up to holdMax. If several
// streams are held for the same reason, only the first is reported.
func (s *heldStreams) hold(now time.Time, stream uint32, why error, requested time.Duration) {
	h := s.held[stream]
	switch {
	case h == nil:
		reported := false
		for _, o := range s.held {
			reported = reported || !o.tried && o.why.Error() == why.Error()
		}
		h = &hold{since: now, why: why}
		s.held[stream] = h
		if !reported {
			s.set.post("hold", why, 1)
		}
	// The stream is held already. Later answers to batches in flight do not prolong the hold.
	case !h.tried:
		return
	}
	h.tried = false
	h.times++
	wait := min(requested, maxRetryAfter)
	if wait <= 0 || h.times > 1 { // the stream is held again, although it was held for the requested delay
		most := backoff.Ceil(holdMin, holdMax, h.times-1)
		wait = max(wait, s.set.jitter(most/2, most))
	}
	h.until = now.Add(wait)
}

// release marks each stream as tried when its hold is over. The result is true if there is such a
// stream. A stream that was tried for holdMax without being held again is forgotten, with its
// count.
func (s *heldStreams) release(now time.Time) (any bool) {
	for stream, h := range s.held {
		switch {
		case now.Before(h.until):
		case !h.tried:
			h.tried, any = true, true
		case now.Sub(h.until) >= holdMax:
			delete(s.held, stream)
		}
	}
	return any
}

// wakeAt calls consider with each time at which release has something to do.
func (s *heldStreams) wakeAt(consider func(time.Time)) {
	for _, h := range s.held {
		if h.tried {
			consider(h.until.Add(holdMax))
		} else {
			consider(h.until)
		}
	}
}

// taken processes an answer o that settled records of b. If a record of a stream was accepted, the
// next hold of that stream is as short as the first.
func (s *heldStreams) taken(now time.Time, b *batch.Batch, o *batch.Outcome) {
	if !s.any() {
		return
	}
	for i, rec := range b.All() {
		if o.Open.Has(i) || o.Refused.Has(i) {
			continue
		}
		if h := s.held[rec.Stream]; h != nil {
			// An accepted record ends the series of holds.
			h.since, h.times = now, 0
		} else {
			s.others = now
		}
	}
}

// has reports whether b has records of held streams. Without held streams it reads no record.
func (s *heldStreams) has(b *batch.Batch) bool {
	if s.any() {
		for _, rec := range b.All() {
			if s.IsHeld(rec.Stream) {
				return true
			}
		}
	}
	return false
}
