//go:build linux || darwin

package slab

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// What a destination has taken of a batch before it failed is noted at once: neither a
// kill nor a Close that gives up has the next process send it again. So for records of
// this process and for those of a dead one.
func TestPartlySettledBatch(t *testing.T) {
	dir := t.TempDir()
	ends := func(t *testing.T, w *Writer, left, pending int) {
		synctest.Wait()
		files, err := CrashFiles(dir)
		n := 0
		for _, f := range files {
			im, err := ReadImage(f.Path)
			if err != nil || im.Unreturned+im.Evicted != 0 {
				t.Errorf("%v, %+v", err, im)
			}
			n += len(im.Records)
		}
		if err != nil || n != left {
			t.Errorf("%v: %d records are left, want %d", err, n, left)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r, err := w.Shutdown(ctx); err != nil || r.Kept() != uint64(pending) || r.Pending.Total() != r.Kept() {
			t.Errorf("%v, %v", err, r.Account)
		}
	}
	first := func(answer error) *recorder {
		return &recorder{answer: func(call int, _ *batch.Batch) error {
			if call == 0 {
				return answer
			}
			return errDown
		}}
	}
	var got []string
	for life, answer := range []error{batch.Prefix(3, errDown), batch.Prefix(2, errDown), batch.Partial(errDown, 1, 4)} {
		synctest.Test(t, func(t *testing.T) {
			sink := first(answer)
			w := mustSink(t, sink, &Options{SlabBytes: 1024, FlushInterval: time.Millisecond, Crash: &Crash{Dir: dir, Required: true}})
			if life == 0 {
				for i := range 10 {
					mustWrite(t, w, i, 40)
				}
			}
			time.Sleep(10 * time.Millisecond)
			ends(t, w, []int{7, 5, 4}[life], []int{7, 5, 2}[life])
			got = append(got, sink.got...)
		})
	}
	rest, _, _ := recoverEvents(t, dir)
	// The third answer settles 5, 7 and 8, of which the last two lie behind 6: they come again.
	if want := fmt.Sprint([]int{6, 7, 8, 9}); fmt.Sprint(numbers(t, rest)) != want || len(got) != 3+2+3 {
		t.Errorf("%q, then %v", got, numbers(t, rest))
	}
}

// Evicted records are told from those whose calls had not returned, also while a batch
// is half settled.
func TestEvictedBeforeHalfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := make(chan error)
		sink := &recorder{answer: func(int, *batch.Batch) error { return <-step }}
		w := mustSink(t, sink, &Options{SlabBytes: 1024, SlabCount: 3, WhenFull: DropOldest(), Crash: &Crash{Dir: t.TempDir(), Required: true}})
		for i := range 50 {
			mustWrite(t, w, i, 90)
			synctest.Wait()
		}
		check := func() {
			synctest.Wait()
			a := w.Account()
			im, err := ReadImage(w.crash.path)
			if err != nil || uint64(len(im.Records)) != a.Pending.Total() || im.Unreturned != 0 || im.Holes != im.Evicted {
				t.Errorf("%v: %v, %d records, %d holes, %d evicted", err, a, len(im.Records), im.Holes, im.Evicted)
			}
		}
		check()
		for range 4 {
			step <- batch.Prefix(3, errDown)
			time.Sleep(time.Minute)
			check()
		}
		close(step)
		closeNow(t, w)
	})
}
