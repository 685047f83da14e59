package fluent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/breaker"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/slablog"
	"github.com/forebay-log/forebay/internal/wallclock"
	"github.com/forebay-log/forebay/slab"
)

// errClosed is the error that Logger.Post returns after Close.
var errClosed = fmt.Errorf("fluent: %w", batch.ErrClosed)

// A Logger posts events to a Forward server. It is an output with the method Post. [NewLogger]
// returns a Logger, and Close ends it. All methods are safe for concurrent use, including during
// and after Close.
//
// Post encodes the value into a slab and returns; delivery is asynchronous. Every record is
// accounted for, see [Logger.Account].
type Logger struct {
	// Output contains the memory and the delivery of the Logger. A Router can also use it as an
	// output, with Driver.Encoder as its encoder. NewLogger sets Output and Driver.
	Output *deliver.Output
	// Driver sends the events to the server.
	Driver *Driver
	// ErrorHandler receives the records that cannot be delivered. If it is not nil at the first
	// Post, it replaces the error handler and the fallback file of the options. It must not be
	// changed after the first Post has begun.
	ErrorHandler deliver.ErrorHandler

	memory *slablog.Writer // memory of Output
	closed atomic.Bool     // Close has begun

	// These fields count the records that Post did not pass to Output. Account and Stats add them
	// to the counts of Output.
	encodeDrops atomic.Uint64 // the tag, a value or the time is invalid
	tooLarge    atomic.Uint64
	refused     atomic.Uint64 // Post was called after Close

	begun atomic.Bool // first is done; can be read without the lock of first
	first sync.Once   // sets ErrorHandler
}

// NewLogger returns a Logger. opts are options of its output, such as forebay.Spool, forebay.Buffer
// and forebay.OnError. The options forebay.Level and forebay.Encoder do not apply. The server need
// not be reachable. The error lists every problem of c, or every invalid option.
func NewLogger(c Config, opts ...forebay.OutputOption) (*Logger, error) {
	d, err := New(c)
	if err != nil {
		return nil, err
	}
	out, err := forebay.Open(forebay.Driver("fluent.NewLogger", d, func(d **Driver, s *forebay.Setup) (deliver.Destination, error) {
		s.Deliver.HandlerFirst = true
		return *d, nil
	}, opts...))
	if err != nil {
		return nil, err
	}
	return newLogger(out, d), nil
}

// newLogger returns a Logger that posts to out, the output of d.
func newLogger(out *deliver.Output, d *Driver) *Logger {
	return &Logger{Output: out, Driver: d, memory: outputhook.Memory(out)}
}

// Post posts v under tag with the current time. It copies the data of v: the caller may change v
// after Post returns.
//
// v is a map or a struct, or a pointer to one. Any other value becomes the field Config.MessageKey
// of a record, and nil becomes an empty record. Struct fields are named by the first of the tags
// fluent, msgpack, msg, codec and json that is present, by the rules of encoding/json for
// omitempty, omitzero and embedded structs. With the option inline (or flatten), the fields of a
// named struct or the pairs of a map are added to the enclosing record. Values in a record are
// encoded by these rules:
//
//   - keys of maps become strings; a nil value remains nil;
//   - values have the form that they have in every output, see docs/ENCODING.md: times are RFC
//     3339 text in UTC (see Config.TimeFields), durations integer nanoseconds, NaN and the
//     infinities text; []byte is binary data;
//   - a value with one of the methods LogValue (log/slog), AppendAttrs (encode.AttrAppender),
//     Error, MarshalMsg (tinylib/msgp), MarshalJSON or MarshalText is written by the first of
//     them; if the method panics, the text of the panic is written;
//   - invalid UTF-8 is replaced;
//   - maps and lists nested in more than 29 others, including the record, become JSON text,
//     because Fluent Bit does not decode deeper entries.
//
// v does not pass through a Router, so forebay.RedactKeys and related options do not apply.
//
// Writing a record allocates no memory, apart from the methods of its values and these exceptions:
//
//   - map keys that are structs or TextMarshalers
//   - omitzero for a type whose IsZero has a pointer receiver
//   - complex numbers
//   - maps whose values would be written differently if they had an address
//   - JSON strings with escapes in the result of MarshalJSON
//   - invalid UTF-8 in long text
//   - values nested too deeply
//   - records of more than 1 MiB
//
// If an event cannot be posted, no part of it is sent, and the event is counted. The error wraps:
//
//   - [ErrTag] if the tag is invalid;
//   - [ErrValue] if a part of v cannot be encoded: a channel, a function or a similar value, also as
//     the key of a map, or a value whose method returns an error;
//   - [ErrTooLarge] if the record is too large;
//   - [slab.ErrDropped] if the buffer has no room (forebay.WhenFull);
//   - [batch.ErrClosed] after Close.
//
// With Config.Sync, a nil error means that the server has acknowledged this record or, with
// Config.NoAck, that it was written. The error wraps [slab.ErrDropped] if the record was dropped
// for any reason, and [ErrHandled] if the error handler accepted it. Any other error means that the
// record was not acknowledged in time and is still pending. The outcome of other records does not
// affect Post.
func (l *Logger) Post(tag string, v any) error {
	now := wallclock.Now()
	return l.post(tag, now, now, v)
}

// PostWithTime is like [Logger.Post] with the given time. If t is the zero time, the current time
// is used. The protocol represents times from 1970 to February 2106. For other times the error
// wraps [ErrValue].
func (l *Logger) PostWithTime(tag string, t time.Time, v any) error {
	// The age of a pending record counts from the call, not from t.
	now := wallclock.Now()
	if t.IsZero() {
		t = now
	}
	return l.post(tag, t, now, v)
}

// begin passes ErrorHandler to the output. Only the first call has an effect.
func (l *Logger) begin() {
	l.first.Do(func() {
		if l.ErrorHandler != nil {
			outputhook.SetErrorHandler(l.Output, l.ErrorHandler)
		}
		l.begun.Store(true)
	})
}

// post implements Post and PostWithTime. t is the time of the event, and now is the time of the
// call.
func (l *Logger) post(tag string, t, now time.Time, v any) error {
	if !l.begun.Load() {
		l.begin()
	}
	if l.closed.Load() {
		l.refused.Add(1)
		return errClosed
	}
	// The record is encoded into pooled memory and then copied into a slab. This allocates nothing,
	// and the caller may change v after post returns.
	s := borrow(l.Driver.maxRecord, l.Driver.c.TimeFields)
	stream, err := s.streamOf(tag)
	if err == nil && !holdsTime(t) {
		err = fmt.Errorf("fluent: cannot encode event of tag %q: %w", tag, checkTime(t))
	}
	if err != nil {
		s.free()
		l.encodeDrops.Add(1)
		return err
	}
	s.mem.canSplice = !l.Driver.c.Sync // with Sync, the waiter computes a hash of the whole record
	rec := s.mem.buffer()
	if stream == ownTag {
		rec = msgpack.AppendStr(rec, tag)
	}
	rec, err = s.event(appendEntryTime(rec, t, l.Driver.c.IntegerTime), v, l.Driver.c.MessageKey)
	if err == nil {
		if l.Driver.c.Sync {
			return l.postAndWait(s, rec, now.UnixNano(), stream)
		}
		m := batch.Meta{Time: now.UnixNano(), Level: slog.LevelInfo, Stream: stream}
		// TryWriteSpliced copies the spliced strings directly into the slab. It fails if the slab
		// has no space for the record.
		if len(s.mem.splices) == 0 || !l.memory.TryWriteSpliced(rec, s.mem.splices, m) {
			rec = s.mem.insert(rec)
			err = l.Output.WriteRecord(rec, m)
		}
		s.mem.release(rec)
		s.free()
		if err != nil {
			return l.postError(err)
		}
		return nil
	}
	s.mem.release(rec)
	s.free()
	if errors.Is(err, ErrTooLarge) {
		l.tooLarge.Add(1)
	} else {
		l.encodeDrops.Add(1)
	}
	return fmt.Errorf("fluent: cannot encode event of tag %q: %w", tag, err)
}

// postError returns the error of Post if the output did not accept a record and returned err.
func (l *Logger) postError(err error) error {
	if errors.Is(err, batch.ErrClosed) {
		return errClosed
	}
	return fmt.Errorf("fluent: event not posted: %w", err)
}

// postAndWait implements Post with Config.Sync. It writes the record rec and waits until the server
// has acknowledged or finally rejected it, or until SyncTimeout. It frees s.
func (l *Logger) postAndWait(s *valuer, rec []byte, now int64, stream uint32) error {
	at := l.Driver.awaited
	now = at.stamp(now)
	w := at.add(now, rec)
	before := l.Output.Account()
	err := l.Output.WriteRecord(rec, batch.Meta{Time: now, Level: slog.LevelInfo, Stream: stream})
	s.mem.release(rec)
	s.free()
	if err != nil {
		at.remove(w)
		return l.postError(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.Driver.c.SyncTimeout)
	defer cancel()
	// Flush makes the output send the record immediately. If the circuit breaker is open, Flush
	// does not probe the server, because otherwise each call of Post would cause a probe.
	err = l.Output.Flush(breaker.WithoutProbe(ctx))
	// If records are kept until the configuration changes, Flush fails. The record may still be
	// sent, so the wait continues.
	if err != nil && !errors.Is(err, deliver.ErrOpen) {
		select {
		case <-w.known:
		case <-outputhook.Ended(l.Output):
		case <-ctx.Done():
		}
	}
	acked, why := at.remove(w)
	switch {
	case acked:
		return nil
	case why != nil:
		return fmt.Errorf("fluent: event refused: %w: %w", slab.ErrDropped, why)
	case err != nil:
		if last := l.Output.Stats().Deliver.LastError; last != "" {
			return fmt.Errorf("fluent: event not acknowledged yet: %w; last error of the server: %s", err, last)
		}
		return fmt.Errorf("fluent: event not acknowledged yet: %w", err)
	}
	return unacknowledged(before, l.Output.Account())
}

// unacknowledged returns the error for a record that is no longer pending and was not acknowledged.
// The parameters before and after are the accounts of the output before and after the wait. An
// account does not contain the outcomes of individual records. Therefore the error names every
// outcome that any record had during the wait.
func unacknowledged(before, after batch.Account) error {
	var drops batch.Drops
	for i := range drops {
		drops[i] = after.Dropped[i] - min(before.Dropped[i], after.Dropped[i])
	}
	handled := after.Handled > before.Handled
	switch {
	case drops.Total() > 0 && handled:
		return fmt.Errorf("fluent: event not acknowledged: %w, or %w (meanwhile %s)", ErrHandled, slab.ErrDropped, drops)
	case handled:
		return fmt.Errorf("fluent: event not acknowledged: %w", ErrHandled)
	case after.Pending.Spill > 0:
		return errors.New("fluent: event not acknowledged yet: it waits in the spool")
	}
	return fmt.Errorf("fluent: event not acknowledged: %w (meanwhile %s)", slab.ErrDropped, drops)
}

// Flush waits until everything posted before the call is delivered or accounted for, or until ctx
// ends, like [deliver.Output.Flush]. If the circuit breaker is open, Flush probes the server
// immediately, and returns an error if the probe fails.
func (l *Logger) Flush(ctx context.Context) error { return l.Output.Flush(ctx) }

// Account returns the outcomes of all accepted records: delivered, handled, dropped or pending.
// Calls of Post after Close are counted in Stats().Refused.
func (l *Logger) Account() batch.Account { return l.complete(l.Output.Account()) }

// complete returns a, the account of the output, plus the records that Post did not pass to the
// output.
func (l *Logger) complete(a batch.Account) batch.Account {
	enc, big := l.encodeDrops.Load(), l.tooLarge.Load()
	a.Dropped[batch.Encode] += enc
	a.Dropped[batch.Oversize] += big
	a.Accepted += enc + big
	return a
}

// Stats returns a snapshot of the counters. It does not wait for the server.
func (l *Logger) Stats() deliver.OutputStats {
	s := l.Output.Stats()
	s.Account = l.complete(s.Account)
	s.Refused += l.refused.Load()
	return s
}

// Subscribe returns a channel that receives the transitions of the circuit breaker, and a function
// to unsubscribe, see [deliver.Output.Subscribe].
func (l *Logger) Subscribe() (<-chan deliver.Transition, func()) { return l.Output.Subscribe() }

// Close refuses further posts, delivers the pending records and returns a report, like
// [deliver.Output.Shutdown]. It is limited by ctx or, if ctx has no deadline, by CloseTimeout of
// deliver.OutputOptions. The error is nil if no record was lost. Close may be called several times,
// and concurrently with Post.
func (l *Logger) Close(ctx context.Context) (batch.Report, error) {
	l.closed.Store(true)
	rep, err := l.Output.Shutdown(ctx)
	rep.Account = l.complete(rep.Account)
	return rep, err
}

// FallbackTo returns an error handler that posts records to the Logger other. Records count as
// handled once other has accepted them, and then belong to the account of other. While the buffer
// of other is full, the records remain pending. The handler does not close other, so close it last.
func FallbackTo(other *Logger) deliver.ErrorHandler {
	h, err := deliver.ToOutput(other.Output, Codec())
	if err != nil { // the handler returns this error from each call
		return deliver.ErrorHandlerFunc(func(error, *batch.Batch) batch.Outcome { return batch.FailedOutcome(err) })
	}
	return h
}
