package dest

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/setting"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/transport"
)

// lokiDest is the destination loki://HOST:PORT or loki+https://HOST.
type lokiDest struct{ scheme string }

// LokiDests returns the destinations for Grafana Loki over HTTP and HTTPS.
func LokiDests() []Destination { return []Destination{lokiDest{"loki"}, lokiDest{"loki+https"}} }

func (d lokiDest) Scheme() string { return d.scheme }
func (d lokiDest) canDryRun()     {}

func (d lokiDest) Usage() (form, what string) {
	if d.scheme == "loki" {
		return "loki://HOST:PORT", "Grafana Loki over http, default port 3100, optional path prefix; see --label"
	}
	return "loki+https://HOST", "the same over https; see --tls-ca, --tls-cert, --tls-key"
}

func (d lokiDest) Open(rest string, o *Spec) (*Target, error) {
	host, err := hostOf(rest, d.scheme+"://HOST")
	if err != nil {
		return nil, err
	}
	c := loki.Config{
		URL: "http://" + WithPort(host, "3100"), Labels: map[string]string{},
		LabelAttrs: o.List("label-from"), MetadataAttrs: o.List("metadata"), Tenant: o.Text("tenant"),
		HTTP:   httpclient.Options{Username: o.Text("user"), BearerTokenFile: o.Text("bearer-token-file")},
		Limits: loki.Limits{MaxAge: o.Duration("max-age"), TooOld: o.Text("too-old")},
	}
	if o.Given["flush-interval"] {
		c.BatchAge = max(o.Duration("flush-interval"), time.Microsecond) // 0 would mean the default of loki.Config
	}
	if c.Limits.MaxAge == 0 {
		c.Limits.MaxAge = -1
	}
	if d.scheme == "loki+https" {
		c.URL = "https://" + host
		c.HTTP.TLS = transport.TLS{CAFile: o.Text("tls-ca"), CertFile: o.Text("tls-cert"), KeyFile: o.Text("tls-key")}
	}
	for _, l := range o.List("label") {
		name, value, ok := cutLabel(l)
		if !ok {
			return nil, fmt.Errorf("--label %s: write NAME=VALUE or NAME:VALUE", l)
		}
		if _, twice := c.Labels[name]; twice {
			return nil, fmt.Errorf("--label %s: %s is given twice; a label has one value", l, name)
		}
		c.Labels[name] = value
	}
	if len(c.Labels) == 0 {
		c.Labels["job"] = "forebay"
	}
	if c.HTTP.Password, err = setting.ReadPassword(o.Text("password-file")); err != nil {
		return nil, err
	}
	if o.DryRun {
		c.DryRun = os.Stdout
	}
	s, err := loki.New(c)
	if err != nil {
		return nil, plainLoki(err)
	}
	t := &Target{NewEncoder: func() EncodeFunc { return newLokiEncoder(s, slices.Concat(o.List("label-from"), o.List("metadata"))) }, Codec: s.Encoder().Codec(), memory: 4 << 20}
	t.Dest, t.Remote = s, !o.DryRun
	return t, nil
}

// cutLabel splits a value of --label at the first = or colon.
func cutLabel(l string) (name, value string, ok bool) {
	i := strings.IndexAny(l, "=:") // in a query, label=app:shop is more readable than label=app=shop
	if i < 1 || i == len(l)-1 {
		return "", "", false
	}
	return l[:i], l[i+1:], true
}

// RenamedLabels returns a message for each label of c that must be renamed, because Loki does not
// allow its name.
func RenamedLabels(c *Spec) (notes []string) {
	add := func(option, name string) {
		if at := labelname.Of(name); at != name {
			notes = append(notes, fmt.Sprintf("outputs.%s.%s: %s is called %s at Loki", c.Name, option, name, at))
		}
	}
	for _, l := range c.List("label") {
		name, _, _ := cutLabel(l)
		add("label", name)
	}
	for _, name := range c.List("label-from") {
		add("label-from", name)
	}
	return notes
}

// WithPort adds port to the address HOST/PATH?QUERY, unless the host has a port.
func WithPort(rest, port string) string {
	host, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(host, ':'); i < 0 || strings.HasSuffix(host, "]") {
		host += ":" + port
	}
	return host + path
}

// plainLoki adapts an error of package loki to the command line.
func plainLoki(err error) error {
	return errors.New(strings.NewReplacer("loki: config: ", "", "loki: ", "",
		"use http://host:3100 or https://host/prefix", "write loki://HOST:PORT or loki+https://HOST/PREFIX").Replace(err.Error()))
}

// newLokiEncoder returns a function that encodes a line as a Loki entry: the unchanged line with
// its time and level. The fields in names become labels and metadata. If the input has added such a
// field and the line contains it, too, the value from the input is used, because the author of the
// line is not trusted.
func newLokiEncoder(s *loki.Driver, names []string) EncodeFunc {
	var attrs []slog.Attr
	var rest []string
	var js []byte
	logfmt := encode.Logfmt(nil).Codec()
	return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
		attrs, rest = attrs[:0], rest[:0]
		for _, name := range names {
			if i := slices.IndexFunc(ev.More, func(a slog.Attr) bool { return a.Key == name }); i >= 0 {
				attrs = append(attrs, ev.More[i])
			} else {
				rest = append(rest, name)
			}
		}
		if len(rest) > 0 && ev.Format != record.Text {
			line := ev.Line
			if ev.Format == record.Logfmt {
				js = logfmt.AppendJSON(js[:0], ev.Line, batch.Meta{})
				line = js
			}
			attrs = appendFields(attrs, line, rest)
		}
		level := ev.Level
		if !ev.HasLevel {
			level = batch.NoLevel
		}
		return s.AppendLine(dst, ev.Time, level, ev.Line, attrs)
	}
}

// appendFields appends the fields of the JSON object obj that are in names.
func appendFields(dst []slog.Attr, obj []byte, names []string) []slog.Attr {
	var fields map[string]json.RawMessage
	if json.Unmarshal(obj, &fields) != nil {
		return dst
	}
	for _, name := range names {
		head, tail, nested := strings.Cut(name, ".")
		if v, ok := fields[name]; ok && string(v) == "null" {
			continue // null cannot be a label
		} else if ok {
			// If the name contains dots, the driver expects nested groups.
			dst = append(dst, nestedAttr(strings.Split(name, "."), v))
		} else if v, ok := fields[head]; ok && nested {
			if in := appendFields(nil, v, []string{tail}); len(in) > 0 {
				dst = append(dst, slog.Attr{Key: head, Value: slog.GroupValue(in...)})
			}
		}
	}
	return dst
}

// nestedAttr returns v as an attribute. path contains the names of the nested groups and, as its
// last element, the name of the attribute.
func nestedAttr(path []string, v json.RawMessage) slog.Attr {
	value := slog.AnyValue(v)
	var s string
	if json.Unmarshal(v, &s) == nil && v[0] == '"' {
		value = slog.StringValue(s)
	}
	for i := len(path) - 1; i > 0; i-- {
		value = slog.GroupValue(slog.Attr{Key: path[i], Value: value})
	}
	return slog.Attr{Key: path[0], Value: value}
}
