package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/forebay-log/forebay/bench/picture"
	"github.com/forebay-log/forebay/internal/fleet"
)

const (
	left, right, top, base = 76, 20, 42, 58
	panelH, titleH         = 170, 28 // of each panel, and of the name above it
)

// writeSVG draws the attempts per second to reach the backend, with the jitter that hosts have and
// without, on the same scales. The outage is shaded.
func writeSVG(w io.Writer, c *fleet.Config, apart, together *fleet.Result) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	most := 10.0
	for _, r := range []*fleet.Result{apart, together} {
		for _, n := range r.Attempts {
			for float64(n) > most {
				most *= 10
			}
		}
	}
	shown := time.Duration(max(len(apart.Attempts), len(together.Attempts), apart.Outage+1)) * time.Second
	step := picture.Step(shown / 6)
	shown = (shown + step - 1) / step * step // the time axis ends at a tick
	d := drawing{p: p, perSecond: float64(picture.Width-left-right) / shown.Seconds(), most: most}
	height := top + 2*(titleH+panelH) + base
	b.WriteString(picture.Open(height))
	p(`<text class="ink" x="%d" y="26" font-size="17">%d hosts reconnect after an outage of %s</text>`, left, c.Hosts, short(c.Outage))
	d.panel(apart, top+titleH, "ours", "with jitter, as in forebay")
	d.panel(together, top+2*titleH+panelH, "theirs", "without jitter")
	bottom := height - base
	for at := time.Duration(0); at <= shown; at += step {
		p(`<text class="ink" x="%.1f" y="%d" text-anchor="middle">%s</text>`, left+at.Seconds()*d.perSecond, bottom+18, short(at))
	}
	p(`<text class="note" x="%d" y="%d">attempts to reach the backend per second, log scale; shaded: the outage</text>`, left, height-14)
	b.WriteString(picture.Close)
	_, err := io.WriteString(w, b.String())
	return err
}

type drawing struct {
	p         func(format string, args ...any)
	perSecond float64 // units of the picture
	most      float64 // a power of ten, at the upper edge
}

// panel draws one result; y0 is its upper edge.
func (d drawing) panel(r *fleet.Result, y0 int, class, label string) {
	y := func(n float64) float64 { // 0 is at the lower edge, 1 a little above
		return float64(y0) + panelH*(1-(math.Log10(n)+0.3)/(math.Log10(d.most)+0.3))
	}
	d.p(`<rect class="shade" x="%d" y="%d" width="%.1f" height="%d"/>`, left, y0, float64(r.Outage)*d.perSecond, panelH)
	for n := 1.0; n <= d.most; n *= 10 {
		d.p(`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, y(n), picture.Width-right, y(n))
		d.p(`<text class="ink" x="%d" y="%.1f" text-anchor="end">%.0f</text>`, left-8, y(n)+4, n)
	}
	for from := 0; from < len(r.Attempts); {
		// The seconds of one column are one bar, as high as the highest of them.
		x := math.Floor(float64(from) * d.perSecond)
		most, to := 0, from
		for to < len(r.Attempts) && (to == from || math.Floor(float64(to)*d.perSecond) == x) {
			most = max(most, r.Attempts[to])
			to++
		}
		if most > 0 {
			d.p(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, left+x, y(float64(most)), max(1, d.perSecond), float64(y0+panelH)-y(float64(most)))
		}
		from = to
	}
	d.p(`<text class="%s" x="%d" y="%d" font-weight="bold">%s</text>`, class, left, y0-7, label)
	d.p(`<text class="ink" x="%d" y="%d" text-anchor="end">at most %d/s after the outage, all connected after %s</text>`,
		picture.Width-right, y0-7, r.Peak, short(r.Connected.Max.Round(time.Second)))
}

// short formats 10m, not 10m0s.
func short(d time.Duration) string {
	text := d.String()
	for _, unit := range []string{"s", "m"} {
		if s := strings.TrimSuffix(text, "0"+unit); s != text && strings.ContainsAny(s[max(0, len(s)-1):], "hm") {
			text = s
		}
	}
	return text
}
