package deliver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/backoff"
)

// Defaults of [RetryOptions].
const (
	DefaultRetryMin   = 200 * time.Millisecond
	DefaultRetryMax   = 30 * time.Second
	DefaultFatalDelay = time.Minute
	DefaultMaxAge     = 24 * time.Hour
)

// RetryOptions configures a [Retry]. The zero value is useful: each field states
// its default and unit.
type RetryOptions struct {
	// Name stands in events. Default "deliver".
	Name string
	// Min and Max bound the delay before an attempt: the first is uniform in
	// [0, Min], each later one in a range twice as wide, up to [0, Max].
	// Defaults 200 ms and 30 s.
	Min, Max time.Duration
	// FatalDelay is the least delay after [batch.Fatal]. Default 1 min.
	FatalDelay time.Duration
	// MaxAge is the age from which a record that failed is dropped with
	// [batch.Expired] rather than sent again. Age counts from Meta.Time. It counts
	// from the first attempt where that is unknown, and where the record was older
	// than MaxAge when the Retry was made: it comes out of an archive, or the
	// process before was long dead. A wait ends for records whose time has come,
	// to a second, whatever the destination asked for. Default 24 h; negative: no
	// limit.
	MaxAge time.Duration
	// Budget bounds retries; share one between several. Default: one of its own
	// (see [NewBudget]).
	Budget *Budget
	// OnError is told of transitions: "send" at the first failure of a row,
	// "hold" at the first of a row that is [batch.Fatal], "recovered" at the end
	// of the row, "expired" at the first records of a row that became too old. It runs on a
	// goroutine of its own behind a bounded queue. Default nil: a line on
	// standard error.
	OnError func(batch.Event)
}

// A Retry is a [batch.Sink] that sends again what another Sink could not take.
//
//	          nil                        too old
//	send ────────────▶ settled ◀───────────────────┐
//	  │ ▲                                           │
//	  │ └──────────── delay over ───────────────┐   │
//	  ▼                                          │   │
//	failed ─▶ keep what is not settled ─▶ waiting ───┘
//	  │                                     │
//	  │ Reject, TooLarge                    │ ctx ends
//	  ▼                                     ▼
//	returned with the records concerned   returned as Prefix, Partial or retry
//
// Send returns only when all records are settled, refused, or ctx has ended. The
// delay before attempt n has full jitter, with what the destination asked for
// ([batch.RetryAfter]) as a floor, up to [MaxRetryAfter], and with what the [Budget] says. An answer
// that settled something begins a new row of attempts. [batch.Fatal] waits at
// least FatalDelay. An error that wraps [ErrOpen] waits exactly as long as the
// [Breaker] said and costs nothing of the budget, for nothing was sent.
//
// Order is kept: nothing newer is sent before Send returns. Send may be called
// from several goroutines at once if the Sink within allows that.
type Retry struct {
	inner
	r *retrier
}

// NewRetry returns a Retry around sink. o may be nil.
func NewRetry(sink batch.Sink, o *RetryOptions) (*Retry, error) {
	if sink == nil {
		return nil, errNilSink
	}
	r, err := newRetrier(o, nil, newClosing())
	if err != nil {
		return nil, err
	}
	return &Retry{inner{sink}, r}, nil
}

var errNilSink = errors.New("deliver: sink is nil")

// Send sends b as long as it takes, see [Retry].
func (r *Retry) Send(ctx context.Context, b *batch.Batch) error {
	return r.r.send(ctx, r.sink, b)
}

// Drain makes the waits between attempts short, at most Min: see
// [batch.Drainer].
func (r *Retry) Drain(deadline time.Time) {
	r.r.closing.begin(deadline)
	r.inner.Drain(deadline)
}

// Retries returns how many times something was sent again.
func (r *Retry) Retries() uint64 { return r.r.retries.Load() }

// retrier is the policy of a Retry, apart from the sink.
type retrier struct {
	o       RetryOptions
	budget  *Budget
	events  *events
	closing *closing
	// oldest is the time of a record, in Unix nanoseconds, that was just not too
	// old when the retrier was made.
	oldest int64
	// elsewhere says that something else may take the records while the breaker
	// is open, so that it makes sense to offer them before the next probe.
	elsewhere bool

	retries atomic.Uint64
	expired atomic.Uint64

	mu       sync.Mutex // leaf; guards down to lastErr
	failing  episode
	fatal    episode
	expiring episode
	lastErr  error
	down     atomic.Bool // failing.on, for a look without the lock
}

func newRetrier(opt *RetryOptions, ev *events, c *closing) (*retrier, error) {
	var o RetryOptions
	if opt != nil {
		o = *opt
	}
	setRange(&o.Min, &o.Max, DefaultRetryMin, DefaultRetryMax)
	setDefault(&o.FatalDelay, DefaultFatalDelay)
	setDefault(&o.MaxAge, DefaultMaxAge)
	switch {
	case o.Min < 0:
		return nil, fmt.Errorf("deliver: retry: Min is %s: want more than 0", o.Min)
	case o.Max < o.Min:
		return nil, fmt.Errorf("deliver: retry: Max is %s, below Min, which is %s", o.Max, o.Min)
	case o.FatalDelay < 0:
		return nil, fmt.Errorf("deliver: retry: FatalDelay is %s: want more than 0", o.FatalDelay)
	}
	if o.Budget == nil {
		o.Budget = NewBudget(0, 0)
	}
	if ev == nil {
		ev = newEvents(o.Name, o.OnError)
	}
	return &retrier{
		o: o, budget: o.Budget, events: ev, closing: c,
		oldest: time.Now().Add(-o.MaxAge).UnixNano(),
	}, nil
}

// setRange fills in the bounds that are not given, so that they fit one that is.
func setRange(least, most *time.Duration, defaultLeast, defaultMost time.Duration) {
	setDefault(most, max(defaultMost, *least))
	setDefault(least, min(defaultLeast, *most))
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// send sends b to sink until it is settled.
func (r *retrier) send(ctx context.Context, sink batch.Sink, b *batch.Batch) error {
	err := sink.Send(ctx, b)
	if err == nil {
		r.settled(b, &b.Tally)
		return nil
	}
	return r.again(ctx, sink, b, err)
}

// settled notes that b was settled as t says. That is news of the destination
// only if it took records: all of them may be in a spill, or dropped, or there may
// be nothing but a gap marker, for which no spill reports anything.
func (r *retrier) settled(b *batch.Batch, t *batch.Tally) {
	if t.Taken != 0 || t.Handled != 0 || r.down.Load() && t.Settled() >= countable(b) {
		return
	}
	r.succeeded()
}

// again deals with a b that failed with err.
func (r *retrier) again(ctx context.Context, sink batch.Sink, b *batch.Batch, err error) error {
	var p progress
	p.begin(b)
	began := time.Now()
	for n := 0; ; n++ {
		if p.settle(err) > 0 {
			n = 0
		}
		if p.done() {
			r.settled(p.whole, &p.tally)
			return p.result(nil)
		}
		if isRefusal(err) || ctx.Err() != nil || is(r.closing.over) {
			return p.result(err)
		}
		e := batch.Inspect(err)
		r.failed(err, e.Kind, p.cur.Len())
		if r.expire(&p, began); p.done() {
			return p.result(nil)
		}
		if !r.wait(ctx, r.delay(n, err, &e), &p, began) {
			return p.result(err)
		}
		if p.done() {
			return p.result(nil)
		}
		if !errors.Is(err, ErrOpen) {
			r.retries.Add(1)
		}
		p.cur.Tally = batch.Tally{}
		err = sink.Send(ctx, p.cur)
	}
}

// delay returns the delay before attempt n after err.
func (r *retrier) delay(n int, err error, e *batch.SendError) time.Duration {
	wait := backoff.Jitter(0, backoff.Ceil(r.o.Min, r.o.Max, n))
	if errors.Is(err, ErrOpen) {
		if r.elsewhere {
			return min(e.After, wait)
		}
		return e.After
	}
	d := max(floor(e), wait, r.budget.take(time.Now()))
	if e.Kind == batch.KindFatal {
		d = max(d, r.o.FatalDelay)
	}
	return d
}

// wait waits for d, and meanwhile drops what becomes too old. It reports false if
// ctx ended.
func (r *retrier) wait(ctx context.Context, d time.Duration, p *progress, began time.Time) bool {
	until := time.Now().Add(d)
	for {
		next := r.aging(p, began)
		if left := time.Until(until); next >= left || is(r.closing.hurried) {
			return r.closing.sleep(ctx, left, r.o.Min)
		}
		if !r.closing.sleep(ctx, next, r.o.Min) {
			return false
		}
		if is(r.closing.hurried) { // sleep has been brief
			return true
		}
		if r.expire(p, began); p.done() {
			return true
		}
	}
}

// aging returns the time until the next of the open records is too old, at least
// a second (or a tenth of MaxAge), so that they go in sweeps.
func (r *retrier) aging(p *progress, began time.Time) time.Duration {
	if r.o.MaxAge < 0 {
		return math.MaxInt64
	}
	oldest := int64(math.MaxInt64)
	for k := range p.cur.Runs {
		run := &p.cur.Runs[k]
		for j := range run.Len() {
			t := run.Slot(j).Time
			if t == 0 || t < r.oldest {
				t = began.UnixNano()
			}
			oldest = min(oldest, t)
		}
	}
	if oldest == math.MaxInt64 {
		return math.MaxInt64
	}
	left := time.Until(time.Unix(0, oldest).Add(r.o.MaxAge + 1))
	return max(left, min(time.Second, r.o.MaxAge/10)+1)
}

// expire drops what is too old to be sent again.
func (r *retrier) expire(p *progress, began time.Time) {
	if r.o.MaxAge < 0 {
		return
	}
	now := time.Now()
	limit := now.Add(-r.o.MaxAge).UnixNano()
	unknown := now.Sub(began) > r.o.MaxAge
	n := p.drop(batch.Expired, func(s *batch.Slot) bool {
		if s.Time == 0 || s.Time < r.oldest {
			return unknown
		}
		return s.Time < limit
	})
	if n == 0 {
		return
	}
	r.expired.Add(n)
	r.mu.Lock()
	first := r.expiring.begin()
	r.mu.Unlock()
	if first {
		r.events.post("expired", fmt.Errorf("not delivered within %s", r.o.MaxAge), n)
	}
}

// succeeded notes that the destination took a batch.
func (r *retrier) succeeded() {
	r.budget.success()
	if !r.down.Load() {
		return
	}
	r.mu.Lock()
	end := r.failing.end()
	r.fatal.end()
	r.expiring.end()
	r.lastErr = nil
	r.down.Store(false)
	r.mu.Unlock()
	if end {
		r.events.post("recovered", nil, 0)
	}
}

// failed notes a failed attempt and reports the first of a row.
func (r *retrier) failed(err error, kind batch.Kind, n int) {
	r.mu.Lock()
	first := r.failing.begin()
	alarm := kind == batch.KindFatal && r.fatal.begin()
	r.lastErr = err
	r.down.Store(true)
	r.mu.Unlock()
	if alarm {
		r.events.post("hold", err, uint64(n))
	} else if first {
		r.events.post("send", err, uint64(n))
	}
}

// lastError returns the error of the failure under way, nil if there is none.
func (r *retrier) lastError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastErr
}
