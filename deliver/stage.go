package deliver

import (
	"time"

	"github.com/forebay-log/forebay/internal/closetime"
)

// stage is the stage of an outlet between its start and the end of Close.
//
//	running ──Shutdown──▶ closing ──70 % of the time──▶ late ──the time is over──▶ over ──▶ ended
//	                         └───── nothing is left ─────┴──────────────────────────────────▲
//
// In the stage closing, the outlet delivers the remaining records to the destination. In the stage
// late, it offers them to the handler, then to the spool. In the stage over, it drops the records
// that neither the handler nor the spool accepts.
type stage uint8

const (
	running stage = iota
	closing
	late
	over
	ended
)

// endState is the progress of Close and the division of its time. Without a spool and a handler,
// the destination gets all the time.
type endState struct {
	set          *settings
	stage        stage
	last         bool      // no further batch will be added to the machine
	deadline     time.Time // zero: no deadline
	lateAt       time.Time // time at which Close stops waiting for the destination, if there is a handler or a spool
	handlerUntil time.Time // time at which Close stops waiting for the handler, if there is a spool
}

// enter changes the stage. Every transition is made by this method.
func (s *endState) enter(to stage) {
	s.set.note(stageKind, uint8(s.stage), uint8(to))
	s.stage = to
}

// advance moves the deadline to an earlier time and divides the remaining time again. It returns
// false and changes nothing if the new deadline is zero or not earlier.
func (s *endState) advance(now, deadline time.Time) bool {
	if deadline.IsZero() || !s.deadline.IsZero() && !deadline.Before(s.deadline) {
		return false
	}
	s.deadline = deadline
	left := float64(deadline.Sub(now))
	s.lateAt = now.Add(time.Duration(closetime.Destination * left))
	s.handlerUntil = now.Add(time.Duration(closetime.Handlers * left))
	return true
}

// shareOver reports whether Close must stop waiting for the destination. Without a handler and a
// spool the destination has all the time.
func (s *endState) shareOver(now time.Time) bool {
	return (s.set.spools() || s.set.handler) && !s.deadline.IsZero() && !now.Before(s.lateAt)
}

// handlerOver reports whether Close must stop waiting for the handler. The loop then cancels a
// running call of the handler, because the spool can store its records. Without a spool, the
// handler has the rest of the time.
func (s *endState) handlerOver(now time.Time) bool {
	return s.set.spools() && !s.deadline.IsZero() && !now.Before(s.handlerUntil)
}

// waitLate returns an action that waits until t, but not longer than Close waits for the handler.
// If t is zero, only the latter limits the wait.
func (s *endState) waitLate(now, t time.Time) action {
	if s.set.spools() && s.handlerUntil.After(now) {
		t = earlier(t, s.handlerUntil)
	}
	return action{do: doWait, until: t}
}
