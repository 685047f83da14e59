package values

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

func TestAFrameIsResolvedOnce(t *testing.T) {
	pcs := make([]uintptr, 1)
	runtime.Callers(1, pcs)
	if a, b := FrameOf(pcs[0]), FrameOf(pcs[0]); a != b {
		t.Error("the frame was resolved twice")
	}
	if f := FrameOf(pcs[0]); f.pc != pcs[0] || !strings.HasSuffix(f.Source.Function, ".TestAFrameIsResolvedOnce") {
		t.Errorf("%+v", f)
	}
	if n := allocs.PerRun(100, func() { FrameOf(pcs[0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// caught is an error with a stack.
type caught struct {
	text string
	pcs  []uintptr
	next error
}

func (e *caught) Error() string      { return e.text }
func (e *caught) Unwrap() error      { return e.next }
func (e *caught) Callers() []uintptr { return e.pcs }

// stacks returns errors with stacks of the given depth. All frames are different.
func stacks(pcs []uintptr, depth int) (errs []error) {
	for len(pcs) >= depth {
		errs = append(errs, &caught{"failed", pcs[:depth], nil})
		pcs = pcs[depth:]
	}
	return errs
}

// Each frame is resolved once, even if a program creates errors at many call sites.
func TestFramesOfManyStacksDoNotAllocate(t *testing.T) {
	race.Skip(t)
	errs := stacks(testkit.Frames(10_000), 20)
	for _, form := range ErrorForms {
		v := NewValues(Style{Errors: ErrorForm(form)})
		dst := make([]byte, 0, 64<<10)
		if n := allocs.PerRun(3, func() {
			for _, err := range errs {
				dst = v.AppendError(append(dst[:0], '{'), nil, "err", err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for 10,000 frames", form, n)
		}
	}
}

// The frame cache stays bounded even if errors have arbitrary program counters.
func TestTheFrameCacheIsBounded(t *testing.T) {
	used := testkit.Frames(8)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 4 * maxFramesKept {
				pc := ^uintptr(g*4*maxFramesKept + i) // no function is at the end of the address space
				if f := FrameOf(pc); f.pc != pc {
					t.Errorf("%#x: got the frame of %#x", pc, f.pc)
					return
				}
				if pc := used[i%len(used)]; FrameOf(pc).pc != pc || FrameOf(pc).Empty() {
					t.Errorf("%#x: got %+v", pc, FrameOf(pc))
					return
				}
			}
		})
	}
	wg.Wait()
	kept := 0
	for i := range frames.Load().slots {
		if frames.Load().slots[i].Load() != nil {
			kept++
		}
	}
	if kept == 0 || kept > maxFramesKept {
		t.Errorf("%d frames are kept, more than %d", kept, maxFramesKept)
	}
}

// Frames that are already resolved are written like program counters.
func TestResolvedFramesAreWrittenLikeCounters(t *testing.T) {
	pcs := make([]uintptr, 8)
	pcs = pcs[:runtime.Callers(1, pcs)]
	var looked []runtime.Frame
	for it := runtime.CallersFrames(pcs); ; {
		f, more := it.Next()
		looked = append(looked, f)
		if !more {
			break
		}
	}
	v := NewValues(Style{Errors: ErrorObject})
	write := func(err error) string {
		return string(v.AppendError([]byte{'{'}, nil, "err", err))
	}
	tail := func(s string) string { _, t, _ := strings.Cut(s, `"Source"`); return t }
	want, got := write(&caught{"x", pcs, nil}), write(&ready{looked})
	if tail(want) == "" || tail(got) != tail(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	frames := []runtime.Frame{{Function: "a.b\"c", File: "/x/y z/\x01.go", Line: 7}, {File: "no function"}, {Function: "f"}}
	lines := make([]string, len(frames))
	for i, f := range frames {
		lines[i] = call(f.Function, f.File, f.Line)
	}
	if got, want := write(&ready{frames}), fmt.Sprintf(`{"err":{"Type":"*values.ready","Message":"ready","Source":"y z/\u0001.go:7","StackTrace":"a.b\"c /x/y z/\u0001.go:7\n%s\n%s"}`, lines[1], lines[2]); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestResolvedFramesDoNotAllocate(t *testing.T) {
	race.Skip(t)
	v := NewValues(Style{Errors: ErrorObject})
	dst := make([]byte, 0, 4096)
	err := error(&ready{[]runtime.Frame{{Function: "a.b", File: "/x/y.go", Line: 7}}})
	if n := allocs.PerRun(100, func() { dst = v.AppendError(append(dst[:0], '{'), nil, "err", err) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// ready is an error whose frames are already resolved.
type ready struct{ frames []runtime.Frame }

func (e *ready) Error() string               { return "ready" }
func (e *ready) StackTrace() []runtime.Frame { return e.frames }

// The properties of an error type are determined once, even if there are many types.
func TestManyErrorTypesDoNotAllocate(t *testing.T) {
	race.Skip(t)
	errs := slices.Concat(types[[1]byte](), types[[2]byte](), types[[3]byte](), types[[4]byte](), types[[5]byte](), types[[6]byte](), types[[7]byte](), types[[8]byte](),
		types[[1]int](), types[[2]int](), types[[3]int](), types[[4]int](), types[[5]int](), types[[6]int](), types[[7]int](), types[[8]int]())
	v := NewValues(Style{Errors: ErrorObject})
	dst := make([]byte, 0, 4096)
	if n := allocs.PerRun(5, func() {
		for _, err := range errs {
			dst = v.AppendError(append(dst[:0], '{'), nil, "err", err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for %d types", n, len(errs))
	}
}

type typed[T, U any] struct{}

func (*typed[T, U]) Error() string { return "typed" }

func types[T any]() []error {
	return []error{new(typed[T, int8]), new(typed[T, int16]), new(typed[T, int32]), new(typed[T, int64]),
		new(typed[T, uint8]), new(typed[T, uint16]), new(typed[T, uint32]), new(typed[T, uint64])}
}
