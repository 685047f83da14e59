package bufpool

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// oneFault returns the only fault of p.
func oneFault(t *testing.T, p *Pool, kind string) Fault {
	t.Helper()
	faults := p.Faults()
	if len(faults) != 1 || faults[0].Kind != kind {
		t.Fatalf("faults %v, want one %v", faults, kind)
	}
	return faults[0]
}

func wantStack(t *testing.T, what string, s []uintptr, function string) {
	t.Helper()
	first, _, _ := strings.Cut(frames(s), "\n")
	if !strings.HasSuffix(first, "bufpool."+function) {
		t.Errorf("%s: stack begins with %q, want %s", what, first, function)
	}
}

func getHere(p *Pool, size int) []byte { buf, _ := p.Get(size); return buf }
func putHere(p *Pool, buf []byte)      { p.Put(buf) }
func putAgain(p *Pool, buf []byte)     { p.Put(buf) }

func TestDebugReportsNothingForCorrectUse(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	for range 3 {
		fill(p, 100, 5)
		p.trim()
	}
	p.Put(make([]byte, 128)) // is no part of a buffer of the pool
	if f := p.Faults(); len(f) != 0 {
		t.Errorf("faults: %v", f)
	}
	if l := p.Leaks(); len(l) != 0 {
		t.Errorf("leaks: %v", l)
	}
}

func TestFaultsAreNilWithoutDebug(t *testing.T) {
	p := mustPool(t, Config{})
	buf, _ := p.Get(10)
	p.Put(buf)
	p.Put(buf)
	p.Get(10)
	if p.Faults() != nil || p.Leaks() != nil {
		t.Error("reports without debug mode")
	}
}

func TestDebugReportsDoublePut(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	buf := getHere(p, 100)
	putHere(p, buf)
	putAgain(p, buf)
	f := oneFault(t, p, doublePut)
	if f.Class != 128 {
		t.Errorf("class %d", f.Class)
	}
	wantStack(t, "Got", f.Got, "getHere")
	wantStack(t, "Put", f.Put, "putHere")
	wantStack(t, "Found", f.Found, "putAgain")
	for _, want := range []string{"double Put, 128 B buffer", "handed out:", "taken back:", "refused:", "debug_test.go:"} {
		if !strings.Contains(f.String(), want) {
			t.Errorf("%q is missing in %s", want, f)
		}
	}
}

func TestDebugReportsWriteAfterPut(t *testing.T) {
	for name, tt := range map[string]struct {
		ceiling int
		then    func(p *Pool)
	}{
		"free":       {128, func(*Pool) {}},
		"handed out": {128, func(p *Pool) { p.Get(100) }},
		"released":   {128, func(p *Pool) { p.trim(); p.trim() }},
		"discarded":  {1, func(*Pool) {}},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustPool(t, Config{Debug: true, MaxRetainedBytes: tt.ceiling})
			buf := getHere(p, 100)
			putHere(p, buf)
			tt.then(p)
			buf[:128][127] = 0
			f := oneFault(t, p, writeAfterPut)
			if f.Class != 128 || f.Offset != 127 {
				t.Errorf("%+v", f)
			}
			wantStack(t, "Got", f.Got, "getHere")
			wantStack(t, "Put", f.Put, "putHere")
			if !strings.Contains(f.String(), "write after Put, 128 B buffer, at byte 127") {
				t.Error(f)
			}
			buf[0] = 1
			oneFault(t, p, writeAfterPut) // a second call does not repeat the report
			checkBalance(t, p.Stats())
		})
	}
}

// A write after Put is found when the buffer leaves the quarantine and when the garbage collector
// frees it. While the buffer is referenced, Faults finds the write.
func TestDebugReportsWriteAfterQuarantine(t *testing.T) {
	const size = maxQuarantinedBytes // so that the quarantine holds one buffer
	leave := func(p *Pool) { fill(p, size, 2); fill(p, size, 2) }
	newOne := func(t *testing.T) *Pool {
		return mustPool(t, Config{Debug: true, SizeClasses: []int{size}, MaxRetainedBytes: size})
	}
	found := func(p *Pool) bool {
		p.debug.mu.Lock()
		defer p.debug.mu.Unlock()
		return len(p.debug.faults) == 1 && p.debug.faults[0].Offset == size-1
	}
	t.Run("leaves", func(t *testing.T) {
		p := newOne(t)
		buf := getHere(p, size)
		p.Put(buf)
		buf[size-1] = 0
		leave(p)
		if !found(p) {
			t.Error("the write after Put was not reported")
		}
	})
	t.Run("in quarantine", func(t *testing.T) {
		p := newOne(t)
		buf := getHere(p, size)
		p.Put(buf)
		leave(p)
		buf[size-1] = 0
		if found(p) {
			t.Error("no Get and no Faults has found the write")
		}
		oneFault(t, p, writeAfterPut)
	})
	t.Run("collected", func(t *testing.T) {
		p := newOne(t)
		buf := getHere(p, size)
		p.Put(buf)
		leave(p)
		buf[size-1] = 0
		buf = nil
		collectUntil(t, "write found", func() bool { return found(p) })
	})
}

// A second Put is reported, regardless of what happened to the buffer since the first Put.
func TestDebugReportsLateDoublePut(t *testing.T) {
	for name, then := range map[string]func(p *Pool){
		"handed out": func(p *Pool) { getHere(p, 100) },
		"released":   func(p *Pool) { p.trim(); p.trim() },
		"discarded":  func(*Pool) {}, // the class retains one buffer
		"out of the quarantine": func(p *Pool) {
			fill(p, 100, 2*maxQuarantined)
			fill(p, 100, 2*maxQuarantined)
		},
		"collections": func(p *Pool) {
			fill(p, 100, 2*maxQuarantined)
			for range 4 {
				p.trim()
				runtime.GC()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustPool(t, Config{Debug: true, MaxRetainedBytes: 128})
			if name == "discarded" {
				fill(p, 100, 1)
				kept := getHere(p, 100)
				defer p.Put(kept)
			}
			buf := getHere(p, 100)
			other := getHere(p, 100)
			p.Put(other)
			putHere(p, buf)
			then(p)
			putAgain(p, buf)
			f := oneFault(t, p, doublePut)
			wantStack(t, "Got", f.Got, "getHere")
			wantStack(t, "Put", f.Put, "putHere")
			wantStack(t, "Found", f.Found, "putAgain")
			if r := p.Stats().Refused; r != (Refusals{Twice: 1}) {
				t.Errorf("refused %+v", r)
			}
			checkBalance(t, p.Stats())
			runtime.KeepAlive(other)
		})
	}
}

// A buffer that is Put twice, with a Get in between, does not get two owners.
func TestDebugDoublePutAfterGetHasOneOwner(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	a := getHere(p, 100)
	putHere(p, a)
	b := getHere(p, 100)
	putAgain(p, a)
	c := getHere(p, 100)
	if &b[0] == &c[0] {
		t.Error("one buffer has two owners")
	}
	oneFault(t, p, doublePut)
	p.Put(b)
	p.Put(c)
	if l := p.Leaks(); len(l) != 0 {
		t.Errorf("leaks: %v", l)
	}
}

func TestDebugReportsPutOfReslicedBuffer(t *testing.T) {
	for _, tt := range []struct {
		name string
		part func([]byte) []byte
		at   int
	}{
		{"front", func(b []byte) []byte { return b[1024:] }, 1024},
		{"front, no class", func(b []byte) []byte { return b[1:] }, 1},
		{"capacity cut", func(b []byte) []byte { return b[:10:1024] }, 0},
		{"capacity cut, no class", func(b []byte) []byte { return b[:10:10] }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := mustPool(t, Config{Debug: true})
			buf := getHere(p, 2048)
			putHere(p, tt.part(buf))
			f := oneFault(t, p, resliced)
			if f.Class != 2048 || f.Offset != tt.at {
				t.Errorf("%+v", f)
			}
			wantStack(t, "Got", f.Got, "getHere")
			wantStack(t, "Found", f.Found, "putHere")
		})
	}
}

func TestDebugReportsLeaks(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	kept := getHere(p, 100)
	getHere(p, 1000)
	collectUntil(t, "leak found", func() bool {
		for _, l := range p.Leaks() {
			if l.Kind == lostBuffer {
				return true
			}
		}
		return false
	})
	leaks := p.Leaks()
	if len(leaks) != 2 || leaks[0].Class != 1024 || leaks[1].Class != 128 || leaks[0].Kind != lostBuffer || leaks[1].Kind != heldBuffer {
		t.Fatalf("leaks %v", leaks)
	}
	for _, l := range leaks {
		wantStack(t, "Got", l.Got, "getHere")
	}
	if s := leaks[0].String(); !strings.Contains(s, "bufpool: never Put, dropped, 1024 B buffer\nhanded out:\n") {
		t.Error(s)
	}
	if s := leaks[1].String(); !strings.Contains(s, "never Put, still in use, 128 B buffer") {
		t.Error(s)
	}
	p.Put(kept)
	if leaks = p.Leaks(); len(leaks) != 1 {
		t.Errorf("leaks %v", leaks)
	}
}

// A leak is reported with the stack of its Get, even if a free buffer existed at that time.
func TestDebugLeakAfterReuse(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	p.Put(getBefore(p, 100))
	buf := getHere(p, 100)
	leaks := p.Leaks()
	if len(leaks) != 1 {
		t.Fatalf("leaks %v", leaks)
	}
	wantStack(t, "Got", leaks[0].Got, "getHere")
	if c := classStats(t, p, 100+28); c.Misses != 1 || c.Gets != 2 {
		t.Errorf("the counters differ from those without debug mode: %+v", c)
	}
	runtime.KeepAlive(buf)
}

func getBefore(p *Pool, size int) []byte { buf, _ := p.Get(size); return buf }

// The numbers of buffers and bytes in the quarantine are bounded. Buffers that leave it are
// released.
func TestDebugQuarantineIsBounded(t *testing.T) {
	for _, tt := range []struct{ size, want int }{{16, maxQuarantined}, {maxQuarantinedBytes / 4, 4}, {2 * maxQuarantinedBytes, 1}} {
		p := mustPool(t, Config{Debug: true, SizeClasses: []int{tt.size}, MaxRetainedBytes: 1})
		fill(p, tt.size, 1)
		first := p.classes[0].quarantine[0].node
		fill(p, tt.size, tt.want)
		quarantine := p.classes[0].quarantine
		if len(quarantine) != tt.want || slices.ContainsFunc(quarantine, func(f item) bool { return f.node == first }) {
			t.Errorf("%d buffers of %d B, want the last %d", len(quarantine), tt.size, tt.want)
		}
		collectUntil(t, "buffer collected", func() bool { return first.trace.mem.Value() == nil })
		runtime.KeepAlive(p)
	}
}

// With NoZero, debug mode returns buffers filled with the poison pattern, which reveals reads of
// bytes that were not written.
func TestDebugFillsUnzeroedBuffers(t *testing.T) {
	p := mustPool(t, Config{Debug: true, NoZero: true})
	if buf := getHere(p, 64); !bytes.Equal(buf, bytes.Repeat([]byte{poison}, 64)) {
		t.Errorf("%x", buf)
	}
}

func TestDebugKeepsLimit(t *testing.T) {
	p := mustPool(t, Config{Debug: true, SizeClasses: []int{64}, MaxRetainedBytes: 128})
	fill(p, 64, 5)
	if c := classStats(t, p, 64); c.Retained != 2 || c.Discarded != 3 {
		t.Errorf("%+v", c)
	}
	checkBalance(t, p.Stats())
}

// The number of stored faults and leaks is bounded.
func TestDebugReportsAreBounded(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	buf := getHere(p, 64)
	p.Put(buf)
	for range 3 * maxReports {
		p.Put(buf)
		p.debug.leaked(Fault{})
	}
	if n := len(p.Faults()); n != maxReports {
		t.Errorf("%d faults are stored", n)
	}
	if n := len(p.Leaks()); n != maxReports {
		t.Errorf("%d leaks are stored", n)
	}
}
