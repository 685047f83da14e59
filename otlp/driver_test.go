package otlp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/transport"
)

// A request has the resource, the scope and the records, with and without compression, and the
// configured headers.
func TestRequestIsValidProtobuf(t *testing.T) {
	for _, compression := range []string{"gzip", "none"} {
		p := new(peer)
		x := exporterFor(t, p, func(c *Config) {
			c.Compression, c.ScopeName, c.ScopeVersion, c.HTTP.Headers = compression, "scope", "v1", map[string]string{"X-Key": "secret"}
		})
		for range 2 {
			if o := x.send(t.Context(), batchOf(t, x, "one", "two")); o.Err() != nil {
				t.Fatal(o.Err())
			}
		}
		if len(p.got) != 2 || p.got[1].resource != `{"service.name":"x"}` || p.got[1].scope != `"\n\x05scope\x12\x02v1"` || len(p.got[1].recs) != 2 || !strings.Contains(p.got[1].recs[1], `"body":"two"`) {
			t.Errorf("%s: %+v", compression, p.got)
		}
		if h := p.headers[0]; h.Get("X-Key") != "secret" || h.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("headers %v", h)
		}
	}
}

// status returns a reply with a google.rpc.Status of code 3 (INVALID_ARGUMENT).
func status(code int, message string) reply {
	return reply{status: code, kind: "application/x-protobuf", text: string(appendText([]byte{0x08, 3}, 0x12, message))}
}

// rejected returns a reply with status 200 whose partial_success rejects n records.
func rejected(n int, message string) reply {
	part := appendText([]byte{0x08, byte(n)}, 0x12, message)
	return reply{status: 200, kind: "application/x-protobuf", text: string(append(appendLen(nil, 0x0a, len(part)), part...))}
}

// A request with two records has the outcome that the protocol documents for the response.
func TestResponsesHaveDocumentedOutcomes(t *testing.T) {
	after := func(r reply, v string) reply {
		r.header = http.Header{"Retry-After": {v}}
		return r
	}
	type want struct {
		open, refused int
		advice        batch.Advice
		after         time.Duration
		text          string
		rejected      uint64
	}
	for _, tc := range []struct {
		name string
		r    reply
		want want
	}{
		{"taken", reply{status: 200}, want{}},
		{"taken, JSON", reply{status: 200, kind: "application/json", text: "{}"}, want{}},
		{"partial success of none", rejected(0, ""), want{}},
		{"warning", rejected(0, "old format"), want{}},
		{"one of two", rejected(1, "no"), want{rejected: 1, text: "1 of 2 records refused without naming them: no"}},
		{"all", rejected(2, "no good"), want{refused: 2, text: "no good"}},
		{"all, JSON", reply{status: 200, kind: "application/json", text: `{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"no good"}}`}, want{refused: 2, text: "no good"}},
		{"taken, JSON, no body", reply{status: 200, kind: "application/json"}, want{}},
		{"taken, text, no body", reply{status: 204, kind: "text/plain"}, want{}},
		{"taken, and a field of the future", reply{status: 200, kind: "application/x-protobuf", text: "\x12\x01x"}, want{}},
		{"a page to log in", reply{status: 200, kind: "text/html", text: "<html>"}, want{open: 2, advice: batch.Hold, text: "not from an OTLP receiver; correct url: <html>"}},
		{"a text", reply{status: 200, kind: "text/plain", text: "ok"}, want{open: 2, advice: batch.Hold, text: "not from an OTLP receiver; correct url: ok"}},
		{"a text that could be a message", reply{status: 200, kind: "text/plain", text: "accepted!"}, want{open: 2, advice: batch.Hold, text: "not from an OTLP receiver"}},
		{"a text without a type", reply{status: 200, text: "ok"}, want{open: 2, advice: batch.Hold, text: "not from an OTLP receiver"}},
		{"broken", reply{status: 200, kind: "application/x-protobuf", text: "\x0a\x06\x08"}, want{open: 2, advice: batch.Hold, text: "not from an OTLP receiver"}},
		{"broken within", reply{status: 200, kind: "application/x-protobuf", text: "\x0a\x02\x12\x09"}, want{open: 2, advice: batch.Hold, text: "not from an OTLP receiver"}},
		{"of another message", reply{status: 200, kind: "application/x-protobuf", text: "\x08\x01"}, want{open: 2, advice: batch.Hold, text: "not from an OTLP receiver"}},
		{"JSON of another program", reply{status: 200, kind: "application/json", text: `["ok"]`}, want{open: 2, advice: batch.Hold, text: "not from an OTLP receiver"}},
		{"JSON that is cut", reply{status: 200, kind: "application/json", text: `{"partialSuccess":{`}, want{open: 2, advice: batch.Hold, text: "not from an OTLP receiver"}},
		{"very long", reply{status: 200, kind: "application/x-protobuf", text: strings.Repeat("x", maxAnswer+1)}, want{open: 2, text: "more than 16777216 bytes"}},
		{"too many", after(status(429, "slow"), "7"), want{open: 2, after: 7 * time.Second, text: "slow"}},
		{"bad gateway", reply{status: 502}, want{open: 2, advice: batch.ServerError, text: "502 Bad Gateway"}},
		{"unavailable", after(status(503, "queue full"), "2"), want{open: 2, after: 2 * time.Second, text: "queue full"}},
		{"timeout", reply{status: 504}, want{open: 2, text: "504"}},
		{"internal", status(500, "permanent"), want{open: 2, advice: batch.ServerError, text: "permanent"}},
		{"unauthorized", status(401, "bad token t0p-secret"), want{open: 2, advice: batch.Hold, text: "bad token [secret]"}},
		{"forbidden", status(403, ""), want{open: 2, advice: batch.Hold, text: "403"}},
		{"no such path", reply{status: 404, kind: "text/plain", text: "404 page not found"}, want{open: 2, advice: batch.Hold, text: "404 page not found"}},
		{"too large", reply{status: 413}, want{open: 2, advice: batch.Smaller, text: "413"}},
		{"redirect", reply{status: 307, header: http.Header{"Location": {"http://other/"}}}, want{open: 2, advice: batch.Hold, text: "redirects are not followed"}},
		{"refused by a proxy", reply{status: 400, kind: "text/html", text: "<html>no</html>"}, want{open: 2, advice: batch.Hold, text: "400"}},
		{"refused", status(400, "bad record"), want{open: 2, advice: batch.Search, text: "bad record"}},
		{"refused, JSON", reply{status: 400, kind: "application/json", text: `{"code":3,"message":"bad record"}`}, want{open: 2, advice: batch.Search, text: "400 Bad Request: bad record"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			events := make(chan batch.Event, 1)
			p := &peer{answer: func(n int, recs []string) reply {
				if len(recs) == 0 { // a request without records, which tests the receiver
					return reply{status: 200}
				}
				return tc.r
			}}
			x := exporterFor(t, p, func(c *Config) {
				c.HTTP.BearerToken = "t0p-secret"
			})
			x.reports.SetOutput("otlp", func(e batch.Event) { events <- e })
			o := x.send(t.Context(), batchOf(t, x, "one", "two"))
			if err := o.Check(2); err != nil {
				t.Fatal(err)
			}
			text := ""
			if err := o.Err(); err != nil {
				text = err.Error()
			}
			got := want{o.Open.Len(2), o.Refused.Len(2), o.Advice, o.After, text, uint64(o.Unnamed)}
			if strings.Contains(text, tc.want.text) {
				got.text = tc.want.text
			}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if tc.want.rejected > 0 || tc.name == "warning" {
				if e := <-events; e.Op != "partial-success" || e.Count != tc.want.rejected {
					t.Errorf("event %v", e)
				}
			}
			var status interface{ HTTPStatus() int }
			if o.Err() != nil && !errors.Is(o.Err(), batch.ErrUnanswered) && (!errors.As(o.Err(), &status) || status.HTTPStatus() != tc.r.status) {
				t.Errorf("the error has no status: %v", o.Err())
			}
		})
	}
}

// Without a response, the records stay undelivered. The error is ErrUnanswered, unless no
// connection was established.
func TestMissingResponseLeavesRecordsOpen(t *testing.T) {
	for _, tc := range []struct {
		err     error
		unknown bool
	}{
		{errors.New("reset"), true},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, false},
	} {
		p := &peer{fails: tc.err}
		x := exporterFor(t, p, nil)
		o := x.send(t.Context(), batchOf(t, x, "one"))
		if o.Open.Len(1) != 1 || errors.Is(o.Why, batch.ErrUnanswered) != tc.unknown || !errors.Is(o.Why, tc.err) {
			t.Errorf("%v: %+v", tc.err, o)
		}
	}
}

// After a 400 response, a record becomes a dead letter only if other records are accepted.
func TestBadRequestCondemnsOnlyIfOthersAreAccepted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		refuses, sizes := true, []int{}
		p := &peer{answer: func(n int, recs []string) reply {
			sizes = append(sizes, len(recs))
			if refuses {
				return status(400, "no")
			}
			return reply{status: 200}
		}}
		x := exporterFor(t, p, nil)
		one, two := batchOf(t, x, "one"), batchOf(t, x, "two", "three")
		expect := func(name string, b *batch.Batch, advice batch.Advice, want ...int) {
			t.Helper()
			sizes = sizes[:0]
			if o := x.send(t.Context(), b); o.Advice != advice || !slices.Equal(sizes, want) {
				t.Errorf("%s: %v after requests of %v records; want %v after %v", name, o.Advice, sizes, advice, want)
			}
		}
		expect("nothing was ever taken, and nothing is", two, batch.Hold, 2, 0)
		refuses = false
		expect("taken", one, batch.Again, 1)
		refuses = true
		expect("taken just now", two, batch.Search, 2)
		time.Sleep(20 * time.Second)
		expect("long ago", two, batch.Hold, 2, 1)
		p.answer = func(n int, recs []string) reply {
			sizes = append(sizes, len(recs))
			if strings.Contains(recs[0], "two") {
				return status(400, "no")
			}
			return reply{status: 200}
		}
		expect("the control is taken", two, batch.Search, 2, 1)
		p.answer = func(n int, recs []string) reply {
			sizes = append(sizes, len(recs))
			if len(recs) == 1 {
				return reply{status: 503}
			}
			return status(400, "no")
		}
		time.Sleep(20 * time.Second)
		expect("nobody knows", two, batch.Again, 2, 1)
	})
}

// If one record of a thousand is refused, only that record is a dead letter, and the others
// arrive in order.
func TestOneRefusedRecordIsTheOnlyDeadLetter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := &peer{}
		p.answer = func(n int, recs []string) reply {
			for _, r := range recs {
				if strings.Contains(r, `"n":500}`) {
					p.got[n].recs = nil
					return status(400, "bad record")
				}
			}
			return reply{status: 200}
		}
		deadLetters := filepath.Join(t.TempDir(), "deadLetters")
		log := loggerFor(t, p, forebay.Delivery(func(o *deliver.OutputOptions) { o.DeadLetterFile = deadLetters }))
		for i := range 1000 {
			log.Info("m", slog.Int("n", i))
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		if js, _ := os.ReadFile(deadLetters); strings.Count(string(js), "\n") != 1 || !strings.Contains(string(js), `"n":500}`) || !strings.Contains(string(js), "bad record") {
			t.Errorf("dead letters: %s", js)
		}
		recs := p.records()
		last := -1
		for _, r := range recs {
			var n int
			if _, err := fmt.Sscanf(r[strings.Index(r, `"n":`):], `"n":%d`, &n); err != nil || n < last {
				t.Fatalf("record %s after %d", r, last)
			}
			last = n
		}
		if len(recs) < 999 || last != 999 {
			t.Errorf("%d records arrived, the last is %d", len(recs), last)
		}
	})
}

func TestRecordsOfOtherCodecAreRefused(t *testing.T) {
	p := new(peer)
	x := exporterFor(t, p, nil)
	good := batchOf(t, x, "good").At(0)
	b := batch.Batch{Codec: x.Encoder().Codec()}
	b.Append([]byte("{}\n"), 0, batch.Meta{})
	b.Append(good.Data, 0, good.Meta)
	o := x.send(t.Context(), &b)
	if !o.Refused.Has(0) || !o.Open.Has(1) || o.Check(2) != nil || len(p.got) != 0 {
		t.Errorf("%+v", o)
	}
	b.Codec = nil
	if o := x.send(t.Context(), &b); o.Refused.Len(2) != 2 {
		t.Errorf("records of another encoder: %+v", o)
	}
}

// A dry run writes the request with its records and sends nothing. The query of the URL is hidden.
func TestDryRunWritesRecords(t *testing.T) {
	var out bytes.Buffer
	p := new(peer)
	x := exporterFor(t, p, func(c *Config) { c.DryRun, c.URL = &out, "http://otel.test/p?key=secret" })
	if o := x.sendDry(t.Context(), batchOf(t, x, "one")); o.Err() != nil {
		t.Fatal(o.Err())
	}
	want := "POST http://otel.test/p/v1/logs?…: 1 record, 38 bytes\n  {\"time\":\"1970-01-01T00:00:01Z\",\"level\":\"INFO\",\"body\":\"one\"}\n"
	if out.String() != want || len(p.got) != 0 {
		t.Errorf("got %q", out.String())
	}
}

// The error of New contains each invalid field. Neither the error nor the text of a Config contains
// secrets.
func TestConfigErrors(t *testing.T) {
	_, err := New(Config{
		URL:          "ftp://user:hunter22@h",
		Compression:  "zip",
		BatchBytes:   -1,
		BatchRecords: -1,
		Resource:     map[string]string{"": "x"},
		HTTP:         httpclient.Options{Username: "u", BearerToken: "t\n", Timeout: -1, TLS: transport.TLS{CertFile: "c"}, Headers: map[string]string{"Host": "x"}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`url: its scheme is "ftp"`, `compression is "zip"; use gzip or none`, "headers: Host is set by the client", "newline", "batch_bytes is -1", "batch_records is -1", "timeout", "cert_file and key_file", "resource: a name is empty"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	c := Config{URL: "http://user:hunter22@h:4318/p?key=topsecret", HTTP: httpclient.Options{BearerToken: "topsecret"}}
	for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v %#v %s", c, c, c, &c), c.LogValue().String()} {
		if strings.Contains(text, "hunter22") || strings.Contains(text, "topsecret") {
			t.Errorf("a secret is in: %s", text)
		}
	}
	if _, err := forebay.New(To("http://h", forebay.Name("a"), forebay.Configure[Config](nil), Resource("a", "b"), Resource("a", "c"))); err == nil ||
		!strings.Contains(err.Error(), "the function is nil") || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("To: %v", err)
	}
}

// If a server repeats a credential in its response, the credential is hidden, even if it is short
// or a common word.
func TestRepeatedCredentialsAreHidden(t *testing.T) {
	for _, secret := range []string{"swordfish", "x1"} {
		says := fmt.Sprintf("bad token Bearer %s, refused [%s]", secret, secret)
		for _, r := range []reply{rejected(2, says), rejected(1, says), status(400, says), status(401, says), status(503, says), {status: 500, kind: "text/plain", text: says}} {
			events := make(chan batch.Event, 1)
			p := &peer{answer: func(int, []string) reply { return r }}
			x := exporterFor(t, p, func(c *Config) {
				c.HTTP.BearerToken = secret
			})
			x.reports.SetOutput("otlp", func(e batch.Event) { events <- e })
			o := x.send(t.Context(), batchOf(t, x, "one", "two"))
			shown := fmt.Sprint(o.Err(), x.Stats().LastError)
			if o.Unnamed > 0 {
				shown += (<-events).String()
			}
			if strings.Contains(shown, secret) || !strings.Contains(shown, "Bearer [secret]") {
				t.Errorf("%d: %s", r.status, shown)
			}
		}
	}
}

// Records of level ERROR wait for their batch like other records: there is at most one request per
// flush interval.
func TestErrorsWaitForTheirBatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := new(peer)
		log := loggerFor(t, p)
		for range 100 {
			log.Error("m")
			time.Sleep(10 * time.Millisecond)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		if n := len(p.got); n > 11 {
			t.Errorf("%d requests in a second", n)
		}
	})
}
