//go:build linux || darwin

package slablog

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/slab"
)

// If a batch is partly accepted, the accepted records are accounted for at once. The file marks
// them as settled only when the whole batch is settled. After a kill, or a Close that ran out of
// time, the next process sends them again. This applies to records of this process and to recovered
// records.
func TestPartlySettledBatch(t *testing.T) {
	for _, inline := range []bool{true, false} {
		dir := t.TempDir()
		ends := func(t *testing.T, w *pump, pending int) {
			synctest.Wait()
			files, err := crashfile.List(dir)
			n := 0
			for _, f := range files {
				im, err := crashfile.Read(f.Path)
				if err != nil || im.Unreturned+im.Evicted != 0 {
					t.Errorf("%v, %+v", err, im)
				}
				n += len(im.Records)
			}
			if err != nil || n != 10 {
				t.Errorf("%v: %d records are left", err, n)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if r, err := w.Shutdown(ctx); err != nil || r.Kept() != uint64(pending) || r.Pending.Total() != r.Kept() || r.Check() != nil {
				t.Errorf("%v, %v", err, r.Account)
			}
		}
		var got []string
		for life, answer := range []batch.Outcome{partly(3), partly(2), {Open: batch.Of(1, 4), Why: errDown}} {
			bubble.Test(t, func(t *testing.T) {
				sink := &recorder{answer: func(call int, _ *batch.Batch) batch.Outcome {
					if call == 0 {
						return answer
					}
					return failed()
				}}
				c := consumerFor(sink)
				c.wants.Inline = inline
				w := mustSink(t, c, &slab.Options{SlabBytes: 1024, FlushInterval: time.Millisecond, Crash: &slab.Crash{Dir: dir, Required: true}})
				if life == 0 {
					for i := range 10 {
						mustWrite(t, w, i, 40)
					}
				}
				time.Sleep(100 * time.Millisecond)
				ends(t, w, []int{7, 8, 2}[life])
				got = append(got, sink.got...)
			})
		}
		rest, _, _ := recoverEvents(t, dir)
		if len(got) != 3+2+8 {
			t.Errorf("inline %t: %q", inline, got)
		}
		wantSequence(t, numbers(t, rest), 0, 10)
	}
}

// Recovery distinguishes evicted records from records whose calls had not returned, even if a batch
// is partly settled.
func TestEvictedBeforeHalfABatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		step := make(chan int)
		half := 0 // number of settled records of the current batch
		sink := &recorder{answer: func(_ int, b *batch.Batch) (o batch.Outcome) {
			n, ok := <-step
			if !ok || n >= b.Len() {
				half = 0
				return o
			}
			half += n
			return partly(n)
		}}
		w := mustSink(t, sink, &slab.Options{SlabBytes: 1024, SlabCount: 3, WhenFull: slab.DropOldest(), Crash: &slab.Crash{Dir: t.TempDir(), Required: true}})
		for i := range 50 {
			mustWrite(t, w, i, 90)
			synctest.Wait()
		}
		seen := map[[2]bool]bool{} // keys: a batch is partly settled; records are evicted
		check := func() {
			synctest.Wait()
			a := w.Account()
			im, err := crashfile.Read(w.store.crash.file.Path())
			if err != nil || len(im.Records) != int(a.Pending.Total())+half || im.Unreturned != 0 || im.Holes != im.Evicted {
				t.Errorf("%v: %v, %d records, %d of them settled, %d holes, %d evicted", err, a, len(im.Records), half, im.Holes, im.Evicted)
			}
			seen[[2]bool{half > 0, im.Evicted > 0}] = true
		}
		check()
		for range 4 {
			step <- 3
			time.Sleep(time.Minute)
			check()
		}
		if !seen[[2]bool{true, true}] || !seen[[2]bool{false, true}] {
			t.Errorf("the test did not reach its case: %v", seen)
		}
		close(step)
		closeNow(t, w)
	})
}
