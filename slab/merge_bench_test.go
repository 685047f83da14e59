package slab

import (
	"context"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// What merging the lanes costs beyond copying their records: sweep, scatter and
// gather, for records that alternate between four lanes. The metrics are
// nanoseconds per record; bench/row_order.go makes a row of them.
func BenchmarkMerge(b *testing.B) {
	const lanes = 4
	hang, held := make(chan struct{}), make(chan struct{})
	var once bool
	w, err := NewSink(batch.SinkFunc(func(context.Context, *batch.Batch) error {
		if !once {
			once = true
			close(held)
			<-hang
		}
		return nil
	}), &Options{SlabCount: 2*lanes + 8, Shards: lanes, FlushInterval: time.Hour, WhenFull: Block(), OnError: quiet})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	defer close(hang)
	p := make([]byte, 200)
	_, _ = w.Write(p)
	go w.Flush(context.Background())
	<-held // from here on this goroutine is the drain
	saved := w.d
	w.d = drain{}
	w.d.init(w)
	if !w.shardNow() {
		b.Fatal("the lanes do not open")
	}
	per := w.slabBytes / (len(p) + batch.SlotBytes)
	flat := newArena(w.slabBytes, lanes+1)
	var merged, copied time.Duration
	records := 0
	for b.Loop() {
		w.mu.Lock()
		for i := range lanes {
			l := &w.sh.lanes[i]
			k := len(w.free) - 1
			l.cur, w.free = w.free[k], w.free[:k]
			l.cur.reset(w.sh.g.Load() + 1)
		}
		for range per {
			for i := range lanes {
				w.storeLane(&w.sh.lanes[i], p, batch.Meta{})
			}
		}
		w.mu.Unlock()

		start := time.Now()
		w.mu.Lock()
		w.sweepLocked(false)
		w.mu.Unlock()
		for w.sh.left > 0 {
			w.buildMerged()
		}
		merged += time.Since(start)

		// The same bytes from the same places, in the order of the lanes.
		start = time.Now()
		for i := range lanes {
			src, dst := w.sh.lanes[i].cur, flat[lanes]
			dst.reset(1)
			for k := range src.n {
				s := src.slot(k)
				dst.store(src.mem[s.Off:s.Off+s.Len], s.Meta(), s.Ticket)
			}
		}
		copied += time.Since(start)

		w.mu.Lock()
		for i := range lanes {
			w.sealLaneLocked(&w.sh.lanes[i])
		}
		w.inflight = 0
		w.mu.Unlock()
		records += lanes * per
	}
	ns := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(records) }
	b.ReportMetric(ns(merged), "merge-ns/record")
	b.ReportMetric(ns(copied), "copy-ns/record")
	b.ReportMetric(ns(merged-copied), "extra-ns/record")
	w.mu.Lock()
	w.discardLocked()
	w.endMergeLocked()
	w.mu.Unlock()
	saved.merge = w.d.merge
	w.d = saved
}
