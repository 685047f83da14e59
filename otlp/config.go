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

// The texts of Config.Compression.
const (
	compressGzip = "gzip"
	compressNone = "none"
)

const logsPath = "/v1/logs"

// Config configures an [Exporter]. Only URL is required. Each field states its default and
// unit. A Config can be decoded from YAML; the names are those of the fields in lower case
// with underscores.
type Config struct {
	// URL is required: where the receiver is, http or https, a host with its port (4318,
	// say), and maybe the prefix of a path, to which /v1/logs is appended unless it ends in
	// that. What follows a "?" is sent with each request, and shown nowhere.
	URL string `yaml:"url"`
	// Resource are the attributes of the resource, such as service.name. Default:
	// service.name alone, unknown_service: and the name of the program; it is also added
	// to what is given.
	Resource map[string]string `yaml:"resource"`
	// ScopeName and ScopeVersion are those of the instrumentation scope. Default "": none.
	ScopeName    string `yaml:"scope_name"`
	ScopeVersion string `yaml:"scope_version"`
	// TraceIDKey and SpanIDKey name attributes that become the trace and the span of the
	// record, wherever they stand but in groups of the call, if they are hexadecimal, of 32
	// and 16 digits; others stay attributes. forebay.Context adds them to each record.
	// Defaults "trace_id" and "span_id"; "-": none.
	TraceIDKey string `yaml:"trace_id_key"`
	SpanIDKey  string `yaml:"span_id_key"`
	// AddSource adds code.function.name, code.file.path and code.line.number. Default false.
	AddSource bool `yaml:"add_source"`

	// Compression of requests: "gzip" or "none". Default "gzip".
	Compression string `yaml:"compression"`
	// Username and Password are for basic authentication. Default "": none.
	Username string `yaml:"username"`
	Password string `yaml:"password"`
	// BearerToken is sent as a bearer token; BearerTokenFile is a file that holds it and is
	// read again when it changes, and after a 401. Default "": none.
	BearerToken     string `yaml:"bearer_token"`
	BearerTokenFile string `yaml:"bearer_token_file"`
	// Headers are sent with every request. Default: none.
	Headers map[string]string `yaml:"headers"`
	// TLS is for https. Default: the system's authorities, no certificate of its own.
	TLS TLS `yaml:"tls"`
	// NoProxy ignores the environment's HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Default false.
	NoProxy bool `yaml:"no_proxy"`
	// UnixSocket is the path of a socket to connect to instead of URL's host. Default "":
	// none.
	UnixSocket string `yaml:"unix_socket"`
	// Client makes the requests, if not nil; TLS, NoProxy and UnixSocket are then not used.
	// It is copied, and does not follow redirects. Default nil: one of our own.
	Client *http.Client `yaml:"-"`
	// DryRun, if not nil, is written to instead: a line for each request, and its records
	// as JSON below. Nothing is sent. Default nil.
	DryRun io.Writer `yaml:"-"`
	// Timeout is how long one request may take. Default 10 s.
	Timeout time.Duration `yaml:"timeout"`

	// BatchBytes, BatchRecords and BatchAge say when a batch is sent: with so many bytes
	// before compression (default 1 MiB), so many records (default 0: no limit), or when
	// its oldest record has waited so long (default 1 s). No batch has more.
	BatchBytes   int           `yaml:"batch_bytes"`
	BatchRecords int           `yaml:"batch_records"`
	BatchAge     time.Duration `yaml:"batch_age"`

	// OnError is told when a receiver takes a request and refuses records of it
	// (partial-success), by the Exporter itself. It runs on a goroutine of its own behind a
	// bounded queue. Default nil: that of the output with [To], else a line on standard
	// error.
	OnError func(batch.Event) `yaml:"-"`
	// Name stands in those events. Default "otlp".
	Name string `yaml:"name"`

	endpoint *url.URL // of URL, set by resolve
}

// TLS says how https is made. All fields are optional; files are PEM.
type TLS struct {
	// CAFile holds the authorities to trust. Default: the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile hold the client's certificate and its key. Default: none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name to check the server's certificate for. Default: URL's host.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify takes any certificate: anyone can then be the server. Default
	// false.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

// Format writes the address and no credential, whatever the verb.
func (c Config) Format(f fmt.State, _ rune) { io.WriteString(f, c.shown()) }

// LogValue returns the text that [Config.Format] writes.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.shown()) }

func (c Config) shown() string {
	u, _, why := httpsend.ParseURL(c.URL)
	if why != "" {
		return "otlp.Config{…}"
	}
	u.RawQuery = ""
	return fmt.Sprintf("otlp.Config{URL: %s, …}", u)
}

// resolve returns c with its defaults. The error names everything that is wrong with c, each
// with what would be right, and no secret. Files are not read.
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
		bad("bearer_token: there is a newline in it")
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

// serviceName is what the specification has for programs that give no name.
func serviceName() string { return "unknown_service:" + filepath.Base(os.Args[0]) }

func defaultTo[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
