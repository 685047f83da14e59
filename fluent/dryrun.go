package fluent

import (
	"context"
	"fmt"
	"slices"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// dryRun is the session of a Driver with Config.DryRun. It writes a description of the frames to
// Config.DryRun and sends nothing.
type dryRun struct {
	c      *Driver
	lay    layout
	frames int // number of frames of this session
}

// modeNames contains the names of the modes in the specification, by value of Config.Mode.
var modeNames = map[string]string{modePacked: "PackedForward", modeForward: "Forward", modeMessage: "Message"}

// openDry returns a session that does not connect.
func (c *Driver) openDry(l deliver.Life) (deliver.Session, error) {
	d := &dryRun{c: c}
	return deliver.SendFunc(c.Traits(), d.send).Open(l)
}

// send writes the description of b: one line for each frame, followed by its records as JSON. The
// records that a session would refuse are refused; all others count as delivered. If the write
// fails, the records are open with the advice batch.Gone, after which they are dropped.
func (d *dryRun) send(_ context.Context, b *batch.Batch) batch.Outcome {
	l := &d.lay
	l.cut(b, d.c.c, d.c.c.bounds())
	l.name(b, d.c.seed, 0)
	var out, buf []byte
	for i := range l.frames {
		f := &l.frames[i]
		d.frames++
		buf = d.c.framer.append(buf[:0], l, b, f)
		out = fmt.Appendf(out, "frame %d: %s tag=%q size=%d payload=%d bytes, message=%d bytes", d.frames, modeNames[d.c.framer.mode], f.tag, f.to-f.from, f.bytes, len(buf))
		if d.c.framer.zip != nil {
			out = append(append(out, " compressed="...), d.c.framer.name...)
		}
		if d.c.framer.ack {
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
	if _, err := d.c.c.DryRun.Write(out); err != nil {
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("fluent: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	return batch.Outcome{Refused: batch.Of(slices.Clone(l.refused)...), Refusal: l.why}
}
