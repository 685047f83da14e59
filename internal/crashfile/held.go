package crashfile

import (
	"cmp"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/contain"
	"github.com/forebay-log/forebay/internal/layout"
)

// HeldBy is the type of the field Held of slablog.Consumer. It returns the ranges of records that
// the consumer has on disk.
type HeldBy func(origin [16]byte, first, last uint64) []layout.Tickets

// omitHeld removes the records that the consumer has on disk. Such records exist if the process was
// killed after the consumer had accepted them and before the file was updated. omitHeld asks the
// consumer only once, because the consumer may forget records after it has delivered them.
func (o *Orphan) omitHeld() {
	if n := len(o.Records); o.heldBy != nil && n > 0 {
		var held []layout.Tickets
		first, last := o.Records[0].Ticket, o.Records[n-1].Ticket
		if contain.Call(func() { held = o.heldBy(o.UUID, first, last) }) == nil {
			o.held = union(held)
		}
		o.heldBy = nil
	}
	n := len(o.Records)
	o.Records = slices.DeleteFunc(o.Records, func(r batch.Record) bool { return holds(o.held, r.Ticket) })
	if o.LeftOut = uint64(n - len(o.Records)); o.LeftOut > 0 {
		o.countRecords()
	}
}

// union returns the ranges in ascending order and without overlap.
func union(in []layout.Tickets) (out []layout.Tickets) {
	in = slices.DeleteFunc(slices.Clone(in), func(t layout.Tickets) bool { return t.First > t.Last })
	slices.SortFunc(in, func(a, b layout.Tickets) int { return cmp.Compare(a.First, b.First) })
	for _, t := range in {
		if n := len(out); n > 0 && t.First <= out[n-1].Last {
			out[n-1].Last = max(out[n-1].Last, t.Last)
		} else {
			out = append(out, t)
		}
	}
	return out
}

// holds reports whether one of the ranges, which are sorted, contains the ticket.
func holds(in []layout.Tickets, ticket uint64) bool {
	_, ok := slices.BinarySearchFunc(in, ticket, func(t layout.Tickets, ticket uint64) int {
		switch {
		case t.Last < ticket:
			return -1
		case t.First > ticket:
			return 1
		}
		return 0
	})
	return ok
}
