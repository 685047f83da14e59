package slablog

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

// Records larger than a slab may use the memory of all slabs except two.
func TestOversizeRecordsFillTheBudget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 16 << 10, SlabCount: 64, WhenFull: slab.DropNewest()}) // 1 MiB in total
		mustWrite(t, w, 0, 100)
		time.Sleep(time.Second) // now the destination hangs with the record
		n := 1
		for w.WriteRecord(line(n, 30_000), batch.Meta{}) == nil && n < 100 {
			n++
		}
		s := w.Stats()
		if want := 1 + 62*16<<10/30_000; n != want || s.OversizeMem != (n-1)*30_000 || s.SlabsInUse > 63 || s.BurstLeft == 0 {
			t.Errorf("%d records fit, want %d; %+v", n, want, s)
		}
		small := 0 // number of records in the two remaining slabs
		for w.WriteRecord(line(n, 100), batch.Meta{}) == nil && small < 1000 {
			small++
			n++
		}
		if one := 16 << 10 / (100 + layout.SlotBytes); small < one || small > 3*one {
			t.Errorf("%d small records fit, a slab holds %d", small, one)
		}
		g.open()
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantSequence(t, numbers(t, g.String()), 0, n)
		if s := w.Stats(); s.OversizeMem != 0 || s.SlabsInUse != 0 {
			t.Errorf("after Flush: %+v", s)
		}
		closeNow(t, w)
	})
}

// One record larger than a slab is always accepted, even if all slabs are full. A second one needs
// free memory.
func TestOneOversizeRecordAlwaysFits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, MaxRecord: 10_000, WhenFull: slab.DropNewest()})
		n := 0
		for w.WriteRecord(line(n, 100), batch.Meta{}) == nil {
			n++
		}
		mustWrite(t, w, n, 10_000)
		if err := w.WriteRecord(line(n+1, 1000), batch.Meta{}); err == nil {
			t.Error("a second record larger than a slab was accepted")
		}
		g.open()
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantSequence(t, numbers(t, g.String()), 0, n+1)
		closeNow(t, w)
	})
}

// DropOldest drops the oldest records first, whether they are in slabs or larger than a slab. It
// drops nothing if that would not make enough room.
func TestDropOldestOfBothKinds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 1024, SlabCount: 12, MaxRecord: 5000, WhenFull: slab.DropOldest()})
		n := 0
		write := func(size int) {
			mustWrite(t, w, n, size)
			n++
		}
		write(100)
		time.Sleep(time.Second) // now the destination hangs with the slab of the record
		for range 3 {
			write(2500) // the three large records use 8 slabs
		}
		for range 40 { // the remaining slabs hold about 20 of these records
			write(100)
		}
		if d := w.Account().Dropped[batch.Full]; d < 1 || d > 3 {
			t.Errorf("%d records dropped, want some of the three larger than a slab", d)
		}
		for range 400 {
			write(100)
		}
		if s := w.Stats(); s.OversizeMem != 0 || s.SlabsInUse < 11 {
			t.Errorf("older records are kept: %+v", s)
		}
		write(4000) // one record larger than a slab is always accepted
		before := w.Account().Dropped[batch.Full]
		write(2500) // the second record needs slabs, so the oldest records are dropped
		if d := w.Account().Dropped[batch.Full] - before; d < 7 || d > 8*8 {
			t.Errorf("%d records dropped for one of 2500 bytes", d)
		}
		g.open()
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := numbers(t, g.String())
		pinned := 1 // number of records in the slab at the hanging destination
		for got[pinned+1] == got[pinned]+1 {
			pinned++
		}
		got = got[pinned+1:]
		wantSequence(t, got, n-len(got), n)
		if got[len(got)-2] != n-2 || len(got) < 20 {
			t.Errorf("arrived %v", got)
		}
		closeNow(t, w)
	})
}

// For any sequence of writes, a Writer uses at most the memory of its slabs and of one record.
func TestBudgetHolds(t *testing.T) {
	for seed := range uint64(40) {
		bubble.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var m memory
			m.act = func(int, []byte) (int, error) {
				time.Sleep(time.Millisecond)
				return -1, nil
			}
			o := &slab.Options{SlabBytes: 512 << r.IntN(3), SlabCount: 2 + r.IntN(12), MaxRecord: 6000, FlushInterval: time.Millisecond,
				WhenFull: []slab.WhenFull{slab.Block(), slab.BlockFor(time.Millisecond), slab.DropNewest(), slab.DropOldest()}[r.IntN(4)]}
			o.Reserve = r.IntN(o.SlabCount) * r.IntN(2)
			w := mustNew(t, &m, o)
			held := func() (n int) {
				w.store.lock()
				defer w.store.unlock()
				seen := map[*block]bool{}
				add := func(b *block) {
					if b != nil && !seen[b] {
						seen[b] = true
						n += len(b.mem)
					}
				}
				for _, b := range w.store.pool.idle {
					add(b)
				}
				add(w.front.cur)
				for i := range w.store.pieces.queued {
					add(w.store.pieces.queued[i].blk)
				}
				for _, l := range w.store.leases.list {
					for _, p := range l.pieces {
						add(p.blk)
					}
				}
				return n
			}
			ctx := t.Context()
			done := make(chan struct{})
			for g := range 3 {
				go func() {
					defer func() { done <- struct{}{} }()
					r := rand.New(rand.NewPCG(seed, uint64(g)))
					for range 300 {
						size := r.IntN(200)
						if r.IntN(4) == 0 {
							size = r.IntN(6000)
						}
						_ = w.WriteRecord(line(0, size), batch.Meta{Level: 4 * 1})
						if n := held(); n > w.conf.o.SlabBytes*o.SlabCount+o.MaxRecord {
							t.Errorf("seed %d: the Writer uses %d bytes, its slabs have %d", seed, n, w.conf.o.SlabBytes*o.SlabCount)
						}
					}
				}()
			}
			for range 3 {
				<-done
			}
			if err := w.Flush(ctx); err != nil {
				t.Error(err)
			}
			s := w.Stats()
			if s.Pending.Total() != 0 || s.SlabsInUse != 0 || s.OversizeMem != 0 || s.Delivered == 0 || s.Check() != nil {
				t.Errorf("seed %d: %+v", seed, s)
			}
			closeNow(t, w)
		})
	}
}
