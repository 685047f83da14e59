package poison

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// A Suspect is a single record that was not accepted.
type Suspect struct {
	stream   uint32
	parked   bool
	failures int          // probes in a row that only it failed
	ref      *batch.Batch // an accepted record of its stream; nil: none is known
	since    time.Time    // the count started
	Due      time.Time    // no probe before
}

const (
	// mostSuspects is how many may be parked at a time. A stream may use half of the places that
	// the others leave.
	mostSuspects   = 64
	mostReferences = 3                      // of the suspect's stream in a probe
	gapMin         = 100 * time.Millisecond // between two probes of a parked suspect, twice as long after each
	gapMax         = 10 * time.Second
)

// references returns how many references of its stream the next probe of s has: one, two, three, and
// so on. A server that accepts, or refuses, every n-th message cannot pass for all of them.
func (s *Suspect) references() int { return 1 + s.failures%mostReferences }

// probe starts a probe of s.
func (d *Detector) probe(s *Suspect) {
	if s.ref == nil {
		s.ref = d.refs.of(s.stream)
	}
	switch others := d.refs.other(s.stream, d.streams.IsHeld) != nil; {
	case others && s.ref != nil:
		d.enter(Server, s, 1)
	case others:
		d.enter(Server, s, s.references())
	case s.ref != nil: // it represents the server, too
		d.enter(Stream, s, s.references())
	default:
		d.enter(Alone, s, 0)
	}
}

// again starts another probe of s, which is at the head and has failed.
func (d *Detector) again(now time.Time, s *Suspect, f *Failure) {
	if d.probe(s); !f.Doubt { // there may be many with such answers
		d.postpone(now, s)
	}
}

// suspectFailed returns the consequence of a probe in which only the suspect failed.
func (d *Detector) suspectFailed(now time.Time, f *Failure) (c Decision) {
	s := d.suspect
	s.failures++
	d.finish()
	c.Failing = d.refs.none() // only the next records can show whether the destination works
	c.After = d.silence.rest(now, f)
	enough := s.failures >= probes || c.After > 0 || c.Failing && len(d.suspects) > 0 && s.failures >= suspectAfter
	others, unheard := d.of(s.stream)
	if s.parked {
		unheard--
	}
	if c.Failing { // all streams may be at fault, and share
		others = 0
	}
	switch {
	case d.proven(now, s, unheard, f.Doubt):
		c.Condemn = true
		if d.Forget(s); !s.parked {
			d.Progress(1)
		}
	case s.parked:
		d.postpone(now, s)
	case enough && !(c.Failing && f.Only) && others < mostSuspects-len(d.suspects):
		s.parked, c.Park = true, true
		d.suspects = append(d.suspects, s)
		d.postpone(now, s)
		d.Progress(1)
		// Each time a stream without a reference was held, more suspects are found.
		c.Hold = !c.Failing && s.ref == nil && unheard >= 1<<min(d.streams.Tries(s.stream), 6)
	case enough && !c.Failing && s.ref == nil: // it waits with its stream
		d.Progress(d.known)
		c.Hold = true
	default:
		d.again(now, s, f)
	}
	return c
}

// proven reports whether s, which has failed again, is at fault. Of its stream, unheard others are
// parked that have no reference either.
func (d *Detector) proven(now time.Time, s *Suspect, unheard int, doubt bool) bool {
	age := now.Sub(s.since)
	switch {
	case s.failures < probes || d.refs.none():
		return false
	case s.ref != nil:
		return doubt || age >= probeSpan
	}
	return age >= unheardSpan && unheard == 0
}

// of returns how many parked suspects are of a stream, and how many of these have no reference.
func (d *Detector) of(stream uint32) (all, unheard int) {
	for _, s := range d.suspects {
		if s.stream == stream {
			if all++; s.ref == nil {
				unheard++
			}
		}
	}
	return all, unheard
}

// postpone sets the time of the next probe of s.
func (d *Detector) postpone(now time.Time, s *Suspect) {
	gap := Pause
	if s.parked || s.failures >= probes {
		gap = backoff.Ceil(gapMin, gapMax, s.failures)
	}
	s.Due = now.Add(d.jitter(gap/2, gap))
}

// due returns a parked suspect to be probed now, or nil.
func (d *Detector) due(now time.Time) *Suspect {
	if d.refs.none() || now.Before(d.silence.until) {
		return nil
	}
	for _, s := range d.suspects {
		// While its stream is held, or accepted nothing lately, other records of it go first.
		waits := d.streams.IsHeld(s.stream) || s.ref == nil && d.streams.Tries(s.stream) > 0
		if !now.Before(s.Due) && !waits {
			return s
		}
	}
	return nil
}

// Forget notes that s, which may be nil, is settled, dropped or waits with its stream.
func (d *Detector) Forget(s *Suspect) {
	if i := slices.Index(d.suspects, s); i >= 0 {
		d.suspects = slices.Delete(d.suspects, i, i+1)
	}
	if d.suspect == s {
		d.finish()
	}
}
