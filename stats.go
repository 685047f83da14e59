package forebay

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
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
	// Closed is whether Close has begun.
	Closed bool
}

// OutputStats is a snapshot of one output.
type OutputStats struct {
	Name string
	// Level is the lowest level that the output takes at present; if it has none of its
	// own, from loggers without a name.
	Level slog.Level
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
	// Panics is how many calls of a direct output's writer, or of a buffered one's driver,
	// panicked or ended in runtime.Goexit.
	Panics uint64
	// Stuck is whether a write to a direct output does not end at present.
	Stuck bool
	// FailingSince is when the destination failed first since it last took something, or
	// when a write to a direct output was found stuck. It is zero while the destination
	// is well, and for buffered outputs without Delivery.
	FailingSince time.Time
	// LastError is the text of the last error, empty if there was none.
	LastError string
	// Delivery has the state of memory, delivery and spool of an output that is a
	// deliver.Output, as all outputs made by New are. It is nil for others.
	Delivery *deliver.OutputStats
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
	c := r.core()
	if c == nil {
		return Stats{}
	}
	st := Stats{Outputs: make([]OutputStats, len(c.outputs)), Refused: c.refused.Load(), Closed: c.closed.Load()}
	own := c.root.own.Level()
	for i, o := range c.outputs {
		st.Outputs[i] = o.stats(own)
		st.Refused += o.refused.Load()
	}
	for _, rep := range c.reporters {
		st.EventsLost += rep.run.Dropped()
	}
	return st
}

func (o *output) stats(own slog.Level) OutputStats {
	st := OutputStats{
		Name:     o.name,
		Level:    o.level.level(own),
		Buffered: o.buffered(),
		Account:  o.books(),
		Errors:   o.errors.Load(),
		Panics:   o.panics.Load(),
		Delivery: deliveryOf(o.w),
	}
	if o.dir != nil {
		st.Stuck, st.FailingSince = o.dir.count().stuck, o.dir.troubleSince()
	} else if st.Delivery != nil {
		st.FailingSince = st.Delivery.Deliver.FailingSince
		st.Panics += st.Delivery.Deliver.Panics
	}
	if err := o.lastError(); err != nil {
		st.LastError = fmt.Sprint(err) // fmt contains panics of its Error method
	}
	return st
}

// deliveryOf returns the statistics of w, or of the destination of a Slot, if it is a
// deliver.Output. It contains a panic.
func deliveryOf(w io.Writer) (d *deliver.OutputStats) {
	defer func() {
		if recover() != nil {
			d = nil
		}
	}()
	switch w := w.(type) {
	case *Slot:
		if dst := w.dst.Load(); dst != nil {
			return deliveryOf(dst.w)
		}
	case interface{ Stats() deliver.OutputStats }:
		s := w.Stats()
		return &s
	}
	return nil
}

// books returns the account of the output.
func (o *output) books() (a batch.Account) {
	encode, sampled := o.encode.Load(), o.sampled.Load()
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
	a.Accepted += encode + sampled
	a.Dropped[batch.Encode] += encode
	a.Dropped[batch.Sampled] += sampled
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
