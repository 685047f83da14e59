package fluent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/breaker"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/wallclock"
	"github.com/forebay-log/forebay/slab"
)

// ErrDropped is wrapped by the error of Post for a record that was dropped
// because the buffer is full. The drop is counted.
var ErrDropped = slab.ErrDropped

// A Logger posts events to a Forward server: it is a [Sink] with Post. Make it with
// [NewLogger], end it with Close. All methods may be called from any goroutine,
// also beside and after Close.
//
// A Post encodes the value into a slab and returns; the rest happens elsewhere.
// Every record is accounted for: see [Logger.Account].
type Logger struct {
	// Sink takes the events to the server. It can be an output of a Router, beside
	// Post. It is set by NewLogger.
	Sink *Sink
	// ErrorHandler, if it is not nil at the first Post, takes the place of
	// Config.ErrorHandler and Config.FallbackFile. It must not be changed after that Post
	// has begun.
	ErrorHandler deliver.ErrorHandler

	closed atomic.Bool // Close has begun

	encodeDrops atomic.Uint64
	tooLarge    atomic.Uint64
	refused     atomic.Uint64 // by Post itself, after Close

	begun atomic.Bool // a Post has been
	first sync.Once   // sets the handler
}

// NewLogger returns a Logger. The server need not be up. The error names
// everything that is wrong with c.
func NewLogger(c Config) (*Logger, error) {
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	return &Logger{Sink: s}, nil
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
//     AppendAttrs (encode.AttrAppender), MarshalJSON, MarshalText, Error or String are written by the first of
//     them that they have; what such a method panics with stands in its place;
//   - invalid UTF-8 is replaced;
//   - maps and lists that lie within more than 29 others, the record among them,
//     become the text of their JSON, whoever has written them: Fluent Bit decodes
//     no entry of more levels.
//
// v passes no Router, so the rules of forebay.RedactKeys and the like do not hold for it.
//
// Writing a record allocates nothing but what methods of its values do, with these
// exceptions: keys of maps that are floats, structs or TextMarshalers, the option
// string, omitzero with an IsZero of the pointer, complex numbers, maps whose values
// would be written otherwise if they had an address, JSON strings with escapes within
// what MarshalJSON returns, invalid UTF-8 in long text, values nested too deep, and
// records of more than 1 MiB.
//
// The error wraps [ErrTag], [ErrValue] or [ErrTooLarge] for an event that cannot be
// posted, [ErrDropped] for one that found no room (Config.WhenFull), and
// [batch.ErrClosed] after Close. All of these are counted, and nothing of the event is sent. A
// channel, a function or the like within v is such a value, and so is one whose method
// returns an error.
//
// With Config.Sync nil means that the server has acknowledged this very record
// (with Config.NoAck: that it was written). Otherwise the error wraps [ErrDropped]
// if the record was dropped for whatever reason, [ErrHandled] if the error handler
// has it, or says that it was not acknowledged in time: it is then still on its
// way. What becomes of other records makes no Post fail.
func (l *Logger) Post(tag string, v any) error {
	now := wallclock.Now()
	return l.post(tag, now, now, v)
}

// PostWithTime is [Logger.Post] with a time of the caller's. A zero t is the present. The
// protocol holds times from 1970 to February 2106; the error of another one wraps
// [ErrValue].
func (l *Logger) PostWithTime(tag string, t time.Time, v any) error {
	// What waits is given up by its age since it was posted, not since t.
	now := wallclock.Now()
	if t.IsZero() {
		t = now
	}
	return l.post(tag, t, now, v)
}

// begin has the ErrorHandler asked from now on.
func (l *Logger) begin() {
	l.first.Do(func() {
		if l.ErrorHandler != nil {
			l.Sink.SetErrorHandler(l.ErrorHandler)
		}
		l.begun.Store(true)
	})
}

func (l *Logger) post(tag string, t, now time.Time, v any) error {
	if !l.begun.Load() {
		l.begin()
	}
	if l.closed.Load() {
		l.refused.Add(1)
		return errClosed
	}
	s := borrow(l.Sink.c.MaxRecord, l.Sink.c.TimeFields)
	stream, err := s.streamOf(tag)
	if err == nil && !holdsTime(t) {
		err = fmt.Errorf("fluent: cannot encode event of tag %q: %w", tag, checkTime(t))
	}
	if err != nil {
		s.free()
		l.encodeDrops.Add(1)
		return err
	}
	s.holds = !l.Sink.c.Sync
	rec := s.room()
	if stream == ownTag {
		rec = msgpack.AppendStr(rec, tag)
	}
	rec, err = s.event(appendEntryTime(rec, t, l.Sink.c.IntegerTime), v, l.Sink.c.MessageKey)
	if err == nil {
		if l.Sink.c.Sync {
			return l.postAndWait(s, rec, now.UnixNano(), stream)
		}
		m := batch.Meta{Time: now.UnixNano(), Level: slog.LevelInfo, Stream: stream}
		if len(s.held) == 0 || !l.Sink.TryWriteSpliced(rec, s.held, m) {
			rec = s.whole(rec)
			err = l.Sink.WriteRecord(rec, m)
		}
		s.done(rec)
		s.free()
		if err != nil {
			return l.explain(err)
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
		return errClosed
	}
	return fmt.Errorf("fluent: event not posted: %w", err)
}

// postAndWait writes a record and waits until the server has it, or it is known
// that it will not.
func (l *Logger) postAndWait(s *valuer, rec []byte, now int64, stream uint32) error {
	at := l.Sink.Client.awaited
	now = at.stamp(now)
	w := at.add(now, rec)
	before := l.Sink.Account()
	err := l.Sink.WriteRecord(rec, batch.Meta{Time: now, Level: slog.LevelInfo, Stream: stream})
	s.done(rec)
	s.free()
	if err != nil {
		at.remove(w)
		return l.explain(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.Sink.c.SyncTimeout)
	defer cancel()
	err = l.Sink.Flush(breaker.WithoutProbe(ctx))
	if err != nil && !errors.Is(err, deliver.ErrOpen) { // the record is held: something may yet become of it
		select {
		case <-w.known:
		case <-l.Sink.Done():
		case <-ctx.Done():
		}
	}
	acked, why := at.remove(w)
	switch {
	case acked:
		return nil
	case why != nil:
		return fmt.Errorf("fluent: event refused: %w: %w", ErrDropped, why)
	case err != nil:
		if last := l.Sink.Stats().Deliver.LastError; last != "" {
			return fmt.Errorf("fluent: event not acknowledged yet: %w; the server: %s", err, last)
		}
		return fmt.Errorf("fluent: event not acknowledged yet: %w", err)
	}
	return unacknowledged(before, l.Sink.Account())
}

// unacknowledged says what probably became of a record that is settled without
// the server.
func unacknowledged(before, after batch.Account) error {
	var drops batch.Drops
	for i := range drops {
		drops[i] = after.Dropped[i] - min(before.Dropped[i], after.Dropped[i])
	}
	handled := after.Handled > before.Handled
	switch {
	case drops.Total() > 0 && handled:
		return fmt.Errorf("fluent: event not acknowledged: %w, or %w (meanwhile %s)", ErrHandled, ErrDropped, drops)
	case handled:
		return fmt.Errorf("fluent: event not acknowledged: %w", ErrHandled)
	case after.Pending.Spill > 0:
		return errors.New("fluent: event not acknowledged yet: it waits in the spool")
	}
	return fmt.Errorf("fluent: event not acknowledged: %w (meanwhile %s)", ErrDropped, drops)
}

// Flush is [deliver.Output.Flush]: it waits until everything posted before is delivered or
// accounted for, or ctx ends. If the circuit breaker is open, Flush probes at once, and fails
// if the probe fails.
func (l *Logger) Flush(ctx context.Context) error { return l.Sink.Flush(ctx) }

// Account says what became of every record: accepted ones are delivered,
// handled, dropped or pending. Posts after Close are in Stats().Refused.
func (l *Logger) Account() batch.Account { return l.complete(l.Sink.Account()) }

func (l *Logger) complete(a batch.Account) batch.Account {
	enc, big := l.encodeDrops.Load(), l.tooLarge.Load()
	a.Dropped[batch.Encode] += enc
	a.Dropped[batch.Oversize] += big
	a.Accepted += enc + big
	return a
}

// Stats returns a snapshot. It never waits for the server.
func (l *Logger) Stats() deliver.OutputStats {
	s := l.Sink.Stats()
	s.Account = l.complete(s.Account)
	s.Refused += l.refused.Load()
	return s
}

// Subscribe is [deliver.Output.Subscribe].
func (l *Logger) Subscribe() (<-chan deliver.Transition, func()) { return l.Sink.Subscribe() }

// Close refuses further posts, delivers what was posted and reports, as
// [deliver.Output.Shutdown] does: within ctx or, if that has no deadline, within
// Config.CloseTimeout. The error is nil if nothing was lost. It may be called twice,
// and beside Post.
func (l *Logger) Close(ctx context.Context) (batch.Report, error) {
	l.closed.Store(true)
	rep, err := l.Sink.Shutdown(ctx)
	rep.Account = l.complete(rep.Account)
	return rep, err
}

// FallbackTo returns an error handler that sends records to the server of
// another Logger. They count as handled here once the other Logger has accepted them,
// and belong to its account from then on; while its buffer is full they stay here. It
// closes nothing: close the other Logger last.
func FallbackTo(other *Logger) deliver.ErrorHandler {
	h, err := deliver.ToOutput(other.Sink, Codec())
	if err != nil {
		return deliver.ErrorHandlerFunc(func(error, *batch.Batch) batch.Outcome { return batch.FailedOutcome(err) })
	}
	return h
}
