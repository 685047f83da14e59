package deliver

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/poison"
)

// sessionState is the state of the session as the outlet sees it.
//
//	none ──open──▶ opening ─────────▶ live ──Send refused──▶ leaving
//	 ▲              │    │ given up    │                       │ all is answered,
//	 │        error │    ▼             ▼ End, or given up      ▼ End, or given up
//	 │              │   lost ◀─────────┴───────────────────────┘
//	 │              ▼    │  │
//	 ├── closed ── ending◀  │
//	 └── closed ────────────┘ the Open that was given up has failed
//
// A lost session must be closed. During its Close it is ending, and may still read its batches.
type sessionState uint8

const (
	none sessionState = iota
	opening
	live
	leaving
	lost
	ending
)

// inflight is the session with its batches, as the machine sees them. The goroutine of the session
// runs concurrently. It may have answered, ended or refused batches before the machine has read its
// reports. Each batch has the number of its round (see sessionFilter), which shows whether the
// session still accepts it.
type inflight struct {
	queue *queue

	state    sessionState
	given    list   // entries in the order of Send; after the end of the session, only those that it may still read
	awaited  int    // number of batches in given whose answer counts
	regroup  bool   // an answer had open records: nothing is sent before all batches are answered
	round    uint64 // number of answers with open records
	answered bool   // the session has settled records
	attempts uint64 // number of batches given to sessions
}

// enter changes the state. Every transition is made by this method.
func (s *inflight) enter(to sessionState) {
	s.queue.set.note(sessionKind, uint8(s.state), uint8(to))
	s.state = to
}

// accepts reports whether answers and refusals of the session count.
func (s *inflight) accepts() bool { return s.state == live || s.state == leaving }

// opened is called when the session is open. If the attempt was given up in the meantime, the
// session is closed without a batch.
func (s *inflight) opened() {
	if s.state == opening {
		s.enter(live)
		s.answered, s.regroup = false, false
	}
}

// closed is called when the session no longer reads any batch. All memory that it pinned may be
// freed.
func (s *inflight) closed() {
	s.enter(none)
	for len(s.given) > 0 {
		s.unpin(s.given[0])
	}
}

// end ends a session if it accepts no more batches and has answered all of them. It reports whether
// the session must be closed now.
func (s *inflight) end() bool {
	if s.state == leaving && s.awaited == 0 {
		s.enter(lost)
	}
	if s.state != lost {
		return false
	}
	s.enter(ending)
	return true
}

// giveUp ends the session, or the attempt to open one, although it has not failed, for example
// because Close no longer waits for the destination. The batches of the session wait again.
func (s *inflight) giveUp() {
	switch s.state {
	case opening:
		s.enter(lost)
	case live, leaving:
		s.takeAllBack()
	}
}

// give passes e to the session: it returns the action that sends e. The memory of e stays pinned
// until the session has answered or closed, even if the records are settled earlier.
func (s *inflight) give(now time.Time, e *entry, k poison.Kind) action {
	s.queue.put(e, sent)
	e.kind, e.out, e.round, e.at = k, e.fresh(), s.round, now
	if e.h != nil {
		e.pin = e.h
		e.pin.pins++
	}
	s.given = append(s.given, e)
	s.awaited++
	s.attempts++
	return action{do: doSend, e: e}
}

// answerTo returns the entry that was sent as b and has no answer yet, or nil. An answer with open
// records begins a new round, even if there is no such entry. The sessionFilter, which runs on
// another goroutine, counts rounds in the same way.
func (s *inflight) answerTo(b *batch.Batch, o *batch.Outcome) *entry {
	if !o.Open.Empty() {
		s.round++
		s.regroup = true
	}
	return s.given.find(func(e *entry) bool { return e.out == b && e.place == sent })
}

// takeBack removes e from the session and makes it wait again at its position in the queue. The
// session may read the memory of e until unpin is called.
func (s *inflight) takeBack(e *entry) {
	s.awaited--
	s.queue.put(e, waiting)
}

// unsent makes the entry e wait again after it was passed to the session but not sent. Either the
// session accepts no more batches, or an older batch has open records, which must be sent first.
func (s *inflight) unsent(e *entry) {
	if e.place != sent || !s.accepts() {
		return
	}
	s.takeBack(e)
	s.unpin(e)
}

// takeAllBack makes all batches of the session wait again, because the session has ended or was
// given up. It returns the oldest entry, which may have caused the end, and the number of records.
func (s *inflight) takeAllBack() (oldest *entry, n int) {
	for _, e := range s.given {
		if e.place != sent {
			continue
		}
		if oldest == nil {
			oldest = e
		}
		n += e.b.Len()
		e.unknown = true
		s.takeBack(e)
	}
	s.enter(lost)
	s.regroup = false
	return oldest, n
}

// unpin is called when the session no longer reads e.
func (s *inflight) unpin(e *entry) {
	if i := slices.Index(s.given, e); i >= 0 {
		s.given = slices.Delete(s.given, i, i+1)
	}
	if h := e.pin; h != nil {
		e.pin = nil
		h.pins--
		s.queue.releaseUnused(h)
	}
}

// sole returns the entry that awaits an answer if there is exactly one, and nil otherwise.
func (s *inflight) sole() *entry {
	if s.awaited != 1 || !s.accepts() {
		return nil
	}
	return s.given.find(func(e *entry) bool { return e.place == sent })
}

// pinsTooMuch reports whether writers would have too few free slabs if e were sent and the session
// then hung. It returns false if the session has no other batch. Several entries of one leased
// batch pin its slabs only once.
func (s *inflight) pinsTooMuch(e *entry) bool {
	sum, most := e.h.slabs()
	if sum == 0 || e.h.pins > 0 {
		return false
	}
	for i, g := range s.given {
		again := slices.ContainsFunc(s.given[:i], func(o *entry) bool { return o.pin == g.pin })
		if g.pin != nil && !again {
			n, _ := g.pin.slabs()
			sum += n
		}
	}
	return len(s.given) > 0 && sum > most
}
