package slab

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// Records for which the oldest make room do not wait behind those that wait.
func TestDropOldestPassesThoseThatWait(t *testing.T) {
	for _, c := range []struct{ info, failed WhenFull }{{Block(), DropOldest()}, {DropOldest(), Block()}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			w := mustNew(t, g, &Options{SlabBytes: 512, SlabCount: 4, WhenFull: c.info, ImportantWhenFull: c.failed})
			waits, passes := slog.LevelInfo, slog.LevelError
			if c.info.kind == whenFullDropOldest {
				waits, passes = passes, waits
			}
			go func() {
				for i := range 20 {
					if err := w.WriteRecord(line(i, 92), batch.Meta{Level: waits}); err != nil {
						t.Errorf("a write that may wait: %v", err)
					}
				}
			}()
			synctest.Wait()
			if n := w.Stats().Waiting; n != 1 {
				t.Fatalf("%d wait", n)
			}
			began := time.Now()
			for i := range 20 {
				if err := w.WriteRecord(line(1000+i, 92), batch.Meta{Level: passes}); err != nil {
					t.Errorf("record %d: %v", i, err)
				}
			}
			if d := time.Since(began); d > 0 {
				t.Errorf("they waited %v", d)
			}
			g.open()
			synctest.Wait()
			closeNow(t, w)
			if a := w.Account(); a.Accepted != 40 || a.Delivered+a.Dropped[batch.Full] != 40 || a.Dropped[batch.Full] < 8 {
				t.Errorf("account %v", a)
			}
		})
	}
}

// Who waits for the oversize budget holds up no record that fits a slab.
func TestOversizeWaitsAlone(t *testing.T) {
	for _, pol := range []WhenFull{DropNewest(), BlockFor(250 * time.Millisecond)} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			w := mustNew(t, g, &Options{SlabBytes: 4096, SlabCount: 8, MaxRecord: 10_000, OversizeBytes: 10_000,
				WhenFull: pol, ImportantWhenFull: Block()})
			go func() {
				for i := range 3 {
					if err := w.WriteRecord(line(i, 9000), batch.Meta{Level: slog.LevelError}); err != nil {
						t.Errorf("oversize: %v", err)
					}
				}
			}()
			synctest.Wait()
			if n := w.Stats().Waiting; n != 1 {
				t.Fatalf("%d wait", n)
			}
			began := time.Now()
			for i := range 100 {
				if err := w.WriteRecord(line(i, 50), batch.Meta{}); err != nil {
					t.Fatalf("small record %d: %v", i, err)
				}
			}
			if d := time.Since(began); d > 0 {
				t.Errorf("small records waited %v", d)
			}
			g.open()
			synctest.Wait()
			closeNow(t, w)
			checkAccount(t, w, 103, 103, batch.Drops{})
		})
	}
	synctest.Test(t, func(t *testing.T) { // both lines are answered when Close gives up
		g := newGate()
		w := mustNew(t, g, &Options{SlabBytes: 512, SlabCount: 2, MaxRecord: 10_000, OversizeBytes: 10_000, WhenFull: Block()})
		errs := make(chan error, 30)
		for _, size := range []int{9000, 9000, 200, 200, 200, 200, 200, 200} {
			go func() { errs <- w.WriteRecord(line(1, size), batch.Meta{}) }()
		}
		synctest.Wait()
		_ = w.Close() // has a deadline of its own
		synctest.Wait()
		closed := 0
		for len(errs) > 0 {
			if errors.Is(<-errs, ErrClosed) {
				closed++
			}
		}
		if closed == 0 || w.Stats().Waiting != 0 {
			t.Errorf("%d answers, %d still wait", closed, w.Stats().Waiting)
		}
		g.open()
		synctest.Wait()
	})
}
