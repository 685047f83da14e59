package harness

import "fmt"

// Kind is the role of a contender in a row.
type Kind uint8

const (
	Rival     Kind = iota // a competitor
	Ours                  // the subject of the target
	Reference             // a control that is no competitor, such as a bare copy
)

// A Row is one line of the table. Measuring does not change it.
type Row struct {
	Name       string // group and name, such as "json/message"
	What       string // records and conditions
	Target     string // text of the target
	Unit       string // of the main figure; default "ns/op"
	Reference  string // contender of the ratio column; default: the fastest valid rival
	Goroutines int    // number of goroutines that share the work of a sample; default 1
	MaxOps     int    // largest number of operations in a sample, for rows that fill files; 0: no limit
	Warm       int    // number of unmeasured operations before a sample; their records count
	MaxCount   int    // largest number of rounds, for long samples; 0: no limit
	MinCPU     int    // number of processors that the row requires; default 1
	Silent     bool   // requires that no record reaches the destination

	Contenders []Contender
	Verdict    Verdict // required
}

// A Contender is one column of a row.
type Contender struct {
	Name string
	Kind Kind
	Note string // idiom or settings
	// Faults returns the defects of the contender's output. It is called before the measurement. A
	// contender with defects is measured and shown, but is never the fastest valid rival. May be nil.
	Faults func() []string

	// New returns a subject for one sample. Exactly one of New and Sample is set.
	New func(*Env) (*Subject, error)
	// Sample returns a sample that is not the time of an operation.
	Sample func(*Env) (*Sample, error)
}

// A Subject is a contender that is ready for one sample. Tally and Close are not measured.
type Subject struct {
	// Run does n operations. With Row.Goroutines > 1 it is called by as many goroutines concurrently,
	// each with its worker number.
	Run func(worker, n int)
	// Drain flushes and closes the pipeline up to its destination. It is part of the measured time.
	// May be nil.
	Drain func() error
	// Tally returns the records and bytes at the destination after Drain. The harness compares them
	// with the operations. Nil: the row has no destination.
	Tally func() (Tally, error)
	// Close frees the memory and files of the sample. May be nil.
	Close func() error
}

// Tally counts records and bytes at a destination.
type Tally struct {
	Records uint64
	Bytes   uint64
}

var registry []Row

// Register adds rows to the table. It is called from init and panics on an invalid row.
func Register(rows ...Row) {
	for _, r := range rows {
		if err := r.validate(); err != nil {
			panic(err)
		}
		registry = append(registry, r)
	}
}

func (r *Row) validate() error {
	if r.Name == "" || r.Target == "" || r.Verdict == nil || len(r.Contenders) == 0 {
		return fmt.Errorf("harness: row %q lacks a name, target, verdict or contenders", r.Name)
	}
	seen := map[string]bool{}
	for _, c := range r.Contenders {
		if (c.New == nil) == (c.Sample == nil) {
			return fmt.Errorf("harness: row %q: contender %q needs one of New and Sample", r.Name, c.Name)
		}
		if seen[c.Name] {
			return fmt.Errorf("harness: row %q has two contenders %q", r.Name, c.Name)
		}
		seen[c.Name] = true
	}
	if r.Reference != "" && !seen[r.Reference] {
		return fmt.Errorf("harness: row %q refers to %q, which it does not have", r.Name, r.Reference)
	}
	for _, o := range registry {
		if o.Name == r.Name {
			return fmt.Errorf("harness: two rows are called %q", r.Name)
		}
	}
	return nil
}

func (r *Row) goroutines() int { return max(r.Goroutines, 1) }

func (r *Row) unit() string {
	if r.Unit == "" {
		return "ns/op"
	}
	return r.Unit
}
