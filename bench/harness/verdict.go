package harness

import (
	"fmt"
	"strings"
)

// Status is the outcome of a check or of a row.
type Status string

const (
	OK          Status = "ok"
	Short       Status = "SHORT" // measured, but the target is not met
	NotMeasured Status = "not measured"
)

// A Check is one condition of a row's target.
type Check struct {
	Text   string  `json:"text"`  // the condition and the measured figures in words
	Got    float64 `json:"got"`   // the measured figure; 0 if not measured
	Limit  float64 `json:"limit"` // the largest value of Got that meets the condition
	Status Status  `json:"status"`
	Aside  string  `json:"aside,omitempty"` // an additional remark
}

// A Verdict returns the checks of a measured row.
type Verdict func(*Result) []Check

// All returns a verdict with the checks of all vs.
func All(vs ...Verdict) Verdict {
	return func(r *Result) (out []Check) {
		for _, v := range vs {
			out = append(out, v(r)...)
		}
		return out
	}
}

// atMost returns the check that got is at most limit.
func atMost(got, limit float64, format string, args ...any) Check {
	c := Check{Text: fmt.Sprintf(format, args...), Got: got, Limit: limit, Status: OK}
	if !(got <= limit) {
		c.Status = Short
	}
	return c
}

// missing returns a check whose figures were not measured. why is the reason.
func missing(limit float64, why string) Check {
	return Check{Text: why, Limit: limit, Status: NotMeasured}
}

// fastest, among the names passed to needs, selects the fastest competitor with valid output.
const fastest = ""

// needs returns a verdict with one check, which f computes from the columns of the named
// contenders. If one of them was not measured, the check has no figures.
func needs(limit float64, f func(r *Result, c []*Column) Check, names ...string) Verdict {
	return func(r *Result) []Check {
		cols := make([]*Column, len(names))
		for i, name := range names {
			why := "no valid rival was measured"
			if name == fastest {
				cols[i] = r.Fastest(true)
			} else {
				cols[i], why = r.Column(name), r.failure(name)
			}
			if cols[i] == nil {
				return []Check{missing(limit, why)}
			}
		}
		return []Check{f(r, cols)}
	}
}

// Versus requires that the time of ours is at most factor times the time of the contender ref.
func Versus(ours, ref string, factor float64) Verdict {
	return needs(factor, func(r *Result, c []*Column) Check {
		q := Ratio(c[0], c[1])
		check := atMost(q, factor, "%s %.2f × %s (target ≤ %.2f)", ours, q, c[1].Name, factor)
		if r.Others >= busyShare && c[1].CPU > 0 {
			check.Aside = fmt.Sprintf("by processor time %.2f", c[0].CPU/c[1].CPU)
		}
		return check
	}, ours, ref)
}

// VersusFastest requires that the time of ours is at most factor times the time of the fastest
// competitor with valid output. If a competitor with invalid output is faster, the check mentions
// it.
func VersusFastest(ours string, factor float64) Verdict {
	versus := Versus(ours, fastest, factor)
	return func(r *Result) []Check {
		checks := versus(r)
		if any := r.Fastest(false); checks[0].Status != NotMeasured && any != r.Fastest(true) {
			text := fmt.Sprintf("%.2f × %s, whose output is invalid (%s)", Ratio(r.Column(ours), any), any.Name, strings.Join(any.Invalid, "; "))
			checks[0].Aside = strings.TrimPrefix(checks[0].Aside+"; "+text, "; ")
		}
		return checks
	}
}

// CPUVersusFastest is like VersusFastest, but compares processor times.
func CPUVersusFastest(ours string, factor float64) Verdict {
	return needs(factor, func(_ *Result, c []*Column) Check {
		q := c[0].CPU / c[1].CPU
		return atMost(q, factor, "%s %.2f × %s by processor time (target ≤ %.2f)", ours, q, c[1].Name, factor)
	}, ours, fastest)
}

// ShareVersusFastest is like VersusFastest, but first subtracts the time of the contender floor
// from both times. The contender floor measures a cost that no contender can avoid, such as a call
// that does nothing.
func ShareVersusFastest(ours, floor string, factor float64) Verdict {
	return needs(factor, func(_ *Result, c []*Column) Check {
		a, b, f := c[0].Values, c[1].Values, c[2].Values
		q := make([]float64, min(len(a), len(b), len(f)))
		for i := range q {
			q[i] = (a[i] - f[i]) / (b[i] - f[i])
		}
		share := Median(q)
		return atMost(share, factor, "beyond %s %s takes %.2f × %s (target ≤ %.2f)", floor, ours, share, c[1].Name, factor)
	}, ours, fastest, floor)
}

// Ratio returns the time of a relative to the time of b: the median of the quotients of the rounds.
func Ratio(a, b *Column) float64 { return Median(ratios(a.Values, b.Values)) }

// allocsSlack is tolerated above the limit, because goroutines, timers and refilled pools allocate
// once per sample or garbage collection.
const allocsSlack = 0.01

// ZeroAllocs requires that an operation does not allocate.
func ZeroAllocs(ours string) Verdict { return Allocs(ours, 0) }

// Allocs requires that an operation makes at most limit allocations.
func Allocs(ours string, limit float64) Verdict {
	return needs(limit, func(_ *Result, c []*Column) Check {
		return atMost(c[0].Allocs, max(limit, allocsSlack), "%s %.2f allocs/op (target ≤ %g)", ours, c[0].Allocs, limit)
	}, ours)
}

// AllocBytes requires that an operation allocates at most limit bytes.
func AllocBytes(ours string, limit float64) Verdict {
	return needs(limit, func(_ *Result, c []*Column) Check {
		return atMost(c[0].AllocBytes, limit, "%s %.1f B/op allocated (target ≤ %g)", ours, c[0].AllocBytes, limit)
	}, ours)
}

// AtMost requires that the median of the contender is at most limit.
func AtMost(ours string, limit float64) Verdict {
	return needs(limit, func(r *Result, c []*Column) Check {
		return atMost(c[0].Median, limit, "%s %s %s (target ≤ %g)", ours, figure(c[0].Median), r.Unit, limit)
	}, ours)
}

// Difference requires that the median of ours is at most extra units larger than the median of ref.
func Difference(ours, ref string, extra float64) Verdict {
	return needs(extra, func(r *Result, c []*Column) Check {
		d := c[0].Median - c[1].Median
		return atMost(d, extra, "%s %s %s more than %s (target ≤ %g)", ours, figure(d), r.Unit, ref, extra)
	}, ours, ref)
}

// Figure requires that the figure key in More is at most limit.
func Figure(ours, key string, limit float64) Verdict {
	return needs(limit, func(_ *Result, c []*Column) Check {
		return atMost(c[0].More[key], limit, "%s %s %s (target ≤ %g)", ours, key, figure(c[0].More[key]), limit)
	}, ours)
}

// FigureVersus requires that the figure key in More is at most the same figure of ref plus extra.
func FigureVersus(ours, ref, key string, extra float64) Verdict {
	return needs(0, func(_ *Result, c []*Column) Check {
		got, of := c[0].More[key], c[1].More[key]
		return atMost(got, of+extra, "%s %s %s (target ≤ %s's %s + %g)", ours, key, figure(got), ref, figure(of), extra)
	}, ours, ref)
}

// judge computes the checks and the status of a row. The status is Short if a check is not met,
// NotMeasured if none is unmet but one has no figures, and OK if all are met.
func judge(row *Row, r *Result) {
	r.Checks = row.Verdict(r)
	for _, c := range r.columns(func(c *Column) bool { return c.kind == Ours && len(c.Invalid) > 0 }) {
		r.Checks = append(r.Checks, Check{Text: c.Name + " writes invalid output: " + strings.Join(c.Invalid, "; "), Status: Short})
	}
	r.Status = OK
	if len(r.Checks) == 0 {
		r.Status = NotMeasured
	}
	for _, c := range r.Checks {
		if c.Status == Short || c.Status == NotMeasured && r.Status == OK {
			r.Status = c.Status
		}
	}
}
