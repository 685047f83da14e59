package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/forebay-log/forebay/bench/picture"
	"github.com/forebay-log/forebay/internal/units"
)

// svg draws the longest latency of a call per tenth of a second over time. Each result has a
// separate panel, because the lines of two modes would overlap. The stalls of the destination are
// shaded.
func svg(c *Config, results []*Result) string {
	p := picture.Panels{
		Title: fmt.Sprintf("Time that a caller waits while the destination stalls for %v every %v", c.Stall, c.Every),
		Notes: []string{"worst call in each 0.1 s, log scale; shaded: the destination stalls",
			fmt.Sprintf("%g records/s of %d B from %d goroutines", c.Rate, c.Size, callers)},
		Height: 118, Span: c.Duration,
		Low:   -7, // 100 ns
		Label: func(e int) string { return map[int]string{-6: "1 µs", -3: "1 ms", 0: "1 s"}[e] },
	}
	for _, r := range results {
		p.High = max(p.High, math.Ceil(math.Log10(r.Quantile(1).Seconds()))) // 1 s, or more if a call took longer
		p.Panels = append(p.Panels, picture.Panel{
			Class: r.Mode.class, Label: r.Mode.label, Shades: r.Stalls, Shade: c.Stall,
			Note: fmt.Sprintf("p50 %s, p99.9 %s, worst %s", units.Duration(r.Quantile(.5)), units.Duration(r.Quantile(.999)), units.Duration(r.Quantile(1))),
			Draw: func(x func(time.Duration) float64, y func(float64) float64, _ int) string {
				var points []string
				for i, v := range r.Worst {
					if v > 0 {
						points = append(points, fmt.Sprintf("%.1f,%.1f", x(time.Duration(i)*bucket+bucket/2), y(v)))
					}
				}
				return fmt.Sprintf(`<polyline class="%s line" points="%s"/>`+"\n", r.Mode.class, strings.Join(points, " "))
			},
		})
	}
	return p.SVG()
}
