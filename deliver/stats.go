package deliver

import (
	"context"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Stats is a snapshot of an [Engine]. Counts are of records where nothing else is
// said, and since New.
type Stats struct {
	Name string
	// Account is that of the records in the engine's custody.
	batch.Account
	Breaker  State
	Trips    uint64 // times the breaker has opened
	Lost     uint64 // transitions that subscribers were too slow to read
	Attempts uint64 // calls of the destination
	Retries  uint64 // attempts after a failure
	Spilling bool   // older records are in the spill
	Spilled  uint64 // put into the spill so far

	HandledBy     uint64 // taken by the handler, in custody or not
	HandlerCalls  uint64
	HandlerErrors uint64 // calls of the handler that failed, or did not return
	Poisoned      uint64 // refused by the destination, in custody or not
	Unburied      uint64 // refused, and the dead letter could not be written
	Expired       uint64 // too old to be sent again, in custody or not
	BatchBytes    int    // payload bytes a Send may have since one was too large; 0: any
	// LastError is the text of the failure under way, empty when the destination
	// is well. It is what the destination's Sink made of it: see the package
	// comment about secrets.
	LastError string
}

// Stats returns a snapshot. It never waits for the destination.
func (e *Engine) Stats() Stats {
	k := e.keeper
	s := Stats{
		Name: e.name, Breaker: e.breaker.State(), Trips: e.breaker.Trips(), Lost: e.breaker.Lost(),
		Attempts: k.lane.sends.Load(), Retries: e.retry.retries.Load(), Expired: e.retry.expired.Load(),
		Poisoned: e.poison.Dropped(), Unburied: e.poison.Unburied(), BatchBytes: e.poison.bound(),
	}
	if f := e.fallback; f != nil {
		s.HandledBy, s.HandlerCalls, s.HandlerErrors = f.Handled(), f.g.calls.Load(), f.g.errors.Load()
	}
	if err := e.retry.lastError(); err != nil {
		s.LastError = err.Error()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s.Account, s.Spilling, s.Spilled = k.accountLocked(), k.spilling, k.spilled
	return s
}

// Name returns Options.Name.
func (e *Engine) Name() string { return e.name }

// Account says what became of the records in the engine's custody, see
// [Keeper.Account].
func (e *Engine) Account() batch.Account { return e.keeper.Account() }

// Limits returns the limits of the destination.
func (e *Engine) Limits() batch.Limits { return e.keeper.Limits() }

// Subscribe returns a channel of the breaker's transitions, see
// [Breaker.Subscribe].
func (e *Engine) Subscribe() (transitions <-chan Transition, cancel func()) {
	return e.breaker.Subscribe()
}

// Flush waits until everything in custody is settled, see [Keeper.Flush].
func (e *Engine) Flush(ctx context.Context) error { return e.keeper.Flush(ctx) }

// Sync puts what the destination was given, and what is in the spill, on stable
// storage, as far as they can.
func (e *Engine) Sync() error { return e.keeper.Sync() }

// Drain tells the engine that its producer has begun to close and will have
// everything settled by deadline: see [batch.Drainer]. 70 % of the time belong
// to the destination; then the handler is offered what comes, whatever
// PendingLimit says, and after it the spill.
func (e *Engine) Drain(deadline time.Time) { e.keeper.Drain(deadline) }

// Shutdown closes the engine and the destination and reports, see
// [Keeper.Shutdown]. It ends all subscriptions.
func (e *Engine) Shutdown(ctx context.Context) (batch.Report, error) {
	return e.keeper.Shutdown(ctx)
}

// Close is [Engine.Shutdown] without the report.
func (e *Engine) Close(ctx context.Context) error { return e.keeper.Close(ctx) }
