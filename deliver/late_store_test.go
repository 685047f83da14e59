package deliver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// slowSpill takes a minute for an Append.
type slowSpill struct{ testkit.Spill }

func (s *slowSpill) Append(b *batch.Batch) (uint64, error) {
	time.Sleep(time.Minute)
	return s.Spill.Append(b)
}

// A spill that comes back only after Close has counted everything harms nothing.
func TestSpillSlowerThanClose(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sink := testkit.NewAsyncSink(testkit.Fail(batch.RetryAfter(testkit.ErrDown, time.Hour)), 3, testkit.Rand(1), time.Millisecond)
			e := mustNew(t, sink, &Options{Spill: &slowSpill{}})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			for range 3 {
				b := lines(4)
				if err := e.Send(ctx, b); err != nil {
					t.Fatal(err)
				}
			}
			if busy { // the first is there, and the others on their way
				time.Sleep(70 * time.Second)
			} else {
				time.Sleep(time.Second)
			}
			closing, done := context.WithTimeout(t.Context(), time.Second)
			defer done()
			began := time.Now()
			if _, err := e.Shutdown(closing); err == nil || time.Since(began) > 2*time.Second {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			time.Sleep(5 * time.Minute)
		})
	}
}
