package harness

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// If other processes use more than busyShare of the processor time while a row is measured, the
// report mentions it. Measure such a row again, especially if it needs two processors.
const busyShare = 0.05

// Report is the content of results/latest.json.
type Report struct {
	Rows []*Result `json:"rows"`
}

// WriteFile writes the report to path as JSON. Rows in the existing file that this run did not
// measure are kept.
func (rep *Report) WriteFile(path string) error {
	if old, err := ReadReport(path); err == nil {
		rep.merge(old)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("harness: cannot read the earlier results: %w; move the file away", err)
	}
	b, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return fmt.Errorf("harness: cannot encode results: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// ReadReport reads a file written by WriteFile.
func ReadReport(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rep := new(Report)
	if err := json.Unmarshal(b, rep); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return rep, nil
}

// merge adds rows of old, a stored report. Registered rows come first, in the order of
// registration. Then come rows of groups without a registered row, because other programs measure
// them. All other rows are dropped: they are no longer registered.
func (rep *Report) merge(old *Report) {
	byName := map[string]*Result{}
	for _, r := range slices.Concat(old.Rows, rep.Rows) {
		byName[r.Name] = r
	}
	groups := map[string]bool{}
	rep.Rows = rep.Rows[:0:0]
	for _, row := range registry {
		groups[group(row.Name)] = true
		if r := byName[row.Name]; r != nil {
			rep.Rows = append(rep.Rows, r)
		}
	}
	for _, r := range old.Rows {
		if !groups[group(r.Name)] {
			rep.Rows = append(rep.Rows, r)
		}
	}
}

// group returns the part of a row's name before the slash.
func group(name string) string {
	g, _, _ := strings.Cut(name, "/")
	return g
}

// Print writes the contenders of the row as a table, the fastest first, and the checks of the row.
func (r *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", r.Name, r.What)
	cols := slices.SortedStableFunc(slices.Values(r.Columns), func(a, b Column) int {
		if a.measured() && b.measured() {
			return cmp.Compare(a.Median, b.Median)
		}
		return cmp.Compare(len(b.Values), len(a.Values))
	})
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	named := map[string]bool{} // further figures of any contender
	for i := range cols {
		for k := range cols[i].More {
			named[k] = true
		}
	}
	keys := slices.Sorted(maps.Keys(named))
	fmt.Fprintf(tw, "\t%s\t±MAD\tmin\tmax\tratio\tcpu ns\tB/op\tallocs\tB/record\t", r.Unit)
	for _, k := range keys {
		fmt.Fprintf(tw, "%s\t", k)
	}
	fmt.Fprintln(tw)
	for i := range cols {
		printColumn(tw, &cols[i], keys, r.Reference)
	}
	tw.Flush()
	for i := range cols {
		if c := &cols[i]; len(c.Invalid) > 0 {
			fmt.Fprintf(w, "  %s, invalid: %s\n", c.Name, strings.Join(c.Invalid, "; "))
		}
		if c := &cols[i]; c.Error != "" {
			fmt.Fprintf(w, "  %s, not measured: %s\n", c.Name, c.Error)
		}
	}
	if r.Others >= busyShare {
		fmt.Fprintf(w, "  the machine was busy: other processes used %.0f %% of its processors\n", 100*r.Others)
	}
	for _, c := range r.Checks {
		fmt.Fprintf(w, "  %s: %s\n", c.Status, c.Text)
		if c.Aside != "" {
			fmt.Fprintf(w, "      %s\n", c.Aside)
		}
	}
}

func printColumn(w io.Writer, c *Column, keys []string, ref string) {
	name := c.Name
	if c.Kind == Ours {
		name = "* " + name
	}
	if len(c.Invalid) > 0 {
		name += " (invalid)"
	}
	if !c.measured() {
		fmt.Fprintf(w, "%s\tnot measured\t\n", name)
		return
	}
	ratio := fmt.Sprintf("%.2f", c.Ratio)
	if c.Name == ref {
		ratio = "= 1"
	}
	fmt.Fprintf(w, "%s\t%s\t%.0f%%\t%s\t%s\t%s\t%s\t%.0f\t%s\t%.0f\t", name, figure(c.Median), 100*c.MAD/c.Median,
		figure(c.Min), figure(c.Max), ratio, figure(c.CPU), c.AllocBytes, figure(c.Allocs), c.RecordBytes)
	for _, k := range keys {
		if v, ok := c.More[k]; ok {
			fmt.Fprintf(w, "%s\t", figure(v))
		} else {
			fmt.Fprint(w, "-\t")
		}
	}
	fmt.Fprintln(w)
}

// Summary prints one line for each row: its name and its status.
func (rep *Report) Summary(w io.Writer) {
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "row\tverdict")
	count := map[Status]int{}
	for _, r := range rep.Rows {
		count[r.Status]++
		busy := ""
		if r.Others >= busyShare {
			busy = fmt.Sprintf(" (machine %.0f %% busy with others)", 100*r.Others)
		}
		fmt.Fprintf(tw, "%s\t%s%s\n", r.Name, r.Status, busy)
	}
	tw.Flush()
	fmt.Fprintf(w, "\n%d rows: %d ok, %d short, %d not measured\n",
		len(rep.Rows), count[OK], count[Short], count[NotMeasured])
}

// figure formats v with three significant digits and without an exponent.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
