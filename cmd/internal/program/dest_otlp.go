package program

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/otlp"
)

// otlpDest is otlp://HOST:PORT or otlps://HOST.
type otlpDest struct{ scheme string }

// otlpDests returns the two kinds.
func otlpDests() []destination { return []destination{otlpDest{"otlp"}, otlpDest{"otlps"}} }

func (d otlpDest) Scheme() string { return d.scheme }
func (d otlpDest) canDryRun()     {}

func (d otlpDest) Usage() (form, what string) {
	if d.scheme == "otlp" {
		return "otlp://HOST:PORT", "an OpenTelemetry receiver, port 4318, over http; see --resource. A path is a prefix"
	}
	return "otlps://HOST", "the same over https; see --tls-ca, --tls-cert, --tls-key"
}

func (d otlpDest) Open(rest string, o *outputConfig) (*target, error) {
	host, err := hostOf(rest, d.scheme+"://HOST")
	if err != nil {
		return nil, err
	}
	c := otlp.Config{
		URL: "http://" + withPort(host, "4318"), Name: redact(d.scheme + ":" + rest), Resource: map[string]string{},
		Username: string(o.User), BearerTokenFile: string(o.BearerTokenFile), OnError: o.onEvent,
	}
	if d.scheme == "otlps" {
		c.URL = "https://" + host
		c.TLS = otlp.TLS{CAFile: string(o.TLSCA), CertFile: string(o.TLSCert), KeyFile: string(o.TLSKey)}
	}
	for _, r := range o.Resource {
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
	if c.Password, err = readPassword(string(o.PasswordFile)); err != nil {
		return nil, err
	}
	if o.dryRun {
		c.DryRun = os.Stdout
	}
	x, err := otlp.NewExporter(c)
	if err != nil {
		return nil, errors.New(strings.NewReplacer("otlp: config: ", "", "otlp: ", "",
			"use http://host:4318 or https://host/prefix", "write otlp://HOST:PORT or otlps://HOST/PREFIX").Replace(err.Error()))
	}
	t := &target{newEncoder: func() encodeFunc { return newOTLPEncoder(x) }, codec: x.Encoder().Codec(), memory: 4 << 20}
	t.dest, t.engine = x, !o.dryRun
	return t, nil
}

// newOTLPEncoder returns what makes a record of a line: the line as it came is the body, with
// its time and level, and what the input knows are attributes.
func newOTLPEncoder(x *otlp.Exporter) encodeFunc {
	return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
		level := ev.Level
		if !ev.HasLevel {
			level = otlp.NoLevel
		}
		return x.AppendLine(dst, ev.Time, level, ev.Line, ev.More)
	}
}
