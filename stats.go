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
	// Refused is the number of records logged after Close began. They are in no account.
	Refused uint64
	// EventsLost is the number of events dropped because OnError was busy with earlier
	// ones.
	EventsLost uint64
	// Closed reports whether Close has begun.
	Closed bool
}

// OutputStats is a snapshot of one output.
type OutputStats struct {
	Name string
	// Level is the lowest level that the output currently accepts. For an output without a
	// level it is the level of loggers without a name.
	Level slog.Level
	// Buffered reports whether the output accepts records without waiting for their
	// destination.
	Buffered bool
	// Account holds the outcomes of the records. A buffered output keeps the account itself. Such
	// an account includes the records of other programs or routers that write to the same output.
	// The Router adds the records that could not be encoded for the output, or were omitted by
	// [Sample]. For an output without an account, a record counts as delivered if the write
	// returned no error.
	batch.Account
	// Errors is the number of errors. For a direct output it counts failed writes, including those
	// that a second write completed. For a buffered output it counts records for which the output
	// returned an error.
	Errors uint64
	// Panics is the number of calls of a direct output's writer, or of a buffered output's
	// driver, that panicked or called runtime.Goexit.
	Panics uint64
	// Stuck reports whether a write to a direct output is currently hanging.
	Stuck bool
	// FailingSince is the time of the destination's first failure since its last success, or the
	// time at which the current write to a direct output was found stuck. It is zero while the
	// destination is healthy, and for buffered outputs without Delivery.
	FailingSince time.Time
	// LastError is the text of the last error, or "".
	LastError string
	// Delivery holds the state of memory, delivery and spool if the output is a deliver.Output. It
	// is nil for direct outputs, and for custom writers with a method WriteRecord.
	Delivery *deliver.OutputStats
}

// String returns the statistics on one line: the account, then "errors=N" if Errors is not 0, and
// "stuck" if Stuck is set.
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

// String returns the statistics, one line per output.
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

// Stats returns a snapshot of the outputs and their accounts. It waits only if the method Account
// of a custom writer waits. Each account balances at any time, see [batch.Account]. A call that is in
// progress counts as pending, or not yet.
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

// stats returns the statistics of o. rootLevel is the level of loggers without a name.
func (o *output) stats(rootLevel slog.Level) OutputStats {
	st := OutputStats{
		Name:     o.name,
		Level:    o.level.level(rootLevel),
		Buffered: o.buffered(),
		Account:  o.accountNow(),
		Errors:   o.errors.Load(),
		Panics:   o.panics.Load(),
		Delivery: deliveryOf(o.w),
	}
	if o.direct != nil {
		st.Stuck, st.FailingSince = o.direct.count().stuck, o.direct.troubleSince()
	} else if st.Delivery != nil {
		st.FailingSince = st.Delivery.Deliver.FailingSince
		st.Panics += st.Delivery.Deliver.Panics
	}
	if err := o.lastError(); err != nil {
		st.LastError = fmt.Sprint(err) // fmt recovers panics of its Error method
	}
	return st
}

// deliveryOf returns the statistics of w if it is a deliver.Output. It returns nil for other
// writers, or if Stats panics.
func deliveryOf(w io.Writer) (d *deliver.OutputStats) {
	defer func() {
		if recover() != nil {
			d = nil
		}
	}()
	if w, ok := w.(interface{ Stats() deliver.OutputStats }); ok {
		s := w.Stats()
		return &s
	}
	return nil
}

// accountNow returns the account of the output.
func (o *output) accountNow() (a batch.Account) {
	switch {
	case o.account != nil:
		a = ownAccount(o.account)
	case o.rec != nil || o.shared:
		o.mu.Lock()
		a = o.records
		o.mu.Unlock()
	default:
		n := o.direct.count()
		a.Delivered, a.Pending.Inflight = n.done, n.pending
		a.Dropped[batch.Failed], a.Dropped[batch.Busy] = n.failed, n.turned
		a.Accepted = n.done + n.failed + n.turned + n.pending
	}
	encode, sampled := o.encode.Load(), o.sampled.Load()
	a.Accepted += encode + sampled
	a.Dropped[batch.Encode] += encode
	a.Dropped[batch.Sampled] += sampled
	return a
}
