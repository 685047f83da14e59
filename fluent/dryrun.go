package fluent

import (
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// DryRun returns a destination that sends nothing and writes to w what a [Client] with
// the same Config would send: a line for each frame, and its records as JSON below.
func DryRun(w io.Writer, c Config) (deliver.Destination, error) {
	r, err := c.resolve()
	if err != nil {
		return nil, err
	}
	d := &dryRun{c: r, w: w, framer: newFramer(r), seed: maphash.MakeSeed()}
	t := newClient(r).Traits()
	t.Window = 1
	return deliver.SendFunc(t, d.send), nil
}

type dryRun struct {
	c      *resolved
	w      io.Writer
	framer *framer
	seed   maphash.Seed
	lay    layout
	frames int
}

// send writes the frames of b.
func (d *dryRun) send(_ context.Context, b *batch.Batch) batch.Outcome {
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
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("fluent: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	return batch.Outcome{Refused: batch.Of(slices.Clone(l.refused)...), Refusal: l.why}
}
