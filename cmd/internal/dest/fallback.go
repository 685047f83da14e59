package dest

import (
	"context"
	"strconv"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/outputhook"
	"github.com/forebay-log/forebay/internal/record"
)

// A Fallback is the destination of --fallback. Several outputs may share it. It converts records
// from the format of the failing output to the format of its destination.
type Fallback struct {
	To     string // address without secrets, for messages
	Target *Target

	// Direct and CloseDest are the results of [outputhook.Direct] for the destination.
	Direct    func(context.Context, *batch.Batch) batch.Outcome
	encode    EncodeFunc // encoder for the destination; nil if the destination accepts lines
	CloseDest func(context.Context) error

	mu     sync.Mutex    // guards the fields below; held during the whole Send
	Lines  record.Parser // parses lines
	parser record.Parser // parses records that a codec has converted to JSON
	buf    []byte
}

// NewFallback returns a fallback to t. lines is the parser for the records of outputs that deliver
// lines.
func NewFallback(to string, t *Target, lines record.Parser) *Fallback {
	f := &Fallback{To: to, Target: t, Lines: lines}
	if t.NewEncoder != nil {
		f.encode = t.NewEncoder()
	}
	f.Direct, f.CloseDest = outputhook.Direct(t.Dest)
	return f
}

// Send sends b to the destination. If the destination requires another format, Send converts the
// records.
func (f *Fallback) Send(ctx context.Context, b *batch.Batch) batch.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Target.Accepts(b.Codec) {
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

// Accepts reports whether t accepts records of the codec c without conversion.
func (t *Target) Accepts(c batch.Codec) bool {
	if t.NewEncoder == nil {
		return IsLines(c)
	}
	if c == nil || t.Codec == nil || c.ContentType() != t.Codec.ContentType() {
		return false
	}
	// Each destination assigns its own numbers to its streams (tags or label sets). Only the
	// numbers of tags are the same for all Drivers of package fluent.
	return t.Dictionary() == nil || c.ContentType() == fluent.Codec().ContentType()
}

// IsLines reports whether the records of the codec c are lines of text.
func IsLines(c batch.Codec) bool {
	if c == nil {
		return true
	}
	_, ok := encode.CodecFor(c.ContentType())
	return ok
}

// transcode converts a record of the codec c to the format of the destination. If this is not
// possible, the result is the record as a quoted text.
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
