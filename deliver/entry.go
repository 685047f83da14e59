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
// An entry is removed when all its records are settled, dropped or in the spool.
type place uint8

const (
	waiting place = iota
	sent
	offered
	parked
	removed
)

// An entry is a group of open records of one holder, in order. At any time either the queue, the
// session or the handler owns it.
//
// A leased batch becomes one entry. An entry is divided if only a part of it may be sent, or if a
// part of it is parked. It shrinks when an answer settles some of its records. So the field b is a
// view of the lease. The field out, the batch of the session, is another view, which does not
// change before the answer.
type entry struct {
	h     *holder
	b     *batch.Batch
	place place
	rest  place     // place of e while neither the session nor the handler has it: waiting or parked
	since time.Time // time at which the batch was leased, or read from the spool

	// These fields are for an entry that was given to the session.
	kind    poison.Kind
	round   uint64       // round of the session at the time at; see sessionFilter
	at      time.Time    // time at which the session got e
	out     *batch.Batch // the batch that the session got and answers
	pin     *holder      // holder of the memory that the session may read
	unknown bool         // an earlier session got e and did not answer
	cut     bool         // the circuit limits the batch, so records were split off

	tried bool // the handler did not accept e during its share of the time of Close

	// These fields are for a parked entry.
	suspect *poison.Suspect // nil: its stream is held
	copied  bool            // its bytes count toward Options.ParkedBytes

	// first is the memory of the field h of a leased batch, and own and runs are that of the field
	// out in the first session. Few batches have more than 5 runs.
	first holder
	own   batch.Batch
	runs  [5]layout.Run
}

// inMemory reports whether the records of e are in memory only.
func (e *entry) inMemory() bool { return e.h.owner != ofSpool }

// stream returns the stream of the first record of e. It is the stream of all records of a parked e.
func (e *entry) stream() uint32 { return e.b.At(0).Stream }

// fresh returns a view of e.b at a new address. Answers are matched by the address of the batch, so
// a late answer to an earlier view is not mistaken for an answer to this one. The first call uses
// memory in e, so a batch that succeeds at once costs no allocation.
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

// fitting returns how many records at the beginning of b have at most size bytes in total, but at
// least 1.
func fitting(b *batch.Batch, size int) int {
	for i, rec := range b.All() {
		if size -= len(rec.Data); size < 0 {
			return max(i, 1)
		}
	}
	return b.Len()
}
