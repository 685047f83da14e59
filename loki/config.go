package loki

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/httpclient"
	"github.com/forebay-log/forebay/internal/httpsend"
	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/values"
	"github.com/forebay-log/forebay/internal/yamlconfig"
)

// These are the defaults of [Config]. The limits equal the defaults of limits_config in Loki 3.7,
// with three exceptions. defaultMaxRequestBytes is explained at Limits.MaxRequestBytes.
// defaultMaxStreams is below Loki's max_global_streams_per_user of 5000, because other processes
// need streams, too. Loki has no limit that corresponds to defaultMaxLabelValues.
const (
	defaultLevelName        = "level"
	defaultMessageKey       = "msg"
	defaultTraceIDKey       = "trace_id"
	defaultSpanIDKey        = "span_id"
	defaultTimeout          = 10 * time.Second
	defaultBatchBytes       = 1 << 20
	defaultBatchAge         = time.Second
	defaultConcurrency      = 4
	defaultMaxRequestBytes  = 3 << 20
	defaultMaxStreams       = 4096
	defaultMaxLabelValues   = 1000
	defaultMaxLabels        = 15
	defaultMaxLabelName     = 1024
	defaultMaxLabelValue    = 2048
	defaultMaxLine          = 256 << 10
	defaultMaxAge           = 7 * 24 * time.Hour
	defaultMaxFuture        = 10 * time.Minute
	defaultMaxMetadataPairs = 128
	defaultMaxMetadataBytes = 64 << 10
	defaultSlabBytes        = 256 << 10
	defaultBufferBytes      = 4 << 20
	maxParkedBytes          = 4 << 20 // bytes of memory for parked records of held streams
)

// The accepted values of the string fields of [Config].
const (
	// Config.TraceID and Config.SpanID
	inBody     = "body"
	inMetadata = "metadata"
	inNone     = "none"

	// Line.Body
	bodyJSON   = "json"
	bodyLogfmt = "logfmt"

	// Line.Collisions
	collisionPrefix = "prefix"
	collisionSuffix = "suffix"

	// Limits.LongLines
	longLinesTruncate = "truncate"
	longLinesRefuse   = "refuse"

	// Limits.TooOld
	tooOldDeadLetter = "dead-letter"
	tooOldDrop       = "drop"
	tooOldNow        = "now"
)

// Config configures the protocol of a [Driver]: the address, labels, lines and limits. Memory and
// delivery are options of the output, such as forebay.Spool. Only URL is required. Each field
// states its default and unit.
//
// A Config can be decoded from YAML. The keys are the field names in lower case with underscores.
// HTTP, Line and Limits have no key: their fields are keys of the Config. No other keys are
// accepted. Durations are written as 1s or 500ms.
type Config struct {
	// URL is the address of Loki and is required. It consists of the scheme http or https, a host
	// and, optionally, a path prefix. /loki/api/v1/push is appended unless the path already ends
	// with it. A query part is sent with each push. It is removed from errors and from the output
	// of DryRun, because it may contain a secret.
	URL string `yaml:"url"`

	// Labels are the labels of every stream. Names are changed to fit Loki's grammar: http.method
	// becomes http_method. In the value of any label, "?" replaces U+FFFD and invalid UTF-8. A
	// stream needs at least one label; the level label counts. Default: none.
	Labels map[string]string `yaml:"labels"`
	// NoLevelLabel writes the level into the line instead of a label. Default false.
	NoLevelLabel bool `yaml:"no_level_label"`
	// LevelName is the name of the level label. Default "level".
	LevelName string `yaml:"level_name"`
	// LevelNames renames levels. The keys are trace, debug, info, warn, error and fatal;
	// {warn: warning} matches serilog-sinks-grafana-loki. The new names are used in the
	// label and in lines that contain the level. Default: none.
	LevelNames map[string]string `yaml:"level_names"`
	// GapLabels are added to gap markers, the lines that report dropped records, for example {kind:
	// gap}. A gap marker also has Labels and the level. With GapLabels, gap markers form a separate
	// stream, which can be used for alerts. Default: none; gap markers are in the stream of
	// warnings.
	GapLabels map[string]string `yaml:"gap_labels"`
	// LabelAttrs names attributes that also become labels, such as "region", or "http.method" for
	// an attribute in a group. They remain in the line. If several labels have the same name,
	// Labels have precedence over the level, and the level has precedence over attributes. Default:
	// none.
	LabelAttrs []string `yaml:"label_attrs"`
	// MetadataAttrs names attributes that also become structured metadata; they remain in the line.
	// Default: none.
	MetadataAttrs []string `yaml:"metadata_attrs"`
	// MetadataAll makes all attributes metadata. The names of attributes in a group are
	// prefixed with the name of the group and "_". Names are changed like label names, and
	// several "_" in a row become one, as in Loki. A name that consists only of "_"
	// becomes "key_". Default false.
	MetadataAll bool `yaml:"metadata_all"`
	// TraceID and SpanID select where the attributes TraceIDKey ("trace_id") and SpanIDKey
	// ("span_id") are written. "body" leaves them in the line. "metadata" moves them from the line
	// to structured metadata. "none" removes them. Default "body".
	TraceID    string `yaml:"trace_id"`
	SpanID     string `yaml:"span_id"`
	TraceIDKey string `yaml:"trace_id_key"`
	SpanIDKey  string `yaml:"span_id_key"`

	// Line configures the format of lines. Default: JSON.
	Line Line `yaml:",inline"`

	// Wire is the format of requests: "protobuf" (compressed with snappy), "json", or "json+gzip".
	// Default "protobuf".
	Wire string `yaml:"wire"`
	// Tenant is the value of the header X-Scope-OrgID, which selects the tenant of Loki. Default "":
	// the header is not sent.
	Tenant string `yaml:"tenant"`
	// TenantAttr names an attribute whose value is the tenant of its record. Records without the
	// attribute belong to Tenant. The attribute is removed from the line. A record with an invalid
	// tenant name is refused. It becomes a dead letter, with the tenant in its metadata. Default
	// "": all records belong to Tenant.
	//
	// If a response has status 401, 403 or 260, the records of its tenant are kept while those of
	// other tenants are sent. This requires that another tenant has records and was not refused in
	// the last 5 minutes. If there is no such tenant, the credentials are assumed to be wrong: all
	// records are kept, and an alarm is raised. The kept records of a refused tenant may use
	// additional memory, as much as the option forebay.Buffer, but at most 4 MiB. When this memory
	// is full, the records of all tenants wait. After an hour, kept records that do not fit become
	// dead letters. This happens earlier if records would otherwise be dropped.
	TenantAttr string `yaml:"tenant_attr"`

	// HTTP configures the requests: authentication, headers, TLS, proxy. The default of
	// HTTP.Timeout is 10 s.
	HTTP httpclient.Options `yaml:",inline"`
	// DryRun, if not nil, receives one line for each stream of a request, followed by its entries
	// as JSON. Nothing is sent to Loki. Default nil.
	DryRun io.Writer `yaml:"-"`

	// A batch is sent when it has BatchBytes bytes before compression (default 1 MiB) or
	// BatchRecords records (default 0: no limit), or when its oldest record has waited for BatchAge
	// (default 1 s). No batch is larger. Bytes and records are checked each time a slab fills up. A
	// slab has 256 KiB, or less if BatchBytes or BatchRecords is small.
	BatchBytes   int           `yaml:"batch_bytes"`
	BatchRecords int           `yaml:"batch_records"`
	BatchAge     time.Duration `yaml:"batch_age"`
	// Concurrency is the maximum number of concurrent requests. Default 4.
	Concurrency int `yaml:"concurrency"`
	// EagerFirst sends the first record at once, so that a wrong address or password is
	// detected at startup. Default false: the record waits for others, up to BatchAge.
	EagerFirst bool `yaml:"eager_first"`
	// UniqueTimes makes the times of records of a stream differ by 1 ns or more. Otherwise, Loki
	// keeps only one of several equal entries with the same time. Times are only increased, by at
	// most 1 ms. The time is changed before the record is stored, so Loki still recognizes a record
	// that is sent twice. Default false.
	UniqueTimes bool `yaml:"unique_times"`

	// Limits contains the limits of Loki, and how to handle records that exceed them. Default:
	// Loki's default limits.
	Limits Limits `yaml:",inline"`

	// The following fields are derived from the fields above by resolve.
	levels    [len(levelNames)]string // name of each level after renaming by LevelNames
	labels    []label                 // Labels, sorted by name
	gapLabels []label                 // GapLabels, sorted by name
	endpoint  *url.URL                // URL with pushPath, without user and password
}

// Line configures the format of the lines. The zero value selects JSON.
type Line struct {
	// Body is the form of lines: "logfmt" or "json". A JSON line is an object with the message
	// under MessageKey and the attributes; see the package documentation. Default "json".
	Body string `yaml:"body"`
	// MessageKey is the key of the message. Default "msg".
	MessageKey string `yaml:"message_key"`
	// Errors selects how an error is written in a line. Labels and metadata always contain its
	// message only.
	//
	//   - "text": the message, a string.
	//   - "chain", "verbose": the message and more; see Errors of [encode.Options].
	//   - "object": an object with type, message, source position, stack and the
	//     wrapped errors; see the package documentation. Requires Body "json".
	//   - "exception": like "object", with the .NET keys InnerException and InnerExceptions,
	//     which serilog-sinks-grafana-loki writes.
	//
	// Errors must be empty if Formatter is set. Default "text".
	Errors string `yaml:"errors"`
	// Collisions selects where "_" is added to a key that already exists in the line: "suffix" (a_)
	// or "prefix" (_a). Default "suffix".
	Collisions string `yaml:"collisions"`
	// Formatter, if not nil, formats the lines. It replaces the formats above. It is called from
	// several goroutines concurrently. A trailing newline is removed. Default nil.
	//
	// Attributes that also become labels or metadata are evaluated before the Formatter receives
	// them: LogValuers are resolved and AttrAppenders are groups. Their errors, including those in
	// a []error, []any or map, are wrapped: the text is the same, and errors.Is and errors.As find
	// the original. Some values are passed unchanged: errors that marshal themselves as JSON or
	// text, structs that contain errors, and lists of AttrAppenders. Their methods are called a
	// second time if the Formatter calls them.
	Formatter encode.Encoder `yaml:"-"`
	// OutOfLine removes attributes that become labels or metadata from the line. They are also
	// removed if a limit prevents them from becoming labels or metadata. Default false: they are in
	// the line and in the labels or metadata.
	OutOfLine bool `yaml:"out_of_line"`
}

// Limits are the limits of Loki, and how to handle records that exceed them. The defaults are
// Loki's default limits.
type Limits struct {
	// MaxStreams is the maximum number of streams; each combination of labels and tenant is a
	// stream. When the maximum is reached, records that would need a new stream go to the stream of
	// their tenant and level, and their labels from attributes become metadata. If the tenant has
	// no stream yet, its records are refused. Default 4096.
	MaxStreams int `yaml:"max_streams"`
	// MaxLabelValues is the maximum number of values of a label of LabelAttrs, counted over all
	// tenants. When a label exceeds it, the label becomes metadata in all further records, and the
	// event label-values reports it. Default 1000; negative: only MaxStreams applies.
	MaxLabelValues int `yaml:"max_label_values"`
	// MaxLabels, MaxLabelName, MaxLabelValue, MaxLine, MaxMetadataPairs and MaxMetadataBytes are
	// limits of Loki (limits_config). The defaults are those of Loki: 15 labels, names of 1024
	// bytes, values of 2048 bytes, lines of 256 KiB, and 128 pairs of structured metadata with 64
	// KiB in total. Labels and metadata beyond the limits are moved or omitted, and counted in
	// Stats.ByReason. For lines, see LongLines.
	MaxLabels        int `yaml:"max_labels"`
	MaxLabelName     int `yaml:"max_label_name"`
	MaxLabelValue    int `yaml:"max_label_value"`
	MaxLine          int `yaml:"max_line"`
	MaxMetadataPairs int `yaml:"max_metadata_pairs"`
	MaxMetadataBytes int `yaml:"max_metadata_bytes"`
	// LongLines selects how to handle lines longer than MaxLine. With "truncate", the line is cut
	// and counted, and a mark with the number of removed bytes is appended. With "refuse", the
	// record becomes a dead letter. Default "truncate".
	LongLines string `yaml:"long_lines"`
	// MaxAge is the maximum age of a record when it is sent. MaxFuture limits how far the time of a
	// record may be in the future. Records beyond these limits are refused before they are sent.
	// Defaults: 7 days and 10 minutes; negative: no limit.
	MaxAge    time.Duration `yaml:"max_age"`
	MaxFuture time.Duration `yaml:"max_future"`

	// TooOld selects how to handle records that are older than MaxAge or that Loki refuses because
	// of their age. Loki refuses records older than its limit, and records more than an hour older
	// than the newest record of their stream, for example from the backlog of another process.
	//
	//   - "dead-letter": they are refused and go to the dead letters, if configured.
	//   - "drop": they are refused and do not go to the dead letters.
	//   - "now": they are sent with the present time. The original time is in the
	//     metadata original_time (RFC 3339). The event too-old reports this,
	//     at most once in 10 minutes.
	//
	// Default "dead-letter".
	TooOld string `yaml:"too_old"`
	// MaxRequestBytes is the maximum size of a request in bytes, before compression. The default, 3
	// MiB, is below Loki's limit of 4 MiB, because Loki counts a few bytes more for each entry.
	MaxRequestBytes int `yaml:"max_request_bytes"`
}

// The type label is a label of the configuration. Its name and value are sanitized for Loki.
type label struct{ name, value string }

// UnmarshalYAML decodes c from YAML. Packages that call a method of this form include yaml.v2 and
// yaml.v3. Unknown keys are an error, which names them. Fields of c without a key in the YAML keep
// their values.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	return yamlconfig.Decode("loki", unmarshal, c)
}

// Format implements [fmt.Formatter]. For every verb it writes the address and the labels without
// credentials, so that a Config can be printed safely.
func (c Config) Format(f fmt.State, _ rune) { io.WriteString(f, c.publicText()) }

// LogValue implements [slog.LogValuer] with the text that [Config.Format] writes.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.publicText()) }

// publicText returns the address without user and query, and the labels.
func (c Config) publicText() string {
	u, why := endpoint(c.URL)
	if why != "" {
		return "loki.Config{…}"
	}
	u.User, u.RawQuery = nil, ""
	return fmt.Sprintf("loki.Config{URL: %s, Labels: %v, …}", u, c.Labels)
}

// resolve returns c with defaults applied and the derived fields set. The error lists every problem
// of c and how to correct it, without secrets. resolve does not read files.
func (c Config) resolve() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("loki: config: "+format, args...))
	}
	defaultTo(&c.LevelName, defaultLevelName)
	defaultTo(&c.Line.MessageKey, defaultMessageKey)
	defaultTo(&c.TraceIDKey, defaultTraceIDKey)
	defaultTo(&c.SpanIDKey, defaultSpanIDKey)
	defaultTo(&c.TraceID, inBody)
	defaultTo(&c.SpanID, inBody)
	defaultTo(&c.Line.Body, bodyJSON)
	if c.Line.Formatter != nil && c.Line.Errors != "" {
		bad("errors is %q, but the Formatter writes the lines; leave it empty and configure the Formatter instead", c.Line.Errors)
	}
	defaultTo(&c.Line.Errors, values.ErrorForms[values.ErrorText])
	defaultTo(&c.Line.Collisions, collisionSuffix)
	defaultTo(&c.Wire, wireProtobuf)
	defaultTo(&c.Limits.LongLines, longLinesTruncate)
	defaultTo(&c.Limits.TooOld, tooOldDeadLetter)
	defaultTo(&c.Limits.MaxLabelValues, defaultMaxLabelValues)
	defaultTo(&c.HTTP.Timeout, defaultTimeout)
	defaultTo(&c.BatchBytes, defaultBatchBytes)
	defaultTo(&c.BatchAge, defaultBatchAge)
	defaultTo(&c.Concurrency, defaultConcurrency)
	defaultTo(&c.Limits.MaxRequestBytes, defaultMaxRequestBytes)
	defaultTo(&c.Limits.MaxStreams, defaultMaxStreams)
	defaultTo(&c.Limits.MaxLabels, defaultMaxLabels)
	defaultTo(&c.Limits.MaxLabelName, defaultMaxLabelName)
	defaultTo(&c.Limits.MaxLabelValue, defaultMaxLabelValue)
	defaultTo(&c.Limits.MaxLine, defaultMaxLine)
	defaultTo(&c.Limits.MaxMetadataPairs, defaultMaxMetadataPairs)
	defaultTo(&c.Limits.MaxMetadataBytes, defaultMaxMetadataBytes)
	defaultTo(&c.Limits.MaxAge, defaultMaxAge)
	defaultTo(&c.Limits.MaxFuture, defaultMaxFuture)
	var why string
	if c.endpoint, why = endpoint(c.URL); why != "" {
		bad("url: %s; use http://host:3100 or https://host/prefix", why)
	} else {
		httpsend.SetUser(&c.HTTP, c.endpoint.User)
		c.endpoint.User = nil
	}
	c.resolveLevels(bad)
	c.resolveLabels(bad)
	for _, p := range []struct {
		field string
		value string
	}{{"trace_id", c.TraceID}, {"span_id", c.SpanID}} {
		if !slices.Contains([]string{inBody, inMetadata, inNone}, p.value) {
			bad("%s is %q; use body, metadata or none", p.field, p.value)
		}
	}
	if v, ok := c.Line.Formatter.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			bad("Formatter: %w", err)
		}
	}
	if c.Line.Body != bodyJSON && c.Line.Body != bodyLogfmt {
		bad("body is %q; use json or logfmt", c.Line.Body)
	}
	if !slices.Contains(values.ErrorForms, c.Line.Errors) {
		bad("errors is %q; use text, chain, verbose, object or exception", c.Line.Errors)
	} else if c.Line.Body == bodyLogfmt && slices.Contains(values.ErrorForms[values.ErrorObject:], c.Line.Errors) {
		bad("errors is %q, but logfmt has no objects; use text, chain or verbose, or body json", c.Line.Errors)
	}
	if c.Line.Collisions != collisionPrefix && c.Line.Collisions != collisionSuffix {
		bad("collisions is %q; use suffix or prefix", c.Line.Collisions)
	}
	if c.Wire != wireProtobuf && c.Wire != wireJSON && c.Wire != wireGzip {
		bad("wire is %q; use protobuf, json or json+gzip", c.Wire)
	}
	if c.Limits.LongLines != longLinesTruncate && c.Limits.LongLines != longLinesRefuse {
		bad("long_lines is %q; use truncate or refuse", c.Limits.LongLines)
	}
	if c.Limits.TooOld != tooOldDeadLetter && c.Limits.TooOld != tooOldDrop && c.Limits.TooOld != tooOldNow {
		bad("too_old is %q; use dead-letter, drop or now", c.Limits.TooOld)
	}
	if w := checkTenant([]byte(c.Tenant)); w != "" {
		bad("tenant: %s", w)
	}
	httpsend.Check(&c.HTTP, bad)
	for name := range c.HTTP.Headers {
		if http.CanonicalHeaderKey(name) == "X-Scope-Orgid" {
			bad("headers: give X-Scope-OrgID as tenant")
		}
	}
	for _, n := range []struct {
		field         string
		value, lo, hi int
		unit          string
	}{
		{"batch_bytes", c.BatchBytes, 1, layout.MaxSlabBytes, "bytes"},
		{"batch_records", c.BatchRecords, 0, 1 << 30, "records"},
		{"concurrency", c.Concurrency, 1, 1024, "requests"},
		{"max_request_bytes", c.Limits.MaxRequestBytes, 1024, 1 << 30, "bytes"},
		{"max_streams", c.Limits.MaxStreams, 8, 1 << 24, "streams"},
		{"max_labels", c.Limits.MaxLabels, 1, 1 << 16, "labels"},
		{"max_label_name", c.Limits.MaxLabelName, 1, 1 << 20, "bytes"},
		{"max_label_value", c.Limits.MaxLabelValue, 1, 1 << 20, "bytes"},
		{"max_line", c.Limits.MaxLine, 64, maxPadded >> 1, "bytes"},
		{"max_metadata_pairs", c.Limits.MaxMetadataPairs, 1, 1 << 20, "pairs"},
		{"max_metadata_bytes", c.Limits.MaxMetadataBytes, 1, 1 << 24, "bytes"},
	} {
		if n.value < n.lo || n.value > n.hi {
			bad("%s is %d; use %d to %d %s", n.field, n.value, n.lo, n.hi, n.unit)
		}
	}
	if c.BatchAge < 0 {
		bad("batch_age is %v; use a positive duration", c.BatchAge)
	}
	return c, errors.Join(errs...)
}

// slabBytes returns the slab size in bytes for the batches of c. A batch is sent when enough slabs
// are full, so it should consist of several slabs: four for BatchBytes, and about four for
// BatchRecords of the shortest records. A slab has at least 4 KiB, because a smaller one has room
// for too few records.
func (c *Config) slabBytes() int {
	n := min(defaultSlabBytes, c.BatchBytes/4)
	if c.BatchRecords > 0 {
		n = min(n, 32*c.BatchRecords)
	}
	return max(n, 4<<10)
}

// resolveLevels sets c.levels from LevelNames. It calls the function bad for each error.
func (c *Config) resolveLevels(bad func(string, ...any)) {
	c.levels = levelNames
	for name, own := range c.LevelNames {
		i := slices.Index(levelNames[:], name)
		switch {
		case i < 0:
			bad("level_names: there is no level %q; use %s", name, strings.Join(levelNames[:], ", "))
		case own == "" || !utf8.ValidString(own) || len(own) > c.Limits.MaxLabelValue:
			bad("level_names: the name of %s is %.40q; use 1 to max_label_value (%d) bytes of UTF-8", name, own, c.Limits.MaxLabelValue)
		default:
			c.levels[i] = own
		}
	}
}

// resolveLabels sets c.labels and c.gapLabels, and checks all names of labels and metadata. It
// compares sanitized names, because two different names can be equal after sanitizing. It calls the
// function bad for each error.
func (c *Config) resolveLabels(bad func(string, ...any)) {
	names := map[string]string{}
	c.LevelName = labelname.Of(c.LevelName)
	c.labels = nil
	for given, value := range c.Labels {
		name, value := labelname.Of(given), strings.ToValidUTF8(value, "\ufffd")
		switch {
		case given == "":
			bad("labels: a name is empty; give one, such as app")
			continue
		case names[name] != "":
			bad("labels: %q and %q both become %s at Loki", min(given, names[name]), max(given, names[name]), name)
			continue
		case len(name) > c.Limits.MaxLabelName:
			bad("labels: the name %.40q… has %d bytes, more than max_label_name (%d)", name, len(name), c.Limits.MaxLabelName)
		case value == "":
			bad("labels: %s is empty, which Loki treats as no label; leave it out", given)
		case len(value) > c.Limits.MaxLabelValue:
			bad("labels: the value of %s has %d bytes, more than max_label_value (%d)", given, len(value), c.Limits.MaxLabelValue)
		}
		names[name] = given
		c.labels = append(c.labels, label{name, value})
	}
	byName := func(a, b label) int { return strings.Compare(a.name, b.name) }
	slices.SortFunc(c.labels, byName)
	c.gapLabels = nil
	for given, value := range c.GapLabels {
		name := labelname.Of(given)
		switch {
		case given == "", value == "", len(name) > c.Limits.MaxLabelName, len(value) > c.Limits.MaxLabelValue, !utf8.ValidString(value):
			bad("gap_labels: %.40q: %.40q; use names of 1 to max_label_name (%d) and values of 1 to max_label_value (%d) bytes of UTF-8", given, value, c.Limits.MaxLabelName, c.Limits.MaxLabelValue)
		case names[name] != "" || name == c.LevelName:
			bad("gap_labels: %s is a label of all streams; use another name", name)
		}
		c.gapLabels = append(c.gapLabels, label{name, value})
	}
	slices.SortFunc(c.gapLabels, byName)
	for i := range c.gapLabels {
		if i > 0 && c.gapLabels[i].name == c.gapLabels[i-1].name {
			bad("gap_labels: two names become %s at Loki", c.gapLabels[i].name)
		}
	}
	n := len(c.labels)
	if names[c.LevelName] != "" {
		c.NoLevelLabel = true // the configured label has precedence
	}
	if !c.NoLevelLabel {
		n++
	}
	if len(c.LevelName) > c.Limits.MaxLabelName {
		bad("level_name: %.40s… has %d bytes, more than max_label_name (%d)", c.LevelName, len(c.LevelName), c.Limits.MaxLabelName)
	}
	if n+len(c.gapLabels) > c.Limits.MaxLabels {
		bad("labels: there are %d, the level and gap_labels included, more than max_labels (%d)", n+len(c.gapLabels), c.Limits.MaxLabels)
	}
	if n == 0 {
		bad("labels: there is none and no_level_label is set, but Loki requires one; add one such as app: myapp")
	}
	for _, a := range c.LabelAttrs {
		if a == "" || len(labelname.Of(a)) > c.Limits.MaxLabelName {
			bad("label_attrs: the name %.40q has %d bytes; use 1 to max_label_name (%d)", a, len(a), c.Limits.MaxLabelName)
		}
	}
	if slices.Contains(c.MetadataAttrs, "") {
		bad("metadata_attrs: a name is empty")
	}
}

// pushPath is the path of the push API of Loki, below an optional prefix.
const pushPath = "/loki/api/v1/push"

// endpoint returns the push URL for the configured address raw. If raw is invalid, it returns a
// description of the problem. The description does not contain raw, because raw may contain a
// password.
func endpoint(raw string) (*url.URL, string) {
	if raw == "" {
		return nil, "it is empty"
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, "it cannot be read"
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Sprintf("its scheme is %q", u.Scheme)
	case u.Hostname() == "":
		return nil, "it has no host"
	case !validPort(u.Port()):
		return nil, fmt.Sprintf("its port is %s, but ports are 1 to 65535", u.Port())
	case u.Fragment != "":
		return nil, "it has a #fragment"
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = ""
	if !strings.HasSuffix(u.Path, pushPath) {
		u.Path += pushPath
	}
	return u, ""
}

// validPort reports whether port is a valid port number or empty.
func validPort(port string) bool {
	n, err := strconv.Atoi(port)
	return port == "" || err == nil && n > 0 && n <= math.MaxUint16
}

// defaultTo sets *v to def if it is the zero value.
func defaultTo[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
