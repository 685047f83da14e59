package conf_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/forebay-log/forebay/fluent"
	"github.com/forebay-log/forebay/httpsink"
	"github.com/forebay-log/forebay/internal/yamlconfig"
	"github.com/forebay-log/forebay/loki"
	"github.com/forebay-log/forebay/otlp"
)

// The Config types of the library can be decoded by the YAML package that the program uses.

func TestLokiFromYAML(t *testing.T) {
	var c loki.Config
	err := yaml.UnmarshalWithOptions([]byte(`
url: http://loki:3100
labels: {app: shop}
label_attrs: [region]
trace_id: metadata
wire: json+gzip
batch_age: 500ms
max_age: 48h
tls: {insecure_skip_verify: true}
headers: {X-A: b}
bearer_token_file: /run/token
tenant: t
batch_bytes: 500000
batch_records: 1000
no_proxy: true
unix_socket: /run/loki
unique_times: true
message_key: Message
errors: exception
collisions: prefix
level_names: {warn: warning}
too_old: now
eager_first: true
`), &c, yaml.Strict())
	if err != nil {
		t.Fatal(err)
	}
	if c.URL != "http://loki:3100" || c.Labels["app"] != "shop" || c.TraceID != "metadata" || c.Wire != "json+gzip" || c.BatchAge != 500*time.Millisecond || c.Limits.MaxAge != 48*time.Hour || !c.HTTP.TLS.InsecureSkipVerify {
		t.Errorf("got %+v", c)
	}
	if c.HTTP.BearerTokenFile != "/run/token" || c.BatchRecords != 1000 || !c.UniqueTimes ||
		c.Line.MessageKey != "Message" || c.Line.Errors != "exception" || c.Line.Collisions != "prefix" ||
		c.LevelNames["warn"] != "warning" || c.Limits.TooOld != "now" || !c.EagerFirst {
		t.Errorf("got %#v", c)
	}
}

// An unknown key of a Config is an error that names it. A field whose key is not in the text keeps
// its value.
func TestUnknownKeyIsAnError(t *testing.T) {
	kept := map[string]func() any{ // each Config with a value that no text below contains
		"fluent":   func() any { return &fluent.Config{Tag: "kept"} },
		"httpsink": func() any { return &httpsink.Config{API: "kept"} },
		"loki":     func() any { return &loki.Config{Tenant: "kept"} },
		"otlp":     func() any { return &otlp.Config{ScopeName: "kept"} },
	}
	for _, tc := range []struct{ config, text, want string }{
		{"fluent", "spool_dir: /var/spool", "spool_dir"}, // memory and delivery are options of the output
		{"fluent", "tls: {ca: x}\nservers: [a]\nserver: b", "server, tls.ca"},
		{"fluent", "shared_key: k\nmode: forward\ntls: {}", ""},
		{"httpsink", "url: http://x\nbuffer_bytes: 1", "buffer_bytes"},
		{"httpsink", "http: {timeout: 1s}\ntls: {ca: x}", "http, tls.ca"},
		{"httpsink", "hec: {index: main}\ntimeout: 1s\nbatch_age: 2s\nheaders: {X-Any: goes}", ""},
		{"loki", "url: http://x\nlables: {a: b}", "lables"},
		{"loki", "retry: {min: 1s}", "retry"},
		{"loki", "tls: {ca: x}\nfoo: 1", "foo, tls.ca"},
		{"loki", "labels: {anything: goes}", ""},
		{"loki", "level_names: {warn: warning}\nheaders: {X-Any: goes}", ""},
		{"otlp", "url: http://x\nscope: s", "scope"},
		{"otlp", "resource: {service.name: shop}\ntls: {ca: x}\nfoo: 1", "foo, tls.ca"},
		{"otlp", "resource: {service.name: shop}\nadd_source: true\ntls: {ca_file: x}\nbearer_token: b", ""},
	} {
		c := kept[tc.config]()
		err := yaml.Unmarshal([]byte(tc.text), c)
		if tc.want == "" {
			if err != nil || reflect.DeepEqual(c, kept[tc.config]()) || !strings.Contains(fields(c), "kept") {
				t.Errorf("%s: %s: %v, %s", tc.config, tc.text, err, fields(c))
			}
		} else if err == nil || !strings.Contains(err.Error(), tc.config+": config: unknown key "+tc.want+";") || !strings.Contains(err.Error(), "forebay.Buffer") {
			t.Errorf("%s: %s: %v", tc.config, tc.text, err)
		}
	}
	within := struct {
		Name string
		Loki loki.Config
	}{}
	if err := yaml.Unmarshal([]byte("name: n\nloki: {url: http://x, batch_age: 2s}"), &within); err != nil || within.Loki.URL != "http://x" || within.Loki.BatchAge != 2*time.Second {
		t.Errorf("%v: %v", err, within)
	}
}

// fields returns the fields of a Config as text, without calling its method Format. c is a pointer
// to the Config.
func fields(c any) string {
	v, text := reflect.ValueOf(c).Elem(), ""
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			text += f.String() + " "
		}
	}
	return text
}

// The old name of a renamed key is still accepted. A line on standard error reports the old name.
func TestRenamedKeysAreAccepted(t *testing.T) {
	values := map[string]string{"nudge": "true", "tls.accept_any_certificate": "true"} // by old key
	configs := map[string]func() any{"loki": func() any { return new(loki.Config) }, "fluent": func() any { return new(fluent.Config) }}
	for _, r := range yamlconfig.Renamed {
		value, ok := values[r.Old]
		if !ok {
			t.Errorf("%s has no value in this test", r.Old)
			continue
		}
		decode := func(key string) any {
			c := configs[r.Config]()
			if err := yaml.UnmarshalWithOptions([]byte("{"+strings.ReplaceAll(key, ".", ": {")+": "+value+strings.Repeat("}", strings.Count(key, ".")+1)), c, yaml.Strict()); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			return c
		}
		was := decode(r.New)
		var got any
		said := stderr(t, func() { got = decode(r.Old) })
		if !reflect.DeepEqual(got, was) || reflect.DeepEqual(got, configs[r.Config]()) {
			t.Errorf("%s is %#v\nwant %#v", r.Old, got, was)
		}
		if want := fmt.Sprintf("%s: config: %s is now %s; the old name works until the next release\n", r.Config, r.Old, r.New); said != want {
			t.Errorf("got %q, want %q", said, want)
		}
	}
}

// If the old and the new name of a key are both present, the value of the new name is used.
func TestNewKeyOverridesOldOne(t *testing.T) {
	for _, text := range []string{"nudge: true\nunique_times: false", "unique_times: false\nnudge: true"} {
		c := loki.Config{UniqueTimes: true}
		stderr(t, func() {
			if err := yaml.Unmarshal([]byte(text), &c); err != nil || c.UniqueTimes {
				t.Errorf("%q: %v, %v", text, c.UniqueTimes, err)
			}
		})
	}
}

// stderr returns the text that the function do writes to standard error.
func stderr(t *testing.T, do func()) string {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	was := os.Stderr
	os.Stderr = f
	defer func() { os.Stderr = was }()
	do()
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// The YAML example in docs/MIGRATING-loki.md decodes into a loki.Config.
func TestConfigOfMigrationPageIsValid(t *testing.T) {
	page, err := os.ReadFile("../../../docs/MIGRATING-loki.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(page), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	var c loki.Config
	if err := yaml.UnmarshalWithOptions([]byte(block), &c, yaml.Strict()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if c.URL == "" || c.Tenant == "" {
		t.Errorf("%v", c)
	}
}

func TestForwardFromYAML(t *testing.T) {
	var c fluent.Config
	err := yaml.UnmarshalWithOptions([]byte(`
servers: ["tls://logs.example:24225", "unix:/run/fluent.sock"]
tag: app
tls: {ca_file: ca.pem, min_version: "1.3"}
shared_key: s3cret
user: u
password: pa55
window: 8
ack_timeout: 10s
compress: gzip
time_fields: event-time
`), &c, yaml.DisallowUnknownField())
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Servers) != 2 || c.Auth.SharedKey != "s3cret" || c.AckTimeout != 10*time.Second || c.TimeFields != "event-time" || c.TLS.CAFile != "ca.pem" || c.Window != 8 {
		t.Errorf("%+v", c)
	}
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprint(slog.AnyValue(c.Auth.SharedKey).Resolve())} {
		if strings.Contains(text, "s3cret") || strings.Contains(text, "pa55") {
			t.Errorf("gives away secrets: %s", text)
		}
	}
	out, err := yaml.Marshal(struct{ S fluent.Secret }{c.Auth.SharedKey})
	if err != nil || strings.Contains(string(out), "s3cret") {
		t.Errorf("%s, %v", out, err)
	}
}
