package deliver

import (
	"cmp"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
)

// settings are the parameters of a machine. After the start, only the field handler changes.
type settings struct {
	traits      *Traits  // Window is 1 or more
	opt         *Options // options with their defaults; Retry and Breaker are set
	handler     bool     // there is an error handler
	oldest      int64    // Unix nanoseconds; if a record has an earlier time, its age counts from its arrival
	jitter      func(lo, hi time.Duration) time.Duration
	post        func(op string, err error, n uint64)
	deadLetter  func(b *batch.Batch, cause error)  // writes dead letters about the records of b, which it copies
	lettersFull func() bool                        // too many dead letters wait to be written
	release     func(h *holder)                    // called when no record of a lease is open and no session reads it
	pending     func() uint64                      // returns the number of records that are not settled
	moved       func(of stateKind, from, to uint8) // called at each transition; nil except in tests
}

// spools reports whether there is a spool.
func (s *settings) spools() bool { return s.opt.spill != nil }

// note passes a transition to the function s.moved, which a test has set.
func (s *settings) note(of stateKind, from, to uint8) {
	if s.moved != nil && from != to {
		s.moved(of, from, to)
	}
}

// stateKind identifies a state machine, for tests that record transitions.
type stateKind uint8

const (
	stageKind stateKind = iota
	sessionKind
	entryKind
	phaseKind
)

// action is a decision of the machine. The loop executes doSpill, doPull and doAcknowledge before
// it calls next again. The results of the others may come later.
type action struct {
	do    doing
	e     *entry    // entry of doSend, doSpill and doHandle
	until time.Time // end of doWait; zero: until something happens
}

// doing is the kind of an action. Each comment names the method that makes the call, or gets
// its result. The actions from doSpill on may be slow.
type doing uint8

const (
	doWait        doing = iota
	doAgain             // call next again
	doOpen              // begin a session; result: opened or failedToOpen
	doSend              // give e to the session; result: answer, refused or sessionEnded
	doClose             // end the session; result: closed
	doSpill             // append e to the spool: disk.append
	doPull              // read a batch from the spool: disk.pull
	doAcknowledge       // acknowledge settled batches of the spool: disk.acknowledge
	doHandle            // offer e to the handler; result: handled
	doEnd               // nothing is left to do
)

// joinedBytes and joinedRecords limit a batch that is combined from several batches of the spool.
// Such a batch is copied to memory: at most 256 KiB of payload and 256 KiB of slots.
const (
	joinedBytes   = 256 << 10
	joinedRecords = joinedBytes / layout.SlotBytes
)

// joins returns the maximum size of a combined batch.
func (s *settings) joins() (bytes, records int) {
	l := s.traits.Limits
	return min(joinedBytes, cmp.Or(l.Bytes, joinedBytes)), min(joinedRecords, cmp.Or(l.Records, joinedRecords))
}
