package loki

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/testkit"
	"github.com/forebay-log/forebay/internal/values"
)

func event(at time.Time, level slog.Level, msg string, attrs ...slog.Attr) encode.Record {
	return encode.Record{Time: at, Level: level, Message: msg, Attrs: attrs}
}

// The responses of Loki are interpreted as documented at client.interpret.
func TestResponsesOfLokiAreInterpreted(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		text   string
		h      http.Header
		want   string
	}{
		{name: "stored", status: 204, want: "stored"},
		{name: "a page", status: 200, text: "log in", want: "hold [0]"},
		{name: "blocked", status: 260, text: "ingestion blocked for user 'fake' until '2030-01-01T00:00:00Z' with status code '260'", want: "hold [0]"},
		{name: "decode", status: 400, text: "couldn't parse push request", want: "refused [0]"},
		{name: "label", status: 400, text: `error parsing labels '{a.b="c"}' with error: 1:3: parse error`, want: "refused [0]"},
		{name: "unauthorised", status: 401, text: "no org id", want: "hold [0]"},
		{name: "forbidden", status: 403, want: "hold [0]"},
		{name: "not found", status: 404, want: "hold [0]"},
		{name: "method", status: 405, want: "hold [0]"},
		{name: "redirect", status: 302, want: "hold [0]"},
		{name: "timeout", status: 408, want: "again [0] after 0s"},
		{name: "no streams", status: 422, want: "doubt [0]"},
		{name: "unknown", status: 400, text: "the request did not pass", want: "doubt [0]"},
		{name: "JSON", status: 400, text: "loghttp.PushRequest.Streams: []loghttp.LogProtoStream: unmarshalerDecoder: Value is string, but can't find closing '\"' symbol, error found in #10 byte of ...|x|..., bigger context ...|x|...", want: "refused [0]"},
		{name: "protobuf", status: 400, text: "proto: PushRequest: wiretype end group for non-group", want: "refused [0]"},
		{name: "rate", status: 429, text: "ingestion rate limit exceeded for user x (limit: 4194304 bytes/sec) while attempting to ingest '1' lines totaling '10' bytes, reduce", want: "again [0] after 0s"},
		{name: "rate, said when", status: 429, h: http.Header{"Retry-After": {"7"}}, want: "again [0] after 7s"},
		{name: "forbidden, said when", status: 403, h: http.Header{"Retry-After": {"7"}}, want: "hold [0] after 7s"},
		{name: "server", status: 500, text: "boom", want: "server error [0] after 0s"},
		{name: "unavailable", status: 503, h: http.Header{"Retry-After": {"nonsense"}}, want: "again [0] after 0s"},
		{name: "no answer", status: 0, text: "connection refused", want: "again [0] after 0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &peer{answer: func(int, *request) (int, string, http.Header) { return tt.status, tt.text, tt.h }}
			e := &encoded{t: t, s: sinkFor(t, p, Config{})}
			got := e.add(nil, event(time.Now(), 0, "a")).send()
			if !got.is(tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			if got == nil {
				return
			}
			if tt.text != "" && !strings.Contains(got.String(), tt.text) {
				t.Errorf("the error %q does not contain %q", got, tt.text)
			}
			if s := e.s.Stats(); s.Requests != 1 || s.Failed != 1 || s.LastError == "" {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// If the server rejects a request as too large, batches become smaller. A single entry that is too
// large is refused.
func TestTooLargeResponsesSplitBatches(t *testing.T) {
	for name, answer := range map[string]struct {
		status int
		text   string
	}{
		"413":         {413, "too large"},
		"grpc":        {500, "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5000000 vs. 4194304)"},
		"burst":       {429, "ingestion rate limit exceeded for user x (limit: 100 bytes/sec) while attempting to ingest '3' lines totaling '400' bytes, reduce log volume"},
		"per stream":  {429, "entry with timestamp 2026 ignored, reason: 'Per stream rate limit exceeded (limit: 10B/sec) while attempting to ingest for stream '{}' totaling 5B, consider'"},
		"per stream2": {429, "reason: 'Per stream rate limit exceeded (limit: 0KB/sec) while attempting"},
	} {
		bubble.Test(t, func(t *testing.T) {
			p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
				n := 0
				for _, e := range r.streams[0].Entries {
					n += len(e.Line)
				}
				if n > 100 {
					return answer.status, answer.text, nil
				}
				return 204, "", nil
			}}
			e := &encoded{t: t, s: sinkFor(t, p, Config{})}
			for i := range 20 {
				e.add(nil, event(time.Now(), 0, fmt.Sprint(i)))
			}
			single := answer.status == 413
			if single {
				e.add(nil, event(time.Now(), 0, strings.Repeat("x", minRequestLimit)))
			}
			if o := e.send(); !o.is("smaller [0 1 2") || o.Open.Len(o.n) != e.as(nil).Len() || len(p.requests()) != 1 || e.s.Stats().Splits != 1 {
				t.Fatalf("%s: got %v, %+v", name, o, e.s.Stats())
			}
			if got := e.deliver(); single != slices.Equal(got, []int{20}) {
				t.Fatalf("%s: refused %v", name, got)
			}
			stored := map[string]bool{}
			for _, r := range p.requests() {
				n := 0
				for _, en := range r.streams[0].Entries {
					n += len(en.Line)
				}
				for _, en := range r.streams[0].Entries {
					stored[en.Line] = stored[en.Line] || n <= 100
				}
			}
			for i := range 20 {
				if !stored[fmt.Sprintf(`{"msg":"%d"}`, i)] {
					t.Errorf("%s: %d was not stored", name, i)
				}
			}
		})
	}
}

// If a response with status 400 names entries, only these entries are refused.
func TestOnlyNamedEntriesAreRefused(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	old := func(d time.Duration) time.Time { return now.Add(-d) }
	limit := old(time.Hour).Add(500 * time.Millisecond) // the texts of the responses have whole seconds
	text := map[string]func(e gotEntry) string{
		"too old": func(e gotEntry) string {
			if e.Time.Before(limit) {
				return fmt.Sprintf("entry for stream '{app=\"test\"}' has timestamp too old: %s, oldest acceptable timestamp is: %s", e.Time.Format(time.RFC3339), limit.Format(time.RFC3339))
			}
			return ""
		},
		"too far behind": func(e gotEntry) string {
			if e.Time.Before(limit) {
				return fmt.Sprintf("entry with timestamp %s ignored, reason: 'entry too far behind, entry timestamp is: %s, oldest acceptable timestamp is: %s',\nuser 'fake', total ignored: 1 out of 2 for stream: {}", e.Time, e.Time.Format(time.RFC3339), limit.Format(time.RFC3339))
			}
			return ""
		},
		"line too long": func(e gotEntry) string {
			if len(e.Line) > 100 {
				return fmt.Sprintf("max entry size '100' bytes exceeded for stream '{}' while adding an entry with length '%d' bytes", len(e.Line))
			}
			return ""
		},
	}
	for name, refusalOf := range text {
		t.Run(name, func(t *testing.T) {
			p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
				// The response names only the first refused entry, so the client must send the
				// others again.
				for _, e := range r.streams[0].Entries {
					if s := refusalOf(e); s != "" {
						return 400, s, nil
					}
				}
				return 204, "", nil
			}}
			e := &encoded{t: t, s: sinkFor(t, p, Config{})}
			bad := strings.Repeat("x", 200)
			e.add(nil, event(now, 0, "good"))
			e.add(nil, event(old(2*time.Hour), 0, bad))
			e.add(nil, event(old(3*time.Hour), 0, bad))
			e.add(nil, event(now, 0, "good too"))
			want := []int{1, 2}
			if name != "line too long" {
				e.add(nil, event(old(time.Hour).Add(200*time.Millisecond), 0, "in the second of the limit"))
				want = append(want, 4)
			}
			got := e.deliver()
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Fatalf("got %+v", got)
			}
			last := p.requests()[len(p.requests())-1].streams[0].Entries
			if len(last) > 3 { // the last refusal may name one more entry
				t.Errorf("the last request has %v", last)
			}
			if s := e.s.observed.counts(); int(s[tooOld]+s[tooFarBehind]+s[lineTooLong]) != len(want) {
				t.Errorf("counted %v", s)
			}
		})
	}
}

// All streams are in one request. A problem with one stream does not affect the other streams. The
// outcome contains exactly the records that are neither stored nor refused.
func TestStreamsShareRequests(t *testing.T) {
	levels := []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	send := func(c Config, answer func(labels string) int) (*peer, *sendResult) {
		p := &peer{}
		p.answer = whole(func(_ int, r *request) (int, string, http.Header) {
			return answer(r.streams[0].Labels), "text", nil
		})
		e := &encoded{t: t, s: sinkFor(t, p, c)}
		for i := range 6 {
			e.add(nil, event(time.Now(), levels[i%3], fmt.Sprint(i)))
		}
		return p, e.send()
	}
	p, err := send(Config{Concurrency: 1}, func(string) int { return 204 })
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, st := range p.streams() {
		labels = append(labels, st.Labels)
	}
	if n := len(p.requests()); n != 1 {
		t.Errorf("got %d requests", n)
	}
	if want := []string{`{app="test", level="info"}`, `{app="test", level="warn"}`, `{app="test", level="error"}`}; !slices.Equal(labels, want) {
		t.Errorf("streams %v, want %v", labels, want)
	}
	for warn, want := range map[int]string{503: "again [0 1 2 3 4 5]", 401: "hold [0 1 2 3 4 5]", 400: "doubt [1 4]", 413: "smaller [1 4]"} {
		p, got := send(Config{}, func(l string) int {
			if strings.Contains(l, "warn") {
				return warn
			}
			return 204
		})
		if !got.is(want) {
			t.Errorf("%d: got %v", warn, got)
		}
		if n := len(p.requests()); n > 5 {
			t.Errorf("%d: %d requests", warn, n)
		}
	}
}

// Records of a stream are sorted by time. Records with the same time keep their order, as in a
// stable sort.
func TestOrder(t *testing.T) {
	seed := testkit.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{})}
	base := time.Now()
	type item struct {
		at   time.Time
		line string
	}
	want := map[slog.Level][]item{}
	for i := range 500 {
		l := slog.Level(4 * rng.IntN(3))
		at := base.Add(time.Duration(rng.IntN(40)))
		e.add(nil, event(at, l, fmt.Sprint(i)))
		want[l] = append(want[l], item{at, fmt.Sprintf(`{"msg":"%d"}`, i)})
	}
	if err := e.send(); err != nil {
		t.Fatal(err)
	}
	for l, items := range want {
		slices.SortStableFunc(items, func(a, b item) int { return a.at.Compare(b.at) })
		for _, r := range p.requests() {
			if !strings.Contains(r.streams[0].Labels, values.LevelWord(l)) {
				continue
			}
			for i, got := range r.streams[0].Entries {
				if got.Line != items[i].line || !got.Time.Equal(items[i].at) {
					t.Fatalf("seed %d: %v %d: got %s at %v, want %v", seed, l, i, got.Line, got.Time, items[i])
				}
			}
		}
	}
}

func TestUniqueTimesOfEqualRecords(t *testing.T) {
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{UniqueTimes: true})}
	at := time.Now().Truncate(time.Hour)
	e.add(nil, event(at.Add(5*time.Minute), 0, "future"))
	for range 5 {
		e.add(nil, event(at, 0, "twin"))
	}
	e.add(nil, event(at.Add(5*time.Minute), 0, "future"))
	for range 2 { // a second push of the same records must be equal
		if err := e.send(); err != nil {
			t.Fatal(err)
		}
	}
	got := p.requests()
	var times []time.Duration
	for _, en := range got[0].streams[0].Entries {
		times = append(times, en.Time.Sub(at))
	}
	if want := []time.Duration{0, 1, 2, 3, 4, 5 * time.Minute, 5*time.Minute + 1}; !slices.Equal(times, want) {
		t.Errorf("times %v, want %v", times, want)
	}
	if !reflect.DeepEqual(got[0].streams, got[1].streams) {
		t.Error("the second request differs from the first")
	}
	r := new(usedTimes)
	seen := map[int64]bool{}
	far := 0
	for range int(maxTimeShift) + 10 {
		n, own := r.take(1e18)
		if own == seen[n] {
			t.Fatalf("%d: own %v", n, own)
		}
		if n-1e18 > maxTimeShift {
			t.Fatalf("shifted by %d", n-1e18)
		}
		if seen[n] {
			far++
		}
		seen[n] = true
	}
	if far != 9 {
		t.Errorf("%d times were used twice, want 9: those beyond 1 ms", far)
	}
}

func TestUniqueTimesConcurrently(t *testing.T) {
	r := new(usedTimes)
	const n, workers = 2000, 4
	var seen [n * workers]atomic.Bool
	done := make(chan int)
	for range workers {
		go func() {
			twice := 0
			for range n {
				at, _ := r.take(1e18)
				if seen[at-1e18].Swap(true) {
					twice++
				}
			}
			done <- twice
		}()
	}
	for range workers {
		if k := <-done; k > 0 {
			t.Errorf("%d times were used twice", k)
		}
	}
}

// Entries beyond the limits of Loki are refused before they are sent.
func TestLimitsAreCheckedBeforeSending(t *testing.T) {
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{Limits: Limits{MaxLine: 200, LongLines: longLinesRefuse}})}
	now := time.Now()
	e.add(nil, event(now, 0, "good"))
	e.add(nil, event(now.Add(-8*24*time.Hour), 0, "old"))
	e.add(nil, event(now.Add(time.Hour), 0, "new"))
	e.add(nil, event(now, 0, strings.Repeat("x", 300)))
	e.Append([]byte("not an entry"), 0, batch.Meta{})
	e.Append([]byte{tagEntry, 0x80, 0x80, 0x80, 0}, 0, batch.Meta{Stream: 999})
	for range 2 {
		if got := e.send(); !got.is("refused [1 2 3 4 5]") {
			t.Fatalf("got %v", got)
		}
	}
	want := map[string]uint64{"too-old": 2, "too-new": 2, "line-too-long": 2, "malformed": 4}
	if got := e.s.Stats().ByReason; !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if got := p.lines(); !slices.Equal(got, []string{`{"msg":"good"}`, `{"msg":"good"}`}) {
		t.Errorf("sent %v", got)
	}
}

func TestLongLineIsTruncated(t *testing.T) {
	for _, w := range []string{wireProtobuf, wireJSON} {
		c := Config{Wire: w, Limits: Limits{MaxLine: 100}}
		got, _ := encodeOne(t, c, event(time.Now(), 0, strings.Repeat("ä", 100)))
		if len(got.Line) > 100 || !strings.Contains(got.Line, "ä…[cut ") {
			t.Errorf("%s: %d bytes: %s", w, len(got.Line), got.Line)
		}
	}
}

// Records that are not entries are kept until the configuration changes.
func TestRecordsOfOtherCodecAreHeld(t *testing.T) {
	e := &encoded{t: t, s: sinkFor(t, new(peer), Config{})}
	e.Append([]byte("x"), 0, batch.Meta{})
	for _, c := range []batch.Codec{encode.JSON(nil).Codec(), nil} {
		if got := sendIn(t, t.Context(), e.s, e.as(c)); !got.is("hold [0]") {
			t.Errorf("got %v", got)
		}
	}
	if accepts := e.s.Traits().Accepts; accepts(encode.JSON(nil).Codec().ContentType()) || accepts("") {
		t.Error("records of another codec are accepted")
	}
}

// A stream that is too large for one request is sent in several, in order. After a failure, the
// remaining records are not sent.
func TestLargeStreamIsSentInOrderedRequests(t *testing.T) {
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{Limits: Limits{MaxRequestBytes: 2000}})}
	now := time.Now()
	for i := range 100 {
		e.add(nil, event(now.Add(time.Duration(i)), 0, strings.Repeat("x", 50)+fmt.Sprint(i)))
	}
	if err := e.send(); err != nil {
		t.Fatal(err)
	}
	if n := len(p.requests()); n < 5 {
		t.Errorf("got %d requests", n)
	}
	if got := p.lines(); len(got) != 100 || !strings.HasSuffix(got[99], `x99"}`) {
		t.Errorf("%d lines, last %s", len(got), got[len(got)-1])
	}
	p.answer = func(n int, _ *request) (int, string, http.Header) {
		if n == len(p.got) || len(p.got)%100 == 3 {
			return 503, "", nil
		}
		return 204, "", nil
	}
	p.got = nil
	got := e.send()
	if rest := got.open(); got.Advice != batch.Again || rest[0] == 0 || rest[len(rest)-1] != 99 || len(p.requests()) != 3 {
		t.Errorf("got %v, %d requests", got, len(p.requests()))
	}
}

// If Loki has no room for a stream with labels from attributes, its records move to the stream of
// their level.
func TestRecordsMoveToStreamOfLevel(t *testing.T) {
	p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
		if strings.Contains(r.streams[0].Labels, "user") {
			return 429, "maximum active stream limit exceeded when trying to create stream {}, reduce", nil
		}
		return 204, "", nil
	}}
	e := &encoded{t: t, s: sinkFor(t, p, Config{LabelAttrs: []string{"user"}})}
	e.add(nil, event(time.Now(), 0, "a", slog.String("user", "u1")))
	for range 2 {
		if err := e.send(); err != nil {
			t.Fatal(err)
		}
	}
	got := p.requests()
	if len(got) != 3 || got[1].streams[0].Labels != `{app="test", level="info"}` {
		t.Errorf("requests %+v", got)
	}
	// Loki has no room for the stream of the level, and no stream of another level exists. Only the
	// records of this stream are kept.
	p.answer = func(_ int, r *request) (int, string, http.Header) {
		if strings.Contains(r.streams[0].Labels, "warn") && r.streams[0].Entries[0].Meta["user"] == "" {
			return 204, "", nil
		}
		return 429, "maximum active stream limit exceeded when", nil
	}
	for i := range 100 {
		e.add(nil, event(time.Now(), slog.LevelWarn, fmt.Sprint("of a stream there is ", i)))
	}
	if got := e.send(); !got.is("hold streams [0]") {
		t.Errorf("got %v", got)
	}
}

func TestPanicOfHTTPClientIsAnError(t *testing.T) {
	s := sinkFor(t, roundTrip(func(*http.Request) (*http.Response, error) { panic("boom") }), Config{})
	e := &encoded{t: t, s: s}
	for range 2 {
		if got := e.add(nil, event(time.Now(), 0, "x")).add(nil, event(time.Now(), 4, "x")).send(); !got.is("again [0 1") {
			t.Errorf("got %v", got)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// If a transport reads the body of a request after it has returned the response, it does not get
// data of the next request.
func TestBodyOfEndedRequestReturnsNoData(t *testing.T) {
	var kept []*http.Request
	s := sinkFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		kept = append(kept, r)
		if n, err := kept[0].Body.Read(make([]byte, 10)); len(kept) > 1 && (n != 0 || err != errRequestEnded) {
			t.Errorf("the body of the first request read %d bytes of the second, %v", n, err)
		}
		return nil, errors.New("reset")
	}), Config{})
	e := &encoded{t: t, s: s}
	e.add(nil, event(time.Now(), 0, "x"))
	e.send()
	e.send()
	if n, err := kept[0].Body.Read(make([]byte, 10)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if b, _ := kept[1].GetBody(); b == nil {
		t.Error("GetBody returned no body")
	}
}

func TestTimeoutOfResponseIsUnanswered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := sinkFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), Config{HTTP: httpclient.Options{Timeout: 3 * time.Second}})
		e := &encoded{t: t, s: s}
		e.add(nil, event(time.Now(), 0, "x"))
		start := time.Now()
		if got := e.send(); !got.is("again [0]") {
			t.Errorf("got %v", got)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// No error and no statistic contains a secret, even if the server sends it back.
func TestSecrets(t *testing.T) {
	const secret = "s3cr3t-value"
	for _, c := range []Config{
		{HTTP: httpclient.Options{Username: "u", Password: secret}}, {HTTP: httpclient.Options{BearerToken: secret}}, {HTTP: httpclient.Options{Headers: map[string]string{"X-Key": secret}}},
		{URL: "http://u:" + secret + "@loki.test"}, {URL: "http://loki.test/?key=" + secret},
	} {
		for _, status := range []int{0, 400, 401, 500} {
			p := &peer{answer: func(int, *request) (int, string, http.Header) { return status, "you sent " + secret, nil }}
			e := &encoded{t: t, s: sinkFor(t, p, c)}
			err := e.add(nil, event(time.Now(), 0, "a")).send()
			if err == nil || strings.Contains(err.String()+e.s.Stats().LastError, secret) {
				t.Errorf("%d: %v", status, err)
			}
			if h := p.requests()[0]; strings.HasSuffix(c.URL, secret) {
				if !strings.HasSuffix(h.url, "?key="+secret) {
					t.Errorf("url %s", h.url)
				}
			} else if strings.Contains(h.url, secret) || !strings.Contains(fmt.Sprint(h.header["Authorization"], h.header["X-Key"]), "Bearer "+secret) && h.header["Authorization"] == nil && h.header["X-Key"] == nil {
				t.Errorf("headers %v, url %s", h.header, h.url)
			}
		}
	}
}

// If the streams of a batch need different advice, the batch gets the one that comes first in the
// list ranks. Therefore records are kept back only if no stream of the batch has another problem.
func TestGravestAdviceAppliesToBatch(t *testing.T) {
	const full = "maximum active stream limit exceeded"
	for _, tt := range []struct {
		info, warn, err int
		want            string
	}{
		{503, 413, 404, "again [0 1 2 3 4 5] after 5s"},
		{204, 413, 400, "smaller [1 2 4 5]"},
		{429, 400, 404, "hold [0 1 2 3 4 5]"},
		{429, 400, 204, "hold streams [0 1 3 4]"},
		{204, 400, 204, "doubt [1 4]"},
		{422, 422, 422, "doubt [0 1 2 3 4 5]"},
		{429, 204, 404, "hold [0 1 2 3 4 5]"},
		{429, 204, 204, "hold streams [0 3]"},
	} {
		p := &peer{}
		p.answer = whole(func(_ int, r *request) (int, string, http.Header) {
			switch l := r.streams[0].Labels; {
			case strings.Contains(l, "info") && tt.info == 429:
				return 429, full, nil
			case strings.Contains(l, "info"):
				return tt.info, "", http.Header{"Retry-After": {"5"}}
			case strings.Contains(l, "warn"):
				return tt.warn, "no", http.Header{"Retry-After": {"9"}}
			}
			return tt.err, "no", nil
		})
		// With concurrent requests, another level might have been accepted first.
		e := &encoded{t: t, s: sinkFor(t, p, Config{Concurrency: 1})}
		for i := range 6 {
			e.add(nil, event(time.Now(), slog.Level(i%3*4), fmt.Sprint(i)))
		}
		if got := e.send(); !got.is(tt.want) {
			t.Errorf("%d, %d, %d: got %v, want %v", tt.info, tt.warn, tt.err, got, tt.want)
		}
	}
}

// If a record must be sent again, no later record of its stream is sent before it. Other streams
// are sent.
func TestLaterRecordsOfStreamWaitForOpenRecord(t *testing.T) {
	for _, status := range []int{503, 413, 400, 401, 0} {
		p := &peer{}
		p.answer = func(n int, r *request) (int, string, http.Header) {
			if n > 0 && strings.Contains(r.streams[0].Labels, "info") {
				return status, "", nil
			}
			return 204, "", nil
		}
		e := &encoded{t: t, s: sinkFor(t, p, Config{Concurrency: 1, Limits: Limits{MaxRequestBytes: 2000}})}
		now := time.Now()
		for i := range 100 {
			e.add(nil, event(now.Add(time.Duration(i)), 0, strings.Repeat("x", 50)+fmt.Sprint(i)))
		}
		e.add(nil, event(now, slog.LevelWarn, "other"))
		got := e.send()
		first := len(p.requests()[0].streams[0].Entries)
		if rest := got.open(); len(rest) != 100-first || rest[0] != first || rest[len(rest)-1] != 99 || len(p.requests()) != 3 {
			t.Errorf("%d: %v, %d requests", status, got, len(p.requests()))
		}
		if lines := p.lines(); lines[len(lines)-1] != `{"msg":"other"}` {
			t.Errorf("%d: the last line is %s", status, lines[len(lines)-1])
		}
	}
}

// A truncated response counts as no response, because a truncated response with status 400 may omit
// some of the refused entries.
func TestTruncatedResponseIsNoResponse(t *testing.T) {
	now := time.Now()
	for cut := range 300 {
		m := &lokiModel{now: now, newest: now.Add(-8 * 24 * time.Hour), stored: map[string]bool{}}
		s := sinkFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			p := new(peer)
			if _, err := p.RoundTrip(r); err != nil {
				return nil, err
			}
			req := p.requests()[0]
			status, text := m.push(&req)
			if cut >= len(text) {
				return answerOf(r, 204, nil)
			}
			body := io.MultiReader(strings.NewReader(text[:len(text)-cut]), iotest.ErrReader(io.ErrUnexpectedEOF))
			if cut == 0 {
				body = strings.NewReader(text)
			}
			return &http.Response{StatusCode: status, Body: io.NopCloser(body), Request: r}, nil
		}), Config{Limits: Limits{MaxAge: -1}})
		e := &encoded{t: t, s: s}
		for i := range 27 {
			at := now
			if i%9 == 0 {
				at = now.Add(-7*24*time.Hour - time.Duration(i+1)*time.Second)
			}
			e.add(nil, event(at, 0, fmt.Sprint(i)))
		}
		want := "again [0 1 2"
		if cut == 0 {
			want = "refused [0 9 18]"
		}
		if got := e.send(); !got.is(want) {
			t.Fatalf("without the last %d bytes: %v", cut, got)
		}
	}
}

// If the connection is closed before the end of a response, the response counts as truncated.
func TestClosedConnectionIsNoResponse(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			const text = "entry for stream '{}' has timestamp too old: 2020-01-01T00:00:00Z, oldest acceptable timestamp is: 2026-01-01T00:00:00Z"
			if !chunked {
				w.Header().Set("Content-Length", fmt.Sprint(len(text)+1))
			}
			w.WriteHeader(400)
			io.WriteString(w, text)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}))
		defer srv.Close()
		s := sinkFor(t, nil, Config{URL: srv.URL})
		e := &encoded{t: t, s: s}
		e.add(nil, event(time.Now(), 0, "a")).add(nil, event(time.Now(), 0, "b"))
		if got := e.send(); !got.is("again [0 1]") || !s.Stats().Unreachable {
			t.Errorf("chunked %v: %v", chunked, got)
		}
	}
}

// A response with status 400 is read to its end, whatever its length, so that stored records are
// not sent again.
func TestLongRefusalIsReadToItsEnd(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	m := &lokiModel{now: now, newest: now.Add(-8 * 24 * time.Hour), stored: map[string]bool{}}
	p := &peer{}
	longest := 0
	p.answer = func(_ int, r *request) (int, string, http.Header) {
		status, text := m.push(r)
		longest = max(longest, len(text))
		return status, text, nil
	}
	e := &encoded{t: t, s: sinkFor(t, p, Config{Limits: Limits{MaxAge: -1}})}
	var want []int
	for i := range 5000 {
		at := now.Add(-time.Duration(i) * time.Second)
		if i%5 == 0 {
			at = now.Add(-7*24*time.Hour - time.Duration(i+1)*time.Second)
			want = append(want, i)
		}
		e.add(nil, event(at, 0, fmt.Sprint(i)))
	}
	got := e.send()
	if longest < 2*maxAnswer {
		t.Fatalf("the response has only %d bytes", longest)
	}
	if !slices.Equal(got.refused(), want) || len(got.open()) > 0 || len(p.requests()) != 1 || len(m.stored) != 4000 {
		t.Errorf("%d refused, %d open, %d stored by %d requests", len(got.refused()), len(got.open()), len(m.stored), len(p.requests()))
	}
}

// A response is read only up to the length of the longest possible refusal of the batch.
func TestResponseIsReadUpToLimit(t *testing.T) {
	read := 0
	endless := readerFunc(func(p []byte) (int, error) { read += len(p); return len(p), nil })
	s := sinkFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 400, Body: io.NopCloser(endless), Request: r}, nil
	}), Config{})
	e := &encoded{t: t, s: s}
	e.add(nil, event(time.Now(), 0, "a")).add(nil, event(time.Now(), 0, "b"))
	if got := e.send(); !got.is("doubt [0 1]") || read > 4*maxAnswer {
		t.Errorf("%d bytes read: %v", read, got)
	}
}

// If a response with status 400 is not read completely, records that it does not name are sent
// again, because it may refuse them in the part that was not read.
func TestIncompleteRefusalLeavesRecordsOpen(t *testing.T) {
	old := time.Now().Add(-8 * 24 * time.Hour)
	for end, want := range map[string]string{"": "refused [0]", "more": "again [1]"} {
		text := io.Reader(strings.NewReader("entry for stream '{}' has timestamp too old: " + old.Format(time.RFC3339) + ", oldest acceptable timestamp is: " + old.Add(time.Hour).Format(time.RFC3339)))
		if end != "" {
			text = io.MultiReader(text, readerFunc(func(p []byte) (int, error) { p[0] = ' '; return 1, nil }))
		}
		s := sinkFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 400, Body: io.NopCloser(text), Request: r}, nil
		}), Config{Limits: Limits{MaxAge: -1}})
		e := &encoded{t: t, s: s}
		e.add(nil, event(old, 0, "a")).add(nil, event(time.Now(), 0, "b"))
		if got := e.send(); !got.is(want) || !slices.Equal(got.refused(), []int{0}) {
			t.Errorf("%q: got %v, want %s", end, got, want)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// If the session ends while a request has no response, the outcome of its batch is not reported. It
// is reported if each request has a response or was not sent.
func TestOutcomeIsUnknownWhenSessionEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel() }()
		hangs, stored := true, 0
		s := sinkFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			p := new(peer)
			res, err := p.RoundTrip(r)
			stored += len(p.lines())
			if strings.Contains(fmt.Sprint(p.streams()), "warn") {
				if cancel(); hangs {
					return nil, r.Context().Err()
				}
			}
			return res, err
		}), Config{Concurrency: 1})
		e := &encoded{t: t, s: s}
		e.add(nil, event(time.Now(), 0, "a")).add(nil, event(time.Now(), slog.LevelWarn, "b"))
		if got := sendIn(t, ctx, s, e.as(e.s.Encoder().Codec())); got == nil || got.known || stored != 2 {
			t.Errorf("%d stored: %v", stored, got)
		}
		l := &life{ctx: ctx}
		ses, _ := s.Open(l)
		if err := ses.Send(e.as(e.s.Encoder().Codec())); !errors.Is(err, context.Canceled) || stored != 2 || len(l.answers) != 0 {
			t.Errorf("%d stored: %v", stored, err)
		}
		hangs = false
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		if got := sendIn(t, ctx, s, e.as(e.s.Encoder().Codec())); got != nil {
			t.Errorf("got %v", got)
		}
	})
}

// If the server is unreachable or its certificate is not trusted, no record can be stored, even
// after a timeout.
func TestUnreachableServerStoresNothing(t *testing.T) {
	for want, err := range map[string]error{
		"again [0]": &net.OpError{Op: "dial", Err: errors.New("connection refused")},
		"hold [0]":  &tls.CertificateVerificationError{Err: errors.New("unknown authority")},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := sinkFor(t, roundTrip(func(*http.Request) (*http.Response, error) { cancel(); return nil, err }), Config{})
		e := &encoded{t: t, s: s}
		e.add(nil, event(time.Now(), 0, "a"))
		if got := sendIn(t, ctx, s, e.as(e.s.Encoder().Codec())); !got.is(want) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}
