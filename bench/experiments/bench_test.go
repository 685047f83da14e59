package experiments

import (
	"regexp"
	"testing"

	"github.com/forebay-log/forebay/bench/harness"
)

// BenchmarkRow runs each variant of each row.
func BenchmarkRow(b *testing.B) {
	harness.Benchmark(b, harness.Rows(regexp.MustCompile("^experiments/")))
}
