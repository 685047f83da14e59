package bufpool

import (
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

// The registry behaves like a map, even if few addresses collide often.
func TestRegistryAgreesWithMap(t *testing.T) {
	checkRandom(t, func(t *rapid.T) {
		var r registry
		r.table.Store(newNodeTable(minTableBits))
		model := map[uintptr]*node{}
		var gone []*node
		addr := rapid.Custom(func(t *rapid.T) uintptr {
			return uintptr(16 * rapid.IntRange(1, 100).Draw(t, "addr"))
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := &node{addr: addr.Draw(t, "a")}
				if model[n.addr] != nil {
					return
				}
				r.add(n)
				model[n.addr] = n
			},
			"remove": func(t *rapid.T) {
				if n := model[addr.Draw(t, "a")]; n != nil {
					r.remove(n)
					delete(model, n.addr)
					gone = append(gone, n)
				}
			},
			"remove again": func(t *rapid.T) {
				if len(gone) > 0 {
					r.remove(gone[rapid.IntRange(0, len(gone)-1).Draw(t, "i")])
				}
			},
			"shrink": func(t *rapid.T) {
				r.shrink()
				if slots := len(r.table.Load().slots); slots > max(1<<minTableBits, 16*(r.live+1)) {
					t.Fatalf("%d slots for %d nodes", slots, r.live)
				}
			},
			"": func(t *rapid.T) {
				for a := uintptr(16); a <= 1600; a += 16 {
					if got := r.find(a); got != model[a] {
						t.Fatalf("find(%d) = %p, want %p", a, got, model[a])
					}
				}
				n := 0
				r.forEach(func(*node) { n++ })
				if n != len(model) || r.live != n {
					t.Fatalf("each visits %d, live is %d, want %d", n, r.live, len(model))
				}
				slots := len(r.table.Load().slots)
				if 2*r.used > slots || slots > max(1<<minTableBits, 8*(r.used+1)) {
					t.Fatalf("%d slots for %d nodes and tombstones", slots, r.used)
				}
			},
		})
	})
}

// Short-lived buffers do not make the table grow and rarely cause a rebuild.
func TestRegistryDoesNotGrowWithChurn(t *testing.T) {
	var r registry
	r.table.Store(newNodeTable(minTableBits))
	tables := map[*nodeTable]bool{}
	const n = 1000
	for i := range n {
		x := &node{addr: uintptr(i+1) * 64}
		r.add(x)
		r.remove(x)
		tables[r.table.Load()] = true
	}
	if slots := len(r.table.Load().slots); slots != 1<<minTableBits || len(tables) > n/4 {
		t.Errorf("%d slots, %d rebuilds", slots, len(tables)-1)
	}
}

// A table that is much too large is rebuilt with a quarter of its slots used. Small changes do not
// rebuild it again.
func TestRegistryShrinks(t *testing.T) {
	var r registry
	r.table.Store(newNodeTable(minTableBits))
	nodes := make([]*node, 4000)
	for i := range nodes {
		nodes[i] = &node{addr: uintptr(i+1) * 64}
		r.add(nodes[i])
	}
	for _, tt := range []struct{ live, slots int }{{4000, 16384}, {1100, 16384}, {1000, 4096}, {900, 4096}, {100, 512}, {0, 16}} {
		for len(nodes) > tt.live {
			r.remove(nodes[len(nodes)-1])
			nodes = nodes[:len(nodes)-1]
		}
		r.shrink()
		table := r.table.Load()
		if len(table.slots) != tt.slots {
			t.Errorf("%d slots for %d nodes, want %d", len(table.slots), tt.live, tt.slots)
		}
		for _, n := range nodes {
			if r.find(n.addr) != n {
				t.Fatalf("of %d nodes one is missing", tt.live)
			}
		}
		if r.shrink(); r.table.Load() != table {
			t.Errorf("%d nodes: the table was rebuilt twice", tt.live)
		}
	}
}

// After a burst the pool also releases the memory of its registry.
func TestRegistryShrinksAfterBurst(t *testing.T) {
	p, err := New(Config{SizeClasses: []int{16}})
	if err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	runtime.GC()
	runtime.GC()
	before := heap()
	fill(p, 16, 100_000)
	table := func() int { return len(p.classes[0].nodes.table.Load().slots) }
	if table() < 100_000 {
		t.Fatalf("%d slots for 100 000 buffers", table())
	}
	const slack = 1 << 20 // the table alone takes 4 MiB, the nodes 6
	collectUntil(t, "memory given back", func() bool {
		return table() == 1<<minTableBits && heap() < before+slack
	})
	awaitBalance(t, p)
}
