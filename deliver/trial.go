package deliver

import (
	"errors"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// A trial is what is known of a suspect.
type trial struct {
	rounds  int          // in a row in which all controls were taken and it was not
	witness *batch.Batch // a record of its stream that was taken; nil: none is known
	first   time.Time    // the count began
	next    time.Time    // no round begins before

	answered bool // the last round ended with an answer, not with the session
}

// trials is the round under way. Each record goes alone, with nothing else under way.
//
//	noRound ──▶ asksServer ──taken──▶ asksStream ──1 to 3 taken──▶ asksSuspect ──▶ noRound
//
// The server is asked with a record of another stream, the stream with the suspect's witness. A
// server that does not take the one is ill. A stream of which it does not take the other is ill,
// and held. In both cases the round ends, and the count begins anew.
//
// Where no other stream is known, a round begins with asksStream, and stands for the server, too.
// Where there is no witness, the server is asked one to three times, then the suspect.
type trials struct {
	step step
	cur  *entry // the suspect; nil: none
	left int    // control records of this step to be taken
}

type step uint8

const (
	noRound step = iota
	asksServer
	asksStream
	asksSuspect
)

// round is the only way from one step of a round to another.
func (m *machine) round(to step, e *entry, left int) {
	m.moved(aRound, uint8(m.trials.step), uint8(to))
	m.trials = trials{to, e, left}
}

func (m *machine) endRound() { m.round(noRound, nil, 0) }

// beginRound begins a round of e. There is a control record.
func (m *machine) beginRound(e *entry) {
	if e.trial.witness == nil {
		e.trial.witness = m.ctl.of(streamOf(e.b))
	}
	n := 1 + int(m.set.jitter(0, trialControls-1))
	switch {
	case m.stranger(streamOf(e.b)) == nil:
		m.round(asksStream, e, n)
	case e.trial.witness == nil:
		m.round(asksServer, e, n)
	default:
		m.round(asksServer, e, 1)
	}
}

// controlTaken has the round go on after a control record was taken.
func (m *machine) controlTaken() {
	t := &m.trials
	if t.left--; t.left > 0 {
		return
	}
	if t.step == asksServer && t.cur.trial.witness != nil {
		m.round(asksStream, t.cur, 1+int(m.set.jitter(0, trialControls-1)))
		return
	}
	m.round(asksSuspect, t.cur, 0)
}

// ---- control records ------------------------------------------------------

// control keeps records that were delivered, of different streams, the latest first.
type control struct{ kept []kept }

type kept struct {
	b      *batch.Batch
	stream uint32
	at     time.Time
}

// none reports whether there is no control record.
func (c *control) none() bool { return len(c.kept) == 0 }

// keep keeps settled records of b.
func (c *control) keep(now time.Time, b *batch.Batch, o *batch.Outcome) {
	for i, rec := range b.All() {
		if i >= 16 && len(c.kept) > 0 || i >= 256 {
			return
		}
		at := slices.IndexFunc(c.kept, func(k kept) bool { return k.stream == rec.Stream })
		if at < 0 && len(c.kept) >= controlsMost {
			at = controlsMost - 1
		}
		if at >= 0 && now.Sub(c.kept[at].at) < controlEvery || !controls(&rec, i, o) {
			continue
		}
		if at >= 0 {
			c.kept = slices.Delete(c.kept, at, at+1)
		}
		c.kept = slices.Insert(c.kept, 0, kept{copyOf(&rec, b), rec.Stream, now})
	}
}

// controls reports whether rec, number i of an answered batch, may be a control record.
func controls(rec *batch.Record, i int, o *batch.Outcome) bool {
	return len(rec.Data) <= controlBytes && !o.Open.Has(i) && !o.Refused.Has(i)
}

// copyOf returns rec, a record of b, as a batch of its own.
func copyOf(rec *batch.Record, b *batch.Batch) *batch.Batch {
	var one batch.Builder
	one.Append(rec.Data, rec.Ticket, rec.Meta)
	c := one.Batch(b.Codec)
	c.Origin = b.Origin
	return c
}

// of returns the record of a stream, or nil.
func (c *control) of(stream uint32) *batch.Batch {
	for _, k := range c.kept {
		if k.stream == stream {
			return k.b
		}
	}
	return nil
}

// forget drops the record of a stream.
func (c *control) forget(stream uint32) {
	c.kept = slices.DeleteFunc(c.kept, func(k kept) bool { return k.stream == stream })
}

// stranger returns the latest control record of another stream than that, of one that is held
// only if there is no other, or nil.
func (m *machine) stranger(stream uint32) (b *batch.Batch) {
	for _, k := range m.ctl.kept {
		switch {
		case k.stream == stream:
		case m.held[k.stream] == nil:
			return k.b
		case b == nil:
			b = k.b
		}
	}
	return b
}

// nextControl returns the next control record of the search, or of the round under way; nil if
// the suspect is next.
func (m *machine) nextControl() *entry {
	stream := uint32(0)
	if e := m.trials.cur; e != nil {
		stream = streamOf(e.b)
	} else if _, head := m.first(); head != nil {
		stream = streamOf(head.b)
	}
	var b *batch.Batch
	switch m.trials.step {
	case asksStream:
		b = m.trials.cur.trial.witness
	case asksSuspect:
		return nil
	default: // it shows how the server is, not the stream
		if b = m.stranger(stream); b == nil {
			b = m.ctl.kept[0].b
		}
	}
	return &entry{b: b.Slice(nil, 0, 1), ctl: true}
}

// controlAnswered deals with the answer to a control record.
func (m *machine) controlAnswered(now time.Time, e *entry, o batch.Outcome) {
	switch {
	case !o.Open.Empty():
		if !m.controlFailed(now, o.Why, 0) {
			m.failed(now, setback{err: cause(o.Why), after: o.After, hold: o.Advice == batch.Hold}, 1)
		}
		return
	case !o.Refused.Empty() || o.Unnamed > 0: // taken before, refused now: it controls nothing
		m.dropControl(now, streamOf(e.b))
		return
	}
	m.sess.answered = true
	m.pace.well()
	m.brk.worked(now, true)
	if m.search.control = false; m.trials.step != noRound {
		m.controlTaken()
	}
}

// dropControl forgets the control records of a stream, and ends the round under way.
func (m *machine) dropControl(now time.Time, stream uint32) {
	m.ctl.forget(stream)
	m.search.control = false
	for _, e := range m.aside {
		if e.trial != nil && streamOf(e.b) == stream {
			e.trial.witness = nil
		}
	}
	if m.trials.step != noRound {
		m.mistrial(now)
	}
}

// controlFailed notes that a control record was not taken, after a time without an answer. It
// reports true if that says something of the suspect's stream only.
func (m *machine) controlFailed(now time.Time, why error, took time.Duration) bool {
	m.search.control = false
	e, ofStream := m.trials.cur, m.blamesStream()
	if e == nil {
		return false
	}
	if m.mistrial(now); !ofStream {
		return false
	}
	if e.rest == waiting {
		m.search = search{}
	}
	m.quiet.rest = now.Add(restFactor * took)
	m.holdStream(now, streamOf(e.b), cause(why), m.restOf(why, took))
	return true
}

// blamesStream reports whether the stream of the suspect is to blame if the control record under
// way is not taken: that of another one was, in this round.
func (m *machine) blamesStream() bool {
	return m.trials.step == asksStream && m.stranger(streamOf(m.trials.cur.b)) != nil
}

// ---- suspects -------------------------------------------------------------

// mistrial ends the round under way without a result.
func (m *machine) mistrial(now time.Time) {
	e := m.trials.cur
	m.proven = 0
	m.endRound()
	if e.rest == waiting { // the search goes on
		e.trial = nil
		return
	}
	e.trial.rounds, e.trial.first = 0, now
	m.postpone(now, e)
}

// forgetSuspect ends the round of e, which is gone.
func (m *machine) forgetSuspect(e *entry) {
	if m.trials.cur == e {
		m.endRound()
	}
}

// suspects returns how many records are on trial, and how many of a stream.
func (m *machine) suspects(stream uint32) (all, of int) {
	for _, e := range m.aside {
		if e.trial == nil {
			continue
		}
		if all++; streamOf(e.b) == stream {
			of++
		}
	}
	return all, of
}

// setSuspectAside sets e, a suspect in the ring, aside. It reports false if there is no room for
// another one: a stream may have as many as are left. Where nothing was ever delivered, all
// streams may be bad, and share.
func (m *machine) setSuspectAside(now time.Time, e *entry) bool {
	all, of := m.suspects(streamOf(e.b))
	if m.ctl.none() {
		of = 0
	}
	if of >= trialsMost-all || !m.setAside(e) {
		return false
	}
	m.counts.suspects += countable(e.b)
	m.postpone(now, e)
	m.search.progress(1)
	return true
}

// postpone sets the time of the next round of e.
func (m *machine) postpone(now time.Time, e *entry) {
	gap := probeDelay
	if e.rest == apart || e.trial.rounds >= trialRounds {
		gap = backoff.Ceil(trialGapMin, trialGapMax, e.trial.rounds)
	}
	e.trial.next = now.Add(m.set.jitter(gap/2, gap))
}

// tryTrials does the next step of a round. busy says that nothing else may be sent
// now.
func (m *machine) tryTrials(now time.Time) (a action, ok, busy bool) {
	if m.trials.step == noRound {
		e := m.dueSuspect(now)
		if e == nil {
			return action{}, false, false
		}
		m.beginRound(e)
	}
	if state, _, _, _ := m.brk.look(); state == Open {
		m.mistrial(now)
		return action{}, false, false
	}
	e := m.trials.cur
	switch {
	case e.place == offered: // the handler has it, and may take it
		return action{}, false, true
	case m.sess.under > 0 || now.Before(m.pace.notBefore) || now.Before(e.trial.next):
		return action{}, false, true
	case m.sess.state == none:
		m.session(opening)
		return action{do: doOpen}, true, true
	case m.sess.state != live:
		return action{}, false, true
	}
	if c := m.nextControl(); c != nil {
		return m.give(now, c), true, true
	}
	return m.give(now, e), true, true
}

// readmit puts suspects back into the queue, which is empty, when there is no control
// record: no trial could begin, and nothing else would come.
func (m *machine) readmit() {
	if !m.ctl.none() || m.disk.backlog || m.trials.step != noRound {
		return
	}
	m.comeBack(func(e *entry) bool { return e.trial != nil })
}

// dueSuspect returns a suspect set aside whose next round may begin.
func (m *machine) dueSuspect(now time.Time) *entry {
	if m.search.on || m.ctl.none() || now.Before(m.quiet.rest) {
		return nil
	}
	for _, e := range m.aside {
		if e.trial != nil && !now.Before(e.trial.next) && !m.waitsForStream(e) {
			return e
		}
	}
	return nil
}

// waitsForStream reports whether e, a suspect, waits until its stream is tried, or has shown to
// be well: others of it go first.
func (m *machine) waitsForStream(e *entry) bool {
	h := m.held[streamOf(e.b)]
	return h != nil && (!h.released || e.trial.witness == nil)
}

// trialRefused notes that the session ended at the suspect e after its controls were
// taken, and e had no answer for a time.
func (m *machine) trialRefused(now time.Time, e *entry, why error, took time.Duration) {
	m.endRound()
	t, stream := e.trial, streamOf(e.b)
	t.rounds++
	m.quiet.rest = now.Add(restFactor * took)
	atHead, long := e.rest == waiting, m.restOf(why, took) > 0
	switch {
	case m.isProven(now, e):
		if m.proven++; !t.answered {
			m.proven = 0
		}
		m.condemn(e.h, e.b, cause(why))
		m.remove(e)
		if atHead {
			m.search.progress(1)
		}
		return
	case atHead && t.rounds < trialRounds && !long:
		m.beginRound(e)
	case atHead && m.setSuspectAside(now, e):
		if m.unheard(e) > m.suspectsOf(stream) {
			m.holdStream(now, stream, cause(why), m.restOf(why, took))
		}
	case atHead && t.witness != nil: // its stream is well: there is no reason to hold it
		m.beginRound(e)
	case atHead: // there are enough: it waits with its stream
		e.trial, m.search = nil, search{}
		m.holdStream(now, stream, cause(why), m.restOf(why, took))
		return
	}
	if !atHead || !t.answered || e.rest == apart {
		m.postpone(now, e)
	}
}

// isProven reports whether e, which was refused once more, is to be condemned.
func (m *machine) isProven(now time.Time, e *entry) bool {
	age := now.Sub(e.trial.first)
	switch {
	case e.trial.answered && e.trial.witness != nil:
		// A server that refuses at random is not likely to condemn one, let alone several.
		return e.trial.rounds >= max(leastRounds, trialRounds-m.proven)
	case e.trial.rounds < trialRounds:
		return false
	case e.trial.witness != nil:
		return age >= trialSpan
	}
	others := m.unheard(e)
	if e.rest == apart {
		others--
	}
	return age >= holdPatience && others == 0
}

// restOf returns how long a stream is held at least after a round that ended because of why,
// after a time without an answer: the others have had to wait for that. It is 0 if that was short.
func (m *machine) restOf(why error, took time.Duration) time.Duration {
	if errors.Is(why, errSilent) || took >= longRound {
		return restFactor * max(took, m.quiet.limit)
	}
	return 0
}

// unheard returns how many suspects of e's stream are aside and have no witness; 0 if e has one.
func (m *machine) unheard(e *entry) (n int) {
	for _, o := range m.aside {
		if o.trial != nil && o.trial.witness == nil && e.trial.witness == nil && streamOf(o.b) == streamOf(e.b) {
			n++
		}
	}
	return n
}

// suspectsOf returns how many suspects of a stream of which nothing else is taken may be aside
// before it is held: each time it was one more is found.
func (m *machine) suspectsOf(stream uint32) int {
	h := m.held[stream]
	if h == nil {
		return 1
	}
	return (h.times + 1) * (h.times + 2) / 2
}

// noteOwn keeps a witness for each suspect without one of whose stream o, an answer to b, has
// taken a record. Its rounds count from then on.
func (m *machine) noteOwn(now time.Time, b *batch.Batch, o *batch.Outcome) {
	for _, e := range m.aside {
		if e.trial == nil || e.trial.witness != nil {
			continue
		}
		for i, rec := range b.All() {
			if rec.Stream == streamOf(e.b) && controls(&rec, i, o) {
				*e.trial = trial{witness: copyOf(&rec, b), first: now, next: e.trial.next}
				break
			}
		}
	}
}

// trialAnswered deals with the answer to the suspect e.
func (m *machine) trialAnswered(now time.Time, e *entry, o batch.Outcome) {
	verdict := o.Open.Empty()
	switch o.Advice {
	case batch.Smaller, batch.Search, batch.Gone: // alone, it is refused or dropped
		verdict = true
	}
	if verdict {
		m.proven = 0
		m.endRound()
		m.settle(now, e, o)
		return
	}
	m.unpin(e)
	e.b = e.b.Slice(nil, 0, 1)
	if o.Advice == batch.Doubt {
		m.died(now, e, cause(o.Why), true)
		return
	}
	if o.Advice == batch.HoldStreams { // it waits for its stream, as others do
		m.endRound()
		e.trial = nil
		e.stream = streamOf(e.b)
		m.hold(now, e, o)
		return
	}
	m.mistrial(now)
	m.failed(now, setback{err: cause(o.Why), after: o.After, hold: o.Advice == batch.Hold}, 1)
}
