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

// A sender is a destination for tests. Send returns the outcome of a batch.
type sender interface {
	Send(ctx context.Context, b *batch.Batch) batch.Outcome
}

// sendFunc is a function that implements sender.
type sendFunc func(ctx context.Context, b *batch.Batch) batch.Outcome

func (f sendFunc) Send(ctx context.Context, b *batch.Batch) batch.Outcome { return f(ctx, b) }

// failed returns the outcome of a batch without accepted records.
func failed() batch.Outcome { return batch.FailedOutcome(errDown) }

// partly returns the outcome of a batch whose first n records were accepted.
func partly(n int) batch.Outcome { return batch.Outcome{Open: batch.From(n), Why: errDown} }

// refused returns the outcome of a batch whose given records are refused; all other records are
// accepted.
func refused(records ...int) batch.Outcome {
	return batch.Outcome{Refused: batch.Of(records...), Refusal: errDown}
}

// bare is a consumer that settles each lease immediately and has no optional features.
type bare struct{}

func (bare) Wants() wants                                         { return wants{} }
func (bare) Account(read func(batch.Account))                     { read(batch.Account{}) }
func (bare) Held([16]byte, uint64, uint64) []layout.Tickets       { return nil }
func (bare) Flush(context.Context) error                          { return nil }
func (bare) Sync(context.Context) error                           { return nil }
func (bare) Drain(time.Time)                                      {}
func (bare) Shutdown(context.Context) (r batch.Report, err error) { return r, nil }
func (bare) Accept(_ context.Context, l *Lease) error {
	l.Settle(l.Batch().Len())
	l.Release()
	return nil
}

// A retrier is a consumer that sends each lease repeatedly until all records of the lease are
// settled or Shutdown ends. If Wants.Inline is set, it sends within Accept. If not, it sends on a
// separate goroutine, in the order of the leases. If a destination panics or calls runtime.Goexit,
// the retrier assumes that no record was settled.
type retrier struct {
	wants wants
	wait  time.Duration // delay between two attempts
	most  int           // maximum number of unsettled leases; not used inline

	refuse func() bool // reports whether Accept returns an error; nil: Accept returns none
	dest   sender
	to     io.Writer // used instead of dest; after a partial write, the rest of the line is written

	// Optional methods of the destination, or nil.
	held  func(origin [16]byte, first, last uint64) []layout.Tickets
	flush func(context.Context) error
	sync  func() error
	drain func(time.Time)
	end   func(context.Context) (batch.Report, error)

	now *delivery // the delivery in Accept, even after Accept has ended its goroutine

	mu      sync.Mutex
	acc     batch.Account
	queue   []*delivery // unsettled leases, oldest first; not used inline
	changed chan struct{}
	taken   uint64 // number of leases added to queue
	done    uint64 // number of settled leases
	running bool
	over    bool // Shutdown has accounted for the remaining records
	ctx     context.Context
	cancel  context.CancelFunc
}

// A delivery is a lease with the progress of its delivery.
type delivery struct {
	l       *Lease
	marker  bool
	open    []int // indexes of the unsettled records
	written int   // number of bytes of the next record that are written
	busy    bool  // Send is in progress
	ended   bool  // Shutdown has settled the lease, so later answers are ignored
}

// consumerFor returns a retrier for a sender or an io.Writer. It uses the optional methods of that
// value.
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
		Held([16]byte, uint64, uint64) []layout.Tickets
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

func (c *retrier) Held(origin [16]byte, first, last uint64) []layout.Tickets {
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

// deliver sends d until all its records are settled or ctx has ended.
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

// write writes the unwritten bytes of b, and stops at the first error.
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

// unwritten returns the outcome of the records of d after a partial write.
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

// settleLocked accounts for the outcome of an attempt. Indexes outside the batch are ignored.
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
	accounted := uint64(n - len(open))
	if d.marker || !d.l.Settle(int(accounted)) {
		return
	}
	c.acc.Dropped[batch.Poison] += refused
	c.acc.Delivered += accounted - refused
	c.acc.Accepted += accounted
}

// ---- on a separate goroutine ------------------------------------------------

// changeLocked wakes all goroutines that wait for a change of the queue.
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

// run delivers the leases in the queue. If the destination calls runtime.Goexit, run starts again.
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
		if over && !settled && !ended { // Shutdown accounts for the remaining records
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

// settledSoFar waits until all leases currently in the queue are settled.
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

// Shutdown delivers the queue until ctx ends. If the Writer keeps the remaining records, they are
// returned to it; if not, they are dropped. Records that the destination is processing at that time
// count as unknown.
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
		time.Sleep(consumerGrace) // gives a destination that obeys its context time to return
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

// consumerGrace is how long a destination may take to return after the deadline.
const consumerGrace = time.Millisecond

// mustNew returns a pump (a Writer with its consumer) for an io.Writer.
func mustNew(t testing.TB, dst io.Writer, o *slab.Options) *pump {
	t.Helper()
	return mustSink(t, dst, o)
}
