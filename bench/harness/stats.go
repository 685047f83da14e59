package harness

import (
	"math"
	"slices"
)

// Median returns the median of v. For an even number of values, it is the mean of the two middle
// values. For no values, it is NaN.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

// MAD returns the median absolute deviation of v from its median.
func MAD(v []float64) float64 {
	m := Median(v)
	d := make([]float64, len(v))
	for i, x := range v {
		d[i] = math.Abs(x - m)
	}
	return Median(d)
}

// ratios divides each value of a by the value of b in the same round, so that a slow round does not
// affect the ratio. If one slice is longer, its further rounds are ignored.
func ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}
