package harness

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is the role of a contender in a row.
type Kind string

const (
	Rival     Kind = "rival"     // a competitor of forebay
	Ours      Kind = "ours"      // the contender to which the target applies
	Reference Kind = "reference" // a contender for comparison that is not a competitor, such as a bare copy
)

// A Row is one line of the table. Measuring a row does not change it.
type Row struct {
	Name       string // group and name, such as "json/message"
	What       string // description of the records and conditions
	Unit       string // unit of the main figure; default "ns/op"
	Reference  string // name of the contender to which ratios refer; default: the fastest competitor with valid output
	Goroutines int    // number of goroutines that execute the operations of a sample; default 1, see also Contender
	MaxOps     int    // maximum number of operations in a sample, for rows that fill files; 0: no limit
	Warm       int    // number of operations before each sample that are not measured; their records count in the tally
	MaxCount   int    // maximum number of rounds, for long samples; 0: no limit
	MinCPU     int    // number of processors that the row requires; default 1
	Silent     bool   // the row requires that no record reaches the destination

	Contenders []Contender
	Targets    []Target
}

// A Contender is one column of a row.
type Contender struct {
	Name string
	Kind Kind
	Note string // description of its settings
	// Goroutines replaces Row.Goroutines, for rows that compare numbers of goroutines.
	Goroutines int
	// Faults returns the defects of the contender's output. It is called before the measurement. A
	// contender with defects is measured and shown, but never counts as the fastest competitor.
	// Faults may be nil.
	Faults func() []string

	// New returns a subject for one sample. Exactly one of New and Sample is set.
	New func(*Env) (*Subject, error)
	// Sample takes a sample whose value is not the time of an operation.
	Sample func(*Env) (*Sample, error)
}

// A Subject is a contender that is set up for one sample. Calls of Tally and Close are not
// measured.
type Subject struct {
	// Run executes n operations. Several goroutines call it concurrently, each with its worker
	// number.
	Run func(worker, n int)
	// Drain flushes and closes the pipeline up to its destination. Its time is part of the measured
	// time. Drain may be nil.
	Drain func() error
	// Tally returns the numbers of records and bytes that the destination has received. It is
	// called after Drain. The harness compares the records with the number of operations. Tally is
	// nil if the row has no destination.
	Tally func() (Tally, error)
	// Close frees the memory and removes the files of the sample. It may be nil.
	Close func() error
}

// Tally counts records and bytes at a destination.
type Tally struct {
	Records uint64
	Bytes   uint64
}

var registry []Row

// Register adds rows to the table. It is called by init functions. It panics if a name is used twice
// or the reference does not exist, because results would then be attributed to the wrong contender.
func Register(rows ...Row) {
	for _, r := range rows {
		names := map[string]bool{"": true}
		for _, c := range r.Contenders {
			if names[c.Name] {
				panic(fmt.Sprintf("harness: row %q has two contenders %q", r.Name, c.Name))
			}
			names[c.Name] = true
		}
		if !names[r.Reference] || slices.ContainsFunc(registry, func(o Row) bool { return o.Name == r.Name }) {
			panic(fmt.Sprintf("harness: there are two rows %q, or it has no contender %q", r.Name, r.Reference))
		}
		r.Unit = cmp.Or(r.Unit, "ns/op")
		registry = append(registry, r)
	}
}

// target returns the targets in words.
func (r *Row) target() string {
	texts := make([]string, len(r.Targets))
	for i, t := range r.Targets {
		texts[i] = t.text
	}
	return strings.Join(texts, "; ")
}
