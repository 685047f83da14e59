package httpsink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/bubble"
)

// The requests of each API have the documented format.
func TestRequestBodiesOfEachAPI(t *testing.T) {
	recs := []string{"{\"a\":1}\n", "{\"@timestamp\":\"x\",\"_time\":\"y\",\"timestamp\":\"z\"}\n", "{}"}
	const id = "ab000000000000000000000000000001"
	for _, tc := range []struct {
		api, url, wantURL, token, body string
		kind                           string
		set                            func(*Config)
	}{
		{api: "ndjson", url: "http://h/in?key=k1", wantURL: "http://h/in?key=k1", token: "Authorization: Bearer t0ken", kind: "application/x-ndjson",
			body: "{\"a\":1}\n{\"@timestamp\":\"x\",\"_time\":\"y\",\"timestamp\":\"z\"}\n{}\n"},
		{api: "array", url: "http://h", wantURL: "http://h", token: "Authorization: Bearer t0ken", kind: "application/json",
			body: `[{"a":1},{"@timestamp":"x","_time":"y","timestamp":"z"},{}]`},
		{api: "elasticsearch", url: "http://h:9200/p/logs-x/", wantURL: "http://h:9200/p/logs-x/_bulk?filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason,error,status",
			token: "Authorization: ApiKey t0ken", kind: "application/x-ndjson",
			body: `{"create":{"_id":"` + id + `-1"}}` + "\n" + `{"@timestamp":"2017-07-14T02:40:00.123456789Z","a":1}` + "\n" +
				`{"create":{"_id":"` + id + `-2"}}` + "\n" + `{"@timestamp":"x","_time":"y","timestamp":"z"}` + "\n" +
				`{"create":{"_id":"` + id + `-3"}}` + "\n" + `{"@timestamp":"2017-07-14T02:40:00.123456789Z"}` + "\n"},
		{api: "opensearch", url: "http://h:9200/x/_bulk?pipeline=p", wantURL: "http://h:9200/x/_bulk?pipeline=p&filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason,error,status",
			token: "Authorization: ApiKey t0ken", kind: "application/x-ndjson", set: func(c *Config) { c.NoID = true },
			body: "{\"create\":{}}\n" + `{"@timestamp":"2017-07-14T02:40:00.123456789Z","a":1}` + "\n" +
				"{\"create\":{}}\n" + `{"@timestamp":"x","_time":"y","timestamp":"z"}` + "\n" +
				"{\"create\":{}}\n" + `{"@timestamp":"2017-07-14T02:40:00.123456789Z"}` + "\n"},
		{api: "hec", url: "http://h:8088", wantURL: "http://h:8088/services/collector/event", token: "Authorization: Splunk t0ken", kind: "application/json",
			set: func(c *Config) { c.HEC = map[string]string{"source": `a"b`, "index": "main"} },
			body: `{"time":1500000000.123,"index":"main","source":"a\"b","event":{"a":1}}` + "\n" +
				`{"time":1500000000.123,"index":"main","source":"a\"b","event":{"@timestamp":"x","_time":"y","timestamp":"z"}}` + "\n" +
				`{"time":1500000000.123,"index":"main","source":"a\"b","event":{}}` + "\n"},
		{api: "splunk", url: "http://h:8088/services/collector", wantURL: "http://h:8088/services/collector", token: "Authorization: Splunk t0ken", kind: "application/json",
			body: `{"time":1500000000.123,"event":{"a":1}}` + "\n" + `{"time":1500000000.123,"event":{"@timestamp":"x","_time":"y","timestamp":"z"}}` + "\n" + `{"time":1500000000.123,"event":{}}` + "\n"},
		{api: "victorialogs", url: "http://h:9428?_stream_fields=app", wantURL: "http://h:9428/insert/jsonline?_stream_fields=app", token: "Authorization: Bearer t0ken", kind: "application/x-ndjson",
			body: `{"_time":"2017-07-14T02:40:00.123456789Z","a":1}` + "\n" + `{"@timestamp":"x","_time":"y","timestamp":"z"}` + "\n" + `{"_time":"2017-07-14T02:40:00.123456789Z"}` + "\n"},
		{api: "datadog", url: "https://dd.test", wantURL: "https://dd.test/api/v2/logs", token: "Dd-Api-Key: t0ken", kind: "application/json",
			body: `[{"timestamp":"2017-07-14T02:40:00.123456789Z","a":1},{"@timestamp":"x","_time":"y","timestamp":"z"},{"timestamp":"2017-07-14T02:40:00.123456789Z"}]`},
	} {
		t.Run(tc.api, func(t *testing.T) {
			p := &peer{}
			d := destFor(t, p, tc.api, func(c *Config) {
				c.URL, c.HTTP.BearerToken, c.HTTP.Headers = tc.url, "t0ken", map[string]string{"X-Mine": "yes"}
				if tc.set != nil {
					tc.set(c)
				}
			})
			d.send(t.Context(), batchOf(recs...))
			r := p.got[0]
			if r.body != tc.body {
				t.Errorf("body\n%s\nwant\n%s", r.body, tc.body)
			}
			name, value, _ := strings.Cut(tc.token, ": ")
			if r.url != tc.wantURL || r.header.Get(name) != value || r.header.Get("Content-Type") != tc.kind || r.header.Get("X-Mine") != "yes" {
				t.Errorf("%s with %v", r.url, r.header)
			}
			if gz := r.header.Get("Content-Encoding") == "gzip"; gz != (tc.api != "ndjson" && tc.api != "array") {
				t.Errorf("gzip: %v", gz)
			}
			if tc.api == "victorialogs" && (r.header.Get("VL-Time-Field") != "_time" || r.header.Get("VL-Msg-Field") != "_msg,msg,message") {
				t.Errorf("headers %v", r.header)
			}
		})
	}
}

// Records in other formats are converted to one JSON object per record, whatever their content.
func TestOtherFormatsBecomeJSON(t *testing.T) {
	p := &peer{}
	d := destFor(t, p, "ndjson", nil)
	for _, tc := range []struct {
		codec     batch.Codec
		rec, want string
	}{
		{encode.RawCodec(), "plain\n", `{"raw":"plain"}`},
		{encode.RawCodec(), "{\"a\":1}\n", `{"raw":"{\"a\":1}"}`},
		{encode.Logfmt(nil).Codec(), "a=1 b=x\n", `{"a":"1","b":"x"}`},
		{nil, "plain\n", `{"raw":"plain"}`},
		{nil, " {\"a\":1}\r\n", `{"a":1}`},
		{encode.JSON(nil).Codec(), "{\"a\":\n1}\n", `{"a":1}`},
		{encode.JSON(nil).Codec(), "{\"a\":1}\n{\"delete\":{}}\n", `{"raw":"{\"a\":1}\n{\"delete\":{}}"}`},
		{encode.JSON(nil).Codec(), "[1]\n", `{"raw":"[1]"}`},
		{encode.JSON(nil).Codec(), "", `{"raw":""}`},
	} {
		b := batchOf(tc.rec)
		b.Codec = tc.codec
		d.send(t.Context(), b)
		if got := p.got[len(p.got)-1].body; got != tc.want+"\n" {
			t.Errorf("%q: got %s, want %s", tc.rec, got, tc.want)
		}
	}
}

// A wantOutcome is the expected outcome of a request. The field text is a part of the error.
type wantOutcome struct {
	open, refused int
	advice        batch.Advice
	after         time.Duration
	text          string
}

// expect compares o, the outcome of a batch of n records, with w.
func (w wantOutcome) expect(t *testing.T, o batch.Outcome, n int) {
	t.Helper()
	if err := o.Check(n); err != nil {
		t.Fatal(err)
	}
	text := ""
	if err := o.Err(); err != nil {
		text = err.Error()
	}
	got := wantOutcome{o.Open.Len(n), o.Refused.Len(n), o.Advice, o.After, text}
	if strings.Contains(text, w.text) && (w.text != "" || text == "") {
		got.text = w.text
	}
	if got != w {
		t.Errorf("got %+v, want %+v", got, w)
	}
}

// A request with two records has the outcome that the documentation of the API defines for the
// response.
func TestResponsesHaveDocumentedOutcomes(t *testing.T) {
	js := func(status int, text string) reply {
		return reply{status: status, kind: "application/json", text: text}
	}
	page := reply{status: 200, kind: "text/html", text: " <!doctype html><title>Log in</title>"}
	for _, tc := range []struct {
		name, api string
		r         reply
		want      wantOutcome
	}{
		{"taken", "ndjson", reply{status: 200}, wantOutcome{}},
		{"no content", "array", reply{status: 204}, wantOutcome{}},
		{"a server that calls text HTML", "ndjson", reply{status: 201, kind: "text/html", text: "ok"}, wantOutcome{}},
		{"a page to log in", "ndjson", page, wantOutcome{open: 2, advice: batch.Hold, text: "not from ndjson"}},
		{"accepted", "datadog", js(202, "{}"), wantOutcome{}},
		{"too many", "ndjson", reply{status: 429, text: "slow", after: "7"}, wantOutcome{open: 2, after: 7 * time.Second, text: "slow"}},
		{"unavailable", "datadog", reply{status: 503, after: "2"}, wantOutcome{open: 2, after: 2 * time.Second, text: "503"}},
		{"internal", "ndjson", reply{status: 500, text: "oops"}, wantOutcome{open: 2, advice: batch.ServerError, text: "oops"}},
		{"internal, with a delay", "ndjson", reply{status: 500, text: "oops", after: "3"}, wantOutcome{open: 2, after: 3 * time.Second, text: "oops"}},
		{"unauthorized", "ndjson", reply{status: 401, text: "bad token t0p-secret"}, wantOutcome{open: 2, advice: batch.Hold, text: "bad token [secret]"}},
		{"forbidden", "datadog", js(403, `{"errors":[{"status":"403","title":"Forbidden","detail":"API key t0p-secret is invalid"}]}`), wantOutcome{open: 2, advice: batch.Hold, text: "[secret] is invalid"}},
		{"no such path", "ndjson", reply{status: 404}, wantOutcome{open: 2, advice: batch.Hold, text: "404"}},
		{"no POST", "ndjson", reply{status: 405}, wantOutcome{open: 2, advice: batch.Hold, text: "405"}},
		{"too large", "ndjson", reply{status: 413}, wantOutcome{open: 2, advice: batch.Smaller, text: "413"}},
		{"redirect", "ndjson", reply{status: 302}, wantOutcome{open: 2, advice: batch.Hold, text: "redirects are not followed"}},
		{"refused by a proxy", "ndjson", reply{status: 400, kind: "text/html", text: "<html>no</html>"}, wantOutcome{open: 2, advice: batch.Hold, text: "400"}},
		{"refused without a word", "ndjson", reply{status: 400}, wantOutcome{open: 2, advice: batch.Hold, text: "400"}},
		{"refused", "array", reply{status: 400, text: "bad record"}, wantOutcome{open: 2, advice: batch.Search, text: "bad record"}},
		{"unprocessable", "ndjson", reply{status: 422, text: "bad record"}, wantOutcome{open: 2, advice: batch.Search, text: "422 Unprocessable Entity: bad record"}},

		{"success", "hec", js(200, `{"text":"Success","code":0}`), wantOutcome{}},
		{"no answer of Splunk", "hec", js(200, `{}`), wantOutcome{open: 2, advice: batch.Hold, text: "not from hec"}},
		{"a page", "hec", page, wantOutcome{open: 2, advice: batch.Hold, text: "not from hec"}},
		{"empty", "hec", reply{status: 200}, wantOutcome{open: 2, advice: batch.Hold, text: "not from hec"}},
		{"invalid token", "hec", js(403, `{"text":"Invalid token","code":4}`), wantOutcome{open: 2, advice: batch.Hold, text: "403 Forbidden: Invalid token"}},
		{"incorrect index", "hec", js(400, `{"text":"Incorrect index","code":7,"invalid-event-number":1}`), wantOutcome{open: 2, advice: batch.Hold, text: "Incorrect index"}},
		{"busy", "hec", js(503, `{"text":"Server is busy","code":9}`), wantOutcome{open: 2, text: "Server is busy"}},
		{"an event, and no event was ever taken", "hec", js(400, `{"text":"Invalid data format","code":6,"invalid-event-number":1}`), wantOutcome{open: 2, advice: batch.Hold, text: "Invalid data format"}},

		{"stored", "elasticsearch", js(200, `{"took":30,"errors":false,"items":[{"create":{"_index":"x","_id":"a","_version":1,"result":"created","_shards":{"total":2,"successful":1,"failed":0},"status":201,"_seq_no":0,"_primary_term":3}},{"create":{"status":201}}]}`), wantOutcome{}},
		{"no items", "elasticsearch", js(200, `{"took":1,"errors":false}`), wantOutcome{open: 2, advice: batch.Hold, text: "not from elasticsearch"}},
		{"empty items", "elasticsearch", js(200, `{"errors":false,"items":[]}`), wantOutcome{open: 2, advice: batch.Hold, text: "not from elasticsearch"}},
		{"too few items, and no errors", "elasticsearch", js(200, `{"errors":false,"items":[{"create":{"status":201}}]}`), wantOutcome{open: 2, text: "a different number of records"}},
		{"too many items", "elasticsearch", js(200, `{"errors":false,"items":[{"create":{"status":201}},{"create":{"status":201}},{"create":{"status":201}}]}`), wantOutcome{open: 2, text: "a different number of records"}},
		{"stored already", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":409,"error":{"type":"version_conflict_engine_exception","reason":"[1]: version conflict, document already exists (current version [1])"}}},{"create":{"status":201}}]}`), wantOutcome{}},
		{"one for which it is too busy", "elasticsearch", reply{status: 200, after: "3", text: `{"errors":true,"items":[{"create":{"status":201}},{"create":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"rejected execution of coordinating operation"}}}]}`},
			wantOutcome{open: 1, after: 3 * time.Second, text: "429 Too Many Requests: es_rejected_execution_exception: rejected execution"}},
		{"a shard that is not there", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":503,"error":{"type":"unavailable_shards_exception","reason":"primary shard is not active"}}},{"create":{"status":201}}]}`), wantOutcome{open: 1, text: "primary shard is not active"}},
		{"one refused", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":400,"error":{"type":"document_parsing_exception","reason":"[1:6] failed to parse field [a] of type [long]","caused_by":{"type":"illegal_argument_exception","reason":"For input string: \"x\""}}}},{"create":{"status":201}}]}`),
			wantOutcome{refused: 1, text: `400 Bad Request: document_parsing_exception: [1:6] failed to parse field [a] of type [long]: For input string: "x"`}},
		{"all refused for their content", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":400,"error":{"type":"mapper_parsing_exception","reason":"no"}}},{"create":{"status":400,"error":{"type":"strict_dynamic_mapping_exception","reason":"no"}}}]}`), wantOutcome{refused: 2, text: "mapper_parsing"}},
		{"all refused for something else", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":400,"error":{"type":"mapper_parsing_exception","reason":"no"}}},{"create":{"status":400,"error":{"type":"validation_exception","reason":"this action would add [2] shards"}}}]}`), wantOutcome{open: 2, advice: batch.Hold, text: "mapper_parsing"}},
		{"index", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":404,"error":{"type":"index_not_found_exception","reason":"no such index [x]"}}},{"create":{"status":404,"error":{"type":"index_not_found_exception","reason":"no such index [x]"}}}]}`), wantOutcome{open: 2, advice: batch.Hold, text: "no such index"}},
		{"read only", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":403,"error":{"type":"cluster_block_exception","reason":"index [x] blocked by: [FORBIDDEN/8/index write (api)]"}}},{"create":{"status":201}}]}`), wantOutcome{open: 1, advice: batch.Hold, text: "index write (api)"}},
		{"an error that is a text", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":400,"error":"MapperParsingException[no]"}},{"create":{"status":201}}]}`), wantOutcome{refused: 1, text: "MapperParsingException[no]"}},
		{"an item without a status", "elasticsearch", js(200, `{"errors":true,"items":[{"index":{"status":201}},{"create":{"status":201}}]}`), wantOutcome{open: 1, text: "no status for a record"}},
		{"too few items", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":201}}]}`), wantOutcome{open: 2, text: "a different number of records"}},
		{"errors and no items", "elasticsearch", js(200, `{"errors":true}`), wantOutcome{open: 2, text: "a different number of records"}},
		{"cut", "elasticsearch", js(200, `{"errors":true,"items":[{"create":{"status":201}},{"cre`), wantOutcome{open: 2, text: "the answer is truncated"}},
		{"very long", "elasticsearch", js(200, `{"errors":false,"items":[`+strings.Repeat(" ", maxBulkAnswer)), wantOutcome{open: 2, advice: batch.Smaller, text: "more than 16 MiB"}},
		{"another program", "elasticsearch", js(200, `{"ok":true}`), wantOutcome{open: 2, advice: batch.Hold, text: "not from elasticsearch"}},
		{"text", "elasticsearch", reply{status: 200, text: "ok"}, wantOutcome{open: 2, advice: batch.Hold, text: "not from elasticsearch"}},
		{"a page", "elasticsearch", page, wantOutcome{open: 2, advice: batch.Hold, text: "not from elasticsearch"}},
		{"request refused", "elasticsearch", js(400, `{"error":{"root_cause":[],"type":"illegal_argument_exception","reason":"pipeline with id [p] does not exist"},"status":400}`), wantOutcome{open: 2, advice: batch.Hold, text: "illegal_argument_exception: pipeline with id [p] does not exist"}},
		{"security", "elasticsearch", js(401, `{"error":{"type":"security_exception","reason":"missing authentication credentials"},"status":401}`), wantOutcome{open: 2, advice: batch.Hold, text: "security_exception: missing"}},
		{"request too large", "elasticsearch", js(429, `{"error":{"type":"circuit_breaking_exception","reason":"[parent] Data too large"},"status":429}`), wantOutcome{open: 2, text: "Data too large"}},
	} {
		t.Run(tc.api+"/"+tc.name, func(t *testing.T) {
			p := &peer{answer: func(n int, r request) reply {
				if n > 0 { // a request that tests the server
					if len(r.records()) > 0 && r.body != "[]" {
						t.Errorf("the control record was never accepted: %s", r.body)
					}
					return reply{status: 200}
				}
				return tc.r
			}}
			d := destFor(t, p, tc.api, func(c *Config) { c.HTTP.BearerToken = "t0p-secret" })
			o := d.send(t.Context(), batchOf("{\"n\":1}\n", "{\"n\":2}\n"))
			tc.want.expect(t, o, 2)
			var status interface{ HTTPStatus() int }
			if o.Err() != nil && tc.api != "elasticsearch" && (!errors.As(o.Err(), &status) || status.HTTPStatus() != tc.r.status) {
				t.Errorf("the error has no status: %v", o.Err())
			}
			if duplicates := d.Stats().Duplicates; duplicates != 0 != (tc.name == "stored already") {
				t.Errorf("%d duplicates", duplicates)
			}
			for _, cut := range []string{"cut", "too few items", "too few items, and no errors", "too many items", "very long"} {
				if tc.name == cut && !errors.Is(o.Why, batch.ErrUnanswered) {
					t.Errorf("%v is not ErrUnanswered", o.Why)
				}
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
		p := &peer{answer: func(int, request) reply { return reply{fails: tc.err} }}
		o := destFor(t, p, "ndjson", nil).send(t.Context(), batchOf("{}"))
		if o.Open.Len(1) != 1 || errors.Is(o.Why, batch.ErrUnanswered) != tc.unknown || !errors.Is(o.Why, tc.err) {
			t.Errorf("%v: %+v", tc.err, o)
		}
	}
}

// If the server refuses a request, a record in it that is not valid JSON is refused.
func TestRecordThatIsNotJSONIsRefused(t *testing.T) {
	p := &peer{answer: func(int, request) reply { return reply{status: 400, text: "no"} }}
	d := destFor(t, p, "array", nil)
	o := d.send(t.Context(), batchOf("{\"a\":1}\n", "{a}\n", "{\"a\":\n1}"))
	if !slices.Equal(o.Refused.Append(nil, 3), []int{1}) || !slices.Equal(o.Open.Append(nil, 3), []int{0, 2}) || !errors.Is(o.Refusal, errNotJSON) || o.Advice != batch.Again {
		t.Errorf("%+v", o)
	}
}

// Splunk names the refused event, which becomes a dead letter after Splunk has accepted another
// event.
func TestSplunkNamesTheRefusedEvent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const ok = `{"text":"Success","code":0}`
		no := reply{status: 400, text: `{"text":"Invalid data format","code":6,"invalid-event-number":1}`}
		refusing := false
		p := &peer{answer: func(_ int, r request) reply {
			if refusing || strings.Contains(r.body, "bad") {
				return no
			}
			return reply{status: 200, text: ok}
		}}
		d := destFor(t, p, "hec", nil)
		good, bad := batchOf("{\"n\":1}\n"), batchOf("{\"n\":1}\n", "{\"n\":\"bad\"}\n", "{\"n\":3}\n")
		empty := reply{status: 403, text: `{"text":"Token disabled","code":1}`}
		earlier := p.answer
		p.answer = func(n int, r request) reply {
			if r.body == "" {
				return empty
			}
			return earlier(n, r)
		}
		if o := d.send(t.Context(), bad); o.Advice != batch.Hold || o.Open.Len(3) != 3 || !strings.Contains(o.Why.Error(), "disabled") {
			t.Errorf("no event accepted, control refused: %+v", o)
		}
		empty = reply{status: 400, text: `{"text":"No data","code":5}`}
		if o := d.send(t.Context(), bad); o.Refused.Len(3) != 1 {
			t.Errorf("no event accepted: %+v", o)
		}
		if o := d.send(t.Context(), good); o.Err() != nil {
			t.Fatal(o.Err())
		}
		for _, pause := range []time.Duration{0, time.Minute} {
			time.Sleep(pause)
			o := d.send(t.Context(), bad)
			if !slices.Equal(o.Refused.Append(nil, 3), []int{1}) || !slices.Equal(o.Open.Append(nil, 3), []int{0, 2}) || o.Advice != batch.Again {
				t.Errorf("after %v: %+v", pause, o)
			}
		}
		refusing = true
		time.Sleep(time.Minute)
		if o := d.send(t.Context(), bad); o.Advice != batch.Hold || o.Open.Len(3) != 3 {
			t.Errorf("a server that refuses all events: %+v", o)
		}
		no.text = `{"text":"Invalid data format","code":6,"invalid-event-number":3}`
		refusing = false
		if o := d.send(t.Context(), bad); o.Advice != batch.Hold || o.Open.Len(3) != 3 {
			t.Errorf("index of an event that was not sent: %+v", o)
		}
	})
}

// If all records of a request are refused for a reason other than their content, an earlier
// accepted record is sent again. Its result shows whether the server accepts records now.
func TestBulkRefusalIsProbed(t *testing.T) {
	es := &elastic{}
	p := &peer{answer: func(_ int, r request) reply { return es.answer(r.body) }}
	d := destFor(t, p, "elasticsearch", nil)
	if o := d.send(t.Context(), batchOf("{\"n\":1}\n")); o.Err() != nil {
		t.Fatal(o.Err())
	}
	other := batchOf("{\"n\":2}\n", "{\"n\":3}\n")
	other.Origin[1] = 7
	es.statusOf = func(string) (int, string) { return 400, "illegal_argument_exception" }
	o := d.send(t.Context(), other)
	if o.Refused.Len(2) != 2 || len(p.got) != 3 || strings.Join(p.got[2].records(), "") != p.got[0].records()[0] {
		t.Errorf("%+v after %d requests", o, len(p.got))
	}
	if causer, ok := o.Refusal.(interface{ DeadLetterCause(int) error }); !ok || !strings.Contains(causer.DeadLetterCause(1).Error(), `"n":3}`) {
		t.Errorf("the cause of the second dead letter is %v", o.Refusal)
	}
	es.docs = nil // a new index refuses the reference record as well
	if o = d.send(t.Context(), other); o.Advice != batch.Hold || o.Open.Len(2) != 2 {
		t.Errorf("%+v", o)
	}
}

// If the server refuses a request because of one of a thousand records, only that record is a dead
// letter, and the others arrive in order.
func TestOneRefusedRecordIsTheOnlyDeadLetter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var recs []string
		p := &peer{}
		p.answer = func(n int, r request) reply {
			if strings.Contains(r.body, `"n":500}`) {
				return reply{status: 400, text: "bad record"}
			}
			recs = append(recs, r.records()...)
			return reply{status: 200}
		}
		deadLetters := filepath.Join(t.TempDir(), "deadLetters")
		log := loggerFor(t, p, "ndjson", forebay.Delivery(func(o *deliver.OutputOptions) { o.DeadLetterFile = deadLetters }))
		for i := range 1000 {
			log.Info("m", slog.Int("n", i))
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		if js, _ := os.ReadFile(deadLetters); strings.Count(string(js), "\n") != 1 || !strings.Contains(string(js), `"n":500}`) || !strings.Contains(string(js), "bad record") {
			t.Errorf("dead letters: %s", js)
		}
		inOrder(t, recs, 999)
	})
}

// A record on which the server fails, or that a firewall in front of the server rejects, does not
// delay the other records. It becomes a dead letter: after a firewall soon, after a server that fails
// within two hours, because the server may work again.
func TestOneRecordThatFailsDoesNotDelayOthers(t *testing.T) {
	page := "<html>Request blocked</html>"
	for name, tc := range map[string]struct {
		fails reply
		soon  bool
	}{
		"internal error":      {reply{status: 500, text: "oops"}, false},
		"bad gateway":         {reply{status: 502, text: page}, false},
		"firewall":            {reply{status: 403, text: page}, true},
		"firewall with 400":   {reply{status: 400, text: page}, true},
		"refused without why": {reply{status: 400}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				arrived := map[int]bool{} // guarded by p.mu, like down
				down := false
				p := &peer{}
				p.answer = func(_ int, r request) reply {
					if down || strings.Contains(r.body, `"n":100}`) {
						return tc.fails
					}
					for _, rec := range r.records() {
						var n int
						if _, err := fmt.Sscanf(rec[strings.Index(rec, `"n":`):], `"n":%d`, &n); err != nil {
							t.Error(err)
						}
						arrived[n] = true
					}
					return reply{status: 200}
				}
				deadLetters := filepath.Join(t.TempDir(), "deadLetters")
				log := loggerFor(t, p, "ndjson", forebay.Delivery(func(o *deliver.OutputOptions) { o.DeadLetterFile = deadLetters }))
				state := func() (records, letters int) {
					js, _ := os.ReadFile(deadLetters)
					p.mu.Lock()
					defer p.mu.Unlock()
					return len(arrived), strings.Count(string(js), "\n")
				}
				setDown := func(to bool) {
					p.mu.Lock()
					defer p.mu.Unlock()
					down = to
				}
				for i := range 1000 {
					log.Info("m", slog.Int("n", i))
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(5 * time.Minute)
				if got, n := state(); got != 999 || n > 1 || n == 1 != tc.soon {
					t.Errorf("after five minutes %d records have arrived, and there are %d dead letters", got, n)
				}
				time.Sleep(2 * time.Hour)
				if _, n := state(); n != 1 {
					t.Errorf("after two hours there are %d dead letters", n)
				}
				setDown(true) // for all records
				for i := 1000; i < 1200; i++ {
					log.Info("m", slog.Int("n", i))
				}
				time.Sleep(3 * time.Hour)
				setDown(false)
				time.Sleep(5 * time.Minute)
				if got, n := state(); got != 1199 || n != 1 {
					t.Errorf("after an outage %d records have arrived, and there are %d dead letters", got, n)
				}
				if err := log.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// If the server refuses a record as too large even when it is sent alone, the record becomes a dead
// letter. Other records arrive.
func TestRecordTooLargeIsDeadLetter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for i := range apis {
			es := &elastic{}
			var recs []string
			p := &peer{}
			p.answer = func(n int, r request) reply {
				switch {
				case len(r.body) > 800:
					return reply{status: 413, text: "too large"}
				case apis[i].bulk:
					return es.answer(r.body)
				}
				recs = append(recs, r.body)
				return reply{status: 200, text: `{"code":0}`}
			}
			deadLetters := filepath.Join(t.TempDir(), "deadLetters")
			log := loggerFor(t, p, apis[i].name, forebay.Delivery(func(o *deliver.OutputOptions) { o.DeadLetterFile, o.OnError = deadLetters, func(batch.Event) {} }))
			for n := range 60 {
				text := "short"
				if n%20 == 7 {
					text = strings.Repeat("x", 1000)
				}
				log.Info(text, slog.Int("n", n))
			}
			if err := log.Router().Flush(t.Context()); err != nil {
				t.Error(err)
			}
			rep, err := log.Router().Close(t.Context())
			if a := rep.Outputs[0].Account; err != nil || a.Delivered != 57 || a.Dropped[batch.Poison] != 3 {
				t.Errorf("%s: %v, %v", apis[i].name, a, err)
			}
			if n := strings.Count(strings.Join(append(recs, es.order...), ""), `"short"`); n != 57 {
				t.Errorf("%s: %d records arrived", apis[i].name, n)
			}
			if js, _ := os.ReadFile(deadLetters); bytes.Count(js, []byte("\n")) != 3 || bytes.Count(js, []byte(`"status":413`)) != 3 {
				t.Errorf("%s: dead letters %.300s", apis[i].name, js)
			}
		}
	})
}

// inOrder checks that the records in recs are in the order of their field n, and that recs has at
// least minCount records.
func inOrder(t *testing.T, recs []string, minCount int) {
	t.Helper()
	last := -1
	for _, r := range recs {
		var rec struct{ N int }
		if err := json.Unmarshal([]byte(r), &rec); err != nil || rec.N < last {
			t.Fatalf("record %s after %d", r, last)
		}
		last = rec.N
	}
	if len(recs) < minCount || last != 999 {
		t.Errorf("%d records arrived, the last is %d", len(recs), last)
	}
}

// Elasticsearch loses responses, is too busy for some records, and refuses others. Each valid
// record is stored once, and each refused record is a dead letter with its own reason.
func TestElasticsearchStoresRecordsOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		busy := map[string]bool{}
		es := &elastic{statusOf: func(doc string) (int, string) {
			switch {
			case strings.Contains(doc, `7}`):
				return 400, "document_parsing_exception"
			case strings.Contains(doc, `3}`) && !busy[doc]:
				busy[doc] = true
				return 429, "es_rejected_execution_exception"
			}
			return 201, ""
		}}
		p := &peer{}
		p.answer = func(n int, r request) reply {
			a := es.answer(r.body)
			switch n % 5 {
			case 1:
				return reply{fails: errors.New("connection reset")}
			case 3:
				a.text = a.text[:len(a.text)/2]
			}
			return a
		}
		deadLetters := filepath.Join(t.TempDir(), "deadLetters")
		log := loggerFor(t, p, "elasticsearch", forebay.Configure(func(c *Config) { c.BatchRecords = 40 }), forebay.Delivery(func(o *deliver.OutputOptions) {
			o.DeadLetterFile, o.CloseTimeout, o.OnError = deadLetters, time.Hour, func(batch.Event) {}
		}))
		for i := range 1000 {
			log.Info("m", slog.Int("n", i))
		}
		rep, err := log.Router().Close(t.Context())
		if account := rep.Outputs[0].Account; err != nil || account.Dropped[batch.Poison] != 100 || account.Delivered != 900 {
			t.Errorf("%v %v", err, account)
		}
		if len(es.order) != 900 {
			t.Errorf("%d documents, want 900", len(es.order))
		}
		js, _ := os.ReadFile(deadLetters)
		if n := bytes.Count(js, []byte("\n")); n != 100 {
			t.Errorf("%d dead letters, want 100", n)
		}
		for line := range bytes.Lines(js) {
			own := regexp.MustCompile(`\\?"n\\?":\d+}`).FindAll(line, -1)
			if len(own) != 2 || string(own[1]) != strings.ReplaceAll(string(own[0]), `\`, "") && string(own[0]) != strings.ReplaceAll(string(own[1]), `\`, "") {
				t.Fatalf("dead letter with the reason of another record: %s", line)
			}
		}
	})
}

// The time key in a value or in a nested object does not count as the time of the record.
func TestTimeInValueIsNotTimeOfRecord(t *testing.T) {
	p := &peer{}
	d := destFor(t, p, "elasticsearch", func(c *Config) { c.NoID = true })
	const added = `"@timestamp":"2017-07-14T02:40:00.123456789Z",`
	for rec, want := range map[string]string{
		`{"field":"@timestamp"}`:                               `{` + added + `"field":"@timestamp"}`,
		`{"ctx":{"@timestamp":"x"},"a":1}`:                     `{` + added + `"ctx":{"@timestamp":"x"},"a":1}`,
		`{"a":["@timestamp",{"@timestamp":"x"}],"b":"\"}{,:"}`: `{` + added + `"a":["@timestamp",{"@timestamp":"x"}],"b":"\"}{,:"}`,
		`{"a":1, "@timestamp" :"x"}`:                           `{"a":1, "@timestamp" :"x"}`,
		`{ "@timestamp":null}`:                                 `{ "@timestamp":null}`,
		`{"a":{"@timestamp"}`:                                  `{"a":{"@timestamp"}`, // invalid JSON is sent unchanged, so that the server reports the error
	} {
		d.send(t.Context(), batchOf(rec+"\n"))
		if got := p.got[len(p.got)-1].body; got != "{\"create\":{}}\n"+want+"\n" {
			t.Errorf("%s: %s", rec, got)
		}
	}
}

// Records of level ERROR wait for their batch like other records: there is at most one request per
// flush interval.
func TestErrorsWaitForTheirBatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := new(peer)
		log := loggerFor(t, p, "ndjson")
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
