package deliver

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// ---- the handler ----------------------------------------------------------

// handlerState is how the error handler is asked: while the circuit is open, or its probe
// hangs, or, with HandlerFirst, the next attempt waits for its time, and more than PendingLimit
// records wait; when the producer is about to drop records; and, when Close is late, whatever waits.
// When the time for a probe has come, that goes first: a handler that takes everything must
// not keep the destination from being asked.
type handlerState struct {
	busy    bool      // a batch is with it
	at      time.Time // not before
	due     uint64    // records to offer before the limit counts again
	fails   int       // in a row
	failing bool      // one was reported
	// relieves says that the producer was about to drop records, and the destination has
	// taken nothing since.
	relieves bool
}

// needs is what a producer needs the handler for, and what held streams make room for.
type needs struct {
	drops bool // it is about to drop records
	waits bool // a call waits as long as it takes, and has for long
}

// opened notes that the circuit has opened: the handler is asked at once, and then as often
// as settings.askEvery says, whatever the destination is doing.
func (s *handlerState) opened(now time.Time) {
	if s.fails == 0 {
		s.at = now
	}
}

// wants reports whether the handler is to be offered what waits.
func (s *handlerState) wants(m *machine, now time.Time) bool {
	if !m.set.handler || now.Before(s.at) {
		return false
	}
	if s.due == 0 {
		if n := m.pending(); n > m.set.pendingLimit || m.needs.drops || m.needs.waits {
			s.due = n
		}
	}
	return s.due > 0
}

// pending returns how many records wait, in the outlet and before it.
func (m *machine) pending() uint64 {
	return m.led.account().Pending.Total() + m.set.outside()
}

// offer gives the oldest batch that waits to the handler, if it is to be asked.
func (m *machine) offer(now time.Time) (action, bool) {
	if !m.brk.out(now) && !m.waitsToRetry(now) {
		return action{}, false
	}
	return m.ask(now)
}

// waitsToRetry reports whether the handler is asked between two attempts.
func (m *machine) waitsToRetry(now time.Time) bool {
	return m.set.handlerFirst && m.told.failing && now.Before(m.pace.notBefore)
}

// relieve is offer whatever state the circuit is in: the producer is about to drop
// records, or was, and the destination takes none since. What can be sent now is sent. A
// producer that waits as long as it takes is relieved of a destination that fails, and not of
// one that is slow.
func (m *machine) relieve(now time.Time) (action, bool) {
	m.handler.relieves = m.handler.relieves || m.needs.drops || m.needs.waits && m.told.failing
	if !m.handler.relieves {
		return action{}, false
	}
	return m.ask(now)
}

// ask gives the oldest batch that waits to the handler, if that wants it.
func (m *machine) ask(now time.Time) (action, bool) {
	if m.handler.busy || !m.handler.wants(m, now) {
		return action{}, false
	}
	_, e := m.first()
	if e == nil {
		if m.mayPull(now) {
			return action{do: doPull}, true
		}
		return action{}, false
	}
	return m.handTo(e), true
}

// handTo gives e to the handler.
func (m *machine) handTo(e *entry) action {
	m.put(e, offered)
	m.handler.busy = true
	return action{do: doHandle, e: e}
}

// handled notes what the handler did with e.
func (m *machine) handled(now time.Time, e *entry, out batch.Outcome) {
	s := &m.handler
	s.busy = false
	m.reportHandler(now, &out, e.b.Len())
	if e.place != offered { // the caller has taken it back
		return
	}
	m.put(e, e.rest)
	n := e.b.Len()
	open, refused := out.Open.Append(nil, n), out.Refused.Append(nil, n)
	e.tried = len(open) > 0 && m.stage >= late
	if len(open) == n {
		return
	}
	all := countable(e.b)
	rest := e.b.Select(nil, open)
	bad := e.b.Select(nil, refused)
	handled := all - countable(rest) - countable(bad)
	lost := min(uint64(out.Unnamed), handled)
	if handled -= lost; lost > 0 {
		m.poisoned(lost, out.Refusal)
	}
	m.led.settle(e.h, intake{}, handled, batch.Drops{batch.Poison: lost})
	m.counts.handled += handled
	if len(refused) > 0 {
		m.condemn(e.h, bad, out.Refusal)
	}
	s.due -= min(s.due, all-countable(rest))
	if e.b = rest; len(open) == 0 {
		m.remove(e)
	}
}

// reportHandler notes a call of the handler.
func (m *machine) reportHandler(now time.Time, out *batch.Outcome, n int) {
	s := &m.handler
	err := out.Err()
	if err == nil || out.Open.Empty() && out.Refused.Empty() {
		s.fails, s.at = 0, time.Time{}
		if s.failing {
			s.failing = false
			m.set.post("handler-recovered", nil, 0)
		}
		return
	}
	r := &m.set.retry
	s.at = now.Add(max(m.set.jitter(0, backoff.Ceil(r.Min, r.Max, s.fails)), min(out.After, maxRetryAfter)))
	if s.fails++; !s.failing {
		s.failing = true
		m.set.post("handler", err, uint64(n))
	}
}

// ---- the end --------------------------------------------------------------

// close begins to close: hurried says that there is a deadline, last that no further
// batch will be added.
func (m *machine) close(now time.Time, hurried, last bool) {
	if last && m.stage == running {
		m.enter(closing)
	}
	m.last = m.last || last
	if !hurried || m.hurried {
		return
	}
	m.hurried = true
	for _, t := range [...]*time.Time{&m.pace.notBefore, &m.handler.at} {
		if t.After(now) {
			*t = now
		}
	}
	m.brk.hurry(now)
}

// beLate ends the destination's share of the time of Close. isOver ends the
// handler's, too.
func (m *machine) beLate(isOver bool) {
	if m.stage < late {
		m.enter(late)
		m.giveUp()
	}
	if isOver && m.stage < over {
		m.enter(over)
		m.disk.appendAt = time.Time{} // once more
	}
}

// finished reports whether Close need not wait any longer: nothing is left. An open circuit
// is no reason to end: the destination may be back before its share of the time is over.
func (m *machine) finished() bool {
	return m.sess.under == 0 && !m.handler.busy && !m.disk.backlog && len(m.ring) == 0 && len(m.aside) == 0
}

// finish ends the session, and then the machine.
func (m *machine) finish() action {
	switch m.sess.state {
	case none:
		m.enter(ended)
		return action{do: doEnd}
	case opening, live, leaving:
		m.giveUp()
		m.session(ending)
		return action{do: doClose}
	}
	return action{do: doWait}
}

// abandon ends the machine although the session has not closed, and reports whether the
// session is yet to be told: the spool took so long that this did not happen.
func (m *machine) abandon() (tell bool) {
	m.enter(ended)
	if tell = m.sess.state != none && m.sess.state != ending; tell {
		m.session(ending)
	}
	return tell
}

// save settles what is left without the destination: the handler, then the spool,
// and in the end it goes back to a producer that keeps it, or is dropped.
func (m *machine) save(now time.Time) action {
	for _, e := range slices.Concat(m.aside, m.ring) {
		if !e.inMemory() {
			continue
		}
		switch {
		case m.stage == late && e.place == offered:
			return action{do: doWait} // for the handler
		case m.stage == late && m.set.handler && !m.handler.busy && !e.tried:
			return m.handTo(e)
		case m.set.spool && !now.Before(m.disk.appendAt):
			return action{do: doSpill, e: e}
		case m.stage == late:
			return action{do: doWait, until: m.disk.appendAt}
		}
		if e.h.keeps() {
			m.led.giveBack(e.h, countable(e.b))
			m.remove(e)
			continue
		}
		if e.unknown {
			m.led.loseUnknown(countable(e.b))
		}
		m.dropOpen(e, batch.Shutdown)
	}
	if !m.last {
		return action{do: doWait}
	}
	return m.finish()
}

// wakeAt returns when there may be something to do that no event announces, zero for
// never.
func (m *machine) wakeAt(now time.Time) (at time.Time) {
	consider := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	consider(m.pace.notBefore)
	consider(m.disk.appendAt)
	consider(m.disk.pullAt)
	consider(m.handler.at)
	consider(m.nextUnhold())
	consider(m.silentFrom())
	if len(m.ring) > 0 || len(m.aside) > 0 || m.disk.backlog {
		if state, _, _, _ := m.brk.look(); state == Open {
			_, _, until := m.brk.admit(now)
			consider(until)
		}
		if (m.told.failing || len(m.held) > 0) && m.set.retry.MaxAge >= 0 {
			consider(m.sweepAt)
		}
	}
	if m.set.handler && !m.handler.busy && m.set.askEvery > 0 {
		// What waits before the outlet grows without an event.
		if state, _, _, _ := m.brk.look(); (state != Closed || m.handler.relieves || m.waitsToRetry(now)) && len(m.ring) > 0 {
			consider(now.Add(m.set.askEvery))
		}
	}
	for _, e := range m.aside {
		if e.trial != nil {
			consider(latest(e.trial.next, m.quiet.rest))
		}
	}
	if e := m.trials.cur; e != nil {
		consider(e.trial.next)
	}
	return at
}
