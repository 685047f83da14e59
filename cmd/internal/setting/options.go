package setting

import (
	"slices"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
	"github.com/forebay-log/forebay/internal/layout"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/slab"
)

// pipeFlush is the default of --flush-interval.
const pipeFlush = 100 * time.Millisecond

// These are schemes to which an option may apply.
var (
	files     = []string{"file"}
	forwards  = []string{"forward", "forward+tls", "forward+unix"}
	lokis     = []string{"loki", "loki+https"}
	otlps     = []string{"otlp", "otlps"}
	https     = []string{"http", "https"}
	syslogs   = []string{"syslog+tcp", "syslog+tls", "syslog+unix"}
	encrypted = []string{"tls", "syslog+tls", "forward+tls", "loki+https", "otlps", "https"}
	Remote    = slices.Concat(forwards, lokis, otlps, https, syslogs, []string{"tcp", "tls", "unix", "stdout", "stderr"})
	ofLines   = slices.Concat(files, []string{"stdout", "stderr", "tcp", "tls", "unix"}, syslogs) // destinations for lines in the format of --encode
)

// An Option is an option of outputs. A flag sets it for all outputs. The query part of an address
// in --to, or a key in a configuration file, sets it for one output.
type Option struct {
	Name    string
	Go      string       // name of the option in the library
	Usage   string       // text for --help; the name of the value is in backquotes
	Initial func() Value // returns the default in a new Value

	Of          []string // schemes to which the option applies; nil means all schemes
	Needs       []string // at least one of these options must be set, too
	NeedsOf     []string // schemes to which Needs applies; nil means all schemes
	Words       []string // values for shell completion
	General     bool     // the option concerns lines, memory or delivery, and not the destination
	Undelivered bool     // the option concerns undelivered lines, so --dry-run ignores it
	KeyOnly     bool     // the option has no flag
	Identifies  bool     // the option is part of the name of an output
	Sensitive   bool     // the value may contain a secret by mistake, so messages hide it
	OfFile      bool     // the value names a file that is read
}

// Options contains all options, in the order of --help. Options for secrets contain the names of
// files. Only the values of header and param can be secrets themselves.
var Options = []*Option{
	{Name: "encode", Go: "forebay.Encoder", General: true, Of: ofLines, Usage: "format of the delivered lines",
		Initial: func() Value { return &Choice{Value: record.AsRaw.String(), Of: record.Encodings()} }},
	{Name: "level", Go: "forebay.Level", General: true, Words: []string{"trace", "debug", "info", "warn", "error", "fatal"},
		Usage:   "lowest level to deliver: trace, debug, info, warn, error or fatal (default: all)",
		Initial: func() Value { return new(Level) }},
	{Name: "slab-size", Go: "slab.Options.SlabBytes", General: true, Usage: "size of one slab of memory and of one write",
		Initial: func() Value { return &Size{layout.DefaultSlabBytes, layout.MinSlabBytes, layout.MaxSlabBytes} }},
	{Name: "slabs", Go: "slab.Options.SlabCount", General: true,
		Usage:   "number `N` of slabs, see forebay size; if this and --slab-size are not given, 16 for file: and 64 for loki:, otlp: and http:",
		Initial: func() Value { return &Count{8, 2, layout.MaxSlabCount, " (one is filled while the other is written)"} }},
	{Name: "flush-interval", Go: "slab.Options.FlushInterval", General: true, Usage: "maximum time that a line waits for its slab to fill; if not given, 1s for loki:",
		Initial: func() Value { return newDuration(pipeFlush) }},
	{Name: "when-full", Go: "slab.Options.WhenFull", General: true, Words: []string{"block", "block-for=250ms", "drop-newest", "drop-oldest", "spill"},
		Usage:   "action when no slab is free: block, block-for=DURATION, drop-newest, drop-oldest or spill",
		Initial: func() Value { return &whenFull{slab.Block()} }},

	{Name: "fallback", Go: "deliver.Options.Handler", General: true, Undelivered: true, Sensitive: true,
		Usage:   "destination `DEST` for waiting lines while a --to is down, which it is after several failures in a row, or while its slabs are full; lines in flight come last (default: none)",
		Initial: func() Value { return new(Path) }},
	{Name: "pending-limit", Go: "deliver.Options.PendingLimit", General: true, Undelivered: true, Needs: []string{"fallback"},
		Usage:   "use --fallback when more than `N` lines wait (default 0)",
		Initial: func() Value { return new(Count) }},
	{Name: "spool", Go: "forebay.Spool", General: true, Undelivered: true,
		Usage:   "keep lines in `DIR` while a destination is down, also for the next run; with --when-full spill also while it is slow (default: none)",
		Initial: func() Value { return new(Path) }},
	{Name: "spool-max", Go: "spool.Options.MaxBytes", General: true, Undelivered: true, Needs: []string{"spool"},
		Usage:   "maximum size of the spool of each destination; the oldest lines are dropped when it is exceeded",
		Initial: func() Value { return &Size{1 << 30, 16 << 10, 0} }},
	{Name: "dead-letter", Go: "deliver.OutputOptions.DeadLetterFile", General: true, Undelivered: true,
		Usage:   "append permanently refused lines to `FILE` as JSON (default with --spool: a file there)",
		Initial: func() Value { return new(Path) }},
	{Name: "retry-age", Go: "deliver.RetryOptions.MaxAge", General: true, Undelivered: true,
		Usage:   "time to retry a failed line; 0: forever",
		Initial: func() Value { return newDuration(24 * time.Hour) }},
	{Name: "crash-safe", Go: "forebay.CrashSafe", General: true, Undelivered: true,
		Usage:   "keep the slabs and the input that is not delivered yet in `DIR`, so that they survive a crash of the program (default: none)",
		Initial: func() Value { return new(Path) }},
	{Name: "crash-safe-required", Go: "slab.Crash.Required", General: true, Undelivered: true, Needs: []string{"crash-safe"},
		Usage:   "do not start if --crash-safe is unavailable (default: report it and use memory)",
		Initial: func() Value { return new(Toggle) }},

	{Name: "fsync", Go: "file.Options.Sync, spool.Options.Sync", Needs: []string{"spool"}, NeedsOf: Remote,
		Usage:   "sync file destinations and the spool to stable storage before a line counts as delivered, so that it survives a power loss",
		Initial: func() Value { return new(Toggle) }},

	{Name: "rotate-size", Go: "file.Options.RotateBytes", Of: files,
		Usage:   "file: begin a new file before this size is exceeded, at least 4KiB; a longer single line exceeds it (default 0: never)",
		Initial: func() Value { return new(Size) }},
	{Name: "rotate-every", Go: "file.Options.RotateEvery", Of: files,
		Usage:   "file: period in UTC after which a new file begins, such as 24h or 1h (default 0: never)",
		Initial: func() Value { return new(Duration) }},
	{Name: "keep", Go: "file.Options.KeepFiles", Of: files, Needs: rotation,
		Usage:   "file: number `N` of rotated files to keep (default 0: all)",
		Initial: func() Value { return new(Count) }},
	{Name: "keep-for", Go: "file.Options.KeepFor", Of: files, Needs: rotation,
		Usage:   "file: time, in whole days, for which rotated files are kept, such as 14d (default 0: forever)",
		Initial: func() Value { return new(Duration) }},
	{Name: "compress", Go: "file.Options.Compress, fluent.Config.Compress, httpsink.Config.Compression", Of: slices.Concat(files, forwards, https), Needs: rotation, NeedsOf: files,
		Usage:   "file: compression of rotated files; forward, http: compression of requests (http: gzip; none for ndjson and array)",
		Initial: func() Value { return &Choice{Value: "none", Of: []string{"none", "gzip", "zstd"}} }},
	{Name: "mkdirs", Go: "file.Options.MakeDirs", Of: files, Usage: "file: create missing directories",
		Initial: func() Value { return new(Toggle) }},
	{Name: "no-reserve", Go: "file.Options.NoReserve", Of: files,
		Usage:   "file: do not reserve disk space after the end of a large file",
		Initial: func() Value { return new(Toggle) }},

	{Name: "tls-ca", Go: "TLS.CAFile", OfFile: true, Of: encrypted,
		Usage:   "TLS: `FILE` with the CA certificates for servers (default: the system's)",
		Initial: func() Value { return new(Text) }},
	{Name: "tls-cert", Go: "TLS.CertFile", OfFile: true, Of: encrypted, Usage: "TLS: `FILE` with a client certificate (default: none)",
		Initial: func() Value { return new(Text) }},
	{Name: "tls-key", Go: "TLS.KeyFile", OfFile: true, Of: encrypted, Usage: "TLS: `FILE` with the key of --tls-cert (default: none)",
		Initial: func() Value { return new(Text) }},

	{Name: "tag", Go: "fluent.Config.Tag", Of: forwards, Identifies: true, Usage: "forward: `TAG` of the events",
		Initial: func() Value { return newText("forebay") }},
	{Name: "tag-from", Of: forwards, Identifies: true,
		Usage:   "forward: field `NAME` that holds the tag, such as tag for records of a Forward listener; events without it have --tag (default: none)",
		Initial: func() Value { return new(Text) }},
	{Name: "shared-key-file", Go: "fluent.Auth.SharedKeyFile", OfFile: true, Of: forwards, Usage: "forward: `FILE` with the shared key of the server (default: none)",
		Initial: func() Value { return new(Text) }},
	{Name: "user", Go: "fluent.Auth.User, httpclient.Options.Username", Of: slices.Concat(forwards, lokis, otlps, https), Usage: "forward, loki, otlp, http: `NAME` of the user at the server (default: none)",
		Initial: func() Value { return new(Text) }},
	{Name: "password-file", Go: "fluent.Auth.PasswordFile", OfFile: true, Of: slices.Concat(forwards, lokis, otlps, https), Usage: "forward, loki, otlp, http: `FILE` with the password of --user (default: none)",
		Initial: func() Value { return new(Text) }},
	{Name: "secured", Go: "fluent.Auth.Secured", Of: forwards,
		Usage:   "forward: expect a handshake even if the shared key is empty",
		Initial: func() Value { return new(Toggle) }},
	{Name: "no-ack", Go: "fluent.Config.NoAck", Of: forwards,
		Usage:   "forward: do not wait for acknowledgements; data in flight is lost when a connection ends",
		Initial: func() Value { return new(Toggle) }},

	{Name: "label", Go: "loki.Config.Labels", Of: lokis, Identifies: true,
		Usage:   "loki: label of all lines, `NAME=VALUE` or NAME:VALUE; may be repeated (default job=forebay)",
		Initial: func() Value { return new(List) }},
	{Name: "label-from", Go: "loki.Config.LabelAttrs", Of: lokis, Identifies: true,
		Usage:   "loki: field `NAME` that becomes a label: a field of a JSON or logfmt line, or one that the input adds, such as namespace; may be repeated (default: none)",
		Initial: func() Value { return new(List) }},
	{Name: "metadata", Go: "loki.Config.MetadataAttrs", Of: lokis,
		Usage:   "loki: field `NAME` that becomes structured metadata: a field of a JSON or logfmt line, or one that the input adds; may be repeated (default: none)",
		Initial: func() Value { return new(List) }},
	{Name: "tenant", Go: "loki.Config.Tenant", Of: lokis, Identifies: true, Usage: "loki: `NAME` of the tenant, X-Scope-OrgID (default: none)",
		Initial: func() Value { return new(Text) }},
	{Name: "bearer-token-file", Go: "httpclient.Options.BearerTokenFile", OfFile: true, Of: slices.Concat(lokis, otlps, https), Usage: "loki, otlp, http: `FILE` with a bearer token; for http the token or API key of --api (default: none)",
		Initial: func() Value { return new(Text) }},
	{Name: "max-age", Go: "loki.Limits.MaxAge", Of: lokis,
		Usage:   "loki: age at which a line is too old; 0: only if Loki refuses it",
		Initial: func() Value { return newDuration(7 * 24 * time.Hour) }},
	{Name: "too-old", Go: "loki.Limits.TooOld", Of: lokis,
		Usage:   "loki: action for lines older than --max-age or than Loki accepts: write a dead letter, drop, or send with the current time",
		Initial: func() Value { return &Choice{Value: "dead-letter", Of: []string{"dead-letter", "drop", "now"}} }},

	{Name: "resource", Go: "otlp.Config.Resource", Of: otlps, Identifies: true,
		Usage:   "otlp: attribute of the resource, `NAME=VALUE` or NAME:VALUE; may be repeated (default service.name=forebay)",
		Initial: func() Value { return new(List) }},

	{Name: "api", Go: "httpsink.Config.API", Of: https, Words: httpAPIs,
		Usage:   "http: `NAME` of the API of the server: ndjson, array, elasticsearch (also opensearch), hec (also splunk), victorialogs or datadog",
		Initial: func() Value { return newText("ndjson") }},
	{Name: "hec", Go: "httpsink.Config.HEC", Of: https, Identifies: true,
		Usage:   "http: Splunk metadata of each line, `NAME=VALUE`: host, source, sourcetype or index; may be repeated (default: none)",
		Initial: func() Value { return new(List) }},
	{Name: "no-id", Go: "httpsink.Config.NoID", Of: https, Usage: "http: do not send an _id to Elasticsearch; lines may then be stored twice",
		Initial: func() Value { return new(Toggle) }},
	{Name: "header", Go: "httpclient.Options.Headers", Of: https, Sensitive: true, Usage: "http: header of each request, `NAME:VALUE`; may be repeated. Not for secrets: use --bearer-token-file (default: none)",
		Initial: func() Value { return new(List) }},
	{Name: "param", Go: "httpsink.Config.URL", Of: https, Sensitive: true, Usage: "http: query parameter of the URL, `NAME=VALUE`; may be repeated. Not for secrets (default: none)",
		Initial: func() Value { return new(List) }},

	{Name: "facility", Go: "netsink.Options.Facility", Of: syslogs, KeyOnly: true, Identifies: true, Initial: func() Value { return new(Text) }},
	{Name: "hostname", Go: "netsink.Options.Hostname", Of: syslogs, KeyOnly: true, Identifies: true, Initial: func() Value { return new(Text) }},
	{Name: "app", Go: "netsink.Options.AppName", Of: syslogs, KeyOnly: true, Identifies: true, Initial: func() Value { return new(Text) }},
	{Name: "procid", Go: "netsink.Options.ProcID", Of: syslogs, KeyOnly: true, Identifies: true, Initial: func() Value { return new(Text) }},
	{Name: "msgid", Go: "netsink.Options.MsgID", Of: syslogs, KeyOnly: true, Identifies: true, Initial: func() Value { return new(Text) }},
}

// httpAPIs contains the values of --api.
var httpAPIs = []string{"ndjson", "array", "elasticsearch", "opensearch", "hec", "splunk", "victorialogs", "datadog"}

// rotation contains the options that enable rotation. Other options require one of them.
var rotation = []string{"rotate-size", "rotate-every"}

// OptionCalled returns the option with the given name, or nil.
func OptionCalled(name string) *Option {
	for _, o := range Options {
		if o.Name == name {
			return o
		}
	}
	return nil
}

// OptionNames returns the names of all options.
func OptionNames() (names []string) {
	for _, o := range Options {
		names = append(names, o.Name)
	}
	return names
}

// IsFor reports whether the option applies to destinations with the given scheme.
func (o *Option) IsFor(scheme string) bool {
	return o.Of == nil || slices.Contains(o.Of, scheme)
}

// Kinds lists the destinations to which the option applies, for messages.
func (o *Option) Kinds() string {
	var names []string
	for _, scheme := range o.Of {
		names = append(names, scheme+":")
	}
	return console.InWords(names, "and")
}

// Lacks returns the options o.Needs if the option requires one of them for destinations with this
// scheme, and none is set. Otherwise it returns nil. The function has reports whether an option is
// set.
func (o *Option) Lacks(scheme string, has func(name string) bool) []string {
	if o.NeedsOf != nil && !slices.Contains(o.NeedsOf, scheme) || slices.ContainsFunc(o.Needs, has) {
		return nil
	}
	return o.Needs
}

// IsAlsoFor makes the option apply to further schemes.
func (o *Option) IsAlsoFor(schemes ...string) { o.Of = append(slices.Clip(o.Of), schemes...) }
