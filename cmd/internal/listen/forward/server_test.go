package forward

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/cmd/internal/listen/listentest"
	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/msgpack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testServer is a server with a sink that stores the records, and a list of the refusals.
type testServer struct {
	*Server
	sink    *listentest.Sink
	refused *listentest.Refusals
	pipes   *listentest.Pipes
}

// serve starts a server that accepts connections in memory.
func serve(t testing.TB, c Config) *testServer {
	b := &testServer{sink: new(listentest.Sink), refused: new(listentest.Refusals), pipes: listentest.NewPipes()}
	c.Sink, c.Refused = b.sink, b.refused.Add
	b.Server = New(c)
	b.Serve(b.pipes)
	t.Cleanup(func() { b.Close(context.Background()) })
	return b
}

// tcp makes b listen on a TCP port and returns its address.
func (b *testServer) tcp(t testing.TB, wrap func(net.Listener) net.Listener) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if wrap != nil {
		l = wrap(l)
	}
	b.Serve(l)
	return at
}

// exchange writes parts to a new connection. It reads until n bytes have arrived or the connection
// ends, and returns these bytes.
func (b *testServer) exchange(t testing.TB, n int, parts ...[]byte) string {
	t.Helper()
	c := b.pipes.Dial()
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		for _, p := range parts {
			if _, err := c.Write(p); err != nil {
				return
			}
		}
	}()
	got := make([]byte, n)
	n, err := io.ReadFull(c, got)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("the server neither answers nor ends the connection")
	}
	return string(got[:n])
}

// entry returns an entry with a time and a record.
func entry(sec uint32, record string) []byte {
	b := msgpack.AppendEventTime(msgpack.AppendArrayHeader(nil, 2), sec, 5)
	return append(b, object(record)...)
}

// object converts the JSON object js to MessagePack.
func object(js string) []byte {
	b, _, err := msgpack.AppendFromJSON(nil, []byte(js))
	if err != nil {
		panic(err)
	}
	return b
}

// option returns a map of strings in MessagePack. pairs are alternating keys and values.
func option(pairs ...string) []byte {
	b := msgpack.AppendMapHeader(nil, len(pairs)/2)
	for _, p := range pairs {
		b = msgpack.AppendStr(b, p)
	}
	return b
}

// msgOf returns an array of elems elements, encoded in MessagePack. The first element is a tag;
// rest contains the other elements.
func msgOf(elems int, tag string, rest ...[]byte) []byte {
	b := msgpack.AppendStr(msgpack.AppendArrayHeader(nil, elems), tag)
	return append(b, slices.Concat(rest...)...)
}

// packed returns a message in mode PackedForward. pairs are its options.
func packed(payload []byte, pairs ...string) []byte {
	return msgOf(3, "t", msgpack.AppendBin(nil, payload), option(pairs...))
}

// zip compresses b with gzip.
func zip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// The server accepts every mode of the protocol and all variants of the options.
func TestEveryModeIsAccepted(t *testing.T) {
	two := slices.Concat(entry(1, `{"a":1}`), entry(2, `{"b":"x"}`))
	want := []string{`{"a":1}`, `{"b":"x"}`}
	one := want[:1]
	// The plugin in_tail of Fluentd sends lines as binary data, because their encoding is unknown.
	line := func(b string) []byte {
		e := msgpack.AppendEventTime(msgpack.AppendArrayHeader(nil, 2), 1, 5)
		e = msgpack.AppendStr(msgpack.AppendMapHeader(e, 1), "log")
		return msgpack.AppendBin(msgpack.AppendArrayHeader(e, 1), []byte(b))
	}
	at := msgpack.AppendEventTime(nil, 1, 5)
	first := object(`{"a":1}`)
	list := append(msgpack.AppendArrayHeader(nil, 2), two...)
	withMeta := slices.Concat(msgpack.AppendArrayHeader(nil, 2), msgpack.AppendArrayHeader(nil, 2), at, option("k", "v"), first)
	for name, tt := range map[string]struct {
		msg  []byte
		want []string
		ack  bool
	}{
		"Message":                 {msgOf(3, "t", at, first), one, false},
		"Message, option":         {msgOf(4, "t", at, first, option("chunk", "c")), one, true},
		"Message, nil option":     {msgOf(4, "t", at, first, []byte{0xc0}), one, false},
		"Message, seconds":        {msgOf(3, "t", []byte{1}, first), one, false},
		"Forward":                 {msgOf(2, "t", list), want, false},
		"Forward, option":         {msgOf(3, "t", list, option("chunk", "c", "size", "2")), want, true},
		"Packed":                  {msgOf(2, "t", msgpack.AppendBin(nil, two)), want, false},
		"Packed, str":             {msgOf(3, "t", append(msgpack.AppendStrHeader(nil, len(two)), two...), option("chunk", "c")), want, true},
		"Packed, option":          {packed(two, "chunk", "c"), want, true},
		"Packed, text":            {packed(two, "chunk", "c", "compressed", "text"), want, true},
		"gzip":                    {packed(zip(two), "compressed", "gzip", "chunk", "c"), want, true},
		"gzip, two members":       {packed(append(zip(two[:0:0]), zip(two)...), "compressed", "gzip", "chunk", "c"), want, true},
		"an empty pack":           {packed(nil, "chunk", "c"), nil, true},
		"metadata of an entry":    {packed(withMeta, "chunk", "c"), one, true},
		"unknown options":         {packed(two, "fluent_signal", "0", "chunk", "c", "x", "y"), want, true},
		"after a keep-alive":      {append([]byte{0xc0}, packed(two, "chunk", "c")...), want, true},
		"binary text":             {packed(line("a \"ü\"\n"), "chunk", "c"), []string{`{"log":["a \"ü\"\n"]}`}, true},
		"binary data":             {packed(line("a\xfc"), "chunk", "c"), []string{`{"log":["Yfw="]}`}, true},
		"a chunk of binary bytes": {msgOf(3, "t", msgpack.AppendBin(nil, two), slices.Concat(msgpack.AppendMapHeader(nil, 1), msgpack.AppendStr(nil, "chunk"), msgpack.AppendBin(nil, []byte("c")))), want, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, Config{})
			ack := string(appendAck(nil, []byte("c")))
			// The message is sent in one write, and also byte by byte. When a second message is
			// acknowledged, the first was processed.
			end := packed(entry(3, `{"end":true}`), "chunk", "c")
			var single [][]byte
			for _, c := range append(slices.Clone(tt.msg), end...) {
				single = append(single, []byte{c})
			}
			answer := ack
			if tt.ack {
				answer += ack
			}
			for _, parts := range [][][]byte{{tt.msg, end}, single} {
				before := len(b.sink.Bodies())
				if got := b.exchange(t, len(answer), parts...); got != answer {
					t.Fatalf("answer %q, want %q; refused %q", got, answer, b.refused.All())
				}
				got := b.sink.Bodies()[before:]
				if all := append(slices.Clone(tt.want), `{"end":true}`); !slices.Equal(got, all) {
					t.Fatalf("got %q, want %q", got, all)
				}
			}
			for _, r := range b.sink.Await(t, 1) {
				if r.Tag != "t" || r.Source != "forward" || !r.JSON || r.Time.Unix() < 1 || r.Time.Unix() > 3 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// Like Fluentd, the server accepts JSON messages, and acknowledges them in JSON.
// fluent-logger-golang sends such messages if MarshalAsJSON is set.
func TestJSONMessagesAreAccepted(t *testing.T) {
	const ack = `{"ack":"c\"1"}`
	one := []string{`{"a":1,"s":"ü ]\"","f":1.5,"n":null,"l":[true,{"b":2}]}`}
	for name, tt := range map[string]struct {
		msg  string
		want []string
		ack  bool
	}{
		"Message":          {`["t",2,` + one[0] + `,null]`, one, false},
		"Message, option":  {`["t",2,` + one[0] + `,{"chunk":"c\"1"}]`, one, true},
		"Message, spaces":  {" \r\n\t[ \"t\" , 2.5 , " + one[0] + " ]\n", one, false},
		"Forward":          {`["t",[[1,{"a":1}],[2,{"b":2}]],{"chunk":"c\"1","size":2}]`, []string{`{"a":1}`, `{"b":2}`}, true},
		"Forward, nothing": {`["t",[],{"chunk":"c\"1"}]`, nil, true},
		"metadata":         {`["t",[[[1,{"k":"v"}],{"a":1}]]]`, []string{`{"a":1}`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, Config{})
			end := `["t",3,{"end":true},{"chunk":"c\"1"}]`
			answer := ack
			if tt.ack {
				answer += ack
			}
			for _, size := range []int{1, 3, 1000} {
				before := len(b.sink.Bodies())
				var parts [][]byte
				for part := range slices.Chunk([]byte(tt.msg+end), size) {
					parts = append(parts, part)
				}
				if got := b.exchange(t, len(answer), parts...); got != answer {
					t.Fatalf("answer %q, want %q; refused %q", got, answer, b.refused.All())
				}
				if got, all := b.sink.Bodies()[before:], append(slices.Clone(tt.want), `{"end":true}`); !slices.Equal(got, all) {
					t.Fatalf("got %q, want %q", got, all)
				}
			}
			for _, r := range b.sink.Await(t, 1) {
				if r.Tag != "t" || !r.JSON || r.Time.Unix() < 1 || r.Time.Unix() > 3 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	// A connection may mix MessagePack and JSON. Each message is acknowledged in its own format.
	b := serve(t, Config{})
	want := ack + string(appendAck(nil, []byte("c"))) + ack
	js := []byte(`["t",3,{"a":1},{"chunk":"c\"1"}]`)
	if got := b.exchange(t, len(want), js, packed(object(`{}`)[:0], "chunk", "c"), js); got != want {
		t.Errorf("answer %q", got)
	}
}

// If Retain_metadata_in_forward_mode is set, Fluent Bit sends metadata and markers of groups. The
// metadata of records and groups becomes fields. The markers do not become records.
func TestFluentBitMetadata(t *testing.T) {
	item := func(sec uint32, meta, record string) []byte {
		b := msgpack.AppendArrayHeader(nil, 2)
		b = msgpack.AppendEventTime(msgpack.AppendArrayHeader(b, 2), sec, 0)
		return slices.Concat(b, object(meta), object(record))
	}
	const start, end = 0xffffffff, 0xfffffffe
	ids := slices.Concat([]byte{0x92, 0x92, 1, 0x81}, msgpack.AppendStr(nil, "otlp"), []byte{0x82},
		msgpack.AppendBin(msgpack.AppendStr(nil, "trace_id"), []byte("0123456789abcdef")), msgpack.AppendBin(msgpack.AppendStr(nil, "x"), []byte("text")), []byte{0x80})
	many := `{"z":"` + strings.Repeat("x", maxGroupBytes) + `","l":{`
	for i := range 130 {
		many += fmt.Sprintf(`"k%d":%d,`, i, i)
	}
	many += `"n":null}}`
	for name, tt := range map[string]struct {
		msg  []byte
		want []string
	}{
		"empty metadata": {packed(item(1, `{}`, `{"a":1}`), "chunk", "c"), []string{`{"a":1}`}},
		"of a record": {packed(item(1, `{"otlp":{"severity_number":17,"severity_text":"oops","attributes":{"a.b":[1,"x"],"n":null,"f":1.5}},"k":true}`, `{"a":1}`), "chunk", "c"),
			[]string{`{"a":1} ERROR otlp.severity_number=17 otlp.severity_text=oops otlp.attributes.a.b=[1,"x"] otlp.attributes.f=1.5 k=true`}},
		"no level": {packed(item(1, `{"otlp":{"severity_number":0}}`, `{}`), "chunk", "c"), []string{`{} otlp.severity_number=0`}},
		"of a group": {packed(slices.Concat(item(1, `{}`, `{"a":1}`),
			item(start, `{"schema":"otlp","resource_id":0}`, `{"resource":{"attributes":{"service.name":"shop"}},"scope":{"name":"s"}}`),
			item(2, `{"schema":"mine"}`, `{"a":2}`), entry(3, `{"a":3}`), item(end, `{}`, `{}`), item(4, `{}`, `{"a":4}`)), "chunk", "c"),
			[]string{`{"a":1}`, `{"a":2} schema=mine resource_id=0 resource.attributes.service.name=shop scope.name=s`,
				`{"a":3} schema=otlp resource_id=0 resource.attributes.service.name=shop scope.name=s`, `{"a":4}`}},
		"whole seconds":  {packed([]byte{0x92, 0x92, 0xff, 0x80, 0x80, 0x92, 0x92, 0xfe, 0x80, 0x80}, "chunk", "c"), nil},
		"before 1970":    {packed([]byte{0x92, 0xff, 0x80}, "chunk", "c"), []string{"{}"}},
		"only markers":   {packed(slices.Concat(entry(start, `{}`), entry(end, `{}`)), "chunk", "c"), nil},
		"ids of a trace": {packed(ids, "chunk", "c"), []string{`{} otlp.trace_id=30313233343536373839616263646566 otlp.x=text`}},
		"no map":         {packed([]byte{0x92, 0x92, 1, 7, 0x80, 0x92, 0x93, 1, 0x80, 9, 0x80}, "chunk", "c"), []string{"{}", "{}"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, Config{})
			ack := string(appendAck(nil, []byte("c")))
			if got := b.exchange(t, len(ack), tt.msg); got != ack {
				t.Fatalf("answer %q; refused %q", got, b.refused.All())
			}
			records, _ := b.sink.Records()
			var got []string
			for _, r := range records {
				line := string(r.Body)
				if r.HasLevel {
					line += " " + r.Level.String()
				}
				for _, l := range r.Metadata {
					line += " " + l.Name + "=" + l.Value
				}
				got = append(got, line)
				if r.Time.Year() > 2000 {
					t.Errorf("time %v", r.Time)
				}
			}
			if !slices.Equal(got, tt.want) || b.Stats().Records != uint64(len(tt.want)) {
				t.Errorf("%d\n got %q\nwant %q", b.Stats().Records, got, tt.want)
			}
		})
	}
	// Metadata values that exceed the limits are omitted and counted.
	b := serve(t, Config{})
	b.exchange(t, 7, packed(slices.Concat(item(start, many, `{}`), item(1, `{}`, `{}`)), "chunk", "c"))
	records, _ := b.sink.Records()
	if m := records[0].Metadata; len(m) != 129 || m[0].Name != "l.k0" || m[128] != (listen.Label{Name: "metadata_ignored", Value: "3"}) {
		t.Errorf("%d fields, from %v to %v", len(m), m[0], m[len(m)-1])
	}
}

// Package fluent can deliver to the server in each of its modes.
func TestClientOfThisProjectDelivers(t *testing.T) {
	cert, key := listentest.Cert(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		server Config
		client fluent.Config
		tls    bool
	}{
		"plain": {},
		"gzip":  {client: fluent.Config{Compress: "gzip"}},
		"key":   {Config{Secured: true, Key: "k"}, fluent.Config{Auth: fluent.Auth{SharedKey: "k"}}, false},
		"empty": {Config{Secured: true}, fluent.Config{Auth: fluent.Auth{Secured: true}}, false},
		"user":  {Config{Secured: true, Key: "k", User: "u", Password: "p"}, fluent.Config{Auth: fluent.Auth{SharedKey: "k", User: "u", Password: "p"}}, false},
		"tls":   {tls: true},
		"all":   {Config{Secured: true, Key: "k", User: "u", Password: "p"}, fluent.Config{Compress: "gzip", Auth: fluent.Auth{SharedKey: "k", User: "u", Password: "p"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, tt.server)
			wrap := func(l net.Listener) net.Listener { return l }
			if tt.tls {
				wrap = func(l net.Listener) net.Listener {
					return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}})
				}
				tt.client.TLS.CAFile = cert
			}
			at := b.tcp(t, wrap)
			if tt.tls {
				at = "tls://" + at
			}
			tt.client.Servers, tt.client.Tag = []string{at}, "app"
			log, err := fluent.NewLogger(tt.client)
			if err != nil {
				t.Fatal(err)
			}
			const n = 2000
			for i := range n {
				if err := log.Post("x", map[string]any{"n": i}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := log.Flush(ctx); err != nil {
				t.Fatal(err, b.refused.All())
			}
			log.Close(context.Background())
			got := b.sink.Await(t, n)
			for i, r := range got {
				if want := fmt.Sprintf(`{"n":%d}`, i); string(r.Body) != want || r.Tag != "x" {
					t.Fatalf("%d: %s %s", i, r.Tag, r.Body)
				}
			}
			if st := b.Stats(); st.Records != n || st.Conns == 0 || st.Messages == 0 || st.Refused != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// If a client uses a wrong key, user or password, it receives the reason, and none of its records
// is accepted.
func TestWrongCredentialsAreRejected(t *testing.T) {
	for name, tt := range map[string]struct {
		client fluent.Config
		want   string
	}{
		"key":      {fluent.Config{Auth: fluent.Auth{SharedKey: "hunter2", User: "u", Password: "p"}}, "the shared key does not match"},
		"user":     {fluent.Config{Auth: fluent.Auth{SharedKey: "k", User: "x", Password: "p"}}, "the user or password does not match"},
		"password": {fluent.Config{Auth: fluent.Auth{SharedKey: "k", User: "u", Password: "hunter2"}}, "the user or password does not match"},
		"no user":  {fluent.Config{Auth: fluent.Auth{SharedKey: "k"}}, "the user or password does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, Config{Secured: true, Key: "k", User: "u", Password: "p"})
			tt.client.Servers = []string{b.tcp(t, nil)}
			log, err := fluent.NewLogger(tt.client)
			if err != nil {
				t.Fatal(err)
			}
			log.Post("x", map[string]any{"n": 1})
			waitUntil(t, func() bool { return len(b.refused.All()) > 0 })
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			log.Close(ctx)
			if got := b.refused.All()[0]; !strings.Contains(got, tt.want) || strings.Contains(got, "hunter2") {
				t.Error(got)
			}
			if got := b.sink.Bodies(); got != nil {
				t.Errorf("accepted %q", got)
			}
		})
	}
}

// If a client must log in but sends events instead, it receives the same error as from Fluentd.
func TestEventsInsteadOfPingAreRejected(t *testing.T) {
	b := serve(t, Config{Secured: true, Key: "k"})
	c := b.pipes.Dial()
	defer c.Close()
	go c.Write(packed(entry(1, `{}`), "chunk", "c"))
	got, _ := io.ReadAll(c)
	if !bytes.Contains(got, []byte("HELO")) || !bytes.HasSuffix(got, refusal("invalid ping message")) {
		t.Errorf("%q", got)
	}
	waitUntil(t, func() bool { return len(b.refused.All()) > 0 })
	if got := b.refused.All(); !strings.Contains(got[0], "sent no PING") || b.sink.Bodies() != nil {
		t.Errorf("%q", got)
	}
}

// waitUntil waits until the function ok returns true. It fails after a minute.
func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("timeout: the condition is still false after a minute")
		}
		time.Sleep(time.Millisecond)
	}
}

// The server refuses invalid and malicious messages with a reason, and accepts none of their
// records. Other clients can continue.
func TestInvalidMessagesAreRefused(t *testing.T) {
	deep := func(n int, head byte) []byte { // n values, each nested in the previous one
		return append(bytes.Repeat([]byte{head}, n), 0xc0)
	}
	record := func(b []byte) []byte {
		return packed(slices.Concat(entry(1, `{"a":1}`), []byte{0x92, 1}, b), "chunk", "c")
	}
	bomb := make([]byte, 2<<20)
	for name, tt := range map[string]struct {
		msg  []byte
		want string
	}{
		"HTTP":                {[]byte("GET / HTTP/1.1\r\n\r\n"), "not an array"},
		"not MessagePack":     {[]byte{0xc1}, "not the Forward protocol"},
		"a TLS hello":         {[]byte{0x16, 3, 1}, "not an array"},
		"no tag":              {[]byte{0x93, 1, 2, 3}, "the tag is not a string"},
		"an array of five":    {[]byte{0x95, 0xa1, 't', 1, 0x80, 0x80, 0x80}, "not an array"},
		"only a time":         {[]byte{0x92, 0xa1, 't', 1}, "a time but no record"},
		"a chunk of 1":        {msgOf(3, "t", []byte{0xc4, 0}, []byte{0x81, 0xa5, 'c', 'h', 'u', 'n', 'k', 1}), "the chunk is not a string"},
		"an option of 1":      {msgOf(3, "t", []byte{0xc4, 0}, []byte{1}), "the option is not a map"},
		"a key of a map":      {msgOf(3, "t", []byte{0xc4, 0}, []byte{0x81, 0x80, 1}), "a key of the option"},
		"a record of nil":     {record([]byte{0xc0}), "a record is not a map"},
		"an incomplete entry": {packed(entry(1, `{"a":1}`)[:4], "chunk", "c"), "cut short"},
		"a string as time":    {packed([]byte{0x92, 0xa1, 'x', 0x80}), "the time of an entry is invalid: str"},
		"keys within keys":    {record(deep(40, 0x81)), "a key is an array or a map"},
		"too deep":            {packed(slices.Concat([]byte{0x92, 1, 0x81, 0xa1, 'k'}, deep(100, 0x91))), "more than 64 levels deep"},
		"a message too deep":  {deep(100, 0x91), "more than 64 levels deep"},
		"corrupt gzip":        {packed([]byte("nothing"), "compressed", "gzip", "chunk", "c"), "it is not gzip"},
		"incomplete gzip":     {packed(zip(entry(1, `{"a":1}`))[:25], "compressed", "gzip", "chunk", "c"), "it is not gzip"},
		"lz4":                 {packed([]byte("nothing"), "compressed", "lz4", "chunk", "c"), "use gzip, or zstd with forebay-all"},
		"a gzip bomb":         {packed(zip(bomb), "compressed", "gzip", "chunk", "c"), "longer than 1 MiB when decompressed"},
		"too long":            {packed(bomb, "chunk", "c"), "longer than 1 MiB"},
		"JSON without a tag":  {[]byte(`[1,2,{}]`), "the tag is not a string"},
		"JSON, no array":      {[]byte(`{"a":1}`), "not an array"},
		"JSON, no record":     {[]byte(`["t",1,2]`), "a record is not a map"},
		"JSON, a packed text": {[]byte(`["t","x"]`), "an entry is not an array"},
		"JSON, compressed":    {[]byte(`["t",[],{"compressed":"gzip"}]`), "cannot be compressed"},
		"invalid JSON":        {[]byte(`["t",1,{"a":}]`), "is not JSON"},
		"JSON, wrong bracket": {[]byte(`["t",1,{"a":1]}`), "is not JSON"},
		"JSON, too deep":      {[]byte(`["t",1,{"a":` + strings.Repeat("[", 100)), "more than 64 levels deep"},
		"JSON, too long":      {[]byte(`["t",1,{"a":"` + strings.Repeat("x", 2<<20)), "longer than 1 MiB"},
		"deep metadata":       {packed(slices.Concat([]byte{0x92, 0x92, 1, 0x81, 0xa1, 'k'}, deep(100, 0x91), []byte{0x80})), "more than 64 levels deep"},
		"an endless array":    {append([]byte{0x92, 0xa1, 't', 0xdd, 0xff, 0xff, 0xff, 0xff}, bytes.Repeat([]byte{0x92, 1, 0x80}, 1<<20)...), "longer than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, Config{Config: listen.Config{Limits: listen.Limits{MessageBytes: 1 << 20}}})
			ack := appendAck(nil, []byte("good"))
			good := packed(entry(1, `{"good":1}`), "chunk", "good")
			// The valid message before the invalid one is acknowledged, and the connection is
			// closed.
			if got := b.exchange(t, len(ack)+1, good, tt.msg); got != string(ack) {
				t.Errorf("answer %q", got)
			}
			waitUntil(t, func() bool { return len(b.refused.All()) > 0 })
			if got := b.refused.All(); len(got) != 1 || !strings.Contains(got[0], tt.want) || strings.ContainsAny(got[0], "\n\x00") || len(got[0]) > 250 {
				t.Errorf("refused: %q, want %q", got, tt.want)
			}
			if got := b.sink.Bodies(); !slices.Equal(got, []string{`{"good":1}`}) {
				t.Errorf("accepted %q", got)
			}
			if got := b.exchange(t, len(ack), good); got != string(ack) {
				t.Errorf("the next message: answer %q, want an acknowledgement", got)
			}
		})
	}
}

// If a client sends a message slowly or reads answers slowly, the server ends the connection after
// a time limit. A client may be silent between two messages.
func TestSlowClientsAreDisconnected(t *testing.T) {
	timeToEnd := func(t *testing.T, c net.Conn) time.Duration {
		start := time.Now()
		io.Copy(io.Discard, c)
		return time.Since(start)
	}
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{})
		c := b.pipes.Dial()
		if d := timeToEnd(t, c); d != time.Minute {
			t.Errorf("a connection without data ends after %v, want 1m0s", d)
		}
		if got := b.refused.All(); len(got) != 1 || got[0] != "no data for 1m0s" {
			t.Errorf("%q", got)
		}
		// The time limit applies to the whole message, not to each byte.
		slow := b.pipes.Dial()
		go func() {
			for _, by := range packed(bytes.Repeat([]byte("x"), 1000)) {
				if _, err := slow.Write([]byte{by}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		if d := timeToEnd(t, slow); d < 59*time.Second || d > 62*time.Second {
			t.Errorf("a slow message ends after %v", d)
		}
		if got := b.refused.All(); len(got) != 2 || !strings.Contains(got[1], "the rest of the message did not arrive within 1m0s") {
			t.Errorf("%q", got)
		}
		// After its first message, a client may be silent for a day.
		c = b.pipes.Dial()
		ack := appendAck(nil, []byte("c"))
		for range 2 {
			if _, err := c.Write(packed(entry(1, `{}`), "chunk", "c")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, len(ack))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
		}
		c.Close()
		b.Close(context.Background())
	})
	// The handshake has a time limit.
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{Secured: true, Key: "k"})
		c := b.pipes.Dial()
		if d := timeToEnd(t, c); d != time.Minute {
			t.Errorf("a connection without PING ends after %v, want 1m0s", d)
		}
		c = b.pipes.Dial()
		go c.Write([]byte{0x96})
		if d := timeToEnd(t, c); d != 10*time.Second {
			t.Errorf("a connection with an incomplete PING ends after %v, want 10s", d)
		}
		c = b.pipes.Dial()
		go c.Write(append([]byte{0x96, 0xa4, 'P', 'I', 'N', 'G', 0xda, 0xff, 0xff}, make([]byte, 20<<10)...))
		timeToEnd(t, c)
		if got := b.refused.All(); len(got) != 3 || !strings.Contains(got[2], "longer than 16 KiB") {
			t.Errorf("%q", got)
		}
		b.Close(context.Background())
	})
	// If a client does not read its acknowledgements, the server ends the connection.
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{})
		c := b.pipes.Dial()
		c.Write(packed(entry(1, `{}`), "chunk", "c"))
		time.Sleep(11 * time.Second)
		if got := b.refused.All(); len(got) != 1 || got[0] != "the client has not read its responses for 10s" {
			t.Errorf("%q", got)
		}
		c.Close()
		b.Close(context.Background())
	})
}

// If a client closes the connection without sending data, as a port scanner does, no refusal is
// reported.
func TestPortScanIsNotReported(t *testing.T) {
	for _, c := range []Config{{}, {Secured: true, Key: "k"}} {
		b := serve(t, c)
		at := b.tcp(t, nil)
		for range 3 {
			nc, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			nc.Close()
		}
		waitUntil(t, func() bool { return b.Stats().Conns == 3 })
		b.Close(context.Background())
		if got := b.refused.All(); got != nil {
			t.Errorf("refused: %q", got)
		}
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	b := serve(t, Config{Config: listen.Config{Limits: listen.Limits{Conns: 2}}})
	first, second := b.pipes.Dial(), b.pipes.Dial()
	third := b.pipes.Dial()
	if _, err := third.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	if got := b.refused.All(); len(got) != 1 || got[0] != "too many connections: the limit is 2" {
		t.Errorf("%q", got)
	}
	first.Close()
	ack := string(appendAck(nil, []byte("c")))
	waitUntil(t, func() bool {
		return b.exchange(t, len(ack), packed(entry(1, `{}`), "chunk", "c")) == ack
	})
	second.Close()
}

// The memory of all connections together is limited. If a connection needs more memory than is
// free, it waits until another connection releases memory.
func TestMemoryIsLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{Config: listen.Config{Limits: listen.Limits{MessageBytes: 1 << 20, MemoryBytes: 1 << 20}}})
		part := packed(make([]byte, 1<<20-100), "chunk", "c")[:600<<10]
		holder, waiter, third := b.pipes.Dial(), b.pipes.Dial(), b.pipes.Dial()
		holder.Write(part)
		whole := bytes.Repeat(entry(1, `{"text":"some text of some length, again and again"}`), 8000)
		served := make(chan string)
		go func() {
			waiter.Write(packed(whole, "chunk", "c"))
			ack := make([]byte, 7)
			io.ReadFull(waiter, ack)
			served <- string(ack)
		}()
		synctest.Wait()
		go third.Write(part)
		time.Sleep(time.Second)
		third.Close() // close it, because it would get the memory that waiter needs
		holder.Close()
		if got := <-served; got != string(appendAck(nil, []byte("c"))) {
			t.Errorf("%q", got)
		}
		waiter.Close()
		synctest.Wait()
		b.Close(context.Background())
		if st := b.Stats(); st.Memory != 0 {
			t.Errorf("%d bytes are still in use, want 0", st.Memory)
		}
	})
}

// A message is acknowledged only after the sink has committed it. The server stops reading while
// the sink is blocked.
func TestNoAckBeforeCommit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{})
		open := b.sink.Block()
		c := b.pipes.Dial()
		msg := packed(entry(1, `{}`), "chunk", "c")
		var mu sync.Mutex
		sent, acked := 0, 0
		go func() {
			for range 1000 {
				if _, err := c.Write(msg); err != nil {
					return
				}
				mu.Lock()
				sent++
				mu.Unlock()
			}
		}()
		go func() {
			for {
				if _, err := io.ReadFull(c, make([]byte, 7)); err != nil {
					return
				}
				mu.Lock()
				acked++
				mu.Unlock()
			}
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		mu.Lock()
		if sent > 2 || acked != 0 {
			t.Errorf("%d sent, %d acknowledged", sent, acked)
		}
		mu.Unlock()
		open()
		synctest.Wait()
		mu.Lock()
		if sent != 1000 || acked != 1000 {
			t.Errorf("%d sent, %d acknowledged", sent, acked)
		}
		mu.Unlock()
		c.Close()
		b.Close(context.Background())
	})
}

// While a commit is in progress, the server accepts a limited number of messages. One commit covers
// all of them.
func TestReadsDuringCommit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{})
		open := b.sink.BlockCommits()
		c := b.pipes.Dial()
		go func() {
			for range 1000 {
				c.Write(packed(entry(1, `{}`), "chunk", "c"))
			}
		}()
		var acked atomic.Int64
		go func() {
			for {
				if _, err := io.ReadFull(c, make([]byte, 7)); err != nil {
					return
				}
				acked.Add(1)
			}
		}()
		synctest.Wait()
		// The blocked commit covers the messages that were accepted when it began: at least 1, at
		// most maxUncommitted.
		if put, _ := b.sink.Records(); len(put) <= maxUncommitted || len(put) > 2*maxUncommitted || acked.Load() != 0 {
			t.Errorf("during a commit, %d messages are accepted and %d acknowledged, want %d to %d and 0", len(put), acked.Load(), maxUncommitted+1, 2*maxUncommitted)
		}
		open()
		synctest.Wait()
		if n := b.sink.Commits(); acked.Load() != 1000 || n > 800 {
			t.Errorf("%d messages are acknowledged after %d commits, want 1000 after at most 800", acked.Load(), n)
		}
		if st := b.Stats(); st.Messages != 1000 || st.Records != 1000 {
			t.Errorf("%+v", st)
		}
		c.Close()
		b.Close(context.Background())
	})
}

// If a message is invalid, the messages before it are accepted and acknowledged.
func TestMessagesBeforeInvalidOneAreAcknowledged(t *testing.T) {
	b := serve(t, Config{})
	ack := string(appendAck(nil, []byte("c")))
	if got := b.exchange(t, len(ack), append(packed(entry(1, `{}`), "chunk", "c"), 1)); got != ack {
		t.Errorf("answer %q", got)
	}
	b.sink.Await(t, 1)
}

// If a commit fails, the connection ends, even if the client sends nothing.
func TestFailedCommitEndsConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{})
		open := b.sink.BlockCommits()
		c := b.pipes.Dial()
		for range 3 {
			c.Write(packed(entry(1, `{}`), "chunk", "c"))
		}
		synctest.Wait()
		b.sink.Fail(errors.New("disk full"))
		open()
		if got, err := io.ReadAll(c); len(got) > 0 || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if got := b.refused.All(); got != nil {
			t.Errorf("refused %q", got)
		}
	})
	// The connection also ends if the client continues to send.
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{})
		open := b.sink.BlockCommits()
		c := b.pipes.Dial()
		ended := make(chan int)
		go func() {
			n := 0
			for ; ; n++ {
				if _, err := c.Write(packed(entry(1, `{}`), "chunk", "c")); err != nil {
					ended <- n
					return
				}
			}
		}()
		synctest.Wait()
		b.sink.Fail(errors.New("disk full"))
		open()
		// The failed commit covers at most maxUncommitted messages. During the commit, at most
		// maxUncommitted further messages are accepted.
		if n := <-ended; n > 2*maxUncommitted {
			t.Errorf("%d messages were read, want at most %d", n, 2*maxUncommitted)
		}
	})
}

// If the sink fails, the connection ends without an acknowledgement. No refusal is reported.
func TestFailedSinkEndsConnection(t *testing.T) {
	b := serve(t, Config{})
	b.sink.Fail(errors.New("disk full"))
	if got := b.exchange(t, 1, packed(entry(1, `{}`), "chunk", "c")); got != "" {
		t.Errorf("answer %q", got)
	}
	if got := b.refused.All(); got != nil {
		t.Errorf("refused %q", got)
	}
}

// Close waits until received messages are acknowledged. When its context is done, it ends the
// remaining connections.
func TestCloseAnswersReceivedMessages(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{})
		open := b.sink.Block()
		c := b.pipes.Dial()
		c.Write(packed(entry(1, `{}`), "chunk", "c"))
		idle := b.pipes.Dial()
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- b.Close(context.Background()) }()
		if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		time.Sleep(time.Second)
		open()
		if got, _ := io.ReadAll(c); string(got) != string(appendAck(nil, []byte("c"))) {
			t.Errorf("%q", got)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if b.pipes.Dial() != nil || b.Close(context.Background()) != nil {
			t.Error("after Close, the server accepts connections or a second Close fails")
		}
	})
	bubble.Test(t, func(t *testing.T) {
		b := serve(t, Config{})
		defer b.sink.Block()()
		c := b.pipes.Dial()
		c.Write(packed(entry(1, `{}`), "chunk", "c"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.Close(ctx); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if got, _ := io.ReadAll(c); len(got) > 0 {
			t.Errorf("%q", got)
		}
		if got := b.refused.All(); got != nil {
			t.Errorf("refused %q", got)
		}
	})
}

// A test can make the server reject messages or reset the connection with Config.Action.
func TestActionRejectsOrResets(t *testing.T) {
	next := listen.Accept
	var mu sync.Mutex
	b := serve(t, Config{Config: listen.Config{Action: func(context.Context) listen.Action {
		mu.Lock()
		defer mu.Unlock()
		return next
	}}})
	set := func(f listen.Action) {
		mu.Lock()
		defer mu.Unlock()
		next = f
	}
	set(listen.Reset)
	msg := packed(entry(1, `{"reset":1}`), "chunk", "c")
	if got := b.exchange(t, 1, msg); got != "" {
		t.Errorf("reset: %q", got)
	}
	// A reset TCP connection returns an error to the client instead of the end of the data.
	nc, err := net.Dial("tcp", b.tcp(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	nc.Write(msg)
	if _, err := nc.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("over TCP: %v", err)
	}
	nc.Close()
	set(listen.Reject)
	c := b.pipes.Dial()
	c.Write(packed(entry(1, `{"rejected":1}`), "chunk", "c"))
	// When this write returns, the action for the first message has been chosen.
	c.Write([]byte{0xc0})
	set(listen.Accept)
	c.Write(packed(entry(1, `{"accepted":1}`), "chunk", "d"))
	ack := make([]byte, 7)
	if _, err := io.ReadFull(c, ack); err != nil || string(ack) != string(appendAck(nil, []byte("d"))) {
		t.Errorf("%q, %v", ack, err)
	}
	c.Close()
	if got := b.sink.Bodies(); !slices.Equal(got, []string{`{"accepted":1}`}) {
		t.Errorf("%q", got)
	}
}

// recorded returns the data that package fluent sends on a connection, in each of its modes.
func recorded(f *testing.F) (wire [][]byte) {
	for _, c := range []fluent.Config{{}, {NoAck: true}, {Compress: "gzip"}, {Tag: "é"}} {
		b := serve(f, Config{})
		rec := &recorder{}
		c.Servers = []string{b.tcp(f, func(l net.Listener) net.Listener { rec.Listener = l; return rec })}
		log, err := fluent.NewLogger(c)
		if err != nil {
			f.Fatal(err)
		}
		for _, v := range []any{map[string]any{"a": 1, "f": 1.5, "s": []any{"x", nil, true}}, struct{ T time.Time }{time.Unix(1, 2)}, map[string]any{"text": strings.Repeat("long ", 20), "b": []byte{0, 0xff}}} {
			log.Post("x", v)
		}
		log.Flush(context.Background())
		log.Close(context.Background())
		b.Close(context.Background())
		rec.mu.Lock()
		wire = append(wire, rec.got...)
		rec.mu.Unlock()
	}
	return wire
}

// A recorder is a listener that records the data of its connections.
type recorder struct {
	net.Listener
	mu  sync.Mutex
	got [][]byte // data of each closed connection
}

func (r *recorder) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &recording{Conn: c, r: r}, nil
}

// A recording is a connection whose data is recorded.
type recording struct {
	net.Conn
	r   *recorder
	got []byte
}

func (c *recording) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.got = append(c.got, p[:n]...)
	return n, err
}

func (c *recording) Close() error {
	c.r.mu.Lock()
	c.r.got = append(c.r.got, c.got)
	c.r.mu.Unlock()
	return c.Conn.Close()
}

// replay is a connection whose client has already sent all its data.
type replay struct {
	net.Conn // always nil
	in       []byte
	at       []int // offsets in the data at which a Read ends
	out      bytes.Buffer
	n        int // number of bytes that were read
}

func (r *replay) Read(p []byte) (int, error) {
	if r.n == len(r.in) {
		return 0, io.EOF
	}
	end := len(r.in)
	for _, a := range r.at {
		if a > r.n && a < end {
			end = a
		}
	}
	n := copy(p, r.in[r.n:end])
	r.n += n
	return n, nil
}
func (r *replay) Write(p []byte) (int, error)      { return r.out.Write(p) }
func (r *replay) Close() error                     { return nil }
func (r *replay) SetReadDeadline(time.Time) error  { return nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }
func (r *replay) RemoteAddr() net.Addr             { return nil }

// Whatever the input, the server does not panic, and every record is valid JSON. The records and
// the answers do not depend on the sizes of the reads.
func FuzzServer(f *testing.F) {
	for _, w := range recorded(f) {
		f.Add(w, 7)
		f.Add(w[:len(w)*2/3], 1)
	}
	f.Add(packed(append(zip(nil), zip(entry(1, `{"a":1}`))...), "compressed", "gzip", "chunk", "c"), 3)
	f.Add(packed([]byte{0x92, 1, 0x81, 0x81, 1, 2, 3}), 3)
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, 2)
	f.Add([]byte(` ["t",1,{"a":"\"]\u00e4"},{"chunk":"c"}]`+"\n"+`["t",[[1.5,{"b":[1e9,-0,null]}]],{"chunk":"d"}]`), 9)
	f.Add(packed(slices.Concat([]byte{0x92, 0x92, 0xff, 0x81, 0xa1, 'k', 0xa1, 'v', 0x80}, []byte{0x92, 0x92, 1, 0x81, 0xa1, 'l', 0x81, 1, 0xc4, 1, 0xff, 0x80}), "chunk", "c"), 5)
	// The fuzz tests of package fluent also begin with these inputs.
	f.Add([]byte{0x81, 0xa3, 'a', 'c', 'k', 0xa1, 'x'}, 2)
	f.Add([]byte{0x92, 0xa4, 'H', 'E', 'L', 'O', 0x80}, 2)
	f.Add(packed(entry(1, `{"a":[1,2.5,"x",null,{"b":true}]}`)), 5)
	f.Add(packed(entry(1, `{"a":"`+strings.Repeat("held ", 200)+`","b":["`+strings.Repeat("not ", 200)+`"],"c":"\u00e4"}`), "chunk", "c"), 400)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		run := func(at []int) (bodies []string, answer string) {
			sink := new(listentest.Sink)
			s := New(Config{Config: listen.Config{Sink: sink, Limits: listen.Limits{MessageBytes: 1 << 20}}})
			nc := &replay{in: in, at: at}
			s.serve(context.Background(), s.s.Conn(nc))
			s.Close(context.Background())
			return sink.Bodies(), nc.out.String()
		}
		whole, answer := run(nil)
		for _, b := range whole {
			if !json.Valid([]byte(b)) {
				t.Fatalf("%q is not JSON", b)
			}
		}
		if cut = cut % (len(in) + 1); cut < 0 {
			cut = -cut
		}
		divided, answer2 := run([]int{cut, cut + 1, len(in) - 1})
		if !slices.Equal(whole, divided) || answer != answer2 {
			t.Fatalf("with one read: %q, answer %q; with several: %q, answer %q", whole, answer, divided, answer2)
		}
	})
}
