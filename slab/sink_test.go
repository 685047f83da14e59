package slab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
)

func TestSinkAnswers(t *testing.T) {
	all := func(n int) []string {
		var s []string
		for i := range n {
			s = append(s, string(line(i, 20)))
		}
		return s
	}
	without := func(n int, gone ...int) []string {
		var s []string
		for i, l := range all(n) {
			if !slices.Contains(gone, i) {
				s = append(s, l)
			}
		}
		return s
	}
	once := func(err error) func(int, *batch.Batch) error {
		return func(call int, _ *batch.Batch) error {
			if call == 0 {
				return err
			}
			return nil
		}
	}
	tests := map[string]struct {
		answer func(int, *batch.Batch) error
		want   []string
		drops  batch.Drops
		mixed  bool // partial answers may deliver out of order
	}{
		"retry":           {answer: once(errDown), want: all(10)},
		"retry after":     {answer: once(batch.RetryAfter(errDown, time.Minute)), want: all(10)},
		"fatal":           {answer: once(batch.Fatal(errDown)), want: all(10)},
		"prefix":          {answer: once(batch.Prefix(4, errDown)), want: all(10)},
		"prefix too long": {answer: once(batch.Prefix(99, errDown)), want: all(10)},
		"prefix negative": {answer: once(batch.Prefix(-1, errDown)), want: all(10)},
		"partial":         {answer: once(batch.Partial(errDown, 2, 3, 9)), want: all(10), mixed: true},
		"partial none":    {answer: once(batch.Partial(errDown)), want: all(10)},
		"permanent":       {answer: once(batch.Permanent(errDown)), want: nil, drops: drops(batch.Poison, 10)},
		"reject":          {answer: once(batch.Reject(errDown, 0, 7)), want: without(10, 0, 7), drops: drops(batch.Poison, 2)},
		"too large": {answer: func(_ int, b *batch.Batch) error {
			if b.Len() > 3 {
				return batch.TooLarge(errDown)
			}
			return nil
		}, want: all(10)},
		"always too large": {answer: func(_ int, b *batch.Batch) error {
			for _, r := range b.All() {
				if strings.HasPrefix(string(r.Data), "4.") {
					return batch.TooLarge(errDown)
				}
			}
			return nil
		}, want: without(10, 4), drops: drops(batch.Poison, 1)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{answer: tt.answer}
				w := mustSink(t, r, nil)
				for i := range 10 {
					mustWrite(t, w, i, 20)
				}
				if err := w.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				closeNow(t, w)
				got := r.got
				if tt.mixed {
					got = slices.Sorted(slices.Values(got))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("arrived %q", got)
				}
				checkAccount(t, w, 10, uint64(len(tt.want)), tt.drops)
			})
		})
	}
}

func TestRetryAfterIsAFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		r := &recorder{answer: func(call int, _ *batch.Batch) error {
			at = append(at, time.Now())
			if call == 0 {
				return batch.RetryAfter(errDown, time.Minute)
			}
			return nil
		}}
		w := mustSink(t, r, nil)
		mustWrite(t, w, 0, 20)
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := at[1].Sub(at[0]); d < time.Minute {
			t.Errorf("sent again after %v", d)
		}
		closeNow(t, w)
	})
}

func TestBackoffGrowsAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		r := &recorder{answer: func(call int, _ *batch.Batch) error {
			at = append(at, time.Now())
			if call < 200 {
				return errDown
			}
			return nil
		}}
		w := mustSink(t, r, nil)
		mustWrite(t, w, 0, 20)
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var late time.Duration
		for i := 1; i < len(at); i++ {
			d := at[i].Sub(at[i-1])
			if limit := defaultRetryMin << min(i-1, 20); d > min(limit, defaultRetryMax) {
				t.Errorf("wait %d is %v", i, d)
			}
			if i > 20 {
				late += d
			}
		}
		if mean := late / 180; mean < 10*time.Second || mean > 20*time.Second {
			t.Errorf("late waits have a mean of %v, want about half of %v", mean, defaultRetryMax)
		}
		closeNow(t, w)
	})
}

func TestTallyIsAccounted(t *testing.T) {
	s := batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
		b.Tally.Handled = 3
		b.Tally.Dropped[batch.Expired] = 2
		return nil
	})
	w := mustSink(t, s, nil)
	for i := range 10 {
		mustWrite(t, w, i, 20)
	}
	closeNow(t, w)
	a := w.Account()
	if a.Handled != 3 || a.Delivered != 5 || a.Dropped != drops(batch.Expired, 2) || a.Check() != nil {
		t.Errorf("account %v", a)
	}
	// A sink that tallies more than it was given must not unbalance the account.
	w = mustSink(t, batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
		b.Tally.Handled = 99
		return nil
	}), nil)
	mustWrite(t, w, 0, 20)
	closeNow(t, w)
	if err := w.Account().Check(); err != nil {
		t.Error(err)
	}
}

// keeper takes records into its own custody.
type keeper struct {
	mu        sync.Mutex
	kept      uint64
	delivered uint64
	closed    bool
}

func (k *keeper) Send(_ context.Context, b *batch.Batch) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	b.Tally.Taken = uint64(b.Len())
	k.kept += b.Tally.Taken
	return nil
}

func (k *keeper) Account() batch.Account {
	k.mu.Lock()
	defer k.mu.Unlock()
	return batch.Account{Accepted: k.kept + k.delivered, Recovered: 5, Delivered: k.delivered + 5,
		Pending: batch.Pending{Spill: k.kept}}
}

func (k *keeper) Flush(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delivered += k.kept
	k.kept = 0
	return nil
}
func (k *keeper) Close(context.Context) error { k.closed = true; return nil }

func TestCustodyIsAccounted(t *testing.T) {
	k := &keeper{}
	w := mustSink(t, k, &Options{FlushInterval: -1, SlabBytes: 512})
	for i := range 100 {
		mustWrite(t, w, i, 20)
	}
	if err := w.Account().Check(); err != nil && w.Stats().Pending.Total() == 0 {
		t.Error(err)
	}
	if err := w.Flush(t.Context()); err != nil { // reaches into the sink
		t.Fatal(err)
	}
	a := w.Account()
	if a.Accepted != 100 || a.Recovered != 5 || a.Delivered != 105 || a.Check() != nil {
		t.Errorf("account %v", a)
	}
	closeNow(t, w)
	if !k.closed {
		t.Error("the sink was not closed")
	}
}

func TestBatchLimits(t *testing.T) {
	tests := map[string]batch.Limits{
		"bytes":         {Bytes: 3000},
		"records":       {Records: 37},
		"both":          {Bytes: 3000, Records: 100, Age: time.Second},
		"less than one": {Bytes: 7},
	}
	for name, l := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{limits: l}
				w := mustSink(t, r, &Options{SlabBytes: 512, SlabCount: 32, WhenFull: Block()})
				const n = 1000
				for i := range n {
					mustWrite(t, w, i, 20+i%30)
				}
				closeNow(t, w)
				wantSequence(t, numbers(t, r.joined()), 0, n)
				checkAccount(t, w, n, n, batch.Drops{})
				for i, size := range r.sizes {
					if l.Records > 0 && size > l.Records || l.Bytes > 0 && r.bytes[i] > l.Bytes && size > 1 {
						t.Errorf("batch %d has %d records, %d bytes; limits %+v", i, size, r.bytes[i], l)
					}
				}
				if l.Bytes == 3000 && r.bytes[3] < 2000 {
					t.Errorf("batches of %v bytes: slabs were not gathered", r.bytes[:10])
				}
			})
		})
	}
}

func TestBatchAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		r := &recorder{limits: batch.Limits{Bytes: 1 << 20, Age: time.Second}, answer: func(int, *batch.Batch) error {
			at = append(at, time.Since(start))
			return nil
		}}
		w := mustSink(t, r, &Options{SlabBytes: 512, SlabCount: 64})
		for i := range 100 {
			mustWrite(t, w, i, 50)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(at) != 1 || at[0] != time.Second {
			t.Errorf("sent at %v, want once, after the batch age of 1s", at)
		}
		closeNow(t, w)
	})
}

// lines is a codec for plain text with markers.
type lines struct{}

func (lines) ContentType() string                             { return "text/plain" }
func (lines) AppendJSON(dst, rec []byte, _ batch.Meta) []byte { return fmt.Appendf(dst, "%q", rec) }
func (lines) AppendMarker(dst []byte, d batch.Drops, _ time.Time) []byte {
	return fmt.Appendf(dst, "dropped %v\n", d)
}

func TestMarkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := &recorder{}
		hang := true
		w := mustSink(t, batch.SinkFunc(func(ctx context.Context, b *batch.Batch) error {
			if hang {
				<-release
				hang = false
			}
			return r.Send(ctx, b)
		}), &Options{SlabBytes: 512, SlabCount: 2, WhenFull: DropNewest(), Codec: lines{}})
		mustWrite(t, w, 0, 50)
		time.Sleep(time.Second) // the destination hangs on record 0
		lost := 0
		for i := 1; i < 100; i++ {
			if w.WriteRecord(line(i, 50), batch.Meta{}) != nil {
				lost++
			}
		}
		close(release)
		w.Flush(t.Context())
		mustWrite(t, w, 100, 50)
		time.Sleep(2 * time.Second)
		mustWrite(t, w, 101, 50)
		closeNow(t, w)
		want := fmt.Sprintf("dropped full=%d\n", lost)
		if !slices.Equal(r.markers, []string{want}) {
			t.Errorf("markers %q, want one: %q", r.markers, want)
		}
		checkAccount(t, w, 102, uint64(102-lost), drops(batch.Full, uint64(lost)))
	})
}

func TestDropOldestKeepsTheNewest(t *testing.T) {
	for _, size := range []int{1, 17, 50, 100, 400} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate()
				w := mustNew(t, g, &Options{SlabBytes: 512, SlabCount: 4, WhenFull: DropOldest()})
				mustWrite(t, w, 0, size)
				time.Sleep(time.Second) // record 0 hangs at the destination
				const n = 1000
				for i := 1; i < n; i++ {
					mustWrite(t, w, i, size)
				}
				lost := w.Account().Dropped[batch.Full]
				g.open()
				closeNow(t, w)
				ns := numbers(t, g.String())
				// What the destination was reading, then, without a gap, the newest.
				k := 0
				for k < len(ns) && ns[k] == k {
					k++
				}
				wantSequence(t, ns[k:], n-len(ns)+k, n)
				checkAccount(t, w, n, uint64(len(ns)), drops(batch.Full, lost))
				if lost == 0 || lost != uint64(n-len(ns)) {
					t.Errorf("%d lost, %d arrived", lost, len(ns))
				}
				// Two slabs that nobody reads stay full of the newest records.
				per := 512 / (len(line(n, size)) + batch.SlotBytes)
				if len(ns)-k < 2*per {
					t.Errorf("only the newest %d records are kept, two slabs hold %d", len(ns)-k, 2*per)
				}
			})
		})
	}
}

// The random test runs writers of all sizes and policies against a sink that
// answers at random, and compares the account and the order with a model.
func TestRandom(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 50
	}
	base := time.Now().UnixNano()
	if s, err := strconv.ParseInt(os.Getenv("FOREBAY_SEED"), 10, 64); err == nil {
		base, seeds = s, 1
	}
	for s := range seeds {
		seed := uint64(base) + uint64(s)
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomRun(t, seed) })
		}) {
			return
		}
	}
}

func randomRun(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	policies := []WhenFull{Block(), BlockFor(20 * time.Millisecond), DropNewest(), DropOldest()}
	o := &Options{
		SlabBytes: 512 + rng.IntN(1000), SlabCount: 2 + rng.IntN(6), MaxRecord: 3000,
		FlushInterval: time.Duration(rng.IntN(20)) * time.Millisecond,
		WhenFull:      policies[rng.IntN(len(policies))], RetryMin: time.Millisecond, RetryMax: 50 * time.Millisecond,
	}
	if rng.IntN(2) == 0 {
		o.Codec = lines{}
	}
	r := &recorder{}
	defer func() {
		if t.Failed() {
			t.Logf("options %+v", *o)
		}
	}()
	if rng.IntN(3) == 0 {
		r.limits = batch.Limits{Bytes: rng.IntN(4000), Records: rng.IntN(50), Age: time.Duration(rng.IntN(30)) * time.Millisecond}
	}
	arng := rand.New(rand.NewPCG(seed, 2))
	r.answer = func(_ int, b *batch.Batch) error {
		switch arng.IntN(12) {
		case 0:
			return errDown
		case 1:
			return batch.Prefix(arng.IntN(b.Len()+1), errDown)
		case 2:
			return batch.Reject(errDown, arng.IntN(b.Len()))
		case 3:
			return batch.TooLarge(errDown)
		case 4:
			panic("random panic")
		case 5:
			time.Sleep(time.Duration(arng.IntN(50)) * time.Millisecond)
		case 6:
			return batch.RetryAfter(errDown, time.Millisecond)
		}
		return nil
	}
	w := mustSink(t, r, o)
	writers := 1 + rng.IntN(4)
	done := make(chan int, writers)
	for g := range writers {
		grng := rand.New(rand.NewPCG(seed, uint64(10+g)))
		go func() {
			n := 0
			for i := range 200 {
				p := fmt.Appendf(nil, "%d %d %s\n", g, i, strings.Repeat("x", grng.IntN(100)*grng.IntN(2)*grng.IntN(20)))
				if err := w.WriteRecord(p, batch.Meta{}); err != nil && !errors.Is(err, ErrDropped) {
					t.Errorf("seed %d: %v", seed, err)
				}
				n++
				switch grng.IntN(20) {
				case 0:
					time.Sleep(time.Duration(grng.IntN(40)) * time.Millisecond)
				case 1:
					if err := w.Flush(t.Context()); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				case 2:
					_ = w.Stats()
				}
			}
			done <- n
		}()
	}
	total := 0
	for range writers {
		total += <-done
	}
	closeNow(t, w)
	a := w.Account()
	if err := a.Check(); err != nil || a.Accepted != uint64(total) || a.Delivered != uint64(len(r.got)) || a.Pending.Total() != 0 {
		t.Errorf("seed %d: %v: %v; %d written, %d arrived", seed, err, a, total, len(r.got))
	}
	last := make([]int, writers)
	for _, rec := range r.got {
		var g, i int
		if _, err := fmt.Sscanf(rec, "%d %d ", &g, &i); err != nil || !strings.HasSuffix(rec, "\n") {
			t.Fatalf("seed %d: torn record %.60q", seed, rec)
		}
		if i < last[g] {
			t.Fatalf("seed %d: goroutine %d: record %d after %d", seed, g, i, last[g]-1)
		}
		last[g] = i + 1
	}
	if !slices.IsSorted(r.tickets) {
		t.Fatalf("seed %d: tickets out of order", seed)
	}
	if s := w.Stats(); s.SlabsInUse != 0 || s.OversizeMem != 0 || w.queue.n != 0 {
		t.Errorf("seed %d: memory left in use: %+v", seed, s)
	}
}
