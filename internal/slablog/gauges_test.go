package slablog

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

func TestImportantRecordsHaveTheirOwnPolicy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest(), ImportantWhenFull: slab.Block()})
		for i := 0; w.WriteRecord(line(i, 50), batch.Meta{}) == nil; i++ {
		}
		start := time.Now()
		time.AfterFunc(time.Minute, g.open)
		if err := w.WriteRecord(line(9999, 50), batch.Meta{Level: slog.LevelError}); err != nil {
			t.Errorf("the write of an Error, which waits: %v", err)
		}
		if d := time.Since(start); d != time.Minute {
			t.Errorf("the write waited %v, want until the destination was opened", d)
		}
		closeNow(t, w)
		if ns := numbers(t, g.String()); ns[len(ns)-1] != 9999 {
			t.Errorf("the last record is %d", ns[len(ns)-1])
		}
	})
}

func TestLastResort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		var last memory
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest(), LastResort: &last})
		n := 0
		for w.WriteRecord(line(n, 50), batch.Meta{}) == nil {
			n++
		}
		n++
		const important = 20
		for i := range important {
			if err := w.WriteRecord(line(1000+i, 50), batch.Meta{Level: slog.LevelError}); err != nil {
				t.Errorf("important record: %v", err)
			}
		}
		synctest.Wait()
		wantSequence(t, numbers(t, last.String()), 1000, 1000+important)
		a := w.Account()
		if a.Handled != important || a.Check() != nil {
			t.Errorf("account %v", a)
		}
		g.open()
		closeNow(t, w)
		if a := w.Account(); a.Accepted != uint64(n+important) || a.Check() != nil || a.Pending.Total() != 0 {
			t.Errorf("account %v, %d written", a, n+important)
		}
	})
}

func TestLastResortFailsOrHangs(t *testing.T) {
	fail := map[string]func() io.Writer{
		"fails":  func() io.Writer { return writerFunc(func([]byte) (int, error) { return 0, errDown }) },
		"panics": func() io.Writer { return writerFunc(func([]byte) (int, error) { panic("no") }) },
	}
	for name, dst := range fail {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGate()
				w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest(), LastResort: dst()})
				for w.WriteRecord(line(0, 50), batch.Meta{}) == nil {
				}
				w.WriteRecord(line(1, 50), batch.Meta{Level: slog.LevelError})
				synctest.Wait()
				if a := w.Account(); a.Dropped[batch.Full] != 2 || a.Handled != 0 || a.Check() != nil {
					t.Errorf("account %v", a)
				}
				g.open()
				closeNow(t, w)
			})
		})
	}
	t.Run("hangs", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			g, last := newGate(), newGate()
			w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest(), LastResort: last})
			for w.WriteRecord(line(0, 50), batch.Meta{}) == nil {
			}
			var dropped int
			for range 2 * lastResortQueue {
				if errors.Is(w.WriteRecord(line(1, 50), batch.Meta{Level: slog.LevelError}), slab.ErrDropped) {
					dropped++
				}
			}
			if dropped != lastResortQueue {
				t.Errorf("%d dropped, want all above the queue of %d", dropped, lastResortQueue)
			}
			g.open()
			start := time.Now()
			if err := w.Close(); err == nil {
				t.Error("no error although Close lost records")
			}
			if d := time.Since(start); d > defaults.CloseTimeout {
				t.Errorf("Close took %v", d)
			}
			a := w.Account()
			if a.Dropped[batch.Shutdown] != lastResortQueue || a.Check() != nil || a.Pending.Total() != 0 {
				t.Errorf("account %v", a)
			}
			last.open()
			synctest.Wait()
			if b := w.Account(); a != b {
				t.Errorf("account changed after Close: %v, then %v", a, b)
			}
		})
	})
}

func TestGauges(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 8192, SlabCount: 8})
		if s := w.Stats(); s.OldestAge != 0 || s.Rate != 0 || s.BurstLeft != maxBurst || s.SlabsInUse != 0 {
			t.Errorf("idle: %+v", s)
		}
		// Write 1000 records/s of 32 bytes plus slot, 64 bytes in total, while the destination
		// hangs.
		start := time.Now()
		for range 500 {
			w.WriteRecord(make([]byte, 32), batch.Meta{Time: time.Now().UnixNano()})
			w.Stats()
			time.Sleep(time.Millisecond)
		}
		s := w.Stats()
		if s.Rate < 60000 || s.Rate > 68000 {
			t.Errorf("rate %v bytes/s, want about 64000", s.Rate)
		}
		// 64 KiB hold the records of 1.024 s, and half of that is in use.
		if s.BurstLeft < 450*time.Millisecond || s.BurstLeft > 600*time.Millisecond {
			t.Errorf("burst left %v, want about 0.52s", s.BurstLeft)
		}
		if s.OldestAge != time.Since(start) {
			t.Errorf("oldest record is %v old, want %v", s.OldestAge, time.Since(start))
		}
		if s.SlabsInUse != 4 {
			t.Errorf("%d slabs in use, want 4", s.SlabsInUse)
		}
		g.open()
		closeNow(t, w)
		if s := w.Stats(); s.OldestAge != 0 || s.SlabsInUse != 0 {
			t.Errorf("after Close: %+v", s)
		}
		if !strings.Contains(g.String(), "\x00") {
			t.Error("nothing arrived")
		}
	})
}

// BurstLeft is 0 while all slabs are in use, regardless of the rate.
func TestNoBurstIsLeftWhenFull(t *testing.T) {
	for _, pol := range []slab.WhenFull{slab.DropNewest(), slab.Block()} {
		bubble.Test(t, func(t *testing.T) {
			g := newGate()
			w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 4, WhenFull: pol})
			go func() {
				for i := range 100 {
					_ = w.WriteRecord(line(i, 92), batch.Meta{})
				}
			}()
			for range 5 {
				time.Sleep(time.Second)
				if s := w.Stats(); s.BurstLeft != 0 || s.SlabsInUse != 4 {
					t.Errorf("%v: burst left %v with %d of 4 slabs in use", pol, s.BurstLeft, s.SlabsInUse)
				}
			}
			g.open()
			synctest.Wait()
			closeNow(t, w)
		})
	}
}

// OldestAge includes the current batch until it is completely settled.
func TestOldestAge(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		step := make(chan batch.Outcome)
		w := mustSink(t, sendFunc(func(context.Context, *batch.Batch) batch.Outcome { return <-step }), nil)
		wantAges := func(want, wait time.Duration) {
			t.Helper()
			synctest.Wait()
			if s := w.Stats(); s.OldestAge != want || s.OldestWait != wait {
				t.Errorf("age %v, waiting for %v, want %v, %v", s.OldestAge, s.OldestWait, want, wait)
			}
		}
		write := func(age time.Duration) {
			if err := w.WriteRecord(line(1, 50), batch.Meta{Time: start.Add(-age).UnixNano()}); err != nil {
				t.Fatal(err)
			}
		}
		write(100 * time.Minute)
		write(50 * time.Minute)
		time.Sleep(time.Second)
		write(10 * time.Minute)
		wantAges(100*time.Minute+time.Second, time.Second)
		step <- partly(1)
		time.Sleep(time.Second)
		wantAges(100*time.Minute+2*time.Second, 2*time.Second)
		step <- batch.Outcome{}
		wantAges(10*time.Minute+2*time.Second, time.Second)
		step <- batch.Outcome{}
		wantAges(0, 0)
		close(step)
		closeNow(t, w)
	})
}

// The rate is measured over the last seconds, even if Stats was not called for an hour. Therefore
// BurstLeft is right in the first second of a burst.
func TestRateOfTheLastSeconds(t *testing.T) {
	near := func(t *testing.T, what string, got, want float64) {
		t.Helper()
		if got < 0.9*want || got > 1.1*want {
			t.Errorf("%s is %v, want about %v", what, got, want)
		}
	}
	record := make([]byte, 32)
	for name, interval := range map[string]time.Duration{"no call": 0, "a call every 15 s": 15 * time.Second, "a call just before": time.Hour - time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g, began := newGate(), time.Now()
				w := mustNew(t, writerFunc(func(p []byte) (int, error) {
					if time.Since(began) < time.Hour {
						return len(p), nil
					}
					return g.Write(p)
				}), &slab.Options{SlabBytes: 8192, SlabCount: 64})
				_ = w.WriteRecord(record, batch.Meta{})
				for end := began.Add(time.Hour); interval > 0 && time.Until(end) > interval; {
					time.Sleep(interval)
					w.Stats()
				}
				time.Sleep(time.Until(began.Add(time.Hour)))
				for range 500 {
					_ = w.WriteRecord(record, batch.Meta{})
					time.Sleep(time.Millisecond)
				}
				near(t, "rate at half a second of a burst", w.Stats().Rate, 64_000/3)
				for range 1500 {
					_ = w.WriteRecord(record, batch.Meta{})
					time.Sleep(time.Millisecond)
				}
				near(t, "rate", w.Stats().Rate, 64_000)
				g.open()
				closeNow(t, w)
			})
		})
	}
	t.Run("after a stall", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			stall := time.Duration(0)
			w := mustNew(t, writerFunc(func(p []byte) (int, error) { time.Sleep(stall); stall = 0; return len(p), nil }),
				&slab.Options{SlabBytes: 8192, SlabCount: 128})
			for i := range 10_000 {
				if i == 4000 {
					stall = 5 * time.Second
				}
				_ = w.WriteRecord(record, batch.Meta{})
				time.Sleep(time.Millisecond)
				if i >= 2500 && i%100 == 0 {
					near(t, "rate", w.Stats().Rate, 64_000)
				}
			}
			closeNow(t, w)
		})
	})
}

// The age of a record without a time counts from its acceptance, regardless of the consumer.
func TestOldestAgeOfRecordsWithoutTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		steps := make(chan struct{})
		w := mustNew(t, writerFunc(func(p []byte) (int, error) { <-steps; return len(p), nil }), nil)
		mustWrite(t, w, 0, 50)
		first := time.Now()
		time.Sleep(5 * time.Second)
		mustWrite(t, w, 1, 50)
		second := time.Now()
		time.Sleep(5 * time.Second)
		if age := w.Stats().OldestAge; age != time.Since(first) {
			t.Errorf("age %v, want %v", age, time.Since(first))
		}
		steps <- struct{}{}
		for range 3 {
			synctest.Wait()
			if age := w.Stats().OldestAge; age != time.Since(second) {
				t.Errorf("age %v, want %v", age, time.Since(second))
			}
			time.Sleep(time.Second)
		}
		close(steps)
		closeNow(t, w)
	})
}

// BurstLeft includes the free part of the current slab.
func TestBurstLeftCountsTheCurrentSlab(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 64 << 10, SlabCount: 4, FlushInterval: -1})
		record := make([]byte, 32)
		for range 1100 { // the first 1024 records fill a slab
			_ = w.WriteRecord(record, batch.Meta{})
			time.Sleep(time.Millisecond)
		}
		const left = (3*1024 - 76) * time.Millisecond // the room for records at 1000 records/s
		s := w.Stats()
		if s.BurstLeft < left*9/10 || s.BurstLeft > left*11/10 {
			t.Errorf("burst left %v, want about %v", s.BurstLeft, left)
		}
		if want := 4<<16 - 1100*64; s.Room != want {
			t.Errorf("room %d, want %d", s.Room, want)
		}
		g.open()
		closeNow(t, w)
	})
}
