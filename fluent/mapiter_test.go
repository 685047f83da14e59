package fluent

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
)

// Encoding a map of any type does not allocate.
func TestMapsAllocateNothing(t *testing.T) {
	race.Skip(t)
	type name string
	now := time.Now()
	dst := make([]byte, 0, 4096)
	for what, v := range map[string]any{
		"int":         map[string]int{"a": 1000, "b": 2},
		"bool":        map[string]bool{"a": true},
		"float":       map[string]float64{"a": 1.5},
		"strings":     map[string][]string{"a": {"x", "y"}},
		"error":       map[string]error{"a": errors.New("x"), "b": nil},
		"named key":   map[name]int{"a": 1, "b": 2},
		"int key":     map[int]string{1: "a", 1000: "b"},
		"any key":     map[any]any{1: 2, -1: 0, "a": 3, true: 1.5},
		"struct":      map[string]benchRecord{"a": {At: now}},
		"time":        map[string]time.Time{"a": now},
		"of maps":     map[string]map[string]map[string]int{"a": {"b": {"c": 1}}, "d": {"e": {"f": 2}}},
		"within":      map[string]any{"a": map[string]int{"b": 1}, "c": map[string]bool{"d": true}},
		"lists":       map[string]any{"a": []int{1, 2}, "b": []time.Time{now}, "c": [][]string{{"x"}}},
		"json.Number": map[string]any{"a": json.Number("12")},
	} {
		n := allocs.PerRun(200, func() {
			var err error
			if dst, err = AppendEvent(dst[:0], now, v); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// Goroutines that encode maps of the same type concurrently do not mix up their values.
func TestMapsAreEncodedConcurrently(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range 100 {
				m := map[string]map[string]int{"a": {"x": g}, "b": {"y": g}, "c": nil}
				want, _ := json.Marshal(m)
				if got := encoded(t, m); !equalJSON(got, string(want)) {
					t.Errorf("%s, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
}

// Encoding a record larger than ownScratchBytes does not allocate, because memory is borrowed from
// a pool.
func TestLargeRecordsAllocateNothing(t *testing.T) {
	race.Skip(t)
	pools.Plain(t)
	f := &testkit.Forward{Script: func(_ int, c *testkit.ForwardConn) { new(received).ackAll(c) }}
	l := newTestLogger(t, testConfig{Config: Config{Servers: []string{listen(t, f)}}, BufferBytes: 64 << 20, SlabBytes: 16 << 20, FlushInterval: time.Hour})
	v := map[string]any{"a": strings.Repeat("x", 200<<10)}
	n := allocs.PerRun(20, func() {
		if err := l.Post("alloc.tag", v); err != nil {
			t.Fatal(err)
		}
	})
	if n >= 1 {
		t.Errorf("%v allocations", n)
	}
	closeLogger(t, l)
}
