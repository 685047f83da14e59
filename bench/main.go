// Command bench measures forebay and its rivals side by side.
//
//	GOWORK=off go -C bench run . [-rows regexp] [-count N] [-benchtime d]
//
// It prints each row with all its contenders, then one line per row with the verdict, and writes
// the results to results/latest.json. README.md describes the method.
package main

import (
	"os"
	"time"

	"github.com/forebay-log/forebay/bench/harness"
	_ "github.com/forebay-log/forebay/bench/utc"
)

func main() { os.Exit(harness.Program("results/latest.json", 100*time.Millisecond)) }
