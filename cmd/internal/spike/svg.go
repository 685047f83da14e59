package spike

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Colours and names of the modes. Each has a panel of its own: where two wait for
// the same stall, one line would hide the other.
var looks = map[string]struct{ colour, label string }{
	"sync":     {"#b3402a", "sync: one write per record"},
	"buffered": {"#9a6a0c", "buffered: mutex and bufio, 64 KiB"},
	"forebay":  {"#1f6f8b", "forebay"},
}

const (
	svgW                   = 900
	left, right, top, base = 76, 20, 42, 58
	panelH, titleH         = 118, 28   // of each panel, and of the name above it
	lowest                 = -7.0      // 100 ns, as a power of ten
	stallColour            = "#e4e4e4" // behind the line
	textColour, gridColour = "#333333", "#d5d5d5"
)

// WriteSVG draws the worst latency of a call per tenth of a second over time, one
// panel per result, on one scale of time and one of latency, with the stalls of
// the destination shaded.
func WriteSVG(w io.Writer, c *Config, results []*Result) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	height := top + len(results)*(titleH+panelH) + base
	x := func(d time.Duration) float64 {
		return left + float64(svgW-left-right)*min(1, d.Seconds()/c.Duration.Seconds())
	}
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", svgW, height)
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", svgW, height)
	title := "What a caller waits"
	if c.Stall > 0 {
		title = fmt.Sprintf("What a caller waits while the destination stalls for %v every %v", c.Stall, c.Every)
	}
	p(`<text x="%d" y="26" font-size="16" fill="#222222">%s</text>`+"\n", left, title)
	for i, r := range results {
		panel(p, c, r, x, highest(results), top+titleH+i*(titleH+panelH))
	}
	bottom := height - base
	step := (c.Duration / 6).Round(time.Second)
	if step <= 0 {
		step = c.Duration / 5
	}
	for at := time.Duration(0); at <= c.Duration; at += step {
		p(`<text x="%.1f" y="%d" text-anchor="middle" fill="%s">%v</text>`+"\n", x(at), bottom+18, textColour, at)
	}
	p(`<text x="%d" y="%d" fill="%s" font-size="12">worst call in each 0.1 s, %s records/s of %d B from %d goroutines, log scale`,
		left, height-14, textColour, short(c.Rate), c.Size, c.Callers)
	if c.Stall > 0 {
		p(`; shaded: the destination stalls`)
	}
	p("</text>\n</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// highest is the power of ten in seconds at which the panels end: 1 s, or more where
// somebody waits longer.
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
		p(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", x(s), y0, max(2, x(s+c.Stall)-x(s)), panelH, stallColour)
	}
	for e := int(lowest); e <= int(highest); e++ {
		v := math.Pow(10, float64(e))
		p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s"/>`+"\n", left, y(v), svgW-right, y(v), gridColour)
		if e%3 == 0 { // 1 µs, 1 ms, 1 s
			p(`<text x="%d" y="%.1f" text-anchor="end" fill="%s">%s</text>`+"\n", left-8, y(v)+4, textColour, tick(v))
		}
	}
	var pts []string
	for i, v := range r.Worst {
		if v > 0 {
			pts = append(pts, fmt.Sprintf("%.1f,%.1f", x(time.Duration(i)*bucket+bucket/2), y(v)))
		}
	}
	p(`<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6" stroke-linejoin="round"/>`+"\n", strings.Join(pts, " "), look.colour)
	p(`<text x="%d" y="%d" font-weight="bold" fill="%s">%s</text>`+"\n", left, y0-7, look.colour, look.label)
	p(`<text x="%d" y="%d" text-anchor="end" fill="%s">p50 %s, p99.9 %s, worst %s</text>`+"\n", svgW-right, y0-7, textColour,
		brief(r.Quantile(.5)), brief(r.Quantile(.999)), brief(r.Quantile(1)))
}

// brief is a duration with three figures.
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
