package bufpool

import (
	"runtime"
	"slices"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
)

// dropBuffers gets n buffers of size and drops them.
func dropBuffers(p *Pool, size, n int) {
	for range n {
		p.Get(size)
	}
}

// putForeign puts n slices that have the capacity of a class but were not allocated by the pool. It
// checks that every Put is refused.
func putForeign(t *testing.T, p *Pool, size, n int) {
	t.Helper()
	before := p.Stats().Refused.Foreign
	for range n {
		p.Put(make([]byte, size))
	}
	if got := p.Stats().Refused.Foreign - before; got != uint64(n) {
		t.Fatalf("Put accepted %d of %d foreign slices", uint64(n)-got, n)
	}
}

// After a buffer is dropped and collected, a new slice often has the same address. Put always
// refuses such a slice.
func TestForeignSliceAtAddressOfCollectedBufferIsRefused(t *testing.T) {
	p := mustPool(t, Config{})
	for range testkit.Rounds(t, 100, 10_000) {
		dropBuffers(p, 4096, 64)
		runtime.GC()
		putForeign(t, p, 4096, 64)
	}
	if c := classStats(t, p, 4096); c.Puts != 0 || c.Retained != 0 {
		t.Errorf("a foreign slice was stored in the pool: %+v", c)
	}
}

// While the address of a buffer is registered, no other object has that address, even if the
// finalizers of buffers are delayed.
func TestAddressIsNotReusedWhileRegistered(t *testing.T) {
	p := mustPool(t, Config{})
	gate, entered := make(chan struct{}), make(chan struct{})
	runtime.SetFinalizer(new([64]byte), func(*[64]byte) {
		close(entered)
		<-gate // blocks the goroutine that runs finalizers
	})
	for waiting := true; waiting; {
		runtime.GC()
		select {
		case <-entered:
			waiting = false
		default:
			runtime.Gosched()
		}
	}
	dropBuffers(p, 4096, 64)
	known := map[uintptr]bool{}
	c := p.classes[p.sizes.index(4096)]
	c.nodes.forEach(func(n *node) { known[n.addr] = true })
	for range 5 {
		runtime.GC()
		var fresh [][]byte
		for range 2000 {
			buf := make([]byte, 4096)
			fresh = append(fresh, buf)
			if known[addrOf(buf)] {
				t.Fatal("another object has the address of a registered buffer")
			}
		}
		runtime.KeepAlive(fresh)
		putForeign(t, p, 4096, 64)
	}
	if s := classStats(t, p, 4096); s.Lost != 0 {
		t.Errorf("%d buffers count as lost although no finalizer could run", s.Lost)
	}
	close(gate)
	collectUntil(t, "buffers lost", func() bool { return classStats(t, p, 4096).Lost == 64 })
	collectUntil(t, "addresses used again", func() bool {
		var fresh [][]byte
		for range 2000 {
			fresh = append(fresh, make([]byte, 4096))
		}
		return slices.ContainsFunc(fresh, func(buf []byte) bool { return known[addrOf(buf)] })
	})
}
