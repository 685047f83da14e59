package bufpool

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/forebay-log/forebay/internal/testkit/allocs"
)

func TestGetPutReuses(t *testing.T) {
	p := mustPool(t, Config{})
	a, class := p.Get(100)
	if len(a) != 100 || cap(a) != 128 || class != 128 {
		t.Fatalf("Get(100): len %d, cap %d, class %d", len(a), cap(a), class)
	}
	p.Put(a[:3])
	b, _ := p.Get(65)
	if &a[0] != &b[0] {
		t.Error("the free buffer was not reused")
	}
	want := ClassStats{Size: 128, Gets: 2, Puts: 1, Misses: 1, InUse: 1}
	if got := classStats(t, p, 128); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}

// If one goroutine gets a buffer and another puts it, the next Get of the first goroutine returns
// that buffer.
func TestBufferPutByOtherGoroutineIsReused(t *testing.T) {
	p := mustPool(t, Config{})
	for range 100 {
		buf, _ := p.Get(1000)
		done := make(chan struct{})
		go func() {
			p.Put(buf)
			close(done)
		}()
		<-done
	}
	if c := classStats(t, p, 1024); c.Misses != 1 {
		t.Errorf("%d misses, want 1", c.Misses)
	}
}

// Get finds a free buffer in any list, from any goroutine.
func TestGetSearchesAllLists(t *testing.T) {
	p := mustPool(t, Config{})
	buf, _ := p.Get(64)
	p.Put(buf)
	for range 50 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			b, _ := p.Get(64)
			p.Put(b)
		}()
		<-done
	}
	if c := classStats(t, p, 64); c.Misses != 1 {
		t.Errorf("%d misses, want 1", c.Misses)
	}
}

func TestWholeClassIsZeroed(t *testing.T) {
	p := mustPool(t, Config{})
	for _, c := range DefaultSizeClasses() {
		buf, _ := p.Get(c)
		whole := buf[:cap(buf)]
		for i := range whole {
			whole[i] = 0xFF
		}
		p.Put(buf)
		again, _ := p.Get(c/2 + 1)
		if &again[0] != &buf[0] {
			t.Fatalf("class %d: the buffer was not reused", c)
		}
		if !bytes.Equal(again[:cap(again)], make([]byte, c)) {
			t.Errorf("class %d: the buffer contains data of its previous owner", c)
		}
	}
}

func TestNoZeroLeavesContent(t *testing.T) {
	p := mustPool(t, Config{NoZero: true})
	buf, _ := p.Get(10)
	copy(buf, "0123456789")
	p.Put(buf)
	if again, _ := p.Get(10); string(again) != "0123456789" {
		t.Errorf("content %q", again)
	}
}

func TestOversizeIsAllocatedAndRefused(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64}})
	buf, class := p.Get(65)
	if len(buf) != 65 || class != 0 {
		t.Fatalf("len %d, class %d", len(buf), class)
	}
	p.Put(buf)
	s := p.Stats()
	if s.Oversize != 1 || s.Refused != (Refusals{Oversize: 1}) || s.Classes[0].Gets != 0 {
		t.Errorf("stats %+v", s)
	}
	if s.Coverage != 0 {
		t.Errorf("coverage %v", s.Coverage)
	}
	for range 3 {
		p.Get(1)
	}
	if c := p.Stats().Coverage; c != 0.75 {
		t.Errorf("coverage %v, want 0.75", c)
	}
	if mustPool(t, Config{}).Stats().Coverage != 1 {
		t.Error("coverage of nothing is not 1")
	}
}

func TestSizeNoMemoryCouldHoldPanicsLikeMake(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("32 bits: it might hold it")
	}
	p := mustPool(t, Config{})
	for name, f := range map[string]func(){
		"Get":  func() { p.Get(math.MaxInt) },
		"Grow": func() { p.Grow(make([]byte, 1), math.MaxInt) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s returned", name)
				}
			}()
			f()
		}()
	}
}

func TestSmallAndNegativeSizes(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{1, 2}})
	for _, size := range []int{0, -1, math.MinInt} {
		if buf, class := p.Get(size); len(buf) != 0 || cap(buf) != 1 || class != 1 {
			t.Errorf("Get(%d): len %d, cap %d, class %d", size, len(buf), cap(buf), class)
		}
	}
	buf, _ := p.Get(1)
	p.Put(buf[:0])
	if again, _ := p.Get(0); &again[:1][0] != &buf[0] {
		t.Error("Put refused an empty slice of a buffer")
	}
}

func TestPutRefuses(t *testing.T) {
	other := mustPool(t, Config{})
	for _, tt := range []struct {
		name string
		part func(buf []byte) []byte // returns a part of a 2048 B buffer, or another slice
		want Refusals
	}{
		{"nil", func([]byte) []byte { return nil }, Refusals{NoClass: 1}},
		{"resliced from the front", func(b []byte) []byte { return b[1:] }, Refusals{NoClass: 1}},
		{"resliced from the front to another class", func(b []byte) []byte { return b[1024:] }, Refusals{Foreign: 1}},
		{"resliced from the front to the smallest class", func(b []byte) []byte { return b[2046:] }, Refusals{Foreign: 1}},
		{"resliced from the front to nothing", func(b []byte) []byte { return b[2048:] }, Refusals{NoClass: 1}},
		{"capacity cut", func(b []byte) []byte { return b[:10:1000] }, Refusals{NoClass: 1}},
		{"capacity cut to another class", func(b []byte) []byte { return b[:10:1024] }, Refusals{Foreign: 1}},
		{"foreign", func([]byte) []byte { return make([]byte, 1000) }, Refusals{NoClass: 1}},
		{"foreign of a class", func([]byte) []byte { return make([]byte, 1024) }, Refusals{Foreign: 1}},
		{"of another pool", func([]byte) []byte { b, _ := other.Get(2048); return b }, Refusals{Foreign: 1}},
		{"moved by append", func(b []byte) []byte { return append(b, 0) }, Refusals{NoClass: 1}},
		{"larger than every class", func([]byte) []byte { return make([]byte, 2<<20) }, Refusals{Oversize: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mustPool(t, Config{})
			buf, _ := p.Get(2048)
			p.Put(tt.part(buf))
			s := p.Stats()
			if s.Refused != tt.want || refusedTotal(s.Refused) != 1 {
				t.Errorf("refused %+v, want %+v", s.Refused, tt.want)
			}
			for _, c := range s.Classes {
				if c.Retained != 0 || c.Puts != 0 {
					t.Errorf("the slice was stored in the pool: %+v", c)
				}
			}
			checkBalance(t, s)
			// The whole buffer is still accepted.
			p.Put(buf)
			if c := classStats(t, p, 2048); c.Retained != 1 || c.InUse != 0 {
				t.Errorf("afterwards: %+v", c)
			}
		})
	}
}

// A second Put of a free buffer is refused, so the buffer never has two owners.
func TestSecondPutIsRefused(t *testing.T) {
	p := mustPool(t, Config{})
	buf, _ := p.Get(64)
	p.Put(buf)
	p.Put(buf)
	a, _ := p.Get(64)
	b, _ := p.Get(64)
	if &a[0] == &b[0] {
		t.Fatal("one buffer has two owners")
	}
	s := p.Stats()
	if s.Refused != (Refusals{Twice: 1}) {
		t.Errorf("refused %+v", s.Refused)
	}
	checkBalance(t, s)
}

func TestClassRetainsAtMostLimit(t *testing.T) {
	for _, tt := range []struct{ ceiling, size, keep int }{
		{10 << 10, 1 << 10, 10},
		{100 << 10, 64, 1600},
		{4 << 10, 4 << 10, 1},
		{4<<10 - 1, 4 << 10, 0},
		{0, 1 << 20, 4},
	} {
		t.Run(fmt.Sprintf("%d of %d", tt.size, tt.ceiling), func(t *testing.T) {
			p := mustPool(t, Config{SizeClasses: []int{64, 1 << 10, 4 << 10, 1 << 20}, MaxRetainedBytes: tt.ceiling})
			const over = 7
			var bufs [][]byte
			for range tt.keep + over {
				buf, _ := p.Get(tt.size)
				bufs = append(bufs, buf)
			}
			for _, buf := range bufs {
				p.Put(buf)
				ceiling := int64(tt.ceiling)
				if ceiling == 0 {
					ceiling = defaultMaxRetainedBytes
				}
				if c := classStats(t, p, tt.size); c.RetainedBytes > ceiling {
					t.Fatalf("retains %d bytes, ceiling %d", c.RetainedBytes, ceiling)
				}
			}
			c := classStats(t, p, tt.size)
			if c.Retained != tt.keep || c.Discarded != over {
				t.Errorf("retained %d, discarded %d; want %d, %d", c.Retained, c.Discarded, tt.keep, over)
			}
			checkBalance(t, p.Stats())
			checkLists(t, p)
			// A second Put is refused. It counts as Twice if the buffer is retained, and as Foreign
			// if the buffer was discarded.
			for _, buf := range bufs {
				p.Put(buf)
			}
			r := p.Stats().Refused
			if r.Twice != uint64(tt.keep) || r.Foreign != over {
				t.Errorf("second Puts: %+v", r)
			}
		})
	}
}

func TestGrowReturnsPoolBuffer(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{16, 64, 1000}})
	buf, _ := p.Get(10)
	copy(buf, "0123456789")
	same := p.Grow(buf, 6)
	if &same[0] != &buf[0] || len(same) != 10 {
		t.Fatal("Grow moved the buffer although it had room")
	}
	if same = p.Grow(buf, -1); &same[0] != &buf[0] {
		t.Fatal("Grow with a negative n moved the buffer")
	}
	big := p.Grow(buf, 7)
	if string(big) != "0123456789" || cap(big) != 64 {
		t.Fatalf("grown to %q, capacity %d", big, cap(big))
	}
	if rest := big[10:cap(big)]; !bytes.Equal(rest, make([]byte, 54)) {
		t.Error("the room is not zero")
	}
	if c := classStats(t, p, 16); c.InUse != 0 || c.Retained != 1 {
		t.Errorf("the old buffer was not put: %+v", c)
	}
	// The new capacity is at least twice the old one or, if no class is that large, the capacity of
	// the largest class.
	if big = p.Grow(big[:64], 1); cap(big) != 1000 {
		t.Errorf("capacity %d, want 1000", cap(big))
	}
	// Above the largest class, the capacity still doubles. Such a buffer does not belong to the
	// pool.
	if big = p.Grow(big[:1000], 1); cap(big) < 2000 || len(big) != 1000 {
		t.Errorf("len %d, capacity %d, want 1000 and 2000 or more", len(big), cap(big))
	}
	p.Put(big)
	if buf = p.Grow(nil, 20); len(buf) != 0 || cap(buf) != 64 {
		t.Errorf("from nil: len %d, capacity %d", len(buf), cap(buf))
	}
	s := p.Stats()
	if s.Refused != (Refusals{Oversize: 1}) || s.Oversize != 1 {
		t.Errorf("stats %+v", s)
	}
	checkBalance(t, s)
}

// In steady state Get, Put and Stats do not allocate, for any class and size.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, cfg := range []Config{{}, {NoZero: true}, {SizeClasses: []int{3, 5, 100, 101, 102, 5000}}} {
		p, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Stats().Classes {
			for _, size := range []int{c.Size, c.Size/2 + 1} {
				if n := allocs.PerRun(100, func() {
					buf, _ := p.Get(size)
					p.Put(buf)
				}); n != 0 {
					t.Errorf("class %d: %v allocations per Get and Put of %d", c.Size, n, size)
				}
			}
		}
		var batch [100][]byte
		if n := allocs.PerRun(20, func() {
			for i := range batch {
				batch[i], _ = p.Get(3)
			}
			for i := range batch {
				p.Put(batch[i])
			}
		}); n != 0 {
			t.Errorf("%v allocations per batch", n)
		}
		if n := allocs.PerRun(100, func() {
			if s := p.Stats(); len(s.Classes) == 0 {
				t.Error("no classes")
			}
		}); n != 0 {
			t.Errorf("%v allocations per Stats", n)
		}
		var classes []ClassStats
		if n := allocs.PerRun(100, func() { classes = p.appendClassStats(classes[:0]) }); n != 0 {
			t.Errorf("%v allocations per appendClassStats", n)
		}
		if n := allocs.PerRun(100, func() {
			buf, _ := p.Get(1)
			p.Put(p.Grow(buf, 50))
		}); n != 0 {
			t.Errorf("%v allocations per Grow", n)
		}
	}
}

func TestStatsOfManyClassesAllocateOnce(t *testing.T) {
	var sizes []int
	for i := 1; i <= 3*stackClasses; i++ {
		sizes = append(sizes, i)
	}
	p := mustPool(t, Config{SizeClasses: sizes})
	if n := len(p.Stats().Classes); n != len(sizes) {
		t.Errorf("%d classes, want %d", n, len(sizes))
	}
}

// Structs that are written frequently do not share cache lines.
func TestHotStructsDoNotShareCacheLines(t *testing.T) {
	if s := unsafe.Sizeof(list{}); s%128 != 0 && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("a list has %d bytes, want whole pairs of cache lines", s)
	}
	if s := unsafe.Sizeof(node{}); s%64 != 0 && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("a node has %d bytes, want whole cache lines", s)
	}
}
