package fleet

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

const (
	svgW                   = 900
	left, right, top, base = 76, 20, 42, 58
	panelH, titleH         = 170, 28 // of each panel, and of the name above it
)

// WriteSVG draws how many attempts to reach the engine there are per second, with the jitter
// that hosts have and without, on one scale of time and one of attempts. The outage is shaded.
func WriteSVG(w io.Writer, c *Config, apart, together *Result) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	seconds := max(len(apart.Attempts), len(together.Attempts), apart.Outage+1)
	most := 10.0
	for _, r := range []*Result{apart, together} {
		for _, n := range r.Attempts {
			for float64(n) > most {
				most *= 10
			}
		}
	}
	d := drawing{p: p, perSecond: float64(svgW-left-right) / float64(seconds), most: most}
	height := top + 2*(titleH+panelH) + base
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`, svgW, height)
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`, svgW, height)
	p(`<text x="%d" y="26" font-size="16" fill="#222222">How %d hosts come back after an outage of %s</text>`, left, c.Hosts, short(c.Outage))
	d.panel(apart, top+titleH, "#1f6f8b", "with jitter, as forebay does it")
	d.panel(together, top+2*titleH+panelH, "#b3402a", "without jitter")
	bottom := height - base
	step := tidy(time.Duration(seconds) * time.Second / 6)
	for at := time.Duration(0); at <= time.Duration(seconds)*time.Second; at += step {
		p(`<text x="%.1f" y="%d" text-anchor="middle" fill="#333333">%s</text>`, left+at.Seconds()*d.perSecond, bottom+18, short(at))
	}
	p(`<text x="%d" y="%d" fill="#333333" font-size="12">attempts to reach the engine per second, log scale; shaded: the outage</text>`, left, height-14)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

type drawing struct {
	p         func(format string, args ...any)
	perSecond float64 // pixels
	most      float64 // a power of ten, at the upper edge
}

// panel draws one result; y0 is its upper edge.
func (d drawing) panel(r *Result, y0 int, colour, label string) {
	y := func(n float64) float64 { // 0 is at the lower edge, 1 a little above
		return float64(y0) + panelH*(1-(math.Log10(n)+0.3)/(math.Log10(d.most)+0.3))
	}
	d.p(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="#e4e4e4"/>`, left, y0, float64(r.Outage)*d.perSecond, panelH)
	for n := 1.0; n <= d.most; n *= 10 {
		d.p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#d5d5d5"/>`, left, y(n), svgW-right, y(n))
		d.p(`<text x="%d" y="%.1f" text-anchor="end" fill="#333333">%.0f</text>`, left-8, y(n)+4, n)
	}
	for from := 0; from < len(r.Attempts); {
		// All seconds of one column are one bar, as high as the highest of them.
		x := math.Floor(float64(from) * d.perSecond)
		most, to := 0, from
		for to < len(r.Attempts) && (to == from || math.Floor(float64(to)*d.perSecond) == x) {
			most = max(most, r.Attempts[to])
			to++
		}
		if most > 0 {
			d.p(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, left+x, y(float64(most)), max(1, d.perSecond), float64(y0+panelH)-y(float64(most)), colour)
		}
		from = to
	}
	d.p(`<text x="%d" y="%d" font-weight="bold" fill="%s">%s</text>`, left, y0-7, colour, label)
	d.p(`<text x="%d" y="%d" text-anchor="end" fill="#333333">at most %d/s after the outage, all connected after %s</text>`,
		svgW-right, y0-7, r.Peak, short(r.Connected.Max.Round(time.Second)))
}

// tidy returns a step of time that people use, no shorter than d.
func tidy(d time.Duration) time.Duration {
	for _, s := range []int{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200} {
		if step := time.Duration(s) * time.Second; step >= d {
			return step
		}
	}
	return d.Truncate(24*time.Hour) + 24*time.Hour
}

// short writes 10m, not 10m0s.
func short(d time.Duration) string {
	text := d.String()
	for _, unit := range []string{"s", "m"} {
		if s := strings.TrimSuffix(text, "0"+unit); s != text && strings.ContainsAny(s[max(0, len(s)-1):], "hm") {
			text = s
		}
	}
	return text
}
