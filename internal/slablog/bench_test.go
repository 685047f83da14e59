package slablog

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/slab"
)

func benchWrite(b *testing.B, o *slab.Options, size int) {
	w := mustNew(b, io.Discard, o)
	defer w.Close()
	p := make([]byte, size)
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		w.Write(p)
	}
}

// BenchmarkMutexCopy measures the lower bound of a write: a mutex and a copy into a buffer.
func BenchmarkMutexCopy(b *testing.B) {
	for _, size := range []int{200, 256} {
		b.Run(sizeName(size), func(b *testing.B) {
			var mu sync.Mutex
			buf := make([]byte, layout.DefaultSlabBytes)
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
		b.Run(sizeName(size)+"/1MiB", func(b *testing.B) { benchWrite(b, &slab.Options{SlabBytes: 1 << 20}, size) })
	}
}

// BenchmarkFile10 measures the benchmark row "10 goroutines, file", with fewer records.
func BenchmarkFile10(b *testing.B) {
	run := func(b *testing.B, w io.Writer, done func()) {
		p := make([]byte, 256)
		b.SetBytes(256)
		b.SetParallelism(5)
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				w.Write(p)
			}
		})
		done()
	}
	open := func(b *testing.B) *os.File {
		f, err := os.OpenFile(filepath.Join(b.TempDir(), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { f.Close() })
		return f
	}
	b.Run("bufio", func(b *testing.B) {
		bw := &lockedBufio{w: bufio.NewWriterSize(open(b), 256<<10)}
		run(b, bw, func() { bw.w.Flush() })
	})
	b.Run("slab", func(b *testing.B) {
		w := mustNew(b, open(b), &slab.Options{WhenFull: slab.Block()})
		run(b, w, func() { w.Close() })
	})
}

type lockedBufio struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func (l *lockedBufio) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
