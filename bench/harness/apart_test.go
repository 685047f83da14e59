package harness

import (
	"regexp"
	"testing"
)

// A row that is set apart is found by its name only.
func TestApart(t *testing.T) {
	old := registry
	defer func() { registry = old }()
	registry = nil
	row := func(name string, apart bool) Row {
		return Row{Name: name, Target: "t", Apart: apart, Verdict: ZeroAllocs("we"), Contenders: []Contender{{Name: "we", New: spin(0, 0)}}}
	}
	Register(row("slab/a", false), row("tried/b", true))
	if got := Rows(nil); len(got) != 1 || got[0].Name != "slab/a" {
		t.Errorf("without a name: %v", got)
	}
	if got := Rows(regexp.MustCompile("tried")); len(got) != 1 || got[0].Name != "tried/b" {
		t.Errorf("by its name: %v", got)
	}
}

func TestNeverSlower(t *testing.T) {
	verdict := NeverSlower([]string{"a", "b", "c", "missing"}, 1.05)
	r := &Result{}
	for _, c := range []struct {
		name  string
		value float64
	}{{"a", 100}, {"b", 104}, {"c", 120}} {
		r.Columns = append(r.Columns, Column{Name: c.name, Median: c.value, Values: []float64{c.value}})
	}
	var got []Status
	for _, c := range verdict(r) {
		got = append(got, c.Status)
	}
	if len(got) != 3 || got[0] != OK || got[1] != Short || got[2] != NotMeasured {
		t.Errorf("%v, want ok, short, not measured", got)
	}
}
