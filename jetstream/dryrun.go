package jetstream

import (
	"context"
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// sendDry writes the records of b to Config.DryRun, one line each. All records count as delivered.
// If the write fails, the outlet drops the records.
func (d *Driver) sendDry(_ context.Context, b *batch.Batch) batch.Outcome {
	fill := newFiller()
	var out, subject []byte
	for _, rec := range b.All() {
		subject = fill.Append(subject[:0], &d.subject, b.Codec, &rec)
		out = fmt.Appendf(out, "subject %s: %s\n", subject, payload(b.Codec, &rec))
	}
	if _, err := d.c.DryRun.Write(out); err != nil {
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("jetstream: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	return batch.Outcome{}
}
