package testkit

import (
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns the seed of a random test: FOREBAY_SEED or FOREBAY_SEEDS if set, or else a new one.
// The seed is printed if the test fails.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, _ := seeds(t, 1)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat: FOREBAY_SEED=%d", seed)
		}
	})
	return seed
}

// seeds returns the first seed of a test with n random walks, which use consecutive seeds. It is
// FOREBAY_SEEDS if set, otherwise random. If FOREBAY_SEED is set, there is one walk with that seed.
func seeds(t testing.TB, n int) (first uint64, walks int) {
	t.Helper()
	if seed, ok := number(t, "FOREBAY_SEED"); ok {
		return seed, 1
	}
	if seed, ok := number(t, "FOREBAY_SEEDS"); ok {
		return seed, n
	}
	return rand.Uint64() >> 1, n
}

func number(t testing.TB, name string) (n uint64, ok bool) {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return n, true
}

// Rand returns a random source with the given seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15)) }

// Walks yields consecutive seeds for the random walks of a test. There are n walks, multiplied by
// FOREBAY_TORTURE, or one if FOREBAY_SEED is set. Walks ends after the first walk that fails, and
// prints its seed.
func Walks(t testing.TB, n int) iter.Seq[uint64] {
	t.Helper()
	first, walks := seeds(t, Rounds(n, math.MaxInt))
	return func(yield func(uint64) bool) {
		repeat := "FOREBAY_SEEDS=" + strconv.FormatUint(first, 10) // for a check of all walks
		t.Cleanup(func() {
			if t.Failed() {
				t.Log("to repeat: " + repeat)
			}
		})
		all := repeat
		for i := range uint64(walks) {
			repeat = "FOREBAY_SEED=" + strconv.FormatUint(first+i, 10)
			if !yield(first+i) || t.Failed() {
				return
			}
		}
		repeat = all
	}
}

// Share reports whether case i of a table runs. If FOREBAY_SEED is set or FOREBAY_TORTURE is above
// 1, all cases run. If not, the seed selects one of n consecutive cases, so that n consecutive
// seeds run all cases.
func Share(seed uint64, i, n int) bool {
	return Rounds(1, 2) > 1 || os.Getenv("FOREBAY_SEED") != "" || (seed+uint64(i))%uint64(n) == 0
}

// Rounds returns the number of cases of a test that repeats random cases. It is n, multiplied by
// FOREBAY_TORTURE if set, but at most the larger of n and most.
func Rounds(n, most int) int {
	text := os.Getenv("FOREBAY_TORTURE")
	if text == "" {
		return n
	}
	times, err := strconv.Atoi(text)
	if err != nil || times < 1 {
		panic("FOREBAY_TORTURE=" + text + " is not a positive number")
	}
	if times >= most/n { // the product might overflow
		return max(n, most)
	}
	return n * times
}
