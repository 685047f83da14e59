// Command bench measures forebay and its rivals side by side.
//
//	go -C bench run . [-rows regexp] [-count N] [-benchtime d]
//
// It prints every row with all its contenders, then one line per row with the
// verdict, and writes the same to results/latest.json. See README.md for the
// method.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	_ "github.com/forebay-log/forebay/bench/experiments"
	"github.com/forebay-log/forebay/bench/harness"
	_ "github.com/forebay-log/forebay/bench/utc"
)

func main() {
	os.Exit(run())
}

// selectRows returns the rows whose names match; without a pattern, all that are
// not set apart.
func selectRows(pattern string) ([]harness.Row, error) {
	if pattern == "" {
		return harness.Rows(nil), nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	rows := harness.Rows(re)
	if len(rows) == 0 {
		return nil, fmt.Errorf("no row matches %q; -list shows them all", pattern)
	}
	return rows, nil
}

func run() int {
	rows := flag.String("rows", "", "measure only rows whose names match this `regexp`; without it, all but those that are set apart")
	list := flag.Bool("list", false, "list rows and targets, measure nothing")
	out := flag.String("out", "results/latest.json", "write results to this `file`; empty: nowhere")
	strict := flag.Bool("strict", false, "exit with 1 when a row is short of its target")
	o := harness.Options{Commit: harness.Commit()}
	flag.IntVar(&o.Count, "count", 10, "rounds: samples of each contender")
	flag.DurationVar(&o.Benchtime, "benchtime", 100*time.Millisecond, "length of one sample")
	flag.StringVar(&o.Dir, "dir", "", "`directory` for rows that write files (default the system's temporary directory)")
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "`seed` of the order of contenders")
	flag.Parse()

	pattern := *rows
	if *list && pattern == "" {
		pattern = "." // those that are set apart, too
	}
	selected, err := selectRows(pattern)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: -rows: %v\n", err)
		return 2
	}
	if *list {
		for _, r := range selected {
			apart := ""
			if r.Apart {
				apart = " (only with -rows)"
			}
			fmt.Printf("%-24s %s%s\n", r.Name, r.Target, apart)
		}
		return 0
	}

	rep := harness.Report{Machine: harness.ThisMachine(o.Dir)}
	fmt.Printf("seed %d, %d rounds of %v each\n", o.Seed, o.Count, o.Benchtime)
	for _, row := range selected {
		res, err := harness.Run(row, o)
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: row %s: %v\n", row.Name, err)
			return 1
		}
		res.Print(os.Stdout)
		rep.Rows = append(rep.Rows, res)
	}
	short := false
	for _, r := range rep.Rows {
		short = short || r.Status == harness.Short
	}
	rep.Summary(os.Stdout)
	if *out != "" {
		if err := rep.WriteFile(*out); err != nil {
			fmt.Fprintf(os.Stderr, "bench: cannot write %s: %v\n", *out, err)
			return 1
		}
	}
	if *strict && short {
		return 1
	}
	return 0
}
