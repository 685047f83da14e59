package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/forebay-log/forebay/bench/picture"
)

const (
	left, right, top, base = 76, 20, 42, 76
	panelH, titleH         = 118, 28 // heights of a panel and of the name above it
	lowest                 = -7.0    // exponent of the smallest latency in the chart: 100 ns
)

// writeSVG draws the longest latency of a call per tenth of a second over time. Each result has a
// separate panel, because the lines of two modes would overlap. All panels have the same scales,
// and the stalls of the destination are shaded.
func writeSVG(b *strings.Builder, c *Config, results []*Result) {
	p := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	height := top + len(results)*(titleH+panelH) + base
	step := picture.Step(c.Duration / 6)
	span := max(1, (c.Duration+step-1)/step) * step // end the time axis at a tick
	x := func(d time.Duration) float64 {
		return left + float64(picture.Width-left-right)*d.Seconds()/span.Seconds()
	}
	highest := 0.0 // exponent of the largest latency: 1 s, or more if a call took longer
	for _, r := range results {
		highest = max(highest, math.Ceil(math.Log10(r.Quantile(1).Seconds())))
	}
	b.WriteString(picture.Open(height))
	p(`<text class="ink" x="%d" y="26" font-size="17">Time that a caller waits while the destination stalls for %v every %v</text>`, left, c.Stall, c.Every)
	for i, r := range results {
		panel(p, c, r, x, highest, top+titleH+i*(titleH+panelH))
	}
	for at := time.Duration(0); at <= span; at += step {
		p(`<text class="ink" x="%.1f" y="%d" text-anchor="middle">%v</text>`, x(at), height-base+18, at)
	}
	p(`<text class="note" x="%d" y="%d">worst call in each 0.1 s, log scale; shaded: the destination stalls</text>`, left, height-32)
	p(`<text class="note" x="%d" y="%d">%g records/s of %d B from %d goroutines</text>`, left, height-14, c.Rate, c.Size, c.Callers)
	b.WriteString(picture.Close)
}

// panel draws the panel of one result. y0 is the position of its upper edge.
func panel(p func(string, ...any), c *Config, r *Result, x func(time.Duration) float64, highest float64, y0 int) {
	y := func(power float64) float64 {
		return float64(y0) + panelH*(1-(max(power, lowest)-lowest)/(highest-lowest))
	}
	for _, s := range r.Stalls {
		p(`<rect class="shade" x="%.1f" y="%d" width="%.1f" height="%d"/>`, x(s), y0, max(2, x(s+c.Stall)-x(s)), panelH)
	}
	for e := int(lowest); e <= int(highest); e++ {
		at := y(float64(e))
		p(`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, at, picture.Width-right, at)
		if unit, ok := map[int]string{-6: "1 µs", -3: "1 ms", 0: "1 s"}[e]; ok {
			p(`<text class="ink" x="%d" y="%.1f" text-anchor="end">%s</text>`, left-8, at+4, unit)
		}
	}
	var points []string
	for i, v := range r.Worst {
		if v > 0 {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(time.Duration(i)*bucket+bucket/2), y(math.Log10(v))))
		}
	}
	p(`<polyline class="%s line" points="%s"/>`, r.Mode.class, strings.Join(points, " "))
	p(`<text class="%s" x="%d" y="%d" font-weight="bold">%s</text>`, r.Mode.class, left, y0-7, r.Mode.label)
	p(`<text class="ink" x="%d" y="%d" text-anchor="end">p50 %s, p99.9 %s, worst %s</text>`, picture.Width-right, y0-7,
		brief(r.Quantile(.5)), brief(r.Quantile(.999)), brief(r.Quantile(1)))
}

// brief rounds a duration to three significant digits.
func brief(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
