package program

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/units"
	"github.com/forebay-log/forebay/slab"
)

// An outputConfig says what one output gets, how much memory it has, how it delivers,
// and what its kind of destination wants to know. It knows neither flags nor queries:
// both fill it in through [outputConfig.set], by the names of [options], which are its
// tags, too.
type outputConfig struct {
	To string // the destination, without what follows a "?"

	Encode choice
	Level  level

	SlabSize      size
	Slabs         count
	FlushInterval duration
	WhenFull      whenFull

	Fallback          path
	PendingLimit      count
	Spool             path
	SpoolMax          size
	DeadLetter        path
	RetryAge          duration
	CrashSafe         path
	CrashSafeRequired toggle
	Fsync             toggle

	RotateSize  size
	RotateEvery duration
	Keep        count
	KeepFor     duration
	Compress    choice
	Mkdirs      toggle
	NoReserve   toggle

	TLSCA   text
	TLSCert text
	TLSKey  text

	Tag           text
	TagFrom       text
	SharedKeyFile text
	User          text
	PasswordFile  text
	Secured       toggle
	NoAck         toggle

	Label           list
	Resource        list
	LabelFrom       list
	Metadata        list
	Tenant          text
	BearerTokenFile text
	MaxAge          duration
	TooOld          choice

	API    text
	HEC    list
	NoID   toggle
	Header list
	Param  list

	Facility text
	Hostname text
	App      text
	ProcID   text
	MsgID    text

	more []setting // of the kinds that [With] adds, by moreOptions

	item    *item           // where it stands, while a file is read
	route   route           // which records it gets
	secrets [32]byte        // a sum of the files with keys and passwords, in a configuration file
	name    string          // of the output: of --to, or in a configuration file
	given   map[string]bool // the options that were set, by name
	at      positions       // of its keys, in a configuration file
	dryRun  bool            // nothing is sent

	onEvent func(batch.Event) // of what a client changes by itself; nil: standard error
}

// pipeFlush is the --flush-interval where none is given.
const pipeFlush = 100 * time.Millisecond

// newOutputConfig returns the defaults.
func newOutputConfig() outputConfig {
	return outputConfig{
		Encode:        choice{value: record.AsRaw.String(), of: record.Encodings()},
		SlabSize:      size{slab.DefaultSlabBytes, slab.MinSlabBytes, slab.MaxSlabBytes},
		Slabs:         count{8, 2, slab.MaxSlabCount, " (one is filled while the other is written)"},
		FlushInterval: duration(pipeFlush),
		WhenFull:      whenFull{slab.Block()},
		SpoolMax:      size{1 << 30, 16 << 10, 0},
		RetryAge:      duration(24 * time.Hour),
		Compress:      choice{value: "none", of: []string{"none", "gzip", "zstd"}},
		Tag:           "forebay",
		MaxAge:        duration(7 * 24 * time.Hour),
		TooOld:        choice{value: "dead-letter", of: []string{"dead-letter", "drop", "now"}},
		API:           "ndjson",
		more:          settingsOf(moreOptions),
	}
}

// The kinds of destinations that options are for.
var (
	files     = []string{"file"}
	forwards  = []string{"forward", "forward+tls", "forward+unix"}
	lokis     = []string{"loki", "loki+https"}
	otlps     = []string{"otlp", "otlps"}
	https     = []string{"http", "https"}
	syslogs   = []string{"syslog+tcp", "syslog+tls", "syslog+unix"}
	encrypted = []string{"tls", "syslog+tls", "forward+tls", "loki+https", "otlps", "https"}
	remote    = slices.Concat(forwards, lokis, otlps, https, syslogs, []string{"tcp", "tls", "unix", "stdout", "stderr"})
	ofLines   = slices.Concat(files, []string{"stdout", "stderr", "tcp", "tls", "unix"}, syslogs) // --encode decides
)

// An option is something that an output can be told: by a flag, for all outputs, and by
// the query of --to, for that one alone.
type option struct {
	name  string
	usage string // of the flag: what stands in backquotes is the value
	value func(*outputConfig) setting

	of       []string // the destinations it is for; nil: all
	needs    []string // it means nothing without one of these options
	needsOf  []string // but for other destinations than these; nil: for none
	words    []string // some values, for shells
	way      bool     // it is about what comes before the destination: lines, memory, delivery
	keeps    bool     // it is about lines that the destination does not take, so --dry-run ignores it
	keyOnly  bool     // there is no flag
	tells    bool     // it tells apart what is at one address
	delicate bool     // its value may hold a secret, by mistake
	ofFile   bool     // it names a file that is read: what is wrong may be the file, and not the value
}

// A setting is the value of an option.
type setting interface {
	String() string
	Set(string) error
	Type() string // for help; every setting is a flag's value, too
}

// options are all options, in the order of --help. None holds a secret: those are in
// files.
var options = []*option{
	{name: "encode", way: true, of: ofLines, usage: "format of the delivered lines",
		value: func(c *outputConfig) setting { return &c.Encode }},
	{name: "level", way: true, words: []string{"trace", "debug", "info", "warn", "error", "fatal"},
		usage: "lowest level to deliver: trace, debug, info, warn, error or fatal (default: all)",
		value: func(c *outputConfig) setting { return &c.Level }},
	{name: "slab-size", way: true, usage: "size of one slab of memory and of one write",
		value: func(c *outputConfig) setting { return &c.SlabSize }},
	{name: "slabs", way: true,
		usage: "number `N` of slabs, see forebay size; without this and --slab-size, file: has 16 and loki: 64",
		value: func(c *outputConfig) setting { return &c.Slabs }},
	{name: "flush-interval", way: true, usage: "maximum time that a line waits for its slab to fill; without this, loki: waits 1s for its batch",
		value: func(c *outputConfig) setting { return &c.FlushInterval }},
	{name: "when-full", way: true, words: []string{"block", "block-for=250ms", "drop-newest", "drop-oldest", "spill"},
		usage: "action when no slab is free: block, block-for=DURATION, drop-newest, drop-oldest or spill",
		value: func(c *outputConfig) setting { return &c.WhenFull }},

	{name: "fallback", way: true, keeps: true, delicate: true,
		usage: "destination `DEST` for waiting lines while a --to is down (default: none)",
		value: func(c *outputConfig) setting { return &c.Fallback }},
	{name: "pending-limit", way: true, keeps: true, needs: []string{"fallback"},
		usage: "use --fallback when more than `N` lines wait (default 0)",
		value: func(c *outputConfig) setting { return &c.PendingLimit }},
	{name: "spool", way: true, keeps: true,
		usage: "keep lines in `DIR` while a destination is down, also for the next run; with --when-full spill also while it is slow (default: none)",
		value: func(c *outputConfig) setting { return &c.Spool }},
	{name: "spool-max", way: true, keeps: true, needs: []string{"spool"},
		usage: "maximum size of the spool of each destination; the oldest lines are dropped when it is exceeded",
		value: func(c *outputConfig) setting { return &c.SpoolMax }},
	{name: "dead-letter", way: true, keeps: true,
		usage: "append permanently refused lines to `FILE` as JSON (default with --spool: a file there)",
		value: func(c *outputConfig) setting { return &c.DeadLetter }},
	{name: "retry-age", way: true, keeps: true,
		usage: "time to retry a failed line; 0: forever",
		value: func(c *outputConfig) setting { return &c.RetryAge }},
	{name: "crash-safe", way: true, keeps: true,
		usage: "keep the slabs and the input read ahead in `DIR`, where they survive the death of the program (default: none)",
		value: func(c *outputConfig) setting { return &c.CrashSafe }},
	{name: "crash-safe-required", way: true, keeps: true, needs: []string{"crash-safe"},
		usage: "do not start if --crash-safe is unavailable (default: report it and use memory)",
		value: func(c *outputConfig) setting { return &c.CrashSafeRequired }},

	{name: "fsync", needs: []string{"spool"}, needsOf: remote,
		usage: "sync file: and --spool to stable storage before a line counts as delivered, so that it survives a power loss",
		value: func(c *outputConfig) setting { return &c.Fsync }},

	{name: "rotate-size", of: files,
		usage: "file: begin a new file before this size is exceeded; a longer single line exceeds it (default 0: never)",
		value: func(c *outputConfig) setting { return &c.RotateSize }},
	{name: "rotate-every", of: files,
		usage: "file: period in UTC after which a new file begins, such as 24h or 1h (default 0: never)",
		value: func(c *outputConfig) setting { return &c.RotateEvery }},
	{name: "keep", of: files, needs: rotation,
		usage: "file: number `N` of rotated files to keep (default 0: all)",
		value: func(c *outputConfig) setting { return &c.Keep }},
	{name: "keep-for", of: files, needs: rotation,
		usage: "file: time to keep rotated files in whole days, such as 14d (default 0: forever)",
		value: func(c *outputConfig) setting { return &c.KeepFor }},
	{name: "compress", of: slices.Concat(files, forwards, https), needs: rotation, needsOf: files,
		usage: "file: compression of rotated files; forward, http: compression of requests (http: gzip, except for ndjson and array)",
		value: func(c *outputConfig) setting { return &c.Compress }},
	{name: "mkdirs", of: files, usage: "file: create missing directories",
		value: func(c *outputConfig) setting { return &c.Mkdirs }},
	{name: "no-reserve", of: files,
		usage: "file: do not reserve disk space after the end of a large file",
		value: func(c *outputConfig) setting { return &c.NoReserve }},

	{name: "tls-ca", ofFile: true, of: encrypted,
		usage: "TLS: `FILE` with the CA certificates for servers (default: the system's)",
		value: func(c *outputConfig) setting { return &c.TLSCA }},
	{name: "tls-cert", ofFile: true, of: encrypted, usage: "TLS: `FILE` with a client certificate (default: none)",
		value: func(c *outputConfig) setting { return &c.TLSCert }},
	{name: "tls-key", ofFile: true, of: encrypted, usage: "TLS: `FILE` with the key of --tls-cert (default: none)",
		value: func(c *outputConfig) setting { return &c.TLSKey }},

	{name: "tag", of: forwards, tells: true, usage: "forward: `TAG` of the events",
		value: func(c *outputConfig) setting { return &c.Tag }},
	{name: "tag-from", of: forwards, tells: true,
		usage: "forward: field `NAME` that holds the tag, such as tag for records of a Forward listener; events without it have --tag (default: none)",
		value: func(c *outputConfig) setting { return &c.TagFrom }},
	{name: "shared-key-file", ofFile: true, of: forwards, usage: "forward: `FILE` with the shared key of the server (default: none)",
		value: func(c *outputConfig) setting { return &c.SharedKeyFile }},
	{name: "user", of: slices.Concat(forwards, lokis, otlps, https), usage: "forward, loki, otlp, http: `NAME` of the user at the server (default: none)",
		value: func(c *outputConfig) setting { return &c.User }},
	{name: "password-file", ofFile: true, of: slices.Concat(forwards, lokis, otlps, https), usage: "forward, loki, otlp, http: `FILE` with the password of --user (default: none)",
		value: func(c *outputConfig) setting { return &c.PasswordFile }},
	{name: "secured", of: forwards,
		usage: "forward: expect a handshake even if the shared key is empty",
		value: func(c *outputConfig) setting { return &c.Secured }},
	{name: "no-ack", of: forwards,
		usage: "forward: do not wait for acknowledgements; data in flight is lost when a connection ends",
		value: func(c *outputConfig) setting { return &c.NoAck }},

	{name: "label", of: lokis, tells: true,
		usage: "loki: label of all lines, `NAME=VALUE` or NAME:VALUE; may be repeated (default job=forebay)",
		value: func(c *outputConfig) setting { return &c.Label }},
	{name: "label-from", of: lokis, tells: true,
		usage: "loki: field `NAME` that becomes a label: of a JSON or logfmt line, or of the input, such as namespace; may be repeated (default: none)",
		value: func(c *outputConfig) setting { return &c.LabelFrom }},
	{name: "metadata", of: lokis,
		usage: "loki: field `NAME` of a JSON or logfmt line that becomes structured metadata; may be repeated (default: none)",
		value: func(c *outputConfig) setting { return &c.Metadata }},
	{name: "tenant", of: lokis, tells: true, usage: "loki: `NAME` of the tenant, X-Scope-OrgID (default: none)",
		value: func(c *outputConfig) setting { return &c.Tenant }},
	{name: "bearer-token-file", ofFile: true, of: slices.Concat(lokis, otlps, https), usage: "loki, otlp, http: `FILE` with a bearer token; for http the token or API key of --api (default: none)",
		value: func(c *outputConfig) setting { return &c.BearerTokenFile }},
	{name: "max-age", of: lokis,
		usage: "loki: age at which a line is too old; 0: only if Loki refuses it",
		value: func(c *outputConfig) setting { return &c.MaxAge }},
	{name: "too-old", of: lokis,
		usage: "loki: action for lines older than --max-age or than Loki accepts: write a dead letter, drop, or send with the current time",
		value: func(c *outputConfig) setting { return &c.TooOld }},

	{name: "resource", of: otlps, tells: true,
		usage: "otlp: attribute of the resource, `NAME=VALUE` or NAME:VALUE; may be repeated (default service.name=forebay)",
		value: func(c *outputConfig) setting { return &c.Resource }},

	{name: "api", of: https, words: httpAPIs,
		usage: "http: `NAME` of the API of the server: ndjson, array, elasticsearch (also opensearch), hec (also splunk), victorialogs or datadog",
		value: func(c *outputConfig) setting { return &c.API }},
	{name: "hec", of: https, tells: true,
		usage: "http: Splunk metadata of each line, `NAME=VALUE`: host, source, sourcetype or index; may be repeated (default: none)",
		value: func(c *outputConfig) setting { return &c.HEC }},
	{name: "no-id", of: https, usage: "http: do not send an _id to Elasticsearch; lines may then be stored twice",
		value: func(c *outputConfig) setting { return &c.NoID }},
	{name: "header", of: https, delicate: true, usage: "http: header of each request, `NAME:VALUE`; may be repeated. Tokens go into --bearer-token-file (default: none)",
		value: func(c *outputConfig) setting { return &c.Header }},
	{name: "param", of: https, delicate: true, usage: "http: query parameter of the URL, `NAME=VALUE`; may be repeated (default: none)",
		value: func(c *outputConfig) setting { return &c.Param }},

	{name: "facility", of: syslogs, keyOnly: true, tells: true, value: func(c *outputConfig) setting { return &c.Facility }},
	{name: "hostname", of: syslogs, keyOnly: true, tells: true, value: func(c *outputConfig) setting { return &c.Hostname }},
	{name: "app", of: syslogs, keyOnly: true, tells: true, value: func(c *outputConfig) setting { return &c.App }},
	{name: "procid", of: syslogs, keyOnly: true, tells: true, value: func(c *outputConfig) setting { return &c.ProcID }},
	{name: "msgid", of: syslogs, keyOnly: true, tells: true, value: func(c *outputConfig) setting { return &c.MsgID }},
}

var rotation = []string{"rotate-size", "rotate-every"}

// optionCalled returns the option of that name, nil if there is none.
func optionCalled(name string) *option {
	for _, o := range options {
		if o.name == name {
			return o
		}
	}
	return nil
}

// optionNames returns the names of all options.
func optionNames() (names []string) {
	for _, o := range options {
		names = append(names, o.name)
	}
	return names
}

// isFor reports whether destinations of a kind have the option.
func (o *option) isFor(scheme string) bool {
	return o.of == nil || slices.Contains(o.of, scheme)
}

// kinds names the destinations that the option is for.
func (o *option) kinds() string {
	var names []string
	for _, scheme := range o.of {
		names = append(names, scheme+":")
	}
	return inWords(names, "and")
}

// lacks returns the options of which one is missing beside o, nil if none is.
func (o *option) lacks(scheme string, has func(name string) bool) []string {
	if o.needsOf != nil && !slices.Contains(o.needsOf, scheme) || slices.ContainsFunc(o.needs, has) {
		return nil
	}
	return o.needs
}

// inWords writes a list such as "a, b and c".
func inWords(names []string, last string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	n := len(names) - 1
	return strings.Join(names[:n], ", ") + " " + last + " " + names[n]
}

// set sets an option. A list gets one more member.
func (c *outputConfig) set(o *option, text string) error {
	if c.given == nil {
		c.given = map[string]bool{}
	}
	c.given[o.name] = true
	return o.value(c).Set(text)
}

// check looks at settings that must fit together. The error is about the command line.
func (c *outputConfig) check() error {
	if total := int64(c.Slabs.value) * c.SlabSize.value; total > maxMemory {
		return fmt.Errorf("--slabs %d of --slab-size %s are %s of memory for each destination: use %s or less",
			c.Slabs.value, units.FlagSize(c.SlabSize.value), units.FlagSize(total), units.FlagSize(maxMemory))
	}
	if c.spills() && c.Spool == "" {
		return fmt.Errorf("--when-full spill needs a directory to spill to: add --spool DIR")
	}
	return nil
}

// spills reports whether lines go to the spool when the slabs are full.
func (c *outputConfig) spills() bool { return c.WhenFull.WhenFull == slab.Spill() }

// encoding returns what lines are delivered as.
func (c *outputConfig) encoding() record.Encoding {
	e, _ := record.ParseEncoding(c.Encode.value)
	return e
}

// keepsLines reports whether lines may be left for the next run.
func (c *outputConfig) keepsLines() bool { return c.Spool != "" || c.CrashSafe != "" }

// delivers reports whether an option says how it delivers, apart from --crash-safe.
func (c *outputConfig) delivers() bool {
	return c.Fallback != "" || c.Spool != "" || c.DeadLetter != "" || c.given["retry-age"]
}

// maxAge is deliver.RetryOptions.MaxAge.
func (c *outputConfig) maxAge() time.Duration {
	if c.RetryAge == 0 {
		return -1
	}
	return time.Duration(c.RetryAge)
}
