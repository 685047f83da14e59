package deliver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// hungSend returns a destination whose Sends hang until release is closed, even after their context
// has ended.
func hungSend(inline bool) (dest Destination, release chan struct{}) {
	release = make(chan struct{})
	return SendFunc(Traits{Inline: inline}, func(context.Context, *batch.Batch) batch.Outcome {
		<-release
		return batch.Outcome{}
	}), release
}

// The outlet forgets a Flush or Sync whose context has ended, so that such calls do not accumulate
// while the destination hangs.
func TestCancelledFlushIsForgotten(t *testing.T) {
	for _, inline := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			dest, release := hungSend(inline)
			out := mustOutput(t, dest, &OutputOptions{CloseTimeout: time.Second})
			mustLines(t, out, 0, 10, 10)
			for range 100 {
				if err := out.Sync(); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
			}
			s := &out.outlet.shared
			s.mu.Lock()
			if n := len(s.asked) + len(s.inbox); n > 2 {
				t.Errorf("%d requests wait for the loop", n)
			}
			s.mu.Unlock()
			kept := make(chan error, 1)
			go func() { kept <- out.Flush(t.Context()) }()
			close(release)
			if err := <-kept; err != nil {
				t.Error(err)
			}
			synctest.Wait()
			out.outlet.wakeLoop() // it removes the calls that have ended
			synctest.Wait()
			waiting := make(chan int, 1)
			out.outlet.post(func(time.Time) { waiting <- len(out.outlet.m.flushes.waiting) })
			if n := <-waiting; n > 0 {
				t.Errorf("%d calls wait", n)
			}
			if err := out.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A later Shutdown returns when its own context ends. After the first Shutdown has ended, later
// ones return its result.
func TestLaterShutdownObeysItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dest, release := hungSend(true)
		out := mustOutput(t, dest, &OutputOptions{})
		mustLines(t, out, 0, 1, 10)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			_, _ = out.Shutdown(ctx)
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := out.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second Shutdown: %v", err)
		}
		close(release)
		if r, err := out.Shutdown(t.Context()); err != nil || r.Delivered != 1 {
			t.Errorf("%v: %s", err, r.Account)
		}
		if err := out.Flush(ctx); err != nil {
			t.Errorf("Flush after Close: %v", err)
		}
	})
}

// If the time of Close ends while an inline Send hangs, Close returns, waiting writes fail, and
// each record is counted once. A late answer changes nothing.
func TestCloseBesideAHungInlineSend(t *testing.T) {
	for _, crash := range []string{"", t.TempDir()} {
		bubble.Test(t, func(t *testing.T) {
			dest, release := hungSend(true)
			out := mustOutput(t, dest, &OutputOptions{CrashDir: crash, Slab: slab.Options{SlabBytes: 512, SlabCount: 4, WhenFull: slab.Block()}})
			refused := make(chan error, 1)
			written := 0
			go func() {
				for {
					if err := out.WriteRecord([]byte("a record of some length\n"), batch.Meta{}); err != nil {
						refused <- err
						return
					}
					written++
				}
			}()
			time.Sleep(time.Second)
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := out.Shutdown(ctx)
			if d := time.Since(began); d > time.Second+200*time.Millisecond {
				t.Errorf("after %s", d)
			}
			synctest.Wait()
			if err := <-refused; !errors.Is(err, batch.ErrClosed) {
				t.Error(err)
			}
			n := uint64(written)
			if crash == "" && (err == nil || r.Dropped[batch.Shutdown] != n || r.Unknown == 0 || r.Unknown == n) || crash != "" && (err != nil || r.Kept() != n) {
				t.Errorf("%v, %d unknown: %s", err, r.Unknown, r.Account)
			}
			close(release)
			synctest.Wait()
			if a := out.Account(); a != r.Account || a.Check() != nil {
				t.Errorf("%s, then %s", r.Account, a)
			}
			if !isClosed(out.outlet.done) {
				t.Error("the loop has not ended")
			}
		})
	}
}
