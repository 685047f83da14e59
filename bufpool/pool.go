package bufpool

import (
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"
	"weak"
)

// A Pool provides byte slices in size classes. [New] returns a Pool; it must not be copied. All
// methods are safe for concurrent use.
//
// A Pool starts no goroutine and need not be closed: when it is dropped, the garbage collector frees
// it and the buffers it retains.
type Pool struct {
	sizes   sizeTable
	classes []*class
	noZero  bool
	debug   *faultLog // nil unless Config.Debug
	self    weak.Pointer[Pool]

	oversize atomic.Uint64
	refused  [numRefusals]atomic.Uint64
}

// New returns an empty pool. It returns an error if the size classes are empty, not positive or not
// ascending, or if the limit is negative.
func New(cfg Config) (*Pool, error) {
	p, err := newPool(cfg)
	if err != nil {
		return nil, err
	}
	trimAfterGC(p.self)
	return p, nil
}

// newPool is like New, but does not trim the pool after garbage collections. It is for tests that
// count buffers.
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
		lists = 1 // debug mode uses one list per class
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

// listsPerClass returns the maximum number of lists of a class, a power of two. It is at least four
// times procs, so that two running goroutines rarely use the same list. It is at most 64, so that
// searching all lists is fast.
func listsPerClass(procs int) int {
	n := 4
	for n < 4*procs && n < 64 {
		n *= 2
	}
	return n
}

// Get returns a buffer with length size and capacity class, where class is the smallest size class
// of at least size bytes. The whole capacity is zero, unless [Config.NoZero] is set. The caller
// owns the buffer until it passes it to [Pool.Put]. It may also drop the buffer, but see
// [ClassStats.Lost].
//
// If size is above the largest class, Get allocates exactly size bytes and returns 0 as class. Put
// does not accept such a buffer, and [Stats.Oversize] counts the call. Like make, Get panics if
// size or its class is too large to allocate. A negative size counts as 0.
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
	mem := home.get()
	if mem == nil {
		if mem = c.get(h); mem == nil {
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

// Class returns the capacity of the result of Get(size), or 0 if size is above the largest class.
func (p *Pool) Class(size int) int {
	if size > p.sizes.max {
		return 0
	}
	return p.sizes.sizes[p.sizes.index(max(size, 0))]
}

// Put returns a buffer from Get to the pool; its length does not matter. After the call the caller
// must not use the buffer, nor any slice of the same memory.
//
// Put accepts only whole buffers of this pool that are in use. Any other slice is left to the garbage
// collector and counted in [Stats.Refused]. In particular, Put never accepts a slice that append has
// moved, or that was resliced from the front, even if its capacity equals a class.
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
	if c.lists[c.hint()].put(mem) {
		return
	}
	n := c.nodes.find(uintptr(unsafe.Pointer(mem)))
	switch {
	case n == nil:
		p.refuse(refusedForeign, buf)
	case p.debug != nil:
		p.debugPut(c, mem, n)
	case !c.put(mem, n):
		p.refused[refusedTwice].Add(1)
	}
}

// refuse counts a slice that Put does not accept.
func (p *Pool) refuse(why refusal, buf []byte) {
	p.refused[why].Add(1)
	if p.debug != nil {
		p.debugRefused(buf)
	}
}

// Grow returns buf with room for n more bytes after its length. If buf lacks the room, Grow copies
// it to a buffer of a larger class and Puts buf, which must no longer be used. The new buffer has
// at least twice the capacity if there is such a class. A buffer grown by Grow belongs to the pool;
// a buffer that append has moved does not. buf may be nil. A negative n counts as 0.
func (p *Pool) Grow(buf []byte, n int) []byte {
	if n <= cap(buf)-len(buf) {
		return buf
	}
	need := len(buf) + n
	if need < 0 { // the sum overflows; Get panics for a size that large
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

// minAlloc is the minimum allocation of a buffer, in bytes. The runtime places several smaller
// objects without pointers in one block, and cannot report when only one of them is unreachable.
const minAlloc = 16

// newMemory allocates a buffer of class c, and registers it with home as its home list. t is nil
// except in debug mode.
func (c *class) newMemory(home *list, t *trace) []byte {
	buf := make([]byte, c.size, max(c.size, minAlloc))[:c.size:c.size]
	mem := unsafe.SliceData(buf)
	n := &node{addr: uintptr(unsafe.Pointer(mem)), trace: t}
	n.home.Store(home)
	c.nodes.add(n)
	runtime.SetFinalizer(mem, c.dropped)
	return buf
}
