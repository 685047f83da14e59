package bufpool

import (
	"fmt"
	"testing"

	"github.com/forebay-log/forebay/bufpool"
)

// measure times r, after n operations that fill the pools.
func measure(b *testing.B, r run, warm int) {
	r(warm)
	b.ReportAllocs()
	b.ResetTimer()
	r(b.N)
}

// compare runs pattern p with every lender.
func compare(b *testing.B, p pattern) {
	for _, l := range lenders {
		b.Run(l.name, func(b *testing.B) { measure(b, l.mk(p), 100) })
	}
}

func BenchmarkSlabAllocator_BasicAllocation(b *testing.B) { compare(b, basic) }

func BenchmarkDirectAllocation(b *testing.B) { measure(b, direct(basic), 100) }

func BenchmarkSlabAllocator_SmallBuffers(b *testing.B) { compareBare(b, smalls) }

func BenchmarkSlabAllocator_LargeBuffers(b *testing.B) { compare(b, larges) }

func BenchmarkSlabAllocator_ExactSizeMatch(b *testing.B) { compare(b, exact) }

func BenchmarkSlabAllocator_InexactSizeMatch(b *testing.B) { compareBare(b, inexact) }

func BenchmarkSlabAllocator_OversizedAllocation(b *testing.B) { compare(b, oversize) }

func BenchmarkSlabAllocator_HighFrequency(b *testing.B) { compareBare(b, frequent) }

// compareBare is compare, beside the least a sync.Pool can cost.
func compareBare(b *testing.B, p pattern) {
	compare(b, p)
	b.Run(barePair, func(b *testing.B) { measure(b, bare(p), 100) })
	b.Run(bareClear, func(b *testing.B) { measure(b, bareAndClear(p), 100) })
}

func BenchmarkSlabAllocator_BatchReuse(b *testing.B) {
	b.Run(zeroing, func(b *testing.B) { measure(b, oursBatch(false), 1) })
	b.Run(noZero, func(b *testing.B) { measure(b, oursBatch(true), 1) })
	b.Run("sync.Pool", func(b *testing.B) { measure(b, syncPoolBatch(), 1) })
	b.Run("bytebufferpool", func(b *testing.B) { measure(b, byteBuffersBatch(), 1) })
	b.Run("make", func(b *testing.B) { measure(b, directBatch(), 1) })
}

func BenchmarkSlabAllocator_MixedSizes(b *testing.B) { compare(b, mixed) }

func BenchmarkSlabAllocator_FindSizeClass(b *testing.B) { lookups(b, spreadLookups) }

func BenchmarkSlabAllocator_FindSizeClassExact(b *testing.B) {
	lookups(b, exactLookups)
	b.Run("hash map", func(b *testing.B) { measure(b, mapLookup(bufpool.DefaultSizeClasses(), exactLookups), 0) })
}

func lookups(b *testing.B, sizes []int) {
	b.Run(zeroing, func(b *testing.B) { measure(b, classLookup(newPool(defaults, false), sizes), 0) })
	b.Run("linear search", func(b *testing.B) { measure(b, linearLookup(bufpool.DefaultSizeClasses(), sizes), 0) })
}

func BenchmarkSlabAllocator_DefaultConfig(b *testing.B) { compare(b, defaults) }

func BenchmarkSlabAllocator_GetStats(b *testing.B) { measure(b, stats(defaults), 1) }

func BenchmarkSlabAllocator_MemoryPressure(b *testing.B) {
	b.Run(zeroing, func(b *testing.B) { measure(b, oursPressure(false), 1) })
	b.Run(noZero, func(b *testing.B) { measure(b, oursPressure(true), 1) })
	b.Run("sync.Pool", func(b *testing.B) { measure(b, syncPoolPressure(), 1) })
	b.Run("bytebufferpool", func(b *testing.B) { measure(b, byteBuffersPressure(), 1) })
	b.Run("make", func(b *testing.B) { measure(b, directPressure(), 1) })
}

func BenchmarkComparison_SyncPool(b *testing.B) { measure(b, syncPool(basic), 100) }

// Parallel variants: all goroutines share one pool.
func BenchmarkParallel(b *testing.B) {
	for _, p := range []pattern{smalls, basic, inexact, frequent, mixed} {
		for _, l := range lenders {
			for _, g := range []int{1, 2, 10, 100} {
				b.Run(fmt.Sprintf("%s/%s/goroutines=%d", p.name, l.name, g), func(b *testing.B) {
					measure(b, parallel(g, l.mk(p)), 1000)
				})
			}
		}
	}
}

// What a buffer costs that is never put back.
func BenchmarkNeverPut(b *testing.B) {
	pool := newPool(smalls, false)
	b.ReportAllocs()
	for b.Loop() {
		pool.Get(64)
	}
}
