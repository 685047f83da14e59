package deliver

import (
	"fmt"
	"math"
	"time"
)

// A flush waits until everything taken before it is settled.
type flush struct {
	no  uint64     // the last batch taken from callers
	seq uint64     // … and of the spool
	ch  chan error // capacity 1

	kept bool // records in the spool count: a Commit. It waits whatever the state of the circuit.

	probed bool   // the circuit was open, and is probed
	trips  uint64 // how often it had opened
}

// flushes are those that wait.
type flushes struct {
	m       *machine
	waiting []*flush
	lastSeq uint64 // the last batch appended to the spool
}

// add adds f, which waits for the batches up to number no.
func (s *flushes) add(f *flush, no uint64) {
	if f.no = no; !f.kept {
		if f.seq = s.lastSeq; f.seq == 0 && (s.m.disk.backlog || len(s.m.disk.out) > 0) {
			f.seq = math.MaxUint64 // the numbers of batches left by an earlier process are unknown
		}
	}
	s.waiting = append(s.waiting, f)
}

// appended notes that batch no is in the spool as seq.
func (s *flushes) appended(no, seq uint64) {
	s.lastSeq = seq
	for _, f := range s.waiting {
		if no <= f.no && !f.kept {
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

// reached reports whether f need not wait any longer, and with which result.
func (s *flushes) reached(f *flush) (bool, error) {
	m := s.m
	open, parked := m.disk.left(f.no, f.seq)
	switch state, trips, _, cause := m.brk.look(); {
	case f.kept:
		return !open && parked == 0 && m.end.stage < late, nil // late, some may be dropped
	case !open && parked == 0:
		return true, nil
	case state == Open && !(f.probed && trips == f.trips) && !m.handler.busy && !m.handler.wants(time.Now()):
		return true, &openError{cause}
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
