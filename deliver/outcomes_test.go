package deliver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// What a fallback answers is understood: it gets each record once, and those that
// it will never take are dropped, with a dead letter.
func TestToSinkOutcomes(t *testing.T) {
	no := errors.New("no")
	for _, tt := range []struct {
		name   string
		answer testkit.Answer
		json   bool
		tally  batch.Tally // of ten records
		stay   int
		dead   []uint64
		calls  int // of the fallback, at most
	}{
		{"takes", testkit.Take, false, batch.Tally{Handled: 10}, 0, nil, 1},
		{"refuses one by name", testkit.PoisonedByIndex(bad(4), 400), false, batch.Tally{Handled: 9, Dropped: batch.Drops{batch.Poison: 1}}, 0, []uint64{4}, 1},
		{"refuses one in JSON", testkit.PoisonedByIndex(bad(4), 400), true, batch.Tally{Handled: 9, Dropped: batch.Drops{batch.Poison: 1}}, 0, []uint64{4}, 1},
		{"refuses because of some", testkit.Poisoned(bad(4, 9), 400), false, batch.Tally{Handled: 8, Dropped: batch.Drops{batch.Poison: 2}}, 0, []uint64{4, 9}, 20},
		{"takes the first", testkit.Script(testkit.First(3), testkit.Take), false, batch.Tally{Handled: 10}, 0, nil, 2},
		{"takes some", testkit.Script(testkit.Some(1, 4), testkit.Take), false, batch.Tally{Handled: 10}, 0, nil, 2},
		{"ends", func(_ context.Context, call int, b *batch.Batch) ([]int, error) {
			if call > 0 {
				return nil, batch.Lost(b, 0, no)
			}
			return []int{0, 1, 2}, batch.Lost(b, 3, no)
		}, false, batch.Tally{Handled: 3}, 7, nil, 1000},
		{"wants less at once", func(_ context.Context, _ int, b *batch.Batch) ([]int, error) {
			if b.Len() > 3 {
				return nil, batch.TooLarge(no)
			}
			return testkit.Take(context.Background(), 0, b)
		}, false, batch.Tally{Handled: 10}, 0, nil, 20},
		{"refuses everything", testkit.Fail(batch.Permanent(no)), false, batch.Tally{}, 10, nil, 10000},
		{"talks nonsense", testkit.Fail(batch.Prefix(99, no)), false, batch.Tally{}, 10, nil, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fb := testkit.NewSink(tt.answer)
				o := &ToSinkOptions{}
				if tt.json {
					o.Transcode = TranscodeJSON
				}
				h, err := ToSink(fb, o)
				if err != nil {
					t.Fatal(err)
				}
				dead := &handlerLog{}
				e := mustNew(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), &Options{Handler: h, DeadLetter: dead})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				b := lines(10)
				err = e.Send(ctx, b)
				if got := len(left(10, err)); got != tt.stay || b.Tally != tt.tally {
					t.Errorf("%v: %d stay, %+v", err, got, b.Tally)
				}
				if !slices.Equal(dead.all(), tt.dead) || fb.Calls() > tt.calls {
					t.Errorf("dead letters %v, %d calls", dead.all(), fb.Calls())
				}
				got := fb.Got()
				if slices.Sort(got); len(slices.Compact(got)) != int(tt.tally.Handled) || len(fb.Got()) != int(tt.tally.Handled) {
					t.Errorf("the fallback has %v", fb.Got())
				}
				mustClose(t, e)
			})
		})
	}
}

// A fallback that has proved that it takes records is believed when it refuses one
// that comes alone; one that has not, is not.
func TestToSinkSingles(t *testing.T) {
	fb := testkit.NewSink(testkit.Poisoned(bad(1), 400))
	h, err := ToSink(fb, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.HandleError(testkit.ErrDown, lines(1)); batch.Inspect(err).Kind != batch.KindRetry {
		t.Errorf("before: %v", err)
	}
	if err := h.HandleError(testkit.ErrDown, lines(3)); !slices.Equal(left(3, err), []int{0}) {
		t.Errorf("one of three: %v", err)
	}
	if err := h.HandleError(testkit.ErrDown, lines(1)); batch.Inspect(err).Kind != batch.KindReject {
		t.Errorf("after: %v", err)
	}
}

// A destination that claims what cannot be has settled nothing, and that is said.
func TestNonsense(t *testing.T) {
	for name, err := range map[string]error{
		"more than all":    batch.Prefix(99, testkit.ErrDown),
		"fewer than none":  batch.Prefix(-1, testkit.ErrDown),
		"no such records":  batch.Partial(testkit.ErrDown, 3, 10),
		"not ascending":    batch.Partial(testkit.ErrDown, 5, 2),
		"a nil *SendError": (*batch.SendError)(nil),
	} {
		for _, async := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ev := &testkit.Events{}
				inner := testkit.NewSink(testkit.Script(testkit.Fail(err), testkit.Take))
				sink := batch.Sink(inner)
				if async {
					sink = &answeredAsync{inner}
				}
				e := mustNew(t, sink, &Options{OnError: ev.Add})
				m := &testkit.Model{}
				send(t, m, e, m.Batch(10, 32, batch.Meta{}))
				if err := e.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := inner.Got(); len(got) != 10 || balance(t, m, e).Delivered != 10 {
					t.Errorf("%s: delivered %v", name, got)
				}
				synctest.Wait()
				if ev.Count("send") != 1 {
					t.Errorf("%s: events %v", name, ev.Ops())
				}
				mustClose(t, e)
			})
		}
		if name != "a nil *SendError" {
			if got := sane(10, err); batch.Inspect(got).Kind != batch.KindRetry || !strings.Contains(got.Error(), "makes no sense") || !errors.Is(got, testkit.ErrDown) {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
}

// answeredAsync answers every Start at once.
type answeredAsync struct{ *testkit.Sink }

func (s *answeredAsync) Window() int { return 2 }

func (s *answeredAsync) Start(ctx context.Context, b *batch.Batch, done func(error)) {
	done(s.Send(ctx, b))
}
