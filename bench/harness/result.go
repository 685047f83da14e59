package harness

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Result contains the results of one measured row.
type Result struct {
	Name      string `json:"name"`
	What      string `json:"what,omitempty"`
	Target    string `json:"target"`
	Unit      string `json:"unit"`
	Reference string `json:"reference"` // name of the contender to which ratios refer
	Rounds    int    `json:"rounds"`
	// Others is the share of processor time, 0 to 1, that other processes used while the row was
	// measured. It is -1 if the share is unknown.
	Others  float64   `json:"others"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Machine Machine   `json:"machine"`
	Status  Status    `json:"status"`
	Checks  []Check   `json:"checks"`
	Columns []Column  `json:"contenders"`
}

// A Column contains the figures of one contender, as medians over the rounds.
type Column struct {
	Name    string   `json:"name"`
	Kind    Kind     `json:"kind"`
	Note    string   `json:"note,omitempty"`
	Invalid []string `json:"invalid,omitempty"` // defects of the contender's output
	Error   string   `json:"error,omitempty"`   // reason why there are no figures

	Median      float64            `json:"median"`
	MAD         float64            `json:"mad"`
	Min         float64            `json:"min"`
	Max         float64            `json:"max"`
	CPU         float64            `json:"cpu"` // processor time per operation in ns
	Allocs      float64            `json:"allocs"`
	AllocBytes  float64            `json:"allocBytes"`
	RecordBytes float64            `json:"recordBytes,omitempty"`
	More        map[string]float64 `json:"more,omitempty"`
	Ratio       float64            `json:"ratio,omitempty"` // ratio to Result.Reference, the median over the rounds
	Values      []float64          `json:"values"`          // one value per round
}

// measured reports whether the contender has figures.
func (c *Column) measured() bool { return c.Error == "" && len(c.Values) > 0 }

// fill computes the figures of the column from its samples.
func (c *Column) fill(samples []*Sample) {
	pick := func(f func(*Sample) float64) []float64 {
		v := make([]float64, len(samples))
		for i, s := range samples {
			v[i] = f(s)
		}
		return v
	}
	c.Values = pick(func(s *Sample) float64 { return s.Value })
	c.Median, c.MAD = Median(c.Values), MAD(c.Values)
	c.Min, c.Max = slices.Min(c.Values), slices.Max(c.Values)
	c.CPU = Median(pick(func(s *Sample) float64 { return s.CPU }))
	c.Allocs = Median(pick(func(s *Sample) float64 { return s.Allocs }))
	c.AllocBytes = Median(pick(func(s *Sample) float64 { return s.AllocBytes }))
	c.RecordBytes = Median(pick(func(s *Sample) float64 { return s.RecordBytes }))
	for k := range samples[0].More {
		if c.More == nil {
			c.More = map[string]float64{}
		}
		c.More[k] = Median(pick(func(s *Sample) float64 { return s.More[k] }))
	}
}

// Column returns the column of the contender with the given name. If it has no figures, Column
// returns nil and the reason.
func (r *Result) Column(name string) (c *Column, reason string) {
	for i := range r.Columns {
		if c := &r.Columns[i]; c.Name == name && c.measured() {
			return c, ""
		} else if c.Name == name {
			return nil, fmt.Sprintf("%s: %s", name, c.Error)
		}
	}
	return nil, name + ": not measured"
}

// Fastest returns the column of the fastest competitor, or nil. If valid is true, competitors whose
// output has defects are ignored.
func (r *Result) Fastest(valid bool) *Column {
	rivals := r.OfKind(Rival)
	if valid {
		rivals = slices.DeleteFunc(rivals, func(c *Column) bool { return len(c.Invalid) > 0 })
	}
	if len(rivals) == 0 {
		return nil
	}
	return slices.MinFunc(rivals, func(a, b *Column) int { return cmp.Compare(a.Median, b.Median) })
}

// OfKind returns the columns of the measured contenders of a kind.
func (r *Result) OfKind(kind Kind) (out []*Column) {
	for i := range r.Columns {
		if c := &r.Columns[i]; c.measured() && c.Kind == kind {
			out = append(out, c)
		}
	}
	return out
}
