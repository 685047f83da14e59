package slab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// shardNow opens the lanes without waiting for contention.
func (w *Writer) shardNow() bool {
	w.mu.Lock()
	defer w.unlock()
	w.sh.forced = w.o.Shards != AutoShards
	w.activateLocked()
	return w.sh.multi
}

// There are never more lanes than processors, which may become fewer.
func TestLanesFollowProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, shards := range []int{8, AutoShards} {
		runtime.GOMAXPROCS(4)
		var m memory
		w := mustNew(t, &m, &Options{Shards: shards, SlabCount: 32, SlabBytes: 1024, WhenFull: Block(), FlushInterval: time.Hour})
		open := func() int32 {
			w.mu.Lock()
			defer w.unlock()
			w.activateLocked()
			return w.sh.active.Load()
		}
		if n := open(); n != 4 {
			t.Errorf("%d lanes on 4 processors", n)
		}
		runtime.GOMAXPROCS(2)
		const n = 2000
		for i := range n { // slabs are swept meanwhile
			mustWrite(t, w, i, 50)
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := w.sh.active.Load(); n > 2 {
			t.Errorf("%d lanes are left on 2 processors", n)
		}
		if n, want := open(), map[int]int32{8: 2, AutoShards: 0}[shards]; n != want {
			t.Errorf("Shards %d: %d lanes on 2 processors, want %d", shards, n, want)
		}
		runtime.GOMAXPROCS(1)
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		closeNow(t, w)
		wantSequence(t, numbers(t, m.String()), 0, n)
	}
}

func (w *Writer) isSharded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sh.multi
}

// chain writes n records from several goroutines, each record holding the next
// number of a counter under whose lock it is written: the destination must see
// the numbers in order, whatever the lanes do. every writes without the lock go
// beside it to cause contention.
func chain(t *testing.T, w *Writer, goroutines, n, size int) (accepted uint64) {
	t.Helper()
	var mu sync.Mutex
	next := 0
	var wg sync.WaitGroup
	var acc atomic.Uint64
	for g := range goroutines {
		wg.Go(func() {
			for i := 0; ; i++ {
				mu.Lock()
				k := next
				if k >= n {
					mu.Unlock()
					return
				}
				next++
				if err := w.WriteRecord(fmt.Appendf(nil, "c %d %s\n", k, strings.Repeat("x", k%size)), batch.Meta{}); err != nil && !errors.Is(err, ErrDropped) {
					t.Errorf("write: %v", err)
				}
				mu.Unlock()
				if err := w.WriteRecord(fmt.Appendf(nil, "g%d %d\n", g, i), batch.Meta{}); err != nil && !errors.Is(err, ErrDropped) {
					t.Errorf("write: %v", err)
				}
				acc.Add(2)
			}
		})
	}
	wg.Wait()
	return acc.Load()
}

// checkChain looks at what arrived: the chain and each goroutine's own records
// in rising order, complete unless gaps are allowed.
func checkChain(t *testing.T, out string, gaps bool) (records int) {
	t.Helper()
	last := map[string]int{}
	for l := range strings.Lines(out) {
		var who string
		var k int
		if _, err := fmt.Sscanf(l, "%s %d", &who, &k); err != nil || !strings.HasSuffix(l, "\n") {
			t.Fatalf("torn line %.60q", l)
		}
		prev, seen := last[who]
		if !seen {
			prev = -1
		}
		if k <= prev || !gaps && k != prev+1 {
			t.Fatalf("%s: record %d after %d", who, k, prev)
		}
		last[who] = k
		records++
	}
	return records
}

func TestShardsKeepOrder(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	var sharded atomic.Int64
	for _, o := range []Options{
		{Shards: 4, SlabCount: 16, WhenFull: Block()},
		{Shards: 2, SlabBytes: 512, SlabCount: 6, WhenFull: Block(), MaxRecord: 2000},
		{Shards: 8, SlabBytes: 1024, SlabCount: 32, WhenFull: Block(), FlushInterval: 50 * time.Microsecond},
		{Shards: 8, SlabBytes: 2048, SlabCount: 32, WhenFull: Block(), FlushInterval: -1},
		{Shards: 3, SlabBytes: 512, SlabCount: 8, WhenFull: DropNewest()},
		{Shards: 3, SlabBytes: 512, SlabCount: 8, WhenFull: BlockFor(time.Millisecond)},
	} {
		t.Run(fmt.Sprintf("%d×%d %v %v", o.SlabCount, o.SlabBytes, o.WhenFull, o.FlushInterval), func(t *testing.T) {
			var m memory
			w := mustNew(t, &m, &o)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() { // keep opening the lanes, flush, look
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if w.shardNow() {
						sharded.Add(1)
					}
					if i%10 == 0 {
						if err := w.Flush(t.Context()); err != nil {
							t.Error(err)
						}
					}
					_ = w.Stats()
					time.Sleep(100 * time.Microsecond)
				}
			})
			size := 60
			if o.MaxRecord > 0 {
				size = 1200 // oversize ones, too
			}
			n := chain(t, w, 8, 10000, size)
			close(stop)
			wg.Wait()
			closeNow(t, w)
			dropped := w.Account().Dropped[batch.Full]
			got := checkChain(t, m.String(), dropped > 0)
			checkAccount(t, w, n, uint64(got), drops(batch.Full, dropped))
			if s := w.Stats(); s.SlabsInUse != 0 || s.OversizeMem != 0 {
				t.Errorf("memory left in use: %+v", s)
			}
		})
	}
	if sharded.Load() == 0 {
		t.Error("the lanes never opened: the test shows nothing")
	}
}

// Lanes open under contention by themselves, close when it ends, and give all
// memory back.
func TestShardsOpenAndClose(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var m memory
	w := mustNew(t, &m, &Options{Shards: 4, SlabBytes: 1024, SlabCount: 16, WhenFull: Block(), FlushInterval: time.Millisecond})
	w.mu.Lock()
	w.sh.hot, w.sh.misses = hotSlabs-1, 1<<20 // as contention would have left it
	w.mu.Unlock()
	n := 0
	for ; !w.isSharded() && n < 1000; n++ {
		mustWrite(t, w, n, 50)
	}
	if !w.isSharded() {
		t.Fatal("contention did not open the lanes")
	}
	for range 100 {
		mustWrite(t, w, n, 50)
		n++
	}
	for deadline := time.Now().Add(10 * time.Second); w.isSharded(); {
		if time.Now().After(deadline) {
			t.Fatal("the lanes stay open although nothing is written")
		}
		runtime.Gosched()
	}
	for range 100 {
		mustWrite(t, w, n, 50)
		n++
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := w.Stats(); s.SlabsInUse != 0 {
		t.Errorf("slabs still in use: %+v", s)
	}
	closeNow(t, w)
	wantSequence(t, numbers(t, m.String()), 0, n)
	checkAccount(t, w, uint64(n), uint64(n), batch.Drops{})
}

func TestShardsAreOffByDefault(t *testing.T) {
	for _, o := range []Options{
		{}, {Shards: 1}, {Shards: 8, WhenFull: DropOldest()}, {Shards: 8, SlabCount: 4},
	} {
		w := mustNew(t, &memory{}, &o)
		if w.shardNow() {
			t.Errorf("%+v opens lanes", o)
		}
		closeNow(t, w)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	w := mustNew(t, &memory{}, &Options{Shards: AutoShards, SlabCount: 32})
	if w.shardNow() {
		t.Error("AutoShards opens lanes on 3 processors")
	}
	runtime.GOMAXPROCS(4)
	if !w.shardNow() || w.sh.active.Load() != 4 {
		t.Errorf("AutoShards opens %d lanes on 4 processors", w.sh.active.Load())
	}
	closeNow(t, w)
}

func TestShardsBesideClose(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	for seed := range 100 {
		var m memory
		w := mustNew(t, &m, &Options{Shards: 4, SlabBytes: 512, SlabCount: 12, WhenFull: Block(), FlushInterval: time.Millisecond})
		w.shardNow()
		var ok atomic.Int64
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 300 {
					if err := w.WriteRecord(fmt.Appendf(nil, "g%d %d\n", g, i), batch.Meta{}); err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("write: %v", err)
						}
						return
					}
					ok.Add(1)
				}
			})
		}
		for range rand.New(rand.NewPCG(uint64(seed), 1)).IntN(200) {
			runtime.Gosched()
		}
		closeNow(t, w)
		wg.Wait()
		if got := int64(checkChain(t, m.String(), false)); got != ok.Load() {
			t.Fatalf("%d writes returned nil, %d records arrived", ok.Load(), got)
		}
		checkAccount(t, w, uint64(ok.Load()), uint64(ok.Load()), batch.Drops{})
	}
}

func TestShardsAndHungDestination(t *testing.T) {
	g := newGate()
	w := mustNew(t, g, &Options{Shards: 3, SlabBytes: 512, SlabCount: 8, WhenFull: DropNewest(), FlushInterval: time.Millisecond})
	w.shardNow()
	for i := range 1000 {
		w.Write(line(i, 50))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r, err := w.Shutdown(ctx)
	if err == nil || r.Check() != nil || r.Pending.Total() != 0 || r.Accepted != 1000 {
		t.Errorf("report %+v, %v", r, err)
	}
	g.open()
	<-w.done
	if a := w.Account(); a != r.Account {
		t.Errorf("account changed after Close: %v, then %v", r.Account, a)
	}
}

func TestLaneWriteAllocatesNothing(t *testing.T) {
	w := mustNew(t, &memory{act: func(int, []byte) (int, error) { return 0, nil }}, &Options{Shards: 2, SlabCount: 16, FlushInterval: time.Hour, WhenFull: DropNewest()})
	p := make([]byte, 100)
	if !w.shardNow() {
		t.Fatal("no lanes")
	}
	if n := testing.AllocsPerRun(100, func() { w.Write(p) }); n != 0 {
		t.Errorf("a write to a lane allocates %v times", n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.Shutdown(ctx)
	<-w.done
}

// A record of FlushLevel is sent at once also from a lane, with all that came before it.
func TestUrgentRecordsInLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memory
		w := mustNew(t, &m, &Options{Shards: 2, SlabCount: 16, FlushInterval: -1})
		if !w.shardNow() {
			t.Fatal("no lanes")
		}
		n := 0
		for range 3 {
			for range 5 {
				mustWrite(t, w, n, 50)
				n++
			}
			synctest.Wait()
			if got := numbers(t, m.String()); len(got) != n-5 {
				t.Errorf("%d arrived before the urgent one, want %d", len(got), n-5)
			}
			if err := w.WriteRecord(line(n, 50), batch.Meta{Level: slog.LevelError}); err != nil {
				t.Fatal(err)
			}
			n++
			synctest.Wait()
			wantSequence(t, numbers(t, m.String()), 0, n)
			if !w.isSharded() {
				t.Error("an urgent record closes the lanes")
			}
		}
		closeNow(t, w)
	})
}
