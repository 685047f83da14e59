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
// While closing, the outlet delivers the remaining records to the destination. When late, it offers
// them to the handler, then to the spool. When over, it drops the records that neither accepts.
type stage uint8

const (
	running stage = iota
	closing
	late
	over
	ended
)

// endState is the progress of Close, and the division of its time. Without a spool and a handler, the
// destination has all the time.
type endState struct {
	set          *settings
	stage        stage
	last         bool      // no further batch will be added
	deadline     time.Time // zero: none
	lateAt       time.Time // the destination's share ends, if others have one
	handlerUntil time.Time // the handler's share ends, if there is a spool
}

// enter changes the stage; all transitions go through it.
func (s *endState) enter(to stage) {
	s.set.note(aStage, uint8(s.stage), uint8(to))
	s.stage = to
}

// bring brings the deadline forward, and divides the rest of the time again. It reports false if there
// is an earlier one.
func (s *endState) bring(now, deadline time.Time) bool {
	if deadline.IsZero() || !s.deadline.IsZero() && !deadline.Before(s.deadline) {
		return false
	}
	s.deadline = deadline
	left := float64(deadline.Sub(now))
	s.lateAt = now.Add(time.Duration(closetime.Destination * left))
	s.handlerUntil = now.Add(time.Duration(closetime.Handlers * left))
	return true
}

// shareOver reports whether the destination's share is over, if others have one.
func (s *endState) shareOver(now time.Time) bool {
	return (s.set.spools() || s.set.handler) && !s.deadline.IsZero() && !now.Before(s.lateAt)
}

// handlerOver reports whether no call of the handler is waited for any more, because the spool can
// replace it.
func (s *endState) handlerOver(now time.Time) bool {
	return s.set.spools() && !s.deadline.IsZero() && !now.Before(s.handlerUntil)
}

// waitLate waits until t, or the end of the handler's share. A zero t means that only an event helps.
func (s *endState) waitLate(now, t time.Time) action {
	if s.set.spools() && s.handlerUntil.After(now) {
		t = earlier(t, s.handlerUntil)
	}
	return action{do: doWait, until: t}
}

// allLeased notes that no further batch will be added. Only then can the machine end.
func (m *machine) allLeased() {
	m.end.last = true
	if m.end.stage == running {
		m.end.enter(closing)
	}
}

// endBy brings the deadline of Close forward, unless there is an earlier one. A zero deadline is none.
func (m *machine) endBy(now, deadline time.Time) {
	if !m.end.bring(now, deadline) || m.health.hurried {
		return
	}
	m.health.hurry(now)
	if m.handler.at.After(now) {
		m.handler.at = now
	}
}

// beLate ends the destination's share of the time of Close.
func (m *machine) beLate() {
	if m.end.stage < late {
		m.end.enter(late)
		m.sess.giveUp()
	}
}

// beOver ends the handler's share, too.
func (m *machine) beOver() {
	if m.beLate(); m.end.stage < over {
		m.end.enter(over)
		m.disk.appendAt = time.Time{} // try again
	}
}

// finished reports whether Close need not wait any longer: nothing is left. An open circuit is no reason
// to end: the destination may be back before its share of the time is over. Records in the spool are
// waited for, too, as long as the destination has time.
func (m *machine) finished() bool {
	return m.sess.under == 0 && !m.handler.busy && !m.disk.backlog && len(m.queue.ring) == 0
}

// finish ends the session, and then the machine. It does not wait for a session that was given up: its
// Close may hang, and abandon ends the machine without it.
func (m *machine) finish() action {
	switch m.sess.state {
	case none:
		m.end.enter(ended)
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
	m.end.enter(ended)
	if end = m.sess.state != none && m.sess.state != ending; end {
		m.sess.enter(ending)
	}
	return end
}

// save settles the remaining records without the destination: the handler, then the spool, and in the
// end they stay in a log that keeps them, or are dropped. It goes from the oldest to the newest, so that
// the spool gets them in order. Records that a session had without an answer count as unknown if they
// are dropped.
func (m *machine) save(now time.Time) action {
	for i := 0; i < len(m.queue.ring); {
		e := m.queue.ring[i]
		if !e.inMemory() {
			i++
			continue
		}
		switch {
		case m.end.stage == late && e.place == offered:
			return m.end.waitLate(now, time.Time{}) // for the handler
		case m.end.stage == late && m.set.handler && !m.handler.busy && !e.tried:
			return m.handTo(e)
		case m.disk.mayAppend(now):
			return action{do: doSpill, e: e}
		case m.end.stage == late:
			return m.end.waitLate(now, m.disk.appendAt)
		}
		if e.h.lease.Keeps() {
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
	return m.finish()
}

// wakeAt returns when there may be something to do that no event announces, zero for never. It must
// consider each time that next compares with now: the loop sleeps until then, and a time that is
// missing here delays records until the next event.
func (m *machine) wakeAt(now time.Time) (at time.Time) {
	consider := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	consider(m.end.lateAt)
	consider(m.end.handlerUntil)
	consider(m.health.notBefore)
	consider(m.disk.appendAt)
	consider(m.disk.pullAt)
	consider(m.handler.at)
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
