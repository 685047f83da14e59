//go:build linux || darwin

package slablog

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/slab"
)

// An evicted record is not recovered, regardless of when Close runs and how many callers are about
// to write oversize records to disk. The next process recovers exactly the records that Close
// reports as kept.
func TestEvictedRecordsDoNotComeBack(t *testing.T) {
	for round := range 60 {
		dir := t.TempDir()
		g := newGate()
		w := crashWriter(t, dir, g, slab.Options{SlabBytes: 1024, SlabCount: 16, WhenFull: slab.DropOldest(), MaxRecord: 4000, FlushInterval: time.Millisecond})
		mustWrite(t, w, 0, 30)
		<-g.entered // the destination hangs now
		var wg sync.WaitGroup
		for c := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					if err := w.WriteRecord(line(c*1000+i, 2000+c*100), batch.Meta{}); err != nil {
						return // Close has been called
					}
				}
			})
		}
		for range 20 * (round + 1) {
			runtime.Gosched()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r, _ := w.Shutdown(ctx)
		wg.Wait()
		g.open()
		<-w.done
		_, s, _ := recoverEvents(t, dir)
		if s.Recovered != r.Pending.Total() {
			t.Fatalf("round %d: %d kept, %d recovered: %v", round, r.Pending.Total(), s.Recovered, r)
		}
	}
}
