package bufpool

import (
	"runtime"
	"sync"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// Stats returns while all lists are locked. It uses the last published counters of the stacks and
// the current state of the caches.
func TestStatsDoesNotWaitForLocks(t *testing.T) {
	p, l := oneList(t, 100)
	fill(p, 64, 10)
	wantCounts(t, p, 10, 10, 10, 0)
	l.mu.Lock()
	for range 5 {
		p.Put(get(p))
	}
	wantHeld := func(gets, puts uint64, retained int) {
		t.Helper()
		if c := p.Stats().Classes[0]; c.Gets != gets || c.Puts != puts || c.Retained != retained {
			t.Errorf("%+v, want %d gets, %d puts, %d retained", c, gets, puts, retained)
		}
	}
	wantHeld(15, 15, 10)
	l.mu.Unlock()
	fill(p, 64, 3) // one Get from the cache, two from the stack
	l.mu.Lock()
	wantHeld(16, 16, 10)
	l.mu.Unlock()
	wantCounts(t, p, 18, 18, 10, 0)
}

// While a list is locked, Stats misses at most the last 63 operations of its stack.
func TestStatsMissesAtMost63Operations(t *testing.T) {
	p, l := oneList(t, 4000)
	a := get(p)
	p.Put(a)
	a = get(p) // the cached buffer stays in use, so it leaves the cache
	const n = 3000
	fill(p, 64, n)
	fill(p, 64, n)
	l.mu.Lock()
	c := p.Stats().Classes[0]
	l.mu.Unlock()
	if c.Gets > 2*n+2 || c.Gets <= 2*n+2-reportEvery {
		t.Errorf("Stats counts %d of %d Gets, which is too few or too many", c.Gets, 2*n+2)
	}
	if c.Puts > 2*n+1 || c.Puts <= 2*n+1-reportEvery {
		t.Errorf("Stats counts %d of %d Puts, which is too few or too many", c.Puts, 2*n+1)
	}
	p.Put(a)
	wantCounts(t, p, 2*n+2, 2*n+2, n+1, 0)
}

// No counter decreases and no class exceeds its limit while calls are in progress.
func TestCountersNeverDecrease(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64, 1024}, MaxRetainedBytes: 40 << 10})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var bufs [20][]byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				for i := range bufs[:1+g%3*9] {
					bufs[i], _ = p.Get(64 << (g % 2 * 4))
				}
				for i := range bufs[:1+g%3*9] {
					p.Put(bufs[i])
				}
				runtime.Gosched() // without this call, a collection takes a second
			}
		})
	}
	var last [2]ClassStats
	var all Totals
	for i := range 6000 {
		t1 := p.Totals()
		if t1.Gets < all.Gets || t1.Misses < all.Misses {
			t.Fatalf("a total decreased: %+v after %+v", t1, all)
		}
		all = t1
		if i%1000 == 0 {
			runtime.GC()
			p.trim()
		}
		for k, c := range p.Stats().Classes {
			was := last[k]
			if c.Gets < was.Gets || c.Puts < was.Puts || c.Misses < was.Misses || c.Discarded < was.Discarded || c.Released < was.Released {
				t.Fatalf("a counter decreased: %+v after %+v", c, was)
			}
			if c.RetainedBytes > 40<<10 || c.Retained < 0 || c.InUse < 0 {
				t.Fatalf("out of bounds: %+v", c)
			}
			last[k] = c
		}
	}
	close(stop)
	wg.Wait()
	checkBalance(t, p.Stats())
	checkLists(t, p)
}

// When no call is in progress, the totals are the sums of the classes.
func TestTotalsAreSumsOfClasses(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64, 1024}})
	fill(p, 64, 100)
	fill(p, 1024, 10)
	for range 1000 {
		p.Put(get(p))
	}
	var want Totals
	for _, c := range p.Stats().Classes {
		want.Gets += c.Gets
		want.Misses += c.Misses
	}
	if got := p.Totals(); got != want || got.Gets != 1110 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if n := allocs.PerRun(100, func() { p.Totals() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTotals(b *testing.B) {
	p, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	for size := 1 << 10; size <= 64<<10; size *= 4 {
		buf, _ := p.Get(size)
		p.Put(buf)
	}
	b.Run("Totals", func(b *testing.B) {
		for b.Loop() {
			p.Totals()
		}
	})
	b.Run("Stats", func(b *testing.B) {
		for b.Loop() {
			p.Stats()
		}
	})
}
