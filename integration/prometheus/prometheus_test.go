package prometheus

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/util/teststorage"
)

const (
	rulesFile     = "../../deploy/prometheus/forebay.rules.yml"
	dashboardFile = "../../deploy/grafana/forebay.json"
)

var metricName = regexp.MustCompile(`forebay_[a-z_]+`)

// scrape returns the metrics of a running `forebay pipe`. The program delivers to a file and to a
// receiver that does not exist, so its circuit breaker opens and its spool fills.
func scrape(t *testing.T) string {
	dir := t.TempDir()
	bin := filepath.Join(dir, "forebay")
	if out, err := exec.Command("go", "-C", "../../cmd", "build", "-o", bin, "./forebay").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(bin, "pipe", "--metrics", "127.0.0.1:0", "--drain-timeout", "1s",
		"--to", "file:"+filepath.Join(dir, "out.log"),
		"--to", "forward://127.0.0.1:1?spool="+filepath.Join(dir, "spool"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	url := ""
	for url == "" && lines.Scan() {
		if i := strings.Index(lines.Text(), "http://"); i >= 0 && strings.Contains(lines.Text(), "metrics") {
			url = lines.Text()[i:]
		}
	}
	if url == "" {
		t.Fatal("no address of the metrics on standard error")
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	fmt.Fprintln(stdin, "a line")
	var text string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
		if strings.Contains(text, "forebay_read_records_total 1") && strings.Contains(text, "forebay_spool_bytes") {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("the line is not in the metrics:\n%s", text)
		}
	}
}

// load returns a storage with 31 equal scrapes of text at intervals of a minute, with the labels
// that Prometheus adds to a scrape.
func load(t *testing.T, text string) *storage {
	var b strings.Builder
	b.WriteString("load 1m\n")
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		series, value := line[:i], line[i+1:]
		if name, labels, ok := strings.Cut(series, "{"); ok {
			series = name + `{job="j",instance="i",` + labels
		} else {
			series += `{job="j",instance="i"}`
		}
		fmt.Fprintf(&b, "  %s %s+0x30\n", series, value)
	}
	return newStorage(t, b.String())
}

// The queries of the dashboard are valid, use only metrics of the program, and return samples.
// Together they use all metrics.
func TestDashboard(t *testing.T) {
	text := scrape(t)
	metrics := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		metrics[m[1]] = false
	}
	if len(metrics) < 33 {
		t.Fatalf("%d families:\n%s", len(metrics), text)
	}
	b, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			Targets                  []struct{ Expr string }
			GridPos                  struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$job", ".*", "$instance", ".*", "$output", ".*",
		"$__rate_interval", "5m", "$__range", "1h")
	st := load(t, text)
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q: another panel has the id %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q is beyond the right margin", p.Title)
		}
		if p.Type != "row" && p.Description == "" {
			t.Errorf("panel %q has no description", p.Title)
		}
		for _, q := range p.Targets {
			for _, m := range metricName.FindAllString(q.Expr, -1) {
				if _, ok := metrics[m]; !ok {
					t.Errorf("panel %q: the program has no metric %s", p.Title, m)
				}
				metrics[m] = true
			}
			expr := variables.Replace(q.Expr)
			if n, err := st.eval(t.Context(), expr); err != nil {
				t.Errorf("panel %q: %s: %v", p.Title, expr, err)
			} else if n == 0 && !strings.HasSuffix(expr, "> 0") && !strings.Contains(expr, "> 0)") {
				t.Errorf("panel %q: %s has no samples", p.Title, expr)
			}
		}
	}
	for m, seen := range metrics {
		if !seen {
			t.Errorf("no panel shows %s", m)
		}
	}
}

// The rules are valid and use only metrics of the program. The runbook of each rule is a section of
// docs/OPERATING.md.
func TestRules(t *testing.T) {
	text := scrape(t)
	page, err := os.ReadFile("../../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	var anchors []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(page), -1) {
		anchors = append(anchors, strings.ReplaceAll(strings.ToLower(m[1]), " ", "-"))
	}
	for _, r := range rules(t) {
		for _, m := range metricName.FindAllString(r.Expr, -1) {
			if !strings.Contains(text, "# TYPE "+m+" ") {
				t.Errorf("%s: the program has no metric %s", r.Alert, m)
			}
		}
		book := r.Annotations["runbook"]
		if _, anchor, _ := strings.Cut(book, "#"); !slices.Contains(anchors, anchor) {
			t.Errorf("%s: there is no section %s", r.Alert, book)
		}
	}
}

// promtool accepts the rules, and the names and types of the metrics.
func TestPromtool(t *testing.T) {
	promtool := findPromtool(t)
	run := func(stdin string, args ...string) {
		t.Helper()
		cmd := exec.Command(promtool, args...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("", "check", "rules", rulesFile)
	run(scrape(t), "check", "metrics")
}

// findPromtool returns the path of promtool. If it is not installed, it is built from the version
// of Prometheus in go.mod.
func findPromtool(t *testing.T) string {
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	if os.Getenv("FOREBAY_PROMTOOL_BUILD") == "" {
		t.Skip("SKIPPED: there is no promtool; FOREBAY_PROMTOOL_BUILD=1 builds it (five minutes of processor time)")
	}
	dir := t.TempDir() // a separate directory, because go get changes go.mod
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const pkg = "github.com/prometheus/prometheus/cmd/promtool"
	for _, args := range [][]string{
		{"get", "-tags", "remove_all_sd", "-tool", pkg},
		{"build", "-tags", "remove_all_sd", "-o", "promtool", pkg},
	} {
		if out, err := exec.Command("go", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
	}
	return filepath.Join(dir, "promtool")
}

// Each alert fires for the series that describe its problem. No alert fires for the series of a
// healthy program.
func TestAlertsFire(t *testing.T) {
	const labels = `{job="j",instance="i",output="o"`
	series := map[string]string{
		"ForebayRecordsDropped":    `forebay_records_dropped_total` + labels + `,reason="full"} 0+1x60`,
		"ForebayInputLost":         `forebay_read_lost_files_total{job="j",instance="i"} 0+1x60`,
		"ForebayCircuitOpen":       `forebay_circuit_state` + labels + `,state="open"} 1+0x60`,
		"ForebayOutputDown":        `forebay_output_up` + labels + `} 0+0x60`,
		"ForebayRecordsLate":       `forebay_oldest_wait_seconds` + labels + `} 61+1x60`,
		"ForebayMemoryShort":       `forebay_memory_room_seconds` + labels + "} 0+0x60\n  forebay_callers_waiting" + labels + `} 3+0x60`,
		"ForebaySpoolAlmostFull":   `forebay_spool_bytes` + labels + "} 81+0x60\n  forebay_spool_max_bytes" + labels + `} 100+0x60`,
		"ForebaySpoolFullInAnHour": `forebay_spool_bytes` + labels + "} 0+1x60\n  forebay_spool_max_bytes" + labels + `} 75+0x60`,
		"ForebayRecordsParked":     `forebay_spool_parked_records` + labels + `} 5+0x60`,
		"ForebayNotCrashSafe":      `forebay_crash_unsafe` + labels + "} 1+0x60\n  forebay_crash_unsafe_records" + labels + `} 0+0x60`,
	}
	healthy := load(t, `
forebay_records_dropped_total{output="o",reason="full"} 7
forebay_records_dropped_total{output="o",reason="sampled"} 7
forebay_read_lost_files_total 1
forebay_circuit_state{output="o",state="closed"} 1
forebay_circuit_state{output="o",state="open"} 0
forebay_output_up{output="o"} 1
forebay_oldest_wait_seconds{output="o"} 1
forebay_memory_room_seconds{output="o"} 1
forebay_callers_waiting{output="o"} 0
forebay_spool_bytes{output="o"} 10
forebay_spool_max_bytes{output="o"} 100
forebay_spool_parked_records{output="o"} 0
forebay_crash_unsafe{output="o"} 0
forebay_crash_unsafe_records{output="o"} 0`)
	for _, r := range rules(t) {
		if n, err := healthy.eval(t.Context(), r.Expr); err != nil || n != 0 {
			t.Errorf("%s fires for a healthy program: %d series, %v", r.Alert, n, err)
		}
		s, ok := series[r.Alert]
		if !ok {
			t.Errorf("%s has no series in this test", r.Alert)
			continue
		}
		if n, err := newStorage(t, "load 1m\n  "+s+"\n").eval(t.Context(), r.Expr); err != nil || n == 0 {
			t.Errorf("%s does not fire: %v", r.Alert, err)
		}
	}
}

func rules(t *testing.T) (all []rulefmt.Rule) {
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

// A storage answers queries at the time half an hour after its first sample.
type storage struct {
	engine *promql.Engine
	series *teststorage.TestStorage
}

func newStorage(t *testing.T, load string) *storage {
	s := &storage{promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery), promqltest.LoadedStorage(t, load)}
	t.Cleanup(func() { _ = s.series.Close() })
	return s
}

// eval returns the number of series in the result of a query.
func (s *storage) eval(ctx context.Context, expr string) (n int, err error) {
	q, err := s.engine.NewInstantQuery(ctx, s.series, nil, expr, time.Unix(30*60, 0))
	if err != nil {
		return 0, err
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return 0, res.Err
	}
	v, err := res.Vector()
	return len(v), err
}
