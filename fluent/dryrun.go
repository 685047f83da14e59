package fluent

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"

	"github.com/forebay-log/forebay/batch"
)

// DryRun returns a sink that sends nothing and writes to w what a [Client] with the
// same Config would send: a line for each frame, and its records as JSON below.
func DryRun(w io.Writer, c Config) (batch.Sink, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	return &dryRun{c: r, w: w, framer: newFramer(r), seed: maphash.MakeSeed()}, nil
}

type dryRun struct {
	c      *resolved
	w      io.Writer
	framer *framer
	seed   maphash.Seed
	lay    layout
	frames int
}

// Limits is that of a Client.
func (d *dryRun) Limits() batch.Limits { return batch.Limits{Bytes: d.c.FrameBytes} }

// Accepts is that of a Client.
func (d *dryRun) Accepts(t string) bool { return t == ContentType }

// Send writes the frames of b.
func (d *dryRun) Send(_ context.Context, b *batch.Batch) error {
	l := &d.lay
	l.cut(b, d.c)
	l.name(b, d.seed, 0)
	var out, buf []byte
	for i := range l.frames {
		f := &l.frames[i]
		d.frames++
		buf = d.framer.append(buf[:0], l, b, f)
		out = fmt.Appendf(out, "frame %d: PackedForward tag=%q size=%d payload=%d bytes, message=%d bytes", d.frames, f.tag, f.to-f.from, f.bytes, len(buf))
		if d.framer.zip != nil {
			out = append(out, " compressed=gzip"...)
		}
		if d.framer.ack {
			out = fmt.Appendf(out, " chunk=%s", f.id[:])
		}
		out = append(out, '\n')
		for _, k := range l.indexes(nil, f) {
			rec := b.At(k)
			out = append(out, "  "...)
			out = entryCodec{}.AppendJSON(out, rec.Data, batch.Meta{})
			out = append(out, '\n')
		}
	}
	if _, err := d.w.Write(out); err != nil {
		return batch.Permanent(fmt.Errorf("fluent: cannot write dry run: %w", err))
	}
	if len(l.refused) > 0 {
		return batch.Reject(l.why, l.refused...)
	}
	return nil
}
