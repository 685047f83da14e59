package loki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/transport"
)

// validate returns the errors of c without reading files.
func validate(c Config) error {
	_, err := c.resolve()
	return err
}

func TestConfigErrorsNameFieldAndRemedy(t *testing.T) {
	good := Config{URL: "http://x:1", Labels: map[string]string{"a": "b"}}
	if err := validate(good); err != nil {
		t.Fatal(err)
	}
	many := map[string]string{}
	for i := range 15 {
		many[string(rune('a'+i))] = "v"
	}
	for want, change := range map[string]func(*Config){
		`Formatter: encode: cannot use Time "iso"`:   func(c *Config) { c.Line.Formatter = encode.JSON(&encode.Options{Time: "iso"}) },
		"url: it is empty":                           func(c *Config) { c.URL = "" },
		`url: its scheme is "ftp"`:                   func(c *Config) { c.URL = "ftp://x" },
		"url: it has no host":                        func(c *Config) { c.URL = "http:///x" },
		"url: it cannot be read":                     func(c *Config) { c.URL = "http://u:s3cret@%zz" },
		"labels: there is none":                      func(c *Config) { c.Labels, c.NoLevelLabel = nil, true },
		"labels: there are 16":                       func(c *Config) { c.Labels = many },
		`"a-b" and "a.b" both become a_b`:            func(c *Config) { c.Labels = map[string]string{"a.b": "1", "a-b": "2"} },
		"labels: a is empty":                         func(c *Config) { c.Labels = map[string]string{"a": ""} },
		"max_label_value (2048)":                     func(c *Config) { c.Labels = map[string]string{"a": strings.Repeat("x", 2049)} },
		"has 2049 bytes, more than max_label_va":     func(c *Config) { c.Labels = map[string]string{"a": strings.Repeat("\xff.", 512) + "x"} },
		"max_label_name (1024)":                      func(c *Config) { c.Labels = map[string]string{strings.Repeat("x", 1025): "x"} },
		"label_attrs":                                func(c *Config) { c.LabelAttrs = []string{""} },
		"trace_id is":                                func(c *Config) { c.TraceID = "no" },
		"wire is":                                    func(c *Config) { c.Wire = "xml" },
		"tenant: it is . or ..":                      func(c *Config) { c.Tenant = ".." },
		"bearer_token and username with password":    func(c *Config) { c.HTTP.Username, c.HTTP.BearerToken = "u", "t" },
		"give X-Scope-OrgID as tenant":               func(c *Config) { c.HTTP.Headers = map[string]string{"x-scope-orgid": "t"} },
		"is not a header name":                       func(c *Config) { c.HTTP.Headers = map[string]string{"a": "b\r\nc: d"} },
		"cert_file and key_file belong together":     func(c *Config) { c.HTTP.TLS.CertFile = "x" },
		"batch_bytes is -1":                          func(c *Config) { c.BatchBytes = -1 },
		"long_lines is":                              func(c *Config) { c.Limits.LongLines = "x" },
		`errors is "stack"; use text, chain`:         func(c *Config) { c.Line.Errors = "stack" },
		`errors is "object", but logfmt has no`:      func(c *Config) { c.Line.Errors, c.Line.Body = "object", "logfmt" },
		`errors is "exception", but logfmt has no`:   func(c *Config) { c.Line.Errors, c.Line.Body = "exception", "logfmt" },
		`errors is "text", but the Formatter writes`: func(c *Config) { c.Line.Errors, c.Line.Formatter = "text", encode.JSON(nil) },
		`collisions is "front"; use suffix or`:       func(c *Config) { c.Line.Collisions = "front" },
		"body is":                                    func(c *Config) { c.Line.Body = "xml" },
		"timeout is -1s":                             func(c *Config) { c.HTTP.Timeout = -time.Second },
		"bearer_token: it contains a newline":        func(c *Config) { c.HTTP.BearerToken = "s3cret\n" },
		"headers: Content-Type is set by the":        func(c *Config) { c.HTTP.Headers = map[string]string{"content-type": "x"} },
	} {
		c := good
		change(&c)
		_, err := New(c)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestPushPathIsAppendedToURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://h:3100":               "http://h:3100/loki/api/v1/push",
		"https://h/prefix/":           "https://h/prefix/loki/api/v1/push",
		"http://h/a/loki/api/v1/push": "http://h/a/loki/api/v1/push",
		"http://h/?x=1":               "http://h/loki/api/v1/push?x=1",
	} {
		u, why := endpoint(in)
		if why != "" || u.String() != want {
			t.Errorf("%s: %v %s, want %s", in, u, why, want)
		}
	}
}

// A Config is printed without its secrets, by any verb of package fmt and by any encoder.
func TestConfigShowsNoSecrets(t *testing.T) {
	c := Config{URL: "http://u:s3cret@x/p?token=s3cret", Labels: map[string]string{"app": "x"}, HTTP: httpclient.Options{Password: "s3cret", BearerToken: "s3cret", Headers: map[string]string{"K": "s3cret"}}}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("starting", "config", c)
	got := fmt.Sprintf("%v %+v %#v %s %v %d %x", c, c, c, c, &c, c, struct{ C Config }{c}) + log.String()
	if strings.Contains(got, "s3cret") || strings.Count(got, "http://x/p/loki/api/v1/push") != 8 {
		t.Error(got)
	}
}

func TestProxyOfEnvironmentIsUsed(t *testing.T) {
	for _, none := range []bool{false, true} {
		c, err := httpsend.Client("loki", &httpclient.Options{NoProxy: none}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Transport.(*http.Transport).Proxy; (got == nil) != none {
			t.Errorf("no_proxy %v: the transport uses a proxy: %v", none, got != nil)
		}
	}
}

// serve starts s as a server that appends its requests to got.
func serve(t *testing.T, s *httptest.Server, got *[]*http.Request) {
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*got = append(*got, r)
		if r.URL.Path == "/moved/loki/api/v1/push" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	t.Cleanup(s.Close)
}

func pushOne(t *testing.T, c Config) *sendResult {
	t.Helper()
	s := sinkFor(t, nil, c)
	e := &encoded{t: t, s: s}
	return e.add(nil, event(time.Now(), 0, "x")).send()
}

func TestHTTPOptionsReachTransport(t *testing.T) {
	t.Setenv("HTTP_PROXY", "")
	var got []*http.Request
	plain := httptest.NewUnstartedServer(nil)
	serve(t, plain, &got)
	plain.Start()
	file := filepath.Join(t.TempDir(), "token")
	os.WriteFile(file, []byte("from-file\n"), 0o600)
	for want, c := range map[string]Config{
		"Basic dTpw":       {URL: plain.URL, HTTP: httpclient.Options{Username: "u", Password: "p"}},
		"Bearer tok":       {URL: plain.URL + "/prefix", Tenant: "ten", HTTP: httpclient.Options{BearerToken: "tok"}},
		"Bearer from-file": {URL: plain.URL, HTTP: httpclient.Options{BearerTokenFile: file}},
		"Own x":            {URL: plain.URL, HTTP: httpclient.Options{Headers: map[string]string{"authorization": "Own x"}}},
	} {
		got = nil
		if err := pushOne(t, c); err != nil {
			t.Fatal(err)
		}
		if r := got[0]; r.Header.Get("Authorization") != want || r.Header.Get("X-Scope-Orgid") != c.Tenant || r.Method != "POST" || r.Header.Get("Idempotency-Key") != "" {
			t.Errorf("%s: %v", want, r.Header)
		}
	}
	got = nil
	if e := pushOne(t, Config{URL: plain.URL + "/moved"}); !e.is("hold [0]") || len(got) != 1 {
		t.Errorf("after a redirect: got %+v, %d requests", e, len(got))
	}
	if _, err := New(Config{URL: "http://x", Labels: map[string]string{"a": "b"}, HTTP: httpclient.Options{BearerTokenFile: "/does/not/exist"}}); err == nil {
		t.Error("no error for a missing token file")
	}

	sock := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	unix := httptest.NewUnstartedServer(nil)
	serve(t, unix, &got)
	unix.Listener = l
	unix.Start()
	got = nil
	if err := pushOne(t, Config{URL: "http://nowhere.invalid", HTTP: httpclient.Options{UnixSocket: sock}}); err != nil || got[0].Host != "nowhere.invalid" {
		t.Errorf("unix socket: %v", err)
	}
}

func TestClientCertificateIsSent(t *testing.T) {
	dir := t.TempDir()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "client"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		&x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "client"}}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, _ := x509.MarshalPKCS8PrivateKey(key)
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600)
		return path
	}
	cert, keyFile := write("cert", "CERTIFICATE", der), write("key", "PRIVATE KEY", pkcs8)
	var got []*http.Request
	s := httptest.NewUnstartedServer(nil)
	serve(t, s, &got)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	ca := write("ca", "CERTIFICATE", s.Certificate().Raw)
	if err := pushOne(t, Config{URL: s.URL, HTTP: httpclient.Options{TLS: transport.TLS{CAFile: ca, CertFile: cert, KeyFile: keyFile}}}); err != nil {
		t.Fatal(err)
	}
	if n := got[0].TLS.PeerCertificates[0].Subject.CommonName; n != "client" {
		t.Errorf("client %s", n)
	}
	if err := pushOne(t, Config{URL: s.URL, HTTP: httpclient.Options{TLS: transport.TLS{CertFile: cert, KeyFile: keyFile}}}); !err.is("hold [0]") {
		t.Errorf("certificate of an unknown authority: got %v", err)
	}
	if _, err := New(Config{URL: s.URL, HTTP: httpclient.Options{TLS: transport.TLS{CAFile: keyFile}}}); err == nil || !strings.Contains(err.Error(), "no PEM certificate") {
		t.Errorf("got %v", err)
	}
}

func TestChangedTokenFileIsUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	os.WriteFile(file, []byte("one"), 0o600)
	var h headers
	c := Config{Wire: wireProtobuf, HTTP: httpclient.Options{BearerTokenFile: file}}
	if err := h.init(&c); err != nil {
		t.Fatal(err)
	}
	get := func() string {
		return h.get("", wireProtobuf).Get("Authorization")
	}
	if got := get(); got != "Bearer one" {
		t.Error(got)
	}
	os.WriteFile(file, []byte("two"), 0o600)
	os.Chtimes(file, time.Now(), time.Now().Add(time.Second))
	h.checkedAt = time.Now().Add(-time.Minute)
	if got := get(); got != "Bearer two" {
		t.Error(got)
	}
	os.Remove(file)
	h.checkedAt = time.Now().Add(-time.Minute)
	if got := get(); got != "Bearer two" {
		t.Error("missing token file: got ", got)
	}
}
