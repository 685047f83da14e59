package deliver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// Sync syncs the destination and the spool, with or without a spool or a handler. Close syncs both
// once more.
func TestSyncReachesTheDestination(t *testing.T) {
	none := &handlerLog{answer: func(int, *batch.Batch, error) batch.Outcome { return batch.FailedOutcome(testkit.ErrDown) }}
	for name, o := range map[string]Options{"alone": {}, "spill": {spill: &syncSpill{}}, "handler": {Handler: none}} {
		t.Run(name, func(t *testing.T) {
			d := &device{}
			out := mustOutput(t, ToWriteCloser(d), &OutputOptions{Deliver: o})
			mustLines(t, out, 0, 1, 10)
			if err := out.Flush(t.Context()); err != nil || d.flushed != 1 || d.synced != 0 || d.String() == "" {
				t.Errorf("Flush: %v, %d flushes, %d syncs, %q", err, d.flushed, d.synced, d.String())
			}
			if err := out.Sync(); err != nil || d.flushed != 2 || d.synced != 1 {
				t.Errorf("Sync: %v, %d flushes, %d syncs", err, d.flushed, d.synced)
			}
			d.fail = testkit.ErrDisk
			if err := out.Sync(); !errors.Is(err, testkit.ErrDisk) || d.synced != 2 {
				t.Errorf("Sync of a device that fails: %v, %d syncs", err, d.synced)
			}
			d.fail = nil
			mustEnd(t, out, 1, 1, batch.Drops{})
			if d.flushed != 4 || d.synced != 3 || d.closed != 1 {
				t.Errorf("Close: %d flushes, %d syncs, %d closes", d.flushed, d.synced, d.closed)
			}
			if s, ok := o.spill.(*syncSpill); ok && s.n != 2 {
				t.Errorf("%d syncs of the spill", s.n)
			}
		})
	}
}

// While the destination is down, Sync returns ErrOpen and syncs the spool.
func TestSyncDuringAnOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &syncSpill{}
		out := mustOutput(t, destOf(testkit.NewSink(testkit.Fail(batch.RetryAfter(testkit.ErrDown, time.Minute)))), &OutputOptions{Deliver: Options{spill: store}})
		mustLines(t, out, 0, 10, 10)
		time.Sleep(time.Second)
		if err := out.Sync(); !errors.Is(err, ErrOpen) || store.n != 1 {
			t.Errorf("%v, %d syncs", err, store.n)
		}
		if rep, err := out.Shutdown(t.Context()); err != nil || rep.Kept() != 10 {
			t.Error(rep, err)
		}
	})
}

// Close flushes the buffer of a writer.
func TestCloseFlushes(t *testing.T) {
	for name, o := range map[string]Options{"alone": {}, "spill": {spill: &testkit.Spill{}}} {
		var page bytes.Buffer
		out := mustOutput(t, ToWriter(bufio.NewWriter(&page)), &OutputOptions{Deliver: o})
		mustLines(t, out, 0, 1, 10)
		mustEnd(t, out, 1, 1, batch.Drops{})
		if page.Len() != 10 {
			t.Errorf("%s: %d bytes were written", name, page.Len())
		}
	}
}

// overlaps is a driver that counts overlapping calls. Its sessions fail at random, and answers come
// from a separate goroutine.
type overlaps struct {
	*peer
	calls atomic.Int32 // number of calls in progress
	seen  atomic.Int32 // number of calls that began during another call
	syncs atomic.Int32
}

func (d *overlaps) call(f func()) {
	if d.calls.Add(1) > 1 {
		d.seen.Add(1)
	}
	defer d.calls.Add(-1)
	time.Sleep(time.Millisecond)
	f()
}

func (d *overlaps) Open(l Life) (s Session, err error) {
	d.call(func() { s, err = d.peer.Open(l) })
	return &overlapsSession{s, d}, err
}

func (d *overlaps) Flush(context.Context) error { d.call(func() {}); return nil }
func (d *overlaps) Sync() error                 { d.call(func() { d.syncs.Add(1) }); return nil }
func (d *overlaps) Close(context.Context) error { d.call(func() {}); return nil }

type overlapsSession struct {
	Session
	d *overlaps
}

func (s *overlapsSession) Send(b *batch.Batch) (err error) {
	s.d.call(func() { err = s.Session.Send(b) })
	return err
}

func (s *overlapsSession) Close() { s.d.call(s.Session.Close) }

// No two calls of a driver overlap, on any goroutine.
func TestCallsOfADriverDoNotOverlap(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := &overlaps{peer: newPeer(4, testkit.Rand(testkit.Seed(t)), 10*time.Millisecond)}
		d.randomFaults(0.2)
		out := mustOutput(t, d, &OutputOptions{
			Slab:    slab.Options{SlabBytes: 512, SlabCount: 4, FlushInterval: time.Millisecond, WhenFull: slab.Block()},
			Deliver: Options{Retry: &RetryOptions{Max: 10 * time.Millisecond}, Breaker: &BreakerOptions{Failures: 1 << 20, OpenMax: 10 * time.Millisecond}},
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 300 {
				_ = out.Sync()
			}
		}()
		for range 3000 {
			if _, err := out.Write([]byte("0123456789\n")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Microsecond)
		}
		<-done
		d.randomFaults(0)
		if err := out.Sync(); err != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Millisecond, func() { _ = out.Sync() })
		if rep, err := out.Shutdown(t.Context()); err != nil || rep.Delivered != 3000 {
			t.Error(rep, err)
		}
		if n := d.seen.Load(); n > 0 || d.syncs.Load() < 100 {
			t.Errorf("%d calls overlapped another one, %d syncs", n, d.syncs.Load())
		}
	})
}

// Close is the last call of a driver. It does not overlap a call that returns shortly after the time
// of the Close is over, and a later Flush or Sync makes no call.
func TestCloseIsTheLastCallOfADriver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dest := &overlaps{peer: newPeer(1, testkit.Rand(testkit.Seed(t)), 0)}
		d := newDriver(dest, new(callback.Reporter), func() uint64 { return 0 })
		go func() { _ = d.flush(context.Background()) }()
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.end(ended, true).err(); err != nil || dest.seen.Load() > 0 {
			t.Errorf("%v, %d calls overlapped another one", err, dest.seen.Load())
		}
		if err := d.sync(t.Context()); err != errClosed || dest.syncs.Load() > 0 {
			t.Errorf("Sync after Close: %v, %d calls", err, dest.syncs.Load())
		}
	})
}

// hangingDevice is a device whose Sync hangs.
type hangingDevice struct {
	device
	until chan struct{}
}

func (d *hangingDevice) Sync() error { <-d.until; return nil }

type hangingSpill struct {
	testkit.Spill
	until chan struct{}
}

func (s *hangingSpill) Sync() error { <-s.until; return nil }

// Sync returns an error after CloseTimeout, and Close returns in time while a Sync hangs.
func TestSyncHangs(t *testing.T) {
	for _, where := range []string{"destination", "destination beside a spill", "spill"} {
		t.Run(where, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				until := make(chan struct{})
				dev := &hangingDevice{until: until}
				dest, o := ToWriter(dev), &OutputOptions{CloseTimeout: 2 * time.Second}
				switch where {
				case "destination beside a spill":
					o.Deliver.spill = &testkit.Spill{}
				case "spill":
					dest, o.Deliver.spill = ToWriter(&device{}), &hangingSpill{until: until}
				}
				out := mustOutput(t, dest, o)
				mustLines(t, out, 0, 1, 10)
				began := time.Now()
				if err := out.Sync(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second {
					t.Errorf("Sync: %v after %s", err, time.Since(began))
				}
				began = time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, _ = out.Shutdown(ctx); time.Since(began) > time.Second+200*time.Millisecond {
					t.Errorf("Shutdown took %s", time.Since(began))
				}
				close(until)
			})
		})
	}
}
