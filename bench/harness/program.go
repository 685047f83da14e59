package harness

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"
)

// Program is the main function of a program that measures the registered rows, and returns its exit
// code. out is the default file for results, and benchtime the default duration of a sample.
func Program(out string, benchtime time.Duration) int {
	rows := flag.String("rows", "", "measure only rows whose names match this `regexp` (default: all)")
	list := flag.Bool("list", false, "list rows and targets, measure nothing")
	to := flag.String("out", out, "write results to this `file`; empty: nowhere")
	var o Options
	flag.IntVar(&o.Count, "count", 10, "rounds: samples of each contender")
	flag.DurationVar(&o.Benchtime, "benchtime", benchtime, "length of one sample")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "`seed` of the order of contenders")
	flag.Parse()

	selected, err := Select(*rows)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: -rows: %v\n", err)
		return 2
	}
	if *list {
		for _, r := range selected {
			fmt.Printf("%-24s %-8s %s\n", r.Name, r.Unit, r.target())
		}
		return 0
	}

	m, commit := ThisMachine(), Commit()
	fmt.Printf("%s, %d processors, %s, %s/%s, files on %s, load %s\n", m.CPU, m.Processors, m.GoVersion, m.OS, m.Arch, m.FileSystem, m.Load)
	fmt.Printf("seed %d, %d rounds of %v each\n", o.Seed, o.Count, o.Benchtime)
	var rep Report
	for _, row := range selected {
		res, err := Run(row, o)
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: row %s: %v\n", row.Name, err)
			return 1
		}
		res.Machine, res.Commit = m, commit
		res.Print(os.Stdout)
		rep.Rows = append(rep.Rows, res)
	}
	rep.Summary(os.Stdout)
	if *to != "" {
		if err := rep.WriteFile(*to); err != nil {
			fmt.Fprintf(os.Stderr, "bench: cannot write %s: %v\n", *to, err)
			return 1
		}
	}
	return 0
}

// Select returns the rows whose names match a pattern, in the order of registration.
func Select(pattern string) (rows []Row, err error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	for _, r := range registry {
		if re.MatchString(r.Name) {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no row matches %q; -list shows all rows", pattern)
	}
	return rows, nil
}
