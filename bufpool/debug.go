package bufpool

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"
	"weak"
)

const (
	doublePut     = "double Put"               // a buffer was Put a second time, and that Put was refused
	writeAfterPut = "write after Put"          // a free buffer was written to; reported once for each buffer
	resliced      = "Put of a resliced buffer" // a part of a buffer was Put instead of the whole, and that Put was refused
	heldBuffer    = "never Put, still in use"
	lostBuffer    = "never Put, dropped" // the garbage collector found that the buffer was dropped in use
)

// A Fault is a misuse or a leak found in debug mode. Its stacks contain program counters, innermost
// first, as from runtime.Callers.
type Fault struct {
	// Kind is "double Put", "write after Put" or "Put of a resliced buffer". For a leak it is
	// "never Put, still in use" or, once the garbage collector has freed the buffer, "never
	// Put, dropped".
	Kind   string
	Class  int       // size class of the buffer in bytes
	Offset int       // index of the first changed byte after a write, or of the first byte of a resliced buffer
	Got    []uintptr // the Get that returned the buffer
	Put    []uintptr // the Put of the buffer; nil if it is in use
	Found  []uintptr // the refused Put; nil for a write or a leak
}

// String returns a description of the fault in several lines.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bufpool: %s, %d B buffer", f.Kind, f.Class)
	if f.Kind == writeAfterPut || f.Kind == resliced {
		fmt.Fprintf(&b, ", at byte %d", f.Offset)
	}
	for _, s := range []struct {
		what  string
		stack []uintptr
	}{{"handed out", f.Got}, {"taken back", f.Put}, {"refused", f.Found}} {
		if len(s.stack) > 0 {
			fmt.Fprintf(&b, "\n%s:\n%s", s.what, frames(s.stack))
		}
	}
	return b.String()
}

// frames formats a stack, two lines per frame.
func frames(stack []uintptr) string {
	var b strings.Builder
	frames := runtime.CallersFrames(stack)
	for more := len(stack) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "    %s\n        %s:%d\n", f.Function, f.File, f.Line)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// trace holds the call stacks of a buffer in debug mode. mem is set before Get returns the buffer.
// The lock of the buffer's home list guards the other fields.
type trace struct {
	mem      weak.Pointer[byte] // first byte of the buffer
	got, put []uintptr
	damaged  bool // a write after Put was found and reported
}

// maxReports limits the number of stored faults and the number of stored leaks. Only the first ones
// are stored, because they are the most useful.
const maxReports = 100

// faultLog stores the findings of debug mode.
type faultLog struct {
	mu     sync.Mutex // no other lock is acquired while it is held
	faults []Fault
	leaks  []Fault
}

// fault stores f, unless maxReports faults are stored.
func (d *faultLog) fault(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.faults) < maxReports {
		d.faults = append(d.faults, f)
	}
}

// leaked stores the leak l, unless maxReports leaks are stored.
func (d *faultLog) leaked(l Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.leaks) < maxReports {
		d.leaks = append(d.leaks, l)
	}
}

// Faults returns the faults found so far, at most the first 100. Before it returns, it looks for
// writes to every buffer that was Put and is still referenced. It returns nil without
// [Config.Debug].
//
// A second Put of the same slice is always detected: in debug mode Get returns the same memory only
// once, and its address stays registered until the garbage collector has found it unreachable.
//
// A write after Put is detected reliably while the pool holds the buffer. When Get or the limit
// would remove the buffer from the free buffers, the pool quarantines it until another 1024 buffers
// of its class, or 4 MiB if that is less, are quarantined. After that, a write is detected only if
// the buffer is still referenced elsewhere when Faults is called, or when the garbage collector
// frees the buffer.
func (p *Pool) Faults() []Fault {
	if p.debug == nil {
		return nil
	}
	for _, c := range p.classes {
		c.nodes.forEach(func(n *node) {
			l := n.lockHome()
			defer l.mu.Unlock()
			if !n.free {
				return
			}
			if mem := n.trace.mem.Value(); mem != nil {
				p.inspectLocked(c, mem, n)
			}
		})
	}
	p.debug.mu.Lock()
	defer p.debug.mu.Unlock()
	return append([]Fault(nil), p.debug.faults...)
}

// Leaks returns the buffers that are currently in use, and the first 100 that were dropped without
// a Put. When all work is done, all returned buffers are leaks. Leaks returns nil without
// [Config.Debug].
func (p *Pool) Leaks() []Fault {
	if p.debug == nil {
		return nil
	}
	p.debug.mu.Lock()
	leaks := append([]Fault(nil), p.debug.leaks...)
	p.debug.mu.Unlock()
	for _, c := range p.classes {
		c.nodes.forEach(func(n *node) {
			l := n.lockHome()
			defer l.mu.Unlock()
			if !n.free {
				leaks = append(leaks, Fault{Kind: heldBuffer, Class: c.size, Got: n.trace.got})
			}
		})
	}
	return leaks
}

// debugGet implements Get for class c in debug mode. The result is always new memory. The free
// buffer that Get would otherwise return, if there is one, is quarantined.
func (p *Pool) debugGet(c *class) []byte {
	t := &trace{got: callers(1)}
	l := &c.lists[0]
	l.mu.Lock()
	hit := len(l.items) > 0
	if hit {
		f := l.items[0]
		l.dropLocked(1)
		l.pops++
		p.quarantineLocked(c, f)
	}
	l.mu.Unlock()
	if !hit {
		c.misses.Add(1)
	}
	buf := c.newMemory(l, t)
	t.mem = weak.Make(unsafe.SliceData(buf))
	if p.noZero {
		fillPoison(buf)
	}
	return buf
}

// debugPut implements Put for the buffer of n in debug mode.
func (p *Pool) debugPut(c *class, mem *byte, n *node) {
	now := callers(1)
	l := n.lockHome()
	defer l.mu.Unlock()
	if n.free {
		p.refused[refusedTwice].Add(1)
		p.debug.fault(Fault{Kind: doublePut, Class: c.size, Got: n.trace.got, Put: n.trace.put, Found: now})
		return
	}
	n.trace.put = now
	fillPoison(unsafe.Slice(mem, c.size))
	if len(l.items) < int(l.limit) {
		l.pushLocked(mem, n)
		return
	}
	n.free = true
	c.discarded.Add(1)
	p.quarantineLocked(c, item{mem, n})
}

// debugRefused reports a fault if buf, a refused slice, is a part of a buffer.
func (p *Pool) debugRefused(buf []byte) {
	if cap(buf) == 0 {
		return
	}
	now := callers(2)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	for _, c := range p.classes {
		c.nodes.forEach(func(n *node) {
			if at < n.addr || at-n.addr >= uintptr(c.size) {
				return
			}
			l := n.lockHome()
			defer l.mu.Unlock()
			p.debug.fault(Fault{
				Kind: resliced, Class: c.size, Offset: int(at - n.addr),
				Got: n.trace.got, Put: n.trace.put, Found: now,
			})
		})
	}
	// The memory of buf must stay allocated until here, because another buffer could otherwise
	// get its address.
	runtime.KeepAlive(buf)
}

// callers returns the stack beginning at the caller of the Pool's method. inner is the number of
// frames between that method and callers.
func callers(inner int) []uintptr {
	pcs := make([]uintptr, 32)
	return pcs[:runtime.Callers(3+inner, pcs)]
}
