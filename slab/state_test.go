package slab

import (
	"testing"
	"unsafe"
)

// What every call touches lies in one cache line, and the half of the lock that the drain
// asks for in another.
func TestCacheLines(t *testing.T) {
	const line = 64
	var w Writer
	at := func(p unsafe.Pointer) uintptr { return uintptr(p) - uintptr(unsafe.Pointer(&w)) }
	if end := at(unsafe.Pointer(&w.mu.put)) + unsafe.Sizeof(w.mu.put); at(unsafe.Pointer(&w.front)) != 0 || end > line {
		t.Errorf("front and its half of the lock end at byte %d", end)
	}
	if from := at(unsafe.Pointer(&w.mu.slabs)); from < line {
		t.Errorf("the other half is at byte %d", from)
	}
}
