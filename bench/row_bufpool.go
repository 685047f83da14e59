package main

import (
	"sync"

	h "github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/rivals"
	"github.com/forebay-log/forebay/bufpool"
)

const kib = 1 << 10

// A sizePattern is a sequence of buffer sizes that are requested repeatedly. Its length is a power
// of two.
type sizePattern struct {
	name, what string
	classes    []int // size classes of the pool; nil selects the default classes
	sizes      []int
}

// touch writes to the first and the last byte of a buffer.
func touch(buf []byte) {
	buf[0] = 1
	buf[len(buf)-1] = 1
}

// Each of the following functions returns a loop of Get and Put calls. They do not share a loop,
// because a call of a function value would cost as much as a Get.

func ourPool(noZero bool) func(sizePattern) rivals.Run {
	return func(p sizePattern) rivals.Run {
		pool, err := bufpool.New(bufpool.Config{SizeClasses: p.classes, NoZero: noZero})
		if err != nil {
			panic(err) // the harness reports the panic
		}
		mask := len(p.sizes) - 1
		return func(_, n int) {
			for i := range n {
				buf, _ := pool.Get(p.sizes[i&mask])
				touch(buf)
				pool.Put(buf)
			}
		}
	}
}

func syncPool(p sizePattern) rivals.Run {
	pool, mask := sync.Pool{New: func() any { return new([]byte) }}, len(p.sizes)-1
	return func(_, n int) {
		for i := range n {
			b, size := pool.Get().(*[]byte), p.sizes[i&mask]
			if cap(*b) < size {
				*b = make([]byte, size)
			}
			*b = (*b)[:size]
			touch(*b)
			pool.Put(b)
		}
	}
}

// makeOnly allocates on the heap, because the sizes are variable and above 32 bytes.
func makeOnly(p sizePattern) rivals.Run {
	mask := len(p.sizes) - 1
	return func(_, n int) {
		for i := range n {
			touch(make([]byte, p.sizes[i&mask]))
		}
	}
}

// barePool is the lower bound for a pool of buffers that uses sync.Pool. It gets and puts only a
// pointer.
func barePool(sizePattern) rivals.Run {
	pool := sync.Pool{New: func() any { return new([64]byte) }}
	return func(_, n int) {
		for range n {
			pool.Put(pool.Get().(*[64]byte))
		}
	}
}

func init() {
	const (
		zeroing, noZero = "bufpool", "bufpool NoZero"
		barePair        = "bare sync.Pool"
		perBare         = 2.2
	)
	contender := func(name string, kind h.Kind, note string, p sizePattern, mk func(sizePattern) rivals.Run) h.Contender {
		return h.Contender{Name: name, Kind: kind, Note: note, New: func(*h.Env) (*h.Subject, error) { return &h.Subject{Run: mk(p)}, nil }}
	}
	small, medium := []int{64, 128, 256, 512}, []int{kib, 4 * kib, 16 * kib, 64 * kib}
	versus := func(ref string, zeroingFactor, noZeroFactor float64) []h.Target {
		return []h.Target{h.Versus(zeroing, ref, zeroingFactor), h.Versus(noZero, ref, noZeroFactor)}
	}
	noAllocs := []h.Target{h.ZeroAllocs(zeroing), h.ZeroAllocs(noZero)}
	for _, r := range []struct {
		sizePattern
		targets []h.Target
	}{
		{sizePattern{"basic", "1, 4, 16 and 64 KiB in turn, each a class", medium, medium}, append(versus("make", 1./8, 1./50), noAllocs...)},
		{sizePattern{"small", "64, 128, 256 and 512 B in turn, each a class", small, small}, append(versus(barePair, perBare, perBare), noAllocs...)},
		{sizePattern{"oversize", "128, 256, 512 KiB and 1 MiB, classes up to 64 KiB", medium, []int{128 * kib, 256 * kib, 512 * kib, 1024 * kib}},
			versus("make", 1.1, 1.1)},
		{sizePattern{"frequent", "1 KiB repeatedly", medium, []int{kib}}, append(versus(barePair, perBare, perBare), noAllocs...)},
	} {
		p := r.sizePattern
		h.Register(h.Row{Name: "bufpool/" + p.name, What: p.what, Reference: barePair, Warm: 1000, Targets: r.targets,
			Contenders: []h.Contender{
				contender(zeroing, h.Ours, "clears the whole class", p, ourPool(false)),
				contender(noZero, h.Ours, "", p, ourPool(true)),
				contender("sync.Pool", h.Rival, "of *[]byte, one pool, reallocates buffers that are too small, clears nothing", p, syncPool),
				contender("make", h.Rival, "", p, makeOnly),
				contender(barePair, h.Reference, "of a pointer", p, barePool),
			}})
	}
}
