package main

import (
	"testing"

	h "github.com/forebay-log/forebay/bench/harness"
)

// BenchmarkRow runs each contender of each row; -benchtime 1x: with one record.
func BenchmarkRow(b *testing.B) { h.Benchmark(b, h.Rows(nil)) }
