package forebay

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/forebay-log/forebay/batch"
)

// Stats is a snapshot of a [Router].
type Stats struct {
	Outputs []OutputStats // in the order of routes and their outputs
	// Refused is the number of records that came after Close. They are in no
	// account.
	Refused uint64
	// EventsLost is the number of events that were dropped because OnError was busy
	// with earlier ones.
	EventsLost uint64
}

// OutputStats is a snapshot of one output.
type OutputStats struct {
	Name  string
	Level slog.Level // at present
	// Buffered is whether the output takes records without waiting for their
	// destination.
	Buffered bool
	// Account says what became of the records. A buffered output keeps an account of
	// its own, which includes the records of its other users; records that could not
	// be encoded for it are added. For an output without an account a record counts
	// as delivered if the write returned no error.
	batch.Account
	// Errors is the number of failed writes to a direct output, also where a second
	// write made up for it, or of records for which a buffered output returned an
	// error.
	Errors uint64
	// Panics is how many of these were panics or ended in runtime.Goexit.
	Panics uint64
	// Stuck is whether a write to a direct output does not end at present.
	Stuck bool
	// LastError is the text of the last error, empty if there was none.
	LastError string
}

// String gives the statistics on one line.
func (s OutputStats) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "%s: %s", s.Name, s.Account)
	if s.Errors > 0 {
		fmt.Fprintf(&sb, " errors=%d", s.Errors)
	}
	if s.Stuck {
		sb.WriteString(" stuck")
	}
	return sb.String()
}

// String gives the statistics, one line for each output.
func (s Stats) String() string {
	lines := make([]string, 0, len(s.Outputs)+1)
	for _, o := range s.Outputs {
		lines = append(lines, o.String())
	}
	if s.Refused > 0 {
		lines = append(lines, fmt.Sprintf("refused=%d", s.Refused))
	}
	return strings.Join(lines, "\n")
}

// Stats returns what became of the records so far. It never waits for an output,
// unless one with an account of its own does. The accounts balance at any time;
// they are exact when no call is under way.
func (r *Router) Stats() Stats {
	c := r.h.core
	if c == nil {
		return Stats{}
	}
	st := Stats{Outputs: make([]OutputStats, len(c.outputs)), Refused: c.refused.Load()}
	for i, o := range c.outputs {
		st.Outputs[i] = o.stats()
		st.Refused += o.refused.Load()
	}
	for _, rep := range c.reporters {
		st.EventsLost += rep.run.Dropped()
	}
	return st
}

func (o *output) stats() OutputStats {
	st := OutputStats{
		Name:     o.name,
		Level:    o.level.level(),
		Buffered: o.buffered(),
		Account:  o.books(),
		Errors:   o.errors.Load(),
		Panics:   o.panics.Load(),
		Stuck:    o.dir != nil && o.dir.count().stuck,
	}
	if err := o.lastError(); err != nil {
		st.LastError = fmt.Sprint(err) // fmt contains panics of its Error method
	}
	return st
}

// books returns the account of the output.
func (o *output) books() (a batch.Account) {
	encode := o.encode.Load()
	switch {
	case o.account != nil:
		a = ownAccount(o.account)
	case o.rec != nil || o.shared:
		a.Dropped[batch.Failed] = o.failed.Load()
		a.Dropped[batch.Busy] = o.busy.Load()
		a.Delivered = o.delivered.Load()
		a.Accepted = max(o.accepted.Load()-o.refused.Load(), a.Delivered+a.Dropped.Total())
		a.Pending.Inflight = a.Accepted - a.Delivered - a.Dropped.Total()
	default:
		a.Dropped[batch.Failed] = o.failed.Load() // before the count that includes them
		a.Dropped[batch.Busy] = o.busy.Load()
		n := o.dir.count()
		a.Delivered = n.done - a.Dropped[batch.Failed]
		a.Pending.Inflight = n.pending
		a.Accepted = n.done + n.pending + a.Dropped[batch.Busy]
	}
	a.Accepted += encode
	a.Dropped[batch.Encode] += encode
	return a
}

// An accounter is an output that accounts for its records itself.
type accounter interface{ Account() batch.Account }

// ownAccount contains a panic of the writer's Account.
func ownAccount(w accounter) (a batch.Account) {
	defer func() {
		if recover() != nil {
			a = batch.Account{}
		}
	}()
	return w.Account()
}
