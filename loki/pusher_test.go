package loki

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

func event(at time.Time, level slog.Level, msg string, attrs ...slog.Attr) encode.Record {
	return encode.Record{Time: at, Level: level, Message: msg, Attrs: attrs}
}

// TestReplies goes through the answers of Loki, research of which is in judge.
func TestReplies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		text   string
		h      http.Header
		kind   batch.Kind
		after  time.Duration
		ok     bool
	}{
		{name: "stored", status: 204, ok: true},
		{name: "a page", status: 200, text: "log in", kind: batch.KindFatal},
		{name: "blocked", status: 260, text: "ingestion blocked for user 'fake' until '2030-01-01T00:00:00Z' with status code '260'", kind: batch.KindFatal},
		{name: "decode", status: 400, text: "couldn't parse push request", kind: batch.KindReject},
		{name: "label", status: 400, text: `error parsing labels '{a.b="c"}' with error: 1:3: parse error`, kind: batch.KindReject},
		{name: "unauthorised", status: 401, text: "no org id", kind: batch.KindFatal},
		{name: "forbidden", status: 403, kind: batch.KindFatal},
		{name: "not found", status: 404, kind: batch.KindFatal},
		{name: "method", status: 405, kind: batch.KindFatal},
		{name: "redirect", status: 302, kind: batch.KindFatal},
		{name: "timeout", status: 408, kind: batch.KindRetry},
		{name: "no streams", status: 422, kind: batch.KindReject},
		{name: "rate", status: 429, text: "ingestion rate limit exceeded for user x (limit: 4194304 bytes/sec) while attempting to ingest '1' lines totaling '10' bytes, reduce", kind: batch.KindRetry},
		{name: "rate, said when", status: 429, h: http.Header{"Retry-After": {"7"}}, kind: batch.KindRetry, after: 7 * time.Second},
		{name: "server", status: 500, text: "boom", kind: batch.KindRetry},
		{name: "unavailable", status: 503, h: http.Header{"Retry-After": {"nonsense"}}, kind: batch.KindRetry},
		{name: "no answer", status: 0, text: "connection refused", kind: batch.KindRetry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &peer{answer: func(int, *request) (int, string, http.Header) { return tt.status, tt.text, tt.h }}
			e := &encoded{t: t, s: sinkFor(t, p, Config{})}
			err := e.add(nil, event(time.Now(), 0, "a")).send()
			if tt.ok {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			got := batch.Inspect(err)
			if err == nil || got.Kind != tt.kind || got.After != tt.after {
				t.Fatalf("got %v (%v, after %v), want %v after %v", err, got.Kind, got.After, tt.kind, tt.after)
			}
			if tt.text != "" && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("the error %q does not say %q", err, tt.text)
			}
			if s := e.s.Stats(); s.Requests != 1 || s.Failed != 1 || s.LastError == "" {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// TestTooLargeIsSplit: each of the ways to say too large halves the request until
// it is taken, and a single entry that is too large is refused alone.
func TestTooLargeIsSplit(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
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
				e.add(nil, event(time.Now(), 0, strings.Repeat("x", 200)))
			}
			err := e.send()
			if single {
				if k := batch.Inspect(err); k.Kind != batch.KindReject || !slices.Equal(k.Records, []int{20}) {
					t.Fatalf("got %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
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
				if !stored[fmt.Sprintf(`{"Message":"%d"}`, i)] {
					t.Errorf("%d was not stored", i)
				}
			}
		})
	}
}

// TestRefusedEntries: of a 400 that names entries only those are refused.
func TestRefusedEntries(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	old := func(d time.Duration) time.Time { return now.Add(-d) }
	limit := old(time.Hour).Add(500 * time.Millisecond) // told in whole seconds
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
	for name, says := range text {
		t.Run(name, func(t *testing.T) {
			p := &peer{answer: func(_ int, r *request) (int, string, http.Header) {
				for _, e := range r.streams[0].Entries { // the first only: the client must ask again
					if s := says(e); s != "" {
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
			got := batch.Inspect(e.send())
			if got.Kind != batch.KindReject || !slices.Equal(got.Records, want) {
				t.Fatalf("got %+v", got)
			}
			last := p.requests()[len(p.requests())-1].streams[0].Entries
			if len(last) > 3 { // the answer to the last may tell of one more, without a doubt
				t.Errorf("the last request has %v", last)
			}
			if s := e.s.Stats().ByReason; int(s[TooOld]+s[TooFarBehind]+s[LineTooLong]) != len(want) {
				t.Errorf("counted %v", s)
			}
		})
	}
}

// TestStreamsApart: one stream per request, so that the trouble of one is not that
// of another, and what is settled of a batch is said exactly.
func TestStreamsApart(t *testing.T) {
	levels := []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	send := func(c Config, answer func(labels string) int) (*peer, error) {
		p := &peer{}
		p.answer = func(_ int, r *request) (int, string, http.Header) {
			return answer(r.streams[len(r.streams)-1].Labels), "text", nil
		}
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
	for _, r := range p.requests() {
		if len(r.streams) != 1 {
			t.Errorf("%d streams in a request", len(r.streams))
		}
		labels = append(labels, r.streams[0].Labels)
	}
	if want := []string{`{app="test", level="info"}`, `{app="test", level="warn"}`, `{app="test", level="error"}`}; !slices.Equal(labels, want) {
		t.Errorf("streams %v, want %v", labels, want)
	}
	for _, tt := range []struct {
		warn    int
		kind    batch.Kind
		records []int
	}{{503, batch.KindPartial, []int{1, 4}}, {401, batch.KindPartial, []int{1, 4}}, {400, batch.KindReject, []int{1, 4}}} {
		_, err := send(Config{}, func(l string) int {
			if strings.Contains(l, "warn") {
				return tt.warn
			}
			return 204
		})
		if got := batch.Inspect(err); got.Kind != tt.kind || !slices.Equal(got.Records, tt.records) {
			t.Errorf("%d: got %+v", tt.warn, got)
		}
	}
	p, err = send(Config{Pack: true}, func(string) int { return 204 })
	if err != nil || len(p.requests()) != 1 || len(p.requests()[0].streams) != 3 {
		t.Errorf("packed: %v, %d requests", err, len(p.requests()))
	}
	p, err = send(Config{Pack: true}, func(l string) int {
		if strings.Contains(l, "error") {
			return 400
		}
		return 204
	})
	if got := batch.Inspect(err); got.Kind != batch.KindReject || !slices.Equal(got.Records, []int{2, 5}) || len(p.requests()) != 6 {
		t.Errorf("packed, one bad: %+v, %d requests", got, len(p.requests()))
	}
}

// TestOrder: within a stream by time, stable; checked against a sort of its own.
func TestOrder(t *testing.T) {
	seed := rand.Uint64()
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
		want[l] = append(want[l], item{at, fmt.Sprintf(`{"Message":"%d"}`, i)})
	}
	if err := e.send(); err != nil {
		t.Fatal(err)
	}
	for l, items := range want {
		slices.SortStableFunc(items, func(a, b item) int { return a.at.Compare(b.at) })
		for _, r := range p.requests() {
			if !strings.Contains(r.streams[0].Labels, levelName(l)) {
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

func TestNudge(t *testing.T) {
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{Nudge: true})}
	at := time.Now().Truncate(time.Hour)
	e.add(nil, event(at.Add(5*time.Minute), 0, "future"))
	for range 5 {
		e.add(nil, event(at, 0, "twin"))
	}
	e.add(nil, event(at.Add(5*time.Minute), 0, "future"))
	for range 2 { // sent again it is the same
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
	r := new(recent)
	seen := map[int64]bool{}
	far := 0
	for range int(maxNudge) + 10 {
		n, own := r.spend(1e18)
		if own == seen[n] {
			t.Fatalf("%d: own %v", n, own)
		}
		if n-1e18 > maxNudge {
			t.Fatalf("moved by %d", n-1e18)
		}
		if seen[n] {
			far++
		}
		seen[n] = true
	}
	if far != 9 {
		t.Errorf("%d times were given out twice, want 9: those beyond 1 ms", far)
	}
}

func TestNudgeConcurrently(t *testing.T) {
	r := new(recent)
	const n, workers = 2000, 4
	var seen [n * workers]atomic.Bool
	done := make(chan int)
	for range workers {
		go func() {
			twice := 0
			for range n {
				at, _ := r.spend(1e18)
				if seen[at-1e18].Swap(true) {
					twice++
				}
			}
			done <- twice
		}()
	}
	for range workers {
		if k := <-done; k > 0 {
			t.Errorf("%d times were given out twice", k)
		}
	}
}

// TestLimits: what will not be taken is found before it is sent.
func TestLimits(t *testing.T) {
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{MaxLine: 200, LongLines: Refuse})}
	now := time.Now()
	e.add(nil, event(now, 0, "good"))
	e.add(nil, event(now.Add(-8*24*time.Hour), 0, "old"))
	e.add(nil, event(now.Add(time.Hour), 0, "new"))
	e.add(nil, event(now, 0, strings.Repeat("x", 300)))
	e.Append([]byte("not an entry"), 0, batch.Meta{})
	e.Append([]byte{tagEntry, 0x80, 0x80, 0x80, 0}, 0, batch.Meta{Stream: 999})
	for range 2 {
		got := batch.Inspect(e.send())
		if got.Kind != batch.KindReject || !slices.Equal(got.Records, []int{1, 2, 3, 4, 5}) {
			t.Fatalf("got %+v", got)
		}
	}
	want := Counts{TooOld: 1, TooNew: 1, LineTooLong: 1, Malformed: 2}
	if got := e.s.Stats().ByReason; got != want {
		t.Errorf("counted %v, want %v: each once, although offered twice", got, want)
	}
	if got := p.lines(); !slices.Equal(got, []string{`{"Message":"good"}`, `{"Message":"good"}`}) {
		t.Errorf("sent %v", got)
	}
}

func TestTruncate(t *testing.T) {
	for _, w := range []Wire{Protobuf, JSON} {
		c := Config{MaxLine: 100, Wire: w}
		got, _ := one(t, c, event(time.Now(), 0, strings.Repeat("ä", 100)))
		if len(got.Line) > 100 || !strings.Contains(got.Line, "ä…[cut ") {
			t.Errorf("%s: %d bytes: %s", w, len(got.Line), got.Line)
		}
	}
}

func TestForeignRecords(t *testing.T) {
	e := &encoded{t: t, s: sinkFor(t, new(peer), Config{})}
	e.Append([]byte("x"), 0, batch.Meta{})
	if err := e.s.Send(context.Background(), e.Batch(encode.JSONCodec())); batch.Inspect(err).Kind != batch.KindReject {
		t.Errorf("got %v", err)
	}
}

// TestChunks: a stream larger than a request goes in several, in order, and what
// is behind a failure waits.
func TestChunks(t *testing.T) {
	p := new(peer)
	e := &encoded{t: t, s: sinkFor(t, p, Config{MaxRequestBytes: 2000})}
	now := time.Now()
	for i := range 100 {
		e.add(nil, event(now.Add(time.Duration(i)), 0, strings.Repeat("x", 50)+fmt.Sprint(i)))
	}
	if err := e.send(); err != nil {
		t.Fatal(err)
	}
	if n := len(p.requests()); n < 5 {
		t.Errorf("%d requests", n)
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
	got := batch.Inspect(e.send())
	if got.Kind != batch.KindPartial || got.Records[0] == 0 || got.Records[len(got.Records)-1] != 99 || len(p.requests()) != 3 {
		t.Errorf("got %v, %d requests", got.Records, len(p.requests()))
	}
}

// TestTooManyStreams: when Loki has no room for a stream of promoted labels the
// records go to the stream of their level.
func TestTooManyStreams(t *testing.T) {
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
	p.answer = func(int, *request) (int, string, http.Header) {
		return 429, "maximum active stream limit exceeded when", nil
	}
	if err := e.send(); batch.Inspect(err).Kind != batch.KindRetry {
		t.Errorf("got %v", err)
	}
}

func TestPanickingClient(t *testing.T) {
	s := sinkFor(t, roundTrip(func(*http.Request) (*http.Response, error) { panic("boom") }), Config{})
	e := &encoded{t: t, s: s}
	for range 2 {
		if err := e.add(nil, event(time.Now(), 0, "x")).add(nil, event(time.Now(), 4, "x")).send(); !batch.Retryable(err) {
			t.Errorf("got %v", err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestBodyOutlivesRequest: a transport that reads the body after it has answered
// gets nothing of the next request.
func TestBodyOutlivesRequest(t *testing.T) {
	var kept []*http.Request
	s := sinkFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
		kept = append(kept, r)
		if n, err := kept[0].Body.Read(make([]byte, 10)); len(kept) > 1 && (n != 0 || err != errStale) {
			t.Errorf("the first body reads %d bytes of the second, %v", n, err)
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
		t.Error("no body to send again")
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sinkFor(t, roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), Config{Timeout: 3 * time.Second})
		e := &encoded{t: t, s: s}
		e.add(nil, event(time.Now(), 0, "x"))
		start := time.Now()
		if err := e.send(); !batch.Retryable(err) {
			t.Errorf("got %v", err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("took %v", d)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Send(ctx, e.Batch(s.Codec())); !batch.Retryable(err) {
			t.Errorf("got %v", err)
		}
	})
}

// TestSecrets: no error and no stat shows a credential, even if the server does.
func TestSecrets(t *testing.T) {
	const secret = "s3cr3t-value"
	for _, c := range []Config{
		{Username: "u", Password: secret}, {BearerToken: secret}, {Headers: map[string]string{"X-Key": secret}},
		{URL: "http://u:" + secret + "@loki.test"}, {URL: "http://loki.test/?key=" + secret},
	} {
		for _, status := range []int{0, 400, 401, 500} {
			p := &peer{answer: func(int, *request) (int, string, http.Header) { return status, "you sent " + secret, nil }}
			e := &encoded{t: t, s: sinkFor(t, p, c)}
			err := e.add(nil, event(time.Now(), 0, "a")).send()
			if err == nil || strings.Contains(err.Error()+e.s.Stats().LastError, secret) {
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

// TestCountedOnce: a record that is refused is counted once, however often it comes
// again because others of its batch are open, and twins are two.
func TestCountedOnce(t *testing.T) {
	down := true
	p := &peer{}
	p.answer = func(_ int, r *request) (int, string, http.Header) {
		for _, e := range r.streams[0].Entries {
			if strings.Contains(e.Line, "bad") {
				return 400, "no reason", nil
			}
		}
		if down && strings.Contains(r.streams[0].Labels, "warn") {
			return 503, "", nil
		}
		return 204, "", nil
	}
	e := &encoded{t: t, s: sinkFor(t, p, Config{})}
	now := time.Now()
	for i := range 3000 {
		e.add(nil, event(now.Add(-30*24*time.Hour-time.Duration(i/2)), 0, "old"))
	}
	e.add(nil, event(now, 0, "bad")).add(nil, event(now, 0, "good")).add(nil, event(now, slog.LevelWarn, "later"))
	for i := range 4 {
		down = i < 3
		got := batch.Inspect(e.send())
		if want := []batch.Kind{batch.KindPartial, batch.KindPartial, batch.KindPartial, batch.KindReject}[i]; got.Kind != want {
			t.Errorf("%d: got %v", i, got.Kind)
		}
		if by := e.s.Stats().ByReason; by != (Counts{TooOld: 3000, Invalid: 1}) {
			t.Errorf("%d: counted %v", i, by)
		}
	}
	e.s.known.sweep(time.Now().Add(refusalsKnown).UnixNano())
	if n := len(e.s.known.why); n != 0 {
		t.Errorf("%d are remembered", n)
	}
}
