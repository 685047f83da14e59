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
	panelH, titleH         = 170, 28 // heights of a panel and of the name above it
)

// writeSVG draws the attempts per second to reach the backend in two panels with the same scales,
// with and without jitter. The time of the outage is shaded.
func writeSVG(w io.Writer, c *fleet.Config, withJitter, withoutJitter *fleet.Result) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	most := 10.0
	for _, r := range []*fleet.Result{withJitter, withoutJitter} {
		for _, n := range r.Attempts {
			for float64(n) > most {
				most *= 10
			}
		}
	}
	shown := time.Duration(max(len(withJitter.Attempts), len(withoutJitter.Attempts), withJitter.Outage+1)) * time.Second
	step := picture.Step(shown / 6)
	shown = (shown + step - 1) / step * step // end the time axis at a tick
	d := drawing{p: p, perSecond: float64(picture.Width-left-right) / shown.Seconds(), most: most}
	height := top + 2*(titleH+panelH) + base
	b.WriteString(picture.Open(height))
	p(`<text class="ink" x="%d" y="26" font-size="17">%d hosts reconnect after an outage of %s</text>`, left, c.Hosts, short(c.Outage))
	d.panel(withJitter, top+titleH, "ours", "with jitter, as in forebay")
	d.panel(withoutJitter, top+2*titleH+panelH, "theirs", "without jitter")
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
	perSecond float64 // width of a second, in units of the picture
	most      float64 // value at the upper edge, a power of ten
}

// panel draws the panel of one result. y0 is the position of its upper edge.
func (d drawing) panel(r *fleet.Result, y0 int, class, label string) {
	y := func(n float64) float64 { // 0 is at the lower edge, and 1 slightly above it
		return float64(y0) + panelH*(1-(math.Log10(n)+0.3)/(math.Log10(d.most)+0.3))
	}
	d.p(`<rect class="shade" x="%d" y="%d" width="%.1f" height="%d"/>`, left, y0, float64(r.Outage)*d.perSecond, panelH)
	for n := 1.0; n <= d.most; n *= 10 {
		d.p(`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, y(n), picture.Width-right, y(n))
		d.p(`<text class="ink" x="%d" y="%.1f" text-anchor="end">%.0f</text>`, left-8, y(n)+4, n)
	}
	for from := 0; from < len(r.Attempts); {
		// Seconds that fall into the same column of the picture are drawn as one bar, with the
		// height of the largest value.
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

// short formats a duration without zero units: 10m instead of 10m0s.
func short(d time.Duration) string {
	text := d.String()
	for _, unit := range []string{"s", "m"} {
		if s := strings.TrimSuffix(text, "0"+unit); s != text && strings.ContainsAny(s[max(0, len(s)-1):], "hm") {
			text = s
		}
	}
	return text
}
