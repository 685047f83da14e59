package program

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/dest"
	"github.com/forebay-log/forebay/cmd/internal/exit"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/record"
)

// lokiTarget opens the destination at the address "loki:"+rest with the given flags.
func lokiTarget(t *testing.T, rest string, flags ...string) (*dest.Target, error) {
	t.Helper()
	return openAs(t, dest.LokiDests(), "loki:"+rest, flags...)
}

func TestLokiReceivesLabelsAndTenant(t *testing.T) {
	var mu sync.Mutex // requests may be concurrent
	var tenant string
	var pushed int
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		tenant, pushed = r.Header.Get("X-Scope-Orgid"), pushed+len(b)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	tgt, err := lokiTarget(t, strings.TrimPrefix(srv.URL, "http:"), "--label", "app=x", "--metadata", "user.id", "--metadata", "k", "--tenant", "t1")
	if err != nil {
		t.Fatal(err)
	}
	w, err := deliver.NewOutput(tgt.Dest, &deliver.OutputOptions{Codec: tgt.Codec, OnError: func(batch.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	p := record.Parser{}
	for line, want := range map[string]map[string]string{
		`{"level":"warn","user":{"id":7},"k":"v"}`: {"user_id": "7", "k": "v"},
		`level=info k="a b" msg=x`:                 {"k": "a b"},
		`plain k=v text`:                           nil,
		`{"user.id":"flat"}`:                       {"user_id": "flat"},
	} {
		var ev record.Event
		p.Parse([]byte(line+"\n"), &ev)
		rec, m, err := tgt.NewEncoder()(nil, &ev)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Labels   string
			Line     json.RawMessage
			Metadata map[string]string
		}
		if err := json.Unmarshal(tgt.Codec.AppendJSON(nil, rec, m), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Metadata) != len(want) || !strings.Contains(got.Labels, `app="x"`) {
			t.Errorf("%s: %+v, want metadata %v", line, got, want)
		}
		for k, v := range want {
			if got.Metadata[k] != v {
				t.Errorf("%s: %s is %q, want %q", line, k, got.Metadata[k], v)
			}
		}
		if err := w.WriteRecord(rec, m); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rep, err := w.Shutdown(ctx)
	if err != nil || rep.Delivered != 4 || tenant != "t1" || pushed == 0 {
		t.Errorf("%v, %v, tenant %q, %d bytes", rep, err, tenant, pushed)
	}
}

func TestLokiDestinationFaults(t *testing.T) {
	for want, args := range map[string][]string{
		"the server is missing": {""},
		"use --user":            {"//u:p@host"},
		"write NAME=VALUE":      {"//host", "--label", "x"},
		"--password-file":       {"//host", "--password-file", "/does/not/exist"},
		"tenant: it has charac": {"//host", "--tenant", "a/b"},
	} {
		if _, err := lokiTarget(t, args[0], args[1:]...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %s", args, err, want)
		}
	}
	if tgt, err := lokiTarget(t, "//host:3100", "--dry-run"); err != nil || tgt.Dest == nil || tgt.Remote {
		t.Errorf("dry run: %v", err)
	}
}

func TestLokiPortAndLabels(t *testing.T) {
	for rest, want := range map[string]string{
		"host": "host:3100", "host/prefix": "host:3100/prefix", "host/": "host:3100/", "host:80/x:y": "host:80/x:y",
		"[::1]": "[::1]:3100", "[::1]:80": "[::1]:80", "host/a:b": "host:3100/a:b",
		"host?a=b:c/d": "host:3100?a=b:c/d", "host:80/x?a=b": "host:80/x?a=b",
	} {
		if got := dest.WithPort(rest, "3100"); got != want {
			t.Errorf("%s became %s, want %s", rest, got, want)
		}
	}
	if _, err := lokiTarget(t, "//host", "--label", "app=a", "--label", "app=b"); err == nil || !strings.Contains(err.Error(), "app is given twice") {
		t.Errorf("got %v", err)
	}
}

// The memory for Loki is large enough for a batch, unless flags set the number of slabs.
func TestLokiMemoryHoldsBatch(t *testing.T) {
	tgt, err := lokiTarget(t, "//127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	limit := tgt.Dest.Traits().Limits.Bytes
	c := dest.NewSpec()
	if o := c.SlabOptions("loki:", tgt, 1<<20); o.SlabCount*o.SlabBytes < 2*limit {
		t.Errorf("%d slabs of %d bytes for batches of %d", o.SlabCount, o.SlabBytes, limit)
	}
	if o := c.SlabOptions("stdout:", &dest.Target{}, 1<<20); o.SlabCount != 8 {
		t.Errorf("%d slabs for standard output", o.SlabCount)
	}
	c.Given = map[string]bool{"slabs": true}
	if o := c.SlabOptions("loki:", tgt, 1<<20); o.SlabCount != 8 {
		t.Errorf("%d slabs where 8 were asked for", o.SlabCount)
	}
}

// Lines of every level, errors included, wait up to --flush-interval for more lines. One request is
// therefore enough for lines of 200 streams.
func TestLinesOfEveryLevelShareRequest(t *testing.T) {
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		requests.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	var text strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&text, "{\"level\":%q,\"file\":\"f%d\",\"i\":%d}\n", []string{"debug", "info", "warn", "error"}[i%4], i/4%50, i)
	}
	c := newConfig("loki:" + strings.TrimPrefix(srv.URL, "http:"))
	giveOptions(t, &c.Options, "--label-from", "file", "--flush-interval", "1m")
	if messages, err := runText(t, c, text.String()); err != nil {
		t.Fatal(messages, err)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	for want, flags := range map[time.Duration][]string{time.Second: nil, 200 * time.Millisecond: {"--flush-interval", "200ms"}, time.Microsecond: {"--flush-interval", "0"}} {
		tgt, err := lokiTarget(t, "//host", flags...)
		if err != nil || tgt.Dest.Traits().Limits.Age != want {
			t.Errorf("%v: %v, %v", flags, tgt, err)
		}
	}
}

// If a fallback receives a record of another Loki output, it converts the record, because the two
// outputs number their streams differently. A record with a Forward tag is not converted, because
// the numbers of tags are the same for all outputs.
func TestFallbackConvertsStreams(t *testing.T) {
	one, err := lokiTarget(t, "//one:3100", "--label", "app=one")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := lokiTarget(t, "//two:3100", "--label", "app=two", "--dry-run")
	if err != nil {
		t.Fatal(err)
	}
	if two.Accepts(one.Codec) {
		t.Error("records of one Loki go to another as they are")
	}
	forward, err := forwardTarget(t, "forward://h", "--dry-run")
	if err != nil {
		t.Fatal(err)
	}
	if !forward.Accepts(forward.Codec) {
		t.Error("records of one Forward do not go to another as they are")
	}
}

// A line that is older than --max-age, or that Loki refuses as too old, becomes a dead letter, is
// dropped, or gets the current time.
func TestTooOldLines(t *testing.T) {
	far := time.Now().Add(-5 * time.Hour).UTC().Truncate(time.Second)
	input := "2001-02-03T04:05:06Z ERROR ancient\n" + far.Format(time.RFC3339) + " WARN far\nfresh\n"
	for _, c := range []struct {
		query            string
		stored, restamps []string
		letters          int
		says             string
	}{
		{"", []string{"fresh"}, nil, 2, `older than --max-age (168h0m0s); see DEAD; --too-old now sends them with the current time`},
		{"&too-old=drop", []string{"fresh"}, nil, 0, "refuses records permanently"},
		{"&too-old=now", []string{"ancient", "far", "fresh"}, []string{"2001-02-03T04:05:06Z", far.Format(time.RFC3339)}, 0,
			"records that are too old are sent with the current time; the original time is in the metadata original_time"},
		{"&max-age=0", []string{"ancient", "fresh"}, nil, 1, "refuses records permanently: server answered 400"},
	} {
		var mu sync.Mutex
		var got []string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			packed, _ := io.ReadAll(r.Body)
			push, err := snappy.Decode(nil, packed)
			if err != nil {
				t.Error(err)
			}
			if text := string(push); strings.Contains(text, "WARN far") && !strings.Contains(text, "original_time") {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, "entry with timestamp %s ignored, reason: 'entry too far behind, entry timestamp is: %s, oldest acceptable timestamp is: %s',\nuser 'fake', total ignored: 1 out of 1 for stream: {}",
					far.Format("2006-01-02 15:04:05.999999999 -0700 MST"), far.Format(time.RFC3339), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, string(push))
			w.WriteHeader(http.StatusNoContent)
		}))
		dead := filepath.Join(t.TempDir(), "dead")
		stderr, err := runText(t, newConfig("loki:"+strings.TrimPrefix(srv.URL, "http:")+"?dead-letter="+dead+c.query), input)
		srv.Close()
		all := strings.Join(got, "\n")
		for _, line := range []string{"ancient", "far", "fresh"} {
			if strings.Contains(all, line) != slices.Contains(c.stored, line) {
				t.Errorf("%s: of %s arrived %q", c.query, line, all)
			}
		}
		for _, own := range c.restamps {
			if !strings.Contains(all, "original_time") || !strings.Contains(all, own) {
				t.Errorf("%s: %s is not in %q", c.query, own, all)
			}
		}
		letters, _ := os.ReadFile(dead)
		want := 0
		if len(c.stored) < 3 {
			want = exit.RuntimeCode
		}
		if says := strings.ReplaceAll(c.says, "DEAD", dead); exit.Code(err) != want || strings.Count(string(letters), "\n") != c.letters || !strings.Contains(stderr, says) {
			t.Errorf("%s: %v, %s\n%s, want %d letters and %s", c.query, err, letters, stderr, c.letters, says)
		}
	}
}

// Fields of a line, and fields that the input adds, become labels if --label-from names them.
func TestLokiLabelFrom(t *testing.T) {
	tgt, err := lokiTarget(t, "//h:3100", "--label", "app=x", "--label-from", "namespace", "--label-from", "http.method", "--metadata", "pod")
	if err != nil {
		t.Fatal(err)
	}
	defer tgt.Close()
	encode := tgt.NewEncoder()
	for _, c := range []struct {
		line string
		want []string
		not  string
	}{
		{`{"msg":"a","http":{"method":"GET"}}`, []string{`namespace=\"shop\"`, `http_method=\"GET\"`, `app=\"x\"`, `"pod":"p-1"`}, "mine"},
		// Fields that the input adds have precedence, because the author of the line is not
		// trusted.
		{`{"msg":"a","namespace":"mine","http":{"method":null},"pod":"mine"}`, []string{`namespace=\"shop\"`, `"pod":"p-1"`}, `http_method`},
		{`namespace=mine http.method=GET pod=mine`, []string{`namespace=\"shop\"`, `http_method=\"GET\"`, `"pod":"p-1"`}, `namespace=\"mine`},
	} {
		var ev record.Event
		new(record.Parser).Parse([]byte(c.line+"\n"), &ev)
		ev.More = []slog.Attr{slog.String("namespace", "shop"), slog.String("pod", "p-1"), slog.String("pod", "another")}
		rec, m, err := encode(nil, &ev)
		if err != nil {
			t.Fatal(err)
		}
		text := string(tgt.Codec.AppendJSON(nil, rec, m))
		labels, _, _ := strings.Cut(text, `"line"`)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s is not in %s", want, text)
			}
		}
		if strings.Contains(labels, c.not) {
			t.Errorf("%s is in %s", c.not, labels)
		}
	}
}

// forebay validate lists the labels that must be renamed for Loki.
func TestValidateRenamedLabels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "forebay.yaml")
	text := "inputs: {in: {type: stdin}}\noutputs:\n  loki:\n    to: loki://h\n    label: {app-name: shop, env: x}\n    label-from: [user.id, host]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := newValidate(os.Stdin, &out)
	cmd.SetArgs([]string{path})
	want := path + " is valid: 1 input, 0 transforms, 1 output\n" +
		"outputs.loki.label: app-name is called app_name at Loki\n" +
		"outputs.loki.label-from: user.id is called user_id at Loki\n"
	if err := cmd.Execute(); err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
}
