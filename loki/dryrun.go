package loki

import (
	"context"
	"fmt"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
)

// A drySession is a session with Config.DryRun. Close waits until all events are reported, as it
// does in a session that pushes.
type drySession struct {
	deliver.Session
	push *client
}

// Close ends the session. Package deliver calls it after Send has returned.
func (s drySession) Close() {
	s.Session.Close()
	s.push.close()
}

// sendDry writes the requests of b to Config.DryRun: a line for each stream, followed by its
// entries. Records that exceed the limits of the Config are refused as in a push. If the write
// fails, the open records of b have the advice batch.Gone, after which they are dropped.
func (s *Driver) sendDry(_ context.Context, b *batch.Batch) batch.Outcome {
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
	if u.RawQuery != "" { // a query may contain a secret
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
	if _, err := s.c.DryRun.Write(out); err != nil {
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("loki: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	var o batch.Outcome
	o.Refused, o.Refusal = p.refusal()
	return o
}

// unknownStream is an id that no stream has.
const unknownStream = 1<<32 - 1
