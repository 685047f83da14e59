package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

func mustPoison(t *testing.T, sink batch.Sink, o PoisonOptions) (*Poison, *testkit.Events) {
	t.Helper()
	ev := &testkit.Events{}
	o.OnError = ev.Add
	p, err := NewPoison(sink, &o)
	if err != nil {
		t.Fatal(err)
	}
	return p, ev
}

func bad(tickets ...uint64) func(batch.Record) bool {
	return func(r batch.Record) bool { return slices.Contains(tickets, r.Ticket) }
}

// expect returns the tickets 1 to n without those in but.
func expect(n int, but ...uint64) (out []uint64) {
	for i := uint64(1); i <= uint64(n); i++ {
		if !slices.Contains(but, i) {
			out = append(out, i)
		}
	}
	return out
}

// One record at fault, anywhere in batches of any size, is found within the
// request budget; all others are delivered once and in order.
func TestBisectOne(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 100, 1000} {
		for _, at := range []int{1, n/2 + 1, n} {
			sink := testkit.NewSink(testkit.Poisoned(bad(uint64(at)), 400))
			dead := &handlerLog{}
			p, ev := mustPoison(t, sink, PoisonOptions{DeadLetter: dead})
			b := lines(n)
			if err := p.Send(t.Context(), b); err != nil {
				t.Fatalf("%d of %d: %v", at, n, err)
			}
			if got := sink.Got(); !slices.Equal(got, expect(n, uint64(at))) {
				t.Errorf("%d of %d: delivered %v", at, n, got)
			}
			if got := dead.all(); !slices.Equal(got, []uint64{uint64(at)}) {
				t.Errorf("%d of %d: dead letters %v", at, n, got)
			}
			if want := (batch.Tally{Dropped: batch.Drops{batch.Poison: 1}}); b.Tally != want || p.Dropped() != 1 {
				t.Errorf("%d of %d: %+v", at, n, b.Tally)
			}
			if cost := sink.Calls() - 1; cost > requests(n) {
				t.Errorf("%d of %d: %d requests, at most %d", at, n, cost, requests(n))
			}
			_ = ev
		}
	}
}

// Whatever is at fault, a search delivers nothing twice and accounts for everything.
// With not too many at fault it loses nothing else, delivers in order, and what it
// costs is bounded.
func TestBisectRandom(t *testing.T) {
	seed := testkit.Seed(t)
	rng := testkit.Rand(seed)
	for round := range testkit.Rounds(500, 50000) {
		n := 1 + rng.IntN(300)
		faults := make([]uint64, rng.IntN(5))
		if rng.IntN(10) == 0 {
			faults = make([]uint64, rng.IntN(n+1))
		}
		for i := range faults {
			faults[i] = uint64(1 + rng.IntN(n))
		}
		slices.Sort(faults)
		faults = slices.Compact(faults)
		answer := testkit.Poisoned(bad(faults...), 422)
		if rng.IntN(3) == 0 {
			answer = testkit.PoisonedByIndex(bad(faults...), 422)
		}
		sink := testkit.NewSink(answer)
		dead := &handlerLog{}
		p, _ := mustPoison(t, sink, PoisonOptions{DeadLetter: dead})
		b := lines(n)
		if err := p.Send(t.Context(), b); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		got, lost := sink.Got(), dead.all()
		few := len(faults) <= 5
		if few && (!slices.IsSorted(got) || !slices.IsSorted(lost)) {
			t.Fatalf("round %d: not in order: %v, %v", round, got, lost)
		}
		slices.Sort(got)
		if len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("round %d: twice: %v", round, got)
		}
		if len(got)+len(lost) != n || uint64(len(lost)) != b.Tally.Dropped[batch.Poison] || b.Tally.Settled() != uint64(len(lost)) {
			t.Fatalf("round %d: %d delivered, %d dead letters of %d, tally %+v", round, len(got), len(lost), n, b.Tally)
		}
		for _, f := range faults {
			if !slices.Contains(lost, f) {
				t.Fatalf("round %d: record %d was delivered, though refused", round, f)
			}
		}
		if few && len(lost) != len(faults) {
			t.Fatalf("round %d: %v at fault, %v lost", round, faults, lost)
		}
		if cost := sink.Calls() - 1; cost > (len(faults)+1)*(requests(n)+samples) {
			t.Fatalf("round %d: %d requests for %v of %d", round, cost, faults, n)
		}
	}
}

// A batch that was refused for what its records have in common loses none of
// them: each is sent alone before it would be dropped.
func TestBisectTogether(t *testing.T) {
	sink := testkit.NewSink(func(_ context.Context, _ int, b *batch.Batch) ([]int, error) {
		if b.Len() > 5 {
			return nil, batch.Permanent(errors.New("too many streams"))
		}
		return nil, nil
	})
	p, _ := mustPoison(t, sink, PoisonOptions{})
	b := lines(10)
	if err := p.Send(t.Context(), b); err != nil || b.Tally.Settled() != 0 || !slices.Equal(sink.Got(), expect(10)) {
		t.Errorf("%v, %+v, got %v", err, b.Tally, sink.Got())
	}
}

// A destination that refuses everything is recognised.
func TestBisectAll(t *testing.T) {
	sink := testkit.NewSink(testkit.Fail(batch.Permanent(errors.New("gone"))))
	dead := &handlerLog{}
	p, _ := mustPoison(t, sink, PoisonOptions{DeadLetter: dead})
	b := lines(1000)
	if err := p.Send(t.Context(), b); err != nil || b.Tally.Dropped[batch.Poison] != 1000 {
		t.Errorf("%v, %+v", err, b.Tally)
	}
	all := dead.all()
	slices.Sort(all)
	if cost := sink.Calls() - 1; cost > requests(1000)+samples || !slices.Equal(all, expect(1000)) {
		t.Errorf("%d requests, %d dead letters", cost, len(dead.all()))
	}
}

// Records at fault that lie scattered are told from the others, however many.
func TestBisectScattered(t *testing.T) {
	for _, k := range []int{3, 20, 100} {
		rng := testkit.Rand(uint64(k))
		var faults []uint64
		for _, i := range rng.Perm(1000)[:k] {
			faults = append(faults, uint64(i+1))
		}
		slices.Sort(faults)
		sink := testkit.NewSink(testkit.Poisoned(bad(faults...), 400))
		dead := &handlerLog{}
		p, _ := mustPoison(t, sink, PoisonOptions{DeadLetter: dead})
		b := lines(1000)
		if err := p.Send(t.Context(), b); err != nil || b.Tally.Dropped[batch.Poison] != uint64(k) {
			t.Errorf("%v, %+v", err, b.Tally)
		}
		if !slices.Equal(sink.Got(), expect(1000, faults...)) || !slices.Equal(dead.all(), faults) {
			t.Errorf("%d at fault: %d delivered, %d dead letters", k, len(sink.Got()), len(dead.all()))
		}
		if cost := sink.Calls(); cost > k*requests(1000) {
			t.Errorf("%d requests for %d", cost, k)
		}
	}
}

// Many bad records at the beginning do not condemn the good ones behind them.
func TestBisectSurvey(t *testing.T) {
	sink := testkit.NewSink(testkit.Poisoned(func(r batch.Record) bool { return r.Ticket <= 300 }, 400))
	dead := &handlerLog{}
	p, _ := mustPoison(t, sink, PoisonOptions{DeadLetter: dead})
	b := lines(1000)
	if err := p.Send(t.Context(), b); err != nil || b.Tally.Dropped[batch.Poison] != 300 {
		t.Errorf("%v, %+v", err, b.Tally)
	}
	got := sink.Got()
	slices.Sort(got)
	if want := expect(1000)[300:]; !slices.Equal(got, want) {
		t.Errorf("%d delivered", len(got))
	}
	// The destination fails in the middle: what a survey delivered is not sent again.
	for calls := 1; calls < 40; calls++ {
		refuse := testkit.Poisoned(func(r batch.Record) bool { return r.Ticket <= 30 }, 400)
		sink := testkit.NewSink(func(ctx context.Context, call int, b *batch.Batch) ([]int, error) {
			if call == calls {
				return nil, testkit.ErrDown
			}
			return refuse(ctx, call, b)
		})
		p, _ := mustPoison(t, sink, PoisonOptions{})
		m := &testkit.Model{}
		for rest := m.Batch(100, 32, batch.Meta{}); rest != nil; {
			rest = m.Sent(rest, p.Send(t.Context(), rest))
		}
		a, got := balance(t, m, p), sink.Got()
		slices.Sort(got)
		if a.Delivered != 70 || a.Dropped[batch.Poison] != 30 || !slices.Equal(got, expect(100)[30:]) {
			t.Errorf("interrupted at call %d: %s, got %v", calls, a, got)
		}
	}
}

// The dead letter gets the destination's error, with its status.
func TestDeadLetterReason(t *testing.T) {
	dead := &handlerLog{}
	p, ev := mustPoison(t, testkit.NewSink(testkit.Poisoned(bad(2), 422)), PoisonOptions{DeadLetter: dead})
	if err := p.Send(t.Context(), lines(3)); err != nil {
		t.Fatal(err)
	}
	if e := batch.Inspect(dead.errs[0]); e.Status != 422 || e.Err.Error() != "a record is malformed" {
		t.Errorf("got %+v", e)
	}
	_ = ev
}

// Failures that may be retried end the search; what is settled by then stays so.
func TestBisectInterrupted(t *testing.T) {
	for calls := 1; calls < 14; calls++ {
		refuse := testkit.Poisoned(bad(5, 6), 400)
		sink := testkit.NewSink(func(ctx context.Context, call int, b *batch.Batch) ([]int, error) {
			if call == calls {
				return nil, testkit.ErrDown
			}
			return refuse(ctx, call, b)
		})
		dead := &handlerLog{}
		p, _ := mustPoison(t, sink, PoisonOptions{DeadLetter: dead})
		m := &testkit.Model{}
		for rest := m.Batch(16, 32, batch.Meta{}); rest != nil; {
			rest = m.Sent(rest, p.Send(t.Context(), rest))
		}
		a := balance(t, m, p)
		if a.Delivered != 14 || a.Dropped[batch.Poison] != 2 || !slices.Equal(sink.Got(), expect(16, 5, 6)) || !slices.Equal(dead.all(), []uint64{5, 6}) {
			t.Errorf("interrupted at call %d: %s, got %v, dead %v", calls, a, sink.Got(), dead.all())
		}
	}
}

// Nothing is buried when ctx has ended: there is no time to write the letter.
func TestNoBurialAfterCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sink := testkit.NewSink(func(context.Context, int, *batch.Batch) ([]int, error) {
		cancel()
		return nil, batch.Permanent(errors.New("400"))
	})
	dead := &handlerLog{}
	p, _ := mustPoison(t, sink, PoisonOptions{DeadLetter: dead})
	b := lines(1)
	if err := p.Send(ctx, b); len(left(1, err)) != 1 || !batch.Retryable(err) || b.Tally.Settled() != 0 || dead.calls() != 0 {
		t.Errorf("%v, %+v, %d dead letters", err, b.Tally, dead.calls())
	}
}

// A dead letter that cannot be written is counted and reported once.
func TestDeadLetterFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &handlerLog{answer: func(int, *batch.Batch, error) error { return errors.New("disk full") }}
		p, ev := mustPoison(t, testkit.NewSink(testkit.Poisoned(bad(2, 5), 400)), PoisonOptions{DeadLetter: full})
		b := lines(6)
		if err := p.Send(t.Context(), b); err != nil || b.Tally.Dropped[batch.Poison] != 2 || p.Unburied() != 2 {
			t.Errorf("%v, %+v, %d unburied", err, b.Tally, p.Unburied())
		}
		synctest.Wait()
		if got := ev.Ops(); !slices.Equal(got, []string{"poison", "dead-letter"}) {
			t.Errorf("events %v", got)
		}
	})
}

// Batches that are too large are halved until they fit, in order, and the size
// is remembered.
func TestTooLarge(t *testing.T) {
	const record = 32
	for limit := record; limit < 40*record; limit += 45 {
		sink := testkit.NewSink(testkit.AtMost(limit))
		p, _ := mustPoison(t, sink, PoisonOptions{})
		m := &testkit.Model{}
		for range 5 {
			before, failed := sink.Calls(), 0
			b := m.Batch(64, record, batch.Meta{})
			if err := p.Send(t.Context(), b); err != nil || b.Tally.Settled() != 0 {
				t.Fatalf("limit %d: %v, %+v", limit, err, b.Tally)
			}
			for _, n := range sink.Sizes()[before:] {
				if n*record > limit {
					failed++
				}
			}
			if before > 0 && failed > 0 {
				t.Errorf("limit %d: %d requests too large after the first batch", limit, failed)
			}
		}
		if !slices.Equal(sink.Got(), expect(64*5)) {
			t.Errorf("limit %d: got %v", limit, sink.Got())
		}
	}
}

// A single record that is too large is dropped; the others go.
func TestTooLargeRecord(t *testing.T) {
	var build batch.Builder
	for i, n := range []int{10, 10, 500, 10, 10, 600, 10} {
		build.Append([]byte(strings.Repeat("x", n)), uint64(i+1), batch.Meta{})
	}
	sink := testkit.NewSink(testkit.AtMost(100))
	dead := &handlerLog{}
	p, _ := mustPoison(t, sink, PoisonOptions{DeadLetter: dead})
	b := build.Batch(nil)
	if err := p.Send(t.Context(), b); err != nil || b.Tally.Dropped[batch.Poison] != 2 {
		t.Errorf("%v, %+v", err, b.Tally)
	}
	if !slices.Equal(sink.Got(), expect(7, 3, 6)) || !slices.Equal(dead.all(), []uint64{3, 6}) {
		t.Errorf("got %v, dead %v", sink.Got(), dead.all())
	}
}

// The remembered size grows again.
func TestTooLargeGrows(t *testing.T) {
	sink := testkit.NewSink(testkit.Script(testkit.AtMost(100), testkit.Take))
	p, _ := mustPoison(t, sink, PoisonOptions{})
	_ = p.Send(t.Context(), lines(64))
	small := p.bound()
	if small == 0 {
		t.Fatal("the size was not remembered")
	}
	for range 300 {
		if err := p.Send(t.Context(), lines(64)); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.bound(); got < small+small/4 {
		t.Errorf("bound %d after 600 Sends, from %d", got, small)
	}
}

// Poison in batches that are also too large is found as well.
func TestTooLargeAndPoison(t *testing.T) {
	seed := testkit.Seed(t)
	rng := testkit.Rand(seed)
	for round := range testkit.Rounds(300, 20000) {
		n := 1 + rng.IntN(200)
		limit := 32 * (1 + rng.IntN(n+1))
		fault := uint64(1 + rng.IntN(n))
		size, poison := testkit.AtMost(limit), testkit.Poisoned(bad(fault), 400)
		sink := testkit.NewSink(func(ctx context.Context, call int, b *batch.Batch) ([]int, error) {
			if _, err := size(ctx, call, b); err != nil {
				return nil, err
			}
			return poison(ctx, call, b)
		})
		p, _ := mustPoison(t, sink, PoisonOptions{})
		m := &testkit.Model{}
		b := m.Batch(n, 32, batch.Meta{})
		err := p.Send(t.Context(), b)
		if rest := m.Sent(b, err); rest != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		a := balance(t, m, p)
		if a.Dropped[batch.Poison] != 1 || !slices.Equal(sink.Got(), expect(n, fault)) {
			t.Fatalf("round %d: %d at fault of %d, limit %d: %s, got %v", round, fault, n, limit, a, sink.Got())
		}
	}
}

func ExamplePoison() {
	refuse := batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
		for i, rec := range b.All() {
			if bytes.Contains(rec.Data, []byte("bad")) {
				return &batch.SendError{Kind: batch.KindReject, Err: fmt.Errorf("line %d is malformed", i), Status: 400}
			}
		}
		fmt.Printf("delivered %d: %q\n", b.Len(), b.AppendTo(nil))
		return nil
	})
	p, err := NewPoison(refuse, &PoisonOptions{
		DeadLetter: ErrorHandlerFunc(func(err error, b *batch.Batch) error {
			fmt.Printf("buried: %q, because %v\n", b.AppendTo(nil), err)
			return nil
		}),
		OnError: func(batch.Event) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var build batch.Builder
	for _, line := range []string{"one\n", "bad\n", "three\n", "four\n"} {
		build.Append([]byte(line), 0, batch.Meta{})
	}
	b := build.Batch(nil)
	fmt.Println(p.Send(context.Background(), b), b.Tally.Dropped)
	// Output:
	// delivered 1: "one\n"
	// buried: "bad\n", because line 0 is malformed
	// delivered 2: "three\nfour\n"
	// <nil> poison=1
}
