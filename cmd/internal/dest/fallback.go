package dest

import (
	"context"
	"strconv"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/record"
)

// A Fallback is the destination of --fallback, which the engines of all outputs
// share. Records come in the form of the output that could not
// deliver them, and go on in the form that this destination wants.
type Fallback struct {
	To     string // as it is shown: without secrets
	Target *Target

	Direct    func(context.Context, *batch.Batch) batch.Outcome
	encode    EncodeFunc // of t; nil: lines
	CloseDest func(context.Context) error

	mu     sync.Mutex    // guards the rest; held during Send
	Lines  record.Parser // of lines as they came
	parser record.Parser // of what was made of them
	buf    []byte
}

// NewFallback returns a fallback; lines reads records as they came.
func NewFallback(to string, t *Target, lines record.Parser) *Fallback {
	f := &Fallback{To: to, Target: t, Lines: lines}
	if t.NewEncoder != nil {
		f.encode = t.NewEncoder()
	}
	f.Direct, f.CloseDest = deliver.Direct(t.Dest)
	return f
}

// Send sends b, in another form if it takes one.
func (f *Fallback) Send(ctx context.Context, b *batch.Batch) batch.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Target.Takes(b.Codec) {
		return f.Direct(ctx, b)
	}
	out := &batch.Batch{Codec: f.Target.Codec, Origin: b.Origin}
	if f.encode == nil {
		out.Codec = record.AsJSON.Codec()
	}
	for _, rec := range b.All() {
		data, m := f.transcode(b.Codec, &rec)
		out.Append(data, rec.Ticket, m)
	}
	return f.Direct(ctx, out)
}

// Takes reports whether the destination takes records of this form as they are.
func (t *Target) Takes(c batch.Codec) bool {
	if t.NewEncoder == nil {
		return IsLines(c)
	}
	if c == nil || t.Codec == nil || c.ContentType() != t.Codec.ContentType() {
		return false
	}
	dict := t.Dictionary()
	return dict == nil || dict == fluent.Tags() // else its numbers of streams are its own
}

// IsLines reports whether records of this form are lines that a file can take.
func IsLines(c batch.Codec) bool {
	if c == nil {
		return true
	}
	_, ok := encode.CodecFor(c.ContentType())
	return ok
}

// transcode returns a record in the form of the destination. What cannot be
// encoded there goes as text, in quotes.
func (f *Fallback) transcode(c batch.Codec, rec *batch.Record) ([]byte, batch.Meta) {
	line, parser := rec.Data, &f.Lines
	if c != nil {
		parser = &f.parser
	}
	if !IsLines(c) {
		f.buf = append(c.AppendJSON(f.buf[:0], rec.Data, rec.Meta), '\n')
		line = f.buf
	}
	if f.encode == nil {
		return line, rec.Meta
	}
	var ev record.Event
	parser.Parse(line, &ev)
	out, m, err := f.encode(nil, &ev)
	if err != nil {
		quoted := strconv.AppendQuoteToASCII(nil, string(record.TrimEnd(line)))
		out, m, _ = f.encode(nil, &record.Event{Raw: quoted, Line: quoted, Format: record.Text, Time: ev.Time, Level: ev.Level, HasLevel: ev.HasLevel})
	}
	return out, m
}
