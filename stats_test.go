package forebay

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
)

// A panicky is an output with a method Stats like that of deliver.Output. The method panics.
type panicky struct{ memOutput }

func (*panicky) Stats() deliver.OutputStats { panic("no statistics") }

// The statistics of an output include the statistics of its deliver.Output.
func TestStatsIncludeDelivery(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRouter(t, Writer(io.Discard), Writer(io.Discard, Direct()), Writer(new(panicky)),
			To(deliver.SendFunc(deliver.Traits{}, func(context.Context, *batch.Batch) batch.Outcome { return batch.FailedOutcome(errors.New("down")) })),
			OnError(func(batch.Event) {}))
		log := r.Logger()
		log.Info("once")
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		time.Sleep(time.Second)
		st := r.Stats()
		for i, want := range []bool{true, false, false, true} {
			d := st.Outputs[i].Delivery
			if (d != nil) != want || d != nil && (d.Accepted != 1 || d.Slab.SlabCount == 0) {
				t.Errorf("output %d: %+v", i, d)
			}
		}
		if o := st.Outputs[3]; !o.FailingSince.Equal(began) || o.Delivery.Deliver.LastError != "down" || !st.Outputs[0].FailingSince.IsZero() {
			t.Errorf("failing since %v, want %v", o.FailingSince, began)
		}
		if st.Closed {
			t.Error("closed already")
		}
		_, _ = r.Close(t.Context())
		if !r.Stats().Closed {
			t.Error("not closed")
		}
	})
}
