package deliver

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/testkit"
)

// handlerLog is an ErrorHandler that notes what it is offered.
type handlerLog struct {
	mu     sync.Mutex
	offers [][]uint64
	errs   []error
	answer func(call int, b *batch.Batch, err error) error
}

func (h *handlerLog) HandleError(err error, b *batch.Batch) error {
	h.mu.Lock()
	var tickets []uint64
	for _, rec := range b.All() {
		tickets = append(tickets, rec.Ticket)
	}
	call := len(h.offers)
	h.offers = append(h.offers, tickets)
	h.errs = append(h.errs, err)
	h.mu.Unlock()
	if h.answer == nil {
		return nil
	}
	return h.answer(call, b, err)
}

func (h *handlerLog) all() (tickets []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.offers {
		tickets = append(tickets, o...)
	}
	return tickets
}

func (h *handlerLog) calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.offers)
}

func mustFallback(t *testing.T, sink batch.Sink, h ErrorHandler, o FallbackOptions) (*Fallback, *testkit.Events) {
	t.Helper()
	ev := &testkit.Events{}
	o.OnError = ev.Add
	f, err := NewFallback(sink, h, &o)
	if err != nil {
		t.Fatal(err)
	}
	return f, ev
}

// What an answer of the handler comes to.
func TestHandlerSemantics(t *testing.T) {
	oops := errors.New("fallback is down")
	release := make(chan struct{})
	tests := []struct {
		name    string
		sink    testkit.Answer
		handler func(call int, b *batch.Batch, err error) error
		offered []uint64
		tally   batch.Tally
		open    []int // of 6 records
	}{
		{"nil", testkit.Fail(testkit.ErrDown), nil, []uint64{1, 2, 3, 4, 5, 6}, batch.Tally{Handled: 6}, nil},
		{"error", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { return oops },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"the rest only", testkit.First(2), nil, []uint64{3, 4, 5, 6}, batch.Tally{Handled: 4}, nil},
		{"the error it was given", testkit.First(2), func(_ int, _ *batch.Batch, err error) error { return err },
			[]uint64{3, 4, 5, 6}, batch.Tally{}, []int{2, 3, 4, 5}},
		{"the error of a partial answer", testkit.Some(1, 2), func(_ int, _ *batch.Batch, err error) error { return err },
			[]uint64{2, 3}, batch.Tally{}, []int{1, 2}},
		{"prefix", testkit.First(2), func(int, *batch.Batch, error) error { return batch.Prefix(1, oops) },
			[]uint64{3, 4, 5, 6}, batch.Tally{Handled: 1}, []int{3, 4, 5}},
		{"partial", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { return batch.Partial(oops, 0, 3) },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{Handled: 4}, []int{0, 3}},
		{"dropped some", testkit.Fail(testkit.ErrDown), func(_ int, b *batch.Batch, _ error) error { b.Tally.Dropped[batch.Poison] = 2; return nil },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{Handled: 4, Dropped: batch.Drops{batch.Poison: 2}}, nil},
		{"refuses", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { return batch.Permanent(oops) },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"refuses one", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { return batch.Reject(oops, 1) },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{Handled: 5, Dropped: batch.Drops{batch.Poison: 1}}, nil},
		{"refuses what is not there", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { return batch.Reject(oops, 6) },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"more than all", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { return batch.Prefix(7, oops) },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"others", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { return batch.Partial(oops, 3, 1) },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"panics", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { panic("boom") },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"exits", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { runtime.Goexit(); return nil },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"hangs", testkit.Fail(testkit.ErrDown), func(int, *batch.Batch, error) error { <-release; return nil },
			[]uint64{1, 2, 3, 4, 5, 6}, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"refused records are none of its business", testkit.Fail(batch.Permanent(oops)), nil, nil, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"nor are large batches", testkit.Fail(batch.TooLarge(oops)), nil, nil, batch.Tally{}, []int{0, 1, 2, 3, 4, 5}},
		{"well", testkit.Take, nil, nil, batch.Tally{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release = make(chan struct{})
				h := &handlerLog{answer: tt.handler}
				f, ev := mustFallback(t, testkit.NewSink(tt.sink), h, FallbackOptions{})
				b := lines(6)
				err := f.Send(t.Context(), b)
				if got := left(6, err); !slices.Equal(got, tt.open) {
					t.Errorf("%v: open %v, want %v", err, got, tt.open)
				}
				if b.Tally != tt.tally {
					t.Errorf("tally %+v, want %+v", b.Tally, tt.tally)
				}
				if got := h.all(); !slices.Equal(got, tt.offered) {
					t.Errorf("offered %v, want %v", got, tt.offered)
				}
				synctest.Wait()
				if failed := f.g.errors.Load() > 0; failed != ev.Has("handler") {
					t.Errorf("%d handler errors, events %v", f.g.errors.Load(), ev.Ops())
				}
				close(release)
			})
		})
	}
}

// The handler is asked once strictly more than PendingLimit records wait, and
// then for all of them.
func TestPendingLimit(t *testing.T) {
	tests := []struct {
		limit   int
		batches []int // records per batch; what is not handled is offered again with the next
		calls   int
		handled int
	}{
		{0, []int{1}, 1, 1},
		{10, []int{10}, 0, 0},
		{10, []int{11}, 1, 11},
		{10, []int{9, 1}, 0, 0},
		{10, []int{9, 2}, 2, 11},
		{10, []int{1, 5, 5}, 3, 11},
		{10, []int{1, 5, 5, 5}, 3, 11},
	}
	for _, tt := range tests {
		h := &handlerLog{}
		m := &testkit.Model{}
		var waiting []*batch.Batch
		pending := func() (n uint64) {
			for _, b := range waiting[1:] { // the first is with the Fallback
				n += uint64(b.Len())
			}
			return n
		}
		f, _ := mustFallback(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), h, FallbackOptions{PendingLimit: tt.limit, Pending: pending})
		for _, n := range tt.batches {
			waiting = append(waiting, m.Batch(n, 32, batch.Meta{}))
			for len(waiting) > 0 && f.Send(t.Context(), waiting[0]) == nil {
				waiting = waiting[1:]
			}
		}
		if got := len(h.all()); h.calls() != tt.calls || got != tt.handled {
			t.Errorf("limit %d, batches %v: %d calls with %d records, want %d with %d", tt.limit, tt.batches, h.calls(), got, tt.calls, tt.handled)
		}
	}
}

// Once the destination is back, the limit counts anew.
func TestPendingLimitAfterRecovery(t *testing.T) {
	h := &handlerLog{}
	sink := testkit.NewSink(testkit.Fail(testkit.ErrDown))
	elsewhere := uint64(20)
	f, _ := mustFallback(t, sink, h, FallbackOptions{PendingLimit: 10, Pending: func() uint64 { return elsewhere }})
	m := &testkit.Model{}
	if err := f.Send(t.Context(), m.Batch(5, 32, batch.Meta{})); err != nil {
		t.Fatal(err)
	}
	sink.Answer(nil)
	if err := f.Send(t.Context(), m.Batch(5, 32, batch.Meta{})); err != nil {
		t.Fatal(err)
	}
	sink.Answer(testkit.Fail(testkit.ErrDown))
	elsewhere = 0
	if err := f.Send(t.Context(), m.Batch(5, 32, batch.Meta{})); err == nil || h.calls() != 1 {
		t.Errorf("%v, %d calls: the limit of the last outage still counts", err, h.calls())
	}
}

// A handler that hangs is given up after HandlerTimeout, is not called again
// before it returns, and keeps its memory for itself.
func TestHandlerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		intact := make(chan bool, 1)
		var calls atomic.Int64
		h := ErrorHandlerFunc(func(_ error, b *batch.Batch) error {
			if calls.Add(1) > 1 {
				return nil
			}
			before := string(b.AppendTo(nil))
			<-release
			intact <- before == string(b.AppendTo(nil)) && strings.HasPrefix(before, "00000000000000000001")
			return nil
		})
		f, ev := mustFallback(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), h, FallbackOptions{HandlerTimeout: 3 * time.Second})
		m := &testkit.Model{}
		began := time.Now()
		if err := f.Send(t.Context(), m.Batch(5, 32, batch.Meta{})); err == nil {
			t.Error("a hung handler counts as handled")
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("gave up after %s", d)
		}
		for range 3 {
			if err := f.Send(t.Context(), m.Batch(5, 32, batch.Meta{})); err == nil || time.Since(began) != 3*time.Second {
				t.Errorf("%v after %s: want an error at once", err, time.Since(began))
			}
		}
		if calls.Load() != 1 {
			t.Errorf("%d calls beside one that hangs", calls.Load())
		}
		close(release)
		if !<-intact {
			t.Error("the memory of a hung handler was used again")
		}
		synctest.Wait()
		b := m.Batch(5, 32, batch.Meta{})
		if err := f.Send(t.Context(), b); err != nil || b.Tally.Handled != 5 {
			t.Errorf("after it returned: %v, %+v", err, b.Tally)
		}
		synctest.Wait()
		if got := ev.Ops(); !slices.Equal(got, []string{"handler", "handler-recovered"}) {
			t.Errorf("events %v", got)
		}
	})
}

// The handler's batch is a copy: it may be read after Send has gone on.
func TestHandlerIsGivenACopy(t *testing.T) {
	h := ErrorHandlerFunc(func(_ error, b *batch.Batch) error {
		for _, rec := range b.All() {
			rec.Data[0] = '#'
		}
		return testkit.ErrDown
	})
	f, _ := mustFallback(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), h, FallbackOptions{})
	b := lines(3)
	_ = f.Send(t.Context(), b)
	if got := b.At(0).Data[0]; got != '0' {
		t.Errorf("the producer's memory was changed: %q", got)
	}
}

// Gap markers are offered but not counted.
func TestHandledCountsNoMarkers(t *testing.T) {
	b := lines(3)
	s := []batch.Slot{{Len: 4, Flags: batch.FlagMarker}}
	b.Add(batch.NewRun([]byte("gap\n"), s))
	f, _ := mustFallback(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), &handlerLog{}, FallbackOptions{})
	if err := f.Send(t.Context(), b); err != nil || b.Tally.Handled != 3 {
		t.Errorf("%v, %+v", err, b.Tally)
	}
}

// When ctx has ended nobody is offered anything.
func TestHandlerAfterCancel(t *testing.T) {
	h := &handlerLog{}
	f, _ := mustFallback(t, testkit.NewSink(testkit.Fail(testkit.ErrDown)), h, FallbackOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Send(ctx, lines(1)); err == nil || h.calls() != 0 {
		t.Errorf("%v, %d calls", err, h.calls())
	}
}

func TestFallbackOptions(t *testing.T) {
	sink, h := testkit.NewSink(nil), &handlerLog{}
	if _, err := NewFallback(nil, h, nil); err == nil {
		t.Error("nil sink")
	}
	if _, err := NewFallback(sink, nil, nil); err == nil {
		t.Error("nil handler")
	}
	for _, o := range []FallbackOptions{{PendingLimit: -1}, {HandlerTimeout: -1}} {
		if _, err := NewFallback(sink, h, &o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
