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
// The seed is printed if the test fails or exceeds the time limit of the process.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, _ := seeds(t, 1)
	printed := unfinished.add(t, "FOREBAY_SEED", seed)
	t.Cleanup(func() {
		if unfinished.remove(printed); t.Failed() {
			t.Log("to repeat: " + printed.repeat)
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
// prints its seed. The seed is also printed if the walk exceeds the time limit of the process.
// Walks skips the test if FOREBAY_TORTURE is 0.
func Walks(t testing.TB, n int) iter.Seq[uint64] {
	t.Helper()
	first, walks := seeds(t, Rounds(t, n, math.MaxInt))
	return func(yield func(uint64) bool) {
		printed := unfinished.add(t, "FOREBAY_SEEDS", first) // this seed repeats all walks
		t.Cleanup(func() {
			if unfinished.remove(printed); t.Failed() {
				t.Log("to repeat: " + printed.repeat)
			}
		})
		for i := range uint64(walks) {
			unfinished.set(printed, "FOREBAY_SEED", first+i)
			if !yield(first+i) || t.Failed() {
				return
			}
		}
		unfinished.set(printed, "FOREBAY_SEEDS", first)
	}
}

// Share reports whether case i of a table runs. If FOREBAY_SEED is set or FOREBAY_TORTURE is above
// 1, all cases run. If not, the seed selects one of n consecutive cases, so that n consecutive
// seeds run all cases.
func Share(seed uint64, i, n int) bool {
	return Scale(1, 2) > 1 || os.Getenv("FOREBAY_SEED") != "" || (seed+uint64(i))%uint64(n) == 0
}

// Rounds returns the number of cases of a test that repeats random cases. It is n, multiplied by
// FOREBAY_TORTURE if set, but at most the larger of n and most. Rounds skips the test if
// FOREBAY_TORTURE is 0.
func Rounds(t testing.TB, n, most int) int {
	t.Helper()
	if torture() == 0 {
		t.Skip("FOREBAY_TORTURE=0 skips random walks")
	}
	return Scale(n, most)
}

// Scale is like Rounds, for a number that does not count random cases. If FOREBAY_TORTURE is 0, it
// returns n instead of skipping the test.
func Scale(n, most int) int {
	times := torture()
	switch {
	case times == 0:
		return n
	case times >= most/n: // the product might overflow
		return max(n, most)
	default:
		return n * times
	}
}

// torture returns the value of FOREBAY_TORTURE, or 1 if it is not set.
func torture() int {
	text := os.Getenv("FOREBAY_TORTURE")
	if text == "" {
		return 1
	}
	times, err := strconv.Atoi(text)
	if err != nil || times < 0 {
		panic("FOREBAY_TORTURE=" + text + " is neither 0 nor a positive number")
	}
	return times
}
