package batch_test

import (
	"errors"
	"testing"

	"github.com/forebay-log/forebay/batch"
)

// Lost drops what was not taken, names no record as refused, and keeps the cause.
func TestLost(t *testing.T) {
	var build batch.Builder
	for range 5 {
		build.Append([]byte("x\n"), 0, batch.Meta{})
	}
	b := build.Batch(nil)
	cause := errors.New("gone")
	err := batch.Lost(b, 2, cause)
	e := batch.Inspect(err)
	if e.Kind != batch.KindReject || e.Records == nil || len(e.Records) != 0 || !errors.Is(err, cause) {
		t.Errorf("%+v", e)
	}
	if b.Tally.Dropped[batch.Failed] != 3 || b.Tally.Settled() != 3 {
		t.Errorf("%+v", b.Tally)
	}
}
