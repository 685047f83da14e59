package bufpool

import (
	"bytes"
	"strings"
	"testing"
)

// oneFault returns the only fault of p.
func oneFault(t *testing.T, p *Pool, kind FaultKind) Fault {
	t.Helper()
	faults := p.Faults()
	if len(faults) != 1 || faults[0].Kind != kind {
		t.Fatalf("faults %v, want one %v", faults, kind)
	}
	return faults[0]
}

func wantStack(t *testing.T, what string, s Stack, function string) {
	t.Helper()
	first, _, _ := strings.Cut(s.String(), "\n")
	if !strings.HasSuffix(first, "bufpool."+function) {
		t.Errorf("%s: stack begins with %q, want %s", what, first, function)
	}
}

func getHere(p *Pool, size int) []byte { buf, _ := p.Get(size); return buf }
func putHere(p *Pool, buf []byte)      { p.Put(buf) }
func putAgain(p *Pool, buf []byte)     { p.Put(buf) }

func TestDebugCleanUse(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	for range 3 {
		fill(p, 100, 5)
		p.trim()
	}
	p.Put(make([]byte, 128)) // foreign, but nobody's buffer
	if f := p.Faults(); len(f) != 0 {
		t.Errorf("faults: %v", f)
	}
	if l := p.Leaks(); len(l) != 0 {
		t.Errorf("leaks: %v", l)
	}
}

func TestDebugOff(t *testing.T) {
	p := mustPool(t, Config{})
	buf, _ := p.Get(10)
	p.Put(buf)
	p.Put(buf)
	p.Get(10)
	if p.Faults() != nil || p.Leaks() != nil {
		t.Error("reports without debug mode")
	}
}

func TestDebugDoublePut(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	buf := getHere(p, 100)
	putHere(p, buf)
	putAgain(p, buf)
	f := oneFault(t, p, DoublePut)
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

func TestDebugWriteAfterPut(t *testing.T) {
	for name, find := range map[string]func(p *Pool){
		"next Get": func(p *Pool) { p.Get(100) },
		"trim":     func(p *Pool) { p.trim() },
		"Faults":   func(*Pool) {},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustPool(t, Config{Debug: true})
			buf := getHere(p, 100)
			putHere(p, buf)
			buf[:128][127] = 0
			find(p)
			f := oneFault(t, p, WriteAfterPut)
			if f.Class != 128 || f.Offset != 127 {
				t.Errorf("%+v", f)
			}
			wantStack(t, "Got", f.Got, "getHere")
			wantStack(t, "Put", f.Put, "putHere")
			if !strings.Contains(f.String(), "write after Put, 128 B buffer, at byte 127") {
				t.Error(f)
			}
			// It still has a writer somewhere: never again.
			if again := getHere(p, 100); &again[0] == &buf[0] {
				t.Error("the damaged buffer was handed out")
			}
			checkBalance(t, p.Stats())
		})
	}
}

func TestDebugResliced(t *testing.T) {
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
			f := oneFault(t, p, Resliced)
			if f.Class != 2048 || f.Offset != tt.at {
				t.Errorf("%+v", f)
			}
			wantStack(t, "Got", f.Got, "getHere")
			wantStack(t, "Found", f.Found, "putHere")
		})
	}
}

func TestDebugLeaks(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	kept := getHere(p, 100)
	getHere(p, 1000)
	collectUntil(t, "leak found", func() bool {
		for _, l := range p.Leaks() {
			if l.Collected {
				return true
			}
		}
		return false
	})
	leaks := p.Leaks()
	if len(leaks) != 2 || leaks[0].Class != 1024 || leaks[1].Class != 128 || leaks[1].Collected {
		t.Fatalf("leaks %v", leaks)
	}
	for _, l := range leaks {
		wantStack(t, "Got", l.Got, "getHere")
	}
	if s := leaks[0].String(); !strings.Contains(s, "1024 B buffer never Put, dropped") {
		t.Error(s)
	}
	if s := leaks[1].String(); !strings.Contains(s, "128 B buffer never Put, still in use") {
		t.Error(s)
	}
	p.Put(kept)
	if leaks = p.Leaks(); len(leaks) != 1 {
		t.Errorf("leaks %v", leaks)
	}
}

func TestDebugReusesTheOldest(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	a, b := getHere(p, 64), getHere(p, 64)
	p.Put(a)
	p.Put(b)
	if c := getHere(p, 64); &c[0] != &a[0] {
		t.Error("not the one free for longest")
	}
}

// Without zeroing, debug mode hands out poison, which shows who reads what it
// did not write.
func TestDebugNoZero(t *testing.T) {
	p := mustPool(t, Config{Debug: true, NoZero: true})
	fill(p, 64, 1)
	if buf := getHere(p, 64); !bytes.Equal(buf, bytes.Repeat([]byte{poison}, 64)) {
		t.Errorf("%x", buf)
	}
}

func TestDebugCeiling(t *testing.T) {
	p := mustPool(t, Config{Debug: true, SizeClasses: []int{64}, MaxRetainedBytes: 128})
	fill(p, 64, 5)
	if c := classStats(t, p, 64); c.Retained != 2 || c.Discarded != 3 {
		t.Errorf("%+v", c)
	}
	checkBalance(t, p.Stats())
}

// Reports are bounded.
func TestDebugReportsAreBounded(t *testing.T) {
	p := mustPool(t, Config{Debug: true})
	buf := getHere(p, 64)
	p.Put(buf)
	for range 3 * maxReports {
		p.Put(buf)
		p.debug.leaked(Leak{})
	}
	if n := len(p.Faults()); n != maxReports {
		t.Errorf("%d faults kept", n)
	}
	if n := len(p.Leaks()); n != maxReports {
		t.Errorf("%d leaks kept", n)
	}
}

func TestFaultKindString(t *testing.T) {
	if s := FaultKind(77).String(); s != "FaultKind(77)" {
		t.Error(s)
	}
}
