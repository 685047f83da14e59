package httpsink

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/bubble"
	"github.com/forebay-log/forebay/internal/keyset"
	"github.com/forebay-log/forebay/transport"
)

// No document has a duplicate key, at any depth: the second key gets a "_". The same applies to
// lines of other programs.
func TestKeysAreUnique(t *testing.T) {
	for i := range apis {
		p := &peer{answer: func(int, request) reply {
			return reply{status: 200, text: `{"code":0,"items":[{"create":{"status":201}}]}`}
		}}
		log := loggerFor(t, p, apis[i].name)
		ctx := log.With(slog.String("trace_id", "a"), slog.Int("n", 1))
		ctx.Info("text", slog.Int(slog.MessageKey, 1), slog.Int("message", 2), slog.Int("_msg", 3), slog.Int("level", 4), slog.Int("time", 5), slog.Int("@timestamp", 6),
			slog.Int("_time", 7), slog.Int("timestamp", 8), slog.Int("n", 2), slog.Int("n", 3), slog.String("trace_id", "b"),
			slog.Group("g", slog.Int("a", 1), slog.Int("a", 2)))
		if err := log.Close(); err != nil {
			t.Fatal(apis[i].name, err)
		}
		d := destFor(t, p, apis[i].name, nil)
		d.send(t.Context(), batchOf(`{"a":1,"a":2,"o":{"b":1,"b":2}}`))
		docs := slices.Concat(docsOf(t, &apis[i], p.got[0]), docsOf(t, &apis[i], p.got[1]))
		text := cmp.Or(apis[i].keys.MessageKey, "msg")
		for _, want := range []string{`"` + text + `":"text"`, `"level":"INFO"`, `"level_":4`, `"n":1,`, `"n_":2,"n__":3`, `"trace_id":"a"`, `"trace_id_":"b"`, `"g":{"a":1,"a_":2}`} {
			if !strings.Contains(docs[0], want) {
				t.Errorf("%s: %s is not in %s", apis[i].name, want, docs[0])
			}
		}
		if text != "msg" && !strings.Contains(docs[0], `"`+text+`_":`) {
			t.Errorf("%s: %s", apis[i].name, docs[0])
		}
		if !strings.Contains(docs[1], `"a":1,"a_":2,"o":{"b":1,"b_":2}}`) {
			t.Errorf("%s: %s", apis[i].name, docs[1])
		}
		for _, doc := range docs {
			if again := new(keyset.Set).AppendJSON(nil, []byte(doc), "", ""); string(again) != doc {
				t.Errorf("%s: duplicate key in %s", apis[i].name, doc)
			}
		}
	}
}

// docsOf returns the records of a request.
func docsOf(t *testing.T, f *api, r request) (docs []string) {
	t.Helper()
	if f.array {
		var all []json.RawMessage
		if err := json.Unmarshal([]byte(r.body), &all); err != nil {
			t.Fatal(err)
		}
		for _, doc := range all {
			docs = append(docs, string(doc))
		}
		return docs
	}
	return r.records()
}

// The message of a record has the key that the server expects, whichever program wrote the record.
func TestMessageHasKeyOfServer(t *testing.T) {
	for name, want := range map[string]string{"ndjson": "msg", "array": "msg", "hec": "msg", "elasticsearch": "message", "datadog": "message", "victorialogs": "_msg"} {
		p := &peer{answer: func(int, request) reply {
			return reply{status: 200, text: `{"code":0,"items":[{"create":{"status":201}}]}`}
		}}
		log := loggerFor(t, p, name)
		log.Info("hello")
		own := loggerFor(t, p, name, forebay.Encoder(encode.JSON(nil)))
		own.Info("hello")
		if err := errors.Join(log.Close(), own.Close()); err != nil {
			t.Fatal(name, err)
		}
		d := destFor(t, p, name, nil)
		d.send(t.Context(), batchOf(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"hello"}`))
		for i, r := range p.got {
			if doc := docsOf(t, apiNamed(name), r)[0]; !strings.Contains(doc, `"`+want+`":"hello"`) || strings.Count(doc, "hello") != 1 {
				t.Errorf("%s, %d: %s", name, i, doc)
			}
		}
		d.send(t.Context(), batchOf(`{"msg":"a","`+want+`":"b"}`))
		if doc := docsOf(t, apiNamed(name), p.got[3])[0]; want != "msg" && !strings.Contains(doc, `"msg":"a","`+want+`":"b"`) {
			t.Errorf("%s: record with the key %s: %s", name, want, doc)
		}
	}
}

// If a server misbehaves on a real connection, no record is lost, and records that it stored
// without a response may be sent twice.
func TestMisbehavingServerLosesNothing(t *testing.T) {
	const stored = `{"errors":false,"items":[{"create":{"status":201}}]}`
	for name, answer := range map[string]func(c *net.TCPConn){
		"hangs": func(c *net.TCPConn) { io.Copy(io.Discard, c) },
		"hangs in the middle": func(c *net.TCPConn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")
			io.Copy(io.Discard, c)
		},
		"resets":               func(c *net.TCPConn) { c.SetLinger(0) },
		"ends":                 func(c *net.TCPConn) {},
		"is cut by its length": func(c *net.TCPConn) { fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n%s", stored) },
		"is cut in a chunk": func(c *net.TCPConn) {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n%s", stored)
		},
		"is cut, of unknown length":     func(c *net.TCPConn) { fmt.Fprintf(c, "HTTP/1.0 200 OK\r\n\r\n%s", stored[:20]) },
		"is no HTTP":                    func(c *net.TCPConn) { fmt.Fprint(c, "SSH-2.0-OpenSSH_9.2\r\n") },
		"compresses what nobody wanted": func(c *net.TCPConn) { fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08") },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			served := make(chan struct{})
			go func() {
				defer close(served)
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err == nil {
					io.Copy(io.Discard, r.Body)
					answer(c.(*net.TCPConn))
				}
			}()
			d := destFor(t, nil, "elasticsearch", func(c *Config) {
				c.URL, c.HTTP.Client = "http://"+l.Addr().String()+"/x", nil
				if strings.HasPrefix(name, "hangs") {
					c.HTTP.Timeout = 50 * time.Millisecond
				}
			})
			o := d.send(t.Context(), batchOf("{}"))
			l.Close()
			<-served
			if name == "compresses what nobody wanted" {
				wantOutcome{open: 1, advice: batch.Hold, text: "not from elasticsearch"}.expect(t, o, 1)
				return
			}
			if o.Open.Len(1) != 1 || o.Advice != batch.Again || !errors.Is(o.Why, batch.ErrUnanswered) {
				t.Errorf("%+v", o)
			}
		})
	}
}

// For any API, a response is ignored if its body does not end, even if its status is 200.
func TestEndlessSuccessIsNoResponse(t *testing.T) {
	for i := range apis {
		bubble.Test(t, func(t *testing.T) {
			c := Config{URL: "http://server.test/x", API: apis[i].name, HTTP: httpclient.Options{Client: &http.Client{Transport: endless{}}}}
			log, err := forebay.New(To(c.URL, forebay.Configure(func(to *Config) { *to = c }), forebay.OnError(func(batch.Event) {})))
			if err != nil {
				t.Fatal(err)
			}
			log.Info("m")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			rep, err := log.Router().Close(ctx)
			if a := rep.Outputs[0].Account; err == nil || a.Delivered != 0 || a.Dropped[batch.Shutdown] != 1 {
				t.Errorf("%s: %v, %v", c.API, a, err)
			}
		})
	}
}

// An endless is a response body that sends 16 KiB per second until ctx ends.
type endless struct{ ctx context.Context }

func (endless) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: 200, Body: endless{r.Context()}, Request: r}, err
}

func (e endless) Read(p []byte) (int, error) {
	select {
	case <-e.ctx.Done():
		return 0, e.ctx.Err()
	case <-time.After(time.Second):
		return copy(p, bytes.Repeat([]byte(" "), 16<<10)), nil
	}
}

func (endless) Close() error { return nil }

// If the context ends, the request ends, and its outcome is unknown.
func TestEndOfContextEndsRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}))
	defer srv.Close()
	d := destFor(t, nil, "ndjson", func(c *Config) { c.URL, c.HTTP.Client = srv.URL, nil })
	if o := d.send(ctx, batchOf("{}")); !errors.Is(o.Why, batch.ErrUnanswered) || !errors.Is(o.Why, context.Canceled) {
		t.Errorf("%+v", o)
	}
}

// A dry run writes the request and sends nothing. The query of the URL is hidden.
func TestDryRunWritesBody(t *testing.T) {
	for api, want := range map[string]string{
		"hec":   "POST http://h/services/collector/event?…: 1 record, 43 bytes\n{\"time\":1500000000.123,\"event\":{\"a\":1}}\n",
		"array": "POST http://h?…: 1 record, 9 bytes\n[{\"a\":1}]\n",
	} {
		var out bytes.Buffer
		p := new(peer)
		d := destFor(t, p, api, func(c *Config) { c.DryRun, c.URL = &out, "http://h?key=secret" })
		if o := d.sendDry(t.Context(), batchOf("{\"a\":1}\n")); o.Err() != nil {
			t.Fatal(o.Err())
		}
		if got := out.String(); !strings.HasPrefix(got, want[:12]) || !strings.HasSuffix(got, want[strings.Index(want, "\n"):]) || strings.Contains(got, "secret") || len(p.got) != 0 {
			t.Errorf("got %q", got)
		}
	}
}

// The error of New contains each invalid field. Neither the error nor the text of a Config contains
// secrets.
func TestConfigErrors(t *testing.T) {
	_, err := New(Config{
		URL:          "ftp://user:hunter22@h",
		API:          "elastic",
		Compression:  "zip",
		BatchBytes:   -1,
		BatchRecords: -1,
		HEC:          map[string]string{"event": "x"},
		NoID:         true,
		HTTP:         httpclient.Options{Username: "u", BearerToken: "t\n", Timeout: -1, TLS: transport.TLS{CertFile: "c"}, Headers: map[string]string{"Host": "x"}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`url: its scheme is "ftp"; use http://host/path`, `api is "elastic"; use ndjson, array, elasticsearch, hec, victorialogs, datadog`,
		`compression is "zip"; use gzip or none`, "headers: Host is set by the client", "newline", "batch_bytes is -1", "batch_records is -1", "timeout", "cert_file and key_file",
		`there is no key "event"; use host, source, sourcetype, index`, "hec is for the api hec", "no_id is for the api elasticsearch"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if _, err := New(Config{URL: "http://h:9200/", API: "elasticsearch"}); err == nil || !strings.Contains(err.Error(), "the index is missing; use http://h") {
		t.Errorf("no index: %v", err)
	}
	c := Config{URL: "http://user:hunter22@h:4318/p?key=topsecret", HTTP: httpclient.Options{BearerToken: "topsecret"}}
	for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v %#v %s %d", c, c, c, &c, c), c.LogValue().String()} {
		if strings.Contains(text, "hunter22") || strings.Contains(text, "topsecret") {
			t.Errorf("a secret is in: %s", text)
		}
	}
	if _, err := forebay.New(To("http://h", forebay.Name("a"), forebay.Configure[Config](nil), API("x"))); err == nil || !strings.Contains(err.Error(), "the function is nil") || !strings.Contains(err.Error(), `api is "x"`) {
		t.Errorf("To: %v", err)
	}
}

// A credential in the response of a server is hidden, in any encoding.
func TestSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("file-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(*Config){
		"password": func(c *Config) { c.URL = "http://user:hunter22@server.test/x" },
		"token":    func(c *Config) { c.HTTP.BearerToken = "hunter22" },
		"file":     func(c *Config) { c.HTTP.BearerTokenFile = file },
		"header":   func(c *Config) { c.HTTP.Headers = map[string]string{"Authorization": "Splunk hunter22"} },
		"query":    func(c *Config) { c.URL += "?key=hunter22" },
	} {
		for i := range apis {
			p := &peer{}
			p.answer = func(_ int, r request) reply {
				return reply{status: 403, text: fmt.Sprintf(`{"error":{"type":"x","reason":"%s"},"text":"%s","all":"%s %v"}`, r.header, r.url, r.url, r.header)}
			}
			d := destFor(t, p, apis[i].name, set)
			text := d.send(t.Context(), batchOf("{}")).Why.Error() + d.Stats().LastError
			for _, secret := range []string{"hunter22", "file-token", "dXNlcjpodW50ZXIyMg"} {
				if strings.Contains(text, secret) {
					t.Errorf("%s, %s: %s", name, apis[i].name, text)
				}
			}
		}
	}
}

// A credential in the response of a server is hidden, even if it is short or a common word.
func TestShortCredentialsAreHidden(t *testing.T) {
	for _, secret := range []string{"swordfish", "x1"} {
		for i := range apis {
			for _, status := range []int{200, 400, 401, 429, 500} {
				p := &peer{answer: func(int, request) reply {
					return reply{status: status, text: fmt.Sprintf("bad token Bearer %s, refused [%s]", secret, secret)}
				}}
				d := destFor(t, p, apis[i].name, func(c *Config) { c.HTTP.BearerToken = secret })
				o := d.send(t.Context(), batchOf("{}"))
				if err := o.Err(); err != nil && strings.Contains(err.Error()+d.Stats().LastError, secret) {
					t.Errorf("%s, %d: %v", apis[i].name, status, err)
				}
			}
		}
	}
}

// For any records, a request has one JSON document for each, with the expected keys.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n"), []byte("plain"), true)
	f.Add([]byte("{\"a\":1}\n{\"delete\":{}}\n"), []byte(" { } "), true)
	f.Add([]byte("{\"@timestamp\":1}"), []byte("{\"\xff\":1}"), false)
	f.Fuzz(func(t *testing.T, one, two []byte, lines bool) {
		b := batchOf(string(one), string(two))
		if !lines {
			b.Codec = encode.RawCodec()
		}
		for i := range apis {
			fr := newFramer(&Config{api: &apis[i]})
			if fr.notJSON(b) != nil {
				continue
			}
			text := fr.append(nil, b)
			var recs []json.RawMessage
			if apis[i].array {
				if err := json.Unmarshal(text, &recs); err != nil {
					t.Fatalf("%s: %v: %q", apis[i].name, err, text)
				}
			} else {
				for line := range bytes.Lines(text) {
					recs = append(recs, bytes.TrimSuffix(line, []byte("\n")))
				}
			}
			want := 2
			if apis[i].bulk {
				want = 4
			}
			if len(recs) != want {
				t.Fatalf("%s: %d records, want %d: %q", apis[i].name, len(recs), want, text)
			}
			for _, rec := range recs {
				var obj map[string]any
				if err := json.Unmarshal(rec, &obj); err != nil {
					t.Fatalf("%s: %v: %q", apis[i].name, err, rec)
				}
			}
		}
	})
}

// For any response, the outcome is valid, and a record counts as stored only if the response shows
// that.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"errors":true,"items":[{"create":{"status":400,"error":{"type":"x"}}},{"create":{"status":201}}]}`))
	f.Add(200, []byte(`{"errors":true,"items":[{"create":{"status":409}},{"create":{"status":429}}]}`))
	f.Add(400, []byte(`{"text":"x","code":6,"invalid-event-number":1}`))
	f.Add(200, []byte(`{"code":0}`))
	f.Add(503, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, text []byte) {
		if status < 200 || status > 599 {
			return
		}
		for i := range apis {
			p := &peer{answer: func(int, request) reply { return reply{status: status, text: string(text)} }}
			d := destFor(t, p, apis[i].name, nil)
			o := d.send(t.Context(), batchOf("{}", "{}"))
			if err := o.Check(2); err != nil {
				t.Fatal(apis[i].name, err)
			}
			if status >= 300 && o.Open.Len(2)+o.Refused.Len(2) != 2 {
				t.Fatalf("%s: the records are settled after status %d", apis[i].name, status)
			}
			if apis[i].bulk && o.Open.Empty() && o.Refused.Empty() && !bytes.Contains(text, []byte("rrors")) && !bytes.Contains(text, []byte("tems")) && json.Valid(text) && !bytes.Contains(text, []byte(`\u`)) {
				t.Fatalf("the records are settled after %q", text)
			}
		}
	})
}
