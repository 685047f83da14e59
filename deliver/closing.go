package deliver

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// allLeased is called when the log has handed out its last batch. The machine does not end before
// this call.
func (m *machine) allLeased() {
	m.end.last = true
	if m.end.stage == running {
		m.end.enter(closing)
	}
}

// endBy moves the deadline of Close to an earlier time, and shortens all delays between attempts.
// It ignores a deadline that is zero or not earlier.
func (m *machine) endBy(now, deadline time.Time) {
	if !m.end.advance(now, deadline) || m.health.hurried {
		return
	}
	m.health.hurry(now)
	if m.handler.at.After(now) {
		m.handler.at = now
	}
}

// beLate makes Close stop waiting for the destination, and gives up the session.
func (m *machine) beLate() {
	if m.end.stage < late {
		m.end.enter(late)
		m.sess.giveUp()
	}
}

// beOver makes Close stop waiting for the destination and for the handler, and from the given time on
// also for the end of the session.
func (m *machine) beOver(sessionUntil time.Time) {
	if m.beLate(); m.end.stage < over {
		m.end.enter(over)
		m.disk.appendAt = time.Time{} // failed calls of the spool are repeated without a delay
	}
	m.end.sessionUntil = sessionUntil
}

// finished reports whether everything is delivered, including the records in the spool. An open
// circuit does not end Close early, because the destination may recover before Close stops waiting
// for it.
func (m *machine) finished() bool {
	return m.sess.awaited == 0 && !m.handler.busy && !m.disk.backlog && len(m.queue.ring) == 0
}

// finish ends the session. When the session has closed, or Close stops waiting for that, finish ends
// the machine. A session that has not closed may still read its batches, so their memory stays
// unchanged until it has closed.
func (m *machine) finish(now time.Time) action {
	switch m.sess.state {
	case opening, live, leaving:
		m.sess.giveUp()
		return action{do: doAgain}
	case ending:
		if until := m.end.sessionUntil; until.IsZero() || now.Before(until) {
			return action{do: doWait, until: until}
		}
	}
	m.end.enter(ended)
	return action{do: doEnd}
}

// save settles the remaining records without the destination, oldest first, so that the spool gets
// them in order. Each entry is offered to the handler and then appended to the spool. If neither
// accepts it, both are tried again until Close is over. Then its records stay in crash-safe memory
// (holder.keeps) or are dropped. A dropped record counts as unknown if it was given to a session
// that did not answer.
func (m *machine) save(now time.Time) action {
	for i := 0; i < len(m.queue.ring); {
		e := m.queue.ring[i]
		if !e.inMemory() {
			i++
			continue
		}
		switch {
		case m.end.stage == late && e.place == offered:
			return action{do: doWait, until: m.wakeAt(now)} // wait until the handler answers
		case m.end.stage == late && m.set.handler && !m.handler.busy && !e.tried:
			return m.handTo(e)
		case m.disk.mayAppend(now):
			return action{do: doSpill, e: e}
		case m.end.stage == late && m.handler.repeats(now) && !m.end.handlerOver(now):
			return m.handTo(e)
		case m.end.stage == late:
			return action{do: doWait, until: m.wakeAt(now)}
		}
		if e.h.keeps() {
			m.queue.remove(e)
			continue
		}
		if e.unknown {
			m.led.loseUnknown(countable(e.b))
		}
		m.account.drop(e, batch.Shutdown)
	}
	if !m.end.last {
		return action{do: doWait}
	}
	return m.finish(now)
}

// wakeAt returns the next time at which the machine may have something to do without an event, or
// zero for never. The loop sleeps until that time, so wakeAt must consider each time that
// machine.next compares with now: a missing time would delay records until the next event.
func (m *machine) wakeAt(now time.Time) (at time.Time) {
	consider := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	consider(m.end.lateAt)
	consider(m.end.handlerUntil)
	consider(m.health.notBefore)
	consider(m.health.sendAt)
	consider(m.disk.appendAt)
	consider(m.disk.pullAt)
	consider(m.handler.at)
	consider(m.handler.quietAt())
	consider(m.silentFrom())
	m.poison.Wake(consider)
	m.streams.wakeAt(consider)
	if len(m.queue.ring) > 0 || m.disk.backlog {
		if m.brk.state() == Open {
			consider(m.brk.Until())
		}
		if (m.health.failing() || m.streams.any()) && m.set.opt.Retry.MaxAge >= 0 {
			consider(m.account.sweepAt)
		}
	}
	if len(m.queue.ring) > 0 {
		consider(m.handler.wakeAt(now))
	}
	return at
}
