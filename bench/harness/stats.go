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

// Ratio returns the time of a relative to the time of b: the median of the quotients of the rounds,
// so that a slow round does not affect it. Rounds that only one of them has are ignored.
func Ratio(a, b *Column) float64 {
	q := make([]float64, min(len(a.Values), len(b.Values)))
	for i := range q {
		q[i] = a.Values[i] / b.Values[i]
	}
	return Median(q)
}
