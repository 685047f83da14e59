package bufpool

import (
	"runtime"
	"testing"
	"weak"

	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

// collectUntil runs the garbage collector until done returns true. Finalizers run soon after a
// collection, in a goroutine of the runtime.
func collectUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 1000 {
		if done() {
			return
		}
		runtime.GC()
		for range 10 {
			runtime.Gosched()
		}
	}
	t.Fatalf("%s: not done after 1000 collections", what)
}

// awaitBalance is like checkBalance, for a pool that trims itself. It repeats the check, because
// Stats reads inconsistent figures while a trim is in progress.
func awaitBalance(t *testing.T, p *Pool) {
	t.Helper()
	collectUntil(t, "balance", func() bool { return imbalance(p.Stats()) == "" })
}

// fill gets n buffers of size and puts them all.
func fill(p *Pool, size, n int) {
	bufs := make([][]byte, n)
	for i := range bufs {
		bufs[i], _ = p.Get(size)
	}
	for _, buf := range bufs {
		p.Put(buf)
	}
}

func TestTrimKeepsUsedBuffers(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64}, MaxRetainedBytes: 7 * 64}) // one list
	fill(p, 64, 7)
	p.trim() // since the pool was made, all seven were in use at the same time
	if c := classStats(t, p, 64); c.Retained != 7 || c.Released != 0 {
		t.Fatalf("after a busy cycle: %+v", c)
	}
	fill(p, 64, 3)
	p.trim() // since the last trim, three of seven were in use
	if c := classStats(t, p, 64); c.Retained != 3 || c.Released != 4 {
		t.Fatalf("after a cycle with three in use: %+v", c)
	}
	p.trim()
	if c := classStats(t, p, 64); c.Retained != 0 || c.Released != 7 {
		t.Fatalf("after an idle cycle: %+v", c)
	}
	checkBalance(t, p.Stats())
	fill(p, 64, 2)
	if c := classStats(t, p, 64); c.Misses != 9 || c.Retained != 2 {
		t.Fatalf("used again: %+v", c)
	}
}

// trim keeps the most recently used buffers, and removes all references to the dropped ones.
func TestTrimDropsLeastRecentlyUsed(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64}, MaxRetainedBytes: 7 * 64})
	a, _ := p.Get(64)
	b, _ := p.Get(64)
	p.Put(a)
	p.Put(b)
	p.trim()
	used, _ := p.Get(64)
	p.Put(used)
	p.trim()
	if got, _ := p.Get(64); &got[0] != &used[0] {
		t.Error("the buffer used last was given up")
	}
	given := a
	if &used[0] == &a[0] {
		given = b
	}
	p.Put(given)
	if r := p.Stats().Refused; r != (Refusals{Foreign: 1}) {
		t.Errorf("Put accepted a buffer that trim had released: %+v", r)
	}
}

// An idle pool is empty after a few collections, and the memory is free.
func TestIdlePoolIsEmptiedByCollections(t *testing.T) {
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	buf, _ := p.Get(64 << 10)
	mem := weak.Make(&buf[0])
	p.Put(buf)
	buf = nil
	fill(p, 100, 1000)
	collectUntil(t, "retained bytes at zero", func() bool {
		var retained int64
		for _, c := range p.Stats().Classes {
			retained += c.RetainedBytes
		}
		return retained == 0
	})
	collectUntil(t, "buffer collected", func() bool { return mem.Value() == nil })
	awaitBalance(t, p)
	for _, c := range p.Stats().Classes {
		if c.Lost != 0 || c.InUse != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// A buffer that is dropped in use is counted and removed from the registry.
func TestDroppedBufferIsCountedAsLost(t *testing.T) {
	p := mustPool(t, Config{})
	const n = 100
	for range n {
		p.Get(2) // buffers of the smallest class must also be distinguished
		p.Get(4000)
	}
	for _, size := range []int{2, 4096} {
		collectUntil(t, "buffers lost", func() bool { return classStats(t, p, size).Lost == n })
		if c := classStats(t, p, size); c.InUse != 0 {
			t.Errorf("%+v", c)
		}
	}
	checkBalance(t, p.Stats())
	for _, c := range p.classes {
		collectUntil(t, "registry empty", func() bool {
			c.nodes.mu.Lock()
			defer c.nodes.mu.Unlock()
			return c.nodes.live == 0
		})
	}
}

// A dropped buffer of the smallest class is detected even if the runtime has allocated other
// objects next to it.
func TestDroppedSmallBufferIsDetected(t *testing.T) {
	p := mustPool(t, Config{})
	const n = 100
	var kept [][]byte
	for range n {
		p.Get(1)
		buf, _ := p.Get(1)
		kept = append(kept, buf)
	}
	collectUntil(t, "buffers lost", func() bool { return classStats(t, p, 2).Lost == n })
	for _, buf := range kept {
		p.Put(buf)
	}
	if c := classStats(t, p, 2); c.Retained != n || c.InUse != 0 {
		t.Errorf("%+v", c)
	}
}

// Trimming a busy pool after each collection does not allocate.
func TestTrimDoesNotAllocate(t *testing.T) {
	p := mustPool(t, Config{})
	s := &sentinel{p.self}
	if n := allocs.PerRun(20, func() {
		buf, _ := p.Get(100)
		s.afterCollection()
		p.Put(buf)
		runtime.SetFinalizer(s, nil) // so that afterCollection can set the finalizer again
	}); n != 0 {
		t.Errorf("%v allocations per collection", n)
	}
}

// If append exceeds the capacity, the old buffer is dropped and counted as lost.
func TestBufferOutgrownByAppendIsLost(t *testing.T) {
	p := mustPool(t, Config{})
	buf, _ := p.Get(64)
	buf = append(buf, make([]byte, 100)...)
	p.Put(buf)
	buf = nil
	if r := p.Stats().Refused; refusedTotal(r) != 1 {
		t.Errorf("refused %+v", r)
	}
	collectUntil(t, "buffer lost", func() bool { return classStats(t, p, 64).Lost == 1 })
}

// The pool does not keep alive slices that are oversize, refused or discarded.
func TestRefusedAndOversizeSlicesAreFreed(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64, 4096}, MaxRetainedBytes: 64})
	oversize, _ := p.Get(1 << 20)
	discarded, _ := p.Get(4096)
	var mems []weak.Pointer[byte]
	for _, buf := range [][]byte{oversize, discarded, make([]byte, 64)} {
		mems = append(mems, weak.Make(&buf[0]))
		p.Put(buf)
	}
	for i, mem := range mems {
		collectUntil(t, []string{"oversize", "discarded", "foreign"}[i], func() bool { return mem.Value() == nil })
	}
	runtime.KeepAlive(p)
}

// A dropped pool is collected with all buffers it retains, although finalizers refer to it.
func TestDroppedPoolIsCollected(t *testing.T) {
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	fill(p, 100, 10)
	kept, _ := p.Get(100) // a buffer in use does not keep the pool alive
	buf, _ := p.Get(1 << 20)
	mem, pool := weak.Make(&buf[0]), weak.Make(p)
	p.Put(buf)
	p, buf = nil, nil
	collectUntil(t, "pool collected", func() bool { return pool.Value() == nil && mem.Value() == nil })
	kept[0] = 1
}

// A list does not reference a buffer in use. Its cache may, for at most two collections.
func TestBufferInUseIsNotReferenced(t *testing.T) {
	for _, debug := range []bool{false, true} {
		p := mustPool(t, Config{Debug: debug})
		fill(p, 4096, 2)
		p.Get(4096) // reuses both buffers and drops them
		p.Get(4096)
		collectUntil(t, "buffer lost", func() bool { return classStats(t, p, 4096).Lost >= 1 })
		p.trim()
		p.trim()
		collectUntil(t, "buffers lost", func() bool { return classStats(t, p, 4096).Lost == 2 })
		checkBalance(t, p.Stats())
	}
}
