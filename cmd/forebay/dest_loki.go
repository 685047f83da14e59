package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/loki"
)

// lokiDest is loki://HOST:PORT or loki+https://HOST. The two share their flags.
type lokiDest struct {
	scheme string
	f      *lokiFlags
}

// lokiFlags holds what the flags were defined on: destinations of other kinds may
// have flags of the same name, and then share them.
type lokiFlags struct {
	cmd              *cobra.Command
	labels, metadata []string
}

func (f *lokiFlags) text(name string) string { return f.cmd.Flags().Lookup(name).Value.String() }

// lokiDests returns the two kinds.
func lokiDests() []destination {
	f := new(lokiFlags)
	return []destination{lokiDest{"loki", f}, lokiDest{"loki+https", f}}
}

func (d lokiDest) Scheme() string { return d.scheme }
func (d lokiDest) canDryRun()     {}

func (d lokiDest) Usage() (form, what string) {
	if d.scheme == "loki" {
		return "loki://HOST:PORT", "Grafana Loki, port 3100, over http; see --label. A path is a prefix"
	}
	return "loki+https://HOST", "the same over https; see --tls-ca, --tls-cert, --tls-key"
}

// Flags defines the flags once for both.
func (d lokiDest) Flags(cmd *cobra.Command) {
	if d.f.cmd == cmd {
		return
	}
	d.f.cmd = cmd
	addTLS(cmd)
	fs := cmd.Flags()
	fs.StringArrayVar(&d.f.labels, "label", nil, "loki: a label of all lines, `NAME=VALUE`; may be repeated (default job=forebay)")
	fs.StringArrayVar(&d.f.metadata, "metadata", nil, "loki: make the field `NAME` of JSON and logfmt lines structured metadata; may be repeated")
	addText(cmd, "tenant", "", "loki: `NAME` of the tenant (X-Scope-OrgID)")
	addText(cmd, "bearer-token-file", "", "loki: `FILE` with a bearer token")
	addLogin(cmd)
	addDryRun(cmd)
}

func (d lokiDest) Open(rest string) (*target, error) {
	host, ok := strings.CutPrefix(rest, "//")
	if !ok || host == "" {
		return nil, fmt.Errorf("it names no server: write %s://HOST", d.scheme)
	}
	if strings.Contains(host, "@") {
		return nil, errors.New("no user and password go into it: use --user and --password-file")
	}
	c := loki.Config{
		URL: "http://" + withPort(host, "3100"), Name: redact(d.scheme + ":" + rest), Labels: map[string]string{},
		MetadataAttrs: d.f.metadata, Tenant: d.f.text("tenant"), Username: d.f.text("user"),
		BearerTokenFile: d.f.text("bearer-token-file"),
	}
	if d.scheme == "loki+https" {
		c.URL = "https://" + host
		c.TLS = loki.TLS{CAFile: d.f.text("tls-ca"), CertFile: d.f.text("tls-cert"), KeyFile: d.f.text("tls-key")}
	}
	for _, l := range d.f.labels {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("--label %s: write NAME=VALUE", l)
		}
		if _, twice := c.Labels[name]; twice {
			return nil, fmt.Errorf("--label %s: %s is given twice; a label has one value", l, name)
		}
		c.Labels[name] = value
	}
	if len(c.Labels) == 0 {
		c.Labels["job"] = "forebay"
	}
	if file := d.f.text("password-file"); file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--password-file: %w", err)
		}
		c.Password = strings.TrimRight(string(b), "\r\n")
	}
	dry := d.f.text("dry-run") == "true"
	if dry {
		c.DryRun = os.Stdout
	}
	s, err := loki.NewPusher(c)
	if err != nil {
		return nil, plainLoki(err)
	}
	t := &target{encode: newLokiEncoder(s, d.f.metadata), codec: s.Encoder().Codec(), memory: 4 << 20}
	t.dest, t.engine = s, !dry
	return t, nil
}

// withPort adds a port to HOST/PATH?QUERY if there is none.
func withPort(rest, port string) string {
	host, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host, path = rest[:i], rest[i:]
	}
	if i := strings.LastIndexByte(host, ':'); i < 0 || strings.HasSuffix(host, "]") {
		host += ":" + port
	}
	return host + path
}

// plainLoki takes the name of the package out of an error.
func plainLoki(err error) error {
	return errors.New(strings.NewReplacer("loki: config: ", "", "loki: ", "",
		"use http://host:3100 or https://host/prefix", "write loki://HOST:PORT or loki+https://HOST/PREFIX").Replace(err.Error()))
}

// newLokiEncoder returns what makes an entry of a line: the line as it came, with
// its time and level, and with metadata of the fields so named.
func newLokiEncoder(s *loki.Pusher, metadata []string) func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
	var attrs []slog.Attr
	var js []byte
	logfmt := encode.Logfmt(nil).Codec()
	return func(dst []byte, ev *record.Event) ([]byte, batch.Meta, error) {
		attrs = attrs[:0]
		if len(metadata) > 0 && ev.Format != record.Text {
			line := ev.Line
			if ev.Format == record.Logfmt {
				js = logfmt.AppendJSON(js[:0], ev.Line, batch.Meta{})
				line = js
			}
			attrs = appendFields(attrs, line, metadata)
		}
		return s.AppendLine(dst, ev.Time, ev.Level, ev.Line, attrs)
	}
}

// appendFields appends the fields of a JSON object that have one of the names.
func appendFields(dst []slog.Attr, obj []byte, names []string) []slog.Attr {
	var fields map[string]json.RawMessage
	if json.Unmarshal(obj, &fields) != nil {
		return dst
	}
	for _, name := range names {
		head, tail, nested := strings.Cut(name, ".")
		if v, ok := fields[name]; ok {
			// The Sink knows a name with a dot as one in a group.
			dst = append(dst, within(strings.Split(name, "."), v))
		} else if v, ok := fields[head]; ok && nested {
			if in := appendFields(nil, v, []string{tail}); len(in) > 0 {
				dst = append(dst, slog.Attr{Key: head, Value: slog.GroupValue(in...)})
			}
		}
	}
	return dst
}

func within(path []string, v json.RawMessage) slog.Attr {
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
