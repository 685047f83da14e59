package main

import (
	"testing"

	"github.com/forebay-log/forebay/bench/harness"
)

// BenchmarkRow runs each contender of each row as a sub-benchmark, for a test or a profile. Only
// the command of package bench compares contenders.
func BenchmarkRow(b *testing.B) { harness.Benchmark(b) }
