package harness

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"
)

// Options configures a run.
type Options struct {
	// Count is the number of rounds.
	Count int
	// Benchtime is the approximate duration of a sample.
	Benchtime time.Duration
	// Seed determines the order of contenders in each round.
	Seed uint64
}

// Run measures one row: every contender once per round, in random order. If a contender fails, its
// error is reported and it is not measured again.
func Run(row Row, o Options) (*Result, error) {
	res := &Result{
		Name: row.Name, What: row.What, Target: row.target(), Unit: row.Unit,
		Reference: row.Reference, Date: time.Now().UTC().Truncate(time.Second),
	}
	if n := runtime.NumCPU(); n < row.MinCPU {
		res.Status = NotMeasured
		res.Checks = []Check{{Text: fmt.Sprintf("needs %d processors, this machine has %d", row.MinCPU, n), Status: NotMeasured}}
		return res, nil
	}
	dir, err := os.MkdirTemp("", "forebay-bench-*")
	if err != nil {
		return nil, fmt.Errorf("harness: cannot make a directory for files: %w", err)
	}
	defer os.RemoveAll(dir)
	env := &Env{Dir: dir, Benchtime: o.Benchtime}

	cols := make([]Column, len(row.Contenders))
	ops := make([]int, len(cols))
	for i := range row.Contenders {
		c := &row.Contenders[i]
		cols[i] = Column{Name: c.Name, Kind: c.Kind, Note: c.Note}
		if c.Faults != nil {
			cols[i].Invalid = c.Faults()
		}
		n, err := calibrate(&row, c, env)
		if err != nil {
			cols[i].Error = err.Error()
		}
		ops[i] = n
	}

	res.Rounds = min(o.Count, cmp.Or(row.MaxCount, o.Count))
	rnd := rand.New(rand.NewPCG(o.Seed, uint64(len(row.Name))))
	load := startLoadMeter()
	samples := make([][]*Sample, len(cols))
	for range res.Rounds {
		for _, i := range rnd.Perm(len(cols)) {
			if cols[i].Error != "" {
				continue
			}
			s, err := measure(&row, &row.Contenders[i], env, ops[i])
			if err != nil {
				cols[i].Error = err.Error()
				continue
			}
			samples[i] = append(samples[i], s)
		}
	}
	res.Others = load.others()
	for i := range cols {
		if cols[i].Error == "" {
			cols[i].fill(samples[i])
		}
	}
	res.Columns = cols
	res.finish(&row)
	return res, nil
}

// finish computes the ratios of all columns and the checks of the row.
func (r *Result) finish(row *Row) {
	ref, _ := r.Column(r.Reference)
	if r.Reference == "" {
		if ref = r.Fastest(true); ref != nil {
			r.Reference = ref.Name
		}
	}
	if ref != nil {
		for i := range r.Columns {
			if c := &r.Columns[i]; c.measured() {
				c.Ratio = Ratio(c, ref)
			}
		}
	}
	judge(row, r)
}
