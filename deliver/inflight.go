package deliver

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/poison"
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

// inflight is the session with its batches, as the machine sees them. The goroutine of the session runs
// ahead: it may have answered, ended or refused batches that the machine has not heard of. The rounds
// (see passage) keep both sides in step.
type inflight struct {
	queue *queue

	state    sessionState
	given    list   // in the order of Send; after the end of the session, batches that it may still read
	under    int    // of them, those whose answer counts
	regroup  bool   // an answer had open records: nothing new before all are answered
	round    uint64 // counts answers with open records
	answered bool   // the session has settled something
	attempts uint64 // batches given
}

// enter is the only way from one state to another.
func (s *inflight) enter(to sessionState) {
	s.queue.set.note(aSession, uint8(s.state), uint8(to))
	s.state = to
}

// accepts reports whether answers and refusals of the session count.
func (s *inflight) accepts() bool { return s.state == live || s.state == leaving }

// opened notes that the session is open. If the attempt was given up in the meantime, the session is
// closed without a batch.
func (s *inflight) opened() {
	if s.state == opening {
		s.enter(live)
		s.answered, s.regroup = false, false
	}
}

// closed notes that the session reads nothing any more: all memory that it pinned may be freed.
func (s *inflight) closed() {
	s.enter(none)
	for len(s.given) > 0 {
		s.unpin(s.given[0])
	}
}

// end ends a session that accepts no more and has answered everything. It reports whether the
// session has to be closed now.
func (s *inflight) end() bool {
	if s.state == leaving && s.under == 0 {
		s.enter(lost)
	}
	if s.state != lost {
		return false
	}
	s.enter(ending)
	return true
}

// giveUp ends the session, or the attempt to open one, because Close ran out of time. Its batches wait
// again, and are saved without it.
func (s *inflight) giveUp() {
	switch s.state {
	case opening:
		s.enter(lost)
	case live, leaving:
		s.takeAllBack()
	}
}

// give makes e one of the batches that the session has. The holder is pinned until the session has
// answered or closed, whatever happens to the records in the meantime.
func (s *inflight) give(now time.Time, e *entry, k poison.Kind) action {
	s.queue.put(e, sent)
	e.kind, e.out, e.before, e.unknown, e.round, e.at = k, e.fresh(), e.unknown, true, s.round, now
	if e.h != nil {
		e.pin = e.h
		e.pin.pins++
	}
	s.given = append(s.given, e)
	s.under++
	s.attempts++
	return action{do: doSend, e: e}
}

// answerTo returns the entry that was sent as b and has no answer yet, or nil. An answer with open
// records holds back later batches even if it does not count, because the goroutine of the session
// does the same.
func (s *inflight) answerTo(b *batch.Batch, o *batch.Outcome) *entry {
	if !o.Open.Empty() {
		s.round++
		s.regroup = true
	}
	return s.given.find(func(e *entry) bool { return e.out == b && e.place == sent })
}

// takeBack makes e, which the session has, wait again at its position in the queue. The session may read
// its memory until unpin.
func (s *inflight) takeBack(e *entry) {
	s.under--
	s.queue.put(e, e.rest)
}

// unsent notes that e was not given to the session: it refuses batches, or an older one has open
// records and goes first.
func (s *inflight) unsent(e *entry) {
	if e.place != sent || !s.accepts() {
		return
	}
	s.takeBack(e)
	e.unknown = e.before
	s.unpin(e)
}

// takeAllBack makes all batches of the session wait again: it has ended, or is given up. It returns the
// oldest entry, at which the session may have ended, and the number of records.
func (s *inflight) takeAllBack() (oldest *entry, n int) {
	for _, e := range s.given {
		if e.place != sent {
			continue
		}
		if oldest == nil {
			oldest = e
		}
		n += e.b.Len()
		s.takeBack(e)
	}
	s.enter(lost)
	s.regroup = false
	return oldest, n
}

// unpin notes that the session does not read e any more.
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

// only returns the entry in flight if it is the only one, otherwise nil.
func (s *inflight) only() *entry {
	if s.under != 1 || !s.accepts() {
		return nil
	}
	return s.given.find(func(e *entry) bool { return e.place == sent })
}

// pinsTooMuch reports whether a session that hangs with e would leave callers too little memory. A
// session may always have one batch. Batches that share a lease pin its slabs once.
func (s *inflight) pinsTooMuch(e *entry) bool {
	sum, most := e.h.lease.Pins()
	if sum == 0 || e.h.pins > 0 {
		return false
	}
	for i, g := range s.given {
		again := slices.ContainsFunc(s.given[:i], func(o *entry) bool { return o.pin == g.pin })
		if g.pin != nil && !again {
			n, _ := g.pin.lease.Pins()
			sum += n
		}
	}
	return len(s.given) > 0 && sum > most
}
