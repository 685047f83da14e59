package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// A RecordWriter is memory in front of another destination, such as an [Output] or a
// slab.Writer.
type RecordWriter interface {
	WriteRecord(p []byte, m batch.Meta) error
}

// ToOutputOptions configures [ToOutput].
type ToOutputOptions struct {
	// Codec is that of the records that will be handed over. Default nil: plain
	// lines of unknown content.
	Codec batch.Codec
	// Transcode appends a record to dst in the form that the fallback wants. Default
	// nil: records are handed over as they are. See [TranscodeJSON].
	Transcode func(dst []byte, c batch.Codec, rec *batch.Record) []byte
	// Form is the codec of the result of Transcode. Default nil: plain lines.
	Form batch.Codec
}

// ToOutput returns an [ErrorHandler] that gives records to another output, the
// fallback. A record that the fallback accepts counts as handled, and the fallback
// accounts for it from then on.
// A record that the fallback drops at once, because it is full, stays pending, and so do
// the records behind it; they are offered again after the retry delay. The handler does
// not close the fallback.
//
// It is an error if the fallback has a Codec method and its content type is not that of
// Codec or, with Transcode, of Form.
func ToOutput(fallback RecordWriter, o *ToOutputOptions) (ErrorHandler, error) {
	if fallback == nil {
		return nil, errors.New("deliver: fallback is nil")
	}
	if o == nil {
		o = &ToOutputOptions{}
	}
	form := o.Codec
	if o.Transcode != nil {
		form = o.Form
	}
	if c, ok := fallback.(interface{ Codec() batch.Codec }); ok && contentType(c.Codec()) != contentType(form) {
		return nil, fmt.Errorf("deliver: fallback does not take records of content type %q: give a Transcode", contentType(form))
	}
	return &toOutput{fallback, *o}, nil
}

// contentType returns the content type of c, "" for plain lines.
func contentType(c batch.Codec) string {
	if c == nil {
		return ""
	}
	return c.ContentType()
}

type toOutput struct {
	to RecordWriter
	o  ToOutputOptions
}

func (t *toOutput) HandleError(cause error, b *batch.Batch) batch.Outcome {
	return t.handle(context.Background(), cause, b)
}

func (t *toOutput) handle(ctx context.Context, _ error, b *batch.Batch) batch.Outcome {
	var buf []byte
	for i, rec := range b.All() {
		if ctx.Err() != nil {
			return batch.Outcome{Open: batch.From(i), Why: context.Cause(ctx)}
		}
		p := rec.Data
		if t.o.Transcode != nil {
			buf = t.o.Transcode(buf[:0], b.Codec, &rec)
			p = buf
		}
		if err := t.to.WriteRecord(p, rec.Meta); err != nil {
			return batch.Outcome{Open: batch.From(i), Why: fmt.Errorf("fallback: %w", err)}
		}
	}
	return batch.Outcome{}
}

// TranscodeJSON appends rec as one JSON object and a newline, see [JSONLines].
func TranscodeJSON(dst []byte, c batch.Codec, rec *batch.Record) []byte {
	return append(appendRecord(dst, c, rec), '\n')
}

// LogTo returns an [ErrorHandler] that logs the failure, not the records: one slog record
// for each offer, at slog.LevelError, with the error and the number of records and bytes.
// It takes no record, so all stay pending; put it before another handler with [FirstOf].
//
// If h logs to the destination that failed, each offer adds one waiting record. Offers
// come no faster than the retry delay.
func LogTo(h slog.Handler) ErrorHandler { return logTo{h} }

type logTo struct{ h slog.Handler }

func (l logTo) HandleError(cause error, b *batch.Batch) batch.Outcome {
	return l.handle(context.Background(), cause, b)
}

func (l logTo) handle(ctx context.Context, cause error, b *batch.Batch) batch.Outcome {
	if !l.h.Enabled(ctx, slog.LevelError) {
		return tookNothing(cause)
	}
	r := slog.NewRecord(time.Now(), slog.LevelError, "log records were not delivered", 0)
	r.AddAttrs(slog.Any("error", cause), slog.Uint64("records", countable(b)), slog.Int("bytes", b.Bytes()))
	if err := l.h.Handle(ctx, r); err != nil {
		cause = errors.Join(cause, err)
	}
	return tookNothing(cause)
}

// FirstOf returns an [ErrorHandler] that asks handlers in turn until one of them takes
// records. If that one takes only a part, the rest is offered again later, from the first
// handler on.
func FirstOf(handlers ...ErrorHandler) ErrorHandler { return firstOf(handlers) }

type firstOf []ErrorHandler

func (f firstOf) HandleError(cause error, b *batch.Batch) batch.Outcome {
	return f.handle(context.Background(), cause, b)
}

func (f firstOf) handle(ctx context.Context, cause error, b *batch.Batch) batch.Outcome {
	o := tookNothing(cause)
	for _, h := range f {
		b.Tally = batch.Tally{}
		o = askHandler(ctx, h, cause, b)
		if ctx.Err() != nil || o.Open.Len(b.Len()) < b.Len() {
			return o
		}
	}
	return o
}
