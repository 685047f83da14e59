package slablog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/closetime"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/plural"
	"github.com/forebay-log/forebay/slab"
)

// A consumer is a destination for tests that gets leases from a pump.
type consumer interface {
	// Wants returns the limits and features that the consumer requires.
	Wants() wants
	// Accept accepts l. If it returns an error, it has settled nothing, and the pump calls Accept
	// again.
	Accept(ctx context.Context, l *Lease) error
	// Account calls read with the account of the settled records, under the lock that is held
	// during Settle.
	Account(read func(batch.Account))
	Held(origin [16]byte, first, last uint64) []layout.Tickets
	Flush(ctx context.Context) error
	Sync(ctx context.Context) error
	Drain(deadline time.Time)
	Shutdown(ctx context.Context) (batch.Report, error)
}

type wants struct {
	Limits     batch.Limits
	Dictionary batch.Dictionary
	Inline     bool // Shutdown with little time runs during the writes
	Vectors    bool
	Spills     bool
}

// A pump is a Writer with a goroutine that passes its leases to a consumer, as package deliver does
// outside of tests.
type pump struct {
	*Writer
	log *Log
	to  consumer

	ctx      context.Context
	giveUp   context.CancelFunc
	done     chan struct{} // closed when the goroutine has ended
	reported chan struct{} // closed when Shutdown has ended
	report   batch.Report
	err      error

	now   *Lease // the lease passed to Accept
	timer *time.Timer

	mu      sync.Mutex
	ops     []*op
	begun   bool // Shutdown has been called
	unknown uint64
	endErr  error
}

// An op is a waiting Flush or Sync.
type op struct {
	target uint64
	sync   bool
	ch     chan error // capacity 1
}

// These are the points of a pump. They complement those of points.go.
const (
	ptTimer       = "timer"       // the time returned by Due has come
	ptSend        = "send"        // before the consumer is called
	ptSent        = "sent"        // after the consumer was called
	ptPause       = "pause"       // before the next attempt
	ptDo          = "do"          // before a Flush or Sync is performed
	ptFlushQueued = "flushQueued" // before a Flush or Sync waits
)

var errGoexit = errors.New("destination called runtime.Goexit")

// newPump returns a pump for a consumer, or for a value that consumerFor accepts.
func newPump(dst any, o *slab.Options) (*pump, error) {
	to := toConsumer(dst)
	want := to.Wants()
	w, l, err := New(o, Consumer{
		Limits: want.Limits, Dictionary: want.Dictionary, Several: want.Inline, Vectors: want.Vectors,
		Held: to.Held, Spills: want.Spills, Helps: true,
	})
	if err != nil {
		return nil, err
	}
	p := &pump{Writer: w, log: l, to: to, done: make(chan struct{}), reported: make(chan struct{}), timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	p.ctx, p.giveUp = context.WithCancel(context.Background())
	if a, ok := to.(interface{ attach(*Log) }); ok {
		a.attach(l)
	}
	go p.run()
	return p, nil
}

// toConsumer returns dst if it is a consumer, and otherwise a retrier for dst.
func toConsumer(dst any) consumer {
	if c, ok := dst.(consumer); ok {
		return c
	}
	return consumerFor(dst)
}

// mustSink returns a pump for dst.
func mustSink(t testing.TB, dst any, o *slab.Options) *pump {
	t.Helper()
	if o == nil {
		o = &slab.Options{}
	}
	if o.OnError == nil {
		o.OnError = quiet
	}
	p, err := newPump(dst, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pump) run() {
	finished := false
	defer func() {
		if !finished { // the destination called runtime.Goexit
			go p.run()
		}
	}()
	for p.now != nil || p.gather() {
		p.passLease(p.now)
	}
	p.endConsumer()
	p.log.Leave()
	finished = true
	close(p.done)
}

// gather stores the next lease in p.now. It returns false if there are no more leases, or if the
// time limit of Shutdown has passed.
func (p *pump) gather() bool {
	for p.ctx.Err() == nil {
		if p.serve() {
			continue
		}
		l, ended := p.log.Next()
		if l != nil {
			p.now = l
			return true
		}
		if ended {
			return false
		}
		if !p.serve() {
			p.wait(p.log.Due())
		}
	}
	p.log.Refuse()
	return false
}

func (p *pump) wait(until time.Time) {
	if !until.IsZero() {
		p.timer.Reset(time.Until(until))
		defer p.timer.Stop()
	}
	select {
	case <-p.log.Wake():
	case <-p.timer.C:
		point(ptTimer)
	case <-p.ctx.Done():
	}
}

// passLease passes l to the consumer repeatedly until all its records are settled.
func (p *pump) passLease(l *Lease) {
	if p.ctx.Err() != nil { // the last attempt
		p.now = nil
	}
	point(ptSend)
	err := p.accept(l)
	point(ptSent)
	if err == nil && !p.to.Wants().Inline || l.slabs == 0 && !l.found || l.released {
		p.now = nil
		return
	}
	if p.ctx.Err() == nil && l.Open() > 0 {
		point(ptPause)
		p.wait(time.Now().Add(100 * time.Millisecond))
		return
	}
	if p.now = nil; p.ctx.Err() != nil {
		p.log.Refuse()
	}
}

func (p *pump) accept(l *Lease) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("Accept panicked: %v", r)
		}
	}()
	return p.to.Accept(p.ctx, l)
}

// serve performs the oldest op if all records before it have been leased.
func (p *pump) serve() bool {
	p.mu.Lock()
	if len(p.ops) == 0 || !p.log.Leased(p.ops[0].target) {
		p.mu.Unlock()
		return false
	}
	o := p.ops[0]
	p.ops = p.ops[1:]
	p.mu.Unlock()
	point(ptDo)
	if !p.to.Wants().Inline {
		o.ch <- nil
		return true
	}
	err := errGoexit
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("destination panicked: %v", r)
		}
		o.ch <- err
	}()
	err = p.flushConsumer(p.ctx, o.sync)
	return true
}

func (p *pump) flushConsumer(ctx context.Context, sync bool) error {
	err := p.to.Flush(ctx)
	if sync && ctx.Err() == nil {
		err = errors.Join(err, p.to.Sync(ctx))
	}
	return err
}

func (p *pump) endConsumer() {
	r, err := batch.Report{}, errGoexit
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("destination panicked: %v", r)
		}
		p.mu.Lock()
		p.unknown, p.endErr = r.Unknown, err
		p.mu.Unlock()
	}()
	r, err = p.to.Shutdown(p.ctx)
}

// Flush waits until all records accepted earlier are settled, and then flushes the consumer.
func (p *pump) Flush(ctx context.Context) error { return p.request(ctx, false) }

// Sync calls Flush, and then Sync of the consumer. Both must end within Options.CloseTimeout.
func (p *pump) Sync() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.conf.o.CloseTimeout)
	defer cancel()
	return p.request(ctx, true)
}

func (p *pump) request(ctx context.Context, sync bool) error {
	target, ok := p.log.Flush()
	if !ok {
		select {
		case <-p.reported:
			return nil
		default:
		}
		select {
		case <-p.reported:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	o := &op{target: target, sync: sync, ch: make(chan error, 1)}
	p.mu.Lock()
	p.ops = append(p.ops, o)
	p.mu.Unlock()
	p.store.bell.ring()
	point(ptFlushQueued)
	select {
	case err := <-o.ch:
		if !p.to.Wants().Inline && err == nil {
			err = p.flushConsumer(ctx, sync)
		}
		return err
	case <-p.reported:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		p.ops = slices.DeleteFunc(p.ops, func(other *op) bool { return other == o })
		p.mu.Unlock()
		return context.Cause(ctx)
	}
}

// Stats returns a snapshot with the accounts of the log and the consumer.
func (p *pump) Stats() (s slab.Stats) {
	p.to.Account(func(theirs batch.Account) { s = p.log.Stats(theirs) })
	return s
}

// awaitEvents waits until OnError has returned for all events.
func (p *pump) awaitEvents(ctx context.Context) {
	for range 100 { // each waits briefly
		p.conf.events.Wait(ctx)
	}
}

func (p *pump) Account() (a batch.Account) {
	p.to.Account(func(theirs batch.Account) { a = p.log.Account(theirs) })
	return a
}

func (p *pump) Pending() int {
	a := p.log.Account(batch.Account{})
	return int(a.Pending.Total())
}

func (p *pump) Close() error {
	_, err := p.Shutdown(context.Background())
	return err
}

// Shutdown leases the remaining records, shuts down the consumer, and returns the report.
func (p *pump) Shutdown(ctx context.Context) (batch.Report, error) {
	ctx, cancel := closetime.Bounded(ctx, p.conf.o.CloseTimeout)
	defer cancel()
	p.mu.Lock()
	first := !p.begun
	p.begun = true
	p.mu.Unlock()
	if !first {
		select {
		case <-p.reported:
			return p.report, p.err
		default:
		}
		select {
		case <-p.reported:
			return p.report, p.err
		case <-ctx.Done():
			return batch.Report{Account: p.Account()}, context.Cause(ctx)
		}
	}
	p.log.Close()
	deadline, _ := ctx.Deadline()
	p.to.Drain(deadline)
	left := time.Until(deadline)
	t := time.AfterFunc(left-closetime.Reserve(left), p.giveUp)
	defer t.Stop()
	finished := true
	select {
	case <-p.done:
	case <-ctx.Done():
		p.giveUp()
		grace := time.NewTimer(10 * time.Millisecond)
		defer grace.Stop()
		select {
		case <-p.done:
		case <-grace.C:
			finished = false
		}
	}
	unknown := p.log.End(ctx, finished)
	p.mu.Lock()
	unknown += p.unknown
	err := p.endErr
	for _, o := range p.ops {
		o.ch <- batch.ErrClosed
	}
	p.ops = nil
	p.mu.Unlock()
	p.report = batch.Report{Account: p.Account(), Unknown: unknown}
	if n := p.report.Dropped[batch.Shutdown]; n > 0 {
		why := context.Cause(ctx)
		if why == nil {
			why = context.DeadlineExceeded
		}
		p.err = fmt.Errorf("close: %s not delivered: %w", plural.Records(n), errors.Join(why, err))
	} else if finished && err != nil && !closetime.OutOfTime(err) {
		p.err = fmt.Errorf("close: %w", err)
	}
	p.giveUp()
	close(p.reported)
	return p.report, p.err
}
