package deliver

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A flush waits until everything accepted before it is settled. The caller waits for ch, which gets
// exactly one result, unless the caller has removed the flush before.
type flush struct {
	ticket uint64     // of the last record accepted before it
	ch     chan error // capacity 1
	kept   bool       // records in the spool count: a Commit. It waits whatever the state of the circuit.

	leased bool   // everything before it is leased; then:
	no     uint64 // the last batch leased before it
	seq    uint64 // … and of the spool

	mayProbe bool   // an open circuit is probed at once
	probed   bool   // … and was, so far:
	trips    uint64 // how often it had opened then
}

// flushes are the calls of Flush and Commit that wait. Only the loop uses them.
//
// A call has the ticket of the last record accepted before it. It waits in two steps: until the log has
// leased everything up to that ticket, and until everything leased up to then is settled, in memory and
// in the spool. Later records do not delay it.
type flushes struct {
	m       *machine
	waiting []*flush
	lastSeq uint64 // the last batch appended to the spool
}

// add adds f, and makes an open circuit send a probe. If the destination has asked for a longer delay,
// f is answered without one.
func (s *flushes) add(now time.Time, f *flush) {
	s.waiting = append(s.waiting, f)
	f.probed, f.trips = f.mayProbe && s.m.brk.Probe(now, s.m.set.opt.Retry.Min), s.m.brk.trips
}

// any reports whether any wait.
func (s *flushes) any() bool { return len(s.waiting) > 0 }

// forget removes f: no caller waits for it any more.
func (s *flushes) forget(f *flush) {
	s.waiting = slices.DeleteFunc(s.waiting, func(other *flush) bool { return other == f })
}

// arrive notes which flushes have all their records leased, of which the last are in batch no. A Flush
// also waits for the records in the spool at that time. A Commit does not: they are stored.
func (s *flushes) arrive(l log, no uint64) {
	for _, f := range s.waiting {
		if f.leased || !l.Leased(f.ticket) {
			continue
		}
		f.leased, f.no = true, no
		if f.kept {
			continue
		}
		if f.seq = s.lastSeq; f.seq == 0 && (s.m.disk.backlog || len(s.m.disk.out) > 0) {
			f.seq = math.MaxUint64 // the numbers of batches left by an earlier process are unknown
		}
	}
}

// appended notes that batch no is in the spool as seq. A Flush that waits for it in memory waits for it
// there from now on.
func (s *flushes) appended(no, seq uint64) {
	s.lastSeq = seq
	for _, f := range s.waiting {
		if f.leased && no <= f.no && !f.kept {
			f.seq = seq
		}
	}
}

// answer answers those that need not wait any longer.
func (s *flushes) answer() {
	keep := s.waiting[:0]
	for _, f := range s.waiting {
		if done, err := s.reached(f); done {
			f.ch <- err
		} else {
			keep = append(keep, f)
		}
	}
	clear(s.waiting[len(keep):])
	s.waiting = keep
}

// reached reports whether f need not wait any longer, and with which result. An open circuit ends a
// Flush, unless the probe that it asked for has no result yet, and unless the handler may still accept
// the records. It never ends a Commit.
func (s *flushes) reached(f *flush) (bool, error) {
	m := s.m
	gone := m.brk.state() == Open && !(f.probed && f.trips == m.brk.trips)
	if !f.leased {
		// The log is read in turn, and waits for the circuit, unless records go elsewhere.
		return gone && !f.kept && !m.set.spools() && !m.set.handler, &openError{m.brk.cause}
	}
	open, parked := m.disk.left(f.no, f.seq)
	switch {
	case f.kept:
		return !open && parked == 0 && m.end.stage < late, nil // late, some may be dropped
	case !open && parked == 0:
		return true, nil
	case gone && !m.handler.busy && !m.handler.wants(time.Now()):
		return true, &openError{m.brk.cause}
	case !open:
		return true, fmt.Errorf("%d records are parked: the destination does not accept them now", parked)
	}
	return false, nil
}

// fail ends all flushes.
func (s *flushes) fail(err error) {
	for _, f := range s.waiting {
		f.ch <- err
	}
	s.waiting = nil
}
