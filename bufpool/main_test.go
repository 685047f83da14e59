package bufpool

import (
	"fmt"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
)

// goleak checks that a Pool starts no goroutine.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mustPool returns a pool without automatic trimming: only the test calls trim.
func mustPool(t testing.TB, cfg Config) *Pool {
	t.Helper()
	p, err := newPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// classStats returns the entry of Stats for the class of size.
func classStats(t testing.TB, p *Pool, size int) ClassStats {
	t.Helper()
	for _, c := range p.Stats().Classes {
		if c.Size == size {
			return c
		}
	}
	t.Fatalf("no class %d", size)
	return ClassStats{}
}

// checkBalance checks the two equations of ClassStats.
func checkBalance(t testing.TB, s Stats) {
	t.Helper()
	if text := imbalance(s); text != "" {
		t.Error(text)
	}
}

// imbalance returns the equations of ClassStats that s does not satisfy, or "".
func imbalance(s Stats) (text string) {
	for _, c := range s.Classes {
		if c.Gets != c.Puts+c.Lost+uint64(c.InUse) {
			text += fmt.Sprintf("class %d: Gets is not Puts + Lost + InUse: %+v\n", c.Size, c)
		}
		if c.Misses != uint64(c.Retained)+uint64(c.InUse)+c.Discarded+c.Released+c.Lost {
			text += fmt.Sprintf("class %d: Misses is not Retained + InUse + Discarded + Released + Lost: %+v\n", c.Size, c)
		}
		if c.RetainedBytes != int64(c.Retained)*int64(c.Size) {
			text += fmt.Sprintf("class %d: RetainedBytes: %+v\n", c.Size, c)
		}
	}
	return text
}

// addrOf returns the address of buf. It is only compared.
func addrOf(buf []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(buf))) }

// checkLists checks that each free buffer is in its home list, and that no list exceeds its limit.
func checkLists(t testing.TB, p *Pool) {
	t.Helper()
	for _, c := range p.classes {
		for i := range c.lists {
			l := &c.lists[i]
			l.mu.Lock()
			n := len(l.items)
			if l.word.Load()&stateMask == free {
				n++
			}
			if n > int(l.limit) || int(l.minItems) > len(l.items) {
				t.Errorf("class %d, list %d: %d free buffers, limit %d, minItems %d", c.size, i, n, l.limit, l.minItems)
			}
			if state, n := l.word.Load()&stateMask, l.cached; (state == vacant) != (n == nil) || (state == vacant) != (l.mem.Load() == nil) {
				t.Errorf("class %d, list %d: cache in state %d, node %p", c.size, i, state, n)
			} else if n != nil && (n.home.Load() != l || n.free || c.nodes.find(n.addr) != n || n.addr != uintptr(unsafe.Pointer(l.mem.Load()))) {
				t.Errorf("class %d, list %d: the node of the cached buffer has another home, address or state", c.size, i)
			}
			for _, f := range l.items {
				if f.node.home.Load() != l || !f.node.free || c.nodes.find(f.node.addr) != f.node {
					t.Errorf("class %d, list %d: the node of a free buffer has another home, or is not free", c.size, i)
				}
			}
			l.mu.Unlock()
		}
	}
}

// refusedTotal returns the number of refused slices.
func refusedTotal(r Refusals) uint64 { return r.Oversize + r.NoClass + r.Foreign + r.Twice }
