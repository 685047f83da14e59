// Command servers measures the clients of Loki and Kafka next to their competitors, with a server in the
// same process. It is a separate module because of the dependencies of the competitors.
//
//	GOWORK=off go -C bench/servers run . [-rows regexp] [-count N]
//
// make bench runs it too, and its results are in the same file.
package main

import (
	"os"
	"time"

	"github.com/forebay-log/forebay/bench/harness"
)

// A sample lasts 2 s, long enough to log all distinct events of a Loki row even at 100 µs per
// event.
func main() { os.Exit(harness.Program("../results/latest.json", 2*time.Second)) }
