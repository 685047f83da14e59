package testkit

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns the seed of a random test: FOREBAY_SEED if that is set, else a
// new one. It is printed if the test fails.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("FOREBAY_SEED"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("FOREBAY_SEED=%q is no number", s)
		}
		seed = v
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat: FOREBAY_SEED=%d", seed)
		}
	})
	return seed
}

// Rand returns the random source of a seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15)) }

// Rounds returns n, or long when FOREBAY_TORTURE is set; a number above 1 there is
// a bound of long.
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
