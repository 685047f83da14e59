package deliver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

// countSink is a destination for millions of records: it keeps no more than
// their number and whether they came in order.
type countSink struct {
	down func() bool
	n    uint64
	last uint64
	gaps uint64
	bad  int
	late time.Duration // the longest time from Meta.Time to arrival
}

func (s *countSink) Send(_ context.Context, b *batch.Batch) error {
	if s.down != nil && s.down() {
		return testkit.ErrDown
	}
	now := time.Now().UnixNano()
	for i := range b.Runs {
		r := &b.Runs[i]
		for j := range r.Len() {
			number := binary.LittleEndian.Uint64(r.Record(j))
			if number <= s.last {
				s.bad++
			}
			s.gaps += number - s.last - 1
			s.last = number
			s.n++
			s.late = max(s.late, time.Duration(now-r.Slot(j).Time))
		}
	}
	return nil
}

// An outage of ten minutes at 10 000 records a second, within the quota: nothing
// is lost, the order is kept, memory stays flat, and the account is exact. Over
// quota exactly the records that are counted are missing.
func TestTenMinuteOutage(t *testing.T) {
	for _, tt := range []struct {
		name      string
		perSecond int
		quota     int64
	}{
		{"within quota", 10_000, 1 << 30},
		{"over quota", testkit.Rounds(2_000, 10_000), 16 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { tenMinuteOutage(t, dir, tt.perSecond, tt.quota) })
		})
	}
}

func tenMinuteOutage(t *testing.T, dir string, perSecond int, quota int64) {
	const perBatch = 2_000
	store, err := spool.Open(dir, &spool.Options{MaxBytes: quota})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	sink := &countSink{down: func() bool {
		d := time.Since(began)
		return d > 30*time.Second && d < 10*time.Minute+30*time.Second
	}}
	e, err := deliver.New(sink, &deliver.Options{Spill: store, OnError: func(batch.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	slots := make([]batch.Slot, perBatch)
	data := make([]byte, perBatch*32)
	var accepted, taken uint64
	var heap [2]uint64
	for minute := range 11 {
		for range 60 * perSecond / perBatch {
			now := time.Now().UnixNano()
			for i := range slots {
				accepted++
				binary.LittleEndian.PutUint64(data[i*32:], accepted)
				slots[i] = batch.Slot{Ticket: accepted, Time: now, Off: uint32(i * 32), Len: 32}
			}
			var b batch.Batch
			b.Add(batch.NewRun(data, slots))
			if err := e.Send(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			taken += b.Tally.Taken
			time.Sleep(time.Second * perBatch / time.Duration(perSecond))
		}
		if minute == 1 || minute == 9 {
			var ms runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&ms)
			heap[minute/9] = ms.HeapAlloc
		}
	}
	time.Sleep(2 * time.Minute)
	if err := e.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := e.Account()
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	lost := a.Dropped[batch.Quota]
	direct := accepted - taken
	if a.Accepted != taken || a.Pending.Total() != 0 || a.Dropped.Total() != lost || direct+a.Delivered+lost != accepted {
		t.Errorf("%d accepted, %d of them direct: %s", accepted, direct, a)
	}
	if sink.n != accepted-lost || sink.gaps != lost || sink.bad != 0 || sink.last != accepted {
		t.Errorf("%d of %d arrived, %d missing, %d out of order, the last is %d", sink.n, accepted, sink.gaps, sink.bad, sink.last)
	}
	if within := quota > 1<<29; within != (lost == 0) {
		t.Errorf("%d lost over a quota of %d", lost, quota)
	}
	if taken < uint64(9*60*perSecond) {
		t.Errorf("%d records spilled: there was no outage of ten minutes", taken)
	}
	if heap[1] > heap[0]+8<<20 {
		t.Errorf("the heap grew from %d to %d bytes during the outage", heap[0], heap[1])
	}
	if err := errors.Join(e.Close(t.Context()), store.Close()); err != nil {
		t.Error(err)
	}
}

// One destination is dead, two are well and share a producer with it: their
// records arrive as if it were not there, and the producer is never held up.
func TestDeadBesideHealthy(t *testing.T) {
	for _, spill := range []bool{true, false} {
		t.Run(fmt.Sprintf("spill=%t", spill), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sinks := [3]*countSink{{}, {down: func() bool { return true }}, {}}
				var writers [3]*slab.Writer
				for i, s := range sinks {
					o := &deliver.Options{OnError: func(batch.Event) {}}
					if spill {
						o.Spill = &testkit.Spill{}
					}
					e, err := deliver.New(s, o)
					if err != nil {
						t.Fatal(err)
					}
					writers[i], err = slab.NewSink(e, &slab.Options{WhenFull: slab.DropNewest(), OnError: func(batch.Event) {}})
					if err != nil {
						t.Fatal(err)
					}
				}
				const total = 20_000
				rec := make([]byte, 64)
				began := time.Now()
				var waited time.Duration
				for i := range uint64(total) {
					binary.LittleEndian.PutUint64(rec, i+1)
					now := time.Now()
					for _, w := range writers {
						_ = w.WriteRecord(rec, batch.Meta{Time: now.UnixNano()})
					}
					waited += time.Since(now)
					if i%10 == 9 {
						time.Sleep(10 * time.Millisecond)
					}
				}
				if waited != 0 {
					t.Errorf("the producer waited for %s in %s", waited, time.Since(began))
				}
				for i, w := range writers {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					r, err := w.Shutdown(ctx)
					cancel()
					if bad := r.Check(); bad != nil || r.Accepted != total {
						t.Errorf("destination %d: %v: %s", i, bad, r.Account)
					}
					s := sinks[i]
					if s.down == nil {
						if err != nil || s.n != total || s.gaps != 0 || s.bad != 0 || s.late > slab.DefaultFlushInterval {
							t.Errorf("destination %d: %v, %d arrived, %d missing, %d out of order, up to %s late", i, err, s.n, s.gaps, s.bad, s.late)
						}
					} else if spill && (err != nil || r.Pending.Spill != total) {
						t.Errorf("the dead destination: %v: %s", err, r.Account)
					} else if !spill && (err == nil || r.Dropped[batch.Full]+r.Dropped[batch.Shutdown] != total) {
						t.Errorf("the dead destination: %v: %s", err, r.Account)
					}
				}
			})
		})
	}
}

// The spool of package spool is a Spill.
var _ deliver.Spill = (*spool.Spool)(nil)

func ExampleEngine() {
	// A destination that is down at first.
	attempts := 0
	destination := batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
		if attempts++; attempts <= 2 {
			return errors.New("connection refused")
		}
		fmt.Printf("delivered %q\n", b.AppendTo(nil))
		return nil
	})
	e, err := deliver.New(destination, &deliver.Options{
		Name:    "example",
		Retry:   &deliver.RetryOptions{Min: time.Millisecond},
		OnError: func(batch.Event) {}, // default: a line on standard error
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var build batch.Builder
	build.Append([]byte("hello\n"), 0, batch.Meta{})
	if err := e.Send(context.Background(), build.Batch(nil)); err != nil {
		fmt.Println(err)
	}
	s := e.Stats()
	fmt.Println(s.Name, s.Breaker, s.Retries, "retries")
	fmt.Println(e.Close(context.Background()))
	// Output:
	// delivered "hello\n"
	// example closed 2 retries
	// <nil>
}

func ExampleErrorHandlerFunc() {
	down := batch.SinkFunc(func(context.Context, *batch.Batch) error { return errors.New("connection refused") })
	e, err := deliver.New(down, &deliver.Options{
		Breaker: &deliver.BreakerOptions{Failures: 1},
		Handler: deliver.ErrorHandlerFunc(func(err error, b *batch.Batch) error {
			fmt.Printf("%d records: %v\n", b.Len(), err)
			return nil // handled: not sent again
		}),
		OnError: func(batch.Event) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var build batch.Builder
	build.Append([]byte("hello\n"), 0, batch.Meta{})
	b := build.Batch(nil)
	fmt.Println(e.Send(context.Background(), b), b.Tally.Handled)
	_ = e.Close(context.Background())
	// Output:
	// 1 records: circuit breaker is open: connection refused
	// <nil> 1
}

func ExampleJSONLines() {
	var build batch.Builder
	build.Append([]byte("a line\n"), 0, batch.Meta{})
	h := deliver.JSONLines(stdout{})
	fmt.Println(h.HandleError(errors.New("connection refused"), build.Batch(nil)))
	// Output:
	// {"raw":"a line"}
	// <nil>
}

// stdout is os.Stdout as an Example's Output sees it.
type stdout struct{ io.Writer }

func (stdout) Write(p []byte) (int, error) { return fmt.Print(string(p)) }

func ExampleBreaker_Subscribe() {
	down := batch.SinkFunc(func(context.Context, *batch.Batch) error { return errors.New("connection refused") })
	k, err := deliver.NewBreaker(down, &deliver.BreakerOptions{Failures: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	transitions, cancel := k.Subscribe()
	defer cancel()
	var build batch.Builder
	build.Append([]byte("hello\n"), 0, batch.Meta{})
	for range 3 {
		err := k.Send(context.Background(), build.Batch(nil))
		fmt.Println(err, errors.Is(err, deliver.ErrOpen))
	}
	t := <-transitions
	fmt.Println(t.From, "to", t.To)
	// Output:
	// connection refused false
	// circuit breaker is open: connection refused true
	// circuit breaker is open: connection refused true
	// closed to open
}

func ExampleKeeper() {
	up := false
	destination := batch.SinkFunc(func(_ context.Context, b *batch.Batch) error {
		if !up {
			return errors.New("connection refused")
		}
		fmt.Printf("delivered %q\n", b.AppendTo(nil))
		return nil
	})
	k, err := deliver.NewKeeper(destination, &deliver.KeeperOptions{
		Spill: &testkit.Spill{}, // in earnest: a *spool.Spool
		Retry: &deliver.RetryOptions{Min: time.Hour},
		When: func(error) bool {
			up = true // so that the example comes to an end
			return true
		},
		OnError: func(batch.Event) {},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var build batch.Builder
	build.Append([]byte("hello\n"), 0, batch.Meta{})
	b := build.Batch(nil)
	fmt.Println(k.Send(context.Background(), b), b.Tally.Taken, "taken")
	if err := k.Flush(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(k.Account())
	fmt.Println(k.Close(context.Background()))
	// Unordered output:
	// <nil> 1 taken
	// delivered "hello\n"
	// accepted=1 delivered=1
	// <nil>
}
