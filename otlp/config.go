package otlp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/slab"
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

const logsPath = "/v1/logs"

// Config configures an [Exporter]. Only URL is required. Each field states its default and unit. A
// Config can be decoded from YAML; the keys are the field names in lower case with underscores.
type Config struct {
	// URL is the address of the receiver, http or https: a host with its port (such as
	// 4318), and optionally a path prefix, to which /v1/logs is appended unless it ends in
	// that. Required. The query is sent with each request and never logged.
	URL string `yaml:"url"`
	// Resource are the attributes of the resource, such as service.name. If service.name
	// is missing, it is set to "unknown_service:" followed by the name of the program.
	// Default: only service.name.
	Resource map[string]string `yaml:"resource"`
	// ScopeName and ScopeVersion describe the instrumentation scope. Default "": none.
	ScopeName    string `yaml:"scope_name"`
	ScopeVersion string `yaml:"scope_version"`
	// TraceIDKey and SpanIDKey name attributes that become the trace and span ids of the
	// record if they are hexadecimal with 32 and 16 digits; other values remain attributes.
	// The attributes may be anywhere except in groups of the call. forebay.Context adds
	// them to each record. Defaults "trace_id" and "span_id"; "-": none.
	TraceIDKey string `yaml:"trace_id_key"`
	SpanIDKey  string `yaml:"span_id_key"`
	// AddSource adds code.function.name, code.file.path and code.line.number. Default false.
	AddSource bool `yaml:"add_source"`

	// Compression of requests: "gzip" or "none". Default "gzip".
	Compression string `yaml:"compression"`
	// Username and Password are for basic authentication. Default "": none.
	Username string `yaml:"username"`
	Password string `yaml:"password"`
	// BearerToken is sent as a bearer token. BearerTokenFile is a file with the token, which
	// is read again when it changes, and after a 401. Default "": none.
	BearerToken     string `yaml:"bearer_token"`
	BearerTokenFile string `yaml:"bearer_token_file"`
	// Headers are sent with every request. Default: none.
	Headers map[string]string `yaml:"headers"`
	// TLS configures https. Default: the system's authorities, no client certificate.
	TLS TLS `yaml:"tls"`
	// NoProxy ignores the environment's HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Default false.
	NoProxy bool `yaml:"no_proxy"`
	// UnixSocket is the path of a unix socket to use instead of the host of URL. Default
	// "": none.
	UnixSocket string `yaml:"unix_socket"`
	// Client, if not nil, makes the requests; TLS, NoProxy and UnixSocket are then ignored.
	// It is copied and does not follow redirects. Default nil: a client configured by the
	// fields above.
	Client *http.Client `yaml:"-"`
	// DryRun, if not nil, receives the output instead of the receiver: a line for each
	// request, followed by its records as JSON. Default nil.
	DryRun io.Writer `yaml:"-"`
	// Timeout limits one request. Default 10 s.
	Timeout time.Duration `yaml:"timeout"`

	// BatchBytes, BatchRecords and BatchAge control when a batch is sent: when it has so
	// many bytes before compression (default 1 MiB), so many records (default 0: no limit),
	// or when its oldest record has waited so long (default 1 s). No batch exceeds the first
	// two.
	BatchBytes   int           `yaml:"batch_bytes"`
	BatchRecords int           `yaml:"batch_records"`
	BatchAge     time.Duration `yaml:"batch_age"`

	// OnError receives an event when a receiver accepts a request and rejects some of its
	// records (partial-success). The Exporter calls it in a separate goroutine that reads a
	// bounded queue. Default nil: with [To] the OnError of the output, otherwise a line on
	// standard error.
	OnError func(batch.Event) `yaml:"-"`
	// Name is the name in those events. Default "otlp".
	Name string `yaml:"name"`

	endpoint *url.URL // of URL, set by resolve
}

// TLS configures https. All fields are optional; files are in PEM format.
type TLS struct {
	// CAFile contains the authorities to trust. Default: the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile contain the client's certificate and its key. Default: none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the expected name in the server's certificate. Default: the host of
	// URL.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify accepts any certificate, so that anyone can impersonate the server.
	// Default false.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

// Format writes the address without credentials, for every verb.
func (c Config) Format(f fmt.State, _ rune) { io.WriteString(f, c.shown()) }

// LogValue returns the text written by [Config.Format].
func (c Config) LogValue() slog.Value { return slog.StringValue(c.shown()) }

func (c Config) shown() string {
	u, _, why := httpsend.ParseURL(c.URL)
	if why != "" {
		return "otlp.Config{…}"
	}
	u.RawQuery = ""
	return fmt.Sprintf("otlp.Config{URL: %s, …}", u)
}

// resolve returns c with its defaults. The error names all invalid fields with their remedies, and
// no secret. Files are not read.
func (c Config) resolve() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("otlp: config: "+format, args...))
	}
	defaultTo(&c.TraceIDKey, "trace_id")
	defaultTo(&c.SpanIDKey, "span_id")
	defaultTo(&c.Compression, compressGzip)
	defaultTo(&c.Timeout, defaultTimeout)
	defaultTo(&c.BatchBytes, defaultBatchBytes)
	defaultTo(&c.BatchAge, defaultBatchAge)
	defaultTo(&c.Name, "otlp")
	u, user, why := httpsend.ParseURL(c.URL)
	if why != "" {
		bad("url: %s; use http://host:4318 or https://host/prefix", why)
	} else {
		if user != nil && c.Username == "" && c.Password == "" {
			c.Username = user.Username()
			c.Password, _ = user.Password()
		}
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
	if why := httpsend.CheckHeaders(c.Headers, httpsend.Ways(c.Username, c.Password, c.BearerToken, c.BearerTokenFile)); why != "" {
		bad("%s", why)
	}
	if strings.ContainsAny(c.BearerToken, "\r\n\x00") {
		bad("bearer_token: it contains a newline")
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		bad("tls: cert_file and key_file belong together; give both")
	}
	if c.BatchBytes < 1 || c.BatchBytes > slab.MaxSlabBytes {
		bad("batch_bytes is %d; use 1 to %d bytes", c.BatchBytes, slab.MaxSlabBytes)
	}
	if c.BatchRecords < 0 {
		bad("batch_records is %d; use 0 or more", c.BatchRecords)
	}
	if c.Timeout < 0 || c.BatchAge < 0 {
		bad("timeout (%v) and batch_age (%v) must be positive", c.Timeout, c.BatchAge)
	}
	return c, errors.Join(errs...)
}

// serviceName returns the service.name that the specification defines for programs without one.
func serviceName() string { return "unknown_service:" + filepath.Base(os.Args[0]) }

func defaultTo[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
