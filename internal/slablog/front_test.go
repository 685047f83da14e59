package slablog

import (
	"testing"
	"unsafe"
)

// The fields that every call uses are in one cache line, together with their lock.
func TestCacheLine(t *testing.T) {
	const line = 64
	var w Writer
	at := func(p unsafe.Pointer) uintptr { return uintptr(p) - uintptr(unsafe.Pointer(&w)) }
	if end := at(unsafe.Pointer(&w.front.mu)) + unsafe.Sizeof(w.front.mu); at(unsafe.Pointer(&w.front)) != 0 || end > line {
		t.Errorf("front and its lock end at byte %d", end)
	}
	if n := unsafe.Sizeof(w); n != 2*line { // the allocator aligns objects of this size to a cache line
		t.Errorf("a Writer has %d bytes", n)
	}
}
