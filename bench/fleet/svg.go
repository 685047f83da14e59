package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/forebay-log/forebay/bench/picture"
	"github.com/forebay-log/forebay/internal/fleet"
)

// svg draws the attempts per second to reach the backend in two panels, with and without jitter.
// The time of the outage is shaded.
func (f *forecast) svg() string {
	p := picture.Panels{
		Title:  fmt.Sprintf("%d hosts reconnect after an outage of %s", f.Hosts, picture.Duration(f.Outage)),
		Notes:  []string{"attempts to reach the backend per second, log scale; shaded: the outage"},
		Height: 170,
		Low:    -0.3, // 1 is slightly above the lower edge
		High:   1,
		Label:  func(e int) string { return fmt.Sprintf("%.0f", math.Pow10(e)) },
	}
	add := func(r *fleet.Result, class, label string) {
		for _, n := range r.Attempts {
			p.High = max(p.High, math.Ceil(math.Log10(float64(n))))
		}
		p.Span = max(p.Span, time.Duration(max(len(r.Attempts), r.Outage+1))*time.Second)
		p.Panels = append(p.Panels, picture.Panel{
			Class: class, Label: label, Shades: []time.Duration{0}, Shade: time.Duration(r.Outage) * time.Second,
			Note: fmt.Sprintf("at most %d/s after the outage, all connected after %s", r.Peak, picture.Duration(r.Connected.Max.Round(time.Second))),
			Draw: func(x func(time.Duration) float64, y func(float64) float64, bottom int) string {
				return bars(class, r.Attempts, x, y, bottom)
			},
		})
	}
	add(f.withJitter, "ours", "with jitter, as in forebay")
	add(f.withoutJitter, "theirs", "without jitter")
	return p.SVG()
}

// bars draws the number of attempts in each second. Seconds that fall into the same column of the
// picture are drawn as one bar, with the height of the largest value.
func bars(class string, attempts []int, x func(time.Duration) float64, y func(float64) float64, bottom int) string {
	var b strings.Builder
	column := func(second int) float64 { return math.Floor(x(time.Duration(second) * time.Second)) }
	width := max(1, x(time.Second)-x(0))
	for from := 0; from < len(attempts); {
		at, most := column(from), 0
		for ; from < len(attempts) && column(from) == at; from++ {
			most = max(most, attempts[from])
		}
		if most > 0 {
			top := y(float64(most))
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`+"\n", class, at, top, width, float64(bottom)-top)
		}
	}
	return b.String()
}
