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

// A Check is the result of a target.
type Check struct {
	Text   string  `json:"text"`  // the target and the measured figures in words, or the reason why there are none
	Got    float64 `json:"got"`   // the measured figure; 0 if not measured
	Limit  float64 `json:"limit"` // the largest value of Got that meets the target
	Status Status  `json:"status"`
	Aside  string  `json:"aside,omitempty"` // an additional remark
}

// A Target is a condition on the figures of a row.
type Target struct {
	text       string // the condition in words
	limit      float64
	contenders []string                             // names of the contenders that the condition needs
	measure    func(*Result, []*Column) measurement // computes the figure from the columns of these contenders
}

// A measurement is the figure to which a target applies, in numbers and in words.
type measurement struct {
	got         float64
	text, aside string
}

// fastest, as the name of a contender, selects the fastest competitor with valid output.
const fastest = "the fastest valid competitor"

// check returns the check of the target. If one of its contenders was not measured, the check has
// no figures.
func (t *Target) check(r *Result) Check {
	c := Check{Limit: t.limit, Status: NotMeasured}
	cols := make([]*Column, len(t.contenders))
	for i, name := range t.contenders {
		if name == fastest {
			cols[i], c.Text = r.Fastest(true), "no valid rival was measured"
		} else {
			cols[i], c.Text = r.Column(name)
		}
		if cols[i] == nil {
			return c
		}
	}
	m := t.measure(r, cols)
	c.Got, c.Text, c.Aside, c.Status = m.got, t.text+": "+m.text, m.aside, Short
	if m.got <= t.limit {
		c.Status = OK
	}
	return c
}

// Versus limits the ratio of the times of the contenders named ours and ref to factor.
func Versus(ours, ref string, factor float64) Target {
	return Target{fmt.Sprintf("%s ≤ %.3g × %s", ours, factor, ref), factor, []string{ours, ref}, func(r *Result, c []*Column) measurement {
		q := Ratio(c[0], c[1])
		var asides []string
		if r.Others >= busyShare && c[1].CPU > 0 {
			asides = append(asides, fmt.Sprintf("by processor time %.2f", c[0].CPU/c[1].CPU))
		}
		if any := r.Fastest(false); ref == fastest && any != c[1] {
			asides = append(asides, fmt.Sprintf("%.2f × %s, whose output is invalid (%s)", Ratio(c[0], any), any.Name, strings.Join(any.Invalid, "; ")))
		}
		return measurement{q, fmt.Sprintf("%.2f × %s", q, c[1].Name), strings.Join(asides, "; ")}
	}}
}

// VersusFastest is like Versus, and ref is the fastest competitor with valid output. If a competitor
// with invalid output is faster, the check mentions it.
func VersusFastest(ours string, factor float64) Target { return Versus(ours, fastest, factor) }

// CPUVersusFastest is like VersusFastest, but compares processor times.
func CPUVersusFastest(ours string, factor float64) Target {
	return Target{fmt.Sprintf("%s ≤ %.3g × %s by processor time", ours, factor, fastest), factor, []string{ours, fastest}, func(_ *Result, c []*Column) measurement {
		q := c[0].CPU / c[1].CPU
		return measurement{got: q, text: fmt.Sprintf("%.2f × %s", q, c[1].Name)}
	}}
}

// ShareVersusFastest is like VersusFastest, but first subtracts the time of the contender named
// floor from both times. The floor measures a cost that no contender can avoid, such as a call
// that does nothing.
func ShareVersusFastest(ours, floor string, factor float64) Target {
	text := fmt.Sprintf("%s ≤ %.3g × %s, both without %s", ours, factor, fastest, floor)
	return Target{text, factor, []string{ours, fastest, floor}, func(_ *Result, c []*Column) measurement {
		a, b, f := c[0].Values, c[1].Values, c[2].Values
		q := make([]float64, min(len(a), len(b), len(f)))
		for i := range q {
			q[i] = (a[i] - f[i]) / (b[i] - f[i])
		}
		share := Median(q)
		return measurement{got: share, text: fmt.Sprintf("%.2f × %s", share, c[1].Name)}
	}}
}

// A Metric is a figure of a contender to which AtMost and Above apply.
type Metric struct {
	name string // follows the name of the contender
	of   func(*Column) float64
}

var (
	Time       = Metric{"", func(c *Column) float64 { return c.Median }} // in the unit of the row
	Allocs     = Metric{" allocs/op", func(c *Column) float64 { return c.Allocs }}
	AllocBytes = Metric{" B/op", func(c *Column) float64 { return c.AllocBytes }}
)

// Figure returns the metric Sample.More[key].
func Figure(key string) Metric {
	return Metric{" " + key, func(c *Column) float64 { return c.More[key] }}
}

// AllocsSlack is tolerated as no allocation, because goroutines, timers and refilled pools allocate
// once per sample or garbage collection.
const AllocsSlack = 0.01

// ZeroAllocs requires that an operation does not allocate.
func ZeroAllocs(ours string) Target { return AtMost(ours, Allocs, AllocsSlack) }

// AtMost requires that the metric of the contender named ours is at most limit.
func AtMost(ours string, m Metric, limit float64) Target {
	return Target{fmt.Sprintf("%s%s ≤ %g", ours, m.name, limit), limit, []string{ours}, func(_ *Result, c []*Column) measurement {
		got := m.of(c[0])
		return measurement{got: got, text: figure(got)}
	}}
}

// Above requires that the metric of the contender named ours exceeds that of the one named ref by at
// most extra.
func Above(ours, ref string, m Metric, extra float64) Target {
	return Target{fmt.Sprintf("%s%s ≤ %s + %g", ours, m.name, ref, extra), extra, []string{ours, ref}, func(_ *Result, c []*Column) measurement {
		got, of := m.of(c[0]), m.of(c[1])
		return measurement{got: got - of, text: figure(got) + " and " + figure(of)}
	}}
}

// judge computes the checks and the status of a row. The status is Short if a check failed,
// otherwise NotMeasured if a check has no figures, and otherwise OK.
func judge(row *Row, r *Result) {
	for i := range row.Targets {
		r.Checks = append(r.Checks, row.Targets[i].check(r))
	}
	for _, c := range r.OfKind(Ours) {
		if len(c.Invalid) > 0 {
			r.Checks = append(r.Checks, Check{Text: c.Name + " writes invalid output: " + strings.Join(c.Invalid, "; "), Status: Short})
		}
	}
	r.Status = OK
	for _, c := range r.Checks {
		if c.Status == Short || c.Status == NotMeasured && r.Status == OK {
			r.Status = c.Status
		}
	}
}
