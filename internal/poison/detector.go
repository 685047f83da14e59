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
// A probe has the phases Server, Stream and Alone. Server is skipped if there is no reference
// record of another stream, and Stream is skipped if there is none of the suspect's own stream. The
// probe of a parked suspect returns to Usual, any other probe to Pieces. If an ordinary batch fails
// during the probe of a parked suspect, the next phase is Pieces.
type Phase uint8

const (
	Usual  Phase = iota // batches are sent without restriction
	Pieces              // parts of the oldest records are sent, one at a time
	Server              // a reference record of another stream is sent, to test the server
	Stream              // reference records of the suspect's stream are sent, to test the stream
	Alone               // the suspect is sent alone
)

const (
	suspectAfter = 3                     // number of sessions ended by the same batch after which the Detector suspects its records
	probes       = 8                     // number of consecutive probes in which only the suspect fails, after which it can be dropped
	probeSpan    = 30 * time.Second      // minimum duration of this series of probes
	longSpan     = time.Hour             // minimum duration after ServerError, or without a reference record of the suspect's stream
	Pause        = 50 * time.Millisecond // delay after a failure that is not attributed to the destination
)

// Streams provides a Detector with the state of streams.
type Streams interface {
	IsHeld(stream uint32) bool // the stream is held: sending of its records is paused
	Tries(stream uint32) int   // number of consecutive pauses after which no record of the stream was accepted; 0 if it was not held recently
}

// A Detector decides how records are sent while some of them may be at fault. It is used by one
// goroutine.
type Detector struct {
	jitter  func(lo, hi time.Duration) time.Duration
	moved   func(from, to Phase)
	streams Streams

	phase      Phase
	faultyHead int        // at least one of the first faultyHead records in the queue is at fault; 0: no search is in progress
	suspect    *Suspect   // the suspect that is being probed; nil if there is none
	refsLeft   int        // number of reference records that must still be accepted in this phase
	lastEnd    uint64     // first ticket of the batch that ended the last session
	sameEnds   int        // number of consecutive sessions that ended at the ticket lastEnd
	suspects   []*Suspect // the parked suspects

	refs    references
	silence silence
}

// New returns a Detector. The function jitter returns a random duration from lo to hi. The function
// moved, if not nil, is called for each change of phase.
func New(s Streams, jitter func(lo, hi time.Duration) time.Duration, moved func(from, to Phase)) *Detector {
	return &Detector{streams: s, jitter: jitter, moved: moved}
}

// enter changes the phase. All changes of the phase are made here.
func (d *Detector) enter(to Phase, s *Suspect, left int) {
	if d.moved != nil && to != d.phase {
		d.moved(d.phase, to)
	}
	d.phase, d.suspect, d.refsLeft = to, s, left
}

// finish ends a probe. If a search is in progress, it continues.
func (d *Detector) finish() {
	to := Usual
	if d.faultyHead > 0 {
		to = Pieces
	}
	d.enter(to, nil, 0)
}

// A Kind is a kind of batch that is sent.
type Kind uint8

const (
	Queued    Kind = iota // records from the head of the queue
	Reference             // a reference record
	Probed                // a batch with only the suspect
)

// A Step describes the next send. In every phase except Usual, the caller sends it when nothing
// else is in flight.
type Step struct {
	Kind      Kind
	Max       int          // maximum number of records of a Queued batch; 0: no limit
	Reference *batch.Batch // the batch to send if Kind is Reference
	Suspect   *Suspect     // the suspect that this send probes; nil if there is none
}

// Next returns the step that describes the next send.
func (d *Detector) Next(now time.Time) Step {
	if s := d.dueSuspect(now); d.phase == Usual && s != nil {
		d.probe(s)
	}
	switch d.phase {
	case Pieces:
		return Step{Max: max(1, d.faultyHead/2)}
	case Server:
		return Step{Kind: Reference, Reference: d.refs.forOtherStream(d.suspect.stream, d.streams.IsHeld), Suspect: d.suspect}
	case Stream:
		return Step{Kind: Reference, Reference: d.suspect.ref, Suspect: d.suspect}
	case Alone:
		return Step{Kind: Probed, Suspect: d.suspect}
	}
	return Step{}
}

// Phase returns the phase. References returns the number of reference records.
func (d *Detector) Phase() Phase    { return d.phase }
func (d *Detector) References() int { return len(d.refs) }

// Search starts or narrows a search. The caller knows that at least one of the first n records in
// the queue is at fault.
func (d *Detector) Search(n int) {
	d.faultyHead = n
	d.enter(Pieces, nil, 0)
}

// Progress is called when the first n records have left the queue: they are delivered, dropped or
// parked.
func (d *Detector) Progress(n int) {
	if d.faultyHead == 0 || n == 0 {
		return
	}
	if d.faultyHead = max(0, d.faultyHead-n); d.faultyHead == 0 {
		d.sameEnds = 0
	}
	if d.suspect == nil {
		d.finish()
	}
}

// Empty is called when no record waits to be sent and only parked suspects remain. It ends a
// search. Without reference records, parked suspects cannot be probed; Empty then returns them, and
// the caller sends them again.
func (d *Detector) Empty() (back []*Suspect) {
	if d.Progress(d.faultyHead); len(d.refs) == 0 && d.phase == Usual {
		back, d.suspects = d.suspects, nil
	}
	return back
}

// Taken is called when the destination has answered the batch b with the outcome o. Copies of
// accepted records become reference records.
func (d *Detector) Taken(now time.Time, b *batch.Batch, o *batch.Outcome) {
	d.refs.keep(now, b, o)
	for _, s := range d.suspects {
		if ref := d.refs.forStream(s.stream); s.ref == nil && ref != nil {
			s.ref, s.failures, s.since = ref, 0, now
		}
	}
}

// A Sign tells how a failure was detected.
type Sign uint8

const (
	Ended       Sign = iota // the session ended, and the batch was its oldest without an answer
	Cut                     // the caller ended the session after Detector.Patience
	Doubt                   // the answer was batch.Doubt
	ServerError             // the answer was batch.ServerError
)

// A Failure is a batch that was not accepted.
type Failure struct {
	Kind   Kind
	Batch  *batch.Batch
	Head   bool // the batch is of kind Queued and at the head of the queue
	Only   bool // there are no further records to send
	Sign   Sign
	Waited time.Duration // time for which the caller waited before the session ended
}

// A Decision is the consequence of a Failure.
type Decision struct {
	Failing bool          // the failure is attributed to the destination; if false, the next attempt is made after Pause
	Suspect *Suspect      // the record of the Failure is now this suspect; nil: no change
	Park    bool          // the record is removed from the queue and parked
	Condemn bool          // the record is at fault and is dropped
	Hold    bool          // the stream of the record is held: sending of its records is paused
	After   time.Duration // minimum duration of the pause
}

// Failed returns the consequence of f.
func (d *Detector) Failed(now time.Time, f Failure) Decision {
	long := f.Sign == Ended && f.Waited >= longSilence
	if long {
		d.silence.limit = f.Waited
	}
	none := len(d.refs) == 0
	switch {
	case f.Kind == Reference:
		return d.referenceFailed(now, &f)
	case f.Kind == Probed:
		return d.suspectFailed(now, &f)
	case d.faultyHead == 0:
		if t := f.Batch.First(); t != d.lastEnd {
			d.lastEnd, d.sameEnds = t, 0
		}
		d.sameEnds++
		stream := f.Batch.At(0).Stream
		tried := d.streams.Tries(stream) > 0 && !d.streams.IsHeld(stream) // the stream is already suspected
		sure := !none && (f.Sign == Doubt || tried)
		if sure || long || d.sameEnds >= suspectAfter {
			d.Search(f.Batch.Len())
		}
		return Decision{Failing: !sure}
	case !f.Head: // the batch was in flight when the search began
		return Decision{Failing: f.Sign != Doubt || none}
	case f.Batch.Len() > 1:
		d.Search(f.Batch.Len())
		return Decision{Failing: none}
	}
	s := &Suspect{stream: f.Batch.At(0).Stream, since: now}
	if none { // without reference records, this send was the first probe
		s.failures = 1
	}
	d.probeAgain(now, s, &f)
	return Decision{Failing: none, Suspect: s}
}

// ReferenceAnswered handles the answer to the reference record b. accepted is false if the server
// refused this record. Such an answer gives no information about the suspect.
func (d *Detector) ReferenceAnswered(now time.Time, b *batch.Batch, accepted bool) {
	switch {
	case !accepted:
		stream := b.At(0).Stream
		d.refs = slices.DeleteFunc(d.refs, func(k reference) bool { return k.stream == stream })
		for _, s := range d.suspects {
			if s.stream == stream {
				s.ref = nil
			}
		}
		d.cancel(now)
	case d.phase != Server && d.phase != Stream:
	case d.refsLeft > 1:
		d.refsLeft--
	case d.phase == Server && d.suspect.ref != nil:
		d.enter(Stream, d.suspect, d.suspect.references())
	default:
		d.enter(Alone, d.suspect, 0)
	}
}

// referenceFailed returns the consequence of a reference record that was not accepted.
func (d *Detector) referenceFailed(now time.Time, f *Failure) (c Decision) {
	s := d.suspect
	c.Hold = d.blamesStream()
	c.Failing = !c.Hold
	if d.cancel(now); c.Hold {
		if !s.parked {
			d.Progress(d.faultyHead)
		}
		c.After = d.silence.pauseProbes(now, f)
	}
	return c
}

// blamesStream reports whether a failure of the reference record in flight would show that the
// suspect's stream is at fault. This requires that a reference record of another stream was
// accepted in this probe.
func (d *Detector) blamesStream() bool {
	return d.phase == Stream && d.refs.forOtherStream(d.suspect.stream, d.streams.IsHeld) != nil
}

// Interrupt is called when the destination has failed. The current probe ends without a result.
func (d *Detector) Interrupt(now time.Time) {
	if len(d.refs) > 0 {
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

// Answered stores how long the destination took to answer.
func (d *Detector) Answered(after time.Duration) {
	d.silence.usual = max(after, d.silence.usual-d.silence.usual/16)
}

// Patience returns how long the caller waits for the answer to a batch of kind k, the only batch in
// flight, before it ends the session. If it returns 0, the driver's timeout applies.
func (d *Detector) Patience(k Kind) time.Duration {
	short := k == Reference && d.blamesStream() || k == Queued && d.phase == Pieces ||
		k == Probed && d.suspect != nil && d.suspect.failures != probes-1 // in its last probe, the suspect gets the full timeout of the driver
	if p := max(d.silence.limit/shortFraction, 10*d.silence.usual); short && len(d.refs) > 0 && p < d.silence.limit {
		return p
	}
	return 0
}

// Wake calls the function consider with each time at which the result of Next may change.
func (d *Detector) Wake(consider func(time.Time)) {
	if consider(d.silence.until); d.suspect != nil {
		consider(d.suspect.Due)
	}
	for _, s := range d.suspects {
		consider(s.Due)
	}
}
