//go:build logf

package main

import (
	"testing"

	h "github.com/forebay-log/forebay/bench/harness"
)

func BenchmarkRow(b *testing.B) { h.Benchmark(b, rows()) }
