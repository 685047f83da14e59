package deliver

import (
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
)

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

// enter is the only way from one stage to another.
func (m *machine) enter(to stage) {
	m.set.note(aStage, uint8(m.stage), uint8(to))
	m.stage = to
}

// close begins to close. A zero deadline means none, the earliest one counts. last is set if no
// further batch will be added.
func (m *machine) close(now time.Time, deadline time.Time, last bool) {
	if last && m.stage == running {
		m.enter(closing)
	}
	m.last = m.last || last
	if deadline.IsZero() || !m.deadline.IsZero() && !deadline.Before(m.deadline) {
		return
	}
	m.deadline = deadline
	left := float64(deadline.Sub(now))
	m.lateAt = now.Add(time.Duration(closetime.Destination * left))
	m.handlerUntil = now.Add(time.Duration(closetime.Handlers * left))
	if m.health.hurried {
		return
	}
	m.health.hurry(now)
	if m.handler.at.After(now) {
		m.handler.at = now
	}
}

// handlerOver reports whether no call of the handler is waited for any more, because the spool can
// stand in for it.
func (m *machine) handlerOver(now time.Time) bool {
	return m.set.spool && !m.deadline.IsZero() && !now.Before(m.handlerUntil)
}

// endShare ends the destination's share of the time of Close if others have one.
func (m *machine) endShare(now time.Time) {
	if (m.set.spool || m.set.handler) && !m.deadline.IsZero() && !now.Before(m.lateAt) {
		m.beLate(false)
	}
}

// beLate ends the destination's share of the time of Close, and the handler's if isOver is set.
func (m *machine) beLate(isOver bool) {
	if m.stage < late {
		m.enter(late)
		m.sess.giveUp()
	}
	if isOver && m.stage < over {
		m.enter(over)
		m.disk.appendAt = time.Time{} // once more
	}
}

// finished reports whether Close need not wait any longer: nothing is left. An open circuit
// is no reason to end: the destination may be back before its share of the time is over.
func (m *machine) finished() bool {
	return m.sess.under == 0 && !m.handler.busy && !m.disk.backlog && len(m.queue.ring) == 0
}

// finish ends the session, and then the machine.
func (m *machine) finish() action {
	switch m.sess.state {
	case none:
		m.enter(ended)
		return action{do: doEnd}
	case opening, live, leaving:
		m.sess.giveUp()
		m.sess.enter(ending)
		return action{do: doClose}
	}
	return action{do: doWait}
}

// abandon ends the machine although the session has not closed. It reports whether the session is
// yet to be ended: the spool took so long that this did not happen.
func (m *machine) abandon() (end bool) {
	m.enter(ended)
	if end = m.sess.state != none && m.sess.state != ending; end {
		m.sess.enter(ending)
	}
	return end
}

// save settles what is left without the destination: the handler, then the spool,
// and in the end it goes back to a producer that keeps it, or is dropped.
func (m *machine) save(now time.Time) action {
	for i := 0; i < len(m.queue.ring); {
		e := m.queue.ring[i]
		if !e.inMemory() {
			i++
			continue
		}
		switch {
		case m.stage == late && e.place == offered:
			return m.waitLate(now, time.Time{}) // for the handler
		case m.stage == late && m.set.handler && !m.handler.busy && !e.tried:
			return m.handTo(e)
		case m.disk.mayAppend(now):
			return action{do: doSpill, e: e}
		case m.stage == late:
			return m.waitLate(now, m.disk.appendAt)
		}
		if e.h.keeps() { // the producer has it
			m.queue.remove(e)
			continue
		}
		if e.unknown {
			m.led.loseUnknown(countable(e.b))
		}
		m.account.drop(e, batch.Shutdown)
	}
	if !m.last {
		return action{do: doWait}
	}
	return m.finish()
}

// waitLate waits until t, or the end of the handler's share.
func (m *machine) waitLate(now, t time.Time) action {
	if m.set.spool && m.handlerUntil.After(now) {
		t = earlier(t, m.handlerUntil)
	}
	return action{do: doWait, until: t}
}

// wakeAt returns when there may be something to do that no event announces, zero for
// never.
func (m *machine) wakeAt(now time.Time) (at time.Time) {
	consider := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	consider(m.lateAt)
	consider(m.handlerUntil)
	consider(m.health.notBefore)
	consider(m.disk.appendAt)
	consider(m.disk.pullAt)
	consider(m.handler.at)
	consider(m.silentFrom())
	m.poison.Wake(consider)
	m.streams.wakeAt(consider)
	if len(m.queue.ring) > 0 || m.disk.backlog {
		if state, _, _, _ := m.brk.look(); state == Open {
			_, _, until := m.brk.admit(now)
			consider(until)
		}
		if (m.health.failing() || m.streams.any()) && m.set.retry.MaxAge >= 0 {
			consider(m.account.sweepAt)
		}
	}
	if len(m.queue.ring) > 0 {
		consider(m.handler.wakeAt(now))
	}
	return at
}
