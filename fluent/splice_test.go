package fluent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/internal/testkit/race"
	"github.com/forebay-log/forebay/slab"
)

// recordJSON converts rec to JSON.
func recordJSON(t *testing.T, rec []byte) string {
	t.Helper()
	js, rest, err := msgpack.AppendJSON(nil, rec)
	if err != nil || len(rest) != 0 {
		t.Fatalf("%d bytes left: %v", len(rest), err)
	}
	return string(js)
}

// spliceable returns values with long strings: in the record itself, in nested values, and next to
// values that cannot be encoded.
func spliceable() map[string]any {
	long := strings.Repeat("long ", 300)
	many, texts := map[string]any{"n": 1, "s": "short"}, map[string]string{"s": "short"}
	for i := range 2*maxSplices + 2 {
		k := fmt.Sprint("key", i)
		many[k], texts[k] = long[:minSpliceBytes-6+i], long[i:]
	}
	deep := any(long)
	for range 40 {
		deep = map[string]any{"in": deep}
	}
	return map[string]any{
		"one":     map[string]any{"line": long},
		"longest": map[string]any{"line": strings.Repeat("x", 70_000), "other": strings.Repeat("y", 2000)},
		"many":    many,
		"texts":   texts,
		"bad":     map[string]any{"line": long + "\xff" + long, "good": long},
		"within":  map[string]any{"m": map[string]any{"line": long}, "l": []any{long, long}, "t": map[string]string{"x": long}, "line": long, "e": errors.New(long)},
		"deep":    map[string]any{"line": long, "deep": deep},
		"panic":   map[string]any{"line": long, "p": panicking{}, "more": long},
		"struct":  struct{ A, B string }{long, "b"},
		"string":  long,
		"logs":    valuerT{},
		"pointer": ptr(map[string]any{"line": long}),
	}
}

// The method insert puts the spliced strings into the record. The result equals the record encoded
// without splicing.
func TestSplicedStringsAreInsertedUnchanged(t *testing.T) {
	for name, v := range spliceable() {
		spliced := 0
		for _, capacity := range []int{0, 100, 1 << 20} {
			s := borrow(1<<20, timeText)
			plain, err := s.record(nil, v, "message")
			if err != nil || len(s.mem.splices) > 0 {
				t.Fatalf("%s: %d strings were spliced, %v", name, len(s.mem.splices), err)
			}
			s.free()
			s = borrow(1<<20, timeText)
			s.mem.canSplice = true
			rec, err := s.record(make([]byte, 0, capacity), v, "message")
			spliced = len(s.mem.splices)
			if size := len(rec) + s.mem.spliceBytes; err != nil || size != len(plain) {
				t.Errorf("%s: %d bytes, want %d (%v)", name, size, len(plain), err)
			}
			rec = s.mem.insert(rec)
			if a, b := recordJSON(t, plain), recordJSON(t, rec); !equalJSON(a, b) {
				t.Errorf("%s, capacity for %d:\n%.300s\nwant\n%.300s", name, capacity, b, a)
			}
			s.mem.release(rec)
			s.free()
		}
		want := map[string]int{"one": 1, "longest": 2, "many": maxSplices, "texts": maxSplices, "bad": 1, "within": 1, "panic": 2}[name]
		if spliced != want {
			t.Errorf("%s: %d strings were spliced, want %d", name, spliced, want)
		}
	}
}

// The spliced strings count toward the size limit of a record.
func TestSplicedStringsCountTowardMaxRecord(t *testing.T) {
	for _, v := range []any{map[string]any{"line": strings.Repeat("x", 2000)}, map[string]string{"line": strings.Repeat("x", 2000)}} {
		for limit, want := range map[int]error{2000: ErrTooLarge, 2009: nil} {
			s := borrow(limit, timeText)
			s.mem.canSplice = true
			if _, err := s.record(nil, v, "m"); !errors.Is(err, want) {
				t.Errorf("limit of %d: %v", limit, err)
			}
			s.free()
			if s = borrow(1, timeText); len(s.mem.splices) != 0 || s.mem.spliceBytes != 0 || s.mem.canSplice {
				t.Error("the valuer still has spliced strings")
			}
			s.free()
		}
	}
}

// If a posted record contains long strings, it arrives in the form that AppendEvent writes, even if
// the caller clears the map after Post. This applies to small, large and crash-safe slabs.
func TestPostOfLongStringsMatchesAppendEvent(t *testing.T) {
	at := time.Unix(1_700_000_000, 5)
	for _, o := range []slab.Options{
		{SlabBytes: 4096, SlabCount: 4, WhenFull: slab.Block(), MaxRecord: 1 << 20},
		{SlabBytes: 64 << 10, SlabCount: 4, WhenFull: slab.Block(), MaxRecord: 1 << 20},
		{SlabBytes: 64 << 10, SlabCount: 4, WhenFull: slab.Block(), MaxRecord: 1 << 20, Crash: &slab.Crash{Dir: t.TempDir()}},
	} {
		var got [][]byte
		o.OnError = func(batch.Event) {}
		w, err := deliver.NewOutput(deliver.SendFunc(deliver.Traits{}, func(_ context.Context, b *batch.Batch) batch.Outcome {
			for _, r := range b.All() {
				got = append(got, append([]byte(nil), r.Data...))
			}
			return batch.Outcome{}
		}), &deliver.OutputOptions{Slab: o, OnError: o.OnError})
		if err != nil {
			t.Fatal(err)
		}
		c, err := (&testConfig{}).resolve()
		if err != nil {
			t.Fatal(err)
		}
		l := newLogger(w, &Driver{c: c, maxRecord: o.MaxRecord})
		rng := testkit.Rand(testkit.Seed(t))
		var want [][]byte
		for i := range 300 {
			m := map[string]any{"i": i, "line": strings.Repeat(string(rune('a'+i%26)), rng.IntN(3000)), "more": strings.Repeat("z", 100+rng.IntN(1000))}
			if i%50 == 0 {
				m = map[string]any{"line": strings.Repeat("y", 5000+rng.IntN(10_000)), "i": i}
			}
			if err := l.PostWithTime("spliced.tag", at, m); err != nil {
				t.Fatal(err)
			}
			rec, err := AppendEvent(nil, at, m)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, rec)
			clear(m)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d of %d records arrived", len(got), len(want))
		}
		for i := range want {
			if a, b := recordJSON(t, want[i]), recordJSON(t, got[i]); !equalJSON(a, b) {
				t.Fatalf("record %d:\n%.200s\nwant\n%.200s", i, b, a)
			}
		}
	}
}

// Inserting spliced strings does not increase the memory that the next record borrows.
func TestSplicesDoNotGrowBorrowedMemory(t *testing.T) {
	s := borrow(1<<20, timeText)
	defer s.free()
	s.mem.canSplice, s.mem.borrowSize = true, 0
	rec, err := s.record(s.mem.buffer(), map[string]any{"line": strings.Repeat("x", 4000)}, "m")
	if err != nil {
		t.Fatal(err)
	}
	rec = s.mem.insert(rec)
	s.mem.release(rec)
	if s.mem.borrowSize != 0 || s.mem.borrowed != nil {
		t.Errorf("the next record borrows %d bytes, and %d bytes are not returned", s.mem.borrowSize, len(s.mem.borrowed))
	}
}

// If the borrowed memory is too small for a record with its spliced strings, larger memory is
// borrowed instead.
func TestSplicesBeyondTheMemoryAllocateNothing(t *testing.T) {
	race.Skip(t)
	pools.Plain(t)
	s := borrow(1<<20, timeText)
	defer s.free()
	v := map[string]any{"line": strings.Repeat("x", 40_000)}
	s.mem.borrowSize = 2000
	n := allocs.PerRun(20, func() {
		s.mem.canSplice, s.mem.borrowSize, s.level, s.mem.insertedBytes = true, 2000, 0, 0
		rec, err := s.record(s.mem.buffer(), v, "m")
		if rec = s.mem.insert(rec); err != nil || len(rec) < 40_000 {
			t.Fatalf("%d bytes, %v", len(rec), err)
		}
		s.mem.release(rec)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A valuer caches its last tag. The cache does not change the stream of another tag.
func TestStreamOfLastTag(t *testing.T) {
	s := borrow(1, timeText)
	defer s.free()
	for range 3 {
		for _, tag := range []string{"remembered.a", "remembered.b", "remembered.b", "remembered.ab"} {
			want, err := new(valuer).streamOf(tag)
			got, err2 := s.streamOf(tag)
			if err != nil || err2 != nil || got != want {
				t.Errorf("%s: %d, want %d (%v, %v)", tag, got, want, err, err2)
			}
		}
		for _, tag := range []string{"", "bad\ntag"} {
			if _, err := s.streamOf(tag); !errors.Is(err, ErrTag) {
				t.Errorf("%q: %v", tag, err)
			}
		}
	}
}
