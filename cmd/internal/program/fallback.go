package program

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/record"
)

// A fallback is the destination of --fallback, which the engines of all outputs
// share. Records come in the form of the output that could not
// deliver them, and go on in the form that this destination wants.
type fallback struct {
	to string // as it is shown: without secrets
	t  *target

	send      func(context.Context, *batch.Batch) batch.Outcome
	encode    encodeFunc // of t; nil: lines
	closeDest func(context.Context) error

	mu     sync.Mutex    // guards the rest; held during Send
	lines  record.Parser // of lines as they came
	parser record.Parser // of what was made of them
	buf    []byte
}

// openFallback opens what --fallback says.
func openFallback(p *pipeConfig, c *outputConfig) (*fallback, error) {
	for _, out := range p.outs {
		if out.name == c.name || p.named && out.To == c.To {
			return nil, fmt.Errorf("--fallback %s: it is also given as --to: use another destination", setting.Redact(c.name))
		}
	}
	t, err := openAt(p.dests, "--fallback", c)
	if err != nil {
		return nil, err
	}
	f := newFallback(setting.Redact(c.name), t)
	f.lines = p.parser()
	return f, nil
}

func newFallback(to string, t *target) *fallback {
	f := &fallback{to: to, t: t}
	if t.newEncoder != nil {
		f.encode = t.newEncoder()
	}
	f.send, f.closeDest = deliver.Direct(t.dest)
	return f
}

// Send sends b, in another form if it takes one.
func (f *fallback) Send(ctx context.Context, b *batch.Batch) batch.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.t.takes(b.Codec) {
		return f.send(ctx, b)
	}
	var build batch.Builder
	for _, rec := range b.All() {
		data, m := f.transcode(b.Codec, &rec)
		build.Append(data, rec.Ticket, m)
	}
	codec := f.t.codec
	if f.encode == nil {
		codec = record.AsJSON.Codec()
	}
	out := build.Batch(codec)
	out.Origin = b.Origin
	return f.send(ctx, out)
}

// takes reports whether the destination takes records of this form as they are.
func (t *target) takes(c batch.Codec) bool {
	if t.newEncoder == nil {
		return isLines(c)
	}
	if c == nil || t.codec == nil || c.ContentType() != t.codec.ContentType() {
		return false
	}
	dict := t.dictionary()
	return dict == nil || dict == fluent.Tags() // else its numbers of streams are its own
}

// isLines reports whether records of this form are lines that a file can take.
func isLines(c batch.Codec) bool {
	if c == nil {
		return true
	}
	_, ok := encode.CodecFor(c.ContentType())
	return ok
}

// transcode returns a record in the form of the destination. What cannot be
// encoded there goes as text, in quotes.
func (f *fallback) transcode(c batch.Codec, rec *batch.Record) ([]byte, batch.Meta) {
	line, parser := rec.Data, &f.lines
	if c != nil {
		parser = &f.parser
	}
	if !isLines(c) {
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
