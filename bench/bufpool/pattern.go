// Package bufpool compares forebay's bufpool with sync.Pool, bytebufferpool and
// make, in the patterns of the document it starts from.
//
// The benchmarks have that document's names. The rows are the same patterns for
// the harness, which interleaves them and judges; the command beside this
// package measures them if it imports it.
package bufpool

import "slices"

// A pattern is what callers ask for. Sizes are requested in turn; their number
// is a power of two.
type pattern struct {
	name    string
	what    string
	classes []int // of the pool
	sizes   []int
}

const kib = 1 << 10

var (
	small  = []int{64, 128, 256, 512}
	medium = []int{1 * kib, 4 * kib, 16 * kib, 64 * kib}
	large  = []int{64 * kib, 128 * kib, 256 * kib, 512 * kib}
	all    = []int{64, 128, 256, 512, 1 * kib, 2 * kib, 4 * kib, 8 * kib, 16 * kib, 32 * kib, 64 * kib}

	basic    = pattern{"basic", "1, 4, 16 and 64 KiB in turn, each a class", medium, medium}
	smalls   = pattern{"small", "64, 128, 256 and 512 B in turn, each a class", small, small}
	larges   = pattern{"large", "64, 128, 256 and 512 KiB in turn, each a class", large, large}
	exact    = pattern{"exact", "sizes that are classes: 1, 4, 16 and 64 KiB", medium, medium}
	inexact  = pattern{"inexact", "512 B, 2, 8 and 32 KiB from classes of 1, 4, 16 and 64 KiB", medium, []int{512, 2 * kib, 8 * kib, 32 * kib}}
	oversize = pattern{"oversize", "128, 256, 512 KiB and 1 MiB, classes up to 64 KiB", medium, []int{128 * kib, 256 * kib, 512 * kib, 1024 * kib}}
	frequent = pattern{"frequent", "1 KiB over and over", medium, []int{1 * kib}}
	mixed    = pattern{"mixed", "of 32 sizes 16 of 64 to 256 B, 10 of 1 to 4 KiB, 6 of 16 to 64 KiB (50, 31 and 19 %), shuffled", all, mixedSizes()}
	defaults = pattern{"default", "common sizes, default classes", nil, []int{16, 100, 256, 1000, 1500, 4096, 10_000, 65_536}}
)

// mixedSizes is 32 sizes: 16 small, 10 medium, 6 large, in an order that no
// branch predictor of a real program would have an easier time with.
func mixedSizes() []int {
	s := slices.Concat(
		slices.Repeat([]int{64, 128, 200, 256}, 4),
		slices.Repeat([]int{1 * kib, 2 * kib, 1500, 3000, 4 * kib}, 2),
		[]int{16 * kib, 32 * kib, 64 * kib, 16 * kib, 20_000, 64 * kib},
	)
	out := make([]int, len(s))
	for i := range s {
		out[i] = s[i*11%len(s)] // 11 and 32 have no common factor
	}
	return out
}
