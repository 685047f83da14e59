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
//	waiting ◀──▶ sent, or offered to the handler; it returns if records are open or the
//	   │         │        session has ended
//	   ▼         ▼
//	removed: all its records are settled, dropped or in the spool
type place uint8

const (
	waiting place = iota
	sent
	offered
	removed
)

// An entry is a group of undelivered records of one leased batch, in order. At any time it is in
// the queue, in flight or at the handler.
//
// A leased batch becomes one entry. An entry is divided if only a part of it may be sent, or if a
// part of it is parked. It shrinks when an answer settles some of its records. Therefore the field
// b is a view of the leased batch. The field out, the batch that the session got, is another view,
// which does not change before the answer.
type entry struct {
	h     *holder
	b     *batch.Batch
	place place
	since time.Time // time at which the batch was leased, or read from the spool

	// These fields are for an entry that was given to the session.
	kind    poison.Kind
	round   uint64       // number of the session's round when it got e; see sessionFilter
	at      time.Time    // time at which the session got e
	out     *batch.Batch // the batch that the session got and answers
	pin     *holder      // holder of the memory that the session may read
	unknown bool         // an earlier session got e and did not answer
	cut     bool         // records were split off because the circuit limits the size of batches

	tried bool // the handler was called with e during Close and did not accept all of it

	// An entry is parked while its stream is held (the destination does not accept it now), or if its
	// record is a suspect (it may be the reason why sessions end). It keeps its position in the
	// queue. A suspect is also sent, as a probe, and Close offers parked entries to the handler.
	parked  bool
	suspect *poison.Suspect // of a parked entry; nil: its stream is held
	copied  bool            // the bytes of the parked entry count toward Options.ParkedBytes

	// The last three fields only save allocations. The field h of a leased batch points to first.
	// In the first session the field out points to own, which uses the array runs. Few batches have
	// more than 5 runs.
	first holder
	own   batch.Batch
	runs  [5]layout.Run
}

// inMemory reports whether the records of e are in memory only.
func (e *entry) inMemory() bool { return e.h.owner != ofSpool }

// stream returns the stream of the first record. All records of a parked entry have the same
// stream.
func (e *entry) stream() uint32 { return e.b.At(0).Stream }

// fresh returns a view of e.b at a new address. Answers are matched by the address of the batch, so
// a late answer to an earlier view is not mistaken for an answer to this one. The first view uses
// memory in e, so that a batch that succeeds at once costs no allocation.
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
