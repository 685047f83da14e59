package deliver

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/poison"
)

// A queue holds the open entries of an outlet, oldest first: entries of the spool before entries of
// the log. Parked entries keep their position, so that the records of a stream stay in order. The
// queue needs no index, because it is short. It has the parked entries, at most Window+1 leases of
// the log, and at most as many batches of the spool.
//
//	ring   [ of the spool, handed out | taken from callers ]
//	         ▲ up to Window of them are sent; those without an answer when the session ends
//	           are sent again, from the oldest on
type queue struct {
	set    *settings
	poison *poison.Detector
	ring   list
}

// put changes the place of an entry. Every transition is made by this method.
func (q *queue) put(e *entry, to place) {
	q.set.note(entryKind, uint8(e.place), uint8(to))
	e.place = to
}

// entryOf returns a new entry with the records b, which are part of the lease h.
func (q *queue) entryOf(h *holder, b *batch.Batch, since time.Time) *entry {
	h.parts++
	return &entry{h: h, b: b, since: since}
}

// first returns the oldest waiting entry, or nil. It also returns nil if an older record must be
// sent first. That is a record in the spool, if backlog is true, or a record that was offered to
// the handler, which may not accept it.
func (q *queue) first(backlog bool) *entry {
	for _, e := range q.ring {
		switch {
		case e.parked:
		case e.place == offered:
			return nil
		case e.place != waiting:
		case backlog && e.inMemory():
			return nil
		default:
			return e
		}
	}
	return nil
}

// idle reports whether all entries are parked.
func (q *queue) idle() bool {
	return !slices.ContainsFunc(q.ring, func(e *entry) bool { return !e.parked })
}

// suspect returns the entry of the suspect s.
func (q *queue) suspect(s *poison.Suspect) *entry {
	return q.ring.find(func(e *entry) bool { return e.suspect == s })
}

// insert inserts e, an entry of the spool, after the other entries of the spool.
func (q *queue) insert(e *entry) {
	at := len(q.ring)
	for at > 0 && q.ring[at-1].inMemory() {
		at--
	}
	q.ring = slices.Insert(q.ring, at, e)
}

// split keeps the first k records in e, and inserts an entry with the remaining records after e.
// Both entries refer to the same holder, which is released with the last of them.
func (q *queue) split(e *entry, k int) {
	rest := q.entryOf(e.h, e.b.Slice(nil, k, e.b.Len()), e.since)
	rest.unknown = e.unknown
	e.b = e.b.Slice(nil, 0, k)
	q.ring = slices.Insert(q.ring, slices.Index(q.ring, e)+1, rest)
}

// remove deletes e, which has no open records any more. The session may still read e.
func (q *queue) remove(e *entry) {
	if i := slices.Index(q.ring, e); i >= 0 {
		q.ring = slices.Delete(q.ring, i, i+1)
	}
	q.put(e, removed)
	q.poison.Forget(e.suspect)
	e.h.parts--
	q.releaseUnused(e.h)
}

// releaseUnused releases the lease of h if no entry refers to h and no session reads it. A batch of
// the spool has none: disk acknowledges it in order.
func (q *queue) releaseUnused(h *holder) {
	if h.parts == 0 && h.pins == 0 && h.owner == ofLog {
		q.set.release(h)
	}
}

// memory returns the oldest entry whose records are in memory only, without parked entries.
func (q *queue) memory() *entry {
	return q.ring.find(func(e *entry) bool { return e.inMemory() && !e.parked })
}

// spillable returns the oldest entry whose records are in memory only, without parked suspects.
func (q *queue) spillable() *entry {
	return q.ring.find(func(e *entry) bool { return e.inMemory() && (!e.parked || e.suspect == nil) })
}

// behindDisk reports whether a batch of the spool that is older than e waits to be sent. In that
// case e must also pass through the spool, because from memory it could overtake that batch in the
// next session.
func (q *queue) behindDisk(e *entry) bool {
	for _, o := range q.ring {
		if o == e {
			return false
		}
		if o.place == waiting && !o.parked && !o.inMemory() {
			return true
		}
	}
	return false
}

// outBehind reports whether an entry that is newer than e is in flight or at the handler.
func (q *queue) outBehind(e *entry) bool {
	return slices.ContainsFunc(q.ring[slices.Index(q.ring, e)+1:], func(later *entry) bool {
		return later.place == sent || later.place == offered
	})
}

// A list is a list of entries, oldest first.
type list []*entry

// find returns the oldest entry for which ok returns true, or nil.
func (l list) find(ok func(e *entry) bool) *entry {
	if i := slices.IndexFunc(l, ok); i >= 0 {
		return l[i]
	}
	return nil
}

// oldest returns the time of the oldest record of l, and the time at which the oldest batch was
// leased. It reads only the first entry, so the time of the record is approximate. Both times are
// zero if there is no undelivered record.
func (l list) oldest() (record, taken time.Time) {
	if len(l) == 0 || l[0].kind == poison.Reference || l[0].place == removed {
		return record, taken
	}
	e := l[0]
	taken = e.since
	if e.b.Len() == 0 {
		return record, taken
	}
	record = e.since
	if n := e.b.Runs[0].Slot(0).Time; n != 0 {
		record = time.Unix(0, n)
	}
	return record, taken
}

// earlier returns the earlier of two times. It ignores a zero time.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
