package deliver

import (
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/breaker"
	"github.com/forebay-log/forebay/internal/poison"
)

// A machine makes the decisions of an outlet, and nothing else: it starts no goroutine, does not
// wait and does no I/O. Events change its state (add, answer, sessionEnded, …); next returns the
// next action. The loop of the outlet executes the action and reports its result as an event. So a
// test can run the same code through every order of events, without time and goroutines. The
// actions of the spool are methods of disk, which tests run with a simulated spool.
//
// A machine has no lock: only the loop calls it. The time is a parameter of each call, and never
// decreases. Sizes are payload bytes.
//
// Each part has its own state. The machine connects them:
//
//	queue ──▶ inflight ──answer──▶ accounting ──▶ ledger
//	  │ ▲        │ failure
//	  │ │        ▼
//	  │ └──── poison, streams ──▶ parking      health ──▶ circuit
//	  ├──▶ disk
//	  └──▶ handlerPolicy
type machine struct {
	set     *settings
	led     *ledger
	brk     *circuit
	queue   *queue
	sess    *inflight
	disk    *disk
	health  *health
	handler *handlerPolicy
	streams *heldStreams
	parking *parking
	account *accounting
	poison  *poison.Detector
	flushes *flushes
	end     *endState

	full bool // the log is full, and callers wait until the spool stores records
}

// newMachine returns a machine without records. While the machine is in use, other goroutines may
// use led and the subscribers of brk.
func newMachine(set *settings, led *ledger, brk *circuit) *machine {
	m := &machine{set: set, led: led, brk: brk}
	m.end = &endState{set: set}
	m.streams = &heldStreams{set: set, held: map[uint32]*hold{}}
	m.poison = poison.New(m.streams, set.jitter, func(from, to poison.Phase) { set.note(phaseKind, uint8(from), uint8(to)) })
	m.queue = &queue{set: set, poison: m.poison}
	m.sess = &inflight{queue: m.queue, round: 1}
	m.health = &health{set: set, brk: brk, budget: newBudget(set.opt.Retry)}
	m.flushes = &flushes{m: m}
	m.disk = &disk{set: set, spill: set.opt.spill, led: led, queue: m.queue, sess: m.sess, health: m.health, flushes: m.flushes, end: m.end, backlog: set.spools()}
	m.handler = &handlerPolicy{set: set, health: m.health}
	m.account = &accounting{set: set, led: led, queue: m.queue, health: m.health}
	m.parking = &parking{set: set, led: led, queue: m.queue, streams: m.streams, account: m.account}
	return m
}

// next returns the next action. The order of the checks is the order of precedence. Acknowledging
// the spool and closing a session come first, because they free memory and need no destination.
// Appending to the spool comes before the handler, and both come before the destination, because
// they make room for writers. When Close no longer waits for the destination, the function save
// returns all actions.
func (m *machine) next(now time.Time) action {
	if m.end.stage == ended {
		return action{do: doEnd}
	}
	if m.end.shareOver(now) {
		m.beLate()
	}
	m.account.expire(now, m.streams.any())
	m.handler.endSeries(now)
	m.health.postSend(now)
	m.endSilent(now)
	if m.disk.settled() > 0 {
		return action{do: doAcknowledge}
	}
	if m.sess.end() {
		return action{do: doClose}
	}
	if m.end.stage >= late {
		return m.save(now)
	}
	m.parking.release(now)
	if a, ok := m.spill(now); ok {
		return a
	}
	if m.brk.Out(now) || m.handler.betweenAttempts(now) {
		if a, ok := m.ask(now); ok {
			return a
		}
	}
	if m.end.stage == closing && m.finished() {
		return m.finish(now)
	}
	if a, ok := m.deliver(now); ok {
		return a
	}
	if m.handler.relieve() {
		if a, ok := m.ask(now); ok {
			return a
		}
	}
	return action{do: doWait, until: m.wakeAt(now)}
}

// add adds a leased batch to the queue. logNo is the number of the batch in the log. An empty batch
// is settled at once and not sent.
func (m *machine) add(now time.Time, from lease, logNo uint64) *entry {
	e := &entry{b: from.Batch(), since: now, first: holder{lease: from, logNo: logNo, parts: 1}}
	e.h = &e.first
	if m.queue.ring = append(m.queue.ring, e); e.b.Len() == 0 {
		m.led.settle(e.h, batch.Account{}, 0)
		m.queue.remove(e)
	}
	return e
}

// oldest returns the time of the oldest open record, and the time at which the oldest unsettled
// batch was leased, or zero times if there is none. Batches in flight are included, because a batch
// that was appended to the spool may have left the queue.
func (m *machine) oldest() (record, taken time.Time) {
	record, taken = m.queue.ring.oldest()
	r, t := m.sess.given.oldest()
	return earlier(record, r), earlier(taken, t)
}

// ---- sending --------------------------------------------------------------

// deliver sends the oldest waiting batch, or first takes a necessary step: it makes room for parked
// records, reads the spool or opens a session. It opens a session only for a batch, so that an idle
// output keeps no connection.
//
// After an answer with open records it sends nothing until all batches in flight are answered (the
// field regroup), because the open records must be sent first. It also sends nothing while too many
// dead letters wait, because a refused record needs room for its dead letter.
func (m *machine) deliver(now time.Time) (action, bool) {
	// All batches are answered, so the open records may be sent again.
	if m.sess.awaited == 0 {
		m.sess.regroup = false
	}
	if m.queue.idle() && !m.disk.backlog { // the search ends if the handler has accepted its records
		for _, s := range m.poison.Empty() {
			m.parking.leave(m.queue.suspect(s))
		}
	}
	// The method Next may change the phase of the search, so it is called even if nothing can be
	// sent now.
	step := m.poison.Next(now)
	if now.Before(m.health.notBefore) || m.sess.state != none && m.sess.state != live || m.sess.regroup || m.set.lettersFull() {
		return action{}, false
	}
	if step.Suspect != nil {
		return m.probe(now, step)
	}
	// makeRoom may refuse parked records and so free the memory that writers need. In that case all
	// checks are repeated.
	if m.parking.makeRoom(now, m.handler.needs.drops) {
		return action{do: doAgain}, true
	}
	e := m.queue.first(m.disk.backlog)
	if e == nil && (!m.disk.mayPull(now) || m.sess.state == live && m.sess.awaited >= m.set.traits.Window) {
		return action{}, false
	}
	// Admit makes the circuit half-open, so it is called only if there is a batch to send or to
	// read from the spool.
	limit, ok, _ := m.brk.Admit(now)
	switch {
	case !ok:
		return action{}, false
	case e == nil:
		return action{do: doPull}, true
	case m.sess.state == none:
		m.sess.enter(opening)
		return action{do: doOpen}, true
	case m.sess.awaited >= m.windowNow(limit) || m.sess.pinsTooMuch(e):
		return action{}, false
	}
	return m.send(now, e, limit, step.Max), true
}

// windowNow returns how many batches may be in flight. While the circuit probes (limit is not 0) or
// a search is in progress, it is 1, because the answer must concern one batch only.
func (m *machine) windowNow(limit int) int {
	if limit > 0 || m.poison.Phase() != poison.Usual {
		return 1
	}
	return m.set.traits.Window
}

// send gives e, or the first records of e, to the session. The circuit limits the number of records
// to circuitLimit, and a search for records at fault limits it to searchLimit; 0 means no limit.
func (m *machine) send(now time.Time, e *entry, circuitLimit, searchLimit int) action {
	if m.parking.partHeld(e) {
		return action{do: doAgain}
	}
	n := e.b.Len()
	k := n
	for _, l := range [...]int{circuitLimit, searchLimit} {
		if l > 0 {
			k = min(k, l)
		}
	}
	// If a batch limited by the circuit succeeds, the circuit raises its limit.
	e.cut = circuitLimit > 0 && circuitLimit < n
	if k = m.health.fits(e.b, k); k < n {
		m.queue.split(e, k)
	}
	return m.sess.give(now, e, poison.Queued)
}

// probe sends the record that step suspects, or a reference record (one that was accepted before).
// Nothing else is in flight, so that the end of the session can be attributed to that record. If
// the circuit does not permit a send, the destination is failing and a probe would prove nothing,
// so the search is interrupted.
func (m *machine) probe(now time.Time, step poison.Step) (action, bool) {
	e := m.queue.suspect(step.Suspect)
	if e.place == offered || m.sess.awaited > 0 || now.Before(step.Suspect.Due) { // the handler may still accept a suspect that was offered to it
		return action{}, false
	}
	if _, ok, _ := m.brk.Admit(now); !ok {
		m.poison.Interrupt(now)
		return action{}, false
	}
	if m.sess.state == none {
		m.sess.enter(opening)
		return action{do: doOpen}, true
	}
	// The reference record is a copy of a delivered record, outside the queue and the account.
	if step.Kind == poison.Reference {
		e = &entry{b: step.Reference.Slice(nil, 0, 1)}
	}
	return m.sess.give(now, e, step.Kind), true
}

// ---- reports of the session -------------------------------------------------

// reported processes a report of the session.
func (m *machine) reported(now time.Time, r *report) {
	switch r.kind {
	case reportOpened:
		if r.err == nil {
			m.sess.opened()
		} else {
			m.failedToOpen(now, r.err) // reportClosed follows
		}
	case reportAnswer:
		m.answer(now, r.b, r.o)
	case reportRefused:
		m.refused(now, r.e, r.err)
	case reportUnsent:
		m.sess.unsent(r.e)
	case reportEnd:
		m.sessionEnded(now, r.err)
	case reportClosed:
		m.sess.closed()
	}
}

// ---- answers --------------------------------------------------------------

// answer processes the answer of the session to b. It ignores an answer to a batch that the session
// does not have, and a second answer to a batch.
func (m *machine) answer(now time.Time, b *batch.Batch, o batch.Outcome) {
	e := m.sess.answerTo(b, &o)
	if e == nil {
		return
	}
	// The entry leaves the session before its outcome is entered, so that it is like a waiting
	// entry from here on.
	m.sess.takeBack(e)
	m.poison.Answered(now.Sub(e.at))
	e.unknown = e.unknown || errors.Is(o.Why, batch.ErrUnanswered)
	switch {
	case e.kind == poison.Reference:
		m.sess.unpin(e)
		m.referenceAnswered(now, e, o)
	case e.kind == poison.Probed && !isFinal(&o):
		m.suspectOpen(now, e, o)
	default:
		m.settle(now, e, o)
	}
}

// isFinal reports whether a single record with the outcome o need not be sent again.
func isFinal(o *batch.Outcome) bool {
	switch o.Advice {
	case batch.Smaller, batch.Search, batch.Gone: // with this advice, a single record is refused or dropped
		return true
	}
	return o.Open.Empty()
}

// settle accounts for the records of e that the outcome o settles or refuses, and then handles the
// open records.
func (m *machine) settle(now time.Time, e *entry, o batch.Outcome) {
	sent := e.b
	n := sent.Len()
	if n == 1 && o.Open.Len(n) == 1 && (o.Advice == batch.Smaller || o.Advice == batch.Search) {
		o.Refused, o.Open, o.Refusal = o.Open, batch.Set{}, o.Why // the single record of e is refused
	}
	open, refused := m.account.enter(e, &o, false)
	if open+refused < n && o.Unnamed == 0 { // otherwise it is unknown which records were accepted
		m.streams.taken(now, sent, &o)
		m.poison.Taken(now, sent, &o)
	}
	m.sess.unpin(e)
	// If a session ends without having settled any record, sessionEnded counts a failure.
	m.sess.answered = m.sess.answered || open < n
	m.poison.Progress(n - open)
	if open > 0 {
		m.openRecords(now, e, n, o)
		return
	}
	size := sent.Bytes() // before the memory is freed
	m.queue.remove(e)
	m.health.worked(now, e.cut, refused == 0, size)
	m.handler.relieved()
}

// openRecords is called when an answer to n records left some of them open, which are now in e. The
// advice of the answer tells whether the destination, a stream or the batch is at fault. Only a
// fault of the destination counts as a failure for the circuit.
func (m *machine) openRecords(now time.Time, e *entry, n int, o batch.Outcome) {
	k := e.b.Len()
	why := cause(o.Why)
	switch o.Advice {
	case batch.Smaller:
		m.health.tooLarge(e.b.Bytes())
		m.set.post("too-large", why, uint64(k))
		// The destination is available: it refused only the size of the batch.
		m.brk.Worked(now, true)
		return
	case batch.Search:
		m.poison.Search(k)
		m.brk.Worked(now, true)
		return
	case batch.Doubt, batch.ServerError:
		if m.suspected(now, e, why, signs[o.Advice]) {
			return
		}
	case batch.Gone:
		m.health.reportGone(now, why, m.account.dropBatch(e))
		return
	case batch.HoldStreams:
		m.parking.hold(now, e.b, &o)
		return
	}
	s := setbackIn(&o, why)
	if k < n && !s.hold && s.after < breaker.LongAfter { // partial success: for the circuit it is neither a success nor a failure
		m.health.failures = 0
		m.health.delay(now, s)
		m.health.report(now, s, k)
		return
	}
	m.failed(now, s, k)
}

// referenceAnswered processes the answer to a reference record, a copy of a delivered record that
// the account does not contain.
func (m *machine) referenceAnswered(now time.Time, e *entry, o batch.Outcome) {
	if !o.Open.Empty() {
		if !m.suspected(now, e, cause(o.Why), poison.Doubt) {
			m.failed(now, setbackIn(&o, cause(o.Why)), 1)
		}
		return
	}
	accepted := o.Refused.Empty() && o.Unnamed == 0
	if accepted {
		m.sess.answered = true
		m.health.well()
		m.brk.Worked(now, true)
	}
	m.poison.ReferenceAnswered(now, e.b, accepted)
}

// suspectOpen processes an answer that does not accept the suspected record e. If the advice of the
// answer concerns neither the record nor its stream, the destination is failing and the probe has
// no result.
func (m *machine) suspectOpen(now time.Time, e *entry, o batch.Outcome) {
	m.sess.unpin(e)
	e.b = e.b.Slice(nil, 0, 1) // a new batch, so that a late answer to e.out is ignored
	switch o.Advice {
	case batch.Doubt, batch.ServerError:
		if m.suspected(now, e, cause(o.Why), signs[o.Advice]) {
			return
		}
	case batch.HoldStreams: // like other records of its stream, the suspect waits until the hold ends
		m.poison.Forget(e.suspect)
		e.suspect = nil
		m.parking.hold(now, e.b, &o)
		return
	}
	m.poison.Interrupt(now)
	m.failed(now, setbackIn(&o, cause(o.Why)), 1)
}

// ---- failures -------------------------------------------------------------

// signs are the signs of answers that do not show which record is at fault.
var signs = map[batch.Advice]poison.Sign{batch.Doubt: poison.Doubt, batch.ServerError: poison.ServerError}

// suspected is called after a failure that a record of e may have caused, because of the error why.
// The sign tells whether the session ended or an answer left the cause open. If suspected returns true, the failure does not count against the destination, and affects neither
// the circuit nor the retry budget. The detector (package poison) decides whether the machine parks
// e, drops it or holds its stream.
func (m *machine) suspected(now time.Time, e *entry, why error, sign poison.Sign) bool {
	// An inline session reports how far each batch was written, so no search is needed. A reference
	// record would be duplicated in the file.
	if m.set.traits.Inline && sign != poison.Doubt && e.kind == poison.Queued {
		return false
	}
	// The field Only is true if no other waiting record could show that the destination works.
	c := m.poison.Failed(now, poison.Failure{
		Kind: e.kind, Batch: e.b, Head: m.queue.first(m.disk.backlog) == e,
		Only: len(m.queue.ring) == 1 && !m.disk.backlog, Sign: sign, Waited: now.Sub(e.at),
	})
	stream := e.stream()
	if c.Suspect != nil {
		e.suspect = c.Suspect
	}
	switch {
	case c.Condemn:
		m.account.refuse(e.h, e.b, why)
		m.queue.remove(e)
	case c.Park:
		e.parked = true
		m.account.suspects += countable(e.b)
	}
	if c.Hold {
		m.streams.hold(now, stream, why, c.After)
	}
	return !c.Failing
}

// failed is called after a failed attempt that left n records open.
func (m *machine) failed(now time.Time, s setback, n int) {
	if m.health.failed(now, s, n) {
		m.handler.opened(now)
	}
}

// failedToOpen is called if no session could be opened: the destination was not reached, or refused
// it. The next report is reportClosed.
func (m *machine) failedToOpen(now time.Time, err error) {
	if m.sess.state != opening {
		return // the attempt was given up
	}
	// The next session is opened only after the report that this one is closed.
	m.sess.enter(ending)
	n := 0
	if e := m.queue.first(m.disk.backlog); e != nil {
		n = e.b.Len()
	}
	m.failed(now, setbackOf(err), n)
}

// refused is called if the session accepted nothing of e and accepts no more batches. This is how a
// session ends itself, so it is a failure only if the session has never accepted a batch.
func (m *machine) refused(now time.Time, e *entry, err error) {
	if !m.sess.accepts() {
		return
	}
	was := m.sess.state
	m.sess.enter(leaving)
	if e.place != sent { // e was answered before
		return
	}
	m.sess.unsent(e)
	if was == live && !m.sess.answered && m.sess.awaited == 0 { // the session has never accepted a batch
		m.failed(now, setbackOf(fmt.Errorf("the session accepts no records: %w", err)), e.b.Len())
	}
}

var (
	errEnded  = errors.New("the session ended before it accepted a record")
	errSilent = errors.New("no answer for a while")
)

// sessionEnded processes the end of the session. Batches without an answer wait again; the session
// may read them until it is closed. If the session settled nothing, even a clean end is a failure.
// Otherwise sessions would be opened one after another without a delay.
func (m *machine) sessionEnded(now time.Time, err error) {
	m.sess.opened() // the session may end before Open has returned
	if !m.sess.accepts() {
		return
	}
	// The oldest batch is probably the one that ended the session, because batches are processed in
	// order.
	oldest, n := m.sess.takeAllBack()
	futile := !m.sess.answered
	if !futile && (err == nil || oldest == nil) {
		return // the session settled something, and ended cleanly or with nothing in flight
	}
	if err == nil {
		if m.queue.first(m.disk.backlog) == nil && m.poison.Phase() == poison.Usual {
			return // nothing waits to be sent
		}
		err = errEnded
	}
	s := setbackOf(err)
	sign := poison.Ended
	if err == errSilent {
		sign = poison.Cut
	}
	if oldest != nil && !s.hold && m.suspected(now, oldest, s.err, sign) {
		m.health.report(now, s, n)
		m.health.notBefore = now.Add(poison.Pause)
		return
	}
	m.failed(now, s, n)
}

// silentFrom returns the time from which a missing answer counts as a failure, or zero if only the
// driver limits the time of the answer. While records at fault are searched, the limit is shorter
// than the timeout of the driver, so that other records wait less.
func (m *machine) silentFrom() (t time.Time) {
	if e := m.sess.sole(); e != nil {
		if p := m.poison.Patience(e.kind); p > 0 {
			t = e.at.Add(p)
		}
	}
	return t
}

// endSilent ends a session that has been silent for too long.
func (m *machine) endSilent(now time.Time) {
	if t := m.silentFrom(); !t.IsZero() && !now.Before(t) {
		m.sessionEnded(now, errSilent)
	}
}

// ---- the spool and the handler --------------------------------------------

// spill appends the oldest batch in memory to the spool if older batches are in the spool, the
// circuit is open, or memory is full. That batch may be in flight. The spool must get the oldest
// batch first, so that it has the order of the records.
func (m *machine) spill(now time.Time) (action, bool) {
	if !m.disk.mayAppend(now) || !m.full && !m.belongsOnDisk(now, m.queue.memory()) {
		return action{}, false
	}
	// A parked record also goes to the spool, because it may be older than the records after it.
	e := m.queue.spillable()
	return action{do: doSpill, e: e}, e != nil
}

// belongsOnDisk reports whether e must go to the spool. e is the oldest entry in memory, or nil if
// there is none. While the circuit is open, an entry that the handler wants does not go to the spool.
func (m *machine) belongsOnDisk(now time.Time, e *entry) bool {
	if e == nil || e.place != waiting {
		return false
	}
	return m.disk.backlog || m.queue.behindDisk(e) || m.brk.state() == Open && !m.handler.wants(now)
}

// ask offers the oldest waiting batch to the handler, if the handlerPolicy wants that. A batch in
// the spool is read first, so that the handler gets the records in order.
func (m *machine) ask(now time.Time) (action, bool) {
	if m.handler.busy || !m.handler.wants(now) {
		return action{}, false
	}
	if e := m.queue.first(m.disk.backlog); e != nil {
		return m.handTo(e), true
	}
	return action{do: doPull}, m.disk.mayPull(now)
}

// handTo gives e to the handler.
func (m *machine) handTo(e *entry) action {
	m.queue.put(e, offered)
	m.handler.busy = true
	return action{do: doHandle, e: e}
}

// handled processes the answer of the handler to e. If e was moved to the spool while the handler
// had it, the answer is ignored, because the records are pending in the spool. Records that the
// handler has nevertheless accepted arrive twice and are counted once.
func (m *machine) handled(now time.Time, e *entry, out batch.Outcome) {
	n := e.b.Len()
	m.handler.answered(now, &out, n)
	if e.place != offered { // e went into the spool
		return
	}
	m.queue.put(e, waiting)
	before := countable(e.b)
	open, refused := m.account.enter(e, &out, true)
	if n > open+refused {
		m.handler.accepted(now, uint64(n-open-refused))
	}
	e.tried = open > 0 && m.end.stage >= late
	if open > 0 {
		before -= countable(e.b)
	} else {
		m.queue.remove(e)
	}
	m.handler.due -= min(m.handler.due, before)
}
