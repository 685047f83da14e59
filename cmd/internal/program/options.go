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

// An outputConfig describes one output: its destination, the values of its options, and the records
// that it receives. Flags, queries of --to and configuration files set the options through
// [settings.set], by the names in the table [options].
type outputConfig struct {
	To string // the destination, without a query
	settings

	item    *item     // its place in the configuration file, while that is read
	route   route     // the records that it receives
	secrets [32]byte  // a checksum of the files with keys and passwords, in a configuration file
	name    string    // of the output: of --to, or in a configuration file
	at      positions // of its keys, in a configuration file
	dryRun  bool      // nothing is sent

	onEvent func(batch.Event) // changes that a client makes by itself; nil: standard error
}

// pipeFlush is the --flush-interval where none is given.
const pipeFlush = 100 * time.Millisecond

// newOutputConfig returns the defaults.
func newOutputConfig() outputConfig {
	c := outputConfig{settings: settings{values: map[string]setting{}, given: map[string]bool{}}}
	for _, o := range options {
		c.values[o.name] = o.initial()
	}
	return c
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

// An option is an entry of the table of options of outputs. It is set by a flag, for all outputs,
// by the query of --to, for that output, and by a key of a configuration file.
type option struct {
	name    string
	usage   string         // of the flag; the value is in backquotes
	initial func() setting // returns the default value

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

// options are all options, in the order of --help. None holds a secret: those are in
// files.
var options = []*option{
	{name: "encode", way: true, of: ofLines, usage: "format of the delivered lines",
		initial: func() setting { return &choice{value: record.AsRaw.String(), of: record.Encodings()} }},
	{name: "level", way: true, words: []string{"trace", "debug", "info", "warn", "error", "fatal"},
		usage:   "lowest level to deliver: trace, debug, info, warn, error or fatal (default: all)",
		initial: func() setting { return new(level) }},
	{name: "slab-size", way: true, usage: "size of one slab of memory and of one write",
		initial: func() setting { return &size{slab.DefaultSlabBytes, slab.MinSlabBytes, slab.MaxSlabBytes} }},
	{name: "slabs", way: true,
		usage:   "number `N` of slabs, see forebay size; without this and --slab-size, file: has 16 and loki: 64",
		initial: func() setting { return &count{8, 2, slab.MaxSlabCount, " (one is filled while the other is written)"} }},
	{name: "flush-interval", way: true, usage: "maximum time that a line waits for its slab to fill; without this, loki: waits 1s for its batch",
		initial: func() setting { return newDuration(pipeFlush) }},
	{name: "when-full", way: true, words: []string{"block", "block-for=250ms", "drop-newest", "drop-oldest", "spill"},
		usage:   "action when no slab is free: block, block-for=DURATION, drop-newest, drop-oldest or spill",
		initial: func() setting { return &whenFull{slab.Block()} }},

	{name: "fallback", way: true, keeps: true, delicate: true,
		usage:   "destination `DEST` for waiting lines while a --to is down (default: none)",
		initial: func() setting { return new(path) }},
	{name: "pending-limit", way: true, keeps: true, needs: []string{"fallback"},
		usage:   "use --fallback when more than `N` lines wait (default 0)",
		initial: func() setting { return new(count) }},
	{name: "spool", way: true, keeps: true,
		usage:   "keep lines in `DIR` while a destination is down, also for the next run; with --when-full spill also while it is slow (default: none)",
		initial: func() setting { return new(path) }},
	{name: "spool-max", way: true, keeps: true, needs: []string{"spool"},
		usage:   "maximum size of the spool of each destination; the oldest lines are dropped when it is exceeded",
		initial: func() setting { return &size{1 << 30, 16 << 10, 0} }},
	{name: "dead-letter", way: true, keeps: true,
		usage:   "append permanently refused lines to `FILE` as JSON (default with --spool: a file there)",
		initial: func() setting { return new(path) }},
	{name: "retry-age", way: true, keeps: true,
		usage:   "time to retry a failed line; 0: forever",
		initial: func() setting { return newDuration(24 * time.Hour) }},
	{name: "crash-safe", way: true, keeps: true,
		usage:   "keep the slabs and the input read ahead in `DIR`, where they survive the death of the program (default: none)",
		initial: func() setting { return new(path) }},
	{name: "crash-safe-required", way: true, keeps: true, needs: []string{"crash-safe"},
		usage:   "do not start if --crash-safe is unavailable (default: report it and use memory)",
		initial: func() setting { return new(toggle) }},

	{name: "fsync", needs: []string{"spool"}, needsOf: remote,
		usage:   "sync file: and --spool to stable storage before a line counts as delivered, so that it survives a power loss",
		initial: func() setting { return new(toggle) }},

	{name: "rotate-size", of: files,
		usage:   "file: begin a new file before this size is exceeded; a longer single line exceeds it (default 0: never)",
		initial: func() setting { return new(size) }},
	{name: "rotate-every", of: files,
		usage:   "file: period in UTC after which a new file begins, such as 24h or 1h (default 0: never)",
		initial: func() setting { return new(duration) }},
	{name: "keep", of: files, needs: rotation,
		usage:   "file: number `N` of rotated files to keep (default 0: all)",
		initial: func() setting { return new(count) }},
	{name: "keep-for", of: files, needs: rotation,
		usage:   "file: time to keep rotated files in whole days, such as 14d (default 0: forever)",
		initial: func() setting { return new(duration) }},
	{name: "compress", of: slices.Concat(files, forwards, https), needs: rotation, needsOf: files,
		usage:   "file: compression of rotated files; forward, http: compression of requests (http: gzip, except for ndjson and array)",
		initial: func() setting { return &choice{value: "none", of: []string{"none", "gzip", "zstd"}} }},
	{name: "mkdirs", of: files, usage: "file: create missing directories",
		initial: func() setting { return new(toggle) }},
	{name: "no-reserve", of: files,
		usage:   "file: do not reserve disk space after the end of a large file",
		initial: func() setting { return new(toggle) }},

	{name: "tls-ca", ofFile: true, of: encrypted,
		usage:   "TLS: `FILE` with the CA certificates for servers (default: the system's)",
		initial: func() setting { return new(text) }},
	{name: "tls-cert", ofFile: true, of: encrypted, usage: "TLS: `FILE` with a client certificate (default: none)",
		initial: func() setting { return new(text) }},
	{name: "tls-key", ofFile: true, of: encrypted, usage: "TLS: `FILE` with the key of --tls-cert (default: none)",
		initial: func() setting { return new(text) }},

	{name: "tag", of: forwards, tells: true, usage: "forward: `TAG` of the events",
		initial: func() setting { return newText("forebay") }},
	{name: "tag-from", of: forwards, tells: true,
		usage:   "forward: field `NAME` that holds the tag, such as tag for records of a Forward listener; events without it have --tag (default: none)",
		initial: func() setting { return new(text) }},
	{name: "shared-key-file", ofFile: true, of: forwards, usage: "forward: `FILE` with the shared key of the server (default: none)",
		initial: func() setting { return new(text) }},
	{name: "user", of: slices.Concat(forwards, lokis, otlps, https), usage: "forward, loki, otlp, http: `NAME` of the user at the server (default: none)",
		initial: func() setting { return new(text) }},
	{name: "password-file", ofFile: true, of: slices.Concat(forwards, lokis, otlps, https), usage: "forward, loki, otlp, http: `FILE` with the password of --user (default: none)",
		initial: func() setting { return new(text) }},
	{name: "secured", of: forwards,
		usage:   "forward: expect a handshake even if the shared key is empty",
		initial: func() setting { return new(toggle) }},
	{name: "no-ack", of: forwards,
		usage:   "forward: do not wait for acknowledgements; data in flight is lost when a connection ends",
		initial: func() setting { return new(toggle) }},

	{name: "label", of: lokis, tells: true,
		usage:   "loki: label of all lines, `NAME=VALUE` or NAME:VALUE; may be repeated (default job=forebay)",
		initial: func() setting { return new(list) }},
	{name: "label-from", of: lokis, tells: true,
		usage:   "loki: field `NAME` that becomes a label: of a JSON or logfmt line, or of the input, such as namespace; may be repeated (default: none)",
		initial: func() setting { return new(list) }},
	{name: "metadata", of: lokis,
		usage:   "loki: field `NAME` of a JSON or logfmt line that becomes structured metadata; may be repeated (default: none)",
		initial: func() setting { return new(list) }},
	{name: "tenant", of: lokis, tells: true, usage: "loki: `NAME` of the tenant, X-Scope-OrgID (default: none)",
		initial: func() setting { return new(text) }},
	{name: "bearer-token-file", ofFile: true, of: slices.Concat(lokis, otlps, https), usage: "loki, otlp, http: `FILE` with a bearer token; for http the token or API key of --api (default: none)",
		initial: func() setting { return new(text) }},
	{name: "max-age", of: lokis,
		usage:   "loki: age at which a line is too old; 0: only if Loki refuses it",
		initial: func() setting { return newDuration(7 * 24 * time.Hour) }},
	{name: "too-old", of: lokis,
		usage:   "loki: action for lines older than --max-age or than Loki accepts: write a dead letter, drop, or send with the current time",
		initial: func() setting { return &choice{value: "dead-letter", of: []string{"dead-letter", "drop", "now"}} }},

	{name: "resource", of: otlps, tells: true,
		usage:   "otlp: attribute of the resource, `NAME=VALUE` or NAME:VALUE; may be repeated (default service.name=forebay)",
		initial: func() setting { return new(list) }},

	{name: "api", of: https, words: httpAPIs,
		usage:   "http: `NAME` of the API of the server: ndjson, array, elasticsearch (also opensearch), hec (also splunk), victorialogs or datadog",
		initial: func() setting { return newText("ndjson") }},
	{name: "hec", of: https, tells: true,
		usage:   "http: Splunk metadata of each line, `NAME=VALUE`: host, source, sourcetype or index; may be repeated (default: none)",
		initial: func() setting { return new(list) }},
	{name: "no-id", of: https, usage: "http: do not send an _id to Elasticsearch; lines may then be stored twice",
		initial: func() setting { return new(toggle) }},
	{name: "header", of: https, delicate: true, usage: "http: header of each request, `NAME:VALUE`; may be repeated. Tokens go into --bearer-token-file (default: none)",
		initial: func() setting { return new(list) }},
	{name: "param", of: https, delicate: true, usage: "http: query parameter of the URL, `NAME=VALUE`; may be repeated (default: none)",
		initial: func() setting { return new(list) }},

	{name: "facility", of: syslogs, keyOnly: true, tells: true, initial: func() setting { return new(text) }},
	{name: "hostname", of: syslogs, keyOnly: true, tells: true, initial: func() setting { return new(text) }},
	{name: "app", of: syslogs, keyOnly: true, tells: true, initial: func() setting { return new(text) }},
	{name: "procid", of: syslogs, keyOnly: true, tells: true, initial: func() setting { return new(text) }},
	{name: "msgid", of: syslogs, keyOnly: true, tells: true, initial: func() setting { return new(text) }},
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

// check looks at settings that must fit together. The error is about the command line.
func (c *outputConfig) check() error {
	if total := int64(c.count("slabs")) * c.bytes("slab-size"); total > maxMemory {
		return fmt.Errorf("--slabs %d of --slab-size %s are %s of memory for each destination: use %s or less",
			c.count("slabs"), units.FlagSize(c.bytes("slab-size")), units.FlagSize(total), units.FlagSize(maxMemory))
	}
	if c.spills() && c.text("spool") == "" {
		return fmt.Errorf("--when-full spill needs a directory to spill to: add --spool DIR")
	}
	return nil
}

// spills reports whether lines go to the spool when the slabs are full.
func (c *outputConfig) spills() bool { return c.whenFull() == slab.Spill() }

// encoding returns what lines are delivered as.
func (c *outputConfig) encoding() record.Encoding {
	e, _ := record.ParseEncoding(c.text("encode"))
	return e
}

// keepsLines reports whether lines may be left for the next run.
func (c *outputConfig) keepsLines() bool { return c.text("spool") != "" || c.text("crash-safe") != "" }

// delivers reports whether an option says how it delivers, apart from --crash-safe.
func (c *outputConfig) delivers() bool {
	return c.text("fallback") != "" || c.text("spool") != "" || c.text("dead-letter") != "" || c.given["retry-age"]
}

// maxAge is deliver.RetryOptions.MaxAge.
func (c *outputConfig) maxAge() time.Duration {
	if age := c.duration("retry-age"); age != 0 {
		return age
	}
	return -1
}
