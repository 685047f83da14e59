package deliver

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

func mustNew(t testing.TB, sink batch.Sink, o *Options) *Engine {
	t.Helper()
	if o.OnError == nil {
		o.OnError = new(testkit.Events).Add
	}
	e, err := New(sink, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustClose(t testing.TB, e *Engine) batch.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := e.Shutdown(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A destination that misbehaves in every way loses nothing and keeps the order.
func TestRandomFaults(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, spill := range []bool{false, true} {
			for _, partial := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					seed := testkit.Seed(t)
					for round := range testkit.Rounds(25, 2000) {
						randomFaults(t, seed+uint64(round), async, spill, partial)
					}
				})
			}
		}
	}
}

func randomFaults(t *testing.T, seed uint64, async, spill, partial bool) {
	rng := testkit.Rand(seed)
	var sink interface {
		batch.Sink
		Got() []uint64
	}
	answer := testkit.Random(rng, rng.Float64(), partial)
	var as *testkit.AsyncSink
	if async {
		as = testkit.NewAsyncSink(answer, 1+rng.IntN(5), rng, 300*time.Millisecond)
		sink = as
	} else {
		sink = testkit.NewSink(answer)
	}
	o := &Options{}
	var store *testkit.Spill
	if spill {
		store = &testkit.Spill{}
		o.Spill = store
	}
	e := mustNew(t, sink, o)
	m := &testkit.Model{}
	for range 40 {
		produce(t, t.Context(), m, e, m.Batch(1+rng.IntN(60), 32, batch.Meta{}))
		if rng.IntN(4) == 0 {
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		}
	}
	if as != nil {
		as.Answer(nil)
	} else {
		sink.(*testkit.Sink).Answer(nil)
	}
	time.Sleep(10 * time.Minute)
	if err := e.Flush(t.Context()); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	a := balance(t, m, e)
	if a.Delivered != m.Accepted() {
		t.Fatalf("seed %d: %s", seed, a)
	}
	got := sink.Got()
	if partial {
		slices.Sort(got)
	}
	if err := m.Verify(got, m.Accepted()); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if as != nil {
		for _, f := range as.Faults() {
			t.Fatalf("seed %d: %s", seed, f)
		}
	}
	mustClose(t, e)
}
