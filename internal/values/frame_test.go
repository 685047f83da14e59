package values

import (
	"runtime"
	"testing"
)

func TestFramesAreKept(t *testing.T) {
	pcs := make([]uintptr, 1)
	runtime.Callers(1, pcs)
	if a, b := FrameOf(pcs[0]), FrameOf(pcs[0]); a != b {
		t.Error("looked up twice")
	}
	other := pcs[0] + 1
	for frameSlot(other) != frameSlot(pcs[0]) {
		other++
	}
	if f := FrameOf(other); f.pc != other {
		t.Error("took another position's frame from the same place")
	}
	if f := FrameOf(pcs[0]); f.pc != pcs[0] || f.Source.Function == "" {
		t.Errorf("%+v", f)
	}
	if n := testing.AllocsPerRun(100, func() { FrameOf(pcs[0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
