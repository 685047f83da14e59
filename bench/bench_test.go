package main

import (
	"testing"

	"github.com/forebay-log/forebay/bench/harness"
)

// BenchmarkRow runs each contender of each row; the experiments have a benchmark of
// their own.
func BenchmarkRow(b *testing.B) { harness.Benchmark(b, harness.Rows(nil)) }
