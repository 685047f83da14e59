package bufpool

import (
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"
	"weak"
)

// A Pool hands out byte slices in size classes and takes them back. Make one
// with [New]; it must not be copied. All methods are safe for concurrent use.
//
// A Pool starts no goroutine and needs no Close: drop it, and the garbage
// collector frees it and the buffers it retains.
type Pool struct {
	sizes   sizeTable
	classes []*class
	noZero  bool
	debug   *faultLog // nil unless Config.Debug
	self    weak.Pointer[Pool]

	oversize atomic.Uint64
	refused  [numRefusals]atomic.Uint64
}

// New returns an empty pool. It is an error if there are no size classes, if they are not
// positive and ascending, or if the ceiling is negative.
func New(cfg Config) (*Pool, error) {
	p, err := newPool(cfg)
	if err != nil {
		return nil, err
	}
	trimAfterGC(p.self)
	return p, nil
}

// newPool is New, but nothing trims the pool: for tests that count.
func newPool(cfg Config) (*Pool, error) {
	if cfg.SizeClasses == nil {
		cfg.SizeClasses = DefaultSizeClasses()
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Pool{sizes: newSizeTable(cfg.SizeClasses), noZero: cfg.NoZero}
	lists := listsPerClass(runtime.GOMAXPROCS(0))
	if cfg.Debug {
		p.debug = new(faultLog)
		lists = 1 // debug mode knows of no others
	}
	for _, size := range cfg.SizeClasses {
		p.classes = append(p.classes, newClass(size, cfg.limit(size), lists))
	}
	p.self = weak.Make(p)
	for i, c := range p.classes {
		c.dropped = whenDropped(p.self, i)
	}
	return p, nil
}

// listsPerClass returns a power of two: at least four lists for each of procs, so that two
// running goroutines seldom share one, but at most 64, so that a search of all is short.
func listsPerClass(procs int) int {
	n := 4
	for n < 4*procs && n < 64 {
		n *= 2
	}
	return n
}

// Get returns a buffer of len size and cap class, where class is the smallest
// size class that holds size. All of its capacity is zero, unless [Config.NoZero] is set.
// The caller owns the buffer until it hands it to [Pool.Put]. It may also drop the buffer,
// but see [ClassStats.Lost].
//
// A size above the largest class gives a plain allocation of just that size, which no pool
// keeps: class is 0 and [Stats.Oversize] counts it. Like make, Get panics if no memory
// could ever hold size, or its class. A negative size counts as 0.
func (p *Pool) Get(size int) (buf []byte, class int) {
	if uint(size) > uint(p.sizes.max) {
		if size >= 0 {
			p.oversize.Add(1)
			return make([]byte, size), 0
		}
		size = 0
	}
	c := p.classes[p.sizes.index(size)]
	if p.debug != nil {
		return p.debugGet(c)[:size], c.size
	}
	h := c.hint()
	home := &c.lists[h]
	mem := home.take()
	if mem == nil {
		if mem = c.take(h); mem == nil {
			c.misses.Add(1)
			return c.newMemory(home, nil)[:size], c.size
		}
	}
	buf = unsafe.Slice(mem, c.size)
	if !p.noZero {
		clear(buf)
	}
	return buf[:size], c.size
}

// Class returns the capacity Get(size) would give, or 0 if size is above the
// largest class.
func (p *Pool) Class(size int) int {
	if size > p.sizes.max {
		return 0
	}
	return p.sizes.sizes[p.sizes.index(max(size, 0))]
}

// Put takes back a buffer from Get; its length does not matter. The caller must
// not use it afterwards, nor any slice of the same memory.
//
// Put takes only whole buffers of this pool that are in use. It leaves any other slice to
// the garbage collector and counts it in [Stats.Refused]. In particular it never takes a
// slice that append has moved elsewhere, or that was resliced from the front, even if its
// capacity happens to be a class.
func (p *Pool) Put(buf []byte) {
	size := cap(buf)
	if size > p.sizes.max {
		p.refused[refusedOversize].Add(1)
		return
	}
	c := p.classes[p.sizes.index(size)]
	if c.size != size {
		p.refuse(refusedNoClass, buf)
		return
	}
	mem := unsafe.SliceData(buf)
	if c.lists[c.hint()].give(mem) {
		return
	}
	n := c.nodes.find(uintptr(unsafe.Pointer(mem)))
	switch {
	case n == nil:
		p.refuse(refusedForeign, buf)
	case p.debug != nil:
		p.debugPut(c, mem, n)
	case !c.give(mem, n):
		p.refused[refusedTwice].Add(1)
	}
}

// refuse counts a slice Put does not take.
func (p *Pool) refuse(why refusal, buf []byte) {
	p.refused[why].Add(1)
	if p.debug != nil {
		p.debugRefused(buf)
	}
}

// Grow returns buf with room for n more bytes behind its length. If buf lacks the room,
// Grow copies it to a buffer of a larger class, of twice the capacity or more if there is
// such a class, and Puts buf, which must no longer be used. A buffer that grows by Grow
// stays the pool's; one that grows by append does not. buf may be nil. A negative n counts
// as 0.
func (p *Pool) Grow(buf []byte, n int) []byte {
	if n <= cap(buf)-len(buf) {
		return buf
	}
	need := len(buf) + n
	if need < 0 { // overflow: more than Get can give, and it says so
		need = math.MaxInt
	}
	want := 2 * cap(buf)
	if need <= p.sizes.max {
		want = min(want, p.sizes.max)
	}
	bigger, _ := p.Get(max(need, want))
	bigger = bigger[:copy(bigger, buf)]
	if cap(buf) > 0 {
		p.Put(buf)
	}
	return bigger
}

// minAlloc is the least number of bytes that a buffer takes. The runtime packs smaller
// objects without pointers together, and cannot tell when one of them is collected.
const minAlloc = 16

// newMemory makes a buffer of class c for its list home.
func (c *class) newMemory(home *list, t *trace) []byte {
	buf := make([]byte, c.size, max(c.size, minAlloc))[:c.size:c.size]
	mem := unsafe.SliceData(buf)
	n := &node{addr: uintptr(unsafe.Pointer(mem)), trace: t}
	n.home.Store(home)
	c.nodes.add(n)
	runtime.SetFinalizer(mem, c.dropped)
	return buf
}
