package poison

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

const (
	mostReferenceBytes = 64 << 10         // larger records are no references
	referenceAge       = 10 * time.Second // from which a reference is replaced
	mostStreams        = 4                // with a reference
)

// references are records that were accepted, at most one of each stream, the latest first.
type references struct{ kept []reference }

type reference struct {
	b      *batch.Batch // a copy of one record
	stream uint32
	at     time.Time
}

func (r *references) none() bool { return len(r.kept) == 0 }

// keep copies settled records of b.
func (r *references) keep(now time.Time, b *batch.Batch, o *batch.Outcome) {
	for i, rec := range b.All() {
		if i >= 16 && len(r.kept) > 0 || i >= 256 {
			return
		}
		at := slices.IndexFunc(r.kept, func(k reference) bool { return k.stream == rec.Stream })
		if at < 0 && len(r.kept) >= mostStreams {
			at = mostStreams - 1
		}
		if at >= 0 && now.Sub(r.kept[at].at) < referenceAge || len(rec.Data) > mostReferenceBytes || o.Open.Has(i) || o.Refused.Has(i) {
			continue
		}
		if at >= 0 {
			r.kept = slices.Delete(r.kept, at, at+1)
		}
		r.kept = slices.Insert(r.kept, 0, reference{copyOf(&rec, b), rec.Stream, now})
	}
}

// copyOf returns rec, a record of b, as a batch of one.
func copyOf(rec *batch.Record, b *batch.Batch) *batch.Batch {
	one := &batch.Batch{Codec: b.Codec, Origin: b.Origin}
	one.Append(rec.Data, rec.Ticket, rec.Meta)
	return one
}

// of returns the reference of a stream, or nil.
func (r *references) of(stream uint32) *batch.Batch {
	for _, k := range r.kept {
		if k.stream == stream {
			return k.b
		}
	}
	return nil
}

// other returns the latest reference of another stream, of a held one only if there is no other, or
// nil.
func (r *references) other(stream uint32, held func(uint32) bool) (b *batch.Batch) {
	for _, k := range r.kept {
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

// streamOf returns the stream of the first record of b.
func streamOf(b *batch.Batch) uint32 {
	for _, rec := range b.All() {
		return rec.Stream
	}
	return 0
}

// silence describes a destination that does not answer.
type silence struct {
	limit time.Duration // how long the driver waited before it ended a session; 0: it never did
	usual time.Duration // how long answers took lately, at most
	until time.Time     // no parked suspect is probed before
}

const (
	longSilence = time.Second // from when a silence is one
	shortPart   = 16          // pieces and suspects get this part of the driver's patience
	restFactor  = 10          // other records get so many times as long as a suspect was waited for
)

// rest lets other records pass after f. It returns how long its stream is held at least if others
// had to wait for f for long, otherwise 0.
func (s *silence) rest(now time.Time, f *Failure) time.Duration {
	s.until = now.Add(restFactor * f.Waited)
	if f.Cut || f.Waited >= longSilence {
		return restFactor * max(f.Waited, s.limit)
	}
	return 0
}
