package allocs

import (
	"runtime"
	"sync"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit/race"
)

var kept any

func TestPerRunIgnoresUnrelatedAllocations(t *testing.T) {
	if n := PerRun(10, func() { kept = new([64]byte); kept = new([64]byte) }); n != 2 {
		t.Errorf("%v allocations of 2", n)
	}
	calls := 0
	if n := PerRun(10, func() {
		if calls++; calls == 5 { // simulates an unrelated allocation
			for range 100 {
				kept = new([64]byte)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations of a call that makes none", n)
	}
	pool := sync.Pool{New: func() any { return new([1 << 20]byte) }}
	if n := PerRun(100, func() {
		v := pool.Get()
		kept = v
		pool.Put(v)
	}); n != 0 && !race.Enabled {
		t.Errorf("%v allocations of a pool", n)
	}
	if n := PerRun(2, runtime.GC); n > 10 {
		t.Errorf("%v allocations of a collection", n)
	}
}
