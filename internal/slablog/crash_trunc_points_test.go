//go:build forebay_points && (linux || darwin)

package slablog

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/crashfile"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// The file is truncated at any step of the Writer, in any goroutine that accesses the mapping. The
// process survives, the account balances, and the destination gets only whole records.
func TestTruncatedAtPoints(t *testing.T) {
	seed := testkit.Seed(t)
	for _, p := range append(append([]string{}, allPoints...), crashPoints...) {
		t.Run(p, func(t *testing.T) {
			for _, n := range []int64{1, 2, 7} {
				for _, size := range []int64{0, 2 * crashfile.Page, crashfile.HeadsOff + crashfile.Page + 1500} {
					for kind := range 4 {
						bubble.Test(t, func(t *testing.T) { truncatedAt(t, p, n, size, seed, kind) })
						if seed++; t.Failed() {
							t.Fatalf("n=%d size=%d kind=%d", n, size, kind)
						}
					}
				}
			}
		})
	}
}

// truncatedAt truncates the file of a Writer to size bytes when the Writer reaches the test point p
// for the nth time.
func truncatedAt(t *testing.T, p string, n, size int64, seed uint64, kind int) {
	rng, answers := rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 8))
	o := slab.Options{SlabBytes: 1024, SlabCount: 4, MaxRecord: 3000, WhenFull: []slab.WhenFull{slab.DropOldest(), slab.BlockFor(time.Millisecond), slab.DropNewest()}[rng.IntN(3)],
		FlushInterval: time.Millisecond, OnError: quiet}
	o.Crash = &slab.Crash{Dir: t.TempDir(), Required: rng.IntN(2) == 0}
	var w *pump
	var err error
	var bad atomic.Int64
	sum := 0
	work := func(p []byte) (int, error) {
		for _, c := range p {
			sum += int(c) // faults if the page is missing
		}
		switch answers.IntN(5) {
		case 0:
			return answers.IntN(len(p) + 1), errDown
		case 1:
			time.Sleep(time.Duration(answers.IntN(300)) * time.Millisecond)
		}
		return len(p), nil
	}
	var c *retrier
	if kind%2 == 0 {
		c = consumerFor(writerFunc(work))
	} else {
		c = consumerFor(&recorder{limits: batch.Limits{Records: answers.IntN(5)}, answer: func(_ int, b *batch.Batch) (o batch.Outcome) {
			for _, r := range b.All() {
				if _, _, err := parseKillLine(string(r.Data)); err != nil {
					bad.Add(1)
				}
			}
			k := b.Len()
			switch answers.IntN(8) {
			case 0:
				return partly(answers.IntN(k + 1))
			case 1:
				return batch.Outcome{Open: batch.Of(answers.IntN(k)), Why: errDown}
			case 2:
				return refused(answers.IntN(k))
			case 3:
				return failed()
			case 4:
				time.Sleep(300 * time.Millisecond)
			}
			return o
		}})
	}
	c.wait, c.wants.Inline = time.Millisecond, kind < 2
	w, err = newPump(c, &o)
	if err != nil {
		t.Fatal(err)
	}
	var seen atomic.Int64
	hook := func(name string) {
		if name == p && seen.Add(1) == n {
			_ = os.Truncate(w.store.crash.file.Path(), size)
		}
	}
	pointHook.Store(&hook)
	defer pointHook.Store(nil)
	for i := range 120 {
		s := rng.IntN(120)
		if rng.IntN(10) == 0 {
			s = 1500
		}
		m := batch.Meta{}
		if rng.IntN(10) == 0 {
			m.Level = slog.LevelError
		}
		_ = w.WriteRecord(killLine(0, uint64(i), s), m)
		if rng.IntN(8) == 0 {
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
		}
		if rng.IntN(40) == 0 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			_ = w.Flush(ctx)
			cancel()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(2000))*time.Millisecond)
	defer cancel()
	r, _ := w.Shutdown(ctx)
	pointHook.Store(nil)
	if err := r.Account.Check(); err != nil {
		t.Error(err)
	}
	if bad.Load() > 0 && p != ptCopiedLocked { // an unfinished call may leave its record torn
		t.Errorf("%d are torn", bad.Load())
	}
	time.Sleep(time.Minute) // until the hanging call has ended
}
