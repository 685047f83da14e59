package harness

import (
	"fmt"
	"regexp"
)

// Kind says what a contender is to the row.
type Kind uint8

const (
	Rival     Kind = iota // somebody else's way to do the row's job
	Ours                  // what the target is about
	Reference             // something to compare with that is no rival, such as a bare copy
)

// A Row is one line of the table. Rows are values: measuring does not change
// them.
type Row struct {
	// Name identifies the row in -rows and in the results. It begins with its
	// group, such as "json/message".
	Name string
	// What describes records and conditions, so that the row can be repeated.
	What string
	// Target is the goal in words.
	Target string
	// Unit is the unit of the main figure. Default "ns/op".
	Unit string
	// Reference names the contender of the ratio column. Empty: the fastest
	// valid rival.
	Reference string
	// Goroutines do the work of one sample together. Default 1.
	Goroutines int
	// MaxOps bounds the operations of one sample, for rows that fill files.
	// 0: only time bounds them.
	MaxOps int
	// Warm is the number of operations before the clock starts. The harness
	// counts their records too. Default 0.
	Warm int
	// MaxCount bounds the rounds of rows whose samples are long. 0: no bound.
	MaxCount int
	// MinCPU is the number of processors without which the row says nothing; on
	// fewer it is reported as not measured. Default 1.
	MinCPU int
	// Silent rows must leave no record at the destination, such as those below
	// the level.
	Silent bool

	Contenders []Contender
	// Verdict judges the medians of the contenders. It must not be nil.
	Verdict Verdict
}

// A Contender is one column of a row: how to do the job.
type Contender struct {
	Name string
	Kind Kind
	// Note says which idiom or setting is used.
	Note string
	// Faults checks the contender's output before anything is measured and
	// returns what is wrong with it. Nil: nothing to check. A contender with
	// faults is measured and shown, and is never "the fastest rival".
	Faults func() []string

	// New makes a subject for one sample. Exactly one of New and Sample is set.
	New func(*Env) (*Subject, error)
	// Sample takes a sample by itself, for rows that measure something else than
	// the time of an operation.
	Sample func(*Env) (*Sample, error)
}

// A Subject is a contender set up for one sample.
type Subject struct {
	// Run does n operations. With Row.Goroutines > 1 it is called from as many
	// goroutines at once, each with its worker number.
	Run func(worker, n int)
	// Drain flushes and closes the pipeline up to its destination. It is part
	// of the measured time. Nil: nothing to drain.
	Drain func() error
	// Tally says, after Drain, what reached the destination; the harness
	// compares the records with what it ordered. Not measured. Nil: the row has
	// no destination.
	Tally func() (Tally, error)
	// Close frees what the sample used. Not measured. May be nil.
	Close func() error
}

// Tally is what a destination received.
type Tally struct {
	Records uint64
	Bytes   uint64
}

var registry []Row

// Register adds rows to the table. It panics on a row that cannot be measured;
// call it from init.
func Register(rows ...Row) {
	for _, r := range rows {
		if err := r.validate(); err != nil {
			panic(err)
		}
		registry = append(registry, r)
	}
}

// Rows returns the registered rows whose names match re, all with nil, in the order of
// registration.
func Rows(re *regexp.Regexp) []Row {
	var rows []Row
	for _, r := range registry {
		if re == nil || re.MatchString(r.Name) {
			rows = append(rows, r)
		}
	}
	return rows
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
