package testkit

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// Goroutines returns a function that checks the number of goroutines started since the call of
// Goroutines. Goroutines of this package do not count. Both functions must be called in a synctest
// bubble.
func Goroutines(t testing.TB) (want func(when string, n int)) {
	before := stacks()
	return func(when string, n int) {
		t.Helper()
		synctest.Wait()
		started := stacks()
		for id := range before {
			delete(started, id)
		}
		if len(started) != n {
			t.Errorf("%s: %d goroutines, want %d:\n%s", when, len(started), n, strings.Join(slices.Sorted(maps.Values(started)), "\n\n"))
		}
	}
}

// stacks returns the stacks of all goroutines, by goroutine number. It omits goroutines started by
// this package. It also omits goroutines of the runtime that run finalizers and cleanups, because
// they are visible only while one runs.
func stacks() map[string]string {
	buf := make([]byte, 1<<20)
	all := map[string]string{}
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		number, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		if strings.Contains(stack, "\ncreated by github.com/forebay-log/forebay/internal/testkit.") ||
			strings.Contains(stack, "\nruntime.runFinalizers(") || strings.Contains(stack, "\nruntime.runCleanups(") {
			continue
		}
		all[number] = stack
	}
	return all
}
