package bufpool

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/valyala/bytebufferpool"

	"github.com/forebay-log/forebay/bufpool"
)

// A run does n operations of a pattern. Each way to get buffers has its own
// loop, so that none pays for an indirect call. An operation gets a buffer,
// writes its first and last byte, and gives it back.
type run func(n int)

// lenders are the ways to get a buffer, ours first.
var lenders = []struct {
	name string
	note string
	ours bool
	mk   func(pattern) run
}{
	{"bufpool", "clears the whole class", true, func(p pattern) run { return ours(p, false) }},
	{"bufpool NoZero", "", true, func(p pattern) run { return ours(p, true) }},
	{"sync.Pool", "of *[]byte, one pool, reallocates what is too small, clears nothing", false, syncPool},
	{"bytebufferpool", "Get, reallocate what is too small, clears nothing", false, byteBuffers},
	{"make", "", false, direct},
}

func newPool(p pattern, noZero bool) *bufpool.Pool {
	pool, err := bufpool.New(bufpool.Config{SizeClasses: p.classes, NoZero: noZero})
	if err != nil {
		panic(fmt.Sprintf("pattern %s: %v", p.name, err))
	}
	return pool
}

func touch(buf []byte) {
	buf[0] = 1
	buf[len(buf)-1] = 1
}

func ours(p pattern, noZero bool) run {
	return oursFrom(newPool(p, noZero), p)
}

func oursFrom(pool *bufpool.Pool, p pattern) run {
	sizes, mask := p.sizes, len(p.sizes)-1
	return func(n int) {
		for i := range n {
			buf, _ := pool.Get(sizes[i&mask])
			touch(buf)
			pool.Put(buf)
		}
	}
}

func syncPool(p pattern) run {
	sizes, mask := p.sizes, len(p.sizes)-1
	pool := sync.Pool{New: func() any { return new([]byte) }}
	return func(n int) {
		for i := range n {
			b := pool.Get().(*[]byte)
			size := sizes[i&mask]
			if cap(*b) < size {
				*b = make([]byte, size)
			}
			*b = (*b)[:size]
			touch(*b)
			pool.Put(b)
		}
	}
}

func byteBuffers(p pattern) run {
	sizes, mask := p.sizes, len(p.sizes)-1
	pool := new(bytebufferpool.Pool)
	return func(n int) {
		for i := range n {
			b := pool.Get()
			size := sizes[i&mask]
			if cap(b.B) < size {
				b.B = make([]byte, size)
			}
			b.B = b.B[:size]
			touch(b.B)
			pool.Put(b)
		}
	}
}

func direct(p pattern) run {
	sizes, mask := p.sizes, len(p.sizes)-1
	return func(n int) {
		var buf []byte
		for i := range n {
			buf = make([]byte, sizes[i&mask])
			touch(buf)
		}
		if kept.on {
			kept.buf = buf
		}
	}
}

// kept is never on, but for all the compiler knows it might be: so direct makes its
// buffers on the heap. Since Go 1.25 those of 32 B or less could otherwise be on
// the stack, as no buffer can that somebody lends.
var kept struct {
	on  bool
	buf []byte
}

type thing struct{ _ [64]byte }

func things() *sync.Pool { return &sync.Pool{New: func() any { return new(thing) }} }

// bare is what no pool of buffers can beat on sync.Pool: one pointer, Get and
// Put.
func bare(pattern) run {
	pool := things()
	return func(n int) {
		for range n {
			pool.Put(pool.Get().(*thing))
		}
	}
}

// bareAndClear is bare, and clears as many bytes as the class has.
func bareAndClear(p pattern) run {
	pool := newPool(p, false)
	var bufs [][]byte
	for _, size := range p.sizes {
		bufs = append(bufs, make([]byte, pool.Class(size)))
	}
	mask := len(bufs) - 1
	pointers := things()
	return func(n int) {
		for i := range n {
			t := pointers.Get().(*thing)
			clear(bufs[i&mask])
			pointers.Put(t)
		}
	}
}

// batchSize is how many buffers are out at once in the batch patterns.
const batchSize = 100

// oursBatch gets 100 buffers, 1 and 4 KiB in turn, uses them and gives all back.
func oursBatch(noZero bool) run {
	pool := newPool(basic, noZero)
	bufs := make([][]byte, batchSize)
	return func(n int) {
		for range n {
			for i := range bufs {
				bufs[i], _ = pool.Get(batchItem(i))
				touch(bufs[i])
			}
			for _, buf := range bufs {
				pool.Put(buf)
			}
		}
	}
}

func batchItem(i int) int { return (1 + 3*(i&1)) * kib }

func syncPoolBatch() run {
	pool := sync.Pool{New: func() any { return new([]byte) }}
	bufs := make([]*[]byte, batchSize)
	return func(n int) {
		for range n {
			for i := range bufs {
				b := pool.Get().(*[]byte)
				if cap(*b) < batchItem(i) {
					*b = make([]byte, batchItem(i))
				}
				*b = (*b)[:batchItem(i)]
				touch(*b)
				bufs[i] = b
			}
			for _, b := range bufs {
				pool.Put(b)
			}
		}
	}
}

func byteBuffersBatch() run {
	pool := new(bytebufferpool.Pool)
	bufs := make([]*bytebufferpool.ByteBuffer, batchSize)
	return func(n int) {
		for range n {
			for i := range bufs {
				b := pool.Get()
				if cap(b.B) < batchItem(i) {
					b.B = make([]byte, batchItem(i))
				}
				b.B = b.B[:batchItem(i)]
				touch(b.B)
				bufs[i] = b
			}
			for _, b := range bufs {
				pool.Put(b)
			}
		}
	}
}

func directBatch() run {
	bufs := make([][]byte, batchSize)
	return func(n int) {
		for range n {
			for i := range bufs {
				bufs[i] = make([]byte, batchItem(i))
				touch(bufs[i])
			}
			clear(bufs)
		}
	}
}

// Under pressure 50 buffers are out, half come back, the collector runs every
// 100 operations, then the other half comes back.
const (
	pressureBuffers = 50
	pressureGC      = 100
)

func oursPressure(noZero bool) run {
	pool := newPool(basic, noZero)
	bufs := make([][]byte, pressureBuffers)
	return func(n int) {
		for k := range n {
			for i := range bufs {
				bufs[i], _ = pool.Get(medium[i&3])
				touch(bufs[i])
			}
			for _, buf := range bufs[:pressureBuffers/2] {
				pool.Put(buf)
			}
			if k%pressureGC == 0 {
				runtime.GC()
			}
			for _, buf := range bufs[pressureBuffers/2:] {
				pool.Put(buf)
			}
		}
	}
}

func syncPoolPressure() run {
	pool := sync.Pool{New: func() any { return new([]byte) }}
	bufs := make([]*[]byte, pressureBuffers)
	return func(n int) {
		for k := range n {
			for i := range bufs {
				b := pool.Get().(*[]byte)
				if size := medium[i&3]; cap(*b) < size {
					*b = make([]byte, size)
				}
				*b = (*b)[:medium[i&3]]
				touch(*b)
				bufs[i] = b
			}
			for _, b := range bufs[:pressureBuffers/2] {
				pool.Put(b)
			}
			if k%pressureGC == 0 {
				runtime.GC()
			}
			for _, b := range bufs[pressureBuffers/2:] {
				pool.Put(b)
			}
		}
	}
}

func byteBuffersPressure() run {
	pool := new(bytebufferpool.Pool)
	bufs := make([]*bytebufferpool.ByteBuffer, pressureBuffers)
	return func(n int) {
		for k := range n {
			for i := range bufs {
				b := pool.Get()
				if size := medium[i&3]; cap(b.B) < size {
					b.B = make([]byte, size)
				}
				b.B = b.B[:medium[i&3]]
				touch(b.B)
				bufs[i] = b
			}
			for _, b := range bufs[:pressureBuffers/2] {
				pool.Put(b)
			}
			if k%pressureGC == 0 {
				runtime.GC()
			}
			for _, b := range bufs[pressureBuffers/2:] {
				pool.Put(b)
			}
		}
	}
}

func directPressure() run {
	bufs := make([][]byte, pressureBuffers)
	return func(n int) {
		for k := range n {
			for i := range bufs {
				bufs[i] = make([]byte, medium[i&3])
				touch(bufs[i])
			}
			clear(bufs[:pressureBuffers/2])
			if k%pressureGC == 0 {
				runtime.GC()
			}
			clear(bufs[pressureBuffers/2:])
		}
	}
}

// parallel has goroutines do the operations of r together.
func parallel(goroutines int, r run) run {
	return func(n int) {
		var wg sync.WaitGroup
		for g := range goroutines {
			share := n / goroutines
			if g < n%goroutines {
				share++
			}
			wg.Go(func() { r(share) })
		}
		wg.Wait()
	}
}
