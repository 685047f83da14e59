// Docs writes the table of measurements and the chart of the README from the results of make bench.
// make docs runs it.
package main

import (
	"flag"
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/bench/harness"
	"github.com/forebay-log/forebay/bench/picture"
)

// rows lists the rows of the table, by the name of the measured row.
var rows = []struct{ name, text string }{
	{"json/two", "a message with 2 fields as JSON"},
	{"json/mixed", "10 mixed fields, including an error and an object"},
	{"slog/mixed", "the same through log/slog"},
	{"off/two", "a call below the level"},
	{"file/unbuffered-1g", "6 fields, one write(2) for each record"},
	{"pipeline/file-10g", "6 fields to a file, buffered, 10 goroutines"},
	{"slab/file-10g", "the buffer alone, encoded records of 256 B"},
	{"stall/5ms", "p99 of a call while a destination stalls 5 ms"},
	{"fluent/post-map26", "a map of 26 strings over Forward, unacknowledged"},
	{"fluent/acked-1ms", "the same, acknowledged, with a 1 ms round trip"},
}

const begin, end = "<!-- make docs: measurements -->\n", "<!-- end -->\n"

func main() {
	results := flag.String("results", "results/latest.json", "what make bench has stored")
	readme := flag.String("readme", "../README.md", "the page with the table")
	chart := flag.String("chart", "../docs/img/bench.svg", "the chart")
	flag.Parse()
	if err := run(*results, *readme, *chart); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

// A line is one row of the table.
type line struct {
	*harness.Result
	text       string
	ours, best *harness.Column // forebay's first contender, and the best competitor with valid output
	ratio      float64         // of their times
}

func run(results, readme, chart string) error {
	stored, err := harness.ReadReport(results)
	if err != nil {
		return err
	}
	var lines []line
	var machines []string
	for _, want := range rows {
		l, err := find(stored.Rows, want.name)
		if err != nil {
			return fmt.Errorf("%s: %w", results, err)
		}
		l.text = want.text
		lines = append(lines, l)
		m := fmt.Sprintf("%s, %d processors, %s", l.Machine.CPU, l.Machine.Processors, l.Machine.GoVersion)
		if !slices.Contains(machines, m) {
			machines = append(machines, m)
		}
	}
	page, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s has no place for the table, between %q and %q", readme, begin, end)
	}
	where := strings.Join(machines, " and ")
	if err := os.WriteFile(readme, []byte(before+begin+table(lines, where, slower(stored.Rows))+end+after), 0o666); err != nil {
		return err
	}
	if len(machines) > 1 { // the chart has no room for their names
		where = fmt.Sprintf("%d machines, see the table", len(machines))
	}
	return os.WriteFile(chart, []byte(svg(lines, where)), 0o666)
}

// find returns the line for the measured row with the given name.
func find(all []*harness.Result, name string) (line, error) {
	for _, r := range all {
		if l, ok := compare(r); ok && r.Name == name {
			return l, nil
		}
	}
	return line{}, fmt.Errorf("row %s has no figures of ours and a rival; run make bench ROWS='^%s$'", name, name)
}

// compare compares forebay's first contender with the best competitor whose output is valid. It
// returns false if one of them has no figures.
func compare(r *harness.Result) (l line, ok bool) {
	ours, best := r.OfKind(harness.Ours), r.Fastest(true)
	if len(ours) == 0 || best == nil {
		return l, false
	}
	return line{Result: r, ours: ours[0], best: best, ratio: harness.Ratio(ours[0], best)}, true
}

// slower lists the measured rows in which a competitor is faster. It omits the rows of the table
// and those of package bufpool: the sync.Pool measured there neither clears buffers nor limits
// their size, so its time is a lower bound.
func slower(all []*harness.Result) string {
	var out []string
	for _, r := range all {
		if strings.HasPrefix(r.Name, "bufpool/") || slices.ContainsFunc(rows, func(shown struct{ name, text string }) bool { return shown.name == r.Name }) {
			continue
		}
		if l, ok := compare(r); ok && l.ratio > 1 {
			out = append(out, fmt.Sprintf("`%s` (%s × %s)", r.Name, short(l.ratio), l.best.Name))
		}
	}
	return strings.Join(out, ",\n")
}

func table(lines []line, where, slower string) string {
	var sb strings.Builder
	sb.WriteString("| | forebay | best competitor | ratio | row |\n|---|---|---|---|---|\n")
	var days []string
	for _, l := range lines {
		unit := strings.TrimSuffix(l.Unit, "/op")
		unit = strings.TrimPrefix(unit, "p99 ")
		verdict := fmt.Sprintf("%.2f", l.ratio)
		if l.ratio > 1 {
			verdict = "**" + verdict + "**, slower"
		}
		fmt.Fprintf(&sb, "| %s | %s %s | %s: %s %s | %s | `%s` |\n", l.text, short(l.ours.Median), unit, l.best.Name, short(l.best.Median), unit, verdict, l.Name)
		days = append(days, l.Date.UTC().Format(time.DateOnly))
	}
	when := slices.Min(days)
	if last := slices.Max(days); last != when {
		when += " to " + last
	}
	fmt.Fprintf(&sb, "\n%s, %s. Lower is better. Values are medians of a run\n"+
		"in which all contenders of the row alternate; the ratio is the median of the ratios of its rounds. Competitors\n"+
		"with invalid output are excluded.\n", where, when)
	if slower != "" {
		fmt.Fprintf(&sb, "\nA competitor is also faster in these rows, which are not in the table:\n%s.\n", slower)
	}
	return sb.String()
}

func short(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// ticks contains the marked values of the axis. Values outside are drawn at the ends of the axis.
var ticks = []float64{0.1, 0.2, 0.5, 1, 2, 5, 10}

// svg draws, for each line, the times of forebay and of its competitors relative to the best
// competitor.
func svg(lines []line, where string) string {
	const left, plot, step, top = 440, 216, 28, 94
	least, most := ticks[0], ticks[len(ticks)-1]
	x := func(v float64) float64 {
		return left + plot*math.Log(max(min(v, most), least)/least)/math.Log(most/least)
	}
	bottom := top + step*len(lines)
	var sb strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&sb, format+"\n", args...) }
	dot := func(v float64, y int, class, what string) {
		put(`<circle class="%s edge" cx="%.1f" cy="%d" r="5"><title>%s: %.2f</title></circle>`, class, x(v), y, html.EscapeString(what), v)
	}
	sb.WriteString(picture.Open(bottom + 34))
	put(`<text class="ink" x="12" y="22" font-size="17" font-weight="bold">Time relative to the best competitor</text>`)
	for i, c := range []struct{ class, text string }{{"ours", "forebay"}, {"theirs", "competitors with valid output"}} {
		put(`<circle class="%s" cx="%d" cy="43" r="5"/><text class="ink" x="%d" y="48">%s</text>`, c.class, 18+100*i, 28+100*i, c.text)
	}
	for _, v := range ticks {
		class := "grid"
		if v == 1 {
			class = "base"
		}
		put(`<line class="%s" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, class, x(v), top-10, x(v), bottom)
		put(`<text class="note" x="%.1f" y="%d" text-anchor="middle">%g</text>`, x(v), top-16, v)
	}
	for i, l := range lines {
		y := top + i*step + 8
		put(`<text class="ink" x="%d" y="%d" text-anchor="end">%s</text>`, left-12, y+5, html.EscapeString(l.text))
		for _, r := range l.OfKind(harness.Rival) {
			if len(r.Invalid) == 0 {
				dot(harness.Ratio(r, l.best), y, "theirs", r.Name)
			}
		}
		dot(l.ratio, y, "ours", "forebay")
		put(`<text class="ink" x="%d" y="%d">%.2f × %s</text>`, left+plot+16, y+5, l.ratio, html.EscapeString(l.best.Name))
	}
	put(`<text class="note" x="12" y="%d">%s; further left is faster; logarithmic</text>`, bottom+22, html.EscapeString(where))
	sb.WriteString(picture.Close)
	return sb.String()
}
