package poison

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A Phase determines the next send.
//
//	        a batch is suspected        a single record fails
//	Usual ────────────────────▶ Pieces ───────────────────▶ Server ──accepted──▶ Stream ──accepted──▶ Alone
//	 ▲ ▲ └──a parked suspect is due─┼───────────────────────▶ │                    │                   │
//	 │ └────── all are accepted ────┘ ▲                       │                    │                   │
//	 └────────────────────────────────┴──── the probe has a result, or is interrupted ─────────────────┘
//
// A probe starts with Stream if no record of another stream is known, and leaves Stream out if none
// of the suspect's own is. After the probe of a parked suspect follows Usual, otherwise Pieces. If a
// batch fails during the probe of a parked suspect, Pieces follows.
type Phase uint8

const (
	Usual  Phase = iota // batches are sent as they come
	Pieces              // the oldest records are sent in pieces, one at a time
	Server              // a record of another stream shows whether the server works
	Stream              // a record of the suspect's stream shows whether the stream does
	Alone               // the suspect is sent
)

const (
	suspectAfter = 3                // sessions that end at the same batch
	probes       = 8                // in a row that only the suspect fails
	probeSpan    = 30 * time.Second // … over at least this time
	unheardSpan  = time.Hour        // … without a reference of its stream

	// Pause is the delay after a failure that does not count against the destination.
	Pause = 50 * time.Millisecond
)

// Streams is what a Detector asks about held streams.
type Streams interface {
	IsHeld(stream uint32) bool // its records are not sent
	Tries(stream uint32) int   // how often in a row it was held and accepted nothing; 0 if it was not lately
}

// A Detector decides how records are sent while some are suspected. It is for one goroutine.
type Detector struct {
	jitter  func(lo, hi time.Duration) time.Duration
	moved   func(from, to Phase)
	streams Streams

	phase    Phase
	known    int        // at least one of so many records at the head is at fault; 0: none is known
	suspect  *Suspect   // being probed; nil: none
	left     int        // references to be accepted in this phase
	last     uint64     // first ticket of the batch at which the last session ended
	ends     int        // sessions in a row that ended there
	suspects []*Suspect // parked

	refs    references
	silence silence
}

// New returns a Detector. jitter returns a random duration; moved, if not nil, gets each change of phase.
func New(s Streams, jitter func(lo, hi time.Duration) time.Duration, moved func(from, to Phase)) *Detector {
	return &Detector{streams: s, jitter: jitter, moved: moved}
}

// enter is the only way from one phase to another.
func (d *Detector) enter(to Phase, s *Suspect, left int) {
	if d.moved != nil && to != d.phase {
		d.moved(d.phase, to)
	}
	d.phase, d.suspect, d.left = to, s, left
}

// finish ends a probe. The search continues if there is one.
func (d *Detector) finish() {
	if d.known > 0 {
		d.enter(Pieces, nil, 0)
	} else {
		d.enter(Usual, nil, 0)
	}
}

// A Kind is a kind of batch that is sent.
type Kind uint8

const (
	Queued    Kind = iota // from the head of the queue
	Reference             // a copy of a record that was accepted before
	Probed                // the suspect, alone
)

// A Step is the next send. In any phase but Usual it is sent while nothing else is in flight.
type Step struct {
	Kind      Kind
	Max       int          // most records of a Queued batch; 0: no limit
	Reference *batch.Batch // of kind Reference
	Suspect   *Suspect     // whose probe this is; nil: of none
}

// Next returns the next send.
func (d *Detector) Next(now time.Time) Step {
	if s := d.due(now); d.phase == Usual && s != nil {
		d.probe(s)
	}
	switch d.phase {
	case Pieces:
		return Step{Max: max(1, d.known/2)}
	case Server:
		return Step{Kind: Reference, Reference: d.refs.other(d.suspect.stream, d.streams.IsHeld), Suspect: d.suspect}
	case Stream:
		return Step{Kind: Reference, Reference: d.suspect.ref, Suspect: d.suspect}
	case Alone:
		return Step{Kind: Probed, Suspect: d.suspect}
	}
	return Step{}
}

// Phase returns the phase, References how many reference records are known.
func (d *Detector) Phase() Phase    { return d.phase }
func (d *Detector) References() int { return len(d.refs.kept) }

// Search starts or narrows a search: some of the first n records are at fault.
func (d *Detector) Search(n int) {
	d.known = n
	d.enter(Pieces, nil, 0)
}

// Progress notes that n records at the head are settled, parked or gone.
func (d *Detector) Progress(n int) {
	if d.known == 0 || n == 0 {
		return
	}
	if d.known = max(0, d.known-n); d.known == 0 {
		d.ends = 0
	}
	if d.suspect == nil {
		d.finish()
	}
}

// Empty notes that only parked records are queued: the searched records are gone. It returns the
// suspects that go back into the queue, because no reference is known and they could not be probed.
func (d *Detector) Empty() (back []*Suspect) {
	if d.Progress(d.known); d.refs.none() && d.phase == Usual {
		back, d.suspects = d.suspects, nil
	}
	return back
}

// Taken notes an answer that settled records of b.
func (d *Detector) Taken(now time.Time, b *batch.Batch, o *batch.Outcome) {
	d.refs.keep(now, b, o)
	for _, s := range d.suspects {
		if ref := d.refs.of(s.stream); s.ref == nil && ref != nil {
			s.ref, s.failures, s.since = ref, 0, now
		}
	}
}

// A Failure is a batch that was not accepted: the oldest one without an answer when a session
// ended, or one whose answer leaves in doubt whether a record is at fault.
type Failure struct {
	Kind   Kind
	Batch  *batch.Batch
	Head   bool          // of kind Queued: it is at the head of the queue
	Only   bool          // nothing would follow it
	Doubt  bool          // there was an answer
	Cut    bool          // the session was ended because of Detector.Patience
	Waited time.Duration // without an answer
}

// A Decision is the consequence of a Failure.
type Decision struct {
	Failing bool          // it counts against the destination; otherwise the next attempt follows after Pause
	Suspect *Suspect      // the record of the Failure, from now on; nil: no change
	Park    bool          // the record goes out of the queue
	Condemn bool          // the record is at fault
	Hold    bool          // its stream is held
	After   time.Duration // … for at least this time
}

// Failed returns the consequence of f.
func (d *Detector) Failed(now time.Time, f Failure) Decision {
	long := !f.Doubt && !f.Cut && f.Waited >= longSilence
	if long {
		d.silence.limit = f.Waited
	}
	none := d.refs.none()
	switch {
	case f.Kind == Reference:
		return d.referenceFailed(now, &f)
	case f.Kind == Probed:
		return d.suspectFailed(now, &f)
	case d.known == 0:
		if t := f.Batch.First(); t != d.last {
			d.last, d.ends = t, 0
		}
		d.ends++
		stream := streamOf(f.Batch)
		tried := d.streams.Tries(stream) > 0 && !d.streams.IsHeld(stream) // it is suspected already
		sure := !none && (f.Doubt || tried)
		if sure || long || d.ends >= suspectAfter {
			d.Search(f.Batch.Len())
		}
		return Decision{Failing: !sure}
	case !f.Head: // it was in flight when the search began
		return Decision{Failing: !f.Doubt || none}
	case f.Batch.Len() > 1:
		d.Search(f.Batch.Len())
		return Decision{Failing: none}
	}
	s := &Suspect{stream: streamOf(f.Batch), since: now}
	if none { // this was its first probe
		s.failures = 1
	}
	d.again(now, s, &f)
	return Decision{Failing: none, Suspect: s}
}

// ReferenceAnswered notes that the reference b was accepted, or was refused by name and proves
// nothing.
func (d *Detector) ReferenceAnswered(now time.Time, b *batch.Batch, accepted bool) {
	switch {
	case !accepted:
		stream := streamOf(b)
		d.refs.kept = slices.DeleteFunc(d.refs.kept, func(k reference) bool { return k.stream == stream })
		for _, s := range d.suspects {
			if s.stream == stream {
				s.ref = nil
			}
		}
		d.cancel(now)
	case d.phase != Server && d.phase != Stream:
	case d.left > 1:
		d.left--
	case d.phase == Server && d.suspect.ref != nil:
		d.enter(Stream, d.suspect, d.suspect.references())
	default:
		d.enter(Alone, d.suspect, 0)
	}
}

// referenceFailed returns the consequence of a reference that was not accepted.
func (d *Detector) referenceFailed(now time.Time, f *Failure) (c Decision) {
	s := d.suspect
	c.Hold = d.blamesStream()
	c.Failing = !c.Hold
	if d.cancel(now); c.Hold {
		if !s.parked {
			d.Progress(d.known)
		}
		c.After = d.silence.rest(now, f)
	}
	return c
}

// blamesStream reports whether the stream of the suspect is at fault if the reference in flight
// is not accepted: one of another stream was, in this probe.
func (d *Detector) blamesStream() bool {
	return d.phase == Stream && d.refs.other(d.suspect.stream, d.streams.IsHeld) != nil
}

// Interrupt notes that the destination failed: a probe has no result.
func (d *Detector) Interrupt(now time.Time) {
	if !d.refs.none() {
		d.cancel(now)
	}
}

// cancel ends the current probe without a result.
func (d *Detector) cancel(now time.Time) {
	if s := d.suspect; s != nil && s.parked {
		s.failures, s.since = 0, now
		d.postpone(now, s)
	}
	d.finish()
}

// Answered notes how long an answer took.
func (d *Detector) Answered(after time.Duration) {
	d.silence.usual = max(after, d.silence.usual-d.silence.usual/16)
}

// Patience returns how long to wait for an answer to the only batch in flight, which is of a kind,
// before its session counts as silent. It returns 0 if the driver decides.
func (d *Detector) Patience(k Kind) time.Duration {
	short := k == Reference && d.blamesStream() || k == Queued && d.phase == Pieces ||
		k == Probed && d.suspect != nil && d.suspect.failures != probes-1 // once it gets all of the driver's time
	if p := max(d.silence.limit/shortPart, 10*d.silence.usual); short && !d.refs.none() && p < d.silence.limit {
		return p
	}
	return 0
}

// Wake calls consider with the times at which Next may return something else.
func (d *Detector) Wake(consider func(time.Time)) {
	if consider(d.silence.until); d.suspect != nil {
		consider(d.suspect.Due)
	}
	for _, s := range d.suspects {
		consider(s.Due)
	}
}
