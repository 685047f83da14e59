package loki

import (
	"context"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// DryRun returns a destination that sends nothing and writes to w what s would send: a
// line for each request, and its entries as JSON below. It refuses the records that s
// would refuse. Make its Pusher with [NewPusher].
func DryRun(w io.Writer, s *Pusher) deliver.Destination {
	t := s.Traits()
	t.Window = 1
	return deliver.SendFunc(t, (&dryRun{w: w, s: s}).send)
}

type dryRun struct {
	w io.Writer
	s *Pusher
}

// send writes the requests of b.
func (d *dryRun) send(_ context.Context, b *batch.Batch) batch.Outcome {
	s := d.s
	form, err := formOfBatch(b)
	if err != nil {
		return batch.Outcome{Refused: batch.All(), Refusal: err}
	}
	p := s.push.getPush()
	defer s.push.release(p)
	p.form = form
	s.push.gather(p, b)
	var out []byte
	u := *s.c.endpoint
	if u.RawQuery != "" { // it may hold a secret
		u.RawQuery = "…"
	}
	for i := range p.groups {
		g := &p.groups[i]
		out = fmt.Appendf(out, "POST %s", u.String())
		tenant := g.st.tenant
		if tenant == "" {
			tenant = s.c.Tenant
		}
		if tenant != "" {
			out = fmt.Appendf(out, " tenant=%s", tenant)
		}
		out = fmt.Appendf(out, " %s: %d entries, %d bytes\n", g.st.labels, len(g.order), g.bytes)
		for _, k := range g.order {
			out = append(out, "  "...)
			out = codec{s.enc, form}.AppendJSON(out, p.recs[k].data, batch.Meta{Stream: unknownStream})
			out = append(out, '\n')
		}
	}
	if _, err := d.w.Write(out); err != nil {
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("loki: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	if p.why != nil {
		return batch.Outcome{Refused: batch.Of(p.indexes(refused)...), Refusal: p.why}
	}
	return batch.Outcome{}
}

// unknownStream is a number no stream has.
const unknownStream = 1<<32 - 1
