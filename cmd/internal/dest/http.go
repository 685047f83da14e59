package dest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/httpsink"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/transport"
)

// httpDest is the destination http://HOST or https://HOST.
type httpDest struct{ scheme string }

// HTTPDests returns the destinations over HTTP and HTTPS.
func HTTPDests() []Destination { return []Destination{httpDest{"http"}, httpDest{"https"}} }

func (d httpDest) Scheme() string { return d.scheme }
func (d httpDest) canDryRun()     {}

func (d httpDest) Usage() (form, what string) {
	if d.scheme == "http" {
		return "http://HOST:PORT/PATH", "JSON to any URL, Elasticsearch, Splunk, VictoriaLogs, Datadog; see --api"
	}
	return "https://HOST/PATH", "the same over https; see --tls-ca, --tls-cert, --tls-key"
}

// lokiPush and lokiPort are the path and the port of Loki's push API. An address with one of them
// is rejected, because Loki does not accept JSON lines.
const (
	lokiPush = "/loki/api/v1/push"
	lokiPort = ":3100"
)

func (d httpDest) Open(rest string, o *Spec) (*Target, error) {
	host, err := hostOf(rest, d.scheme+"://HOST/PATH")
	if err != nil {
		return nil, err
	}
	if prefix, ok := strings.CutSuffix(host, lokiPush); ok || strings.HasSuffix(host, lokiPort) && !o.Given["api"] {
		scheme := map[string]string{"http": "loki", "https": "loki+https"}[d.scheme]
		return nil, fmt.Errorf("for Loki, write %s://%s", scheme, prefix)
	}
	c := httpsink.Config{
		URL: d.scheme + "://" + host, API: o.Text("api"), NoID: o.On("no-id"),
		HTTP: httpclient.Options{Username: o.Text("user"), BearerTokenFile: o.Text("bearer-token-file")},
	}
	if d.scheme == "https" {
		c.HTTP.TLS = transport.TLS{CAFile: o.Text("tls-ca"), CertFile: o.Text("tls-cert"), KeyFile: o.Text("tls-key")}
	}
	if o.Given["compress"] {
		c.Compression = o.Text("compress")
	}
	if c.HEC, err = pairsOf("hec", o.List("hec"), true); err != nil {
		return nil, err
	}
	if c.HTTP.Headers, err = pairsOf("header", o.List("header"), false); err != nil {
		return nil, err
	}
	params, err := pairsOf("param", o.List("param"), false)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, value := range params {
		query.Set(name, value)
	}
	if len(query) > 0 {
		c.URL += "?" + query.Encode()
	}
	if c.HTTP.Password, err = setting.ReadPassword(o.Text("password-file")); err != nil {
		return nil, err
	}
	if o.DryRun {
		c.DryRun = os.Stdout
	}
	to, err := httpsink.New(c)
	if err != nil {
		return nil, errors.New(httpFlagNames.Replace(err.Error()))
	}
	t := &Target{NewEncoder: NewHTTPEncoder, Codec: record.AsJSON.Codec(), memory: 4 << 20}
	t.Dest, t.Remote = to, !o.DryRun
	return t, nil
}

// httpFlagNames replaces the field names of httpsink.Config in errors by names of flags.
var httpFlagNames = strings.NewReplacer("httpsink: config: ", "", "httpsink: ", "", "bearer_token_file", "--bearer-token-file", "no_id", "--no-id",
	"hec: ", "--hec: ", "hec is for", "--hec is for", "compression is", "--compress is", "headers: ", "--header: ", "the api ", "--api ", "url: ", "",
	"api is", "--api is", "tls: cert_file and key_file", "--tls-cert and --tls-key", "tls.ca_file", "--tls-ca", "tls.cert_file and key_file", "--tls-cert and --tls-key")

// pairsOf parses items of the form NAME=VALUE or NAME:VALUE. If show is false, errors do not
// contain values.
func pairsOf(flag string, items setting.List, show bool) (map[string]string, error) {
	pairs := map[string]string{}
	for _, item := range items {
		i := strings.IndexAny(item, "=:")
		switch {
		case i < 1 && show:
			return nil, fmt.Errorf("--%s %s: write NAME=VALUE or NAME:VALUE", flag, item)
		case i < 1:
			return nil, fmt.Errorf("--%s: write NAME=VALUE or NAME:VALUE", flag)
		}
		if _, twice := pairs[item[:i]]; twice {
			return nil, fmt.Errorf("--%s: %s is given twice", flag, item[:i])
		}
		pairs[item[:i]] = strings.TrimPrefix(item[i+1:], " ")
	}
	return pairs, nil
}

// NewHTTPEncoder returns a function that encodes any line as a JSON line with a time. If the line
// has no time, the current time is used, which is the time of its arrival.
func NewHTTPEncoder() EncodeFunc {
	encode := newJSONEncoder()
	return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
		dst, meta, err := encode(dst, ev)
		if meta.Time == 0 {
			meta.Time = time.Now().UnixNano()
		}
		return dst, meta, err
	}
}

// newJSONEncoder returns a function that encodes any line as a JSON line.
func newJSONEncoder() EncodeFunc {
	enc := record.NewEncoder(record.AsJSON)
	return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
		if dst == nil {
			rec, err := enc.Encode(ev)
			return rec, record.Meta(ev), err
		}
		dst, err := enc.Append(dst, ev)
		return dst, record.Meta(ev), err
	}
}

// httpServers maps names of servers, which users may write as a scheme, to the format of the
// address.
var httpServers = map[string]string{
	"elasticsearch": "http://HOST:9200/INDEX", "opensearch": "http://HOST:9200/INDEX", "elastic": "http://HOST:9200/INDEX", "es": "http://HOST:9200/INDEX",
	"splunk": "https://HOST:8088", "hec": "https://HOST:8088", "victorialogs": "http://HOST:9428", "datadog": "https://http-intake.logs.datadoghq.com",
}

// httpServerHint returns advice if scheme is the name of a server, and "" if not.
func httpServerHint(scheme string) string {
	name, _, _ := strings.Cut(scheme, "+")
	form, ok := httpServers[name]
	if !ok {
		return ""
	}
	if name == "es" || name == "elastic" {
		name = "elasticsearch"
	}
	return fmt.Sprintf("write %s?api=%s", form, name)
}
