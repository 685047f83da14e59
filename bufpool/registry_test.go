package bufpool

import (
	"testing"

	"pgregory.net/rapid"
)

// The registry against a map, with addresses few enough to collide.
func TestRegistryAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
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
					t.Skip("there is one")
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
			"": func(t *rapid.T) {
				for a := uintptr(16); a <= 1600; a += 16 {
					if got := r.find(a); got != model[a] {
						t.Fatalf("find(%d) = %p, want %p", a, got, model[a])
					}
				}
				n := 0
				r.each(func(*node) { n++ })
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

// Buffers that come and go do not make the table grow, nor be rebuilt each time.
func TestRegistryChurn(t *testing.T) {
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
