package httpops

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit/allocs"
	"github.com/forebay-log/forebay/slab"
	"github.com/forebay-log/forebay/spool"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

// A fixed returns the given statistics.
type fixed forebay.Stats

func (s fixed) Stats() forebay.Stats { return forebay.Stats(s) }

// everything returns statistics in which every reported field has a value.
func everything(now time.Time) fixed {
	account := batch.Account{
		Accepted: 1000, Recovered: 50, Delivered: 700, Handled: 20,
		Pending: batch.Pending{Slab: 90, Spill: 155, Inflight: 12},
	}
	for i := range account.Dropped {
		account.Dropped[i] = uint64(i + 1)
	}
	return fixed{Refused: 3, EventsLost: 4, Outputs: []forebay.OutputStats{
		{
			Name: "loki", Buffered: true, Account: account, Errors: 5, Panics: 1, FailingSince: now.Add(-time.Minute), LastError: "an old one",
			Delivery: &deliver.OutputStats{
				Slab: slab.Stats{
					SlabCount: 64, SlabBytes: 64 << 10, Room: 48_000, Rate: 1536.5, BurstLeft: 31_240 * time.Millisecond,
					OldestAge: time.Hour, OldestWait: 1500 * time.Millisecond, Waiting: 2, Waits: 70, WaitTime: 2250 * time.Millisecond, CrashUnsafe: "no room", HeapOnly: 6,
					Recovery: slab.CrashRecovery{DamagedFiles: 7},
				},
				Deliver: deliver.Stats{
					Breaker: deliver.HalfOpen, Trips: 8, Attempts: 900, Retries: 9, Bytes: 180_000, LostDeadLetters: 10,
					FailingSince: now.Add(-time.Minute), OldestWait: 2500 * time.Millisecond, LastError: "connection refused",
				},
				Spool: spool.Stats{Bytes: 81_920, MaxBytes: 1 << 30, Oldest: now.Add(-90 * time.Second), Parked: 11, AsideFiles: 2},
			},
		},
		{Name: "file:\"app\"\\\n\xff.log", Buffered: true, Delivery: &deliver.OutputStats{Slab: slab.Stats{BurstLeft: 24 * time.Hour}}},
		{Name: "direct", Account: batch.Account{Accepted: 1, Delivered: 1}},
		{Name: "stuck", Stuck: true, FailingSince: now.Add(-time.Second)},
	}}
}

func ask(t *testing.T, h http.HandlerFunc, method string) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	h(rec, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
	return rec
}

func must(t *testing.T, r interface{ Stats() forebay.Stats }) *Ops {
	t.Helper()
	o, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// golden compares got with a file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs:\n%s", path, got)
	}
}

func TestMetricsPage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := must(t, everything(time.Now()))
		rec := ask(t, o.Metrics, http.MethodGet)
		if got := rec.Header().Get("Content-Type"); rec.Code != 200 || got != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("%d, Content-Type %q", rec.Code, got)
		}
		golden(t, "metrics.golden", rec.Body.Bytes())
		page, err := parse(rec.Body.String())
		if err != nil {
			t.Fatal(err)
		}
		for series, want := range map[string]float64{
			`forebay_records_dropped_total{output="loki",reason="full"}`:            1,
			`forebay_records_dropped_total{output="direct",reason="failed"}`:        0,
			`forebay_output_up{output="loki"}`:                                      0,
			`forebay_output_up{output="direct"}`:                                    1,
			`forebay_output_up{output="stuck"}`:                                     0,
			`forebay_circuit_state{output="loki",state="half-open"}`:                1,
			`forebay_oldest_wait_seconds{output="loki"}`:                            2.5,
			`forebay_memory_room_seconds{output="loki"}`:                            31.24,
			"forebay_records_accepted_total{output=\"file:\"app\"\\\n\uFFFD.log\"}": 0,
		} {
			if got, ok := page[series]; !ok || got != want {
				t.Errorf("%s is %v (%t), want %v", series, got, ok, want)
			}
		}
		for series := range page {
			if strings.Contains(series, "spool") && !strings.Contains(series, "loki") || strings.Contains(series, "memory") && strings.Contains(series, "direct") {
				t.Errorf("%s makes no sense", series)
			}
		}
	})
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// parse is a strict parser of the text format. Each family has one HELP and one TYPE before its
// samples, which are consecutive. Series are unique, and only counters end in _total. The text is
// UTF-8 and ends with a newline. parse returns unescaped labels.
func parse(page string) (map[string]float64, error) {
	if !utf8.ValidString(page) || !strings.HasSuffix(page, "\n") {
		return nil, errors.New("not UTF-8 that ends with a newline")
	}
	samples := map[string]float64{}
	seen := map[string]bool{}
	var help, name, kind string
	for i, line := range strings.Split(strings.TrimSuffix(page, "\n"), "\n") {
		bad := func(format string, args ...any) (map[string]float64, error) {
			return nil, fmt.Errorf("line %d, %s: %s", i+1, line, fmt.Sprintf(format, args...))
		}
		switch f := strings.SplitN(line, " ", 4); {
		case strings.HasPrefix(line, "# HELP "):
			if len(f) < 4 || !metricName.MatchString(f[2]) || seen[f[2]] || help != name {
				return bad("a bad or repeated HELP, or one without TYPE before it")
			}
			help, seen[f[2]] = f[2], true
		case strings.HasPrefix(line, "# TYPE "):
			if len(f) != 4 || f[2] != help || name == help || f[3] != "counter" && f[3] != "gauge" {
				return bad("a bad or repeated TYPE")
			}
			name, kind = f[2], f[3]
			if (kind == "counter") != strings.HasSuffix(name, "_total") {
				return bad("counters, and they alone, end in _total")
			}
		default:
			series, rest, err := sample(line)
			if err != nil {
				return bad("%v", err)
			}
			if base, _, _ := strings.Cut(series, "{"); base != name || help != name {
				return bad("it does not belong to %s", name)
			}
			if _, dup := samples[series]; dup {
				return bad("it comes twice")
			}
			v, err := strconv.ParseFloat(rest, 64)
			if err != nil || kind == "counter" && v < 0 {
				return bad("its value is %q", rest)
			}
			samples[series] = v
		}
	}
	if help != name {
		return nil, fmt.Errorf("%s has no TYPE", help)
	}
	return samples, nil
}

// sample parses a line. It returns its name and unescaped labels, and its value.
func sample(line string) (series, value string, err error) {
	end := strings.IndexAny(line, "{ ")
	if end < 0 || !metricName.MatchString(line[:end]) {
		return "", "", errors.New("no metric name")
	}
	series, line = line[:end], line[end:]
	if line[0] == '{' {
		var labels []string
		for line = line[1:]; ; line = line[1:] {
			eq := strings.Index(line, `="`)
			if eq < 0 || !labelName.MatchString(line[:eq]) {
				return "", "", errors.New("no label name")
			}
			name := line[:eq]
			var v strings.Builder
			for line = line[eq+2:]; line != "" && line[0] != '"'; line = line[1:] {
				if line[0] == '\\' {
					if line = line[1:]; line == "" || !strings.ContainsRune(`\"n`, rune(line[0])) {
						return "", "", errors.New("a bad escape")
					}
					v.WriteByte(map[byte]byte{'\\': '\\', '"': '"', 'n': '\n'}[line[0]])
					continue
				}
				v.WriteByte(line[0])
			}
			labels = append(labels, name+`="`+v.String()+`"`)
			if len(line) < 2 {
				return "", "", errors.New("no end of the labels")
			}
			if line = line[1:]; line[0] == '}' {
				break
			}
			if line[0] != ',' {
				return "", "", errors.New("no comma between labels")
			}
		}
		series, line = series+"{"+strings.Join(labels, ",")+"}", line[1:]
	}
	value, ok := strings.CutPrefix(line, " ")
	if !ok || value == "" || strings.Contains(value, " ") {
		return "", "", errors.New("no value after one space")
	}
	return series, value, nil
}

func TestParserIsStrict(t *testing.T) {
	const head = "# HELP a_total Text.\n# TYPE a_total counter\n"
	if got, err := parse(head + "a_total{x=\"\\\\\\\"\\n\"} 1\n"); err != nil || got["a_total{x=\"\\\"\n\"}"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
	for _, page := range []string{
		"", head + "a_total 1", "a_total 1\n", head + "b 1\n", head + "a_total 1\na_total 1\n", head + "a_total  1\n", head + "a_total\n",
		head + "a_total{x=\"\\x\"} 1\n", head + "a_total{x=\"1\" 1\n", head + "a_total{x=\"1\"y=\"2\"} 1\n", head + "a_total{1=\"1\"} 1\n", head + "a_total -1\n",
		head + "a_total one\n", head + head, "# HELP a Text.\n", "# HELP a Text.\n# TYPE a counter\n", "# HELP a_total Text.\n# TYPE a_total gauge\n",
		head + "a_total{x=\"\xff\"} 1\n",
	} {
		if _, err := parse(page); err == nil {
			t.Errorf("accepted: %q", page)
		}
	}
}

// docs/OPERATING.md lists exactly the metrics of this package, apart from those of inputs, which
// belong to the program forebay and are compared by its tests.
func TestOperatingGuideListsMetrics(t *testing.T) {
	text, err := os.ReadFile("../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.name)
	}
	found := regexp.MustCompile(`forebay_\w+`).FindAllString(string(text), -1)
	for _, name := range found {
		if !slices.Contains(names, name) && !strings.HasPrefix(name, "forebay_read_") {
			t.Errorf("there is no metric %s", name)
		}
	}
	for _, name := range names {
		if !slices.Contains(found, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	o := must(t, everything(time.Now()))
	for name, h := range map[string]http.HandlerFunc{"metrics": o.Metrics, "health": o.Health} {
		get, head, post := ask(t, h, http.MethodGet), ask(t, h, http.MethodHead), ask(t, h, http.MethodPost)
		if head.Code != get.Code || head.Body.Len() != 0 || get.Body.Len() == 0 || head.Header().Get("Content-Type") != get.Header().Get("Content-Type") {
			t.Errorf("%s: GET %d with %d bytes, HEAD %d with %d", name, get.Code, get.Body.Len(), head.Code, head.Body.Len())
		}
		if post.Code != http.StatusMethodNotAllowed || post.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: POST %d", name, post.Code)
		}
		if got := get.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q", name, got)
		}
	}
}

func TestNewRefusesRouterWithoutOutputs(t *testing.T) {
	var none *forebay.Router
	var nobody *forebay.Logger
	for _, tt := range []struct {
		r    interface{ Stats() forebay.Stats }
		want string
	}{
		{nil, "httpops: the router is nil; give log.Router()"},
		{none, "httpops: the router is a nil *forebay.Router; give log.Router()"},
		{nobody.Router(), "httpops: the router is a nil *forebay.Router"},
		{new(forebay.Router), "httpops: the router (*forebay.Router) has no outputs; make it with forebay.New"},
	} {
		if o, err := New(tt.r); o != nil || err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%T: %v, want %q", tt.r, err, tt.want)
		}
	}
}

// A discard is a ResponseWriter that does not allocate.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// Each scrape allocates only the page, the statistics and a few headers.
func TestMetricsAllocateConstantly(t *testing.T) {
	o := must(t, everything(time.Now()))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	w := discard{http.Header{}}
	if n := allocs.PerRun(100, func() { o.Metrics(w, r) }); n > 8 {
		t.Errorf("%v allocations per scrape", n)
	}
}
