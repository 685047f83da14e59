package deliver

import (
	"errors"
	"fmt"
	"slices"

	"github.com/forebay-log/forebay/batch"
)

// countable returns the number of records of b that an account knows: gap
// markers are none.
func countable(b *batch.Batch) (n uint64) {
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			if r.Slot(j).Flags&batch.FlagMarker == 0 {
				n++
			}
		}
	}
	return n
}

// countSome is countable for the records of b with the given ascending indexes.
func countSome(b *batch.Batch, indexes []int) (n uint64) {
	base, k := 0, 0
	for _, i := range indexes {
		for i >= base+b.Runs[k].Len() {
			base += b.Runs[k].Len()
			k++
		}
		if b.Runs[k].Slot(i-base).Flags&batch.FlagMarker == 0 {
			n++
		}
	}
	return n
}

// span returns the numbers from i up to, but not including, j.
func span(dst []int, i, j int) []int {
	for ; i < j; i++ {
		dst = append(dst, i)
	}
	return dst
}

// left returns which of n records a Send that returned err has not settled,
// ascending. A list or number of records that makes no sense counts as all of them.
func left(n int, err error) []int {
	if err == nil {
		return nil
	}
	e := batch.Inspect(err)
	switch e.Kind {
	case batch.KindPrefix:
		if e.Acked >= 0 && e.Acked <= n {
			return span(nil, e.Acked, n)
		}
	case batch.KindPartial:
		if batch.ValidIndexes(e.Records, n) {
			return slices.Clone(e.Records)
		}
	case batch.KindReject:
		if e.Records != nil && batch.ValidIndexes(e.Records, n) {
			return slices.Clone(e.Records)
		}
	}
	return span(nil, 0, n)
}

// sane returns err, the result of a Send of n records, or, if it names records that
// there are not, an error that says so and settles nothing.
func sane(n int, err error) error {
	if err == nil {
		return nil
	}
	e := batch.Inspect(err)
	switch {
	case e.Kind == batch.KindPrefix && (e.Acked < 0 || e.Acked > n):
		return batch.RetryAfter(fmt.Errorf("answer makes no sense: the first %d of %d records are settled: %w", e.Acked, n, plainly(&e)), e.After)
	case e.Kind == batch.KindPartial && !batch.ValidIndexes(e.Records, n):
		return batch.RetryAfter(fmt.Errorf("answer makes no sense: %d records are named that are not among the %d sent: %w", len(e.Records), n, plainly(&e)), e.After)
	}
	return err
}

// plainly returns the cause of e.
func plainly(e *batch.SendError) error {
	if e.Err == nil {
		return errors.New("no reason given")
	}
	return e.Err
}

// isRefusal reports whether err is a verdict on what was sent, which another attempt
// would not change. The destination is well then.
func isRefusal(err error) bool {
	kind := batch.Inspect(err).Kind
	return kind == batch.KindReject || kind == batch.KindTooLarge
}

// tallied returns what a Send that settled n records of b said of them. A sink
// that accounts for more than it settled must not unbalance the account: then
// all of them count as delivered.
func tallied(b *batch.Batch, n int) (t batch.Tally) {
	if n > 0 && b.Tally.Settled() <= uint64(n) {
		t = b.Tally
	}
	return t
}

// A progress follows one batch that is settled bit by bit by several Sends.
type progress struct {
	whole *batch.Batch
	cur   *batch.Batch // the open records: what to send next
	open  []int        // their indexes in whole; nil stands for all
	tally batch.Tally  // of what is settled
	parts [2]batch.Batch
}

func (p *progress) begin(b *batch.Batch) { *p = progress{whole: b, cur: b} }

// done reports whether all records are settled.
func (p *progress) done() bool { return p.open != nil && len(p.open) == 0 }

// index returns the position in whole of record i of cur.
func (p *progress) index(i int) int {
	if p.open == nil {
		return i
	}
	return p.open[i]
}

// settle notes the result of a Send of cur and returns how many records that
// settled. Records that were refused by index stay open.
func (p *progress) settle(err error) int {
	n := p.cur.Len()
	rest := left(n, err)
	settled := n - len(rest)
	p.tally.Add(tallied(p.cur, settled))
	p.cur.Tally = batch.Tally{}
	if settled > 0 || n == 0 {
		p.keep(rest)
	}
	return settled
}

// keep closes all records of cur but those with the given indexes.
func (p *progress) keep(rest []int) {
	for k, i := range rest {
		rest[k] = p.index(i)
	}
	if rest == nil {
		rest = []int{}
	}
	p.open = rest
	next := &p.parts[0]
	if p.cur == next {
		next = &p.parts[1]
	}
	next.Reset()
	p.cur = p.whole.Select(next, rest)
}

// drop settles the open records for which too says so, counting them under why.
func (p *progress) drop(why batch.Reason, too func(*batch.Slot) bool) (n uint64) {
	var rest []int
	i, all := 0, p.cur.Len()
	for k := range p.cur.Runs {
		r := &p.cur.Runs[k]
		for j := range r.Len() {
			s := r.Slot(j)
			if !too(s) {
				rest = append(rest, i)
			} else if s.Flags&batch.FlagMarker == 0 {
				n++
			}
			i++
		}
	}
	if len(rest) < all {
		p.tally.Dropped[why] += n
		p.keep(rest)
	}
	return n
}

// result ends the following: it returns what the caller of Send is told, err
// being the last error, and hands the tally to it.
func (p *progress) result(err error) error {
	p.whole.Tally = p.tally
	if p.done() {
		return nil
	}
	if p.open == nil {
		return err
	}
	e := batch.Inspect(err)
	if e.Kind == batch.KindReject {
		// What settle left open is exactly what was refused.
		return refused(p.open, err)
	}
	return unsettled(p.whole.Len(), p.open, err)
}

// unsettled returns the error that says that of n records those in open, which
// are ascending, are not settled because of err.
func unsettled(n int, open []int, err error) error {
	e := restate(err)
	switch {
	case len(open) == 0:
		return nil
	case len(open) == n:
		if e.Kind == batch.KindPrefix || e.Kind == batch.KindPartial {
			e.Kind = batch.KindRetry
		}
		e.Acked, e.Records = 0, nil
	case n-open[0] == len(open): // the last ones
		e.Kind, e.Acked, e.Records = batch.KindPrefix, open[0], nil
	default:
		e.Kind, e.Acked, e.Records = batch.KindPartial, 0, open
	}
	return &e
}

// refused returns the error that says that the named records were refused for
// good because of err, and all others are settled.
func refused(records []int, err error) error {
	e := restate(err)
	e.Kind, e.Acked, e.Records = batch.KindReject, 0, records
	return &e
}

// restate returns the result err as a value to change: its cause is kept with
// all that was wrapped around it.
func restate(err error) batch.SendError {
	e := batch.Inspect(err)
	if _, plain := err.(*batch.SendError); !plain {
		e.Err = err
	}
	return e
}

// An assembly puts the results of Sends of parts of a batch together to one.
type assembly struct {
	b       *batch.Batch
	tally   batch.Tally
	open    []int // not settled
	refused []int // refused for good
	err     error // why records are open
	refusal error
}

// add notes that part, the records of b from i on, was sent with result err. It
// reports whether all of them were settled or refused, so that it makes sense to
// go on behind them.
func (a *assembly) add(i int, part *batch.Batch, err error) bool {
	rest := left(part.Len(), err)
	a.tally.Add(tallied(part, part.Len()-len(rest)))
	if len(rest) == 0 {
		return true
	}
	for k := range rest {
		rest[k] += i
	}
	if batch.Inspect(err).Kind == batch.KindReject {
		a.refused, a.refusal = append(a.refused, rest...), err
		return true
	}
	a.open, a.err = append(a.open, rest...), err
	return false
}

// stop notes that the records from i up to, but not including, j were not sent
// because of err.
func (a *assembly) stop(i, j int, err error) {
	a.open, a.err = span(a.open, i, j), err
}

// result returns what the caller of Send is told, and hands the tally to it.
// Refused records are named only if nothing is open; otherwise they count as
// open: the destination will refuse them again.
func (a *assembly) result() error {
	a.b.Tally = a.tally
	if len(a.open) == 0 {
		if len(a.refused) == 0 {
			return nil
		}
		return refused(a.refused, a.refusal)
	}
	if len(a.refused) > 0 {
		a.open = append(a.open, a.refused...)
		slices.Sort(a.open)
	}
	return unsettled(a.b.Len(), a.open, a.err)
}
