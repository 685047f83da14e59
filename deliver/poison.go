package deliver

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// PoisonOptions configures a [Poison]. The zero value is useful: each field
// states its default and unit.
type PoisonOptions struct {
	// Name stands in events. Default "deliver".
	Name string
	// DeadLetter is handed the records that the destination refused for good,
	// with the error it gave; see [DeadLetters]. Default nil: they are only
	// counted.
	DeadLetter ErrorHandler
	// HandlerTimeout is how long DeadLetter may take. Default 10 s.
	HandlerTimeout time.Duration
	// OnError is told of the first refused records of a row ("poison"), of a
	// batch that was too large ("too-large"), and of a DeadLetter that fails
	// ("dead-letter", first of a row). It runs on a goroutine of its own behind a
	// bounded queue. Default nil: a line on standard error.
	OnError func(batch.Event)
}

// A Poison is a [batch.Sink] that finds the records another Sink refuses for
// good, drops them with [batch.Poison] and delivers all others.
//
//	Reject with records  those are dropped
//	Reject of a batch    the batch is halved until the records at fault are found
//	TooLarge             the batch is halved, and the new size is remembered
//
// Bisecting a batch of n records costs about 2·log2(n) requests for each record at
// fault, however many there are: a record is dropped only after it was refused
// alone, because a batch may have been refused for what its records had in common.
//
// A destination that refuses everything is recognised. After 2·log2(n) + 8 requests
// that were all refused, up to eight records from different places of what is left
// are sent alone; if all of these are refused too, what is left is dropped with the
// last refusal, else the search goes on. A record that is taken in such a survey
// precedes older ones of its batch; otherwise order is kept.
//
// After TooLarge no batch is sent that has more payload bytes than half of the
// one that was too large, until 256 that were cut to size went through; then the
// size grows by a quarter. A single record that is too large is dropped.
//
// Dropped records are counted in Tally.Dropped, whether the dead letter could be
// written or not. Everything else (failures that may be retried) is returned as
// [batch.Prefix] or [batch.Partial], with what was settled before. Send may be
// called from several goroutines at once if the Sink within allows that.
type Poison struct {
	inner
	g      *guarded // nil: no dead letters
	events *events
	naming bool // refused records are named to the caller, not dropped

	cap        atomic.Int64 // payload bytes per Send; 0: no cap
	streak     atomic.Int64 // Sends cut to size that went through since cap changed
	dropped    atomic.Uint64
	unburied   atomic.Uint64
	poisoned   atomic.Bool // records were dropped and no whole batch was taken since
	deadFailed atomic.Bool // the last dead letter could not be written
}

// NewPoison returns a Poison around sink. o may be nil.
func NewPoison(sink batch.Sink, o *PoisonOptions) (*Poison, error) {
	if o == nil {
		o = &PoisonOptions{}
	}
	return newPoison(sink, *o, newEvents(o.Name, o.OnError))
}

func newPoison(sink batch.Sink, o PoisonOptions, ev *events) (*Poison, error) {
	setDefault(&o.HandlerTimeout, DefaultHandlerTimeout)
	if sink == nil {
		return nil, errNilSink
	}
	if o.HandlerTimeout < 0 {
		return nil, fmt.Errorf("deliver: poison: HandlerTimeout is %s: want more than 0", o.HandlerTimeout)
	}
	p := &Poison{inner: inner{sink}, events: ev}
	if o.DeadLetter != nil {
		p.g = newGuarded(o.DeadLetter, o.HandlerTimeout)
	}
	return p, nil
}

const (
	// capStreak is after how many Sends that were cut to size the size grows.
	capStreak = 256
	// noCap is the size from which there is no cap any more.
	noCap = 64 << 20
)

// Send sends b, see [Poison].
func (p *Poison) Send(ctx context.Context, b *batch.Batch) error {
	if limit := p.cap.Load(); limit != 0 && int64(b.Bytes()) > limit && b.Len() > 1 {
		return p.search(ctx, b, nil)
	}
	err := p.sink.Send(ctx, b)
	if err == nil {
		if p.poisoned.Load() {
			p.poisoned.Store(false)
		}
		return nil
	}
	if isRefusal(err) {
		return p.search(ctx, b, err)
	}
	return err
}

// bound returns the payload bytes that one Send may have, 0 if there is no bound.
func (p *Poison) bound() int { return int(p.cap.Load()) }

// bury writes the dead letter of the records of b and returns how many count.
func (p *Poison) bury(ctx context.Context, b *batch.Batch, cause error) uint64 {
	n := countable(b)
	if p.poisoned.CompareAndSwap(false, true) {
		p.events.post("poison", cause, n)
	}
	p.dropped.Add(n)
	if p.g == nil {
		return n
	}
	o := p.g.call(ctx, cause, b)
	if o.err == nil {
		p.deadFailed.Store(false)
		return n
	}
	p.unburied.Add(countSome(b, left(b.Len(), o.err)))
	if p.deadFailed.CompareAndSwap(false, true) {
		p.events.post("dead-letter", o.err, n)
	}
	return n
}

// lower notes that b was too large.
func (p *Poison) lower(b *batch.Batch, err error) {
	p.cap.Store(max(1, int64(b.Bytes()/2)))
	p.streak.Store(0)
	p.events.post("too-large", err, countable(b))
}

// wentThrough notes that a part of size bytes was taken.
func (p *Poison) wentThrough(size int) {
	limit := p.cap.Load()
	if limit == 0 || int64(size) < limit/2 || p.streak.Add(1) < capStreak {
		return
	}
	p.streak.Store(0)
	if limit += max(1, limit/4); limit >= noCap {
		limit = 0
	}
	p.cap.Store(limit)
}

// Dropped returns how many records were dropped.
func (p *Poison) Dropped() uint64 { return p.dropped.Load() }

// Unburied returns how many dropped records have no dead letter because
// DeadLetter failed.
func (p *Poison) Unburied() uint64 { return p.unburied.Load() }
