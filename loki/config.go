package loki

import (
	"context"
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

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/values"
	"github.com/forebay-log/forebay/slab"
)

// Defaults of [Config]. The limits are Loki's own defaults.
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
	maxAsideBytes           = 4 << 20
)

// The texts of Config.Wire, TraceID and SpanID, Body, Errors, Collisions, LongLines and
// TooOld.
const (
	wireProtobuf = "protobuf"
	wireJSON     = "json"
	wireGzip     = "json+gzip"

	inBody     = "body"
	inMetadata = "metadata"
	nowhere    = "none"

	bodyJSON   = "json"
	bodyLogfmt = "logfmt"

	inFront  = "prefix"
	atTheEnd = "suffix"

	truncate = "truncate"
	refuse   = "refuse"

	oldIsLetter  = "dead-letter"
	oldIsDropped = "drop"
	oldIsNow     = "now"
)

// Config configures a [Sink] and a [Pusher]. Only URL is required. Each field states its
// default and unit. A Config can be decoded from YAML; the keys are the field names in
// lower case with underscores, and no other keys are accepted. Durations are written as 1s
// or 500ms.
type Config struct {
	// URL is the address of Loki and is required: http or https, a host, and optionally a
	// path prefix. /loki/api/v1/push is appended unless the path already ends with it. The
	// query is sent with each push and never shown, because it may contain a secret.
	URL string `yaml:"url"`

	// Labels are the labels of every stream. Names are changed to fit Loki's grammar:
	// http.method becomes http_method. In the value of any label, "?" replaces U+FFFD and
	// invalid UTF-8. There must be at least one label; the level label counts. Default:
	// none.
	Labels map[string]string `yaml:"labels"`
	// NoLevelLabel writes the level into the line instead of a label. Default false.
	NoLevelLabel bool `yaml:"no_level_label"`
	// LevelName is the name of the level label. Default "level".
	LevelName string `yaml:"level_name"`
	// LevelNames renames levels. The keys are trace, debug, info, warn, error and fatal;
	// {warn: warning} matches serilog-sinks-grafana-loki. The new names are used in the
	// label and in lines that contain the level. Default: none.
	LevelNames map[string]string `yaml:"level_names"`
	// GapLabels are added, after Labels and the level, only to lines about dropped
	// records, for example {kind: gap}. These lines then form a separate stream, which can
	// be used for alerts. Default: none; they are in the stream of warnings.
	GapLabels map[string]string `yaml:"gap_labels"`
	// LabelAttrs names attributes that also become labels, such as "region", or
	// "http.method" for an attribute in a group. They remain in the line. Labels have
	// precedence over the level, and the level over attributes. Default: none.
	LabelAttrs []string `yaml:"label_attrs"`
	// MetadataAttrs names attributes that also become structured metadata. Default: none.
	MetadataAttrs []string `yaml:"metadata_attrs"`
	// MetadataAll makes all attributes metadata. The names of attributes in a group are
	// prefixed with the name of the group and "_". Names are changed like label names, and
	// several "_" in a row become one, as in Loki. A name that consists only of "_"
	// becomes "key_". Default false.
	MetadataAll bool `yaml:"metadata_all"`
	// OutOfLine removes attributes that become labels or metadata from the line, even if a
	// limit keeps them out of the labels or metadata. Default false: they are in both.
	OutOfLine bool `yaml:"out_of_line"`
	// TraceID and SpanID select where the attributes TraceIDKey ("trace_id") and SpanIDKey
	// ("span_id") are written: "body" leaves them in the line, "metadata" moves them from
	// the line to structured metadata, "none" removes them. Default "body".
	TraceID    string `yaml:"trace_id"`
	SpanID     string `yaml:"span_id"`
	TraceIDKey string `yaml:"trace_id_key"`
	SpanIDKey  string `yaml:"span_id_key"`

	// Body is the form of lines: "logfmt", or "json" for an object with the message under
	// MessageKey and the attributes; see the package documentation. Default "json".
	Body string `yaml:"body"`
	// MessageKey is the key of the message. Default "msg".
	MessageKey string `yaml:"message_key"`
	// Errors selects how an error is written in a line. Labels and metadata always contain
	// its message only.
	//
	//   - "text": the message, a string.
	//   - "chain", "verbose": the message and more; see Errors of [encode.Options].
	//   - "object": an object with type, message, source position, stack and the
	//     wrapped errors; see the package documentation. Requires Body "json".
	//   - "exception": the same with the .NET keys InnerException and InnerExceptions,
	//     which serilog-sinks-grafana-loki writes.
	//
	// It must be empty if Formatter is set. Default "text".
	Errors string `yaml:"errors"`
	// Collisions selects where "_" is added to a key that equals an earlier key of the
	// line: "suffix" (a_) or "prefix" (_a). Default "suffix".
	Collisions string `yaml:"collisions"`
	// Formatter, if not nil, formats the lines instead. It is called from several
	// goroutines concurrently. A trailing newline is removed. Default nil.
	//
	// Attributes that also become labels or metadata are evaluated before the Formatter
	// receives them: LogValuers are resolved and AttrAppenders are groups. Their errors,
	// including those in a []error, []any or map, are wrapped: the text is the same, and
	// errors.Is and errors.As find the original. Errors that marshal themselves as JSON or
	// text, structs that contain errors, and lists of AttrAppenders are passed unchanged,
	// so their methods are called a second time if the Formatter calls them.
	Formatter encode.Encoder `yaml:"-"`

	// Wire is the form of requests: "protobuf" (compressed with snappy), "json", or
	// "json+gzip". Default "protobuf".
	Wire string `yaml:"wire"`
	// Tenant is sent as X-Scope-OrgID. Default "": the header is not sent.
	Tenant string `yaml:"tenant"`
	// TenantAttr names an attribute whose value is used as the tenant of its record
	// instead. The attribute is removed from the line. Default "": none. A record whose
	// tenant name is invalid is refused and becomes a dead letter with the tenant among
	// its metadata.
	//
	// After a 401, 403 or 260 the records of that tenant wait while others are sent, as
	// long as another tenant has records and was not refused in the last 5 minutes. If
	// there is no such tenant, the credentials are assumed to be wrong: all records wait,
	// and an alarm is raised. Waiting records may use as much memory as BufferBytes plus 4
	// MiB. Above that, all tenants may wait until records would be dropped, or for an
	// hour; after that, records without room become dead letters.
	TenantAttr string `yaml:"tenant_attr"`
	// Username and Password are used for basic authentication. Default "": none.
	Username string `yaml:"username"`
	Password string `yaml:"password"`
	// BearerToken is sent as a bearer token. BearerTokenFile is a file that contains the
	// token; it is reread when it changes and after a 401. Default "": none.
	BearerToken     string `yaml:"bearer_token"`
	BearerTokenFile string `yaml:"bearer_token_file"`
	// Headers are sent with every request. Default: none.
	Headers map[string]string `yaml:"headers"`
	// TLS configures https. Default: the system's authorities and no client certificate.
	TLS TLS `yaml:"tls"`
	// NoProxy ignores the environment variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
	// Default false.
	NoProxy bool `yaml:"no_proxy"`
	// UnixSocket is the path of a socket to connect to instead of the host in URL. Default
	// "": none.
	UnixSocket string `yaml:"unix_socket"`
	// Client, if not nil, sends the requests; TLS, NoProxy and UnixSocket are then
	// ignored. The client is copied, and the copy does not follow redirects. Default nil:
	// a client of this package.
	Client *http.Client `yaml:"-"`
	// DryRun, if not nil, receives the output instead of Loki: one line for each stream of
	// a request, followed by its entries as JSON. Nothing is sent. Default nil.
	DryRun io.Writer `yaml:"-"`
	// Timeout is the maximum duration of one request. Default 10 s.
	Timeout time.Duration `yaml:"timeout"`

	// A batch is sent when it has BatchBytes bytes before compression (default 1 MiB) or
	// BatchRecords records (default 0: no limit), or when its oldest record has waited for
	// BatchAge (default 1 s). No batch is larger. Bytes and records are checked each time
	// a slab fills up, see SlabBytes.
	BatchBytes   int           `yaml:"batch_bytes"`
	BatchRecords int           `yaml:"batch_records"`
	BatchAge     time.Duration `yaml:"batch_age"`
	// Concurrency is the maximum number of concurrent requests. Default 4.
	Concurrency int `yaml:"concurrency"`
	// MaxRequestBytes is the maximum size of a request in bytes, before compression.
	// Default 3 MiB: Loki's limit is 4 MiB and counts a few bytes more for each entry.
	MaxRequestBytes int `yaml:"max_request_bytes"`
	// Nudge separates records of a stream that have the same time by 1 ns, moving each by
	// up to 1 ms, because Loki keeps only one of several equal entries with the same time.
	// The time is changed before the record is stored, so Loki still recognizes a record
	// that is sent twice. Default false.
	Nudge bool `yaml:"nudge"`

	// MaxStreams is the maximum number of streams; each set of labels of each tenant is a
	// stream. Above it the labels of new streams become metadata, and their records go to
	// one stream per level of the tenant. Records of a tenant without any stream are
	// refused. Default 4096.
	MaxStreams int `yaml:"max_streams"`
	// MaxLabelValues is the maximum number of values of a label of LabelAttrs, over all
	// tenants. At the first value above it, the label becomes metadata for all further
	// records, and an event (label-values) reports it. Default 1000; negative: only
	// MaxStreams applies.
	MaxLabelValues int `yaml:"max_label_values"`
	// These are the limits of Loki, with Loki's defaults: 15 labels, names of 1024 bytes,
	// values of 2048 bytes, lines of 256 KiB, and 128 pairs of metadata with 64 KiB in
	// total.
	MaxLabels        int `yaml:"max_labels"`
	MaxLabelName     int `yaml:"max_label_name"`
	MaxLabelValue    int `yaml:"max_label_value"`
	MaxLine          int `yaml:"max_line"`
	MaxMetadataPairs int `yaml:"max_metadata_pairs"`
	MaxMetadataBytes int `yaml:"max_metadata_bytes"`
	// LongLines selects how lines above MaxLine are handled: "truncate" cuts them, adds a
	// mark and counts them; "refuse" hands them to the dead letters instead of sending
	// them. Default "truncate".
	LongLines string `yaml:"long_lines"`
	// MaxAge and MaxFuture are the maximum distance of a record's time from the present,
	// in the past and in the future. Other records are refused before they are sent.
	// Defaults 7 days and 10 minutes; negative: no limit.
	MaxAge    time.Duration `yaml:"max_age"`
	MaxFuture time.Duration `yaml:"max_future"`

	// TooOld selects how records are handled that are older than MaxAge or that Loki
	// refuses because of their age: too old, or more than an hour older than the newest
	// record of their stream, such as a backlog from another process.
	//
	//   - "dead-letter": they are refused and go to the dead letters, if configured.
	//   - "drop": they are refused and do not go to the dead letters.
	//   - "now": they are sent with the present time; the original time is in the
	//     metadata as original_time (RFC 3339). An event (too-old) reports the first
	//     of a series.
	//
	// Default "dead-letter".
	TooOld string `yaml:"too_old"`

	// The following fields are used only by [New] and [NewHandler]; [NewPusher] also uses
	// Name and OnError.

	// Name identifies the output in reports and events. Default "loki".
	Name string `yaml:"name"`
	// Level is the minimum level of records for [NewHandler]. In YAML the key is level,
	// with a text such as WARN or info+2. Default slog.LevelInfo.
	Level slog.Leveler `yaml:"-"`
	// Context is the forebay.Context of [NewHandler]; no other function accepts it. It
	// appends to dst the attributes that the context of a record carries, such as the ids
	// of the current span under TraceIDKey and SpanIDKey. Default nil.
	Context func(ctx context.Context, dst []slog.Attr) []slog.Attr `yaml:"-"`
	// EagerFirst sends the first record at once, so that a wrong address or password is
	// detected at startup. Default false: the record waits for others, up to BatchAge.
	EagerFirst bool `yaml:"eager_first"`
	// BufferBytes is the memory for queued records, divided into slabs of SlabBytes.
	// Records larger than a slab count towards it; if there is no room, one such record is
	// accepted nevertheless, see slab.Options.SlabCount. Defaults: four times BatchBytes,
	// but at least 4 MiB, so that a batch can fill while others are sent; and 256 KiB, or
	// less if BatchBytes or BatchRecords is small. Further memory is used for copies of
	// the batches in flight with CrashDir (at most half of BufferBytes), for records
	// parked because their tenant or stream is refused (at most BufferBytes and 4 MiB),
	// and for the requests.
	BufferBytes int `yaml:"buffer_bytes"`
	SlabBytes   int `yaml:"slab_bytes"`
	// BufferRecords is the maximum number of records in that memory, including those in
	// flight. See deliver.OutputOptions. Default 0: only BufferBytes limits it.
	BufferRecords int `yaml:"buffer_records"`
	// WhenFull is the policy when the memory is full: block-for=DURATION, block,
	// drop-newest, drop-oldest, or spill, which needs SpoolDir or Spill. Default
	// block-for=250ms.
	WhenFull string `yaml:"when_full"`
	// CrashDir is a directory for files that hold the memory. Once a call has returned,
	// its record survives the death of the process, and the next process delivers it. Each
	// Sink needs a separate directory. Default: none. See [slab.Crash].
	CrashDir string `yaml:"crash_dir"`
	// SpoolDir is a directory for records that Loki does not accept while it is down, up
	// to SpoolBytes (default 1 GiB). They are delivered in order when Loki is back.
	// Records that Close cannot deliver stay there for the next start. Each Sink needs a
	// separate directory. Default: none; records then wait in memory. See package spool.
	SpoolDir   string `yaml:"spool_dir"`
	SpoolBytes int64  `yaml:"spool_bytes"`
	// PendingLimit is the number of queued records above which ErrorHandler is called
	// while Loki is down. Default 0: at once.
	PendingLimit int `yaml:"pending_limit"`
	// ErrorHandler is offered the queued records while Loki is down, see
	// [deliver.JSONLines] and [deliver.ToOutput]. Records that it accepts count as
	// handled; the others remain queued. Default nil.
	ErrorHandler deliver.ErrorHandler `yaml:"-"`
	// FallbackFile installs an ErrorHandler that decodes records and appends them to this
	// file as JSON lines (mode 0600). It cannot be combined with ErrorHandler. Default:
	// none.
	FallbackFile string `yaml:"fallback_file"`
	// DeadLetter receives permanently refused records and those above Slab.MaxRecord, see
	// [deliver.DeadLetters]. DeadLetterFile is a file to which they are appended as JSON
	// lines (mode 0600) instead. Default: dead-letters.jsonl in SpoolDir, created with the
	// first record; without SpoolDir they are only counted.
	DeadLetter     deliver.ErrorHandler `yaml:"-"`
	DeadLetterFile string               `yaml:"dead_letter_file"`
	// Spill is used instead of SpoolDir. Default nil.
	Spill deliver.Spill `yaml:"-"`
	// Retry and Breaker configure how often and how long records are retried, and when
	// sending to Loki is suspended. Default nil: the defaults of package deliver.
	Retry   *deliver.RetryOptions   `yaml:"retry"`
	Breaker *deliver.BreakerOptions `yaml:"breaker"`
	// Slab has further options of the memory. Fields set in it override those above. Its
	// FlushLevel is none by default: errors wait for their batch like other records.
	// Default nil.
	Slab *slab.Options `yaml:"-"`
	// CloseTimeout limits Close if its context has no deadline. Default 5 s.
	CloseTimeout time.Duration `yaml:"close_timeout"`
	// OnError receives events for transitions: failure, recovery, drops. It runs on a
	// separate goroutine with a bounded queue. Default nil: a line on standard error.
	OnError func(batch.Event) `yaml:"-"`

	whenFull  slab.WhenFull           // of WhenFull, set by resolve
	levels    [len(levelNames)]string // of LevelNames, set by resolve
	labels    []label                 // of Labels, by name, set by resolve
	gapLabels []label                 // of GapLabels, set by resolve
	endpoint  *url.URL                // of URL, set by resolve
}

type label struct{ name, value string }

// TLS configures https. All fields are optional; files are PEM.
type TLS struct {
	// CAFile contains the authorities to trust. Default: the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile contain the client certificate and its key. Default: none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name that the server's certificate is verified against. Default:
	// the host of URL.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify accepts any certificate, so any host can impersonate the server.
	// Default false.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

// Format writes the address and the labels but no credentials, for every verb.
func (c Config) Format(f fmt.State, _ rune) { io.WriteString(f, c.shown()) }

// LogValue returns the text that [Config.Format] writes.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.shown()) }

// shown returns the address and the labels.
func (c Config) shown() string {
	u, why := endpoint(c.URL)
	if why != "" {
		return "loki.Config{…}"
	}
	u.User, u.RawQuery = nil, ""
	return fmt.Sprintf("loki.Config{URL: %s, Labels: %v, …}", u, c.Labels)
}

// resolve returns c with defaults applied. The error lists every problem of c and how to
// correct it, without secrets. Files are not read.
func (c Config) resolve() (Config, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("loki: config: "+format, args...))
	}
	defaultTo(&c.LevelName, defaultLevelName)
	defaultTo(&c.MessageKey, defaultMessageKey)
	defaultTo(&c.TraceIDKey, defaultTraceIDKey)
	defaultTo(&c.SpanIDKey, defaultSpanIDKey)
	defaultTo(&c.TraceID, inBody)
	defaultTo(&c.SpanID, inBody)
	defaultTo(&c.Body, bodyJSON)
	if c.Context != nil {
		bad("Context is for NewHandler; elsewhere give forebay.Context to forebay.New or NewRouter")
	}
	if c.Formatter != nil && c.Errors != "" {
		bad("errors is %q, but the Formatter writes the lines; leave it empty and set it there", c.Errors)
	}
	defaultTo(&c.Errors, values.ErrorForms[values.ErrorText])
	defaultTo(&c.Collisions, atTheEnd)
	defaultTo(&c.Wire, wireProtobuf)
	defaultTo(&c.LongLines, truncate)
	defaultTo(&c.TooOld, oldIsLetter)
	defaultTo(&c.MaxLabelValues, defaultMaxLabelValues)
	defaultTo(&c.Timeout, defaultTimeout)
	defaultTo(&c.BatchBytes, defaultBatchBytes)
	defaultTo(&c.BatchAge, defaultBatchAge)
	defaultTo(&c.Concurrency, defaultConcurrency)
	defaultTo(&c.MaxRequestBytes, defaultMaxRequestBytes)
	defaultTo(&c.MaxStreams, defaultMaxStreams)
	defaultTo(&c.MaxLabels, defaultMaxLabels)
	defaultTo(&c.MaxLabelName, defaultMaxLabelName)
	defaultTo(&c.MaxLabelValue, defaultMaxLabelValue)
	defaultTo(&c.MaxLine, defaultMaxLine)
	defaultTo(&c.MaxMetadataPairs, defaultMaxMetadataPairs)
	defaultTo(&c.MaxMetadataBytes, defaultMaxMetadataBytes)
	defaultTo(&c.MaxAge, defaultMaxAge)
	defaultTo(&c.MaxFuture, defaultMaxFuture)
	defaultTo(&c.Name, "loki")
	defaultTo(&c.SlabBytes, c.slabBytes())
	defaultTo(&c.BufferBytes, max(defaultBufferBytes, 4*c.BatchBytes))
	if c.WhenFull != "" {
		var err error
		if c.whenFull, err = slab.ParseWhenFull(c.WhenFull); err != nil {
			bad("when_full: %s", strings.TrimPrefix(err.Error(), "slab: when-full "))
		}
	}
	if c.whenFull == slab.Spill() && c.SpoolDir == "" && c.Spill == nil {
		bad("when_full is spill, but there is no spool_dir")
	}
	if c.SpoolDir != "" && c.Spill != nil {
		bad("spool_dir and Spill are both given; use one of them")
	}
	if c.FallbackFile != "" && c.ErrorHandler != nil {
		bad("fallback_file and ErrorHandler are both given; use one of them")
	}
	if c.DeadLetterFile != "" && c.DeadLetter != nil {
		bad("dead_letter_file and DeadLetter are both given; use one of them")
	}
	var why string
	if c.endpoint, why = endpoint(c.URL); why != "" {
		bad("url: %s; use http://host:3100 or https://host/prefix", why)
	} else if u := c.endpoint.User; u != nil {
		if c.Username == "" && c.Password == "" {
			c.Username = u.Username()
			c.Password, _ = u.Password()
		}
		c.endpoint.User = nil
	}
	c.resolveLevels(bad)
	c.resolveLabels(bad)
	for _, p := range []struct {
		field string
		value string
	}{{"trace_id", c.TraceID}, {"span_id", c.SpanID}} {
		if !slices.Contains([]string{inBody, inMetadata, nowhere}, p.value) {
			bad("%s is %q; use body, metadata or none", p.field, p.value)
		}
	}
	if v, ok := c.Formatter.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			bad("Formatter: %w", err)
		}
	}
	if c.Body != bodyJSON && c.Body != bodyLogfmt {
		bad("body is %q; use json or logfmt", c.Body)
	}
	if !slices.Contains(values.ErrorForms, c.Errors) {
		bad("errors is %q; use text, chain, verbose, object or exception", c.Errors)
	} else if c.Body == bodyLogfmt && slices.Contains(values.ErrorForms[values.ErrorObject:], c.Errors) {
		bad("errors is %q, but logfmt has no objects; use text, chain or verbose, or body json", c.Errors)
	}
	if c.Collisions != inFront && c.Collisions != atTheEnd {
		bad("collisions is %q; use suffix or prefix", c.Collisions)
	}
	if c.Wire != wireProtobuf && c.Wire != wireJSON && c.Wire != wireGzip {
		bad("wire is %q; use protobuf, json or json+gzip", c.Wire)
	}
	if c.LongLines != truncate && c.LongLines != refuse {
		bad("long_lines is %q; use truncate or refuse", c.LongLines)
	}
	if c.TooOld != oldIsLetter && c.TooOld != oldIsDropped && c.TooOld != oldIsNow {
		bad("too_old is %q; use dead-letter, drop or now", c.TooOld)
	}
	if w := checkTenant([]byte(c.Tenant)); w != "" {
		bad("tenant: %s", w)
	}
	c.checkAuth(bad)
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		bad("tls: cert_file and key_file belong together; give both")
	}
	for _, n := range []struct {
		field         string
		value, lo, hi int
		unit          string
	}{
		{"batch_bytes", c.BatchBytes, 1, slab.MaxSlabBytes, "bytes"},
		{"batch_records", c.BatchRecords, 0, 1 << 30, "records"},
		{"concurrency", c.Concurrency, 1, 1024, "requests"},
		{"max_request_bytes", c.MaxRequestBytes, 1024, 1 << 30, "bytes"},
		{"max_streams", c.MaxStreams, 8, 1 << 24, "streams"},
		{"max_labels", c.MaxLabels, 1, 1 << 16, "labels"},
		{"max_label_name", c.MaxLabelName, 1, 1 << 20, "bytes"},
		{"max_label_value", c.MaxLabelValue, 1, 1 << 20, "bytes"},
		{"max_line", c.MaxLine, 64, maxPadded >> 1, "bytes"},
		{"max_metadata_pairs", c.MaxMetadataPairs, 1, 1 << 20, "pairs"},
		{"max_metadata_bytes", c.MaxMetadataBytes, 1, 1 << 24, "bytes"},
		{"slab_bytes", c.SlabBytes, slab.MinSlabBytes, slab.MaxSlabBytes, "bytes"},
		{"buffer_bytes", c.BufferBytes, 2 * slab.MinSlabBytes, math.MaxInt, "bytes"},
		{"pending_limit", c.PendingLimit, 0, math.MaxInt, "records"},
	} {
		if n.value < n.lo || n.value > n.hi {
			bad("%s is %d; use %d to %d %s", n.field, n.value, n.lo, n.hi, n.unit)
		}
	}
	if c.BufferRecords != 0 && c.BufferRecords < 5 {
		bad("buffer_records is %d; use 0, or at least 5", c.BufferRecords)
	}
	if c.Timeout < 0 || c.BatchAge < 0 || c.CloseTimeout < 0 {
		bad("timeout (%v), batch_age (%v) and close_timeout (%v) must be positive", c.Timeout, c.BatchAge, c.CloseTimeout)
	}
	return c, errors.Join(errs...)
}

// slabBytes returns the slab size for the batches of c. A batch is sent when full slabs
// have enough for it, so a batch should consist of several slabs: four for BatchBytes, and
// about four for BatchRecords of the shortest records. A slab below 4 KiB would hold too
// few records.
func (c *Config) slabBytes() int {
	n := min(defaultSlabBytes, c.BatchBytes/4)
	if c.BatchRecords > 0 {
		n = min(n, 32*c.BatchRecords)
	}
	return max(n, 4<<10)
}

func (c *Config) resolveLevels(bad func(string, ...any)) {
	c.levels = levelNames
	for name, own := range c.LevelNames {
		i := slices.Index(levelNames[:], name)
		switch {
		case i < 0:
			bad("level_names: there is no level %q; use %s", name, strings.Join(levelNames[:], ", "))
		case own == "" || !utf8.ValidString(own) || len(own) > c.MaxLabelValue:
			bad("level_names: the name of %s is %.40q; use 1 to max_label_value (%d) bytes of UTF-8", name, own, c.MaxLabelValue)
		default:
			c.levels[i] = own
		}
	}
}

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
			bad("labels: %q and %q are both %s to Loki", min(given, names[name]), max(given, names[name]), name)
			continue
		case len(name) > c.MaxLabelName:
			bad("labels: the name %.40q… has %d bytes, more than max_label_name (%d)", name, len(name), c.MaxLabelName)
		case value == "":
			bad("labels: %s is empty, which Loki treats as no label; leave it out", given)
		case len(value) > c.MaxLabelValue:
			bad("labels: the value of %s has %d bytes, more than max_label_value (%d)", given, len(value), c.MaxLabelValue)
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
		case given == "", value == "", len(name) > c.MaxLabelName, len(value) > c.MaxLabelValue, !utf8.ValidString(value):
			bad("gap_labels: %.40q: %.40q; use names of 1 to max_label_name (%d) and values of 1 to max_label_value (%d) bytes of UTF-8", given, value, c.MaxLabelName, c.MaxLabelValue)
		case names[name] != "" || name == c.LevelName:
			bad("gap_labels: %s is a label of all streams; use another name", name)
		}
		c.gapLabels = append(c.gapLabels, label{name, value})
	}
	slices.SortFunc(c.gapLabels, byName)
	for i := range c.gapLabels {
		if i > 0 && c.gapLabels[i].name == c.gapLabels[i-1].name {
			bad("gap_labels: two are %s to Loki", c.gapLabels[i].name)
		}
	}
	n := len(c.labels)
	if names[c.LevelName] != "" {
		c.NoLevelLabel = true // the configured label has precedence
	}
	if !c.NoLevelLabel {
		n++
	}
	if len(c.LevelName) > c.MaxLabelName {
		bad("level_name: %.40s… has %d bytes, more than max_label_name (%d)", c.LevelName, len(c.LevelName), c.MaxLabelName)
	}
	if n+len(c.gapLabels) > c.MaxLabels {
		bad("labels: there are %d, the level and gap_labels included, more than max_labels (%d)", n+len(c.gapLabels), c.MaxLabels)
	}
	if n == 0 {
		bad("labels: there is none and no_level_label is set, but Loki requires one; add one such as app: myapp")
	}
	for _, a := range c.LabelAttrs {
		if a == "" || len(labelname.Of(a)) > c.MaxLabelName {
			bad("label_attrs: the name %.40q has %d bytes; use 1 to max_label_name (%d)", a, len(a), c.MaxLabelName)
		}
	}
	if slices.Contains(c.MetadataAttrs, "") {
		bad("metadata_attrs: a name is empty")
	}
}

func (c *Config) checkAuth(bad func(string, ...any)) {
	ways := 0
	for _, used := range []bool{c.Username != "" || c.Password != "", c.BearerToken != "", c.BearerTokenFile != ""} {
		if used {
			ways++
		}
	}
	for name, value := range c.Headers {
		canonical := http.CanonicalHeaderKey(name)
		switch canonical {
		case "Content-Type", "Content-Encoding", "Content-Length", "Host", "Transfer-Encoding":
			bad("headers: %s is set by the client; leave it out", canonical)
		case "X-Scope-Orgid":
			bad("headers: give X-Scope-OrgID as tenant")
		case "Authorization":
			ways++
		}
		if name == "" || strings.ContainsAny(name, " \t\r\n:") || strings.ContainsAny(value, "\r\n\x00") {
			bad("headers: %.40q is not a header name", name)
		}
	}
	if ways > 1 {
		bad("authentication: use one of username and password, bearer_token, bearer_token_file and an Authorization header")
	}
	if strings.ContainsAny(c.BearerToken, "\r\n\x00") {
		bad("bearer_token: it contains a newline")
	}
}

const pushPath = "/loki/api/v1/push"

// endpoint returns the push URL, or a description of the error in raw, which may contain a
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

func defaultTo[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
