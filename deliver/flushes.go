package deliver

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// A flush is a call of Flush or Commit, which waits until everything accepted before it is settled.
// The loop sends at most one result to the channel ch.
type flush struct {
	ctx    context.Context // the caller stops waiting when it ends
	ticket uint64          // ticket of the last record accepted before the call
	ch     chan error      // receives the result; capacity 1
	kept   bool            // the call is a Commit: records in the spool count as settled, and an open circuit does not end the wait

	leased bool   // the log has handed out everything accepted before the call; the next two fields are set
	logNo  uint64 // number of the last batch that the log handed out before the call
	seq    uint64 // number of the last batch of the spool before the call; 0 for a Commit

	probed bool   // this call may cause a probe, or has caused one
	trips  uint64 // value of circuit.trips when the probe was caused
}

// flushes are the waiting calls of Flush and Commit. Only the loop uses them.
//
// A call waits for all records up to its ticket, the sequence number of the last record accepted
// before the call. First it waits until the log has handed out these records. Then it waits until
// everything handed out so far is settled, in memory and in the spool. Later records do not delay
// it.
type flushes struct {
	m       *machine
	waiting []*flush
	lastSeq uint64 // number of the last batch appended to the spool
}

// add adds f. If the circuit is open and f permits a probe, the circuit sends one. If the
// destination has asked for a longer delay, there is no probe, and f ends with an error.
func (s *flushes) add(now time.Time, f *flush) {
	s.waiting = append(s.waiting, f)
	f.probed, f.trips = f.probed && s.m.brk.Probe(now, s.m.set.opt.Retry.Min), s.m.brk.trips
}

// any reports whether any call of Flush or Commit waits.
func (s *flushes) any() bool { return len(s.waiting) > 0 }

// arrive marks the calls for which the log has handed out all records. The parameter logNo is the
// number of the last batch that was handed out. A Flush also waits for the records that are now in
// the spool. A Commit does not, because they are stored.
func (s *flushes) arrive(l log, logNo uint64) {
	for _, f := range s.waiting {
		if f.leased || !l.Leased(f.ticket) {
			continue
		}
		f.leased, f.logNo = true, logNo
		if f.kept {
			continue
		}
		if f.seq = s.lastSeq; f.seq == 0 && (s.m.disk.backlog || len(s.m.disk.out) > 0) {
			f.seq = math.MaxUint64 // the numbers of batches left by an earlier process are unknown
		}
	}
}

// appended is called when a batch was appended to the spool. logNo is the number of the batch in
// the log, and seq is its number in the spool. A Flush that waits for the batch in the log now
// waits for it in the spool.
func (s *flushes) appended(logNo, seq uint64) {
	s.lastSeq = seq
	for _, f := range s.waiting {
		if f.leased && logNo <= f.logNo && !f.kept {
			f.seq = seq
		}
	}
}

// answer sends the results of the calls that need not wait any longer, and removes those whose caller
// has stopped waiting.
func (s *flushes) answer() {
	s.waiting = slices.DeleteFunc(s.waiting, func(f *flush) bool {
		done, err := s.reached(f)
		if done {
			f.ch <- err
		}
		return done || f.ctx.Err() != nil
	})
}

// reached reports whether f need not wait any longer, and returns its result. An open circuit ends
// a Flush with an error, with two exceptions: the probe that the Flush caused has no result yet, or
// the handler may still accept the records. An open circuit never ends a Commit.
func (s *flushes) reached(f *flush) (bool, error) {
	m := s.m
	circuitOpen := m.brk.state() == Open && !(f.probed && f.trips == m.brk.trips)
	if !f.leased {
		// While the circuit is open, the loop takes batches from the log only if the spool or the
		// handler accepts them.
		return circuitOpen && !f.kept && !m.set.spools() && !m.set.handler, openError(m.brk.cause)
	}
	open, parked := m.disk.openUpTo(f.logNo, f.seq)
	switch {
	case f.kept:
		return !open && parked == 0 && m.end.stage < late, nil // from the stage late on, some records may be dropped
	case !open && parked == 0:
		return true, nil
	case circuitOpen && !m.handler.busy && !m.handler.wants(time.Now()):
		return true, openError(m.brk.cause)
	case !open:
		return true, fmt.Errorf("%d records are parked: the destination does not accept them now", parked)
	}
	return false, nil
}
