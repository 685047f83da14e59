package deliver

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/poison"
)

// A place is where an entry is.
//
//	waiting ◀──▶ sent, or offered to the handler; back if records are open or the
//	   ▲         │        session has ended
//	   ▼         │
//	parked ◀─────┘ its stream is held, or it is a suspect: sent and offered from here, too
//
// From each place an entry is gone when all its records are settled, dropped or in the spool. An
// entry that goes into the spool while the session has it is sent until it is answered.
type place uint8

const (
	waiting place = iota
	sent
	offered
	parked
	gone
)

// An entry is records of one holder that are open, in order. It belongs to exactly one owner at a
// time: the queue, the session or the handler.
//
// A leased batch becomes one entry. It is divided if only a part of it may be sent, or if a part of it is
// parked, and shrinks when an answer settles records of it. So b is a view of the lease, and out, the
// batch of the session, is a view that stays unchanged until the answer.
type entry struct {
	h     *holder
	b     *batch.Batch
	place place
	rest  place     // its place unless the session or the handler has it: waiting or parked
	since time.Time // when it was leased, or read from the spool

	// Of an entry that was given to the session.
	kind    poison.Kind
	round   uint64       // of the session, when it was given
	at      time.Time    // when it was given
	out     *batch.Batch // the batch that the session got and answers
	pin     *holder      // whose memory the session may read
	unknown bool         // it was sent, and not answered
	before  bool         // … in an earlier session
	cut     bool         // made smaller because of the circuit
	orphan  bool         // its records are in the spool; only the answer is awaited

	tried bool // the handler did not accept it after the time of the destination in Close

	// Of a parked entry.
	stream  uint32          // of all its records
	suspect *poison.Suspect // nil: its stream is held
	copied  bool            // it is within Options.ParkedBytes

	// Memory of out for the first session. Few batches are in more slabs.
	own  batch.Batch
	runs [5]layout.Run
}

// inMemory reports whether the records of e are in memory only.
func (e *entry) inMemory() bool { return e.h.custody != ofSpool }

// fresh returns the batch of e as one that no session was given yet, so that a late answer to an earlier
// one is not mistaken for an answer to it: answers are matched by the address of the batch. The first
// time it uses memory in e, so that a batch that succeeds at once costs no allocation.
func (e *entry) fresh() *batch.Batch {
	to := &e.own
	if e.out != nil {
		to = new(batch.Batch)
	} else if len(e.b.Runs) <= len(e.runs) {
		to.Runs = e.runs[:0]
	}
	to.Runs = slices.Grow(to.Runs, len(e.b.Runs))
	return e.b.Slice(to, 0, e.b.Len())
}

// streamOf returns the stream of the first record of b, 0 for an empty batch.
func streamOf(b *batch.Batch) uint32 {
	for _, rec := range b.All() {
		return rec.Stream
	}
	return 0
}

// fitting returns how many records of b, at least one, have at most size bytes together.
func fitting(b *batch.Batch, size int) int {
	k := 0
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			if size -= int(r.Slot(j).Len); size < 0 {
				return max(k, 1)
			}
			k++
		}
	}
	return max(k, 1)
}
