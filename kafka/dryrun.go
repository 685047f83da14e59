package kafka

import (
	"context"
	"fmt"

	"github.com/forebay-log/forebay/batch"
)

// sendDry writes the records of b to Config.DryRun, one line each. All records count as delivered.
// If the write fails, the outlet drops the records.
func (d *Driver) sendDry(_ context.Context, b *batch.Batch) batch.Outcome {
	k := newPacker(d)
	k.begin(b)
	var out []byte
	for _, rec := range b.All() {
		out = fmt.Appendf(out, "topic %s", k.topicOf(b.Codec, &rec))
		if key := k.keyOf(b.Codec, &rec); key != nil {
			out = fmt.Appendf(out, ", key %q", key)
		}
		out = fmt.Appendf(out, ": %s\n", k.fill(b, &rec))
	}
	if _, err := d.c.DryRun.Write(out); err != nil {
		return batch.Outcome{Open: batch.All(), Why: fmt.Errorf("kafka: cannot write dry run: %w", err), Advice: batch.Gone}
	}
	return batch.Outcome{}
}
