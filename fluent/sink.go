package fluent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// A Sink takes records to a Forward server: memory (a slab.Writer), delivery (a
// deliver.Engine) and a [Client], wired:
//
//	WriteRecord ─▶ slab.Writer ‖ deliver.Engine ─▶ Client ─▶ server
//
// It is an output of a forebay.Router whose route encodes with [Sink.Encoder], or
// with one of [NewEncoder]:
//
//	sink, err := fluent.New(cfg)
//	…
//	r, err := forebay.NewRouter(forebay.Route(sink.Encoder(), sink.Output(slog.LevelInfo)))
//
// A [Logger] is a Sink that values are posted to. All methods may be called from
// any goroutine, also beside and after Close.
type Sink struct {
	c      *resolved
	client *Client
	engine *deliver.Engine
	w      *slab.Writer
	kept   kept
	spills bool // the engine has a spill
	enc    encode.Encoder

	closed   atomic.Bool
	ended    chan struct{} // closed when Close has set what follows
	report   batch.Report
	closeErr error
}

// New returns a Sink. The server need not be up. The error names everything that
// is wrong with c. Its goroutines end with [Sink.Close].
func New(c Config) (*Sink, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	if r.OnError == nil {
		r.OnError = callback.ToStderr[batch.Event]
	}
	s := &Sink{c: r, client: newClient(r), ended: make(chan struct{})}
	s.enc, err = NewEncoder(&EncoderOptions{MessageKey: r.MessageKey, IntegerTime: r.IntegerTime, TimeFields: r.TimeFields})
	if err != nil {
		return nil, err
	}
	var w atomic.Pointer[slab.Writer] // for what runs before there is one
	o := &deliver.Options{
		Name: r.Name, Retry: r.Retry, Breaker: r.Breaker, Handler: r.ErrorHandler, PendingLimit: r.PendingLimit,
		DeadLetter: r.DeadLetter, Spill: r.Spill, OnError: r.OnError,
		Pending: func() uint64 {
			if w := w.Load(); w != nil {
				return w.Account().Pending.Slab
			}
			return 0
		},
	}
	if err := s.kept.open(r, o); err != nil {
		return nil, err
	}
	s.spills = o.Spill != nil
	var to batch.Sink = s.client
	if r.CrashDir != "" {
		to = s.client.Blocking()
		o.SpillWhenFull = r.whenFull == slab.Spill() // a sink that pipelines needs no help
	}
	if s.engine, err = deliver.New(to, o); err != nil {
		return nil, errors.Join(fmt.Errorf("fluent: %w", err), s.kept.close())
	}
	so := &slab.Options{
		Name: r.Name, SlabBytes: r.SlabBytes, SlabCount: max(2, r.BufferBytes/r.SlabBytes),
		MaxRecord: r.MaxRecord, FlushInterval: r.FlushInterval, WhenFull: r.whenFull,
		CloseTimeout: r.CloseTimeout, Codec: Codec(), OnError: r.OnError, CloseDst: true,
	}
	if r.CrashDir != "" {
		so.Crash = slab.CrashSafe(r.CrashDir)
	}
	if s.w, err = slab.NewSink(front{s.engine, Tags()}, so); err != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.engine.Close(ctx)
		return nil, errors.Join(fmt.Errorf("fluent: %w", err), s.kept.close())
	}
	w.Store(s.w)
	return s, nil
}

// front is the engine as the slabs see it: with the dictionary of the streams, so
// that crash-safe slabs hold the tags.
type front struct {
	*deliver.Engine
	batch.Dictionary
}

// Encoder returns the encoder of the records that s takes, with Config's
// MessageKey, IntegerTime and TimeFields; [NewEncoder] makes others. Records have
// the tag Config.Tag.
func (s *Sink) Encoder() encode.Encoder { return s.enc }

// Output returns s as an output of a forebay.Route, from a level on. The Router
// closes s when it is closed itself. To keep s open give it to forebay.Output.
func (s *Sink) Output(level slog.Leveler, opts ...forebay.OutputOption) forebay.OutputSpec {
	return forebay.OutputCloser(level, closing{s}, opts...)
}

// closing is a Sink that a Router closes.
type closing struct{ *Sink }

func (c closing) Close() error {
	_, err := c.Sink.Close(context.Background())
	return err
}

// Write takes p, an event as [AppendEvent] makes them, under the tag Config.Tag.
func (s *Sink) Write(p []byte) (int, error) { return s.w.Write(p) }

// WriteRecord takes an event and what its encoder said of it. It copies p. The
// error wraps [ErrDropped] for what found no room (Config.WhenFull) and
// [batch.ErrClosed]; both are counted.
func (s *Sink) WriteRecord(p []byte, m batch.Meta) error { return s.w.WriteRecord(p, m) }

// Codec returns the codec of Forward entries, see [Codec].
func (s *Sink) Codec() batch.Codec { return Codec() }

// Name is Config.Name.
func (s *Sink) Name() string { return s.c.Name }

// Flush waits until everything accepted before is delivered or accounted for, or
// ctx ends.
func (s *Sink) Flush(ctx context.Context) error { return s.w.Flush(ctx) }

// Account says what became of every record: accepted ones are delivered, handled,
// dropped or pending.
func (s *Sink) Account() batch.Account { return s.w.Account() }

// SinkStats is a snapshot of a [Sink].
type SinkStats struct {
	batch.Account
	Refused uint64 // records after Close
	Buffer  slab.Stats
	Deliver deliver.Stats
	Client  Stats
	Spool   spool.Stats // of Config.SpoolDir
}

// Stats returns a snapshot. It never waits for the server.
func (s *Sink) Stats() SinkStats {
	st := SinkStats{Client: s.client.Stats(), Deliver: s.engine.Stats(), Buffer: s.w.Stats()}
	st.Account, st.Refused = st.Buffer.Account, st.Buffer.Refused
	if s.kept.spool != nil {
		st.Spool = s.kept.spool.Stats()
	}
	return st
}

// Subscribe returns the transitions of the circuit breaker from now on, and what
// ends the subscription. A subscriber that is too slow misses the oldest ones.
// Close closes the channel.
func (s *Sink) Subscribe() (<-chan deliver.Transition, func()) { return s.engine.Subscribe() }

// Client returns what speaks to the server.
func (s *Sink) Client() *Client { return s.client }

// Engine returns the delivery in front of the Client.
func (s *Sink) Engine() *deliver.Engine { return s.engine }

// Writer returns the memory in front of the delivery.
func (s *Sink) Writer() *slab.Writer { return s.w }

// Shutdown is [Sink.Close]: the name by which a Router knows it.
func (s *Sink) Shutdown(ctx context.Context) (batch.Report, error) { return s.Close(ctx) }

// Close refuses further records, delivers what was accepted, closes the
// connection and reports. It returns when that is done, or soon after ctx has
// ended, whatever the server does. Where ctx has no deadline, Config.CloseTimeout
// holds. What the server has not taken after 70 % of the time goes to the error
// handler or the spool, for which Close takes up to half a second more if it must: a
// handler that does not return is not waited for where there is a spool. What remains is
// left in Config.CrashDir, or dropped and counted. It may be called twice, and beside
// everything else.
func (s *Sink) Close(ctx context.Context) (batch.Report, error) {
	first := !s.closed.Swap(true)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.c.CloseTimeout)
		defer cancel()
	}
	if !first {
		select {
		case <-s.ended:
			return s.report, s.closeErr
		case <-ctx.Done():
			return s.w.Report(), fmt.Errorf("fluent: close: %w", context.Cause(ctx))
		}
	}
	ctx, cancel := s.until(ctx)
	defer cancel()
	rep, err := s.w.Shutdown(ctx)
	err = errors.Join(err, s.free(&rep))
	s.report, s.closeErr = rep, err
	close(s.ended)
	return rep, err
}

// free closes what the engine uses. The slabs have closed the engine, unless
// their time was over before.
func (s *Sink) free(rep *batch.Report) error {
	if s.spills {
		brief, cancel := context.WithTimeout(context.Background(), keepGrace)
		defer cancel()
		engine, _ := s.engine.Shutdown(brief) // its error is in what the slabs say, or they ran out of time
		if rep.Pending.Inflight > 0 {         // it had not answered yet
			rep.Account = s.w.Account()
		}
		rep.Unknown += engine.Unknown
	}
	return s.kept.close()
}
