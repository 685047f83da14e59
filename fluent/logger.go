package fluent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/wallclock"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// ErrDropped is wrapped by the error of Post for a record that was dropped
// because the buffer is full. The drop is counted.
var ErrDropped = slab.ErrDropped

// A Logger posts events to a Forward server. Make it with [NewLogger], end it
// with Close. All methods may be called from any goroutine, also beside and
// after Close.
//
// A Post encodes the value into a slab and returns; the rest happens elsewhere:
//
//	Post ─▶ slab.Writer ‖ deliver.Engine ─▶ Sink ─▶ server
//
// Every record is accounted for: see [Logger.Account].
type Logger struct {
	c      *resolved
	sink   *Sink
	engine *deliver.Engine
	w      *slab.Writer
	kept   kept
	spills bool // the engine has a spill

	ended    chan struct{} // closed when Close has set what follows
	report   batch.Report
	closeErr error

	encodeDrops atomic.Uint64
	tooLarge    atomic.Uint64
	closed      atomic.Bool
	refused     atomic.Uint64 // by Post itself, after Close
}

// NewLogger returns a Logger. The server need not be up. The error names
// everything that is wrong with c.
func NewLogger(c Config) (*Logger, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	if r.OnError == nil {
		r.OnError = report
	}
	l := &Logger{c: r, sink: newSink(r), ended: make(chan struct{})}
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
	if err := l.kept.open(r, o); err != nil {
		return nil, err
	}
	l.spills = o.Spill != nil
	var sink batch.Sink = l.sink
	if r.CrashDir != "" {
		sink = l.sink.Blocking()
	}
	if l.engine, err = deliver.New(sink, o); err != nil {
		return nil, errors.Join(fmt.Errorf("fluent: %w", err), l.kept.close())
	}
	so := &slab.Options{
		Name: r.Name, SlabBytes: r.SlabBytes, SlabCount: max(2, r.BufferBytes/r.SlabBytes),
		MaxRecord: r.MaxRecord, FlushInterval: r.FlushInterval, WhenFull: r.whenFull,
		CloseTimeout: r.CloseTimeout, Codec: Codec(), OnError: r.OnError, CloseDst: true,
	}
	if r.CrashDir != "" {
		so.Crash = slab.CrashSafe(r.CrashDir)
	}
	if l.w, err = slab.NewSink(front{l.engine, Tags()}, so); err != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		l.engine.Close(ctx)
		return nil, errors.Join(fmt.Errorf("fluent: %w", err), l.kept.close())
	}
	w.Store(l.w)
	return l, nil
}

// report is the default of Config.OnError.
func report(e batch.Event) {
	line := "fluent: " + e.Output + ": " + e.Op
	if e.Err != nil {
		line += ": " + e.Err.Error()
	}
	if e.Count > 0 {
		line += fmt.Sprintf(" (%d records)", e.Count)
	}
	fmt.Fprintln(os.Stderr, line)
}

// front is the engine as the slabs see it: with the dictionary of the streams, so
// that crash-safe slabs hold the tags.
type front struct {
	*deliver.Engine
	batch.Dictionary
}

// Post posts v under tag with the present time. It copies what it needs: the
// caller may change v as soon as Post returns.
//
// v is a map or a struct, or a pointer to one; anything else becomes the field
// Config.MessageKey of a record of its own, and nil an empty record. Fields of
// structs are named by the tags fluent, msgpack, msg, codec and json, the first that is
// there, and follow the rules of encoding/json: omitempty, omitzero, embedded
// structs; inline (or flatten) also lays the fields of named structs, and the
// pairs of maps, among the others. Within a record
//
//   - keys of maps become strings; nil becomes nil;
//   - times become RFC 3339 text (see Config.TimeFields), durations integer
//     nanoseconds, []byte binary data, NaN and the infinities text;
//   - values with a method MarshalMsg (tinylib/msgp), LogValue (log/slog),
//     MarshalJSON, MarshalText, Error or String are written by the first of
//     them that they have; what such a method fails or panics with stands in
//     its place;
//   - channels, functions and the like become a text that says so;
//   - invalid UTF-8 is replaced.
//
// The error wraps [ErrTag], [ErrDepth], [ErrCycle] or [ErrTooLarge] for what
// cannot be posted, [ErrDropped] for what found no room (Config.WhenFull), and
// [ErrClosed]; all of these are counted. With Config.Sync it also says that the
// record was not acknowledged in time; unless it was refused, it is then still
// on its way.
func (l *Logger) Post(tag string, v any) error {
	now := wallclock.Now()
	return l.post(tag, now, now, v)
}

// PostWithTime is [Logger.Post] with a time of the caller's, of any age. A zero t
// is the present.
func (l *Logger) PostWithTime(tag string, t time.Time, v any) error {
	// What waits is given up by its age since it was posted, not since t.
	now := wallclock.Now()
	if t.IsZero() {
		t = now
	}
	return l.post(tag, t, now, v)
}

func (l *Logger) post(tag string, t, now time.Time, v any) error {
	if l.closed.Load() {
		l.refused.Add(1)
		return ErrClosed
	}
	stream, err := streamOf(tag)
	if err != nil {
		l.encodeDrops.Add(1)
		return err
	}
	s := borrow(l.c.MaxRecord, l.c.TimeFields)
	rec, err := s.record(appendEntryTime(s.room(), t, l.c.IntegerTime), v, l.c.MessageKey)
	if err == nil {
		err = l.w.WriteRecord(rec, batch.Meta{Time: now.UnixNano(), Level: slog.LevelInfo, Stream: stream})
		s.done(rec)
		s.free()
		if err != nil {
			return l.explain(err)
		}
		if l.c.Sync {
			return l.await()
		}
		return nil
	}
	s.done(rec)
	s.free()
	if errors.Is(err, ErrTooLarge) {
		l.tooLarge.Add(1)
	} else {
		l.encodeDrops.Add(1)
	}
	return fmt.Errorf("fluent: cannot encode event of tag %q: %w", tag, err)
}

func (l *Logger) explain(err error) error {
	if errors.Is(err, batch.ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("fluent: event not posted: %w", err)
}

// await waits until everything posted so far is acknowledged or given up.
func (l *Logger) await() error {
	before := l.lostSoFar()
	ctx, cancel := context.WithTimeout(context.Background(), l.c.SyncTimeout)
	defer cancel()
	if err := l.w.Flush(ctx); err != nil {
		if last := l.engine.Stats().LastError; last != "" {
			return fmt.Errorf("fluent: event not acknowledged yet: %w; the server: %s", err, last)
		}
		return fmt.Errorf("fluent: event not acknowledged yet: %w", err)
	}
	if n := l.lostSoFar() - before; n > 0 {
		return fmt.Errorf("fluent: %d events were refused or given up meanwhile, maybe this one: %w", n, ErrDropped)
	}
	return nil
}

// lostSoFar counts what was accepted and will not be delivered.
func (l *Logger) lostSoFar() uint64 {
	d := l.w.Account().Dropped
	return d[batch.Poison] + d[batch.Expired] + d[batch.Shutdown]
}

// Flush waits until everything posted before is delivered or accounted for, or
// ctx ends.
func (l *Logger) Flush(ctx context.Context) error { return l.w.Flush(ctx) }

// Account says what became of every record: accepted ones are delivered,
// handled, dropped or pending. Posts after Close are in [LoggerStats].Refused.
func (l *Logger) Account() batch.Account { return l.complete(l.w.Account()) }

func (l *Logger) complete(a batch.Account) batch.Account {
	enc, big := l.encodeDrops.Load(), l.tooLarge.Load()
	a.Dropped[batch.Encode] += enc
	a.Dropped[batch.Oversize] += big
	a.Accepted += enc + big
	return a
}

// LoggerStats is a snapshot of a [Logger].
type LoggerStats struct {
	batch.Account
	Refused uint64 // posts after Close
	Buffer  slab.Stats
	Deliver deliver.Stats
	Sink    Stats
	Spool   spool.Stats // of Config.SpoolDir
}

// Stats returns a snapshot. It never waits for the server.
func (l *Logger) Stats() LoggerStats {
	s := LoggerStats{Sink: l.sink.Stats(), Deliver: l.engine.Stats(), Buffer: l.w.Stats()}
	s.Account = l.complete(s.Buffer.Account)
	s.Refused = s.Buffer.Refused + l.refused.Load()
	if l.kept.spool != nil {
		s.Spool = l.kept.spool.Stats()
	}
	return s
}

// Subscribe returns the transitions of the circuit breaker from now on, and what
// ends the subscription. A subscriber that is too slow misses the oldest ones.
// Close closes the channel.
func (l *Logger) Subscribe() (<-chan deliver.Transition, func()) { return l.engine.Subscribe() }

// Writer returns the buffer in front of the server, as an output for a Router
// whose route encodes with [NewEncoder].
func (l *Logger) Writer() *slab.Writer { return l.w }

// Close refuses further posts, delivers what was posted, closes the connection
// and reports. It returns when that is done, or soon after ctx has ended,
// whatever the server does. Where ctx has no deadline, Config.CloseTimeout holds.
// What the server has not taken after 70 % of the time goes to the error handler
// or the spool, for which Close takes up to half a second more if it must; what
// remains is left in Config.CrashDir, or dropped and counted. It may be called
// twice, and beside Post.
func (l *Logger) Close(ctx context.Context) (batch.Report, error) {
	first := !l.closed.Swap(true)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.c.CloseTimeout)
		defer cancel()
	}
	if !first {
		select {
		case <-l.ended:
			return l.report, l.closeErr
		case <-ctx.Done():
			rep := l.w.Report()
			rep.Account = l.complete(rep.Account)
			return rep, fmt.Errorf("fluent: close: %w", context.Cause(ctx))
		}
	}
	ctx, cancel := l.until(ctx)
	defer cancel()
	rep, err := l.w.Shutdown(ctx)
	err = errors.Join(err, l.free(&rep))
	rep.Account = l.complete(rep.Account)
	l.report, l.closeErr = rep, err
	close(l.ended)
	return rep, err
}

// free closes what the engine uses. The slabs have closed the engine, unless
// their time was over before.
func (l *Logger) free(rep *batch.Report) error {
	if l.spills {
		brief, cancel := context.WithTimeout(context.Background(), keepGrace)
		defer cancel()
		engine, err := l.engine.Shutdown(brief)
		if rep.Pending.Inflight > 0 { // it had not answered yet
			rep.Account = l.w.Account()
		}
		rep.Unknown += engine.Unknown
		_ = err // the slabs have said it, or have been told to give up
	}
	return l.kept.close()
}

// FallbackTo returns an error handler that sends records to the server of
// another Logger. They count as handled once that server has acknowledged them;
// until then they stay here. It closes nothing.
func FallbackTo(other *Logger) deliver.ErrorHandler {
	h, err := deliver.ToSink(other.sink, &deliver.ToSinkOptions{Codec: Codec()})
	if err != nil {
		return deliver.ErrorHandlerFunc(func(error, *batch.Batch) error { return err })
	}
	return h
}
