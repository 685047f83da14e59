package harness

import (
	"fmt"
	"math"
	"strings"
)

// Status is the outcome of a check or row.
type Status string

const (
	OK          Status = "ok"
	Short       Status = "SHORT" // measured, and short of the target
	NotMeasured Status = "not measured"
)

// A Check is one condition of a row's target.
type Check struct {
	Text   string  `json:"text"`            // condition and finding in words
	Got    float64 `json:"got"`             // 0 when not measured
	Limit  float64 `json:"limit"`           // got must not exceed it
	Status Status  `json:"status"`          //
	Aside  string  `json:"aside,omitempty"` // what a reader should know beside it
}

// atMost returns the check got ≤ limit.
func atMost(got, limit float64, text string) Check {
	c := Check{Text: text, Got: got, Limit: limit, Status: OK}
	if !(got <= limit) {
		c.Status = Short
	}
	return c
}

// missing returns a check that could not be made.
func missing(limit float64, why string) Check {
	return Check{Text: why, Limit: limit, Status: NotMeasured}
}

// Verdict joins verdicts into one.
func Verdict(vs ...func(*Result) []Check) func(*Result) []Check {
	return func(r *Result) []Check {
		var out []Check
		for _, v := range vs {
			out = append(out, v(r)...)
		}
		return out
	}
}

// VersusFastest requires ours ≤ factor × the fastest valid rival. Where a rival
// with faulty output is faster still, the check says so beside it.
func VersusFastest(ours string, factor float64) func(*Result) []Check {
	return func(r *Result) []Check {
		ref := r.Fastest(true)
		if ref == nil {
			return []Check{missing(factor, "no valid rival was measured")}
		}
		c := versus(r, ours, ref.Name, factor)
		if any := r.Fastest(false); c.Status != NotMeasured && any != ref {
			c.Aside = join(c.Aside, fmt.Sprintf("%.2f × %s, whose output is invalid (%s)",
				ratio(r.Column(ours), any), any.Name, strings.Join(any.Invalid, "; ")))
		}
		return []Check{c}
	}
}

// CPUVersusFastest requires that the processor time of ours is at most factor × that of the fastest
// valid rival.
func CPUVersusFastest(ours string, factor float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a, ref := r.Column(ours), r.Fastest(true)
		if a == nil {
			return []Check{missing(factor, r.failure(ours))}
		}
		if ref == nil || ref.CPU == 0 {
			return []Check{missing(factor, "no valid rival was measured")}
		}
		q := a.CPU / ref.CPU
		return []Check{atMost(q, factor, fmt.Sprintf("%s %.2f × %s by processor time (target ≤ %.2f)", ours, q, ref.Name, factor))}
	}
}

// ShareVersusFastest requires that what ours takes beyond floor is at most factor × what the
// fastest valid rival takes beyond it. Floor is what nobody can avoid, such as a call that
// does nothing.
func ShareVersusFastest(ours, floor string, factor float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a, b, f := r.Column(ours), r.Fastest(true), r.Column(floor)
		switch {
		case a == nil:
			return []Check{missing(factor, r.failure(ours))}
		case b == nil:
			return []Check{missing(factor, "no valid rival was measured")}
		case f == nil:
			return []Check{missing(factor, r.failure(floor))}
		}
		q := make([]float64, min(len(a.Values), len(b.Values), len(f.Values)))
		for i := range q {
			q[i] = (a.Values[i] - f.Values[i]) / (b.Values[i] - f.Values[i])
		}
		share := Median(q)
		return []Check{atMost(share, factor, fmt.Sprintf("beyond %s %s takes %.2f × %s (target ≤ %.2f)", floor, ours, share, b.Name, factor))}
	}
}

// Versus requires ours ≤ factor × the contender ref.
func Versus(ours, ref string, factor float64) func(*Result) []Check {
	return func(r *Result) []Check { return []Check{versus(r, ours, ref, factor)} }
}

// NeverSlower requires that each of the contenders named takes at most factor ×
// the one before it.
func NeverSlower(names []string, factor float64) func(*Result) []Check {
	return func(r *Result) (checks []Check) {
		for i := 1; i < len(names); i++ {
			checks = append(checks, versus(r, names[i], names[i-1], factor))
		}
		return checks
	}
}

func versus(r *Result, ours, ref string, factor float64) Check {
	a, b := r.Column(ours), r.Column(ref)
	switch {
	case a == nil:
		return missing(factor, r.failure(ours))
	case b == nil:
		return missing(factor, r.failure(ref))
	}
	q := ratio(a, b)
	c := atMost(q, factor, fmt.Sprintf("%s %.2f × %s (target ≤ %.2f)", ours, q, ref, factor))
	if r.Others >= busyShare && b.CPU > 0 {
		c.Aside = fmt.Sprintf("by processor time %.2f", a.CPU/b.CPU)
	}
	return c
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func ratio(a, b *Column) float64 { return Median(ratios(a.Values, b.Values)) }

// allocsSlack forgives what goroutines, timers and refilled pools allocate once
// per sample or collection.
const allocsSlack = 0.01

// ZeroAllocs requires that ours allocates nothing per operation.
func ZeroAllocs(ours string) func(*Result) []Check { return Allocs(ours, 0) }

// Allocs requires at most so many allocations per operation.
func Allocs(ours string, limit float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a := r.Column(ours)
		if a == nil {
			return []Check{missing(limit, r.failure(ours))}
		}
		return []Check{atMost(a.Allocs, max(limit, allocsSlack), fmt.Sprintf("%s %.2f allocs/op (target ≤ %g)", ours, a.Allocs, limit))}
	}
}

// AllocBytes requires at most so many allocated bytes per operation.
func AllocBytes(ours string, limit float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a := r.Column(ours)
		if a == nil {
			return []Check{missing(limit, r.failure(ours))}
		}
		return []Check{atMost(a.AllocBytes, limit, fmt.Sprintf("%s %.1f B/op allocated (target ≤ %g)", ours, a.AllocBytes, limit))}
	}
}

// AtMost requires that the main figure of ours is at most limit.
func AtMost(ours string, limit float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a := r.Column(ours)
		if a == nil {
			return []Check{missing(limit, r.failure(ours))}
		}
		return []Check{atMost(a.Median, limit, fmt.Sprintf("%s %s %s (target ≤ %g)", ours, figure(a.Median), r.Unit, limit))}
	}
}

// Steady requires that the slowest round of ours takes at most factor × the median.
func Steady(ours string, factor float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a := r.Column(ours)
		if a == nil {
			return []Check{missing(factor, r.failure(ours))}
		}
		got := a.Max / a.Median
		return []Check{atMost(got, factor, fmt.Sprintf("%s: slowest of %d rounds %.2f × the median (target ≤ %g)", ours, len(a.Values), got, factor))}
	}
}

// Difference requires that ours takes at most extra units more than ref, both as
// medians.
func Difference(ours, ref string, extra float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a, b := r.Column(ours), r.Column(ref)
		if a == nil {
			return []Check{missing(extra, r.failure(ours))}
		}
		if b == nil {
			return []Check{missing(extra, r.failure(ref))}
		}
		d := a.Median - b.Median
		return []Check{atMost(d, extra, fmt.Sprintf("%s %s %s more than %s (target ≤ %g)", ours, figure(d), r.Unit, ref, extra))}
	}
}

// Figure requires that the further figure key of ours is at most limit.
func Figure(ours, key string, limit float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a := r.Column(ours)
		if a == nil {
			return []Check{missing(limit, r.failure(ours))}
		}
		return []Check{atMost(a.More[key], limit, fmt.Sprintf("%s %s %s (target ≤ %g)", ours, key, figure(a.More[key]), limit))}
	}
}

// FigureVersusRivals requires that the further figure key of ours is at most factor × the lowest of
// the rivals.
func FigureVersusRivals(ours, key string, factor float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a := r.Column(ours)
		if a == nil {
			return []Check{missing(factor, r.failure(ours))}
		}
		lowest := math.Inf(1)
		for i := range r.Columns {
			if c := &r.Columns[i]; c.kind == Rival && c.measured() {
				lowest = min(lowest, c.More[key])
			}
		}
		if math.IsInf(lowest, 1) {
			return []Check{missing(factor, "no rival was measured")}
		}
		return []Check{atMost(a.More[key], factor*lowest, fmt.Sprintf("%s %s %s (target ≤ %g × %s)", ours, key, figure(a.More[key]), factor, figure(lowest)))}
	}
}

// FigureVersus requires that the further figure key of ours is at most that of
// ref plus extra, both taken as medians over the rounds.
func FigureVersus(ours, ref, key string, extra float64) func(*Result) []Check {
	return func(r *Result) []Check {
		a, b := r.Column(ours), r.Column(ref)
		if a == nil {
			return []Check{missing(0, r.failure(ours))}
		}
		if b == nil {
			return []Check{missing(0, r.failure(ref))}
		}
		limit := b.More[key] + extra
		return []Check{atMost(a.More[key], limit,
			fmt.Sprintf("%s %s %s (target ≤ %s's %s + %g)", ours, key, figure(a.More[key]), ref, figure(b.More[key]), extra))}
	}
}

// judge runs the row's verdict and sums it up: one unmet check makes the row
// short, else one missing makes it not measured.
func judge(row *Row, r *Result) {
	r.Checks = row.Verdict(r)
	for _, c := range r.Ours() {
		if len(c.Invalid) > 0 {
			r.Checks = append(r.Checks, Check{Text: c.Name + " writes invalid output: " + strings.Join(c.Invalid, "; "), Status: Short})
		}
	}
	r.Status = OK
	if len(r.Checks) == 0 {
		r.Status = NotMeasured
	}
	for _, c := range r.Checks {
		switch {
		case c.Status == Short:
			r.Status = Short
		case c.Status == NotMeasured && r.Status == OK:
			r.Status = NotMeasured
		}
	}
}
