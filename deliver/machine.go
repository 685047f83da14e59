package deliver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
	"github.com/forebay-log/forebay/internal/breaker"
)

// A machine makes the decisions of an outlet, and nothing else: it starts no
// goroutine, waits for nothing and does no I/O. Events change its state
// (add, opened, answer, sessionEnded, …); next says what to do now. The outlet's
// goroutine carries that out and reports the result as the next event. So a test
// can walk through every order of events without time and goroutines, in the very
// code that ships.
//
// What it holds is one queue, oldest first:
//
//	ring   [ of the spool, handed out | taken from callers ]
//	         ▲ sent up to Window of them; what has no answer when the session ends is
//	           sent again from the oldest on
type machine struct {
	set settings
	led *ledger
	brk *circuit

	ring  []*entry // open entries, oldest first: the spool's before the callers'
	aside []*entry // of held streams, and suspects; they are out of the order

	stage   stage
	hurried bool // Close has a deadline: delays are short
	last    bool // no further batch will be added
	full    bool // the producer has no room and would rather spill than wait
	needs   needs

	sess    current
	disk    disk
	pace    pace
	told    told
	size    size
	handler handlerState
	search  search
	trials  trials
	proven  int // suspects condemned in a row by answers, while nothing else was refused
	quiet   quiet
	ctl     control
	held    map[uint32]*hold // streams that are held, by stream
	// othersTaken is when a record of another stream was last taken, while some were held.
	othersTaken time.Time
	sweepAt     time.Time // when to look for records that are too old
	counts      struct{ poisoned, expired, handled, suspects uint64 }
}

// current is the session, and what it has.
type current struct {
	state    sessionState
	given    []*entry // in the order of Send; after its end what it may still read
	under    int      // of them, those whose answer counts
	regroup  bool     // an answer had open records: nothing new before all are answered
	round    uint64   // counts answers with open records
	answered bool     // it has settled something
}

// disk is what the machine knows of the spool.
type disk struct {
	out      []*holder // handed out and not acknowledged, oldest first
	forgot   uint64    // acknowledged
	backlog  bool      // it may have batches that it has not handed out
	inUse    bool      // that was told of
	appendAt time.Time // no attempt to append before, after one failed
	pullAt   time.Time // no attempt to read before
}

// pace says when the next attempt may be.
type pace struct {
	notBefore time.Time
	failures  int // setbacks in a row
	retries   uint64
	attempts  uint64
}

// well notes that the destination took something.
func (p *pace) well() { p.failures, p.notBefore = 0, time.Time{} }

// told is what was reported, each the first time in a row.
type told struct {
	failing  bool      // a failure, and no recovery yet
	since    time.Time // … when it was
	gone     bool      // … that the destination has ended
	alarmed  bool      // … that needs a change of configuration
	poisoned bool      // condemned records, and no whole batch was taken since
	expiring bool      // expired records, and no success since
	cause    error     // of the failure
}

// fails notes a failure.
func (t *told) fails(now time.Time) {
	if !t.failing {
		t.failing, t.since = true, now
	}
}

// size bounds batches after one was too large.
type size struct {
	bound  int // payload bytes; 0: any
	streak int // batches cut to it that went through
}

// tooLarge notes that of so many bytes some were too large at once.
func (s *size) tooLarge(bytes int) { s.bound, s.streak = max(1, bytes/2), 0 }

// worked notes that the destination took a batch of so many bytes.
func (s *size) worked(bytes int) {
	if s.bound == 0 || bytes < s.bound/2 {
		return
	}
	if s.streak++; s.streak >= boundStreak {
		s.streak = 0
		if s.bound += max(1, s.bound/4); s.bound >= noBound {
			s.bound = 0
		}
	}
}

// settings are what a machine knows from the beginning.
type settings struct {
	window       int
	limits       batch.Limits
	retry        RetryOptions
	spool        bool // there is one
	handler      bool // there is one
	pendingLimit uint64
	handlerFirst bool          // Options.HandlerFirst
	askEvery     time.Duration // how often the handler is asked; 0: at events only
	asideBytes   int
	oldest       int64 // Unix nanoseconds; earlier times are no measure of age
	jitter       func(lo, hi time.Duration) time.Duration
	post         func(op string, err error, n uint64)
	bury         func(b *batch.Batch, cause error) // copies b
	buried       func() bool                       // too many dead letters wait to be written
	settled      func(h *holder)                   // nothing is left of h
	release      func(h *holder)                   // … and nothing reads it
	outside      func() uint64                     // records that wait before the outlet
	moved        func(of moving, from, to uint8)   // of tests; nil else
	inline       bool                              // Traits.Inline: a session that ends says nothing of its batch
}

// stage is the closing life of an outlet.
//
//	running ──Shutdown──▶ closing ──70 % of the time──▶ late ──the time is over──▶ over ──▶ ended
//	                         └───── nothing is left ─────┴──────────────────────────────────▲
//
// Closing, the destination gets what is left. Late, the handler does, then the spool.
// Over, what neither takes is dropped.
type stage uint8

const (
	running stage = iota
	closing
	late
	over
	ended
)

// sessionState is the life of the session, as far as the outlet sees it.
//
//	none ──open──▶ opening ─────────▶ live ──Send refused──▶ leaving
//	 ▲              │    │ given up    │                       │ all is answered,
//	 │        error │    ▼             ▼ End, or given up      ▼ End, or given up
//	 │              │   lost ◀─────────┴───────────────────────┘
//	 │              ▼    │  │
//	 ├── closed ── ending◀  │
//	 └── closed ────────────┘ the Open that was given up has failed
//
// Lost, its Close has to be called; ending, it is under way, and the session may
// still read what it was given.
type sessionState uint8

const (
	none sessionState = iota
	opening
	live
	leaving
	lost
	ending
)

// place says where an entry is.
//
//	waiting ◀──▶ sent, or offered to the handler, and back if records are open or
//	   ▲         │     the session has ended
//	   ▼         │
//	 apart ◀─────┘ its stream is held, or it is a suspect: sent and offered from here, too
//
// What is held and has no room apart is passed: it keeps its place in the ring, and later
// entries are sent. When there is room it is apart, when its stream is released it waits.
//
// From each of them it is gone when all is settled, dropped or in the spool. What goes into
// the spool while the session has it is sent until it is answered.
type place uint8

const (
	waiting place = iota
	sent
	offered
	passed
	apart
	gone
)

// enter, session, put and round are the only ways from one stage, state, place or step to another.
func (m *machine) enter(to stage) {
	m.moved(aStage, uint8(m.stage), uint8(to))
	m.stage = to
}

func (m *machine) session(to sessionState) {
	m.moved(aSession, uint8(m.sess.state), uint8(to))
	m.sess.state = to
}

func (m *machine) put(e *entry, to place) {
	m.moved(anEntry, uint8(e.place), uint8(to))
	e.place = to
}

// moved tells tests what has got from one state to another.
func (m *machine) moved(of moving, from, to uint8) {
	if m.set.moved != nil && from != to {
		m.set.moved(of, from, to)
	}
}

type moving uint8

const (
	aStage moving = iota
	aSession
	anEntry
	aRound
)

// An entry is records of one holder that are open, in order.
type entry struct {
	h       *holder
	b       *batch.Batch
	place   place
	rest    place        // where it is when neither the session nor the handler has it: waiting, passed or apart
	round   uint64       // when it was given to the session
	at      time.Time    // likewise
	out     *batch.Batch // what the session was given, and answers
	pin     *holder      // whose memory the session may read
	unknown bool         // it was sent, and not answered
	before  bool         // … in an earlier session
	cut     bool         // made smaller because of the circuit
	tried   bool         // the handler did not take it while Close was late
	since   time.Time    // when it was taken
	stream  uint32       // passed, or apart: of all its records
	trial   *trial       // a suspect
	ctl     bool         // a control record: it is no record of the account
	ghost   bool         // the session has it, but its records are not ours any more

	// What out is when the session gets it for the first time. A usual batch lies in no
	// more slabs.
	own  batch.Batch
	runs [5]batch.Run
}

// action is what to do now.
type action struct {
	do    doing
	e     *entry
	seq   uint64
	until time.Time // of doWait; zero: until something happens
}

type doing uint8

const (
	doWait   doing = iota
	doAgain        // look again
	doOpen         // begin a session: opened or failedToOpen answers
	doSend         // give e to the session: answered, refused or ended answers
	doClose        // end the session: closed answers
	doSpill        // append e to the spool: spilled answers
	doPull         // take a batch out of the spool: pulled answers
	doForget       // acknowledge up to seq: forgotten answers
	doHandle       // offer e to the handler: handled answers
	doEnd          // nothing is left to do
)

func newMachine(set settings, led *ledger, brk *circuit) *machine {
	return &machine{set: set, led: led, brk: brk, sess: current{round: 1}, disk: disk{backlog: set.spool}, held: map[uint32]*hold{}}
}

// next says what to do now.
func (m *machine) next(now time.Time) action {
	if m.stage == ended {
		return action{do: doEnd}
	}
	m.expire(now)
	m.loseSilent(now)
	if a, ok := m.forget(); ok {
		return a
	}
	if a, ok := m.endSession(); ok {
		return a
	}
	if m.stage >= late {
		return m.save(now)
	}
	m.unhold(now)
	if a, ok := m.spill(now); ok {
		return a
	}
	if a, ok := m.offer(now); ok {
		return a
	}
	if m.stage == closing && m.finished() {
		return m.finish()
	}
	if a, ok := m.deliver(now); ok {
		return a
	}
	if a, ok := m.relieve(now); ok {
		return a
	}
	return action{do: doWait, until: m.wakeAt(now)}
}

// ---- the queue ------------------------------------------------------------

// add appends a batch of a caller. An empty one is settled: no session sees it.
func (m *machine) add(now time.Time, h *holder, b *batch.Batch) {
	e := m.entryOf(h, b, now)
	if m.ring = append(m.ring, e); b.Len() == 0 {
		m.led.settle(h, intake{}, 0, batch.Drops{})
		m.remove(e)
	}
}

func (m *machine) entryOf(h *holder, b *batch.Batch, since time.Time) *entry {
	h.parts++
	return &entry{h: h, b: b, since: since}
}

// first returns the oldest entry that waits, and its index; none while an older one
// is in the spool, or with the handler.
func (m *machine) first() (int, *entry) {
	for i, e := range m.ring {
		if e.place == offered {
			break
		}
		if e.place != waiting {
			continue
		}
		if m.disk.backlog && e.inMemory() {
			break
		}
		return i, e
	}
	return -1, nil
}

// oldest returns the time of the oldest open record and when the oldest batch that is not
// settled was taken, or nearly so: each list begins with the batch that came first. They
// are zero where there is none. A session may have a batch that the spool took over.
func (m *machine) oldest() (record, taken time.Time) {
	for _, list := range [...][]*entry{m.ring, m.aside, m.sess.given} {
		if len(list) == 0 || list[0].ctl || list[0].place == gone {
			continue
		}
		e := list[0]
		taken = earlier(taken, e.since)
		if e.b.Len() == 0 {
			continue
		}
		own := e.since
		if n := e.b.Runs[0].Slot(0).Time; n != 0 {
			own = time.Unix(0, n)
		}
		record = earlier(record, own)
	}
	return record, taken
}

// earlier returns the earlier of two times. A zero a is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// remove takes e from wherever it is: nothing of it is open any more.
func (m *machine) remove(e *entry) {
	if i := slices.Index(m.ring, e); i >= 0 {
		m.ring = slices.Delete(m.ring, i, i+1)
	} else if i := slices.Index(m.aside, e); i >= 0 {
		m.aside = slices.Delete(m.aside, i, i+1)
		e.h.aside--
	}
	m.put(e, gone)
	m.forgetSuspect(e)
	e.h.parts--
	m.letGo(e.h)
}

// letGo releases h when nothing refers to it any more.
func (m *machine) letGo(h *holder) {
	if h.parts > 0 || h.custody.isSpools() {
		return
	}
	if !h.settled {
		h.settled = true
		m.set.settled(h)
	}
	if h.pins == 0 {
		m.set.release(h)
	}
}

// unpin notes that the session does not read e any more.
func (m *machine) unpin(e *entry) {
	if i := slices.Index(m.sess.given, e); i >= 0 {
		m.sess.given = slices.Delete(m.sess.given, i, i+1)
	}
	if h := e.pin; h != nil {
		e.pin = nil
		h.pins--
		m.letGo(h)
	}
}

// split leaves the first k records in e, the entry ring[i], and puts the rest
// behind it.
func (m *machine) split(i, k int) {
	e := m.ring[i]
	rest := m.entryOf(e.h, e.b.Slice(nil, k, e.b.Len()), e.since)
	rest.unknown = e.unknown
	e.b = e.b.Slice(nil, 0, k)
	m.ring = slices.Insert(m.ring, i+1, rest)
}

// forget acknowledges batches of the spool of which nothing is open.
func (m *machine) forget() (action, bool) {
	n := 0
	for n < len(m.disk.out) && m.disk.out[n].parts == 0 && m.disk.out[n].pins == 0 {
		n++
	}
	if n == 0 {
		return action{}, false
	}
	return action{do: doForget, seq: m.disk.out[n-1].seq}, true
}

// forgotten notes that the spool has been told.
func (m *machine) forgotten(seq uint64) {
	m.disk.forgot = seq
	for len(m.disk.out) > 0 && m.disk.out[0].seq <= seq {
		m.disk.out = slices.Delete(m.disk.out, 0, 1)
	}
	m.noteSpoolEmpty()
}

// noteSpoolEmpty tells of the end of a time in which the spool was in use.
func (m *machine) noteSpoolEmpty() {
	if m.disk.inUse && !m.disk.backlog && len(m.disk.out) == 0 {
		m.disk.inUse = false
		m.set.post("spilled", nil, 0)
	}
}

// inMemory reports whether e is nowhere but in memory.
func (e *entry) inMemory() bool { return !e.h.custody.isSpools() }

// memory returns the oldest entry of the ring that is in memory only, and not passed.
func (m *machine) memory() *entry {
	for _, e := range m.ring {
		if e.inMemory() && e.place != passed {
			return e
		}
	}
	return nil
}

// heldInMemory returns the oldest entry of a held stream that is in memory only.
func (m *machine) heldInMemory() *entry {
	for _, e := range m.aside {
		if e.inMemory() && e.trial == nil {
			return e
		}
	}
	for _, e := range m.ring {
		if e.inMemory() && e.place == passed {
			return e
		}
	}
	return nil
}

// handedOut returns how many batches of the spool are out, apart from those of
// which only entries that were set aside are left.
func (m *machine) handedOut() (n int) {
	for _, h := range m.disk.out {
		if h.parts > h.aside {
			n++
		}
	}
	return n
}

// left reports whether something is open of the batches up to number no, or up to
// number seq of the spool, and how many of their records were set aside.
func (m *machine) left(no, seq uint64) (open bool, aside uint64) {
	for _, e := range m.aside {
		if e.inMemory() && e.h.no <= no || !e.inMemory() && e.h.first <= seq {
			aside += uint64(e.b.Len())
		}
	}
	for _, e := range m.ring {
		switch {
		case !e.inMemory() || e.h.no > no:
		case e.place == passed:
			aside += uint64(e.b.Len())
		default:
			return true, aside
		}
	}
	last := m.disk.forgot
	for _, h := range m.disk.out {
		if last = h.seq; h.first <= seq && h.parts > h.aside {
			return true, aside
		}
	}
	return m.disk.backlog && last < seq, aside
}

// ---- the session ----------------------------------------------------------

// deliver sends the oldest batch that waits, or makes that possible.
func (m *machine) deliver(now time.Time) (action, bool) {
	if m.sess.under == 0 {
		m.sess.regroup = false
	}
	if len(m.ring) == 0 {
		m.search = search{} // what was searched is gone: the handler may have taken it
		m.readmit()
	}
	if a, ok, busy := m.tryTrials(now); ok || busy {
		return a, ok
	}
	if now.Before(m.pace.notBefore) || m.sess.state != none && m.sess.state != live || m.sess.regroup || m.set.buried() {
		return action{}, false
	}
	if len(m.held) > 0 && m.makeRoom(now) {
		return action{do: doAgain}, true
	}
	i, e := m.first()
	if e == nil && (!m.mayPull(now) || m.sess.state == live && m.sess.under >= m.set.window) {
		return action{}, false
	}
	limit, ok, _ := m.brk.admit(now)
	switch {
	case !ok:
		return action{}, false
	case e == nil:
		return action{do: doPull}, true
	case m.sess.state == none:
		m.session(opening)
		return action{do: doOpen}, true
	case m.search.on && m.search.control:
		if m.sess.under > 0 {
			return action{}, false
		}
		return m.give(now, m.nextControl()), true
	case m.sess.under >= m.windowNow(limit) || m.pinsTooMuch(e):
		return action{}, false
	}
	return m.send(now, i, e, limit)
}

// pinsTooMuch reports whether the session, if it hung with e, would leave the producer too
// little memory to go on with.
func (m *machine) pinsTooMuch(e *entry) bool {
	if e.h.loan == nil || e.h.pins > 0 {
		return false
	}
	sum, most := e.h.loan.Pins()
	for i, g := range m.sess.given {
		again := slices.ContainsFunc(m.sess.given[:i], func(o *entry) bool { return o.pin == g.pin })
		if g.pin != nil && g.pin.loan != nil && !again {
			n, _ := g.pin.loan.Pins()
			sum += n
		}
	}
	return len(m.sess.given) > 0 && sum > most
}

// windowNow returns how many batches may be under way.
func (m *machine) windowNow(limit int) int {
	if limit > 0 || m.search.on {
		return 1
	}
	return m.set.window
}

// send gives e, the entry ring[i], to the session, or as much of it as may go at
// once.
func (m *machine) send(now time.Time, i int, e *entry, limit int) (action, bool) {
	if len(m.held) > 0 {
		if m.setHeldApart(e) {
			return action{do: doAgain}, true
		}
	}
	n := e.b.Len()
	k := n
	if limit > 0 {
		k = min(k, limit)
	}
	if m.search.on {
		k = min(k, m.search.size)
	}
	e.cut = limit > 0 && k < n
	if m.size.bound > 0 && e.b.Bytes() > m.size.bound {
		k = min(k, fitting(e.b, m.size.bound))
	}
	if k < n {
		m.split(i, k)
	}
	return m.give(now, e), true
}

// give makes e one of the batches that the session has.
func (m *machine) give(now time.Time, e *entry) action {
	m.put(e, sent)
	e.out, e.before, e.unknown, e.round, e.at = e.fresh(), e.unknown, true, m.sess.round, now
	if e.h != nil {
		e.pin = e.h
		e.pin.pins++
	}
	m.sess.given = append(m.sess.given, e)
	m.sess.under++
	m.pace.attempts++
	return action{do: doSend, e: e}
}

// fresh returns e's batch as one that no session was given yet: the answer to an earlier
// one must not be taken for its answer.
func (e *entry) fresh() *batch.Batch {
	to := &e.own
	if e.out != nil {
		to = new(batch.Batch)
	} else if len(e.b.Runs) <= len(e.runs) {
		to.Runs = e.runs[:0]
	}
	to.Runs = slices.Grow(to.Runs, len(e.b.Runs))
	return e.b.Slice(to, 0, e.b.Len())
}

// fitting returns how many records of b, at least one, have size bytes together.
func fitting(b *batch.Batch, size int) int {
	k := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			if size -= int(r.Slot(j).Len); size < 0 {
				return max(k, 1)
			}
			k++
		}
	}
	return max(k, 1)
}

// endSession ends a session that takes no more and whose answers are all there.
func (m *machine) endSession() (action, bool) {
	if m.sess.state == leaving && m.sess.under == 0 {
		m.session(lost)
	}
	if m.sess.state != lost {
		return action{}, false
	}
	m.session(ending)
	return action{do: doClose}, true
}

// opened notes that the session is open.
func (m *machine) opened() {
	if m.sess.state == opening {
		m.session(live)
		m.sess.answered, m.sess.regroup = false, false
	}
}

// failedToOpen notes that there is no session: the destination was not reached, or
// refused it. Closed follows.
func (m *machine) failedToOpen(now time.Time, err error) {
	if m.sess.state != opening {
		return // given up meanwhile
	}
	m.session(ending)
	m.failed(now, setbackOf(err), m.ringRecords())
}

// refused notes that the session took nothing of e and takes no more.
func (m *machine) refused(now time.Time, e *entry, err error) {
	if m.sess.state != live && m.sess.state != leaving {
		return
	}
	if e.place != sent { // it was answered before
		m.session(leaving)
		return
	}
	m.takeBack(e)
	e.unknown = e.before
	m.unpin(e)
	first := m.sess.state == live && !m.sess.answered && m.sess.under == 0
	m.session(leaving)
	if first { // it took nothing at all
		m.failed(now, setbackOf(fmt.Errorf("the session accepts no records: %w", err)), e.b.Len())
	}
}

// unsent notes that e was not given to the session: it refuses batches, or an older one
// has open records and goes first.
func (m *machine) unsent(e *entry) {
	if e.place != sent || m.sess.state != live && m.sess.state != leaving {
		return
	}
	m.takeBack(e)
	e.unknown = e.before
	m.unpin(e)
}

// takeBack makes e, which the session has, wait again.
func (m *machine) takeBack(e *entry) {
	m.sess.under--
	m.put(e, e.rest)
}

// sessionEnded notes that the session is over. What it has not answered is unsent: it
// waits again, and may be read until closed. Unless the session was of use, that is a
// failure, also after a clean end: the next one would begin at once, for ever.
func (m *machine) sessionEnded(now time.Time, err error) {
	m.opened() // it may be over before its Open has returned
	if m.sess.state != live && m.sess.state != leaving {
		return
	}
	suspect, n := m.takeAllBack()
	futile := !m.sess.answered
	if !futile && (err == nil || suspect == nil) {
		return // it was of use, and ended cleanly, or nothing was under way
	}
	if err == nil {
		if _, e := m.first(); e == nil {
			return // nothing waits for it
		}
		err = errEnded
	}
	s := setbackOf(err)
	if suspect != nil && !s.hold && m.died(now, suspect, s.err, false) {
		m.report(now, s, n)
		m.pace.notBefore = now.Add(probeDelay)
		return
	}
	m.failed(now, s, n)
}

// takeAllBack makes everything that the session has wait again. It returns the
// oldest of that and the number of records.
func (m *machine) takeAllBack() (oldest *entry, n int) {
	for _, e := range m.sess.given {
		if e.place != sent {
			continue
		}
		if oldest == nil {
			oldest = e
		}
		n += e.b.Len()
		m.takeBack(e)
	}
	m.session(lost)
	m.sess.regroup = false
	return oldest, n
}

// giveUp ends the session, or the attempt to open one, because Close is late.
func (m *machine) giveUp() {
	switch m.sess.state {
	case opening:
		m.session(lost)
	case live, leaving:
		m.takeAllBack()
	}
}

var errEnded = errors.New("the session ended before it accepted a record")

// closed notes that the session reads nothing any more.
func (m *machine) closed() {
	m.session(none)
	for len(m.sess.given) > 0 {
		m.unpin(m.sess.given[0])
	}
}

// answer notes what the session says of b. What it says of a batch that it does not
// have, or a second time, counts for nothing.
func (m *machine) answer(now time.Time, b *batch.Batch, o batch.Outcome) {
	if !o.Open.Empty() { // also if it counts for nothing: the session's goroutine holds back what it has
		m.sess.round++
		m.sess.regroup = true
	}
	i := slices.IndexFunc(m.sess.given, func(e *entry) bool { return e.out == b && e.place == sent })
	if i < 0 {
		return
	}
	e := m.sess.given[i]
	m.takeBack(e)
	m.quiet.answered(now.Sub(e.at))
	e.unknown = e.before || errors.Is(o.Why, batch.ErrUnanswered)
	switch {
	case e.ghost:
		m.unpin(e)
	case e.ctl:
		m.unpin(e)
		m.controlAnswered(now, e, o)
	case e == m.trials.cur:
		m.trialAnswered(now, e, o)
	default:
		m.settle(now, e, o)
	}
}

// settle accounts for what o says is settled or refused, and deals with the rest.
func (m *machine) settle(now time.Time, e *entry, o batch.Outcome) {
	n, size := e.b.Len(), e.b.Bytes() // before the memory goes back
	open, refused := o.Open.Len(n), o.Refused.Len(n)
	if open == n && n == 1 && (o.Advice == batch.Smaller || o.Advice == batch.Search) {
		open, refused = 0, 1 // alone, it is refused
		o.Refused, o.Open, o.Refusal = o.Open, batch.Set{}, o.Why
	}
	var bad *batch.Batch
	if refused > 0 {
		bad = e.b.Select(nil, o.Refused.Append(nil, n))
	}
	rest := e.b
	if open > 0 {
		rest = e.b.Select(nil, o.Open.Append(nil, n)) // anew, so that a late answer to e.b counts for nothing
	}
	took := intake{countable(e.b), size}
	if open > 0 {
		took.less(rest)
	}
	if bad != nil {
		took.less(bad)
	}
	if open+refused < n && o.Unnamed == 0 { // else nobody knows which were taken
		m.ctl.keep(now, e.b, &o)
		m.noteTaken(now, e.b, &o)
	}
	e.b = rest
	lost := min(uint64(o.Unnamed), took.records) // gap markers may be among them
	if lost > 0 {
		took.bytes -= int(uint64(took.bytes) * lost / took.records) // of records as long as the others
		took.records -= lost
		m.poisoned(lost, o.Refusal)
	}
	m.led.settle(e.h, took, 0, batch.Drops{batch.Poison: lost})
	if bad != nil {
		m.condemn(e.h, bad, o.Refusal)
	}
	m.unpin(e)
	m.sess.answered = m.sess.answered || open < n
	m.search.progress(n - open)
	if open == 0 {
		m.remove(e)
		m.worked(now, e.cut, refused == 0 && lost == 0, size)
		return
	}
	m.openRecords(now, e, n, o)
}

// openRecords deals with e, which has open records after an answer to n.
func (m *machine) openRecords(now time.Time, e *entry, n int, o batch.Outcome) {
	k := e.b.Len()
	why := cause(o.Why)
	switch o.Advice {
	case batch.Smaller:
		m.size.tooLarge(e.b.Bytes())
		m.set.post("too-large", why, uint64(k))
		m.brk.worked(now, true)
		return
	case batch.Search:
		m.search.begin(k)
		m.brk.worked(now, true)
		return
	case batch.Doubt:
		if m.died(now, e, why, true) {
			return
		}
	case batch.Gone:
		dropped := m.dropBatch(e)
		if m.told.cause = why; !m.told.gone {
			m.told.gone = true
			m.told.fails(now)
			m.set.post("gone", why, dropped)
		}
		return
	case batch.HoldStreams:
		m.hold(now, e, o)
		return
	}
	s := setback{err: why, after: o.After, hold: o.Advice == batch.Hold}
	if k < n && !s.hold && s.after < breaker.LongAfter { // neither well nor failed
		m.pace.failures = 0
		m.delay(now, s)
		m.report(now, s, k)
		return
	}
	m.failed(now, s, k)
}

// dropOpen accounts for all of e as dropped for a reason.
func (m *machine) dropOpen(e *entry, why batch.Reason) uint64 {
	var d batch.Drops
	d[why] = countable(e.b)
	m.led.settle(e.h, intake{}, 0, d)
	m.remove(e)
	return d[why]
}

// dropBatch drops e and the other entries of its batch that nobody has, and returns the
// number of records. On disk a batch is in one piece: a later process that found an entry of
// it would get the dropped records again, behind later ones.
func (m *machine) dropBatch(e *entry) uint64 {
	h, n := e.h, m.dropOpen(e, batch.Failed)
	for _, other := range slices.Concat(m.ring, m.aside) {
		if other.h == h && (other.place == waiting || other.place == passed || other.place == apart) {
			n += m.dropOpen(other, batch.Failed)
		}
	}
	return n
}

// condemn drops records that the destination will never take.
func (m *machine) condemn(h *holder, b *batch.Batch, why error) {
	why = cause(why)
	n := countable(b)
	m.poisoned(n, why)
	m.set.bury(b, why)
	m.led.settle(h, intake{}, 0, batch.Drops{batch.Poison: n})
}

// poisoned notes that the destination will never take n records.
func (m *machine) poisoned(n uint64, why error) {
	m.counts.poisoned += n
	if !m.told.poisoned {
		m.told.poisoned = true
		m.set.post("poison", cause(why), n)
	}
}

// ---- failure and success --------------------------------------------------

func cause(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}

func setbackOf(err error) setback {
	o := batch.FailedOutcome(err)
	return setback{err: err, after: o.After, hold: o.Advice == batch.Hold}
}

// worked notes that the destination took a whole batch, or refused records of it.
func (m *machine) worked(now time.Time, cut, whole bool, size int) {
	m.pace.well()
	m.set.retry.Budget.success()
	m.brk.worked(now, cut)
	if whole {
		m.told.poisoned = false
	}
	m.size.worked(size)
	if m.told.failing {
		m.told = told{poisoned: m.told.poisoned}
		m.set.post("recovered", nil, 0)
	}
	m.handler.due, m.handler.relieves = 0, false // the destination takes records: what waits is its own
}

const (
	// boundStreak is after how many batches that were cut to the bound it grows.
	boundStreak = 256
	// noBound is the size from which there is no bound any more.
	noBound = 64 << 20
)

// failed notes a setback: n records were not taken.
func (m *machine) failed(now time.Time, s setback, n int) {
	m.report(now, s, n)
	if !m.brk.failed(now, s) {
		m.delay(now, s)
		m.pace.failures++
		return
	}
	m.pace.notBefore = time.Time{} // the circuit says when, and takes no retry from the budget
	m.pace.retries++
	m.pace.failures++
	m.handler.opened(now)
	if m.hurried {
		m.brk.hurry(now.Add(m.set.retry.Min))
	}
}

// delay sets the time of the next attempt.
func (m *machine) delay(now time.Time, s setback) {
	r := &m.set.retry
	wait := max(m.set.jitter(0, backoff.Ceil(r.Min, r.Max, m.pace.failures)), min(s.after, maxRetryAfter), r.Budget.take(now))
	if s.hold {
		wait = max(wait, r.FatalDelay)
	}
	if m.hurried {
		wait = min(wait, r.Min)
	}
	m.pace.notBefore = now.Add(wait)
	m.pace.retries++
}

// report tells of the first failure of a row.
func (m *machine) report(now time.Time, s setback, n int) {
	m.told.cause = s.err
	if s.hold && !m.told.alarmed {
		m.told.alarmed = true
		m.set.post("hold", s.err, uint64(n))
	} else if !m.told.failing {
		m.set.post("send", s.err, uint64(n))
	}
	m.told.fails(now)
}

// ringRecords returns how many records wait in the oldest entry.
func (m *machine) ringRecords() int {
	if _, e := m.first(); e != nil {
		return e.b.Len()
	}
	return 0
}

// ---- age ------------------------------------------------------------------

// expire drops records that are too old to be sent again, while the destination
// fails, or their stream is held. It looks once a second, or ten times in MaxAge.
func (m *machine) expire(now time.Time) {
	age := m.set.retry.MaxAge
	if age < 0 || !m.told.failing && len(m.held) == 0 || now.Before(m.sweepAt) {
		return
	}
	m.sweepAt = now.Add(max(time.Millisecond, min(time.Second, age/10)))
	var n uint64
	for _, list := range [...][]*entry{m.ring, m.aside} {
		for _, e := range slices.Clone(list) {
			if m.told.failing && e.place == waiting || e.place == passed || e.place == apart && (m.told.failing || e.trial == nil) {
				n += m.expireEntry(now, e)
			}
		}
	}
	if n == 0 {
		return
	}
	m.counts.expired += n
	if !m.told.expiring {
		m.told.expiring = true
		m.set.post("expired", fmt.Errorf("not delivered within %s", age), n)
	}
}

// expireEntry drops the records of e that are too old.
func (m *machine) expireEntry(now time.Time, e *entry) uint64 {
	limit := now.Add(-m.set.retry.MaxAge)
	unknown := e.since.Before(limit)
	var keep []int
	for i, rec := range e.b.All() {
		old := rec.Time < limit.UnixNano()
		if rec.Time == 0 || rec.Time < m.set.oldest {
			old = unknown
		}
		if !old {
			keep = append(keep, i)
		}
	}
	switch len(keep) {
	case e.b.Len():
		return 0
	case 0:
		return m.dropOpen(e, batch.Expired)
	}
	before := countable(e.b)
	e.b = e.b.Select(nil, keep)
	var d batch.Drops
	d[batch.Expired] = before - countable(e.b)
	m.led.settle(e.h, intake{}, 0, d)
	return d[batch.Expired]
}

// ---- the spool ------------------------------------------------------------

// spillRetry is the delay after the spool has failed.
const spillRetry = time.Second

// spill appends the oldest batch in memory to the spool, if it is not to wait for
// the destination there: because older ones are in the spool, because the circuit is
// open, or because the producer is full. What waits for its stream goes first: on disk,
// too, the records of a stream are in order.
func (m *machine) spill(now time.Time) (action, bool) {
	if !m.set.spool || now.Before(m.disk.appendAt) {
		return action{}, false
	}
	e := m.memory()
	if !m.full && !m.belongsOnDisk(now, e) {
		return action{}, false
	}
	if held := m.heldInMemory(); held != nil {
		e = held
	}
	return action{do: doSpill, e: e}, e != nil
}

// belongsOnDisk reports whether e, the oldest entry in memory or nil, is not to wait
// there.
func (m *machine) belongsOnDisk(now time.Time, e *entry) bool {
	if e == nil || e.place != waiting {
		return false
	}
	state, _, _, _ := m.brk.look()
	return m.disk.backlog || m.behindDisk(e) || state == Open && !m.handler.wants(m, now)
}

// staysOut reports whether e, which goes into the spool, is to be handed out again at
// once: it keeps its place apart, or its answer settles it, or that of a later entry is
// still to count.
func (m *machine) staysOut(e *entry) bool {
	if m.disk.backlog {
		return false
	}
	return e.place != waiting || slices.ContainsFunc(m.ring[slices.Index(m.ring, e)+1:], func(later *entry) bool {
		return later.place == sent || later.place == offered
	})
}

// behindDisk reports whether batches of the spool, older than e, wait to be sent.
func (m *machine) behindDisk(e *entry) bool {
	for _, o := range m.ring {
		if o == e {
			return false
		}
		if o.place == waiting && !o.inMemory() {
			return true
		}
	}
	return false
}

// spilled notes that e is in the spool as batch seq. If it stays out, out is what the
// spool has handed out for it.
func (m *machine) spilled(now time.Time, e *entry, seq uint64, out *batch.Batch, err error) {
	if err != nil {
		m.disk.appendAt = now.Add(spillRetry)
		return
	}
	n := countable(e.b)
	old := e.h
	where := m.led.spillFrom(old, n)
	if !m.disk.inUse {
		m.disk.inUse = true
		why := ErrFull
		if _, _, _, cause := m.brk.look(); cause != nil {
			why = cause
		}
		m.set.post("spill", why, n)
	}
	if out == nil {
		m.disk.backlog = true
		wasSent := e.place == sent
		m.remove(e)
		if wasSent { // its answer counts for nothing any more, but is waited for
			m.put(e, sent)
			e.ghost, e.trial, e.b = true, nil, new(batch.Batch)
			m.sess.regroup = true
		}
		return
	}
	h := &holder{custody: where, first: seq, seq: seq, left: n, parts: 1}
	if e.rest == apart {
		h.aside, old.aside = 1, old.aside-1
	}
	m.disk.out = append(m.disk.out, h)
	e.h, e.b = h, out // the session goes on reading the memory of old until it answers
	old.parts--
	m.letGo(old)
}

// pulled adds a batch that the spool has handed out.
func (m *machine) pulled(now time.Time, b *batch.Batch, seq uint64) {
	before := m.disk.forgot
	if n := len(m.disk.out); n > 0 {
		before = m.disk.out[n-1].seq
	}
	h := &holder{custody: onDisk, first: min(before+1, seq), seq: seq, left: countable(b)}
	m.disk.out = append(m.disk.out, h)
	at := 0
	for at < len(m.ring) && !m.ring[at].inMemory() {
		at++
	}
	m.ring = slices.Insert(m.ring, at, m.entryOf(h, b, now))
}

// notPulled notes that the spool has nothing to hand out (err is nil), or could not
// be read.
func (m *machine) notPulled(now time.Time, err error) {
	if err != nil {
		m.disk.pullAt = now.Add(spillRetry)
		return
	}
	m.disk.backlog = false
	m.noteSpoolEmpty()
}

// mayPull reports whether to take a batch out of the spool.
func (m *machine) mayPull(now time.Time) bool {
	return m.disk.backlog && !now.Before(m.disk.pullAt) && m.handedOut() < m.set.window
}
