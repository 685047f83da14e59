package picture

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Panels describes a picture of several panels below each other. All have the same time axis and
// the same logarithmic scale.
type Panels struct {
	Title     string
	Notes     []string                  // lines below the time axis
	Height    int                       // height of a panel
	Span      time.Duration             // length of the time axis; it is extended to a tick
	Low, High float64                   // logarithms of the values at the lower and the upper edge
	Label     func(exponent int) string // label of a power of ten; may be empty
	Panels    []Panel
}

// A Panel shows the values of one variant.
type Panel struct {
	Class, Label string // class in the style, and name of the variant
	Note         string
	Shades       []time.Duration // begin of each shaded period
	Shade        time.Duration   // length of a shaded period
	// Draw returns the SVG elements of the values. x and y return the positions of a time and of a
	// value. The lower edge of the panel is at bottom.
	Draw func(x func(time.Duration) float64, y func(float64) float64, bottom int) string
}

const (
	left, right, top = 76, 20, 42
	titleHeight      = 28 // height of the texts above a panel
	lineHeight       = 18 // of the texts below the last panel
)

// SVG returns the picture.
func (p *Panels) SVG() string {
	step := tick(p.Span / 6)
	span := max(1, (p.Span+step-1)/step) * step
	x := func(at time.Duration) float64 { return left + (Width-left-right)*at.Seconds()/span.Seconds() }
	end := top + len(p.Panels)*(titleHeight+p.Height)
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	b.WriteString(Open(end + 22 + lineHeight*(1+len(p.Notes))))
	put(`<text class="ink" x="%d" y="26" font-size="17">%s</text>`, left, p.Title)
	for i, panel := range p.Panels {
		upper := top + titleHeight + i*(titleHeight+p.Height)
		bottom := upper + p.Height
		y := func(exponent float64) float64 {
			return float64(bottom) - float64(p.Height)*(max(exponent, p.Low)-p.Low)/(p.High-p.Low)
		}
		for _, from := range panel.Shades {
			put(`<rect class="shade" x="%.1f" y="%d" width="%.1f" height="%d"/>`, x(from), upper, max(2, x(from+panel.Shade)-x(from)), p.Height)
		}
		for e := int(math.Ceil(p.Low)); e <= int(p.High); e++ {
			at := y(float64(e))
			put(`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, at, Width-right, at)
			if label := p.Label(e); label != "" {
				put(`<text class="ink" x="%d" y="%.1f" text-anchor="end">%s</text>`, left-8, at+4, label)
			}
		}
		b.WriteString(panel.Draw(x, func(v float64) float64 { return y(math.Log10(v)) }, bottom))
		put(`<text class="%s" x="%d" y="%d" font-weight="bold">%s</text>`, panel.Class, left, upper-7, panel.Label)
		put(`<text class="ink" x="%d" y="%d" text-anchor="end">%s</text>`, Width-right, upper-7, panel.Note)
	}
	for at := time.Duration(0); at <= span; at += step {
		put(`<text class="ink" x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(at), end+lineHeight, Duration(at))
	}
	for i, note := range p.Notes {
		put(`<text class="note" x="%d" y="%d">%s</text>`, left, end+44+i*lineHeight, note)
	}
	return b.String() + Close
}

// tick returns the distance between ticks on a time axis: d, rounded up.
func tick(d time.Duration) time.Duration {
	const second, minute, hour = time.Second, time.Minute, time.Hour
	for _, step := range []time.Duration{second / 10, second, 5 * second, 10 * second, 30 * second,
		minute, 5 * minute, 10 * minute, 30 * minute, hour, 6 * hour, 24 * hour} {
		if step >= d {
			return step
		}
	}
	return d.Truncate(24*hour) + 24*hour
}

// Duration formats a duration without zero units: 10m instead of 10m0s.
func Duration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
