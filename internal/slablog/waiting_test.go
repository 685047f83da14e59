package slablog

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/slab"
)

// A record that evicts the oldest records does not wait, even if other writes wait.
func TestDropOldestPassesWaitingWrites(t *testing.T) {
	evictWhileOthersWait(t, slab.Options{SlabBytes: 512, SlabCount: 4}, 20, 92, func(full uint64) bool { return full >= 8 })
}

// evictWhileOthersWait makes n writes of size bytes that wait, and as many that evict the oldest
// records, while the destination hangs. dropped reports whether the number of dropped records is
// right.
func evictWhileOthersWait(t *testing.T, o slab.Options, n, size int, dropped func(full uint64) bool) {
	t.Helper()
	for _, c := range []struct{ info, failed slab.WhenFull }{{slab.Block(), slab.DropOldest()}, {slab.DropOldest(), slab.Block()}} {
		bubble.Test(t, func(t *testing.T) {
			g := newGate()
			defer g.open()
			o := o
			o.WhenFull, o.ImportantWhenFull = c.info, c.failed
			w := mustNew(t, g, &o)
			waits, passes := slog.LevelInfo, slog.LevelError
			if c.info == slab.DropOldest() {
				waits, passes = passes, waits
			}
			go func() {
				for i := range n {
					if err := w.WriteRecord(line(i, size), batch.Meta{Level: waits}); err != nil {
						t.Errorf("a write whose policy is Block: %v", err)
					}
				}
			}()
			synctest.Wait()
			if n := w.Stats().Waiting; n != 1 {
				t.Fatalf("%d writes wait", n)
			}
			began := time.Now()
			for i := range n {
				if err := w.WriteRecord(line(1000+i, size), batch.Meta{Level: passes}); err != nil {
					t.Errorf("record %d: %v", i, err)
				}
			}
			if d := time.Since(began); d > 0 {
				t.Errorf("writes that evict waited %v", d)
			}
			g.open()
			synctest.Wait()
			closeNow(t, w)
			a := w.Account()
			full := a.Dropped[batch.Full]
			if all := uint64(2 * n); a.Accepted != all || a.Delivered+full != all || !dropped(full) {
				t.Errorf("account %v", a)
			}
		})
	}
}

// A waiting write of a record larger than a slab does not delay records that fit into a slab.
func TestOversizeWriteDelaysNoSmallRecord(t *testing.T) {
	for _, pol := range []slab.WhenFull{slab.DropNewest(), slab.BlockFor(250 * time.Millisecond)} {
		bubble.Test(t, func(t *testing.T) {
			g := newGate()
			w := mustNew(t, g, &slab.Options{SlabBytes: 4096, SlabCount: 8, MaxRecord: 10_000,
				WhenFull: pol, ImportantWhenFull: slab.Block()})
			go func() {
				for i := range 3 {
					if err := w.WriteRecord(line(i, 9000), batch.Meta{Level: slog.LevelError}); err != nil {
						t.Errorf("oversize: %v", err)
					}
				}
			}()
			synctest.Wait()
			if n := w.Stats().Waiting; n != 1 {
				t.Fatalf("%d writes wait", n)
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
	bubble.Test(t, func(t *testing.T) { // when the time of Close is over, writes of both kinds return
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, MaxRecord: 10_000, WhenFull: slab.Block()})
		errs := make(chan error, 30)
		for _, size := range []int{9000, 9000, 200, 200, 200, 200, 200, 200} {
			go func() { errs <- w.WriteRecord(line(1, size), batch.Meta{}) }()
		}
		synctest.Wait()
		_ = w.Close() // has its own deadline
		synctest.Wait()
		closed := 0
		for len(errs) > 0 {
			if errors.Is(<-errs, batch.ErrClosed) {
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

// If a write stops waiting, later writes for which there is room are neither dropped nor delayed.
func TestWriteThatGivesUpDelaysNoLaterOne(t *testing.T) {
	const patience = 100 * time.Millisecond
	for name, c := range map[string]struct {
		o      slab.Options
		filled []int // sizes of the records that fill the memory; the destination hangs with the first
		large  int   // size of a record that does not fit
		small  int   // size of a later record, which fits
	}{
		"slab":     {slab.Options{SlabBytes: 512, SlabCount: 2}, []int{400, 300}, 300, 50},
		"oversize": {slab.Options{SlabBytes: 512, SlabCount: 42, MaxRecord: 10_000}, []int{9000, 9000}, 3000, 900},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				g := newGate()
				c.o.WhenFull, c.o.ImportantWhenFull = slab.BlockFor(patience), slab.Block()
				w := mustNew(t, g, &c.o)
				for i, size := range c.filled {
					mustWrite(t, w, i, size)
					time.Sleep(time.Second)
				}
				began := time.Now()
				var errs [3]error
				var took [3]time.Duration
				for i, size := range []int{c.large, c.small, c.small} {
					go func() {
						m := batch.Meta{Level: []slog.Level{slog.LevelInfo, slog.LevelInfo, slog.LevelError}[i]}
						errs[i] = w.WriteRecord(line(100+i, size), m)
						took[i] = time.Since(began)
					}()
					time.Sleep(patience / 4)
				}
				if n := w.Stats().Waiting; n != 3 {
					t.Errorf("%d writes wait", n)
				}
				time.Sleep(time.Second)
				g.open()
				synctest.Wait()
				if !errors.Is(errs[0], slab.ErrDropped) || errs[1] != nil || errs[2] != nil {
					t.Errorf("answers %v, want only the first dropped", errs)
				}
				if want := [3]time.Duration{patience, patience, patience}; took != want {
					t.Errorf("the writes took %v, want %v", took, want)
				}
				closeNow(t, w)
				checkAccount(t, w, uint64(len(c.filled)+3), uint64(len(c.filled)+2), drops(batch.Full, 1))
			})
		})
	}
}

// After one failed wait, BlockFor drops records at once until a slab is freed. Then a write waits
// again for the whole time.
func TestBlockForWaitsAgainOnceASlabIsFreed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const patience = 100 * time.Millisecond
		release := make(chan struct{})
		w := mustNew(t, writerFunc(func(p []byte) (int, error) { <-release; return len(p), nil }),
			&slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.BlockFor(patience)})
		n, accepted := 0, 0
		put := func() (time.Duration, error) {
			began := time.Now()
			n++
			err := w.WriteRecord(line(n, 400), batch.Meta{})
			if err == nil {
				accepted++
			}
			return time.Since(began), err
		}
		fill := func() {
			t.Helper()
			for range 2 - w.Stats().SlabsInUse {
				if d, err := put(); err != nil || d > 0 {
					t.Fatalf("there is room: %v after %v", err, d)
				}
			}
			for i, want := range []time.Duration{patience, 0, 0} {
				if d, err := put(); !errors.Is(err, slab.ErrDropped) || d != want {
					t.Errorf("write %d of a full pool: %v after %v, want to be dropped after %v", i, err, d, want)
				}
			}
		}
		fill()
		for range 3 {
			release <- struct{}{}
			synctest.Wait()
			if s := w.Stats(); s.SlabsInUse != 1 {
				t.Fatalf("%d slabs in use", s.SlabsInUse)
			}
			fill()
		}
		close(release)
		closeNow(t, w)
		checkAccount(t, w, uint64(n), uint64(accepted), drops(batch.Full, uint64(n-accepted)))
	})
}

// A record larger than a slab that evicts the oldest records does not wait, even if other such
// writes wait.
func TestDropOldestPassesWaitingOversizeWrites(t *testing.T) {
	o := slab.Options{SlabBytes: 512, SlabCount: 12, MaxRecord: 1000}
	evictWhileOthersWait(t, o, 10, 1000, func(full uint64) bool { return full <= 10 })
}

// A shortage only grows until a slab is freed.
func TestShortage(t *testing.T) {
	for from, want := range [4][4]shortage{
		enough: {enough, stuck, long, saturated}, stuck: {stuck, stuck, long, saturated},
		long: {long, long, long, saturated}, saturated: {saturated, saturated, saturated, saturated},
	} {
		for to, want := range want {
			s := shortage(from)
			if s.growLocked(shortage(to)); s != want {
				t.Errorf("from %d, %d more: %d, want %d", from, to, s, want)
			}
		}
	}
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.BlockFor(time.Second), ImportantWhenFull: slab.Block()})
		mustWrite(t, w, 0, 400)
		mustWrite(t, w, 1, 400)
		is := func(want shortage) {
			t.Helper()
			synctest.Wait()
			w.store.lock()
			defer w.store.unlock()
			if w.store.callers.shortage != want {
				t.Errorf("shortage %d, want %d", w.store.callers.shortage, want)
			}
		}
		is(enough)
		go w.WriteRecord(line(3, 400), batch.Meta{Level: slog.LevelError})
		time.Sleep(200 * time.Millisecond)
		is(stuck)
		go w.Write(line(2, 400))
		time.Sleep(600 * time.Millisecond)
		is(long)
		time.Sleep(600 * time.Millisecond)
		is(saturated)
		g.open()
		is(enough)
		closeNow(t, w)
	})
}

// If a call had to wait until the slabs of a batch were freed, the next batch is as large, although
// no call waits any more. Smaller batches would need more calls of the destination.
func TestBatchAfterAWaitIsLarge(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			o := slab.Options{SlabBytes: 512, SlabCount: 8, WhenFull: slab.Block(), FlushInterval: -1}
			if mapped {
				o.Crash = &slab.Crash{Dir: t.TempDir(), Required: true}
			}
			w, l, err := New(&o, Consumer{Vectors: true})
			if err != nil {
				t.Fatal(err)
			}
			full := func() bool {
				w.store.lock()
				defer w.store.unlock()
				return w.store.callers.slabs.n > 0
			}
			for !full() {
				go w.Write(make([]byte, 100))
				synctest.Wait()
			}
			for i := range 2 {
				a, _ := l.Next()
				if a.slabs != 4 {
					t.Fatalf("mapped %v: batch %d has %d records in %d slabs, want 4 slabs", mapped, i, a.n, a.slabs)
				}
				a.Settle(a.Open())
				a.Release()
				synctest.Wait()
				if full() {
					t.Fatal("the call still waits")
				}
			}
			l.Close()
			l.End(t.Context(), true)
			l.Leave()
		})
	}
}
