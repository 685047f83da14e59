package slablog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/slab"
)

// spliced removes random parts of a record. It returns the arguments with which TryWriteSpliced
// restores the record.
func spliced(rng *rand.Rand, rec string) (p []byte, in []Splice) {
	for len(rec) > 0 {
		n := 1 + rng.IntN(len(rec))
		switch rng.IntN(3) {
		case 0:
			in = append(in, Splice{At: len(p), Text: rec[:n]})
		case 1:
			in = append(in, Splice{At: len(p), Text: ""}, Splice{At: len(p), Text: rec[:n]})
		default:
			p = append(p, rec[:n]...)
		}
		rec = rec[n:]
	}
	return p, in
}

// keeping is a destination that stores the records it receives, with their metadata.
type keeping struct {
	mu  sync.Mutex
	got []string
}

func (k *keeping) Send(_ context.Context, b *batch.Batch) (o batch.Outcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range b.All() {
		k.got = append(k.got, fmt.Sprint(r.Ticket, r.Time, r.Level, r.Stream, string(r.Data)))
	}
	return o
}

// A spliced record arrives like the same record written as a whole, for example at the end of a
// slab or with a level that flushes.
func TestSplicedRecords(t *testing.T) {
	for _, o := range []slab.Options{
		{SlabBytes: 512, SlabCount: 3, WhenFull: slab.Block()},
		{SlabBytes: 4096, SlabCount: 4, WhenFull: slab.Block(), FlushInterval: -1, FlushLevel: slog.LevelError},
		{SlabBytes: 1024, SlabCount: 64, WhenFull: slab.DropOldest()},
		{SlabBytes: 4096, SlabCount: 4, WhenFull: slab.Block(), MaxRecord: 1000},
	} {
		rng := testkit.Rand(testkit.Seed(t))
		k := &keeping{}
		w, err := newPump(consumerFor(k), &o)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		taken := 0
		for i := range 3000 {
			rec := strings.Repeat(string(rune('a'+i%26)), rng.IntN(300))
			m := batch.Meta{Time: int64(i), Level: slog.Level(4 * rng.IntN(3)), Stream: uint32(i % 5)}
			if rng.IntN(50) == 0 {
				m.Level = slog.LevelError
			}
			p, in := spliced(rng, rec)
			switch {
			case rng.IntN(3) == 0:
				err = w.WriteRecord([]byte(rec), m)
			case w.TryWriteSpliced(p, in, m):
				taken++
			default:
				err = w.WriteRecord([]byte(rec), m)
			}
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprint(i+1, m.Time, m.Level, m.Stream, rec))
			if i%100 == 0 { // leaves nothing that DropOldest could drop
				if err := w.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		closeNow(t, w)
		if !slices.Equal(k.got, want) {
			t.Errorf("%+v: other records than written arrived: %d, want %d", o, len(k.got), len(want))
		}
		checkAccount(t, w, 3000, 3000, batch.Drops{})
		if all := o.MaxRecord == 0; all != (taken > 100) {
			t.Errorf("%+v: %d records were accepted as splices", o, taken)
		}
	}
}

// Spliced and whole records arrive complete if several goroutines write them while the consumer
// runs.
func TestSplicedRecordsBesideOthers(t *testing.T) {
	var m memory
	w := mustNew(t, &m, &slab.Options{SlabBytes: 1024, SlabCount: 4, WhenFull: slab.Block()})
	seed := testkit.Seed(t)
	const each = 3000
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := testkit.Rand(seed + uint64(g))
			for i := range each {
				l := line(g*each+i, 10+rng.IntN(80))
				p, in := spliced(rng, string(l))
				if g%2 == 0 || !w.TryWriteSpliced(p, in, batch.Meta{}) {
					w.WriteRecord(l, batch.Meta{})
				}
			}
		})
	}
	wg.Wait()
	closeNow(t, w)
	ns := numbers(t, m.String())
	for g := range 4 {
		var mine []int
		for _, n := range ns {
			if n/each == g {
				mine = append(mine, n)
			}
		}
		wantSequence(t, mine, g*each, (g+1)*each)
	}
	checkAccount(t, w, 4*each, 4*each, batch.Drops{})
}

// If TryWriteSpliced refuses a record, nothing changes.
func TestSplicedRecordsRefused(t *testing.T) {
	refused := func(name string, w *pump, n int) {
		t.Helper()
		before := w.Stats()
		if w.TryWriteSpliced([]byte("ab"), []Splice{{At: 1, Text: strings.Repeat("x", n)}}, batch.Meta{}) {
			t.Errorf("%s: the record was accepted", name)
		}
		if after := w.Stats(); after.Account != before.Account || after.Refused != before.Refused {
			t.Errorf("%s: %+v became %+v", name, before.Account, after.Account)
		}
	}
	g := newGate()
	w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.DropNewest()})
	refused("larger than a slab", w, 600)
	n := 0
	for ; w.WriteRecord(make([]byte, 100), batch.Meta{}) == nil; n++ {
		if w.TryWriteSpliced([]byte("ab"), []Splice{{At: 1, Text: strings.Repeat("x", 100)}}, batch.Meta{}) {
			n++
		}
	}
	<-g.entered // the consumer hangs with the first slab, so nothing else changes
	refused("full", w, 100)
	if err := w.WriteRecord(make([]byte, 100), batch.Meta{}); !errors.Is(err, slab.ErrDropped) {
		t.Errorf("there was room: %v", err)
	}
	g.open()
	closeNow(t, w)
	refused("closed", w, 10)
	checkAccount(t, w, uint64(n)+2, uint64(n), drops(batch.Full, 2))

	w = mustNew(t, io.Discard, &slab.Options{Crash: &slab.Crash{Dir: t.TempDir()}})
	refused("crash-safe", w, 10)
	closeNow(t, w)
}

// Invalid positions panic without holding the lock.
func TestInvalidSplicesPanicWithoutTheLock(t *testing.T) {
	var m memory
	w := mustNew(t, &m, nil)
	for _, in := range [][]Splice{{{At: -1, Text: "x"}}, {{At: 4, Text: "x"}}, {{At: 2, Text: "x"}, {At: 1, Text: "y"}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v was accepted", in)
				}
			}()
			w.TryWriteSpliced([]byte("abc"), in, batch.Meta{})
		}()
	}
	mustWrite(t, w, 0, 10)
	closeNow(t, w)
	wantSequence(t, numbers(t, m.String()), 0, 1)
}

func TestSplicingAllocatesNothing(t *testing.T) {
	w := mustNew(t, io.Discard, &slab.Options{WhenFull: slab.Block()})
	defer closeNow(t, w)
	p, in := []byte("abc"), []Splice{{At: 1, Text: strings.Repeat("x", 1000)}}
	if n := allocsOf(func() { w.TryWriteSpliced(p, in, batch.Meta{}) }); n != 0 {
		t.Errorf("%v allocations in %d calls", n, allocCalls)
	}
}

// A small spliced record does not overtake a write that waits.
func TestSplicedRecordsWaitTheirTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newGate()
		w := mustNew(t, g, &slab.Options{SlabBytes: 512, SlabCount: 2, WhenFull: slab.Block()})
		mustWrite(t, w, 0, 400)
		mustWrite(t, w, 1, 300)
		var wg sync.WaitGroup
		wg.Go(func() { mustWrite(t, w, 2, 300) })
		synctest.Wait()
		if l := string(line(3, 20)); w.TryWriteSpliced(nil, []Splice{{At: 0, Text: l}}, batch.Meta{}) {
			t.Error("a spliced record overtook the waiting write")
		}
		g.open()
		wg.Wait()
		closeNow(t, w)
		wantSequence(t, numbers(t, g.String()), 0, 3)
	})
}
