package experiments

import (
	"testing"

	h "github.com/forebay-log/forebay/bench/harness"
)

// The row is judged from step to step, and against the one lock.
func TestScaleVerdict(t *testing.T) {
	row := scaleRow()
	for _, c := range []struct {
		name        string
		one, shards [5]float64 // ns/op at 4, 8, 16, 32, 64
		want        []h.Status
	}{
		{"scales", [5]float64{50, 60, 80, 90, 90}, [5]float64{40, 30, 30, 31, 30}, []h.Status{h.OK, h.OK, h.OK, h.OK, h.OK}},
		{"falls at 32", [5]float64{50, 60, 80, 90, 90}, [5]float64{40, 30, 20, 22, 22}, []h.Status{h.OK, h.OK, h.Short, h.OK, h.OK}},
		{"no gain at 16", [5]float64{50, 50, 50, 50, 50}, [5]float64{40, 30, 30, 30, 30}, []h.Status{h.OK, h.OK, h.OK, h.OK, h.Short}},
	} {
		r := &h.Result{Unit: "ns/op"}
		for i, g := range scaleSteps {
			r.Columns = append(r.Columns,
				h.Column{Name: scaleName(shipped, g), Median: c.one[i], Values: []float64{c.one[i]}},
				h.Column{Name: scaleName(lanesMany, g), Median: c.shards[i], Values: []float64{c.shards[i]}})
		}
		checks := row.Verdict(r)
		if len(checks) != len(c.want) {
			t.Fatalf("%s: %d checks, want %d", c.name, len(checks), len(c.want))
		}
		for i, got := range checks {
			if got.Status != c.want[i] {
				t.Errorf("%s: check %d is %s, want %s: %s", c.name, i, got.Status, c.want[i], got.Text)
			}
		}
	}
	for _, c := range row.Verdict(new(h.Result)) {
		if c.Status != h.NotMeasured {
			t.Errorf("nothing was measured, and %s: %s", c.Status, c.Text)
		}
	}
}
