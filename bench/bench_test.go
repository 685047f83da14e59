package main

import (
	"testing"

	"github.com/forebay-log/forebay/bench/harness"
)

// BenchmarkRow runs each contender of each row once, for a test or a profile. The program
// compares.
func BenchmarkRow(b *testing.B) { harness.Benchmark(b) }
