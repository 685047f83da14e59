package deliver

import (
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Stats is a snapshot of the delivery of an [Output]. Counts start at NewOutput and are numbers of
// records unless stated otherwise.
type Stats struct {
	Name string
	// Account has the records that the outlet has settled, and those in its copies and in the
	// spool. A leased record is pending in slab.Stats until it is settled: [Output.Account] has the
	// sum.
	batch.Account
	Breaker  State
	Trips    uint64 // times the circuit has opened
	Attempts uint64 // batches passed to the destination
	Retries  uint64 // failed attempts
	Bytes    uint64 // payload bytes that the destination accepted, gap markers included
	Panics   uint64 // calls of the driver that panicked or called runtime.Goexit
	Spilling bool   // the spool has records that are not delivered yet
	Spilled  uint64 // written to the spool so far
	// OldestAge is the age of the oldest open record that the outlet has leased. It counts from the
	// record's own time or, if it has none, from the lease. 0 if there is none. Records in the
	// spool are in spool.Stats, and records not leased yet in slab.Stats.
	OldestAge time.Duration
	// OldestWait is the time since the oldest unsettled batch was leased. 0 if there is none.
	// slab.Stats.OldestWait covers records that are not leased yet, or whose lease is used for one
	// Send only.
	OldestWait time.Duration

	HandlerCalls  uint64
	HandlerErrors uint64 // calls of the handler that failed, or did not return
	// Suspects is the number of records that were parked while they were probed. Such records are
	// delivered out of order, or dropped as poison.
	Suspects        uint64
	LostDeadLetters uint64 // refused, and the dead letter could not be written
	BatchBytes      int    // current limit on the payload bytes of a batch, after one was too large; 0: none
	// FailingSince is the time of the first failure since the destination last accepted a batch;
	// zero while it is healthy. Gone reports whether it has ended permanently.
	FailingSince time.Time
	Gone         bool
	// LastError is the text of the driver's error while the destination fails, and empty while it
	// is healthy. It may contain secrets: see the package comment.
	LastError string
}

// publish stores a snapshot of the machine for Stats.
func (o *outlet) publish() {
	m := o.m
	record, taken := m.oldest()
	s := snapshot{lastErr: m.health.cause, oldest: record, taken: taken, stats: Stats{
		Breaker: m.brk.state(), Trips: m.brk.trips, Attempts: m.sess.attempts, Retries: m.health.retries,
		Spilling: m.disk.backlog || len(m.disk.out) > 0, Suspects: m.account.suspects, BatchBytes: m.health.bound, FailingSince: m.health.since, Gone: m.health.gone.on,
	}}
	o.shared.mu.Lock()
	o.shared.snap = s
	o.shared.mu.Unlock()
}

// Stats returns a snapshot. It never waits for the destination.
func (o *outlet) Stats() Stats {
	o.shared.mu.Lock()
	n := o.shared.snap
	o.shared.mu.Unlock()
	s := n.stats
	s.Name, s.Panics, s.LostDeadLetters = o.set.opt.Name, o.driver.panics.Load(), o.dead.failed.Load()
	if h := o.handler.Load(); h != nil {
		s.HandlerCalls, s.HandlerErrors = h.calls.Load(), h.errors.Load()
	}
	if !n.oldest.IsZero() {
		s.OldestAge = max(0, time.Since(n.oldest))
	}
	if !n.taken.IsZero() {
		s.OldestWait = time.Since(n.taken)
	}
	if n.lastErr != nil {
		s.LastError = n.lastErr.Error()
	}
	s.Account, s.Spilled, s.Bytes = o.led.now()
	return s
}

// Account returns the account of the outlet and its log together. It is read while no record moves
// from one to the other.
func (o *outlet) Account() (a batch.Account) {
	o.led.read(func(theirs batch.Account) { a = o.intake.log.Account(theirs) })
	return a
}
