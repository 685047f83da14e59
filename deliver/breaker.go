package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// BreakerOptions configures a [Breaker]. The zero value is useful: each field
// states its default and unit.
type BreakerOptions struct {
	// Failures is how many failures in a row open the breaker. Default 5.
	// Independent of it, 10 failures among the last 20 results do.
	Failures int
	// OpenMin and OpenMax bound how long the breaker stays open before it
	// probes: half to the whole of OpenMin at first, twice as long each time the
	// probe fails, up to OpenMax. What the destination asked for
	// ([batch.RetryAfter]) is a floor, up to [MaxRetryAfter]. Defaults 1 s and
	// 1 min.
	OpenMin, OpenMax time.Duration
	// FatalDelay is the least time it stays open after [batch.Fatal], which
	// opens it at once. Default 1 min.
	FatalDelay time.Duration
	// ProbeRecords is how many records of a batch are sent as a probe. Default
	// 10.
	ProbeRecords int
	// Successes is how many probes in a row must succeed. Default 2.
	Successes int
}

func (o *BreakerOptions) resolve() (BreakerOptions, error) {
	var r BreakerOptions
	if o != nil {
		r = *o
	}
	setDefault(&r.Failures, DefaultBreakerFailures)
	setRange(&r.OpenMin, &r.OpenMax, DefaultBreakerOpenMin, DefaultBreakerOpenMax)
	setDefault(&r.FatalDelay, DefaultFatalDelay)
	setDefault(&r.ProbeRecords, DefaultBreakerProbe)
	setDefault(&r.Successes, DefaultBreakerSuccesses)
	switch {
	case r.Failures < 0:
		return r, fmt.Errorf("deliver: breaker: Failures is %d: want 1 or more", r.Failures)
	case r.OpenMin < 0:
		return r, fmt.Errorf("deliver: breaker: OpenMin is %s: want more than 0", r.OpenMin)
	case r.OpenMax < r.OpenMin:
		return r, fmt.Errorf("deliver: breaker: OpenMax is %s, below OpenMin, which is %s", r.OpenMax, r.OpenMin)
	case r.FatalDelay < 0:
		return r, fmt.Errorf("deliver: breaker: FatalDelay is %s: want more than 0", r.FatalDelay)
	case r.ProbeRecords < 0:
		return r, fmt.Errorf("deliver: breaker: ProbeRecords is %d: want 1 or more", r.ProbeRecords)
	case r.Successes < 0:
		return r, fmt.Errorf("deliver: breaker: Successes is %d: want 1 or more", r.Successes)
	}
	return r, nil
}

// A Breaker is a [batch.Sink] that stops sending to a destination that is down,
// so that neither waits for the other.
//
//		  5 failures in a row, 10 of the last 20, Fatal, or Retry-After of 5 s or more
//		closed ──────────────────────────────────────────────────▶ open ◀─┐
//		   ▲                                                        │      │
//		   │ 2 successes              time over, someone sends      │      │ failure
//		   └───────────────────────── half-open ◀───────────────────┘      │
//		                                  └────────────────────────────────┘
//
//	  - closed: everything goes through.
//	  - open: Send returns at once an error that wraps [ErrOpen] and says, as a
//	    [batch.RetryAfter], when it makes sense to come again.
//	  - half-open: the first ProbeRecords records of a batch are sent, one such
//	    probe at a time. After the last success the rest of the batch follows in
//	    parts that grow twofold, until a batch fits whole (ramp-up). A Send that
//	    fails in the middle returns [batch.Prefix] or [batch.Partial].
//
// A destination that refuses records (Reject, TooLarge) is well. One that takes
// a part of a batch before it fails counts neither as well nor as failed, and so
// does a Send whose ctx ended. A Send that was admitted before the last transition
// counts for nothing when it returns: the probe alone decides. The Send that opens the breaker returns the
// destination's own error, wrapping ErrOpen too.
//
// A [Poison] belongs within a Breaker, not around it: otherwise a probe that is
// refused is searched after what came behind it was delivered.
//
// Use one Breaker per destination. Send may be called from several goroutines at
// once if the Sink within allows that.
type Breaker struct {
	inner
	c *circuit
}

// NewBreaker returns a closed Breaker around sink. o may be nil.
func NewBreaker(sink batch.Sink, o *BreakerOptions) (*Breaker, error) {
	if sink == nil {
		return nil, errNilSink
	}
	r, err := o.resolve()
	if err != nil {
		return nil, err
	}
	return &Breaker{inner{sink}, &circuit{o: r}}, nil
}

// Send sends b, or a part of it, or nothing: see [Breaker].
func (k *Breaker) Send(ctx context.Context, b *batch.Batch) error {
	n := b.Len()
	if n == 0 {
		return nil
	}
	may, epoch, wait := k.c.admit(n)
	if may == n {
		return k.try(ctx, b, epoch, n, n)
	}
	a := assembly{b: b}
	var part batch.Batch
	for at := 0; at < n; {
		if at > 0 {
			may, epoch, wait = k.c.admit(n - at)
		}
		if may == 0 {
			a.stop(at, n, &batch.SendError{Kind: batch.KindRetry, After: wait, Err: &openError{k.c.lastCause()}})
			break
		}
		part.Reset()
		err := k.try(ctx, b.Slice(&part, at, at+may), epoch, may, n)
		more := a.add(at, &part, err)
		if at += may; !more {
			if at < n {
				a.stop(at, n, err)
			}
			break
		}
	}
	return a.result()
}

// try sends b, which has may of the n records of a batch and was admitted in
// epoch, and tells the circuit.
func (k *Breaker) try(ctx context.Context, b *batch.Batch, epoch uint64, may, n int) (err error) {
	returned := false
	defer func() {
		if !returned { // a panic or Goexit of the sink: it goes on, but the probe is over
			k.c.observe(epoch, failure, may, n, errNoReturn)
		}
	}()
	err = k.sink.Send(ctx, b)
	returned = true
	wait, opened := k.c.observe(epoch, judge(ctx, may, err), may, n, err)
	if !opened {
		return err
	}
	e := restate(err)
	e.Err = &openError{e.Err}
	e.After = wait // what the destination asked for is in it
	return &e
}

var errNoReturn = errors.New("destination panicked or called runtime.Goexit")

// State returns the state.
func (k *Breaker) State() State {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return k.c.state
}

// Trips returns how many times the breaker has opened.
func (k *Breaker) Trips() uint64 {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return k.c.trips
}

// Subscribe returns a channel of transitions and a function that ends the
// subscription and closes the channel; it may be called twice. The channel holds
// 16 transitions. Delivery never waits for a subscriber: one that is slower
// loses the oldest, see [Transition].Lost and [Breaker.Lost]. Close closes the
// channels of all subscribers; after it, Subscribe returns a closed one.
func (k *Breaker) Subscribe() (transitions <-chan Transition, cancel func()) {
	return k.c.subscribe()
}

// Lost returns how many transitions subscribers have lost, all together.
func (k *Breaker) Lost() uint64 {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return k.c.lost
}

// Close ends all subscriptions and closes the sink within, if it can be closed.
// The state machine goes on working. Close may be called twice.
func (k *Breaker) Close(ctx context.Context) error {
	k.c.close()
	return k.inner.Close(ctx)
}
