package testkit

import (
	"reflect"
	"runtime"
)

// Frames returns n program counters that lie in functions of the running program. No two
// are equal, so a stack made of them costs whoever writes it as many look-ups as one that
// was caught.
func Frames(n int) []uintptr {
	pcs := make([]uintptr, 0, n)
	// Functions of the runtime lie before and behind this one: it is where the walk turns.
	start := reflect.ValueOf(Frames).Pointer()
	for _, step := range []uintptr{16, ^uintptr(0) - 15} {
		for pc, gap := start+step, 0; len(pcs) < n && gap < 1<<12; pc += step {
			if gap++; runtime.FuncForPC(pc) != nil && runtime.FuncForPC(pc-1) != nil {
				pcs, gap = append(pcs, pc), 0
			}
		}
	}
	if len(pcs) < n {
		panic("testkit: the program has too few instructions for so many frames")
	}
	return pcs
}
