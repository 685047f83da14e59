package otlp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/yamlconfig"
)

// Defaults of [Config].
const (
	defaultTimeout    = 10 * time.Second
	defaultBatchBytes = 1 << 20
	defaultBatchAge   = time.Second
)

// The values of Config.Compression.
const (
	compressGzip = "gzip"
	compressNone = "none"
)

// logsPath is the path at which a receiver accepts logs (OTLP specification, section OTLP/HTTP
// Request).
const logsPath = "/v1/logs"

// Config configures the protocol of a [Driver]. Memory and delivery are options of the output. Only
// URL is required. Each field states its default and unit.
//
// A Config can be decoded from YAML. The keys are the field names in lower case with underscores.
// HTTP has no key: its fields are keys of the Config. No other keys are accepted.
type Config struct {
	// URL is the address of the receiver and is required. It consists of the scheme http or https,
	// a host with its port (such as 4318) and, optionally, a path prefix. /v1/logs is appended
	// unless the path ends with it. The query is sent with each request and removed from errors,
	// because it may contain a secret.
	URL string `yaml:"url"`
	// Resource contains the attributes of the resource, such as service.name. If service.name is
	// missing, it is set to "unknown_service:" followed by the name of the program. Default: no
	// other attributes.
	Resource map[string]string `yaml:"resource"`
	// ScopeName and ScopeVersion describe the instrumentation scope. Default "": requests contain
	// no scope.
	ScopeName    string `yaml:"scope_name"`
	ScopeVersion string `yaml:"scope_version"`
	// TraceIDKey and SpanIDKey are the keys of the attributes that become the trace id and the span
	// id of the record. Their values must be hexadecimal with 32 and 16 digits; other values remain
	// attributes. An attribute inside a slog.Group is not used. An attribute inside a group opened
	// by WithGroup is used. forebay.Context adds such attributes to each record. Defaults
	// "trace_id" and "span_id"; "-": no id.
	TraceIDKey string `yaml:"trace_id_key"`
	SpanIDKey  string `yaml:"span_id_key"`
	// AddSource adds the source position of the log call as code.function.name, code.file.path and
	// code.line.number. Default false.
	AddSource bool `yaml:"add_source"`

	// Compression is "gzip" or "none". Default "gzip".
	Compression string `yaml:"compression"`
	// HTTP configures the requests: authentication, headers, TLS, proxy. The default of
	// HTTP.Timeout is 10 s.
	HTTP httpclient.Options `yaml:",inline"`
	// DryRun, if not nil, receives one line for each request, followed by its records as JSON.
	// Nothing is sent to the receiver. Default nil.
	DryRun io.Writer `yaml:"-"`

	// A batch is sent when it has BatchBytes bytes before compression (default 1 MiB) or
	// BatchRecords records (default 0: no limit). It is also sent when its oldest record has waited
	// for BatchAge (default 1 s). No batch has more bytes or records.
	BatchBytes   int           `yaml:"batch_bytes"`
	BatchRecords int           `yaml:"batch_records"`
	BatchAge     time.Duration `yaml:"batch_age"`

	endpoint *url.URL // URL with logsPath, set by resolve
}

// UnmarshalYAML decodes c from YAML. It works with any YAML package that calls a method of this
// form. It fails if there are unknown keys, and the error names them. Fields of c without a key in
// the YAML keep their values.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	return yamlconfig.Decode("otlp", unmarshal, c)
}

// Format implements [fmt.Formatter]. For every verb it writes the address without credentials, so that a
// Config can be printed safely.
func (c Config) Format(f fmt.State, _ rune) { io.WriteString(f, c.publicText()) }

// LogValue implements [slog.LogValuer] with the text that [Config.Format] writes.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.publicText()) }

// publicText returns the address without user, password and query.
func (c Config) publicText() string {
	u, _, why := httpsend.ParseURL(c.URL)
	if why != "" {
		return "otlp.Config{…}"
	}
	u.RawQuery = ""
	return fmt.Sprintf("otlp.Config{URL: %s, …}", u)
}

// resolve returns c with defaults applied. The error lists every problem of c and how to correct
// it, without secrets. Files are not read.
func (c Config) resolve() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("otlp: config: "+format, args...))
	}
	defaultTo(&c.TraceIDKey, "trace_id")
	defaultTo(&c.SpanIDKey, "span_id")
	defaultTo(&c.Compression, compressGzip)
	defaultTo(&c.HTTP.Timeout, defaultTimeout)
	defaultTo(&c.BatchBytes, defaultBatchBytes)
	defaultTo(&c.BatchAge, defaultBatchAge)
	u, user, why := httpsend.ParseURL(c.URL)
	if why != "" {
		bad("url: %s; use http://host:4318 or https://host/prefix", why)
	} else {
		httpsend.SetUser(&c.HTTP, user)
		u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), ""
		if !strings.HasSuffix(u.Path, logsPath) {
			u.Path += logsPath
		}
		c.endpoint = u
	}
	for name := range c.Resource {
		if name == "" {
			bad("resource: a name is empty; give one, such as service.name")
		}
	}
	if c.Compression != compressGzip && c.Compression != compressNone {
		bad("compression is %q; use gzip or none", c.Compression)
	}
	httpsend.Check(&c.HTTP, bad)
	if c.BatchBytes < 1 || c.BatchBytes > layout.MaxSlabBytes {
		bad("batch_bytes is %d; use 1 to %d bytes", c.BatchBytes, layout.MaxSlabBytes)
	}
	if c.BatchRecords < 0 {
		bad("batch_records is %d; use 0 or more", c.BatchRecords)
	}
	if c.BatchAge < 0 {
		bad("batch_age is %v; use a positive duration", c.BatchAge)
	}
	return c, errors.Join(errs...)
}

// serviceName returns the service.name of a program that does not set one, in the form that
// OpenTelemetry's semantic conventions define.
func serviceName() string { return "unknown_service:" + filepath.Base(os.Args[0]) }

// defaultTo sets *v to def if it is the zero value.
func defaultTo[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
