package deliver

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/forebay-log/forebay/internal/callback"
)

// spooling calls the spool when the machine requests it, and posts an event when a call fails. A
// panic of the spool becomes an error. Only the loop calls Append, NextUpTo and Ack, so these calls
// do not overlap; sync may run at the same time.
//
// The ledger reads the account of the spool after each call, in the same critical section in which
// it accounts for the result of the call.
type spooling struct {
	spill   spill // nil: none
	m       *machine
	flushes *flushes
	events  *callback.Reporter

	appendBad, readBad episode
}

// append appends e to the spool. If disk.staysOut returns true, it then reads the oldest batch from
// the spool. Normally that is the batch just appended, so that e keeps its position in the queue;
// it may also be a batch that an earlier process left in the spool.
func (s *spooling) append(now time.Time, e *entry) {
	var seq uint64
	err := s.call(func() (err error) {
		seq, err = s.spill.Append(e.b)
		return err
	})
	var out *countedLease
	var got uint64
	if s.note(&s.appendBad, err); err == nil {
		// A Flush that waits for this batch must wait for it in the spool from now on, because the
		// entry may leave the queue.
		s.flushes.appended(e.h.logNo, seq)
		if s.m.disk.staysOut(e) {
			out, got, _ = s.next(0, 0)
		}
	}
	s.m.disk.spilled(now, e, seq, out, got, err)
}

// pull reads a batch from the spool. It combines small batches, because a destination that accepts
// one request per flush interval could otherwise never catch up after an outage.
func (s *spooling) pull(now time.Time) {
	out, seq, err := s.next(s.m.set.joins())
	// Even a call that fails may have dropped records, so the account is read first.
	s.m.led.readSpill(out)
	if err == io.EOF {
		s.m.disk.notPulled(now, nil)
		return
	}
	if s.note(&s.readBad, err); err != nil {
		s.m.disk.notPulled(now, err)
		return
	}
	s.m.disk.pulled(now, out, seq)
}

// next reads the oldest batch, combined with the following ones up to the given size. If there is no
// batch, out is nil.
func (s *spooling) next(bytes, records int) (out *countedLease, seq uint64, err error) {
	err = s.call(func() (err error) {
		c := &countedLease{kept: true}
		if c.b, seq, err = s.spill.NextUpTo(bytes, records); err == nil {
			out = c
		}
		return err
	})
	return out, seq, err
}

// forget acknowledges batches up to sequence number seq. If that fails, a later acknowledgment
// includes them. If the process dies first, they are delivered again.
func (s *spooling) forget(seq uint64) {
	err := s.call(func() error { return s.spill.Ack(seq) })
	s.note(&s.readBad, err)
	// The memory of the batches is given up even if the acknowledgment failed.
	s.m.disk.forgotten(seq)
}

// sync syncs the spool to stable storage, if it supports that. It does not wait beyond the end of
// ctx.
func (s *spooling) sync(ctx context.Context) error {
	if d, ok := s.spill.(syncer); ok {
		return within(ctx, func() error { return s.call(d.Sync) })
	}
	return nil
}

// call calls the spool. A panic becomes an error.
func (s *spooling) call(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("deliver: the spool panicked: %v", r)
		}
	}()
	return f()
}

// note posts an event for the first failure of a series.
func (s *spooling) note(bad *episode, err error) {
	if err == nil {
		bad.end()
	} else if bad.begin() {
		s.events.Post("spill-error", err, 0)
	}
}
