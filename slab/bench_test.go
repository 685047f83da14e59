package slab

import (
	"io"
	"sync"
	"testing"
)

func benchWrite(b *testing.B, o *Options, size int) {
	w := mustNew(b, io.Discard, o)
	defer w.Close()
	p := make([]byte, size)
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		w.Write(p)
	}
}

// The floor: what a mutex and a copy into a buffer cost.
func BenchmarkMutexCopy(b *testing.B) {
	for _, size := range []int{200, 256} {
		b.Run(sizeName(size), func(b *testing.B) {
			var mu sync.Mutex
			buf := make([]byte, DefaultSlabBytes)
			p := make([]byte, size)
			off := 0
			b.SetBytes(int64(size))
			for b.Loop() {
				mu.Lock()
				if off+len(p) > len(buf) {
					off = 0
				}
				off += copy(buf[off:], p)
				mu.Unlock()
			}
		})
	}
}

func sizeName(n int) string { return map[int]string{200: "200B", 256: "256B"}[n] }

func BenchmarkWriteDiscard(b *testing.B) {
	for _, size := range []int{200, 256} {
		b.Run(sizeName(size), func(b *testing.B) { benchWrite(b, nil, size) })
		b.Run(sizeName(size)+"/1MiB", func(b *testing.B) { benchWrite(b, &Options{SlabBytes: 1 << 20}, size) })
	}
}
