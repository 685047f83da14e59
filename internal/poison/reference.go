package poison

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

const (
	mostReferenceBytes = 64 << 10         // maximum size of a reference record in bytes
	referenceAge       = 10 * time.Second // age from which a reference record is replaced
	mostStreams        = 4                // maximum number of streams with a reference record
)

// references holds the reference records: at most one of each stream, the latest first.
type references []reference

// A reference is a copy of a record that the destination has accepted. If the destination does not
// accept the copy, the destination or the stream is at fault, and not the suspect.
type reference struct {
	b      *batch.Batch // a copy of one record
	stream uint32
	at     time.Time
}

// keep stores copies of accepted records of b as reference records. o is the outcome of b.
func (r *references) keep(now time.Time, b *batch.Batch, o *batch.Outcome) {
	for i, rec := range b.All() {
		if i >= 16 && len(*r) > 0 || i >= 256 {
			return
		}
		at := slices.IndexFunc(*r, func(k reference) bool { return k.stream == rec.Stream })
		if at < 0 && len(*r) >= mostStreams {
			at = mostStreams - 1
		}
		if at >= 0 && now.Sub((*r)[at].at) < referenceAge || len(rec.Data) > mostReferenceBytes || o.Open.Has(i) || o.Refused.Has(i) {
			continue
		}
		if at >= 0 {
			*r = slices.Delete(*r, at, at+1)
		}
		one := &batch.Batch{Codec: b.Codec, Origin: b.Origin}
		one.Append(rec.Data, rec.Ticket, rec.Meta)
		*r = slices.Insert(*r, 0, reference{one, rec.Stream, now})
	}
}

// forStream returns the reference record of a stream, or nil if there is none.
func (r references) forStream(stream uint32) *batch.Batch {
	for _, k := range r {
		if k.stream == stream {
			return k.b
		}
	}
	return nil
}

// forOtherStream returns the latest reference record of a stream other than the given one, or nil.
// It prefers streams that are not held, that is, paused.
func (r references) forOtherStream(stream uint32, held func(uint32) bool) (b *batch.Batch) {
	for _, k := range r {
		switch {
		case k.stream == stream:
		case !held(k.stream):
			return k.b
		case b == nil:
			b = k.b
		}
	}
	return b
}

// silence describes how long a destination takes to answer, and when it did not answer.
type silence struct {
	limit time.Duration // time after which the driver ended a session because there was no answer; 0: no session has ended that way
	usual time.Duration // upper bound of the time that recent answers took
	until time.Time     // no parked suspect is probed before this time
}

const (
	longSilence   = time.Second // minimum wait without an answer that counts as silence
	shortFraction = 16          // divisor of the driver's timeout for parts and suspects; see Patience
	pauseFactor   = 10          // probes pause for this multiple of the time spent waiting for a suspect
)

// pauseProbes pauses the probes after the failure f, so that other records are sent. If f took
// long, it returns the minimum time for which the stream of f must be held. If f was quick, it
// returns 0.
func (s *silence) pauseProbes(now time.Time, f *Failure) time.Duration {
	s.until = now.Add(pauseFactor * f.Waited)
	if f.Sign == Cut || f.Waited >= longSilence {
		return pauseFactor * max(f.Waited, s.limit)
	}
	return 0
}
