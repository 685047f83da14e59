package spike

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// Colours and names of the modes, chosen to be told apart by everybody.
var looks = map[string]struct{ colour, label string }{
	"sync":     {"#b3402a", "sync: one write per record"},
	"buffered": {"#c98a1b", "buffered: mutex and bufio, 64 KiB"},
	"forebay":  {"#1f6f8b", "forebay"},
}

const (
	svgW, svgH             = 900, 420
	left, right, top, base = 76, 20, 64, 56
	lowest, highest        = -7.0, 0.0 // 100 ns … 1 s, as powers of ten
)

// WriteSVG draws the worst latency of a call per tenth of a second over time, one
// line per result, with the stalls of the destination shaded.
func WriteSVG(w io.Writer, c *Config, results []*Result) error {
	var b strings.Builder
	x := func(d time.Duration) float64 {
		return left + float64(svgW-left-right)*d.Seconds()/c.Duration.Seconds()
	}
	y := func(sec float64) float64 {
		v := math.Log10(max(sec, math.Pow(10, lowest)))
		v = (min(v, highest) - lowest) / (highest - lowest)
		return float64(svgH-base) - v*float64(svgH-top-base)
	}
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", svgW, svgH)
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", svgW, svgH)
	p(`<text x="%d" y="24" font-size="16" fill="#222222">What a caller waits while the destination stalls for %v every %v</text>`+"\n", left, c.Stall, c.Every)
	for i, s := range results[0].Stalls {
		p(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#e8e8e8"/>`+"\n", x(s), top, max(2, x(s+c.Stall)-x(s)), svgH-top-base)
		if i == 0 {
			p(`<text x="%.1f" y="%d" font-size="11" fill="#666666">stall</text>`+"\n", x(s+c.Stall)+4, top+12)
		}
	}
	for e := int(lowest); e <= int(highest); e++ {
		v := math.Pow(10, float64(e))
		p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#d5d5d5"/>`+"\n", left, y(v), svgW-right, y(v))
		p(`<text x="%d" y="%.1f" text-anchor="end" fill="#444444">%s</text>`+"\n", left-8, y(v)+4, tick(v))
	}
	step := (c.Duration / 6).Round(time.Second)
	if step <= 0 {
		step = c.Duration / 5
	}
	for at := time.Duration(0); at <= c.Duration; at += step {
		p(`<text x="%.1f" y="%d" text-anchor="middle" fill="#444444">%v</text>`+"\n", x(at), svgH-base+20, at)
	}
	p(`<text x="%d" y="%d" fill="#444444" font-size="12">worst call in each 0.1 s, %s records/s of %d B from %d goroutines, log scale</text>`+"\n",
		left, svgH-12, short(c.Rate), c.Size, c.Callers)
	lx := float64(left)
	for _, r := range results {
		look := looks[r.Mode]
		var pts []string
		for i, v := range r.Worst {
			if v > 0 {
				pts = append(pts, fmt.Sprintf("%.1f,%.1f", x(time.Duration(i)*bucket+bucket/2), y(v)))
			}
		}
		p(`<polyline points="%s" fill="none" stroke="%s" stroke-width="1.6"/>`+"\n", strings.Join(pts, " "), look.colour)
		p(`<rect x="%.0f" y="38" width="14" height="4" fill="%s"/><text x="%.0f" y="45" fill="#222222">%s</text>`+"\n", lx, look.colour, lx+20, look.label)
		lx += 40 + 7*float64(len(look.label))
	}
	p("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
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
