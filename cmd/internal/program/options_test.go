package program

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-log/forebay/cmd/internal/config"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/cmd/internal/output"
	"github.com/forebay-log/forebay/cmd/internal/run"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/deliver"
)

// The names in the table of options are unique. All options and destinations that the table refers
// to exist.
func TestTableOfOptions(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range setting.Options {
		if seen[o.Name] {
			t.Errorf("%s is in the table twice", o.Name)
		}
		seen[o.Name] = true
		for _, name := range o.Needs {
			if setting.OptionCalled(name) == nil {
				t.Errorf("%s needs %s, which is no option", o.Name, name)
			}
		}
		for _, scheme := range o.Of {
			if !slices.ContainsFunc(dest.All(), func(d dest.Destination) bool { return d.Scheme() == scheme }) {
				t.Errorf("%s is for %s:, which is no destination", o.Name, scheme)
			}
		}
	}
}

// The name of an output consists of its address and its identifying options.
func TestNamesOfOutputs(t *testing.T) {
	g := dest.NewGiven()
	for to, want := range map[string]string{
		"stdout:":                                    "stdout",
		"stdout:?level=warn":                         "stdout",
		"file:a%3Fb?keep=1&rotate-size=1M":           "file:a%3Fb",
		"loki://h?tenant=a&level=warn&label=x%3A%26": "loki://h?tenant=a&label=x%3A%26",
		"syslog+tcp://h:1?facility=local0&app=x":     "syslog+tcp://h:1?facility=local0&app=x",
	} {
		c, err := g.Output(dest.All(), "--to", to, dest.AnyOption)
		if err != nil || c.Name != want {
			t.Errorf("%s: %v, %v, want %s", to, err, c, want)
		}
	}
	// The options of an output do not affect the following outputs.
	var labels []string
	giveOptions(t, &g, "--label", "a:b", "--label", "c:d")
	for _, to := range []string{"loki://a", "loki://b?label=e:f&label=g:h", "loki://c"} {
		c, err := g.Output(dest.All(), "--to", to, dest.AnyOption)
		if err != nil {
			t.Fatal(err)
		}
		labels = append(labels, c.Text("label"))
	}
	if want := []string{"a:b, c:d", "e:f, g:h", "a:b, c:d"}; !slices.Equal(labels, want) {
		t.Error(labels)
	}
}

// Outputs with the same encoding receive the same encoded lines. Each output receives only lines of
// the levels that it accepts.
func TestLevelsAndEncodings(t *testing.T) {
	dir := t.TempDir()
	var to []string
	want := map[string]string{}
	lines := []string{"plain", "[error] bad", `{"level":"warn","msg":"w"}`, "level=debug msg=d"}
	as := map[string][]string{
		"raw":    lines,
		"json":   {`{"msg":"plain"}`, `{"level":"ERROR","msg":"[error] bad"}`, lines[2], `{"level":"debug","msg":"d"}`},
		"logfmt": {"msg=plain", `level=ERROR msg="[error] bad"`, "level=warn msg=w", lines[3]},
	}
	for encoding := range as {
		for level, admits := range map[string][]int{"": {0, 1, 2, 3}, "debug": {0, 1, 2, 3}, "warn": {0, 1, 2}, "error": {0, 1}, "fatal": {0}} {
			file := filepath.Join(dir, encoding+level)
			query := "?encode=" + encoding
			if level != "" {
				query += "&level=" + level
			}
			to = append(to, "file:"+file+query)
			for range 100 {
				for _, i := range admits {
					want[file] += as[encoding][i] + "\n"
				}
			}
		}
	}
	c := newConfig(to...)
	stderr, err := runText(t, c, strings.Repeat(strings.Join(lines, "\n")+"\n", 100))
	if err != nil {
		t.Fatal(err, stderr)
	}
	for file, want := range want {
		if got, _ := os.ReadFile(file); string(got) != want {
			t.Errorf("%s holds %d bytes, want %d: %.100s", file, len(got), len(want), got)
		}
	}
	if !strings.Contains(stderr, fmt.Sprintf("file:%s accepted=200 delivered=200 (200 below level error)", filepath.Join(dir, "rawerror"))) {
		t.Error(stderr)
	}
}

// Messages show a valid query as it was written. An error about an invalid query contains only
// names of options, and no other part of the query.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{"", "level=warn&keep=7", "mkdirs", "label=a:b&label=c=d", "x=s3cr3t", "s3cr3t", "level=%", "&", "=", "a=b=c", "fallback=a%40b", "token=&level=warn", "tag==="} {
		f.Add(s, 0)
		f.Add(s, 12)
	}
	dests := dest.All()
	g := dest.NewGiven()
	f.Fuzz(func(t *testing.T, query string, kind int) {
		scheme := dests[uint(kind)%uint(len(dests))].Scheme()
		to := scheme + "://h?" + query
		c, err := g.Output(dests, "--to", to, dest.AnyOption)
		if err == nil {
			if shown, hid := setting.Redacted(to); !hasSensitive(c) && (shown != to || hid != nil) && !strings.Contains(to, "@") && !strings.Contains(to, "#") {
				t.Errorf("%s is shown as %s", to, shown)
			}
			return
		}
		if code := exit.Code(err); code != exit.UsageCode && code != exit.ConfigCode {
			t.Errorf("exit code %d", code)
		}
		for part := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(part, "=")
			if setting.OptionCalled(name) == nil && len(value) > 7 && !strings.Contains(name+setting.OptionsOf(scheme, dest.AnyOption), value) && strings.Count(query, value) == 1 && strings.Contains(err.Error(), value) {
				t.Errorf("%q: %v", query, err)
			}
		}
	})
}

// hasSensitive reports whether c has a value for a sensitive option.
func hasSensitive(c *dest.Spec) bool {
	return slices.ContainsFunc(setting.Options, func(o *setting.Option) bool { return o.Sensitive && c.Given[o.Name] })
}

// If the level of an output is removed while the program runs, the summary still counts the lines
// that were below it.
func TestSummaryAfterLevelIsRemoved(t *testing.T) {
	d, err := deliver.NewOutput(deliver.ToWriter(io.Discard), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	spec := dest.NewSpec()
	out := &output.Output{To: "out", Spec: &spec, Target: &dest.Target{}, Delivery: d}
	out.Below.Add(3)
	for given, want := range map[bool]string{false: "(3 below an earlier level)", true: "(3 below level warn)"} {
		*spec.Level() = setting.Level{Level: slog.LevelWarn, Given: given}
		text, _ := run.Account{P: &run.Pipeline{C: &config.Pipeline{}, Outs: []*output.Output{out}}}.Conclude(0, nil, nil)
		if len(text) != 1 || !strings.HasSuffix(text[0], want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}
