package bufpool

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
)

// Many goroutines get, fill, check, exchange and put buffers. Others read the counters, trim, and
// collect garbage. No buffer is overwritten by another owner, and the final counters equal the
// numbers of operations.
func TestManyGoroutines(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
	}{
		{"default", Config{}},
		{"low ceiling", Config{MaxRetainedBytes: 4096}},
		{"odd classes", Config{SizeClasses: []int{9, 10, 17, 500, 3000, 3001}}},
		{"debug", Config{Debug: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mustPool(t, tt.cfg) // without automatic trims, so that none runs at the end
			const goroutines = 24
			rounds, seed := testkit.Rounds(t, 200, 500_000), testkit.Seed(t)
			hand := make(chan []byte, goroutines)
			var workers, others sync.WaitGroup
			stop := make(chan struct{})
			for g := range goroutines {
				workers.Go(func() { churn(t, p, rand.New(rand.NewPCG(seed, uint64(g))), rounds, hand) })
			}
			for _, f := range []func(){
				func() { checkLive(t, p.Stats()) },
				p.trim,
				runtime.GC,
				func() { p.Put(make([]byte, 16)) },
			} {
				others.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							f()
							runtime.Gosched()
						}
					}
				})
			}
			workers.Wait()
			close(stop)
			others.Wait()
			close(hand)
			for buf := range hand {
				p.Put(buf)
			}
			s := p.Stats()
			checkBalance(t, s)
			checkLists(t, p)
			var gets uint64
			for _, c := range s.Classes {
				gets += c.Gets
				if c.InUse != 0 || c.Lost != 0 {
					t.Errorf("buffers are lost or in use at the end: %+v", c)
				}
			}
			if want := uint64(goroutines * rounds); gets != want {
				t.Errorf("%d Gets counted, want %d", gets, want)
			}
			if s.Refused.Twice != 0 || s.Refused.Oversize != 0 {
				t.Errorf("refused: %+v", s.Refused)
			}
			for _, f := range p.Faults() {
				t.Error(f)
			}
			for _, l := range p.Leaks() {
				t.Error(l)
			}
		})
	}
}

// checkLive checks the invariants that hold while calls are in progress.
func checkLive(t *testing.T, s Stats) {
	for _, c := range s.Classes {
		if c.InUse < 0 || c.Retained < 0 {
			t.Errorf("counts out of bounds: %+v", c)
		}
	}
}

// churn gets buffers for a number of rounds. It puts some, and passes others to goroutines that put
// them.
func churn(t *testing.T, p *Pool, r *rand.Rand, rounds int, hand chan []byte) {
	var mine [][]byte
	done := func(buf []byte) {
		whole := buf[:cap(buf)]
		if len(whole) >= 9 {
			mark := whole[8]
			for _, b := range whole[8:] {
				if b != mark {
					t.Error("a buffer in use was overwritten by another goroutine")
					return
				}
			}
		}
		p.Put(buf)
	}
	for i := range rounds {
		buf, class := p.Get(8 + r.IntN(2000))
		whole := buf[:cap(buf)]
		if cap(buf) != class {
			t.Errorf("capacity %d of class %d", cap(buf), class)
		}
		for _, b := range whole {
			if b != 0 {
				t.Error("not zero")
				break
			}
		}
		binary.LittleEndian.PutUint64(whole, uint64(i))
		mark := byte(r.IntN(255) + 1)
		for j := range whole[8:] {
			whole[8+j] = mark
		}
		mine = append(mine, buf)
		switch k := r.IntN(len(mine)); r.IntN(4) {
		case 0:
			select {
			case hand <- mine[k]:
				mine[k] = mine[len(mine)-1]
				mine = mine[:len(mine)-1]
			default:
			}
		case 1:
			select {
			case buf := <-hand:
				done(buf)
			default:
			}
		default:
			done(mine[k])
			mine[k] = mine[len(mine)-1]
			mine = mine[:len(mine)-1]
		}
		if len(mine) > 20 {
			for _, buf := range mine {
				done(buf)
			}
			mine = mine[:0]
		}
	}
	for _, buf := range mine {
		done(buf)
	}
}

// If many goroutines put one buffer concurrently, one Put is accepted.
func TestConcurrentDoublePut(t *testing.T) {
	p := mustPool(t, Config{})
	const rounds, putters = 200, 8
	for range rounds {
		buf, _ := p.Get(100)
		var wg sync.WaitGroup
		for range putters {
			wg.Go(func() { p.Put(buf) })
		}
		wg.Wait()
	}
	s := p.Stats()
	if c := classStats(t, p, 128); c.Puts != rounds || c.Retained != 1 || c.InUse != 0 {
		t.Errorf("stats %+v", c)
	}
	if s.Refused != (Refusals{Twice: rounds * (putters - 1)}) {
		t.Errorf("refused %+v", s.Refused)
	}
}

// If every list is locked, Get waits for the lock of its own list and then finds the free buffer in
// it.
func TestGetFindsBufferOfLockedList(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64}, MaxRetainedBytes: 128}) // one list
	a, _ := p.Get(64)
	b, _ := p.Get(64)
	p.Put(a)
	p.Put(b)
	l := &p.classes[0].lists[0]
	l.mu.Lock()
	if buf, _ := p.Get(64); &buf[0] != &a[0] {
		t.Error("the cache acquires the lock")
	}
	got := make(chan []byte)
	go func() {
		buf, _ := p.Get(64)
		got <- buf
	}()
	for range 100 {
		runtime.Gosched()
	}
	select {
	case <-got:
		t.Fatal("Get did not wait")
	default:
	}
	l.mu.Unlock()
	if buf := <-got; &buf[0] != &b[0] {
		t.Error("another buffer")
	}
}

// lockHome returns the current home of a buffer, even if the buffer moves while lockHome waits for
// the lock of the old home.
func TestLockHomeFollowsMovedBuffer(t *testing.T) {
	p := mustPool(t, Config{SizeClasses: []int{64}})
	c := p.classes[0]
	buf, _ := p.Get(64)
	n := c.nodes.find(addrOf(buf))
	from, to := &c.lists[0], &c.lists[1]
	n.home.Store(from)
	from.mu.Lock()
	got := make(chan *list)
	go func() {
		l := n.lockHome()
		l.mu.Unlock()
		got <- l
	}()
	for range 100 {
		runtime.Gosched()
	}
	n.home.Store(to)
	from.mu.Unlock()
	if <-got != to {
		t.Error("lockHome returned the previous list of the buffer")
	}
}
