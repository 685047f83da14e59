package loki

import (
	"context"
	"fmt"
	"io"

	"github.com/forebay-log/forebay/batch"
)

// DryRun is a Pusher that sends nothing and writes to w what it would send: a line
// for each request, and its entries as JSON below. What the Pusher would refuse is
// written as such. Make its Pusher with [NewPusher].
func DryRun(w io.Writer, s *Pusher) batch.Sink { return &dryRun{w: w, s: s} }

type dryRun struct {
	w io.Writer
	s *Pusher
}

// Limits is that of a Pusher.
func (d *dryRun) Limits() batch.Limits { return d.s.limits() }

func (d *dryRun) Send(_ context.Context, b *batch.Batch) error {
	s := d.s
	form, err := formOfBatch(b)
	if err != nil {
		return batch.Permanent(err)
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
		return batch.Permanent(fmt.Errorf("loki: cannot write dry run: %w", err))
	}
	if p.why != nil {
		return batch.Reject(p.why, p.indexes(refused)...)
	}
	return nil
}

// unknownStream is a number no stream has.
const unknownStream = 1<<32 - 1
