package httpsink

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/yamlconfig"
)

// Defaults of [Config].
const (
	defaultTimeout    = 30 * time.Second
	defaultBatchBytes = 1 << 20
	defaultBatchAge   = time.Second
)

// The values of Config.Compression.
const (
	compressGzip = "gzip"
	compressNone = "none"
)

// Config configures the protocol of a [Driver]. Memory and delivery are options of the output. Only
// URL is required. Each field states its default and unit.
//
// A Config can be decoded from YAML. The keys are the field names in lower case with underscores.
// HTTP has no key: its fields are keys of the Config. No other keys are accepted.
type Config struct {
	// URL is the address of the server, with the scheme http or https, and is required. The query
	// is sent with each request and removed from errors, because it may contain a secret. For
	// elasticsearch the path names the index or data stream; /_bulk is appended unless the path
	// ends with it. For the other APIs, the default path of the API is used if URL has no path.
	URL string `yaml:"url"`
	// API selects the request format, see [API]. Default "ndjson".
	API string `yaml:"api"`
	// HEC contains members that are added to each event for Splunk: host, source, sourcetype and
	// index. Default: no members.
	HEC map[string]string `yaml:"hec"`
	// NoID omits the _id of each record from requests to elasticsearch: for servers that do not
	// accept an _id, or to avoid the cost of looking it up. A record that is sent again because its
	// answer was lost is then stored twice. Default false.
	NoID bool `yaml:"no_id"`

	// Compression is "gzip" or "none". Default "none" for ndjson and array, "gzip" for the other
	// APIs.
	Compression string `yaml:"compression"`
	// HTTP configures the requests: headers, TLS, proxy, authentication. BearerToken is sent in the
	// form that the API requires: as an ApiKey to elasticsearch, as the token to Splunk, as
	// DD-API-KEY to Datadog, and as a bearer token to other servers. The default of HTTP.Timeout is
	// 30 s.
	HTTP httpclient.Options `yaml:",inline"`
	// DryRun, if not nil, receives one line for each request, followed by its body. Nothing is sent
	// to the server. Default nil.
	DryRun io.Writer `yaml:"-"`

	// A request is sent when its records have BatchBytes bytes before compression (default 1 MiB)
	// or when it has BatchRecords records (default 0: no limit; for Datadog 1000). It is also sent
	// when its oldest record has waited for BatchAge (default 1 s) and no request is in flight. No
	// request has more bytes or records, unless a single record has more bytes.
	BatchBytes   int           `yaml:"batch_bytes"`
	BatchRecords int           `yaml:"batch_records"`
	BatchAge     time.Duration `yaml:"batch_age"`

	endpoint *url.URL // URL with the path and query of the API, set by resolve
	api      *api     // set by resolve
}

// UnmarshalYAML decodes c from YAML. It works with any YAML package that calls a method of this
// form. It fails if there are unknown keys, and the error names them. Fields of c without a key in
// the YAML keep their values.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	return yamlconfig.Decode("httpsink", unmarshal, c)
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
		return "httpsink.Config{…}"
	}
	u.RawQuery = ""
	return fmt.Sprintf("httpsink.Config{URL: %s, …}", u)
}

// hecKeys are the keys that [Config.HEC] may have.
var hecKeys = []string{"host", "source", "sourcetype", "index"}

// resolve returns c with defaults applied. The error lists every problem of c and how to correct
// it, without secrets. Files are not read.
func (c Config) resolve() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("httpsink: config: "+format, args...))
	}
	defaultTo(&c.API, "ndjson")
	c.api = apiNamed(c.API)
	if c.api == nil {
		bad("api is %.40q; use %s", c.API, strings.Join(apiNames(), ", "))
		c.api = &apis[0]
	}
	f := c.api
	if c.Compression == "" {
		c.Compression = compressNone
		if f.gzip {
			c.Compression = compressGzip
		}
	}
	defaultTo(&c.HTTP.Timeout, defaultTimeout)
	defaultTo(&c.BatchBytes, defaultBatchBytes)
	defaultTo(&c.BatchRecords, f.records)
	defaultTo(&c.BatchAge, defaultBatchAge)
	u, user, why := httpsend.ParseURL(c.URL)
	if why == "" && f.bulk && strings.Trim(u.Path, "/") == "" {
		why = "the index is missing"
	}
	if why != "" {
		bad("url: %s; use %s", why, f.example)
	} else {
		httpsend.SetUser(&c.HTTP, user)
		switch {
		case f.bulk && !strings.HasSuffix(u.Path, bulkPath):
			*u = *u.JoinPath(bulkPath)
		case strings.Trim(u.Path, "/") == "" && f.path != "":
			u.Path, u.RawPath = f.path, ""
		}
		if f.query != "" {
			if u.RawQuery != "" {
				u.RawQuery += "&"
			}
			u.RawQuery += f.query
		}
		c.endpoint = u
	}
	for _, key := range sortedKeys(c.HEC) {
		if !slices.Contains(hecKeys, key) {
			bad("hec: there is no key %.40q; use %s", key, strings.Join(hecKeys, ", "))
		}
	}
	if len(c.HEC) > 0 && !f.hec {
		bad("hec is for the api hec; leave it out")
	}
	if c.NoID && !f.bulk {
		bad("no_id is for the api elasticsearch; leave it out")
	}
	if c.Compression != compressGzip && c.Compression != compressNone {
		bad("compression is %.40q; use gzip or none", c.Compression)
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

// defaultTo sets *v to def if it is the zero value.
func defaultTo[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
