package slablog

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// Only a record with the policy DropOldest evicts others. Any record may use the space that is then
// free.
func TestOthersDoNotEvict(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		defer g.open()
		w := mustNew(t, g, &slab.Options{SlabBytes: 1024, SlabCount: 3, WhenFull: slab.DropNewest(), ImportantWhenFull: slab.DropOldest()})
		put := func(i int, l slog.Level) error { return w.WriteRecord(line(i, 200), batch.Meta{Level: l}) }
		n := 0
		for ; put(n, slog.LevelInfo) == nil; n++ {
			synctest.Wait() // Send has the first full slab now
		}
		if err := put(n, slog.LevelError); err != nil {
			t.Fatal(err)
		}
		before := w.Account().Dropped[batch.Full]
		const perSlab = 4
		if before != 1+perSlab { // one record was refused, and one slab was dropped
			t.Fatal(w.Account())
		}
		for i := 1; i < perSlab; i++ {
			if err := put(n+i, slog.LevelInfo); err != nil {
				t.Errorf("there is room left: %v, %v", err, w.Account())
			}
		}
		if err := put(n+perSlab, slog.LevelInfo); !errors.Is(err, slab.ErrDropped) {
			t.Errorf("it got room: %v, %v", err, w.Account())
		}
		if a := w.Account(); a.Dropped[batch.Full] != before+1 || a.Pending.Total() != uint64(n) {
			t.Error(a)
		}
		g.open()
		closeNow(t, w)
	})
}

// Nothing is evicted while a slab is free.
func TestNothingIsEvictedWhileThereIsRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		step := make(chan batch.Outcome)
		sink := &recorder{limits: batch.Limits{Bytes: 4000}, answer: func(int, *batch.Batch) batch.Outcome { return <-step }}
		w := mustSink(t, sink, &slab.Options{SlabBytes: 1024, SlabCount: 8, WhenFull: slab.DropOldest(), FlushInterval: -1})
		n := 0
		for ; w.Account().Dropped.Total() == 0; n++ {
			mustWrite(t, w, n, 200)
			synctest.Wait()
		}
		step <- batch.Outcome{}
		synctest.Wait()
		if s := w.Stats(); s.Pending.Inflight > 0 || s.SlabsInUse > 4 {
			t.Fatal("the test did not reach its case:", s.SlabsInUse, s.Account)
		}
		evicted := w.Account().Dropped.Total()
		for range 4 {
			mustWrite(t, w, n, 200)
			n++
		}
		if a := w.Account(); a.Dropped.Total() != evicted {
			t.Errorf("%d were evicted, then more: %v", evicted, a)
		}
		close(step)
		closeNow(t, w)
	})
}

// Records below the level of the reserve do not use the reserve. They evict nothing when only the
// reserve is left.
func TestRecordsBelowTheReserveDoNotEvict(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		defer g.open()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 6, Reserve: 2, WhenFull: slab.DropOldest()})
		n := 0
		for ; w.Account().Dropped.Total() == 0; n++ {
			mustWrite(t, w, n, 96)
			synctest.Wait() // Send has the first full slab now
		}
		const perSlab = 4
		for range perSlab - 1 { // refills the dropped slab
			mustWrite(t, w, n, 96)
			n++
		}
		evicted := w.Account().Dropped[batch.Full]
		const debug = 50
		for i := range debug {
			err := w.WriteRecord(line(1000+i, 96), batch.Meta{Level: slog.LevelDebug})
			if !errors.Is(err, slab.ErrDropped) {
				t.Errorf("debug record %d: %v", i, err)
			}
		}
		g.open()
		closeNow(t, w)
		checkAccount(t, w, uint64(n+debug), uint64(n)-evicted, drops(batch.Full, evicted+debug))
	})
}

// The oldest slabs are evicted first. The remaining records are the records of the slab that a Send
// was reading and, without a gap, as many of the newest records as fit into the other slabs.
func TestTheOldestAreEvicted(t *testing.T) {
	for seed := range uint64(100) {
		bubble.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			g := newGate()
			const largest = 300
			w := mustNew(t, g, &slab.Options{SlabBytes: 512 << rng.IntN(4), SlabCount: 2 + rng.IntN(6), WhenFull: slab.DropOldest(),
				FlushInterval: []time.Duration{-1, time.Millisecond}[rng.IntN(2)]})
			n := 0
			var sizes []int
			put := func(size int) {
				sizes = append(sizes, size)
				if err := w.WriteRecord(line(n, size), batch.Meta{}); err != nil {
					t.Errorf("seed %d: record %d: %v", seed, n, err)
				}
				n++
			}
			for w.Stats().Pending.Inflight == 0 {
				put(20 + rng.IntN(60))
				synctest.Wait()
			}
			read := int(w.Stats().Pending.Inflight)
			for range 1000 {
				put(20 + rng.IntN(largest-20))
				if rng.IntN(5) == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			g.open()
			closeNow(t, w)
			got := numbers(t, g.String())
			if evicted := w.Account().Dropped[batch.Full]; int(evicted) != n-len(got) || evicted == 0 {
				t.Fatalf("seed %d: %d of %d arrived, %v", seed, len(got), n, w.Account())
			}
			bytes := func(ns []int) (b int) {
				for _, i := range ns {
					b += sizes[i] + layout.SlotBytes
				}
				return b
			}
			first := 0
			for got[first] == first {
				first++
			}
			if b := bytes(got[:first]); first < read || b > w.conf.o.SlabBytes {
				t.Errorf("seed %d: %d were read, and %d bytes of the first arrived: %v", seed, read, b, got)
			}
			last := got[first:]
			wantSequence(t, last, n-len(last), n)
			// One slab is being read, and the current one may be almost empty.
			const left = largest + layout.SlotBytes // maximum number of unused bytes in a slab
			if b := bytes(last); b < (w.conf.o.SlabCount-2)*(w.conf.o.SlabBytes-left) {
				t.Errorf("seed %d: %d slabs of %d bytes, %d were read: %d bytes of the last: %v", seed, w.conf.o.SlabCount, w.conf.o.SlabBytes, read, b, got)
			}
		})
	}
}
