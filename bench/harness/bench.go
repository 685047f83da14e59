package harness

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"
)

// Benchmark runs each contender of the registered rows as a sub-benchmark row/contender, for tests
// and profiles. It does not alternate between contenders, so only the program can compare them.
func Benchmark(b *testing.B) {
	for _, row := range registry {
		for i := range row.Contenders {
			c := &row.Contenders[i]
			b.Run(row.Name+"/"+c.Name, func(b *testing.B) { benchmark(b, &row, c) })
		}
	}
}

func benchmark(b *testing.B, row *Row, c *Contender) {
	env := &Env{Dir: b.TempDir(), Benchtime: time.Millisecond, Quick: true}
	s, err := measure(row, c, env, min(b.N, cmp.Or(row.MaxOps, b.N)))
	if errors.Is(err, ErrAbsent) {
		b.Skip(err)
	}
	if err != nil {
		b.Fatal(err)
	}
	// The time measured by package testing includes the setup and the tally, so the sample's own
	// value is reported.
	b.ReportMetric(s.Value, strings.ReplaceAll(row.Unit, " ", "-"))
	b.ReportMetric(s.Allocs, "allocs/op")
	b.ReportMetric(s.AllocBytes, "B/op")
	for k, v := range s.More {
		b.ReportMetric(v, strings.ReplaceAll(k, " ", "-"))
	}
}
