package deliver

import (
	"context"
	"testing"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// okSink takes everything.
type okSink struct{ n int }

func (s *okSink) Send(_ context.Context, b *batch.Batch) error {
	s.n += b.Len()
	return nil
}

// okAsync takes everything and answers at once.
type okAsync struct{ okSink }

func (s *okAsync) Window() int { return 4 }

func (s *okAsync) Start(_ context.Context, b *batch.Batch, done func(error)) {
	s.n += b.Len()
	done(nil)
}

func quiet() *Options {
	return &Options{
		Spill: &testkit.Spill{}, DeadLetter: &handlerLog{}, Handler: &handlerLog{},
		OnError: func(batch.Event) {},
	}
}

// When all is well delivery allocates nothing.
func TestNoAllocs(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	full := quiet()
	full.Spill, full.SpillWhenFull = &testkit.Spill{}, true
	for _, tt := range []struct {
		name string
		sink batch.Sink
		o    *Options
		most float64
	}{
		{"sync", &okSink{}, quiet(), 0},
		{"async", &okAsync{}, quiet(), 0},
		{"spill when full", &okSink{}, full, 1},
	} {
		e := mustNew(t, tt.sink, tt.o)
		if tt.o.SpillWhenFull {
			if _, err := e.SpillWhen(func() bool { return false }); err != nil {
				t.Fatal(err)
			}
		}
		b := lines(300)
		allocs := testing.AllocsPerRun(100, func() {
			b.Tally = batch.Tally{}
			if err := e.Send(ctx, b); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > tt.most {
			t.Errorf("%s: %v allocations per batch, want %v (the promise is at most 1)", tt.name, allocs, tt.most)
		}
		mustClose(t, e)
	}
}

// A producer that comes with a new context each time costs a few allocations, in
// the end not more than that.
func TestFreshContexts(t *testing.T) {
	e := mustNew(t, &okSink{}, quiet())
	b := lines(10)
	allocs := testing.AllocsPerRun(100, func() {
		ctx, cancel := context.WithCancel(t.Context())
		b.Tally = batch.Tally{}
		if err := e.Send(ctx, b); err != nil {
			t.Fatal(err)
		}
		cancel()
	})
	if allocs > 10 {
		t.Errorf("%v allocations per batch", allocs)
	}
	mustClose(t, e)
}

// BenchmarkSend shows what delivery adds to a Send of one slab of 64 KiB.
func BenchmarkSend(b *testing.B) {
	bt := new(testkit.Model).Batch(280, 200, batch.Meta{})
	ctx := context.Background()
	run := func(name string, sink batch.Sink) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(bt.Bytes()))
			for b.Loop() {
				bt.Tally = batch.Tally{}
				if err := sink.Send(ctx, bt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("bare", &okSink{})
	run("engine", mustNew(b, &okSink{}, quiet()))
	run("engine-window", mustNew(b, &okAsync{}, quiet()))
	full := quiet()
	full.Spill, full.SpillWhenFull = &testkit.Spill{}, true
	run("engine-spill-when-full", mustNew(b, &okSink{}, full))
}
