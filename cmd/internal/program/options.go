package program

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/cmd/internal/units"
	"github.com/forebay-log/forebay/internal/record"
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
	{name: "encode", way: true, of: ofLines, usage: "what to deliver lines as",
		value: func(c *outputConfig) setting { return &c.Encode }},
	{name: "level", way: true, words: []string{"trace", "debug", "info", "warn", "error", "fatal"},
		usage: "the lowest level to deliver: trace, debug, info, warn, error or fatal",
		value: func(c *outputConfig) setting { return &c.Level }},
	{name: "slab-size", way: true, usage: "size of one slab of memory, and of one write",
		value: func(c *outputConfig) setting { return &c.SlabSize }},
	{name: "slabs", way: true,
		usage: "use `N` slabs, see forebay size; file: uses 16 and loki: 64 unless this or --slab-size is given",
		value: func(c *outputConfig) setting { return &c.Slabs }},
	{name: "flush-interval", way: true, usage: "how long a line waits at most for its slab to fill; loki: waits 1s for its batch unless this is given",
		value: func(c *outputConfig) setting { return &c.FlushInterval }},
	{name: "when-full", way: true, words: []string{"block", "block-for=250ms", "drop-newest", "drop-oldest", "spill"},
		usage: "when no slab is free: block, block-for=DURATION, drop-newest, drop-oldest, spill",
		value: func(c *outputConfig) setting { return &c.WhenFull }},

	{name: "fallback", way: true, keeps: true, delicate: true,
		usage: "`DEST` for lines that wait while a destination is down",
		value: func(c *outputConfig) setting { return &c.Fallback }},
	{name: "pending-limit", way: true, keeps: true, needs: []string{"fallback"},
		usage: "go to --fallback when more than `N` lines wait",
		value: func(c *outputConfig) setting { return &c.PendingLimit }},
	{name: "spool", way: true, keeps: true,
		usage: "keep lines in `DIR` while a destination is down, also for the next run; with --when-full spill also while it is slow",
		value: func(c *outputConfig) setting { return &c.Spool }},
	{name: "spool-max", way: true, keeps: true, needs: []string{"spool"},
		usage: "size of the spool of each destination; over it the oldest lines are dropped",
		value: func(c *outputConfig) setting { return &c.SpoolMax }},
	{name: "dead-letter", way: true, keeps: true,
		usage: "append lines that a destination refuses for good to `FILE`, as JSON",
		value: func(c *outputConfig) setting { return &c.DeadLetter }},
	{name: "retry-age", way: true, keeps: true,
		usage: "how long to try to deliver a line that failed (0: for ever)",
		value: func(c *outputConfig) setting { return &c.RetryAge }},
	{name: "crash-safe", way: true, keeps: true,
		usage: "keep the slabs and the input read ahead in `DIR`, where they survive the death of the program",
		value: func(c *outputConfig) setting { return &c.CrashSafe }},
	{name: "crash-safe-required", way: true, keeps: true, needs: []string{"crash-safe"},
		usage: "do not start where --crash-safe cannot be had (default: say so and go on)",
		value: func(c *outputConfig) setting { return &c.CrashSafeRequired }},

	{name: "fsync", needs: []string{"spool"}, needsOf: remote,
		usage: "put lines of file: and --spool on the disk before they count as delivered: a loss of power takes none of those",
		value: func(c *outputConfig) setting { return &c.Fsync }},

	{name: "rotate-size", of: files,
		usage: "file: move the file aside before it exceeds this size; one line that is longer does (0: never)",
		value: func(c *outputConfig) setting { return &c.RotateSize }},
	{name: "rotate-every", of: files,
		usage: "file: begin a new file each such period, counted in UTC, such as 24h or 1h (0: never)",
		value: func(c *outputConfig) setting { return &c.RotateEvery }},
	{name: "keep", of: files, needs: rotation,
		usage: "file: keep `N` old files (0: all)",
		value: func(c *outputConfig) setting { return &c.Keep }},
	{name: "keep-for", of: files, needs: rotation,
		usage: "file: how long to keep old files, such as 14d; whole days (0: for ever)",
		value: func(c *outputConfig) setting { return &c.KeepFor }},
	{name: "compress", of: slices.Concat(files, forwards, https), needs: rotation, needsOf: files,
		usage: "file: how to compress old files; forward, http: how to compress what is sent (http: gzip, but for ndjson and array)",
		value: func(c *outputConfig) setting { return &c.Compress }},
	{name: "mkdirs", of: files, usage: "file: create missing directories",
		value: func(c *outputConfig) setting { return &c.Mkdirs }},
	{name: "no-reserve", of: files,
		usage: "file: reserve no space of the disk behind the end of a large file",
		value: func(c *outputConfig) setting { return &c.NoReserve }},

	{name: "tls-ca", ofFile: true, of: encrypted,
		usage: "TLS: `FILE` with the authorities that sign server certificates (default: the system's)",
		value: func(c *outputConfig) setting { return &c.TLSCA }},
	{name: "tls-cert", ofFile: true, of: encrypted, usage: "TLS: `FILE` with a client certificate",
		value: func(c *outputConfig) setting { return &c.TLSCert }},
	{name: "tls-key", ofFile: true, of: encrypted, usage: "TLS: `FILE` with its key",
		value: func(c *outputConfig) setting { return &c.TLSKey }},

	{name: "tag", of: forwards, tells: true, usage: "forward: `TAG` of the events",
		value: func(c *outputConfig) setting { return &c.Tag }},
	{name: "tag-from", of: forwards, tells: true,
		usage: "forward: the field `NAME` that has the tag of the event, such as tag behind a Forward listener; events without it have --tag",
		value: func(c *outputConfig) setting { return &c.TagFrom }},
	{name: "shared-key-file", ofFile: true, of: forwards, usage: "forward: `FILE` with the shared key of the server",
		value: func(c *outputConfig) setting { return &c.SharedKeyFile }},
	{name: "user", of: slices.Concat(forwards, lokis, otlps, https), usage: "forward, loki, otlp, http: `NAME` of the user at the server",
		value: func(c *outputConfig) setting { return &c.User }},
	{name: "password-file", ofFile: true, of: slices.Concat(forwards, lokis, otlps, https), usage: "forward, loki, otlp, http: `FILE` with the password of --user",
		value: func(c *outputConfig) setting { return &c.PasswordFile }},
	{name: "secured", of: forwards,
		usage: "forward: the server begins with a handshake though its shared key is empty",
		value: func(c *outputConfig) setting { return &c.Secured }},
	{name: "no-ack", of: forwards,
		usage: "forward: do not wait for acknowledgements: what is under way when a connection ends is lost",
		value: func(c *outputConfig) setting { return &c.NoAck }},

	{name: "label", of: lokis, tells: true,
		usage: "loki: a label of all lines, `NAME=VALUE` or NAME:VALUE; may be repeated (default job=forebay)",
		value: func(c *outputConfig) setting { return &c.Label }},
	{name: "label-from", of: lokis, tells: true,
		usage: "loki: make the field `NAME` a label, too: of JSON and logfmt lines, or what the input knows, such as namespace; may be repeated",
		value: func(c *outputConfig) setting { return &c.LabelFrom }},
	{name: "metadata", of: lokis,
		usage: "loki: make the field `NAME` of JSON and logfmt lines structured metadata; may be repeated",
		value: func(c *outputConfig) setting { return &c.Metadata }},
	{name: "tenant", of: lokis, tells: true, usage: "loki: `NAME` of the tenant (X-Scope-OrgID)",
		value: func(c *outputConfig) setting { return &c.Tenant }},
	{name: "bearer-token-file", ofFile: true, of: slices.Concat(lokis, otlps, https), usage: "loki, otlp, http: `FILE` with a bearer token; for http with the token of --api: an API key, say",
		value: func(c *outputConfig) setting { return &c.BearerTokenFile }},
	{name: "max-age", of: lokis,
		usage: "loki: lines are too old when their time is further back (0: never, unless Loki says so)",
		value: func(c *outputConfig) setting { return &c.MaxAge }},
	{name: "too-old", of: lokis,
		usage: "loki: lines older than --max-age, or than Loki takes, are refused, with or without a dead letter, or sent with the present time",
		value: func(c *outputConfig) setting { return &c.TooOld }},

	{name: "resource", of: otlps, tells: true,
		usage: "otlp: an attribute of the resource, `NAME=VALUE` or NAME:VALUE; may be repeated (default service.name=forebay)",
		value: func(c *outputConfig) setting { return &c.Resource }},

	{name: "api", of: https, words: httpAPIs,
		usage: "http: `NAME` of what the server takes: ndjson, array, elasticsearch (also opensearch), hec (also splunk), victorialogs or datadog",
		value: func(c *outputConfig) setting { return &c.API }},
	{name: "hec", of: https, tells: true,
		usage: "http: what Splunk has beside a line, `NAME=VALUE`: host, source, sourcetype or index; may be repeated",
		value: func(c *outputConfig) setting { return &c.HEC }},
	{name: "no-id", of: https, usage: "http: give elasticsearch no _id; lines may then be stored twice",
		value: func(c *outputConfig) setting { return &c.NoID }},
	{name: "header", of: https, delicate: true, usage: "http: a header of each request, `NAME:VALUE`; may be repeated. Tokens go into --bearer-token-file",
		value: func(c *outputConfig) setting { return &c.Header }},
	{name: "param", of: https, delicate: true, usage: "http: what stands behind the ? of the URL, `NAME=VALUE`; may be repeated",
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
		return fmt.Errorf("--when-full spill needs a place for what it puts aside: add --spool DIR")
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
