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
	lateAt       time.Time // time at which Close stops waiting for the destination; zero: there is no handler and no spool
	handlerUntil time.Time // time at which Close stops waiting for the handler; zero: there is no spool
	sessionUntil time.Time // time at which Close stops waiting for the end of the session; zero until the stage over
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
	if s.set.spools() || s.set.handler {
		s.lateAt = now.Add(time.Duration(closetime.Destination * left))
	}
	if s.set.spools() {
		s.handlerUntil = now.Add(time.Duration(closetime.Handlers * left))
	}
	return true
}

// shareOver reports whether Close must stop waiting for the destination. Without a handler and a
// spool the destination has all the time.
func (s *endState) shareOver(now time.Time) bool {
	return !s.lateAt.IsZero() && !now.Before(s.lateAt)
}

// handlerOver reports whether Close must stop waiting for the handler. The loop then cancels a
// running call of the handler, because the spool can store its records. Without a spool, the
// handler has the rest of the time.
func (s *endState) handlerOver(now time.Time) bool {
	return !s.handlerUntil.IsZero() && !now.Before(s.handlerUntil)
}
