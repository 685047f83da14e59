package bufpool

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/forebay-log/forebay/internal/testkit"
)

// oneList returns a pool with one class of 64 B, and its only list, which has room for limit
// buffers.
func oneList(t *testing.T, limit int) (*Pool, *list) {
	t.Helper()
	p := mustPool(t, Config{SizeClasses: []int{64}, MaxRetainedBytes: 64 * limit})
	p.classes[0] = newClass(64, limit, 1)
	p.classes[0].dropped = whenDropped(p.self, 0)
	return p, &p.classes[0].lists[0]
}

func get(p *Pool) []byte { buf, _ := p.Get(64); return buf }

func same(a, b []byte) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }

func wantCounts(t *testing.T, p *Pool, gets, puts uint64, retained, inUse int) {
	t.Helper()
	s := p.Stats()
	checkBalance(t, s)
	checkLists(t, p)
	if c := s.Classes[0]; c.Gets != gets || c.Puts != puts || c.Retained != retained || c.InUse != inUse {
		t.Errorf("%+v, want %d gets, %d puts, %d retained, %d in use", c, gets, puts, retained, inUse)
	}
}

// If the cache has a free buffer, Get and Put need no lock.
func TestListCacheNeedsNoLock(t *testing.T) {
	p, l := oneList(t, 3)
	p.Put(get(p))
	l.mu.Lock()
	for range 1000 {
		p.Put(get(p))
	}
	l.mu.Unlock()
	wantCounts(t, p, 1001, 1001, 1, 0)
}

// A buffer that is in use for a long time leaves the cache, which then holds a buffer that is used
// more often. The evicted buffer can return later.
func TestListCacheHoldsMostUsedBuffer(t *testing.T) {
	p, l := oneList(t, 3)
	p.Put(get(p))
	long := get(p)
	busy := get(p)
	p.Put(busy)
	for range 3 {
		busy = get(p)
		p.Put(busy)
	}
	if l.mem.Load() != &busy[0] {
		t.Error("the cache does not hold the buffer that is used often")
	}
	wantCounts(t, p, 6, 5, 1, 1)
	p.Put(long)
	wantCounts(t, p, 6, 6, 2, 0)
	p.Put(long)
	p.Put(busy)
	if r := p.Stats().Refused; r != (Refusals{Twice: 2}) {
		t.Errorf("%+v", r)
	}
	if a, b := get(p), get(p); same(a, b) {
		t.Error("two owners")
	}
}

// A cached buffer counts toward the limit of the class only while it is free.
func TestListCacheCountsInLimit(t *testing.T) {
	p, _ := oneList(t, 1)
	a := get(p)
	p.Put(a)
	a = get(p)
	b := get(p)
	p.Put(b) // goes to the cache, which the buffer a has left
	wantCounts(t, p, 3, 2, 1, 1)
	p.Put(a) // no room
	wantCounts(t, p, 3, 3, 1, 0)
	if c := p.Stats().Classes[0]; c.Discarded != 1 {
		t.Errorf("%+v", c)
	}
	if !same(get(p), b) {
		t.Error("not the one retained")
	}
}

// Get finds a free buffer in the cache of any list, and moves it to the list that it tried first.
func TestCachedBufferIsFoundFromEveryList(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64}})
	c := p.classes[0]
	here := c.hint()
	there := &c.lists[(here+1)&c.mask]
	buf := get(p)
	n := c.nodes.find(addrOf(buf))
	n.home.Store(there)
	p.Put(buf)
	if there.mem.Load() != &buf[0] {
		t.Fatal("Put did not return the buffer to its home list")
	}
	if mem := c.get(here); mem != &buf[0] {
		t.Fatal("get from another list did not find the cached buffer")
	}
	if there.cached != nil || there.mem.Load() != nil {
		t.Error("the cache that the buffer left is not vacant")
	}
	wantCounts(t, p, 2, 1, 0, 1)
	p.Put(buf)
	if c.lists[here].mem.Load() != &buf[0] {
		t.Error("the buffer did not move")
	}
	wantCounts(t, p, 2, 2, 1, 0)
}

// Get finds a free buffer in the stack of any list, and moves it to the list that it tried first.
func TestStackBufferMovesToListOfGet(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64}})
	c := p.classes[0]
	here := c.hint()
	there := &c.lists[(here+1)&c.mask]
	bufs := [][]byte{get(p), get(p)}
	for _, buf := range bufs {
		c.nodes.find(addrOf(buf)).home.Store(there)
		p.Put(buf)
	}
	if len(there.items) != 1 {
		t.Fatal("Put did not return the buffer to its home list")
	}
	if mem := c.get(here); mem != &bufs[1][0] {
		t.Fatal("the stack was not tried first")
	}
	p.Put(bufs[1])
	if c.lists[here].mem.Load() != &bufs[1][0] || len(there.items) != 0 {
		t.Error("the buffer did not move")
	}
	wantCounts(t, p, 3, 3, 2, 0)
}

// A cached buffer that is not used between two trims is released.
func TestIdleCachedBufferIsReleased(t *testing.T) {
	p, l := oneList(t, 3)
	p.Put(get(p))
	p.trim()
	p.Put(get(p)) // used in between
	p.trim()
	wantCounts(t, p, 2, 2, 1, 0)
	p.trim()
	wantCounts(t, p, 2, 2, 0, 0)
	if c := p.Stats().Classes[0]; c.Released != 1 {
		t.Errorf("%+v", c)
	}
	before := l.word.Load()
	p.Put(get(p))
	p.trim()
	p.trim()
	if l.word.Load() == before {
		t.Error("a value of word occurred again")
	}
	wantCounts(t, p, 3, 3, 0, 0)
}

// A put fails if the cache is used between the read of word and the compare-and-swap.
func TestDelayedPutFails(t *testing.T) {
	p, l := oneList(t, 2)
	seen, last := map[uint64]string{}, uint64(0)
	note := func(what string) {
		t.Helper()
		w := l.word.Load()
		if w&stateMask == vacant || w == last {
			return
		}
		last = w
		if was, ok := seen[w]; ok {
			t.Fatalf("%s: the same value of word as after %q", what, was)
		}
		seen[w] = what
	}
	for range 200 {
		p.Put(get(p))
		note("settled or given back")
		a := get(p)
		note("lent")
		b := get(p)
		p.Put(b)
		p.Put(get(p))
		note("given back")
		p.Put(a)
		p.trim()
		p.trim()
		p.Put(get(p))
		note("settled after a trim")
	}
}

func TestCounts(t *testing.T) {
	const gets = 7
	for _, tt := range []struct {
		state, evictions, puts uint64
		free                   bool
	}{
		{free, 0, 7, true},
		{free, 4, 5, true},
		{free, 5, 5, true}, // a buffer in use was about to leave, but was put
		{inUse, 0, 6, false},
		{inUse, 4, 4, false},
		{inUse, 5, 4, false}, // about to leave
		{vacant, 4, 5, false},
		{vacant, 5, 4, false}, // has left, not yet counted
	} {
		got, puts, isFree := counts(gets<<getsBit|leaveMask|tt.state, tt.evictions)
		if got != gets || puts != tt.puts || isFree != tt.free {
			t.Errorf("%+v: %d gets, %d puts, free %v", tt, got, puts, isFree)
		}
	}
}

// No two goroutines own the cached buffer at the same time.
func TestCachedBufferHasOneOwner(t *testing.T) {
	rounds := testkit.Rounds(t, 3000, 1_000_000)
	for _, limit := range []int{1, 2, 5, 50} {
		p, _ := oneList(t, limit)
		const goroutines = 6
		var workers, trimmer sync.WaitGroup
		stop := make(chan struct{})
		trimmer.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					p.trim()
					p.Stats()
					runtime.Gosched()
				}
			}
		})
		for g := range goroutines {
			workers.Go(func() {
				var held [3][]byte
				for i := range rounds {
					mine := held[:1+(g+i/100)%3]
					for k := range mine {
						mine[k] = get(p)
						if mine[k][0] != 0 {
							t.Error("the buffer is not zero, or has another owner")
						}
						mine[k][0] = byte(g + 1)
					}
					if i%16 == 0 {
						runtime.Gosched()
					}
					for k := range mine {
						if mine[k][0] != byte(g+1) {
							t.Error("another owner has written to the buffer")
						}
						p.Put(mine[k])
					}
				}
			})
		}
		workers.Wait()
		close(stop)
		trimmer.Wait()
		s := p.Stats()
		checkBalance(t, s)
		checkLists(t, p)
		if c := s.Classes[0]; c.InUse != 0 || refusedTotal(s.Refused) != 0 {
			t.Errorf("limit %d: %+v, refused %+v", limit, c, s.Refused)
		}
	}
}
