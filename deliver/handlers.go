package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// An Accepter is a [batch.Sink] that takes certain wire forms only.
type Accepter interface {
	// Accepts reports whether the sink takes records of a content type
	// ([batch.Codec]); "" stands for plain lines of unknown content.
	Accepts(contentType string) bool
}

// ToSinkOptions configures [ToSink].
type ToSinkOptions struct {
	// Codec is that of the records that will be handed over. Default nil: plain
	// lines of unknown content.
	Codec batch.Codec
	// Transcode appends a record to dst in the form the fallback wants. Default
	// nil: records are handed over as they are. See [TranscodeJSON].
	Transcode func(dst []byte, c batch.Codec, rec *batch.Record) []byte
	// Form is the codec of what Transcode writes. Default nil: plain lines.
	Form batch.Codec
}

// ToSink returns an [ErrorHandler] that sends records to another sink, the
// fallback, once per offer: what that sink does not take stays pending, and is
// offered again after the retry delay. Records that the fallback drops by itself
// (its Tally) are counted as dropped, not as handled. Records that it refuses for
// good are searched for as [Poison] does and named to the engine, which drops them;
// but if it has not taken any since it refused whole batches, all stays pending: then
// it is the fallback that is at fault. What it drops because it has ended for good
// ([batch.Lost]) stays pending, too. The handler does not close the fallback.
//
// It is an error if the fallback is an [Accepter] that takes neither the content
// type of Codec nor, with Transcode, that of Form.
func ToSink(fallback batch.Sink, o *ToSinkOptions) (ErrorHandler, error) {
	if fallback == nil {
		return nil, errors.New("deliver: fallback is nil")
	}
	if o == nil {
		o = &ToSinkOptions{}
	}
	form := o.Codec
	if o.Transcode != nil {
		form = o.Form
	}
	if a, ok := fallback.(Accepter); ok && !a.Accepts(contentType(form)) {
		return nil, fmt.Errorf("deliver: fallback does not take records of content type %q: give a Transcode", contentType(form))
	}
	t := &toSink{o: *o}
	quiet := func(batch.Event) {} // what fails is told by whoever offers
	p, err := newPoison(keepLost{fallback}, PoisonOptions{}, newEvents("", quiet))
	if err != nil {
		return nil, err
	}
	p.naming, t.sink = true, p
	return t, nil
}

// contentType returns the content type of c, "" for plain lines.
func contentType(c batch.Codec) string {
	if c == nil {
		return ""
	}
	return c.ContentType()
}

type toSink struct {
	sink *Poison
	o    ToSinkOptions
	// takes says that the fallback took records, and has not refused all of several
	// since.
	takes atomic.Bool
}

// keepLost is a fallback whose losses are none: the destination may come back, so
// what the fallback drops because it has ended itself stays pending.
type keepLost struct{ sink batch.Sink }

func (k keepLost) Send(ctx context.Context, b *batch.Batch) error {
	err := k.sink.Send(ctx, b)
	if err == nil {
		return nil
	}
	e := batch.Inspect(err)
	lost := b.Tally.Dropped[batch.Failed]
	if e.Kind != batch.KindReject || e.Records == nil || len(e.Records) > 0 || lost == 0 || lost > uint64(b.Len()) {
		return err
	}
	b.Tally.Dropped[batch.Failed] = 0
	return batch.Prefix(b.Len()-int(lost), plainly(&e))
}

// send sends b.
func (t *toSink) send(ctx context.Context, b *batch.Batch) error {
	err := sane(b.Len(), t.sink.Send(ctx, b))
	e := batch.Inspect(err)
	switch n := b.Len(); {
	case err == nil:
		t.takes.Store(true)
	case !refusesSome(&e, n):
	case len(e.Records) < n:
		t.takes.Store(true)
	case n > 1 || !t.takes.Load():
		t.takes.Store(false)
		return fmt.Errorf("fallback refuses everything: %w", plainly(&e))
	}
	return err
}

// HandleError sends b with a deadline of DefaultHandlerTimeout.
func (t *toSink) HandleError(cause error, b *batch.Batch) error {
	ctx, cancel := context.WithTimeout(context.Background(), DefaultHandlerTimeout)
	defer cancel()
	return t.handle(ctx, cause, b)
}

func (t *toSink) handle(ctx context.Context, _ error, b *batch.Batch) error {
	if t.o.Transcode == nil {
		return t.send(ctx, b)
	}
	var build batch.Builder
	var buf []byte
	for _, rec := range b.All() {
		buf = t.o.Transcode(buf[:0], b.Codec, &rec)
		build.Append(buf, rec.Ticket, rec.Meta)
	}
	out := build.Batch(t.o.Form)
	err := t.send(ctx, out)
	b.Tally = out.Tally
	return err
}

// TranscodeJSON appends rec as one JSON object and a newline, see [JSONLines].
func TranscodeJSON(dst []byte, c batch.Codec, rec *batch.Record) []byte {
	return append(appendRecord(dst, c, rec), '\n')
}

// LogTo returns an [ErrorHandler] that logs the failure, not the records: one
// slog record per offer, at slog.LevelError, with the error and the number of
// records and bytes. It takes nothing, so the records stay pending; put it
// before another handler with [FirstOf].
//
// A handler that leads back to the same destination adds a record per offer to
// what waits; offers come no faster than the retry delay.
func LogTo(h slog.Handler) ErrorHandler { return logTo{h} }

type logTo struct{ h slog.Handler }

func (l logTo) HandleError(cause error, b *batch.Batch) error {
	return l.handle(context.Background(), cause, b)
}

func (l logTo) handle(ctx context.Context, cause error, b *batch.Batch) error {
	if !l.h.Enabled(ctx, slog.LevelError) {
		return cause
	}
	r := slog.NewRecord(time.Now(), slog.LevelError, "log records were not delivered", 0)
	r.AddAttrs(slog.Any("error", cause), slog.Uint64("records", countable(b)), slog.Int("bytes", b.Bytes()))
	if err := l.h.Handle(ctx, r); err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// FirstOf returns an [ErrorHandler] that asks the given ones in turn until one
// takes all the records. One that takes a part of them leaves the rest for the
// next offer.
func FirstOf(handlers ...ErrorHandler) ErrorHandler { return firstOf(handlers) }

type firstOf []ErrorHandler

func (f firstOf) HandleError(cause error, b *batch.Batch) error {
	return f.handle(context.Background(), cause, b)
}

func (f firstOf) handle(ctx context.Context, cause error, b *batch.Batch) error {
	err := cause
	for _, h := range f {
		b.Tally = batch.Tally{}
		if c, ok := h.(contextHandler); ok {
			err = c.handle(ctx, cause, b)
		} else {
			err = h.HandleError(cause, b)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		if e := batch.Inspect(err); e.Kind == batch.KindPrefix || e.Kind == batch.KindPartial || refusesSome(&e, b.Len()) {
			return err
		}
	}
	return err
}
