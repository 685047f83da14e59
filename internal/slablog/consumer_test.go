package slablog

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// A sender is a destination of tests. Send returns the outcome of a batch.
type sender interface {
	Send(ctx context.Context, b *batch.Batch) batch.Outcome
}

// sendFunc is a function as a sender.
type sendFunc func(ctx context.Context, b *batch.Batch) batch.Outcome

func (f sendFunc) Send(ctx context.Context, b *batch.Batch) batch.Outcome { return f(ctx, b) }

// failed is the outcome of a batch of which no record was accepted.
func failed() batch.Outcome { return batch.FailedOutcome(errDown) }

// partly is the outcome of a batch of which the first n records were accepted.
func partly(n int) batch.Outcome { return batch.Outcome{Open: batch.From(n), Why: errDown} }

// refused is the outcome of a batch of which records are refused and the others accepted.
func refused(records ...int) batch.Outcome {
	return batch.Outcome{Refused: batch.Of(records...), Refusal: errDown}
}

// bare is a consumer that settles each lease at once and has no optional features.
type bare struct{}

func (bare) Wants() wants                                         { return wants{} }
func (bare) Account(read func(batch.Account))                     { read(batch.Account{}) }
func (bare) Held([16]byte, uint64, uint64) []batch.Tickets        { return nil }
func (bare) Flush(context.Context) error                          { return nil }
func (bare) Sync(context.Context) error                           { return nil }
func (bare) Drain(time.Time)                                      {}
func (bare) Shutdown(context.Context) (r batch.Report, err error) { return r, nil }
func (bare) Accept(_ context.Context, l *Lease) error {
	l.Settle(l.Batch().Len())
	l.Release()
	return nil
}

// A retrier is a consumer that retries until all records of a lease are settled or its time is over:
// within Accept or, unless Wants.Inline is set, on a separate goroutine, in order. A destination that
// panics or ends its goroutine has settled nothing.
type retrier struct {
	wants wants
	wait  time.Duration // between two attempts
	most  int           // leases at a time if it is not inline

	refuse func() bool // reports whether Accept fails; nil: never
	dest   sender
	to     io.Writer // instead of dest; lines are neither torn nor duplicated

	// Optional methods of the destination; nil: none.
	held  func(origin [16]byte, first, last uint64) []batch.Tickets
	flush func(context.Context) error
	sync  func() error
	drain func(time.Time)
	end   func(context.Context) (batch.Report, error)

	now *delivery // in Accept, or in the Accept that ended its goroutine

	mu      sync.Mutex
	acc     batch.Account
	queue   []*delivery // not settled, oldest first; if it is not inline
	changed chan struct{}
	taken   uint64 // leases added to queue so far
	done    uint64 // of them settled
	running bool
	over    bool // Shutdown has settled the remaining records
	ctx     context.Context
	cancel  context.CancelFunc
}

// A delivery is the progress of a lease.
type delivery struct {
	l       *Lease
	marker  bool
	open    []int // indexes of the records that are not settled
	written int   // bytes
	busy    bool  // the destination has it
	ended   bool  // Shutdown has settled it: later answers do not count
}

// consumerFor returns a retrier for a sender or an io.Writer, which may have some methods of a
// consumer. A writer with Writev gets several slabs at once.
func consumerFor(dst any) *retrier {
	c := &retrier{wants: wants{Inline: true}, wait: 10 * time.Millisecond, most: 4}
	switch d := dst.(type) {
	case sender:
		c.dest = d
	case io.Writer:
		c.to = d
		_, c.wants.Vectors = dst.(interface {
			Writev([][]byte) (int64, error)
		})
	default:
		panic(fmt.Sprintf("%T is no destination", dst))
	}
	if d, ok := dst.(interface{ Limits() batch.Limits }); ok {
		c.wants.Limits = d.Limits()
	}
	switch d := dst.(type) {
	case batch.Dictionary:
		c.wants.Dictionary = d
	case interface{ Dictionary() batch.Dictionary }:
		c.wants.Dictionary = d.Dictionary()
	}
	if d, ok := dst.(interface {
		Held([16]byte, uint64, uint64) []batch.Tickets
	}); ok {
		c.held = d.Held
	}
	switch d := dst.(type) {
	case interface{ Flush() error }:
		c.flush = func(context.Context) error { return d.Flush() }
	case interface{ Flush(context.Context) error }:
		c.flush = d.Flush
	}
	if d, ok := dst.(interface{ Sync() error }); ok {
		c.sync = d.Sync
	}
	if d, ok := dst.(interface{ Drain(time.Time) }); ok {
		c.drain = d.Drain
	}
	switch d := dst.(type) {
	case interface{ Close(context.Context) error }:
		c.end = func(ctx context.Context) (batch.Report, error) { return batch.Report{}, d.Close(ctx) }
	case interface {
		Shutdown(context.Context) (batch.Report, error)
	}:
		c.end = d.Shutdown
	}
	return c
}

func (c *retrier) Wants() wants { return c.wants }

func (c *retrier) Account(read func(batch.Account)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	read(c.acc)
}

func (c *retrier) Held(origin [16]byte, first, last uint64) []batch.Tickets {
	if c.held == nil {
		return nil
	}
	return c.held(origin, first, last)
}

func (c *retrier) Drain(deadline time.Time) {
	if c.drain != nil {
		c.drain(deadline)
	}
}

func (c *retrier) Sync(context.Context) error {
	if c.sync == nil {
		return nil
	}
	return c.sync()
}

func (c *retrier) Flush(ctx context.Context) error {
	if err := c.settledSoFar(ctx); err != nil {
		return err
	}
	if c.flush == nil {
		return nil
	}
	return c.flush(ctx)
}

func (c *retrier) Accept(ctx context.Context, l *Lease) error {
	goesOn := c.wants.Inline && c.now != nil && c.now.l == l
	if !goesOn && c.refuse != nil && c.refuse() {
		return errDown
	}
	if !c.wants.Inline {
		return c.take(ctx, l)
	}
	d := c.now
	if !goesOn {
		d = newDelivery(l)
		c.now = d
	}
	c.deliver(ctx, d)
	c.now = nil
	l.Release()
	if d.marker && len(d.open) > 0 {
		return context.Cause(ctx)
	}
	return nil
}

func newDelivery(l *Lease) *delivery {
	d := &delivery{l: l, open: make([]int, l.Batch().Len())}
	for i := range d.open {
		d.open[i] = i
	}
	d.marker = l.Batch().Runs[0].Slot(0).Flags&layout.FlagMarker != 0
	return d
}

// deliver attempts until nothing of d is left or ctx has ended.
func (c *retrier) deliver(ctx context.Context, d *delivery) {
	for c.left(d) > 0 && ctx.Err() == nil {
		c.attempt(ctx, d)
		if c.left(d) == 0 {
			return
		}
		pause := time.NewTimer(c.wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

func (c *retrier) left(d *delivery) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.ended {
		return 0
	}
	return len(d.open)
}

func (c *retrier) attempt(ctx context.Context, d *delivery) {
	c.mu.Lock()
	if d.ended {
		c.mu.Unlock()
		return
	}
	d.busy = true
	c.mu.Unlock()
	defer func() {
		_ = recover()
		c.mu.Lock()
		defer c.mu.Unlock()
		d.busy = false
		if c.to != nil {
			c.settleLocked(d, d.unwritten())
		}
	}()
	b := d.l.Batch()
	if c.to != nil {
		d.write(c.to, b)
		return
	}
	if len(d.open) < b.Len() {
		b = b.Select(nil, d.open)
	}
	o := c.dest.Send(ctx, b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settleLocked(d, o)
}

// write writes what is missing of b, until the first error.
func (d *delivery) write(to io.Writer, b *batch.Batch) {
	skip := d.written
	for i := range b.Runs {
		data := b.Runs[i].Data()
		from := min(skip, len(data))
		skip -= from
		for from < len(data) {
			n, err := to.Write(data[from:])
			n = min(max(n, 0), len(data)-from)
			d.written += n
			from += n
			if err != nil || n == 0 {
				return
			}
		}
	}
}

// unwritten is what became of the open records of d, of which the first are written.
func (d *delivery) unwritten() batch.Outcome {
	end, k := 0, 0
	for i, r := range d.l.Batch().All() {
		if end += len(r.Data); end > d.written {
			break
		}
		if i >= d.open[0] {
			k++
		}
	}
	return partly(k)
}

// settleLocked accounts for an attempt. What makes no sense is not believed.
func (c *retrier) settleLocked(d *delivery, o batch.Outcome) {
	n := len(d.open)
	if d.ended || o.Check(n) != nil {
		return
	}
	open := make([]int, 0, o.Open.Len(n))
	var refused uint64
	for i, k := range d.open {
		if o.Open.Has(i) {
			open = append(open, k)
		} else if o.Refused.Has(i) {
			refused++
		}
	}
	d.open = open
	gone := uint64(n - len(open))
	if d.marker || !d.l.Settle(int(gone)) {
		return
	}
	c.acc.Dropped[batch.Poison] += refused
	c.acc.Delivered += gone - refused
	c.acc.Accepted += gone
}

// ---- not inline -----------------------------------------------------------

// change wakes whoever waits for a change of the queue.
func (c *retrier) changeLocked() {
	if c.changed != nil {
		close(c.changed)
	}
	c.changed = make(chan struct{})
}

func (c *retrier) take(ctx context.Context, l *Lease) error {
	d := newDelivery(l)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.ctx, c.cancel = context.WithCancel(context.Background())
		c.changeLocked()
	}
	for ctx.Err() == nil {
		if len(c.queue) < c.most {
			c.queue = append(c.queue, d)
			c.taken++
			if !c.running {
				c.running = true
				go c.run()
			}
			c.changeLocked()
			return nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	return context.Cause(ctx)
}

// run delivers what is in the queue. A Goexit of the destination starts it again.
func (c *retrier) run() {
	finished := false
	defer func() {
		if !finished {
			go c.run()
		}
	}()
	for {
		c.mu.Lock()
		if c.now == nil {
			if len(c.queue) == 0 {
				c.running = false
				c.mu.Unlock()
				break
			}
			c.now = c.queue[0]
		}
		d := c.now
		c.mu.Unlock()
		c.deliver(c.ctx, d)
		c.mu.Lock()
		settled := !d.ended && len(d.open) == 0
		if settled {
			c.queue = slices.DeleteFunc(c.queue, func(q *delivery) bool { return q == d })
		}
		over := c.ctx.Err() != nil
		ended := d.ended
		if over && !settled && !ended { // Shutdown takes it
			c.running = false
			c.now = nil
			c.mu.Unlock()
			break
		}
		c.now = nil
		c.mu.Unlock()
		if settled {
			c.mu.Lock()
			c.done++
			c.changeLocked()
			c.mu.Unlock()
		}
		d.l.Release()
	}
	finished = true
}

// settledSoFar waits until what was taken before is settled.
func (c *retrier) settledSoFar(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for taken := c.taken; c.done < taken && !c.over; {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			return context.Cause(ctx)
		}
	}
	return nil
}

// Shutdown delivers what there is until ctx ends. What is left then is the Writer's
// again, or dropped: also what the destination is just reading, which nobody knows of.
func (c *retrier) Shutdown(ctx context.Context) (batch.Report, error) {
	r := c.conclude(ctx)
	if c.end == nil {
		return r, nil
	}
	theirs, err := c.end(ctx)
	r.Unknown += theirs.Unknown
	return r, err
}

func (c *retrier) conclude(ctx context.Context) batch.Report {
	if err := c.settledSoFar(ctx); err != nil {
		c.cancel()
		time.Sleep(consumerGrace) // for a destination that hears of it
	}
	var ends []*Lease
	var unknown uint64
	c.mu.Lock()
	for _, d := range c.queue {
		d.ended = true
		left := uint64(len(d.open))
		if d.busy {
			unknown += left
		}
		if !d.marker && !d.l.Keeps() && d.l.Settle(int(left)) {
			c.acc.Accepted += left
			c.acc.Dropped[batch.Shutdown] += left
		}
		if d != c.now {
			ends = append(ends, d.l)
		}
	}
	c.queue, c.over = nil, true
	if c.changed != nil {
		c.changeLocked()
	}
	r := batch.Report{Account: c.acc, Unknown: unknown}
	c.mu.Unlock()
	for _, l := range ends {
		l.Release()
	}
	return r
}

// consumerGrace is how long a retrier waits for a destination once its time is over.
const consumerGrace = time.Millisecond

// mustNew returns a pump to an io.Writer.
func mustNew(t testing.TB, dst io.Writer, o *slab.Options) *pump {
	t.Helper()
	return mustSink(t, dst, o)
}
