package testkit

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns the seed of a random test: FOREBAY_SEED or FOREBAY_SEEDS if set, or else a new one.
// The seed is printed if the test fails.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, _ := Seeds(t, 1)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat: FOREBAY_SEED=%d", seed)
		}
	})
	return seed
}

// Seeds returns the first seed of a test with n random walks, which use consecutive seeds. It is
// FOREBAY_SEEDS if set, otherwise random. If FOREBAY_SEED is set, there is one walk with that seed.
func Seeds(t testing.TB, n int) (first uint64, walks int) {
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

// Share reports whether case i of a table runs. With FOREBAY_TORTURE or FOREBAY_SEED all cases run.
// Otherwise one of n consecutive cases runs. The seed selects it, so that n consecutive seeds run
// all cases.
func Share(seed uint64, i, n int) bool {
	return Rounds(1, 2) > 1 || os.Getenv("FOREBAY_SEED") != "" || (seed+uint64(i))%uint64(n) == 0
}

// Rounds returns n, or long if FOREBAY_TORTURE is set. If FOREBAY_TORTURE is a number above 1, the
// result is at most that number.
func Rounds(n, long int) int {
	text := os.Getenv("FOREBAY_TORTURE")
	if text == "" {
		return n
	}
	if most, err := strconv.Atoi(text); err == nil && most > 1 {
		return max(n, min(long, most))
	}
	return long
}
