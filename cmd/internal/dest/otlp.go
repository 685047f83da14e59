package dest

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/otlp"
	"github.com/forebay-log/forebay/transport"
)

// otlpDest is the destination otlp://HOST:PORT, otlps://HOST, otlpgrpc://HOST:PORT or
// otlpgrpcs://HOST.
type otlpDest struct {
	scheme string
	grpc   func(otlp.Config) (OTLP, error) // returns the driver for gRPC; nil for HTTP
}

// otlpDests returns the OpenTelemetry destinations over HTTP and HTTPS.
func otlpDests() []Destination {
	return []Destination{otlpDest{scheme: "otlp"}, otlpDest{scheme: "otlps"}}
}

func (d otlpDest) Scheme() string { return d.scheme }
func (d otlpDest) canDryRun()     {}

func (d otlpDest) Usage() (form, what string) {
	form, what = d.scheme+"://HOST:PORT", "an OpenTelemetry receiver over http, default port 4318, optional path prefix; see --resource"
	if d.grpc != nil {
		what = "an OpenTelemetry receiver over gRPC, default port 4317; see --resource"
	}
	if d.secure() {
		form, what = d.scheme+"://HOST", "the same over https; see --tls-ca, --tls-cert, --tls-key"
	}
	return form, what
}

func (d otlpDest) secure() bool { return strings.HasSuffix(d.scheme, "s") }

// newDriver returns a driver for HTTP or gRPC.
func (d otlpDest) newDriver(c otlp.Config) (OTLP, error) {
	if d.grpc != nil {
		return d.grpc(c)
	}
	return otlp.New(c)
}

func (d otlpDest) Open(rest string, o *Spec) (*Target, error) {
	host, err := hostOf(rest, d.scheme+"://HOST")
	if err != nil {
		return nil, err
	}
	port := "4318"
	if d.grpc != nil {
		port = "4317"
	}
	c := otlp.Config{
		URL: "http://" + WithPort(host, port), Resource: map[string]string{},
		HTTP: httpclient.Options{Username: o.Text("user"), BearerTokenFile: o.Text("bearer-token-file")},
	}
	if d.secure() {
		c.URL = "https://" + host
		c.HTTP.TLS = transport.TLS{CAFile: o.Text("tls-ca"), CertFile: o.Text("tls-cert"), KeyFile: o.Text("tls-key")}
	}
	for _, r := range o.List("resource") {
		i := strings.IndexAny(r, "=:")
		if i < 1 {
			return nil, fmt.Errorf("--resource %s: write NAME=VALUE or NAME:VALUE", r)
		}
		if _, twice := c.Resource[r[:i]]; twice {
			return nil, fmt.Errorf("--resource %s: %s is given twice; an attribute has one value", r, r[:i])
		}
		c.Resource[r[:i]] = r[i+1:]
	}
	if c.Resource["service.name"] == "" {
		c.Resource["service.name"] = "forebay"
	}
	if c.HTTP.Password, err = setting.ReadPassword(o.Text("password-file")); err != nil {
		return nil, err
	}
	if o.DryRun {
		c.DryRun = os.Stdout
	}
	x, err := d.newDriver(c)
	if err != nil {
		return nil, d.plain(err)
	}
	t := &Target{NewEncoder: func() EncodeFunc { return newOTLPEncoder(x) }, Codec: x.Encoder().Codec(), memory: 4 << 20}
	t.Dest, t.Remote = x, !o.DryRun
	return t, nil
}

// plain adapts an error of package otlp to the command line.
func (d otlpDest) plain(err error) error {
	write := "write otlp://HOST:PORT or otlps://HOST/PREFIX"
	if d.grpc != nil {
		write = "write otlpgrpc://HOST:PORT or otlpgrpcs://HOST"
	}
	return errors.New(strings.NewReplacer("otlp: config: ", "", "otlp: ", "", "otlpgrpc: config: ", "", "otlpgrpc: ", "",
		"use http://host:4318 or https://host/prefix", write, "use http://host:4317 or https://host:4317", write).Replace(err.Error()))
}

// newOTLPEncoder returns a function that encodes a line as a log record. The line becomes the body.
// Fields that the input adds become attributes.
func newOTLPEncoder(x OTLP) EncodeFunc {
	var names record.Namer
	return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
		level := ev.Level
		if !ev.HasLevel {
			level = batch.NoLevel
		}
		return x.AppendLine(dst, ev.Time, level, ev.Line, names.Unique(ev, false))
	}
}
