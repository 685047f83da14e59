package main

import (
	"testing"

	"github.com/forebay-log/forebay/bench/harness"
)

// BenchmarkRow runs each contender of each row as a sub-benchmark.
func BenchmarkRow(b *testing.B) { harness.Benchmark(b) }
