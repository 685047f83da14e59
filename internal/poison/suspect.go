package poison

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// A Suspect is a record that was not accepted when it was sent alone.
type Suspect struct {
	stream   uint32
	parked   bool
	failures int          // number of consecutive probes in which only the suspect failed
	ref      *batch.Batch // reference record of its stream; nil if there is none
	since    time.Time    // time at which the count of failures started
	Due      time.Time    // time of the next probe
}

const (
	mostSuspects   = 64                     // maximum number of parked suspects; a stream may use half of the places that others leave free
	mostReferences = 3                      // maximum number of reference records of the suspect's stream in a probe
	gapMin         = 100 * time.Millisecond // minimum delay between two probes of a parked suspect; it doubles after each probe
	gapMax         = 10 * time.Second
)

// references returns the number of reference records of the suspect's stream in the next probe of
// s: one, two, three, one, and so on. The number varies because a server that refuses every nth
// message could otherwise seem to refuse only s.
func (s *Suspect) references() int { return 1 + s.failures%mostReferences }

// probe starts a probe of s.
func (d *Detector) probe(s *Suspect) {
	if s.ref == nil {
		s.ref = d.refs.forStream(s.stream)
	}
	switch others := d.refs.forOtherStream(s.stream, d.streams.IsHeld) != nil; {
	case others && s.ref != nil:
		d.enter(Server, s, 1)
	case others:
		d.enter(Server, s, s.references())
	case s.ref != nil: // the reference record also tests the server
		d.enter(Stream, s, s.references())
	default:
		d.enter(Alone, s, 0)
	}
}

// probeAgain starts another probe of s, which is at the head of the queue and has failed.
func (d *Detector) probeAgain(now time.Time, s *Suspect, f *Failure) {
	if d.probe(s); f.Sign != Doubt { // after batch.Doubt there is no delay, because many records may get this answer
		d.postpone(now, s)
	}
}

// suspectFailed returns the consequence of a probe in which only the suspect failed.
func (d *Detector) suspectFailed(now time.Time, f *Failure) (c Decision) {
	s := d.suspect
	s.failures++
	d.finish()
	c.Failing = len(d.refs) == 0 // without a reference record, only later records can show whether the destination works
	c.After = d.silence.pauseProbes(now, f)
	enough := s.failures >= probes || c.After > 0 || c.Failing && len(d.suspects) > 0 && s.failures >= suspectAfter
	others, withoutRef := d.countParked(s)
	if c.Failing { // all streams may be at fault, so their suspects share the limit
		others = 0
	}
	switch {
	case d.proven(now, s, withoutRef, f.Sign):
		c.Condemn = true
		if d.Forget(s); !s.parked {
			d.Progress(1)
		}
	case s.parked:
		d.postpone(now, s)
	case enough && !(c.Failing && (f.Only || f.Sign == ServerError && len(d.suspects) > 0)) && others < mostSuspects-len(d.suspects):
		s.parked, c.Park = true, true
		d.suspects = append(d.suspects, s)
		d.postpone(now, s)
		d.Progress(1)
		// A stream without a reference record is held again only if enough of its suspects are
		// parked. The required number doubles with each hold, up to 64.
		c.Hold = !c.Failing && s.ref == nil && withoutRef >= 1<<min(d.streams.Tries(s.stream), 6)
	case enough && !c.Failing && s.ref == nil: // the suspect waits until its stream is no longer held
		d.Progress(d.faultyHead)
		c.Hold = true
	default:
		d.probeAgain(now, s, f)
	}
	return c
}

// proven reports whether s, which has failed again, is at fault. withoutRef is the number of other
// parked suspects of its stream that have no reference record.
func (d *Detector) proven(now time.Time, s *Suspect, withoutRef int, sign Sign) bool {
	age := now.Sub(s.since)
	switch {
	case s.failures < probes || len(d.refs) == 0:
		return false
	case s.ref == nil:
		return age >= longSpan && withoutRef == 0
	case sign == ServerError:
		return age >= longSpan
	}
	return sign == Doubt || age >= probeSpan
}

// countParked returns the number of parked suspects of the stream of s, and the number of parked
// suspects of the stream other than s that have no reference record.
func (d *Detector) countParked(s *Suspect) (all, withoutRef int) {
	for _, p := range d.suspects {
		if p.stream == s.stream {
			if all++; p.ref == nil && p != s {
				withoutRef++
			}
		}
	}
	return all, withoutRef
}

// postpone sets the time of the next probe of s.
func (d *Detector) postpone(now time.Time, s *Suspect) {
	gap := Pause
	if s.parked || s.failures >= probes {
		gap = backoff.Ceil(gapMin, gapMax, s.failures)
	}
	s.Due = now.Add(d.jitter(gap/2, gap))
}

// dueSuspect returns a parked suspect whose probe is due, or nil.
func (d *Detector) dueSuspect(now time.Time) *Suspect {
	if len(d.refs) == 0 || now.Before(d.silence.until) {
		return nil
	}
	for _, s := range d.suspects {
		// While the suspect's stream is held or has accepted nothing recently, the suspect waits,
		// and other records of the stream are sent first.
		waits := d.streams.IsHeld(s.stream) || s.ref == nil && d.streams.Tries(s.stream) > 0
		if !now.Before(s.Due) && !waits {
			return s
		}
	}
	return nil
}

// Forget is called when s, which may be nil, is delivered or dropped, or waits because its stream
// is held (paused).
func (d *Detector) Forget(s *Suspect) {
	if i := slices.Index(d.suspects, s); i >= 0 {
		d.suspects = slices.Delete(d.suspects, i, i+1)
	}
	if d.suspect == s {
		d.finish()
	}
}
