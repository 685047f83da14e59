//go:build forebay_points

package slablog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/ordercheck"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// allPoints are the test points in points.go that are reached with slabs on the heap.
var allPoints = []string{
	ptPut, ptCopiedLocked, ptStoredLocked, ptReturn, ptSlowLocked, ptOpenLocked, ptSealLocked,
	ptOversizeCopy, ptOversizeCopied, ptOversizeStoredLocked,
	ptWait, ptWoken, ptServeLocked, ptAnswerLocked, ptEvictLocked,
	ptGather, ptTakeLocked, ptTaken, ptSleep, ptTimer, ptSpin,
	ptSend, ptSent, ptPause, ptRefuse, ptDo,
	ptFlush, ptFlushQueued, ptClose, ptClosed, ptEnd,
}

// setHook makes f the hook of all points until the test ends.
func setHook(t *testing.T, f func(name string)) {
	if !pointHook.CompareAndSwap(nil, &f) {
		t.Fatal("another test has set the hook")
	}
	t.Cleanup(func() { pointHook.Store(nil) })
}

// delay returns a hook that delays every second goroutine for a random time at the given points. In
// a synctest bubble, a sleep takes no real time, and all other goroutines run until they wait,
// which is the longest possible delay.
func delay(seed uint64, hits *sync.Map, names ...string) func(string) {
	var n atomic.Uint64
	return func(name string) {
		h, _ := hits.LoadOrStore(name, new(atomic.Int64))
		h.(*atomic.Int64).Add(1)
		if !slices.Contains(names, name) {
			return
		}
		r := (seed ^ n.Add(1)) * 0x9E3779B97F4A7C15
		r ^= r >> 29
		switch {
		case r%2 == 0:
		case r%4 == 1 && !strings.HasSuffix(name, "Locked"):
			time.Sleep(time.Duration(r>>8%2000) * time.Microsecond)
		case r%8 == 3:
			for end := r >> 8 % 2000; end > 0; end-- {
				_ = n.Load()
			}
		default:
			for range 1 + r>>8%20 {
				runtime.Gosched()
			}
		}
	}
}

// pointRuns returns variants of orderRuns that together reach every point.
func pointRuns() []orderRun {
	runs := slices.DeleteFunc(orderRuns(), func(r orderRun) bool { return strings.HasPrefix(r.name, "defaults") || r.name == "many callers" })
	for i := range runs {
		runs[i].callers = 4
		runs[i].procs, runs[i].bubble, runs[i].crash = false, true, false
		if runs[i].flush > 0 {
			runs[i].flush = 50
		}
	}
	o := slab.Options{SlabBytes: 512, SlabCount: 4, FlushInterval: 50 * time.Microsecond, WhenFull: slab.Block()}
	return append(runs,
		orderRun{name: "close", o: o, callers: 4, clock: ordercheck.NewLogical, size: mixed, chain: 5, flush: 50, faulty: true, closes: true, bubble: true},
	)
}

// Order, Flush and the account are right if goroutines are delayed at each point, and at each pair
// of points.
func TestOrderWithDelays(t *testing.T) {
	var plans [][]string
	for i, p := range allPoints {
		plans = append(plans, []string{p}, []string{p})
		for _, q := range allPoints[:i] {
			plans = append(plans, []string{p, q})
		}
	}
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(plans), func(i, j int) { plans[i], plans[j] = plans[j], plans[i] })
	slices.SortStableFunc(plans, func(a, b []string) int { return len(a) - len(b) })
	var hits sync.Map
	runs := pointRuns()
	// The default number of rounds covers each single point and some of the pairs.
	for i := range testkit.Rounds(t, 2*len(allPoints)+200, 20*len(plans)) {
		names := plans[i%len(plans)]
		run := runs[(i+int(seed%1000))%len(runs)]
		s := rng.Uint64()
		if !t.Run(fmt.Sprintf("%s, seed %d, %s", strings.Join(names, "+"), s, run.name), func(t *testing.T) {
			setHook(t, delay(s, &hits, names...))
			bubble.Test(t, func(t *testing.T) { run.do(t, s, 400, 1) })
		}) {
			return
		}
	}
	t.Run("give up", func(t *testing.T) { // the runs above rarely reach this point
		setHook(t, delay(seed, &hits))
		bubble.Test(t, func(t *testing.T) {
			w := mustSink(t, &recorder{answer: func(int, *batch.Batch) batch.Outcome { return failed() }}, nil)
			mustWrite(t, w, 0, 50)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if r, _ := w.Shutdown(ctx); r.Dropped[batch.Shutdown] != 1 {
				t.Errorf("report %v", r)
			}
			<-w.done
		})
	})
	for _, p := range allPoints {
		if _, ok := hits.Load(p); !ok {
			t.Errorf("point %s was never reached", p)
		}
	}
}

// A record that the report of Close counts neither as delivered nor as unknown has not arrived,
// even if a Send is about to begin or has just returned.
func TestUnknownIncludesRecordsThatArrived(t *testing.T) {
	for _, at := range []string{ptSend, ptSent} {
		t.Run(at, func(t *testing.T) {
			setHook(t, func(name string) {
				if name == at {
					time.Sleep(time.Minute)
				}
			})
			bubble.Test(t, func(t *testing.T) {
				var r recorder
				w := mustSink(t, &r, nil)
				mustWrite(t, w, 0, 50)
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				rep, _ := w.Shutdown(ctx)
				<-w.done
				if got := uint64(len(r.got)); got > rep.Delivered+rep.Unknown {
					t.Errorf("%d records arrived; reported %v, %d unknown", got, rep.Account, rep.Unknown)
				}
			})
		})
	}
}

// If a process is killed within a write, the slot of the record has no ticket, regardless of the
// earlier content of the memory. Here, that content is the bytes of a long record.
func TestHalfStoredRecordIsNotRecovered(t *testing.T) {
	for _, half := range []int{1, 2, 80} { // the slow path stores the first record
		t.Run(fmt.Sprint(half), func(t *testing.T) { recoverHalfStored(t, half) })
	}
}

func recoverHalfStored(t *testing.T, half int) {
	live, killed := t.TempDir(), t.TempDir()
	w := mustNew(t, &memory{}, &slab.Options{SlabBytes: 4096, SlabCount: 2, FlushInterval: -1, Crash: &slab.Crash{Dir: live}})
	for range 4 {
		w.Write(line(0, 1900))
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stored := 0
	setHook(t, func(name string) {
		if name != ptCopiedLocked {
			return
		}
		if stored++; stored != half {
			return
		}
		files, err := filepath.Glob(filepath.Join(live, "*"))
		if err != nil || len(files) == 0 {
			t.Errorf("no files to copy: %v", err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err == nil {
				err = os.WriteFile(filepath.Join(killed, filepath.Base(f)), b, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 100 {
		mustWrite(t, w, i, 4)
	}
	closeNow(t, w)

	var r recorder
	w = mustSink(t, &r, &slab.Options{SlabBytes: 4096, SlabCount: 2, Crash: &slab.Crash{Dir: killed}})
	closeNow(t, w)
	if len(r.got) != half-1 || len(r.tickets) > 0 && slices.Max(r.tickets) > 1000 {
		t.Errorf("%d records were recovered, with tickets %#x; %d had been written", len(r.got), r.tickets, half-1)
	}
}

// The order checks detect a record that was replaced by another one after its call had returned.
func TestExchangedRecordsAreSeen(t *testing.T) {
	c := ordercheck.New(2, ordercheck.NewLogical())
	d := &orderDest{c: c, arrived: make([]atomic.Uint32, 2)}
	w := mustSink(t, d, &slab.Options{FlushInterval: -1})
	defer closeNow(t, w)
	var exchanged int
	setHook(t, func(name string) {
		if name != ptStoredLocked {
			return
		}
		b := w.front.cur
		n := (len(b.mem) - w.front.end) / layout.SlotBytes
		if n-w.store.unread.from != 7 {
			return
		}
		prev, last := b.slot(n-2), b.slot(n-1)
		for i := range last.Len {
			p, q := &b.mem[prev.Off+i], &b.mem[last.Off+i]
			*p, *q = *q, *p
		}
		exchanged++
	})
	var buf []byte
	for i := range 10 {
		k := c.Caller(i % 2)
		buf = k.Begin(buf[:0], 64, 0)
		_, err := w.Write(buf)
		k.End(err == nil)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, err := c.Check()
	if exchanged != 1 || d.err != nil || res.Broken != 1 || err == nil {
		t.Errorf("%d records exchanged: %+v, %v, %v", exchanged, res, err, d.err)
	}
}
