package lokipush

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"go.uber.org/goleak"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/listentest"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/loki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testServer is a server with a client, a sink that stores the records, and a list of the
// refusals.
type testServer struct {
	*Server
	sink    *listentest.Sink
	refused *listentest.Refusals
	pipes   *listentest.Pipes
	client  *http.Client
}

// serve starts a server that accepts connections in memory.
func serve(t testing.TB, c listen.Config) *testServer {
	b := &testServer{sink: new(listentest.Sink), refused: new(listentest.Refusals), pipes: listentest.NewPipes()}
	c.Sink, c.Refused = b.sink, b.refused.Add
	b.Server = New(c)
	b.Serve(b.pipes)
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if nc := b.pipes.Dial(); nc != nil {
			return nc, nil
		}
		return nil, errors.New("connection refused")
	}, DisableCompression: true}
	b.client = &http.Client{Transport: tr}
	t.Cleanup(func() { tr.CloseIdleConnections(); b.Close(context.Background()) })
	return b
}

// push posts a body. It returns the status and the body of the answer.
func (b *testServer) push(t testing.TB, body io.Reader, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("POST", "http://loki"+PushPath, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := b.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// pushJSON posts a body with the content type of JSON.
func (b *testServer) pushJSON(t testing.TB, js string, header ...string) (int, string) {
	t.Helper()
	return b.push(t, strings.NewReader(js), append([]string{"Content-Type", "application/json"}, header...)...)
}

// pb returns a length-delimited protobuf field. Its value is the concatenation of parts.
func pb(tag byte, parts ...[]byte) []byte {
	value := slices.Concat(parts...)
	return append(binary.AppendUvarint([]byte{tag}, uint64(len(value))), value...)
}

// stamp returns the protobuf field with the time of an entry.
func stamp(sec, nsec uint64) []byte {
	return pb(timeField, binary.AppendUvarint([]byte{secondsField}, sec), binary.AppendUvarint([]byte{nanosField}, nsec))
}

// good is a valid push in JSON.
const good = `{"streams":[{"stream":{"b":"2","a":"1"},"values":[["1700000000000000001","one"],["1700000000000000002","two",{"k":"v"}]]}]}`

// goodProto returns the same push as good, in protobuf.
func goodProto() []byte {
	return pb(streamsField, pb(labelsField, []byte(`{b="2", a="1"}`)),
		pb(entriesField, stamp(1700000000, 1), pb(lineField, []byte("one"))),
		pb(entriesField, stamp(1700000000, 2), pb(lineField, []byte("two")), pb(metadataField, pb(nameField, []byte("k")), pb(valueField, []byte("v")))))
}

// zip compresses b with gzip.
func zip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// deflate compresses b with zlib.
func deflate(b []byte) []byte {
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// show returns records as text, one per line.
func show(all []listen.Record) string {
	var sb strings.Builder
	for _, r := range all {
		fmt.Fprintf(&sb, "%s %v %d %s %v\n", r.Tenant, r.Labels, r.Time.UnixNano(), r.Body, r.Metadata)
	}
	return sb.String()
}

// The server accepts pushes in all formats and compressions that clients use.
func TestEveryFormatIsAccepted(t *testing.T) {
	want := " [{a 1} {b 2}] 1700000000000000001 one []\n [{a 1} {b 2}] 1700000000000000002 two [{k v}]\n"
	for name, tt := range map[string]struct {
		body   []byte
		header []string
	}{
		"JSON":                     {[]byte(good), []string{"Content-Type", "application/json"}},
		"JSON, charset":            {[]byte(good), []string{"Content-Type", "application/json; charset=utf-8"}},
		"JSON, gzip":               {zip([]byte(good)), []string{"Content-Type", "application/json", "Content-Encoding", "gzip"}},
		"JSON, deflate":            {deflate([]byte(good)), []string{"Content-Type", "application/json", "Content-Encoding", "deflate"}},
		"protobuf":                 {snappy.Encode(nil, goodProto()), []string{"Content-Type", "application/x-protobuf"}},
		"protobuf, encoding":       {snappy.Encode(nil, goodProto()), []string{"Content-Type", "application/x-protobuf", "Content-Encoding", "snappy"}},
		"protobuf, no type":        {snappy.Encode(nil, goodProto()), nil},
		"protobuf, unknown fields": {snappy.Encode(nil, append(goodProto(), 0x10, 7, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2, 3, 4)), nil},
		"JSON, unknown fields":     {[]byte(strings.Replace(good, `{"streams"`, `{"x":[{"y":null}],"streams"`, 1)), []string{"Content-Type", "application/json"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, listen.Config{})
			status, text := b.push(t, bytes.NewReader(tt.body), tt.header...)
			all, committed := b.sink.Records()
			if got := show(all); status != 204 || text != "" || got != want || committed != 2 {
				t.Errorf("%d %s\n%s%d committed, refused %q", status, text, got, committed, b.refused.All())
			}
			if st := b.Stats(); st.Messages != 1 || st.Records != 2 || st.Conns != 1 || st.Memory != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Package loki can deliver to the server, in each of its formats and with TLS.
func TestClientOfThisProjectDelivers(t *testing.T) {
	cert, key := listentest.Cert(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, wire := range []string{"protobuf", "json"} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint(wire, secure), func(t *testing.T) {
				b := serve(t, listen.Config{})
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				c := loki.Config{URL: "http://" + l.Addr().String(), Wire: wire, Labels: map[string]string{"app": "shop"}, MetadataAttrs: []string{"trace"}, Tenant: "t1"}
				if secure {
					l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}})
					c.URL = "https" + strings.TrimPrefix(c.URL, "http")
					c.HTTP.TLS.CAFile = cert
				}
				b.Serve(l)
				h, err := forebay.NewRouter(loki.To(c.URL, forebay.Configure(func(to *loki.Config) { *to = c })))
				if err != nil {
					t.Fatal(err)
				}
				log := slog.New(h)
				const n = 2000
				for i := range n {
					log.Info("hello", "n", i, "trace", "x")
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if _, err := h.Close(ctx); err != nil {
					t.Fatal(err, b.refused.All())
				}
				got := b.sink.Await(t, n)
				for i, r := range got {
					var body struct {
						N int
					}
					if err := json.Unmarshal(r.Body, &body); err != nil || body.N != i || r.Tenant != "t1" || r.Source != Source ||
						!slices.Contains(r.Labels, listen.Label{Name: "app", Value: "shop"}) ||
						!slices.Equal(r.Metadata, []listen.Label{{Name: "trace", Value: "x"}}) || time.Since(r.Time) > time.Hour {
						t.Fatalf("%d: %+v %s", i, r, r.Body)
					}
				}
			})
		}
	}
}

// The server refuses an invalid push with the HTTP status for the error, and accepts none of its
// records. Later pushes are accepted.
func TestInvalidPushesAreRefused(t *testing.T) {
	js := []string{"Content-Type", "application/json"}
	stream := func(labels, values string) string {
		return `{"streams":[{"stream":{"ok":"1"},"values":[["1","fine"]]},{"stream":` + labels + `,"values":` + values + `}]}`
	}
	proto := func(b []byte) []byte { return snappy.Encode(nil, append(goodProto(), b...)) }
	long := bytes.Repeat([]byte(" "), 2<<20)
	many := "{" + strings.TrimSuffix(strings.Repeat(`"a":"b",`, 200), ",") + "}"
	labels := func(s string) []byte { return proto(pb(streamsField, pb(labelsField, []byte(s)))) }
	entry := func(parts ...[]byte) []byte {
		return proto(pb(streamsField, pb(labelsField, []byte(`{a="b"}`)), pb(entriesField, parts...)))
	}
	for name, tt := range map[string]struct {
		body   []byte
		header []string
		status int
		want   string
	}{
		"no JSON":                  {[]byte("{"), js, 400, "not valid JSON"},
		"JSON and more":            {[]byte(good + "x"), js, 400, "not valid JSON"},
		"an array":                 {[]byte("[]"), js, 400, "it is not an object"},
		"no streams":               {[]byte(`{"streams":[]}`), js, 422, "no streams"},
		"null":                     {[]byte(`{"streams":null}`), js, 422, "no streams"},
		"an empty body":            {nil, js, 400, "not valid JSON"},
		"streams of 1":             {[]byte(`{"streams":1}`), js, 400, "streams is not an array"},
		"a stream of 1":            {[]byte(`{"streams":[1]}`), js, 400, "streams[0]: it is not an object"},
		"no labels":                {[]byte(`{"streams":[{"values":[["1","x"]]}]}`), js, 400, "at least one is required"},
		"the old format":           {[]byte(`{"streams":[{"labels":"{a=\"b\"}","entries":[{"ts":"2026-11-20T10:11:12Z","line":"x"}]}]}`), js, 400, "streams[0]: the JSON has the old format of /api/prom/push"},
		"empty labels":             {[]byte(stream(`{}`, `[]`)), js, 400, "streams[1]: a stream has no labels"},
		"a name with a dot":        {[]byte(stream(`{"a.b":"c"}`, `[]`)), js, 400, `label name "a.b"`},
		"a label of 1":             {[]byte(stream(`{"a":1}`, `[]`)), js, 400, `the value of "a" is not a string`},
		"a label twice":            {[]byte(stream(`{"a":"1","a":"2"}`, `[]`)), js, 400, `the label "a" twice`},
		"many labels":              {[]byte(stream(many, `[]`)), js, 400, "more than 128 labels"},
		"values of 1":              {[]byte(stream(`{"a":"b"}`, `1`)), js, 400, "values is not an array"},
		"a time of 1":              {[]byte(stream(`{"a":"b"}`, `[[1,"x"]]`)), js, 400, "streams[1]: values[0]: it is not"},
		"a time of x":              {[]byte(stream(`{"a":"b"}`, `[["x","x"]]`)), js, 400, `the time "x" is not a number`},
		"a time of the future":     {[]byte(stream(`{"a":"b"}`, `[["99999999999999999999","x"]]`)), js, 400, "is not a number"},
		"a line of 1":              {[]byte(stream(`{"a":"b"}`, `[["1","y"],["1",1]]`)), js, 400, "streams[1]: values[1]: it is not"},
		"metadata of 1":            {[]byte(stream(`{"a":"b"}`, `[["1","x",1]]`)), js, 400, "the metadata are not an object"},
		"metadata with 1":          {[]byte(stream(`{"a":"b"}`, `[["1","x",{"k":1}]]`)), js, 400, `the value of "k" is not a string`},
		"too much metadata":        {[]byte(stream(`{"a":"b"}`, `[["1","x",`+many+`]]`)), js, 400, "more than 128 metadata"},
		"nested too deep":          {[]byte(strings.Repeat("[", 100_000)), js, 400, "not valid JSON"},
		"not valid snappy":         {[]byte("nothing"), nil, 400, "not valid snappy"},
		"no protobuf":              {snappy.Encode(nil, []byte{0x0a, 0xff}), nil, 400, "not a protobuf PushRequest"},
		"an empty body, proto":     {snappy.Encode(nil, nil), nil, 422, "no streams"},
		"a group":                  {proto([]byte{0x0b}), nil, 400, "not a protobuf PushRequest"},
		"a field of 0":             {proto([]byte{0x00, 0}), nil, 400, "not a protobuf PushRequest"},
		"no labels, protobuf":      {proto(pb(streamsField)), nil, 400, "at least one is required"},
		"labels of x":              {labels("x"), nil, 400, "do not begin with {"},
		"incomplete labels":        {labels(`{a="b"`), nil, 400, "a comma or } is missing"},
		"labels without =":         {labels(`{a}`), nil, 400, "= or } is missing"},
		"labels with a.b":          {labels(`{a.b="c"}`), nil, 400, `the name "a.b" is invalid`},
		"no quotes":                {labels(`{a=b}`), nil, 400, "the value of a is not in quotation marks"},
		"single quotes":            {labels(`{a='b'}`), nil, 400, "the value of a is not in quotation marks"},
		"no comma":                 {labels(`{a="b" c="d"}`), nil, 400, "a comma or } is missing"},
		"text after labels":        {labels(`{a="b"}, x`), nil, 400, "text follows }"},
		"many labels, proto":       {labels("{" + strings.Repeat(`a="b",`, 200) + "}"), nil, 400, "more than 128 labels"},
		"nanoseconds":              {entry(stamp(1, 1e9)), nil, 400, "out of range"},
		"seconds":                  {entry(stamp(1<<62, 1)), nil, 400, "out of range"},
		"too much metadata, proto": {entry(bytes.Repeat(pb(metadataField), 200)), nil, 400, "more than 128 metadata"},
		"too long":                 {long, js, 413, "longer than 1 MiB"},
		"a gzip bomb":              {zip(long), append(js, "Content-Encoding", "gzip"), 413, "longer than 1 MiB when decompressed"},
		"a snappy bomb":            {snappy.Encode(nil, long), nil, 413, "longer than 1 MiB when decompressed"},
		"a wrong snappy length":    {[]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}, nil, 413, "longer than 1 MiB when decompressed"},
		"not valid gzip":           {[]byte(good), append(js, "Content-Encoding", "gzip"), 400, "not valid gzip"},
		"incomplete gzip":          {zip([]byte(good))[:40], append(js, "Content-Encoding", "gzip"), 400, "not valid gzip"},
		"br":                       {[]byte(good), append(js, "Content-Encoding", "br"), 400, `the Content-Encoding "br"`},
		"text":                     {[]byte("x"), []string{"Content-Type", "text/plain"}, 400, `the Content-Type "text/plain" is not supported`},
		"a tenant":                 {[]byte(good), append(js, "X-Scope-OrgID", "a|b"), 400, `the tenant "a|b"`},
		"a long tenant":            {[]byte(good), append(js, "X-Scope-OrgID", strings.Repeat("x", 151)), 400, "at most 150"},
		"a tenant of dots":         {[]byte(good), append(js, "X-Scope-OrgID", ".."), 400, `the tenant ".."`},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, listen.Config{Limits: listen.Limits{MessageBytes: 1 << 20}})
			status, text := b.push(t, bytes.NewReader(tt.body), tt.header...)
			if status != tt.status || !strings.Contains(text, tt.want) || strings.Count(text, "\n") != 1 || len(text) > 300 {
				t.Errorf("%d %q, want %d %q", status, text, tt.status, tt.want)
			}
			if got := b.refused.All(); len(got) != 1 || got[0]+"\n" != text {
				t.Errorf("refused %q", got)
			}
			if got := b.sink.Bodies(); got != nil {
				t.Errorf("accepted %q", got)
			}
			if status, text := b.pushJSON(t, good); status != 204 {
				t.Errorf("the next push: got %d %s, want 204", status, text)
			}
		})
	}
}

// Data that is not a valid HTTP request is reported as a refusal, even after a valid request on the
// same connection.
func TestInvalidHTTPIsRefused(t *testing.T) {
	for data, want := range map[string]string{
		"PING\r\n\r\n":                 `not a valid HTTP request: "400 Bad Request`,
		"\x16\x03\x01\x02\x00\r\n\r\n": `not a valid HTTP request: "400 Bad Request`,
		"GET / HTTP/9.0\r\n\r\n":       `not a valid HTTP request: "505 HTTP Version Not Supported`,
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 50<<10) + "\r\n\r\n": `not a valid HTTP request: "431 Request Header Fields Too Large"`,
	} {
		for _, before := range []string{"", "GET /ready HTTP/1.1\r\nHost: a\r\n\r\n"} {
			b := serve(t, listen.Config{})
			c := b.pipes.Dial()
			c.SetDeadline(time.Now().Add(time.Minute))
			go func() {
				io.WriteString(c, before)
				io.WriteString(c, data)
			}()
			answer, _ := io.ReadAll(c)
			if ok := strings.HasPrefix(string(answer), "HTTP/1.1 200"); ok != (before != "") {
				t.Errorf("%.20q: answer %q", data, answer)
			}
			b.Close(context.Background())
			if got := b.refused.All(); len(got) != 1 || !strings.HasPrefix(got[0], want) || b.Stats().Refused != 1 {
				t.Errorf("%.20q after %.9q: refused %q", data, before, got)
			}
		}
	}
	b := serve(t, listen.Config{})
	for range 3 {
		if status, text := b.pushJSON(t, good); status != http.StatusNoContent {
			t.Error(status, text)
		}
	}
	if got := b.refused.All(); len(got) > 0 {
		t.Errorf("refused %q", got)
	}
}

// GET /ready succeeds. Requests with other paths or methods are rejected, unless they are pushes.
func TestOtherPathsAreNotPushes(t *testing.T) {
	b := serve(t, listen.Config{})
	for path, want := range map[string]int{"GET /ready": 200, "GET " + PushPath: 405, "POST /loki/api/v1/query": 404, "GET /": 404} {
		method, path, _ := strings.Cut(path, " ")
		r, _ := http.NewRequest(method, "http://loki"+path, nil)
		res, err := b.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: got status %d, want %d", path, res.StatusCode, want)
		}
	}
}

// A push is answered only after the sink has committed its records. The client waits while the sink
// is blocked.
func TestNoAnswerBeforeCommit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, listen.Config{})
		open := b.sink.Block()
		done := make(chan int, 1)
		go func() { status, _ := b.pushJSON(t, good); done <- status }()
		time.Sleep(time.Hour) // longer than all time limits
		select {
		case status := <-done:
			t.Errorf("answered %d before the sink accepted a record", status)
		default:
		}
		open()
		if status := <-done; status != 204 {
			t.Errorf("%d", status)
		}
		b.sink.Fail(errors.New("disk full"))
		if status, text := b.pushJSON(t, good); status != 503 || strings.Contains(text, "disk") {
			t.Errorf("%d %s", status, text)
		}
		if got := b.refused.All(); got != nil {
			t.Errorf("refused %q", got)
		}
		b.client.CloseIdleConnections()
		b.Close(context.Background())
	})
}

// If a client sends a request slowly, the server ends the connection after a time limit.
func TestSlowClientsAreDisconnected(t *testing.T) {
	head := "POST " + PushPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, listen.Config{})
		for _, tt := range []struct {
			data string
			most time.Duration
			want string
		}{
			{"", 10 * time.Second, ""},
			{"POST / HT", 10 * time.Second, ""},
			{head + "Content-Length: 1000\r\n\r\n{", time.Minute, "HTTP/1.1 408"},
			{head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", time.Minute, "HTTP/1.1 408"},
		} {
			nc := b.pipes.Dial()
			var wg sync.WaitGroup
			wg.Go(func() {
				io.WriteString(nc, tt.data)
				for { // at one byte per second, the request exceeds the time limit
					time.Sleep(time.Second)
					if _, err := io.WriteString(nc, "1"); err != nil {
						return
					}
				}
			})
			start := time.Now()
			got, _ := io.ReadAll(nc)
			if took := time.Since(start); took > tt.most+2*time.Second || !strings.HasPrefix(string(got), tt.want) {
				t.Errorf("%q: ended after %v with %q", tt.data, took, got)
			}
			nc.Close()
			wg.Wait()
		}
		b.Close(context.Background())
	})
}

func TestCloseAnswersReceivedPushes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, listen.Config{})
		b.pushJSON(t, good) // leaves an idle connection open
		open := b.sink.Block()
		done := make(chan int, 1)
		go func() { status, _ := b.pushJSON(t, good); done <- status }()
		partial := b.pipes.Dial()
		io.WriteString(partial, "POST "+PushPath+" HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n1")
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- b.Close(context.Background()) }()
		time.Sleep(time.Second)
		open()
		if status := <-done; status != 204 {
			t.Errorf("%d", status)
		}
		io.Copy(io.Discard, partial)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if status, _ := b.pushJSON(t, good); status != 0 {
			t.Error("a push was answered after Close")
		}
		if got := b.refused.All(); got != nil {
			t.Errorf("refused %q", got)
		}
	})
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, listen.Config{})
		defer b.sink.Block()()
		done := make(chan int, 1)
		go func() { status, _ := b.pushJSON(t, good); done <- status }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.Close(ctx); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if status := <-done; status == 204 {
			t.Error("a push was answered 204 although its records were not committed")
		}
	})
}

func TestActionRejectsOrResets(t *testing.T) {
	var mu sync.Mutex
	next := listen.Reject
	b := serve(t, listen.Config{Action: func(context.Context) listen.Action {
		mu.Lock()
		defer mu.Unlock()
		return next
	}})
	set := func(f listen.Action) {
		mu.Lock()
		defer mu.Unlock()
		next = f
	}
	for _, want := range []int{429, 500, 429} {
		if status, _ := b.pushJSON(t, good); status != want {
			t.Errorf("%d, want %d", status, want)
		}
	}
	set(listen.Reset)
	if status, text := b.pushJSON(t, good); status != 0 {
		t.Errorf("%d %s", status, text)
	}
	set(listen.Accept)
	if status, _ := b.pushJSON(t, good); status != 204 || len(b.sink.Bodies()) != 2 || b.refused.All() != nil {
		t.Errorf("%d %q %q", status, b.sink.Bodies(), b.refused.All())
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	b := serve(t, listen.Config{Limits: listen.Limits{Conns: 1}})
	first := b.pipes.Dial()
	defer first.Close()
	if status, _ := b.pushJSON(t, good); status != 0 {
		t.Errorf("%d", status)
	}
	if got := b.refused.All(); len(got) == 0 || !strings.Contains(got[0], "too many connections") {
		t.Errorf("%q", got)
	}
}

// recorded returns the uncompressed bodies of pushes that package loki sends.
func recorded(f *testing.F) (bodies [][]byte) {
	for _, wire := range []string{"protobuf", "json"} {
		var mu sync.Mutex
		d, err := loki.New(loki.Config{
			URL:         "http://x",
			Wire:        wire,
			Labels:      map[string]string{"app": "s\"h"},
			MetadataAll: true,
			HTTP: httpclient.Options{Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				body, _ := io.ReadAll(r.Body)
				if wire == "protobuf" {
					body, _ = snappy.Decode(nil, body)
				}
				mu.Lock()
				bodies = append(bodies, body)
				mu.Unlock()
				return &http.Response{StatusCode: 204, Body: http.NoBody}, nil
			})}},
		})
		if err != nil {
			f.Fatal(err)
		}
		h, err := forebay.NewRouter(forebay.To(d))
		if err != nil {
			f.Fatal(err)
		}
		log := slog.New(h)
		log.Info("one", "a", 1, "b", "x\n\"\u2028")
		log.Warn("two", slog.Group("g", "d", time.Second), "e", errors.New("no"))
		h.Close(context.Background())
	}
	return bodies
}

// A roundTrip is a function used as an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (t roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// Whatever the body, the method walk does not panic. A second walk visits the same entries. All
// label names are valid.
func FuzzPush(f *testing.F) {
	for _, b := range recorded(f) {
		f.Add(b)
	}
	f.Add([]byte(good))
	f.Add(goodProto())
	f.Fuzz(func(t *testing.T, body []byte) {
		converted, _, err := msgpack.AppendFromJSON(nil, body)
		if err != nil {
			converted = nil
		}
		for _, p := range []*push{{body: body}, {body: converted, isJSON: true}} {
			if p.body == nil {
				continue
			}
			p.w.maxLabels = 8
			var seen [2]string
			for i := range seen {
				err := p.walk(func(labels []listen.Label, at time.Time, line []byte, metadata []listen.Label) error {
					if len(labels) == 0 || len(labels) > 8 || len(metadata) > 8 {
						t.Fatalf("%d labels, %d metadata", len(labels), len(metadata))
					}
					for _, l := range labels {
						if !isValidName(l.Name) {
							t.Fatalf("invalid label name %q", l.Name)
						}
					}
					seen[i] += fmt.Sprintln(labels, at.UnixNano(), line, metadata)
					return nil
				})
				seen[i] += fmt.Sprint(err)
			}
			if seen[0] != seen[1] {
				t.Fatalf("the first walk visited\n%s\nthe second\n%s", seen[0], seen[1])
			}
		}
	})
}

// If parsed labels are formatted and parsed again, the result is the same.
func FuzzLabels(f *testing.F) {
	f.Add(`{a="b", c = "d\n" ,}`)
	f.Add("{app=`x`}")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseLabels(nil, text, 8)
		if err != nil {
			return
		}
		var parts []string
		for _, l := range got {
			parts = append(parts, fmt.Sprintf("%s=%q", l.Name, l.Value))
		}
		again, err := parseLabels(nil, "{"+strings.Join(parts, ",")+"}", 8)
		if err != nil || !slices.Equal(got, again) {
			t.Fatalf("%q is parsed as %q; after formatting as %q, %v", text, got, again, err)
		}
	})
}
