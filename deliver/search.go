package deliver

import (
	"errors"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// A record may be at fault that the destination never says so of: it ends the
// session instead, each time. The oldest batch without an answer is then suspected.
//
//	three sessions end at the same batch, or one that had no answer for long
//	     │
//	     ▼
//	search: the batch goes in pieces, half as large after each end of a session,
//	        twice as large after each that is taken ──▶ all taken: no suspect
//	     │ a single record ends a session
//	     ▼
//	trial:  rounds of control records, then the suspect (trials)
//	     ├─ the suspect is taken ─▶ delivered: it was innocent
//	     ├─ 8 rounds in a row controls taken and the suspect not, one if that takes long
//	     │    ─▶ it is set aside, the others go on, and its trial does from time to time
//	     └─ … over at least 30 s ─▶ dropped{poison}, dead letter
//
// An answer that leaves in doubt whether a record is at fault ([batch.Doubt]) begins the search
// at once. Nothing waits between two pieces or rounds, and 8 rounds suffice, because there may
// be many such records. Each one that is condemned saves the next one a round, down to 2, until
// a control is refused or a suspect taken.
//
// A destination may fall silent in place of ending the session; the driver ends it then, which
// takes long, and all others wait. So a piece is waited for less long than the driver would, and
// so is a suspect, but in the last of its rounds (quiet). Between two of these the others have ten
// times as long.
//
// That the destination takes records of other streams shows little: what is behind the
// suspect's own may be full, or down, or refuse most. So only rounds count in which a record
// of its stream was taken. Where none is known, a suspect is condemned after an hour if it is the
// only one of its stream, and else never. A second one has the stream held: the others go on, and
// it is tried from time to time.
//
// A control record is a copy of one that was delivered before. Random resets of any
// rate pass for this pattern once in a million trials, and a server that takes
// every n-th message never does, because the number of control records is random.
const (
	searchAfter   = 3
	trialRounds   = 8
	leastRounds   = 2 // of a suspect that is refused in answers, after others were condemned
	trialSpan     = 30 * time.Second
	trialGapMin   = 100 * time.Millisecond // between two rounds of a suspect set aside; twice as long after each
	trialGapMax   = 10 * time.Second
	trialControls = 3
	trialsMost    = 64 // suspects at a time; a stream has half of what the others leave

	// longRound is from when the others wait too long for an answer to a suspect.
	longRound = time.Second

	// probeDelay is how long the next attempt waits after a piece, or a suspect, has
	// ended a session of a destination that is well.
	probeDelay = 50 * time.Millisecond

	// controlBytes is the largest record to be kept as a control record, and
	// controlEvery how old the one that is kept may become.
	controlBytes = 4 << 10
	controlEvery = 10 * time.Second
	controlsMost = 4 // each of another stream
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

// quiet is what is known of a destination that falls silent.
type quiet struct {
	limit time.Duration // how long the driver waits for an answer before it ends a session; 0: it never did
	usual time.Duration // how long answers take at most of late, or nearly so
	rest  time.Time     // no round of a suspect set aside begins before
}

const (
	shortPatience = 16 // of the driver's patience this part is what a piece or a suspect gets
	wholeRounds   = 3  // the last rounds of a trial, in which a suspect gets all of it
	restFactor    = 10 // times as long as it was waited for a suspect, others go on
)

// answered notes that there was an answer after d.
func (q *quiet) answered(d time.Duration) { q.usual = max(d, q.usual-q.usual/16) }

// ended notes that a driver ended a session in which the oldest batch had no answer for d. It
// reports whether that is long.
func (q *quiet) ended(d time.Duration) bool {
	if d >= longRound {
		q.limit = d
	}
	return d >= longRound
}

// patience returns how long an answer to a piece is waited for, 0 if the driver knows better.
func (q *quiet) patience() time.Duration {
	if p := max(q.limit/shortPatience, 10*q.usual); p < q.limit {
		return p
	}
	return 0
}

// errSilent is the end of a session that had no answer within quiet.patience.
var errSilent = errors.New("no answer for a while")

// awaited returns the piece of a search, the suspect, or the record that stands for its stream,
// that is under way and for whose answer less long is waited than the driver would; nil if there
// is none. A record that stands for the server gets all of the driver's time.
func (m *machine) awaited() *entry {
	if m.ctl.none() || m.sess.under != 1 || m.sess.state != live && m.sess.state != leaving {
		return nil
	}
	for _, e := range m.sess.given {
		switch {
		case e.place != sent || e.ghost || e.ctl && !m.blamesStream():
		case e.ctl:
			return e
		case e == m.trials.cur && e.trial.rounds < trialRounds-wholeRounds, e != m.trials.cur && m.search.on:
			return e
		}
	}
	return nil
}

// silentFrom returns from when the session counts as silent, zero if that is for the driver to say.
func (m *machine) silentFrom() (t time.Time) {
	if e, p := m.awaited(), m.quiet.patience(); e != nil && p > 0 {
		return e.at.Add(p)
	}
	return t
}

// loseSilent ends a session that has been silent for too long.
func (m *machine) loseSilent(now time.Time) {
	if t := m.silentFrom(); !t.IsZero() && !now.Before(t) {
		m.sessionEnded(now, errSilent)
	}
}

// died deals with the end of a session whose oldest batch without an answer was e, or with
// an answer that leaves in doubt whether e is at fault. It reports true if that says nothing
// against the destination.
func (m *machine) died(now time.Time, e *entry, why error, answered bool) bool {
	s := &m.search
	took := now.Sub(e.at)
	long := !answered && !errors.Is(why, errSilent) && !e.ghost && m.quiet.ended(took)
	switch {
	case e.ghost:
		return false
	case e.ctl:
		return m.controlFailed(now, why, took)
	case e == m.trials.cur:
		e.trial.answered = answered
		m.trialRefused(now, e, why, took)
		return true
	case answered && !m.ctl.none() && (!s.on || !m.isHead(e)):
		if !s.on {
			s.begin(e.b.Len())
			s.control = true
		}
		return true
	case m.set.inline: // it says of each batch how far it came; a control record would be a line of its own
		return false
	case !s.on:
		if t := e.b.First(); t != s.suspect || s.deaths == 0 {
			s.suspect, s.deaths = t, 0
		}
		s.deaths++
		if m.hasTried(e) && !m.ctl.none() { // its stream is under suspicion already
			s.begin(e.b.Len())
			s.control = true
			return true
		}
		if s.deaths >= searchAfter || long {
			s.begin(e.b.Len())
		}
		return false
	case !m.isHead(e): // it was under way when the search began
		return false
	case e.b.Len() > 1:
		s.begin(e.b.Len())
		s.control = !m.ctl.none()
		return s.control
	case !m.ctl.none():
		s.control = false
		e.trial = &trial{first: now}
		m.beginRound(e)
		if !answered {
			m.postpone(now, e)
		}
		return true
	}
	all, _ := m.suspects(streamOf(e.b))
	if len(m.ring) < 2 && !m.disk.backlog && all == 0 {
		return false // nothing would come next
	}
	// Nothing was ever delivered, so nothing can show that the destination is well but
	// what comes next: the suspect gives way, and further ones sooner. If the destination
	// is ill, they will arrive out of order.
	if t := e.b.First(); t != s.alone || s.lonely == 0 {
		s.alone, s.lonely = t, 0
	}
	if s.lonely++; s.lonely >= trialRounds || s.lonely >= searchAfter && all > 0 {
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
	since    time.Time // or when something of it was taken last
	until    time.Time
	why      error
	times    int  // in a row in which nothing was taken
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
	wait := min(after, maxRetryAfter)
	if wait <= 0 || h.times > 1 { // it was in vain, whatever the destination asked for
		wait = max(wait, holdFor(m.set.jitter, h.times))
	}
	h.until = now.Add(wait)
}

// holdFor returns how long a stream is held for the times-th time in a row.
func holdFor(jitter func(lo, hi time.Duration) time.Duration, times int) time.Duration {
	most := backoff.Ceil(holdMin, holdMax, times-1)
	return jitter(most/2, most)
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

// noteTaken notes what o, an answer to b that has taken some of it, says of suspects, of the
// streams that are being tried, and whether the destination takes records of other streams than
// those that are held, or were until lately.
func (m *machine) noteTaken(now time.Time, b *batch.Batch, o *batch.Outcome) {
	m.noteOwn(now, b, o)
	if len(m.held) == 0 {
		return
	}
	for i, rec := range b.All() {
		if o.Open.Has(i) || o.Refused.Has(i) {
			continue
		}
		if h := m.held[rec.Stream]; h != nil {
			h.since, h.times = now, 0
		} else {
			m.othersTaken = now
		}
	}
}

// hasTried reports whether e has records of a stream that was held, and is tried again.
func (m *machine) hasTried(e *entry) bool {
	if len(m.held) == 0 {
		return false
	}
	for _, rec := range e.b.All() {
		if h := m.held[rec.Stream]; h != nil && h.released {
			return true
		}
	}
	return false
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

// nextUnhold returns when the first stream is tried again, or counts as taken: suspects of it
// wait for that.
func (m *machine) nextUnhold() (t time.Time) {
	for _, h := range m.held {
		at := h.until
		if h.released {
			at = at.Add(holdMax)
		}
		t = earlier(t, at)
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
		case now.Sub(h.until) >= holdMax:
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
