package deliver

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// A record may be at fault that the destination never says so of: it ends the
// session instead, each time. The oldest batch without an answer is then suspected.
//
//	three sessions end at the same batch
//	     │
//	     ▼
//	search: the batch goes in pieces, half as large after each end of a session,
//	        twice as large after each that is taken ──▶ all taken: no suspect
//	     │ a single record ends a session
//	     ▼
//	trial:  one to three control records, then the suspect, with nothing else under way
//	     ├─ the suspect is taken ─▶ delivered: it was innocent
//	     ├─ a control record is not taken ─▶ the server is ill; the count begins anew
//	     ├─ 8 times in a row controls taken and the suspect not ─▶ it is set aside, the
//	     │    others go on, and its trial does from time to time
//	     └─ … over at least 30 s ─▶ dropped{poison}, dead letter
//
// That the destination takes records of other streams shows little: what is behind the
// suspect's own may be full, or down. So a record of its stream must have been taken since its
// trial began, or the trial have lasted for an hour. Until then a second suspect of the stream
// has the stream held: the others go on, and it is tried from time to time.
//
// A control record is a copy of one that was delivered before. Random resets of any
// rate pass for this pattern once in a million trials, and a server that takes
// every n-th message never does, because the number of control records is random.
const (
	searchAfter   = 3
	trialRounds   = 8
	trialSpan     = 30 * time.Second
	trialGapMin   = 100 * time.Millisecond // between two rounds of a suspect set aside; twice as long after each
	trialGapMax   = 10 * time.Second
	trialControls = 3
	trialsMost    = 64 // suspects at a time

	// probeDelay is how long the next attempt waits after a piece, or a suspect, has
	// ended a session of a destination that is well.
	probeDelay = 50 * time.Millisecond

	// controlBytes is the largest record to be kept as a control record, and
	// controlEvery how old the one that is kept may become.
	controlBytes = 4 << 10
	controlEvery = 10 * time.Second
)

// search says how the oldest batches are sent while a record among them is at fault.
type search struct {
	suspect uint64 // ticket of the first record that had no answer when a session ended
	deaths  int    // sessions in a row that ended at it

	on      bool
	known   int  // of so many records at the head at least one is at fault; 0: none is known
	size    int  // of the next piece, in records
	control bool // a control record is sent before the next piece

	alone  uint64 // ticket of the record that ended a session alone, and there is no control record
	lonely int    // how often in a row
}

// begin begins, or narrows, the search: of the first n records some are at fault.
func (s *search) begin(n int) {
	s.on, s.known, s.size = true, n, max(1, n/2)
}

// progress notes that n records at the head are settled.
func (s *search) progress(n int) {
	if !s.on || n == 0 {
		return
	}
	if s.known -= n; s.known <= 0 {
		*s = search{}
		return
	}
	s.size = max(1, s.known/2)
}

// A trial is what is known of a suspect.
type trial struct {
	rounds int  // in a row in which the controls were taken and it was not
	own    bool // a record of its stream was taken meanwhile
	first  time.Time
	next   time.Time
}

// trials is the round under way. A suspect that is not set aside is in it until its
// trial ends.
type trials struct {
	cur      *entry // the suspect; nil: none
	controls int    // control records to be sent before it
}

// control keeps a record that was delivered.
type control struct {
	b    *batch.Batch
	kept time.Time
}

// keep keeps a settled record of b.
func (c *control) keep(now time.Time, b *batch.Batch, o *batch.Outcome) {
	if c.b != nil && now.Sub(c.kept) < controlEvery {
		return
	}
	for i, rec := range b.All() {
		if len(rec.Data) > controlBytes || o.Open.Has(i) || o.Refused.Has(i) {
			if i >= 16 {
				return
			}
			continue
		}
		var one batch.Builder
		one.Append(rec.Data, rec.Ticket, rec.Meta)
		c.b, c.kept = one.Batch(b.Codec), now
		c.b.Origin = b.Origin
		return
	}
}

// entry returns the control record as something to send.
func (c *control) entry() *entry {
	return &entry{b: c.b.Slice(nil, 0, 1), ctl: true}
}

// died deals with the end of a session whose oldest batch without an answer was e. It
// reports true if that says nothing against the destination.
func (m *machine) died(now time.Time, e *entry, why error) bool {
	s := &m.search
	switch {
	case e.ghost:
		return false
	case e.ctl:
		m.controlFailed(now)
		return false
	case e == m.trials.cur:
		m.trialRefused(now, e, why)
		return true
	case m.set.inline: // it says of each batch how far it came; a control record would be a line of its own
		return false
	case !s.on:
		if t := e.b.First(); t != s.suspect || s.deaths == 0 {
			s.suspect, s.deaths = t, 0
		}
		if s.deaths++; s.deaths >= searchAfter {
			s.begin(e.b.Len())
		}
		return false
	case !m.isHead(e): // it was under way when the search began
		return false
	case e.b.Len() > 1:
		s.begin(e.b.Len())
		s.control = m.ctl.b != nil
		return s.control
	case m.ctl.b != nil:
		s.control = false
		e.trial = &trial{first: now}
		m.beginRound(e)
		m.postpone(now, e)
		return true
	}
	if len(m.ring) < 2 && !m.disk.backlog && m.suspects() == 0 {
		return false // nothing would come next
	}
	// Nothing was ever delivered, so nothing can show that the destination is well but
	// what comes next: the suspect gives way, and further ones sooner. If the destination
	// is ill, they will arrive out of order.
	if t := e.b.First(); t != s.alone || s.lonely == 0 {
		s.alone, s.lonely = t, 0
	}
	if s.lonely++; s.lonely >= trialRounds || s.lonely >= searchAfter && m.suspects() > 0 {
		s.lonely = 0
		e.trial = &trial{first: now}
		if !m.setSuspectAside(now, e) {
			e.trial = nil
		}
	}
	return false
}

// isHead reports whether e is the entry that is sent next.
func (m *machine) isHead(e *entry) bool {
	_, head := m.first()
	return head == e
}

// controlAnswered deals with the answer to a control record.
func (m *machine) controlAnswered(now time.Time, e *entry, o batch.Outcome) {
	if !o.Open.Empty() || !o.Refused.Empty() {
		m.controlFailed(now)
		if o.Open.Empty() {
			m.ctl.b = nil // taken before, refused now: it controls nothing
			return
		}
		m.failed(now, setback{err: cause(o.Why), after: o.After, hold: o.Advice == batch.Hold}, 1)
		return
	}
	m.sess.answered = true
	m.pace.well()
	m.brk.worked(now, true)
	m.noteOwn(e.b, &o)
	if m.trials.cur != nil {
		m.trials.controls--
		return
	}
	m.search.control = false
}

// controlFailed notes that a control record was not taken: the destination is ill.
func (m *machine) controlFailed(now time.Time) {
	m.search.control = false
	if m.trials.cur != nil {
		m.mistrial(now)
	}
}

// mistrial ends the round under way without a result.
func (m *machine) mistrial(now time.Time) {
	e := m.trials.cur
	m.trials = trials{}
	if e.rest == waiting { // the search goes on
		e.trial = nil
		return
	}
	e.trial.rounds, e.trial.first = 0, now
	m.postpone(now, e)
}

// forgetSuspect ends the trial of e, which is gone.
func (m *machine) forgetSuspect(e *entry) {
	if m.trials.cur == e {
		m.trials = trials{}
	}
}

// suspects returns how many records are on trial.
func (m *machine) suspects() (n int) {
	for _, e := range m.aside {
		if e.trial != nil {
			n++
		}
	}
	return n
}

// setSuspectAside sets e, a suspect in the ring, aside. It reports false if there is
// no room for another one.
func (m *machine) setSuspectAside(now time.Time, e *entry) bool {
	if m.suspects() >= trialsMost || !m.setAside(e) {
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

// beginRound begins a round of e.
func (m *machine) beginRound(e *entry) {
	m.trials = trials{cur: e, controls: 1 + int(m.set.jitter(0, trialControls-1))}
}

// tryTrials does the next step of a round. busy says that nothing else may be sent
// now.
func (m *machine) tryTrials(now time.Time) (a action, ok, busy bool) {
	t := &m.trials
	if t.cur == nil {
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
	switch {
	case t.cur.place == offered: // the handler has it, and may take it
		return action{}, false, true
	case m.sess.under > 0 || now.Before(m.pace.notBefore) || now.Before(t.cur.trial.next):
		return action{}, false, true
	case m.sess.state == none:
		m.session(opening)
		return action{do: doOpen}, true, true
	case m.sess.state != live:
		return action{}, false, true
	case t.controls > 0:
		return m.give(m.ctl.entry()), true, true
	}
	return m.give(t.cur), true, true
}

// readmit puts suspects back into the queue, which is empty, when there is no control
// record: no trial could begin, and nothing else would come.
func (m *machine) readmit() {
	if m.ctl.b != nil || m.disk.backlog || m.trials.cur != nil {
		return
	}
	m.comeBack(func(e *entry) bool { return e.trial != nil })
}

// dueSuspect returns a suspect set aside whose next round may begin.
func (m *machine) dueSuspect(now time.Time) *entry {
	if m.search.on || m.ctl.b == nil {
		return nil
	}
	for _, e := range m.aside {
		if e.trial != nil && !now.Before(e.trial.next) && !m.waitsForStream(now, e) {
			return e
		}
	}
	return nil
}

// waitsForStream reports whether e, a suspect, is tried once its stream is: others of it go
// first.
func (m *machine) waitsForStream(now time.Time, e *entry) bool {
	return m.held[streamOf(e.b)] != nil && !e.trial.own && now.Sub(e.trial.first) < holdPatience
}

// trialRefused notes that the session ended at the suspect e after its controls were
// taken.
func (m *machine) trialRefused(now time.Time, e *entry, why error) {
	t := e.trial
	t.rounds++
	atHead := e.rest == waiting
	age := now.Sub(t.first)
	switch {
	case t.rounds >= trialRounds && (t.own && age >= trialSpan || age >= holdPatience):
		m.trials = trials{}
		m.condemn(e.h, e.b, cause(why))
		m.remove(e)
		if atHead {
			m.search.progress(1)
		}
		return
	case atHead && t.rounds < trialRounds:
		m.beginRound(e)
	case atHead:
		stream, n := streamOf(e.b), m.refusedOf(e)
		aside := m.setSuspectAside(now, e)
		if !aside && n == 0 {
			m.beginRound(e)
			break
		}
		m.trials = trials{}
		if !aside { // there are enough: it waits with its stream
			e.trial, m.search = nil, search{}
			m.holdStream(now, stream, cause(why), 0)
			return
		}
		if n >= m.suspectsOf(stream) {
			m.holdStream(now, stream, cause(why), 0)
		}
	default:
		m.trials = trials{}
	}
	m.postpone(now, e)
}

// refusedOf returns how many suspects of e's stream are aside of which nothing was taken since.
func (m *machine) refusedOf(e *entry) (n int) {
	for _, o := range m.aside {
		if o.trial != nil && !o.trial.own && !e.trial.own && streamOf(o.b) == streamOf(e.b) {
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

// noteOwn notes of which suspects' streams o, an answer to b, has taken a record.
func (m *machine) noteOwn(b *batch.Batch, o *batch.Outcome) {
	note := func(e *entry) {
		for i, rec := range b.All() {
			if rec.Stream == streamOf(e.b) && !o.Open.Has(i) && !o.Refused.Has(i) {
				e.trial.own = true
				return
			}
		}
	}
	for _, e := range m.aside {
		if e.trial != nil && !e.trial.own {
			note(e)
		}
	}
	if e := m.trials.cur; e != nil && e.rest == waiting && !e.trial.own {
		note(e)
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
		m.trials = trials{}
		m.settle(now, e, o)
		return
	}
	m.unpin(e)
	e.b = e.b.Slice(nil, 0, 1)
	if o.Advice == batch.HoldStreams { // it waits for its stream, as others do
		m.trials, e.trial = trials{}, nil
		e.stream = streamOf(e.b)
		m.hold(now, e, o)
		return
	}
	m.mistrial(now)
	m.failed(now, setback{err: cause(o.Why), after: o.After, hold: o.Advice == batch.Hold}, 1)
}

// streamOf returns the stream of the first record of b.
func streamOf(b *batch.Batch) uint32 {
	for _, rec := range b.All() {
		return rec.Stream
	}
	return 0
}

// ---- set aside ------------------------------------------------------------

// A hold is a stream that the destination does not take just now.
type hold struct {
	since    time.Time
	until    time.Time
	why      error
	times    int  // in a row
	released bool // it is being tried
}

// holdPatience is how long records of a held stream that have no room apart are kept, if the
// producer has room meanwhile. Then they are refused.
const holdPatience = time.Hour

const (
	holdMin = time.Second
	holdMax = time.Minute
)

// setAside moves e out of the ring. It reports false if there is no room: what is
// set aside is bounded.
func (m *machine) setAside(e *entry) bool {
	if !m.roomAside(e) {
		return false
	}
	i := slices.Index(m.ring, e)
	m.ring = slices.Delete(m.ring, i, i+1)
	if e.h.custody == own && !e.h.small && !e.h.keeps() { // what is set aside must not take the room of the next batches
		m.compact(e)
	}
	e.rest = apart
	m.put(e, apart)
	e.h.aside++
	m.aside = append(m.aside, e)
	return true
}

// roomAside reports whether e may be set aside.
func (m *machine) roomAside(e *entry) bool {
	size := e.b.Bytes()
	for _, o := range m.aside {
		size += o.b.Bytes()
	}
	return size <= m.set.asideBytes
}

// compact gives e, a batch or a part of one, memory of its own.
func (m *machine) compact(e *entry) {
	h := &holder{custody: own, no: e.h.no, parts: 1, small: true}
	h.mem.set(e.b)
	old := e.h
	m.led.move(old, h, countable(e.b))
	e.h, e.b = h, &h.mem.b
	old.parts--
	m.letGo(old)
}

// hold has the open records of e, all others of their streams that are open, and later
// ones set aside when their turn comes.
func (m *machine) hold(now time.Time, e *entry, o batch.Outcome) {
	for _, rec := range e.b.All() {
		m.holdStream(now, rec.Stream, cause(o.Why), o.After)
	}
}

// holdStream holds a stream for a time, at least after. Of several that are held for the same
// reason the first is told.
func (m *machine) holdStream(now time.Time, stream uint32, why error, after time.Duration) {
	h := m.held[stream]
	switch {
	case h == nil:
		told := false
		for _, o := range m.held {
			told = told || !o.released && o.why.Error() == why.Error()
		}
		h = &hold{since: now, why: why}
		m.held[stream] = h
		if !told {
			m.set.post("hold", why, 1)
		}
	case !h.released:
		return
	}
	h.released = false
	h.times++
	h.until = now.Add(max(min(after, maxRetryAfter), m.set.jitter(holdMin/2, backoff.Ceil(holdMin, holdMax, h.times-1))))
}

// setHeldApart moves records of held streams out of e, the next to be sent. It reports
// whether there were any.
func (m *machine) setHeldApart(e *entry) bool {
	if !m.hasHeld(e) {
		return false
	}
	m.partHeld(e)
	return true
}

// hasHeld reports whether e has records of held streams.
func (m *machine) hasHeld(e *entry) bool {
	for _, rec := range e.b.All() {
		if m.isHeld(rec.Stream) {
			return true
		}
	}
	return false
}

// noteTaken notes what o, an answer to b that has taken some of it, says of suspects, and
// whether the destination takes records of other streams than those that are held, or were
// until lately.
func (m *machine) noteTaken(now time.Time, b *batch.Batch, o *batch.Outcome) {
	m.noteOwn(b, o)
	if len(m.held) == 0 {
		return
	}
	for i, rec := range b.All() {
		if m.held[rec.Stream] == nil && !o.Open.Has(i) && !o.Refused.Has(i) {
			m.othersTaken = now
			return
		}
	}
}

func (m *machine) isHeld(stream uint32) bool {
	h := m.held[stream]
	return h != nil && !h.released
}

// partHeld makes entries of their own of the records of e whose streams are held, in its
// place. makeRoom deals with them.
func (m *machine) partHeld(e *entry) {
	byStream := map[uint32][]int{}
	var streams []uint32
	var free []int
	for i, rec := range e.b.All() {
		if !m.isHeld(rec.Stream) {
			free = append(free, i)
			continue
		}
		if byStream[rec.Stream] == nil {
			streams = append(streams, rec.Stream)
		}
		byStream[rec.Stream] = append(byStream[rec.Stream], i)
	}
	at := slices.Index(m.ring, e)
	for i, stream := range streams {
		part := m.entryOf(e.h, e.b.Select(nil, byStream[stream]), e.since)
		part.stream, part.unknown, part.rest = stream, e.unknown, passed
		m.put(part, passed)
		m.ring = slices.Insert(m.ring, at+i, part)
	}
	if e.b = e.b.Select(nil, free); len(free) == 0 {
		m.remove(e)
	}
}

// makeRoom sets records of held streams apart, oldest first, as far as there is room. What
// has none is passed by the others until it crowds them out, or has been held for
// holdPatience. Then it is condemned, an entry at a time. makeRoom reports whether one was.
func (m *machine) makeRoom(now time.Time) bool {
	var left []uint32 // streams that have entries without room: later ones do not overtake them
	for i := 0; i < len(m.ring); {
		e := m.ring[i]
		switch h := m.held[e.stream]; {
		case e.place != passed:
			i++
		case !slices.Contains(left, e.stream) && m.setAside(e):
		case now.Sub(h.since) >= holdPatience || m.crowdsOut(now):
			m.condemn(e.h, e.b, h.why)
			m.remove(e)
			return true
		default:
			left = append(left, e.stream)
			i++
		}
	}
	return false
}

// crowdsOut reports whether held records without room keep out some that the destination
// takes: the producer is about to drop records, and others were taken lately.
func (m *machine) crowdsOut(now time.Time) bool {
	return m.needs.drops && now.Sub(m.othersTaken) < holdPatience
}

// nextUnhold returns when the first stream is tried again.
func (m *machine) nextUnhold() (t time.Time) {
	for _, h := range m.held {
		if !h.released && (t.IsZero() || h.until.Before(t)) {
			t = h.until
		}
	}
	return t
}

// unhold has streams tried again whose time has come: what was set aside of them
// goes first.
func (m *machine) unhold(now time.Time) {
	any := false
	for stream, h := range m.held {
		switch {
		case now.Before(h.until):
		case !h.released:
			h.released, any = true, true
		case now.Sub(h.until) > holdMax:
			delete(m.held, stream)
		}
	}
	if !any {
		return
	}
	m.comeBack(func(e *entry) bool { return e.trial == nil && !m.isHeld(e.stream) })
	for _, e := range m.ring {
		if e.place == passed && !m.isHeld(e.stream) {
			e.rest = waiting
			m.put(e, waiting)
		}
	}
}

// comeBack puts what was set aside, and pick names, back into the ring. It goes first.
func (m *machine) comeBack(pick func(*entry) bool) {
	at := 0
	for i := 0; i < len(m.aside); {
		e := m.aside[i]
		if !pick(e) {
			i++
			continue
		}
		m.aside = slices.Delete(m.aside, i, i+1)
		e.h.aside--
		e.rest, e.trial = waiting, nil
		m.put(e, waiting)
		m.ring = slices.Insert(m.ring, at, e)
		at++
	}
}
