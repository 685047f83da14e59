package loki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// never is a level no record has.
const never = slog.Level(math.MaxInt8 + 1)

// A Sink takes records to Loki: memory (a slab.Writer), delivery (a
// deliver.Engine) and a [Pusher], wired. It is an output of a forebay.Router whose
// route encodes with [Sink.Encoder]:
//
//	sink, err := loki.New(cfg)
//	…
//	r, err := forebay.NewRouter(forebay.Route(sink.Encoder(), sink.Output(slog.LevelInfo)))
//
// All methods may be called from any goroutine, also beside and after Close.
type Sink struct {
	w        *slab.Writer
	delivery *delivery
}

// delivery is what a slab.Writer sends to.
type delivery struct {
	*deliver.Engine
	*dictionary
	spool *spool.Spool // of our making, or nil
	feed  atomic.Pointer[slab.Writer]
}

// dictionary is the part of a Pusher that crash files and spools need.
type dictionary struct{ p *Pusher }

func (d dictionary) AppendStream(dst []byte, id uint32) ([]byte, bool) {
	return d.p.AppendStream(dst, id)
}
func (d dictionary) Stream(def []byte) uint32 { return d.p.Stream(def) }

// New returns a Sink. Loki need not be up. The error names everything that is
// wrong with c. Its goroutines end with [Sink.Close].
func New(c Config) (*Sink, error) {
	p, err := NewPusher(c)
	if err != nil {
		return nil, err
	}
	d := &delivery{dictionary: &dictionary{p}}
	fail := func(err error) (*Sink, error) {
		if d.Engine != nil { // it closes the Pusher
			return nil, errors.Join(err, d.Close(context.Background()))
		}
		return nil, errors.Join(err, d.release())
	}
	c = p.c
	if c.OnError == nil {
		c.OnError = callback.ToStderr[batch.Event]
	}
	so := c.slab(p)
	o := &deliver.Options{
		Name: c.Name, Retry: c.Retry, Breaker: c.Breaker, Handler: c.ErrorHandler, PendingLimit: c.PendingLimit,
		DeadLetter: c.DeadLetter, Spill: c.Spill, OnError: c.OnError, Pending: d.waiting, SpillWhenFull: so.WhenFull == slab.Spill(),
	}
	if c.SpoolDir != "" {
		d.spool, err = spool.Open(c.SpoolDir, &spool.Options{
			Name: c.Name, MaxBytes: c.SpoolBytes, Streams: d.dictionary, Codec: p.codecFor, OnEvent: c.OnError,
		})
		if err != nil {
			return fail(fmt.Errorf("loki: config: spool_dir: %w", err))
		}
		o.Spill = d.spool
	}
	if d.Engine, err = deliver.New(p, o); err != nil {
		return fail(fmt.Errorf("loki: config: %w", err))
	}
	w, err := slab.NewSink(d, so)
	if err != nil {
		return fail(fmt.Errorf("loki: config: %w", err))
	}
	d.feed.Store(w)
	return &Sink{w, d}, nil
}

// slab returns the options of the memory in front of p.
func (c *Config) slab(p *Pusher) *slab.Options {
	var o slab.Options
	if c.Slab != nil {
		o = *c.Slab
	}
	defaultTo(&o.Name, c.Name)
	defaultTo(&o.SlabBytes, c.SlabBytes)
	defaultTo(&o.SlabCount, max(2, c.BufferBytes/o.SlabBytes))
	defaultTo(&o.WhenFull, c.whenFull)
	if o.FlushLevel == nil {
		o.FlushLevel = never // a burst of errors would be a burst of requests
	}
	if o.OnError == nil {
		o.OnError = c.OnError
	}
	if o.Crash == nil && c.CrashDir != "" {
		o.Crash = slab.CrashSafe(c.CrashDir)
	}
	o.Codec, o.CloseDst = p.Codec(), true
	return &o
}

// codecFor returns the codec of records of that form, if they can be sent.
func (s *Pusher) codecFor(contentType string, _ uint32) batch.Codec {
	if s.Accepts(contentType) {
		return s.Codec()
	}
	return nil
}

// waiting returns how many records are in front of the engine.
func (d *delivery) waiting() uint64 {
	if w := d.feed.Load(); w != nil {
		return w.Account().Pending.Slab
	}
	return 0
}

// Shutdown closes the engine, and then what it used.
func (d *delivery) Shutdown(ctx context.Context) (batch.Report, error) {
	rep, err := d.Engine.Shutdown(ctx)
	return rep, errors.Join(err, d.release())
}

func (d *delivery) Close(ctx context.Context) error {
	_, err := d.Shutdown(ctx)
	return err
}

func (d *delivery) release() error {
	if d.spool == nil {
		return nil
	}
	return d.spool.Close()
}

// Encoder returns the encoder of the records that s takes: give it to the
// forebay.Route whose output s is.
func (s *Sink) Encoder() encode.Encoder { return s.pusher().Encoder() }

// Output returns s as an output of a forebay.Route, from a level on. The Router
// closes s when it is closed itself. To keep s open give it to forebay.Output.
func (s *Sink) Output(level slog.Leveler, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.OutputCloser(level, s.w, opts...)
}

// Write writes p as one record. p must be an entry of [Sink.Encoder], and belongs
// to the first stream: use [Sink.WriteRecord].
func (s *Sink) Write(p []byte) (int, error) { return s.w.Write(p) }

// WriteRecord takes a record and what the encoder said of it. It copies p. The
// error wraps slab.ErrDropped for what found no room (Config.WhenFull) and
// batch.ErrClosed; both are counted.
func (s *Sink) WriteRecord(p []byte, m batch.Meta) error { return s.w.WriteRecord(p, m) }

// Codec reads the records that s takes.
func (s *Sink) Codec() batch.Codec { return s.w.Codec() }

// Name is Config.Name.
func (s *Sink) Name() string { return s.w.Name() }

// Flush waits until everything accepted before it is at Loki or accounted for.
func (s *Sink) Flush(ctx context.Context) error { return s.w.Flush(ctx) }

// Account says what became of the records.
func (s *Sink) Account() batch.Account { return s.w.Account() }

// Stats returns the counters of the pushes.
func (s *Sink) Stats() Stats { return s.pusher().Stats() }

// Pusher returns what makes the requests.
func (s *Sink) Pusher() *Pusher { return s.pusher() }

// Engine returns the delivery, for its Stats and to subscribe to its transitions.
func (s *Sink) Engine() *deliver.Engine { return s.delivery.Engine }

// Writer returns the memory, for its Stats.
func (s *Sink) Writer() *slab.Writer { return s.w }

func (s *Sink) pusher() *Pusher { return s.delivery.p }

// Shutdown is [Sink.Close]: the name by which a Router knows it.
func (s *Sink) Shutdown(ctx context.Context) (batch.Report, error) { return s.Close(ctx) }

// Close refuses new records, delivers what was accepted until ctx ends, and
// reports what became of all. The error says if anything was not delivered. Later
// calls return the same report.
func (s *Sink) Close(ctx context.Context) (batch.Report, error) {
	rep, err := s.w.Shutdown(ctx)
	return rep, errors.Join(err, undelivered(&rep))
}

func undelivered(r *batch.Report) error {
	if n := r.Undelivered(); n > 0 {
		return fmt.Errorf("loki: %d records were not delivered: %s", n, r.Account)
	}
	return nil
}
