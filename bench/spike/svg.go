package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/forebay-log/forebay/bench/picture"
)

// looks are the class and the name of each mode. Every mode has a separate panel, because
// lines of two modes that wait for the same stall would cover each other.
var looks = map[string]struct{ class, label string }{
	"sync":     {"theirs", "sync: one write per record"},
	"buffered": {"other", "buffered: mutex and bufio, 64 KiB"},
	"forebay":  {"ours", "forebay"},
}

const (
	left, right, top, base = 76, 20, 42, 58
	panelH, titleH         = 118, 28 // of each panel, and of the name above it
	lowest                 = -7.0    // 100 ns, as a power of ten
)

// WriteSVG draws the worst latency of a call per tenth of a second over time: one panel per
// result, the same scales in all panels, and the stalls of the destination shaded.
func WriteSVG(w io.Writer, c *Config, results []*Result) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	height := top + len(results)*(titleH+panelH) + base
	step := tidy(c.Duration / 6)
	span := max(1, (c.Duration+step-1)/step) * step // the time axis ends at a tick
	x := func(d time.Duration) float64 {
		return left + float64(picture.Width-left-right)*min(d.Seconds(), c.Duration.Seconds())/span.Seconds()
	}
	b.WriteString(picture.Open(height))
	title := "Time that a caller waits"
	if c.Stall > 0 {
		title = fmt.Sprintf("Time that a caller waits while the destination stalls for %v every %v", c.Stall, c.Every)
	}
	p(`<text class="ink" x="%d" y="26" font-size="17">%s</text>`, left, title)
	for i, r := range results {
		panel(p, c, r, x, highest(results), top+titleH+i*(titleH+panelH))
	}
	bottom := height - base
	for at := time.Duration(0); at <= span; at += step {
		edge := left + float64(picture.Width-left-right)*at.Seconds()/span.Seconds()
		p(`<text class="ink" x="%.1f" y="%d" text-anchor="middle">%v</text>`, edge, bottom+18, at)
	}
	note := fmt.Sprintf("worst call in each 0.1 s, %s records/s of %d B from %d goroutines, log scale", short(c.Rate), c.Size, c.Callers)
	if c.Stall > 0 {
		note += "; shaded: the destination stalls"
	}
	p(`<text class="note" x="%d" y="%d">%s</text>`, left, height-14, note)
	b.WriteString(picture.Close)
	_, err := io.WriteString(w, b.String())
	return err
}

// tidy returns a step of the time axis that is at least d.
func tidy(d time.Duration) time.Duration {
	for step := time.Millisecond; ; step *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if n*step >= d {
				return n * step
			}
		}
	}
}

// highest returns the power of ten in seconds at which the panels end: 1 s, or more if a call
// waits longer.
func highest(results []*Result) float64 {
	top := 0.0
	for _, r := range results {
		for _, v := range r.Worst {
			top = max(top, math.Ceil(math.Log10(max(v, 1))))
		}
	}
	return top
}

// panel draws one result; y0 is its upper edge.
func panel(p func(string, ...any), c *Config, r *Result, x func(time.Duration) float64, highest float64, y0 int) {
	look := looks[r.Mode]
	y := func(sec float64) float64 {
		v := math.Log10(max(sec, math.Pow(10, lowest)))
		return float64(y0) + panelH*(1-(min(v, highest)-lowest)/(highest-lowest))
	}
	for _, s := range r.Stalls {
		p(`<rect class="shade" x="%.1f" y="%d" width="%.1f" height="%d"/>`, x(s), y0, max(2, x(s+c.Stall)-x(s)), panelH)
	}
	for e := int(lowest); e <= int(highest); e++ {
		v := math.Pow(10, float64(e))
		p(`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, y(v), picture.Width-right, y(v))
		if e%3 == 0 { // 1 µs, 1 ms, 1 s
			p(`<text class="ink" x="%d" y="%.1f" text-anchor="end">%s</text>`, left-8, y(v)+4, tick(v))
		}
	}
	var pts []string
	for i, v := range r.Worst {
		if v > 0 {
			pts = append(pts, fmt.Sprintf("%.1f,%.1f", x(time.Duration(i)*bucket+bucket/2), y(v)))
		}
	}
	p(`<polyline class="%s line" points="%s"/>`, look.class, strings.Join(pts, " "))
	p(`<text class="%s" x="%d" y="%d" font-weight="bold">%s</text>`, look.class, left, y0-7, look.label)
	p(`<text class="ink" x="%d" y="%d" text-anchor="end">p50 %s, p99.9 %s, worst %s</text>`, picture.Width-right, y0-7,
		brief(r.Quantile(.5)), brief(r.Quantile(.999)), brief(r.Quantile(1)))
}

// brief formats a duration with three figures.
func brief(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func tick(v float64) string {
	switch {
	case v >= 0.99:
		return fmt.Sprintf("%.0f s", v)
	case v >= 0.00099:
		return fmt.Sprintf("%.0f ms", v*1e3)
	case v >= 0.00000099:
		return fmt.Sprintf("%.0f µs", v*1e6)
	}
	return fmt.Sprintf("%.0f ns", v*1e9)
}

func short(v float64) string {
	if v >= 1000 && math.Mod(v, 1000) == 0 {
		return fmt.Sprintf("%.0fk", v/1000)
	}
	return fmt.Sprintf("%.0f", v)
}
