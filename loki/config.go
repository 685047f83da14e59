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

// Config configures a [Sink] and a [Pusher]. Only URL is required. Each field states its default
// and unit. A Config can be decoded from YAML; the names are those of the fields
// in lower case with underscores, and there are no others. Durations are written as 1s or
// 500ms.
type Config struct {
	// URL is required: where Loki is, http or https, a host, and maybe the prefix of a
	// path, to which /loki/api/v1/push is appended unless it ends in that. What
	// follows a "?" is sent with each push, and shown nowhere: it may be a secret.
	URL string `yaml:"url"`

	// Labels are the labels of every stream. Names are changed to fit Loki's grammar:
	// http.method becomes http_method. In the value of any label, "?" stands for
	// U+FFFD and for bytes that are no UTF-8. There must be at least one label; the
	// label of the level counts. Default: none.
	Labels map[string]string `yaml:"labels"`
	// NoLevelLabel leaves the level out of the labels and puts it into the line.
	// Default false.
	NoLevelLabel bool `yaml:"no_level_label"`
	// LevelName is the name of the level's label. Default "level".
	LevelName string `yaml:"level_name"`
	// LevelNames are other names of levels, by the names that they have here: trace, debug,
	// info, warn, error and fatal. {warn: warning} is what serilog-sinks-grafana-loki
	// writes. They stand in the label, and in lines that hold the level. Default: none.
	LevelNames map[string]string `yaml:"level_names"`
	// GapLabels are labels that only lines about dropped records have, beside Labels and
	// the level, such as {kind: gap}: they are a stream of their own then, to alert on.
	// Default: none; they are in the stream of warnings.
	GapLabels map[string]string `yaml:"gap_labels"`
	// LabelAttrs names attributes that become labels too, such as "region" or
	// "http.method" for one in a group. They stay in the line. Labels win over
	// the level, the level over attributes. Default: none.
	LabelAttrs []string `yaml:"label_attrs"`
	// MetadataAttrs names attributes that become structured metadata too. Default:
	// none.
	MetadataAttrs []string `yaml:"metadata_attrs"`
	// MetadataAll makes all attributes metadata. The name of a group and a "_" stand
	// before the names of its attributes. Names are changed as those of labels are,
	// and several "_" in a row become one, as Loki would do. A name of nothing but "_"
	// becomes "key_". Default false.
	MetadataAll bool `yaml:"metadata_all"`
	// OutOfLine leaves attributes that become labels or metadata out of the line, also
	// where a limit left them out there. Default false: they stand in both.
	OutOfLine bool `yaml:"out_of_line"`
	// TraceID and SpanID say where the attributes TraceIDKey ("trace_id") and
	// SpanIDKey ("span_id") go: "body" leaves them in the line, "metadata" makes them
	// structured metadata and no part of the line, "none" leaves them out. Default
	// "body".
	TraceID    string `yaml:"trace_id"`
	SpanID     string `yaml:"span_id"`
	TraceIDKey string `yaml:"trace_id_key"`
	SpanIDKey  string `yaml:"span_id_key"`

	// Body is the form of lines: "logfmt", or "json" for an object of the message,
	// under MessageKey, and the attributes; see the package's documentation. Default
	// "json".
	Body string `yaml:"body"`
	// MessageKey is the key of the message. Default "msg".
	MessageKey string `yaml:"message_key"`
	// Errors says how much of an error stands in a line. Labels and metadata have its
	// message, whatever this says.
	//
	//   - "text": the message, a string.
	//   - "chain", "verbose": more beside it, as Errors of [encode.Options] says.
	//   - "object": an object of type, message, source position, stack and the errors
	//     within; see the package's documentation. With Body "json" only.
	//   - "exception": the same with the keys of .NET, InnerException and
	//     InnerExceptions, which serilog-sinks-grafana-loki writes.
	//
	// With a Formatter leave it empty. Default "text".
	Errors string `yaml:"errors"`
	// Collisions says where the "_" goes that tells a key of a line from an equal one
	// before it: "suffix" (a_) or "prefix" (_a). Default "suffix".
	Collisions string `yaml:"collisions"`
	// Formatter makes the lines instead, if not nil. It is used from several
	// goroutines at once. A newline at the end is taken off. Default nil.
	//
	// Attributes that also become labels or metadata reach the Formatter evaluated:
	// LogValuers are resolved and AttrAppenders are groups. Their errors, also those in
	// a []error, []any or map, are wrapped: the text is the same, and errors.Is and
	// errors.As find the original. Errors that write themselves as JSON or text,
	// structs that hold errors, and lists of AttrAppenders are passed on as they are,
	// so their methods are called a second time if the Formatter calls them.
	Formatter encode.Encoder `yaml:"-"`

	// Wire is the form of requests: "protobuf" (compressed with snappy), "json", or
	// "json+gzip". Default "protobuf".
	Wire string `yaml:"wire"`
	// Tenant is sent as X-Scope-OrgID. Default "": none.
	Tenant string `yaml:"tenant"`
	// TenantAttr names an attribute whose value is the tenant of its record
	// instead. It is no part of the line. Default "": none. A record whose tenant has no
	// valid name is refused, and becomes a dead letter with the tenant among its metadata.
	//
	// After a 401, 403 or 260 the records of that tenant wait, and others go on, as
	// long as another tenant has records and was not refused in the last 5 minutes.
	// If there is none, the refusal is taken to be about the credentials: then
	// everything is held, with an alarm. Records that wait have as much room as BufferBytes,
	// and 4 MiB. Beyond, all tenants may wait until records would be dropped, or for an hour;
	// then those that have no room are dead letters.
	TenantAttr string `yaml:"tenant_attr"`
	// Username and Password are for basic authentication. Default "": none.
	Username string `yaml:"username"`
	Password string `yaml:"password"`
	// BearerToken is sent as a bearer token; BearerTokenFile is a file that holds
	// it and is read again when it changes, and after a 401. Default "": none.
	BearerToken     string `yaml:"bearer_token"`
	BearerTokenFile string `yaml:"bearer_token_file"`
	// Headers are sent with every request. Default: none.
	Headers map[string]string `yaml:"headers"`
	// TLS is for https. Default: the system's authorities, no certificate of its own.
	TLS TLS `yaml:"tls"`
	// NoProxy ignores the environment's HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Default
	// false.
	NoProxy bool `yaml:"no_proxy"`
	// UnixSocket is the path of a socket to connect to instead of URL's host. Default
	// "": none.
	UnixSocket string `yaml:"unix_socket"`
	// Client makes the requests, if not nil; TLS, NoProxy and UnixSocket are
	// then not used. It is copied, and does not follow redirects. Default nil: one of
	// our own.
	Client *http.Client `yaml:"-"`
	// DryRun, if not nil, is written to instead of Loki: a line for each stream of a
	// request, and its entries as JSON below. Nothing is sent. Default nil.
	DryRun io.Writer `yaml:"-"`
	// Timeout is how long one request may take. Default 10 s.
	Timeout time.Duration `yaml:"timeout"`

	// BatchBytes, BatchRecords and BatchAge say when a batch is sent: with so
	// many bytes before compression (default 1 MiB), so many records (default 0:
	// no limit), or when its oldest record has waited so long (default 1 s). No
	// batch has more; bytes and records are looked at each time one of the slabs
	// is full that records wait in, see SlabBytes.
	BatchBytes   int           `yaml:"batch_bytes"`
	BatchRecords int           `yaml:"batch_records"`
	BatchAge     time.Duration `yaml:"batch_age"`
	// Concurrency is how many requests may be under way at once. Default 4.
	Concurrency int `yaml:"concurrency"`
	// MaxRequestBytes is the largest request in bytes, before compression. Default
	// 3 MiB: Loki's limit is 4 MiB and counts some bytes more for each entry.
	MaxRequestBytes int `yaml:"max_request_bytes"`
	// Nudge moves records of a stream that have the same time 1 ns apart, each by up to
	// 1 ms, because Loki keeps only one of several equal entries of the same time. The
	// time is changed before the record is stored anywhere, so a record that is sent
	// twice is still one to Loki. Default false.
	Nudge bool `yaml:"nudge"`

	// MaxStreams is how many streams the records may make; each set of labels of each
	// tenant is a stream. The labels of further streams become metadata, and their
	// records go to one stream per level of the tenant. Records of a tenant that has no
	// stream yet are refused. Default 4096.
	MaxStreams int `yaml:"max_streams"`
	// MaxLabelValues is how many values a label of LabelAttrs may have, of all tenants
	// together. With the first value too many the label becomes metadata, for all further
	// records, and an event (label-values) tells so. Default 1000; negative: no limit but
	// MaxStreams.
	MaxLabelValues int `yaml:"max_label_values"`
	// What Loki takes. Defaults are Loki's: 15 labels, names of 1024 bytes,
	// values of 2048, lines of 256 KiB, 128 items of metadata with 64 KiB.
	MaxLabels        int `yaml:"max_labels"`
	MaxLabelName     int `yaml:"max_label_name"`
	MaxLabelValue    int `yaml:"max_label_value"`
	MaxLine          int `yaml:"max_line"`
	MaxMetadataPairs int `yaml:"max_metadata_pairs"`
	MaxMetadataBytes int `yaml:"max_metadata_bytes"`
	// LongLines says what becomes of lines above MaxLine: "truncate" cuts them, with a
	// mark, and counts them; "refuse" never sends them, and hands them to the dead
	// letters. Default "truncate".
	LongLines string `yaml:"long_lines"`
	// MaxAge and MaxFuture are how far the time of a record may lie in the past and in
	// the future. Other records are refused before they are sent. Defaults 7 days and
	// 10 minutes; negative: no limit.
	MaxAge    time.Duration `yaml:"max_age"`
	MaxFuture time.Duration `yaml:"max_future"`

	// TooOld says what becomes of records that are older than MaxAge, or that Loki refuses
	// for their age: because they are too old, or more than an hour behind the newest of
	// their stream, as a backlog can be that comes from another process.
	//
	//   - "dead-letter": they are refused, and go to the dead letters, if there are some.
	//   - "drop": they are refused, and are no dead letters.
	//   - "now": they are sent with the present time; their own is in the metadata, as
	//     original_time (RFC 3339). The first of a row is told as an event (too-old).
	//
	// Default "dead-letter".
	TooOld string `yaml:"too_old"`
	// What follows is used by [New] and [NewHandler] only, Name and OnError also by
	// [NewPusher].

	// Name stands in reports and events. Default "loki".
	Name string `yaml:"name"`
	// Level is the lowest level of records that [NewHandler] takes. In YAML it is level, a
	// text such as WARN or info+2. Default slog.LevelInfo.
	Level slog.Leveler `yaml:"-"`
	// Context is a forebay.Context of [NewHandler], and of no other function: it appends to dst the attributes that
	// the context of a record carries, such as the ids of the current span under TraceIDKey
	// and SpanIDKey. Default nil.
	Context func(ctx context.Context, dst []slog.Attr) []slog.Attr `yaml:"-"`
	// EagerFirst sends the first record at once, so that a wrong address or password
	// shows at the start. Default false: it waits for others, up to BatchAge.
	EagerFirst bool `yaml:"eager_first"`
	// BufferBytes is the memory for records that wait, in slabs of SlabBytes.
	// Records larger than a slab count in it; one of them is taken where there is
	// no room, see slab.Options.SlabCount.
	// Defaults: four times BatchBytes, but at least 4 MiB, so that a batch can fill
	// while others are sent; and 256 KiB, but less where BatchBytes or BatchRecords
	// is small.
	// On top of it come copies of the batches under way with CrashDir, at most half as
	// much, records set aside for a tenant or a stream that is refused, at most as much and 4 MiB,
	// and the requests that are made of them.
	BufferBytes int `yaml:"buffer_bytes"`
	SlabBytes   int `yaml:"slab_bytes"`
	// BufferRecords is how many records may be in that memory, those under way included.
	// See deliver.OutputOptions. Default 0: BufferBytes alone is the limit.
	BufferRecords int `yaml:"buffer_records"`
	// WhenFull is what a call does when no memory is left: block-for=DURATION,
	// block, drop-newest, drop-oldest, or spill, which needs SpoolDir or Spill.
	// Default block-for=250ms.
	WhenFull string `yaml:"when_full"`
	// CrashDir is a directory for files that the memory lies in: what a call has
	// returned from then survives the death of the process, and the next one
	// delivers it. Give each Sink its own. Default: none. See [slab.Crash].
	CrashDir string `yaml:"crash_dir"`
	// SpoolDir is a directory for what Loki does not take while it is down, up to
	// SpoolBytes (default 1 GiB), delivered in order when it is back. What Close could
	// not deliver stays there for the next start. Give each Sink its own. Default:
	// none; records then wait in memory. See package spool.
	SpoolDir   string `yaml:"spool_dir"`
	SpoolBytes int64  `yaml:"spool_bytes"`
	// PendingLimit is how many records may wait, while Loki is down, before
	// ErrorHandler is asked. Default 0: at once.
	PendingLimit int `yaml:"pending_limit"`
	// ErrorHandler is offered the records that wait while Loki is down, see
	// [deliver.JSONLines] and [deliver.ToOutput]. Records that it takes count as
	// handled, the others go on waiting. Default nil.
	ErrorHandler deliver.ErrorHandler `yaml:"-"`
	// FallbackFile is an ErrorHandler that decodes: what Loki does not take is appended
	// to this file as JSON lines (0600). Not together with ErrorHandler. Default: none.
	FallbackFile string `yaml:"fallback_file"`
	// DeadLetter is handed records that were refused for good, and those above
	// Slab.MaxRecord, see [deliver.DeadLetters]; DeadLetterFile is a file they are
	// appended to as JSON lines (0600) instead. Default: dead-letters.jsonl in SpoolDir,
	// which the first one makes; without SpoolDir they are counted only.
	DeadLetter     deliver.ErrorHandler `yaml:"-"`
	DeadLetterFile string               `yaml:"dead_letter_file"`
	// Spill is used instead of SpoolDir. Default nil.
	Spill deliver.Spill `yaml:"-"`
	// Retry and Breaker say how often and for how long records are sent again, and
	// when Loki is left alone. Default nil: the defaults of package deliver.
	Retry   *deliver.RetryOptions   `yaml:"retry"`
	Breaker *deliver.BreakerOptions `yaml:"breaker"`
	// Slab has further options of the memory. Fields that are set in it win over those
	// here. Its FlushLevel is none by default: errors wait for their batch like other
	// records. Default nil.
	Slab *slab.Options `yaml:"-"`
	// CloseTimeout bounds Close where its context has no deadline. Default 5 s.
	CloseTimeout time.Duration `yaml:"close_timeout"`
	// OnError is told of transitions: failure, recovery, drops. It runs on a
	// goroutine of its own behind a bounded queue. Default nil: a line on standard
	// error.
	OnError func(batch.Event) `yaml:"-"`

	whenFull  slab.WhenFull           // of WhenFull, set by resolve
	levels    [len(levelNames)]string // of LevelNames, likewise
	labels    []label                 // of Labels, by name, set by resolve
	gapLabels []label                 // of GapLabels, likewise
	endpoint  *url.URL                // of URL, likewise
}

type label struct{ name, value string }

// TLS says how https is made. All fields are optional; files are PEM.
type TLS struct {
	// CAFile holds the authorities to trust. Default: the system's.
	CAFile string `yaml:"ca_file"`
	// CertFile and KeyFile hold the client's certificate and its key. Default: none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// ServerName is the name to check the server's certificate for. Default: URL's
	// host.
	ServerName string `yaml:"server_name"`
	// InsecureSkipVerify takes any certificate: anyone can then be the server.
	// Default false.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
}

// Format writes the address and the labels, and no credential, whatever the verb.
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

// resolve returns c with its defaults. The error names everything that is wrong with c,
// each with what would be right, and no secret. Files are not read.
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
		bad("errors is %q, but Formatter makes the lines; leave it empty and set it there", c.Errors)
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

// slabBytes returns the size of slabs for batches like those of c. Since a batch goes
// when full slabs have enough for it, there are to be some slabs to a batch: four of
// BatchBytes, and about four of BatchRecords records of the shortest kind. Below
// 4 KiB a slab would hold too few.
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
	c.LevelName = sanitizeName(c.LevelName)
	c.labels = nil
	for given, value := range c.Labels {
		name, value := sanitizeName(given), strings.ToValidUTF8(value, "\ufffd")
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
			bad("labels: %s is empty, which Loki takes for no label; leave it out", given)
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
		name := sanitizeName(given)
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
		c.NoLevelLabel = true // a label of the user's own wins
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
		bad("labels: there is none and no_level_label is set, but Loki wants one; add one such as app: myapp")
	}
	for _, a := range c.LabelAttrs {
		if a == "" || len(sanitizeName(a)) > c.MaxLabelName {
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
			bad("headers: %s is made by the client; leave it out", canonical)
		case "X-Scope-Orgid":
			bad("headers: give X-Scope-OrgID as tenant")
		case "Authorization":
			ways++
		}
		if name == "" || strings.ContainsAny(name, " \t\r\n:") || strings.ContainsAny(value, "\r\n\x00") {
			bad("headers: %.40q is no header", name)
		}
	}
	if ways > 1 {
		bad("authentication: use one of username and password, bearer_token, bearer_token_file and an Authorization header")
	}
	if strings.ContainsAny(c.BearerToken, "\r\n\x00") {
		bad("bearer_token: there is a newline in it")
	}
}

const pushPath = "/loki/api/v1/push"

// endpoint returns the URL that pushes go to, or what is wrong with raw, which
// may hold a password.
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

// validPort reports whether a port is one, or left out.
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
