package transform

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/record"
)

// A format is a named format of Parse. The time and the level of its lines are recognized by
// package record, unless levels has the level's word.
type format struct {
	templates []template                       // alternatives: the first match counts
	read      func(c *Chain, text []byte) bool // sets c.values; nil: templates
	encoding  record.Format                    // JSON or Logfmt: the text is a line of that format; else Text
	levels    map[string]slog.Level            // nil: the levels that package record recognizes
	status    bool                             // an access log: the status sets the level
}

// ParseFormats returns the values of Parse.Format.
func ParseFormats() []string { return slices.Sorted(maps.Keys(formatTable())) }

func templates(texts ...string) (all []template) {
	for _, t := range texts {
		all = append(all, newTemplate(t))
	}
	return all
}

// access has the lines that nginx and Apache httpd write for a request, in the formats combined,
// common and vhost_combined. A request that is not HTTP is the field request. The name of a user
// rarely contains spaces.
var access = crossed(
	[]string{`{client} {-} {user} [{time:...}] `, `{client} - {user:...} [{time:...}] `, `{vhost} {client} {-} {user} [{time:...}] `},
	[]string{
		`"{method} {path} {protocol}" {status:int} {bytes:int} "{referer:quoted}" "{agent:quoted}"{-:*}`,
		`"{request:quoted}" {status:int} {bytes:int} "{referer:quoted}" "{agent:quoted}"{-:*}`,
		`"{method} {path} {protocol}" {status:int} {bytes:int}`,
		`"{request:quoted}" {status:int} {bytes:int}`,
	})

// haproxy has the lines of `option httplog` and `option tcplog`, without the header of syslog.
var haproxy = []string{
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{-}/{-}/{duration_ms:int} {status:int} {bytes:int} {-} {-} {termination} {-} {-} {-:...}"{method} {path} {protocol}"{-:*}`,
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{-}/{-}/{duration_ms:int} {status:int} {bytes:int} {-} {-} {termination} {-} {-} "{method} {path} {protocol}"{-:*}`,
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{-}/{-}/{duration_ms:int} {status:int} {bytes:int} {-} {-} {termination} {-} {-} {-:...}"{request:quoted}"{-:*}`,
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{-}/{-}/{duration_ms:int} {status:int} {bytes:int} {-} {-} {termination} {-} {-} "{request:quoted}"{-:*}`,
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{duration_ms:int} {bytes:int} {termination} {-} {-}{-:*}`,
}

var formatTable = sync.OnceValue(func() map[string]format {
	return map[string]format{
		"json":   {encoding: record.JSON},
		"logfmt": {encoding: record.Logfmt},
		"nginx": {status: true, encoding: record.Text, templates: templates(slices.Concat(access, []string{
			`{time:...} [{level}] {pid:int}#{tid:int}: *{connection:int} {msg:whole}, client: {client}, {-:*}`,
			`{time:...} [{level}] {pid:int}#{tid:int}: *{connection:int} {msg:whole}, client: {client}`,
			`{time:...} [{level}] {pid:int}#{tid:int}: *{connection:int} {msg:*}`,
			`{time:...} [{level}] {pid:int}#{tid:int}: {msg:*}`,
		})...)},
		"apache": {status: true, encoding: record.Text, templates: templates(slices.Concat(access, []string{
			`[{time:...}] [{module}:{level}] [pid {pid:int}:tid {tid:int}] [client {client}] {msg:*}`,
			`[{time:...}] [{module}:{level}] [pid {pid:int}:tid {tid:int}] {msg:whole}: [client {client}] {-:*}`,
			`[{time:...}] [{module}:{level}] [pid {pid:int}:tid {tid:int}] {msg:*}`,
			`[{time:...}] [{module}:{level}] [pid {pid:int}] [client {client}] {msg:*}`,
			`[{time:...}] [{module}:{level}] [pid {pid:int}] {msg:whole}: [client {client}] {-:*}`,
			`[{time:...}] [{module}:{level}] [pid {pid:int}] {msg:*}`,
			`[{time:...}] [{level}] [client {client}] {msg:*}`,
			`[{time:...}] [{level}] {msg:whole}: [client {client}] {-:*}`,
			`[{time:...}] [{level}] {msg:*}`,
		})...)},
		"haproxy": {status: true, encoding: record.Text, templates: templates(crossed([]string{"", `{-:...} haproxy[{pid:int}]: `}, haproxy)...)},
		"postgres": {encoding: record.Text, templates: templates(
			`{time:...} [{pid:int}] {user}@{database} {level}:  {msg:*}`,
			`{time:...} [{pid:int}] {level}:  {msg:*}`,
		), levels: map[string]slog.Level{
			"DEBUG1": slog.LevelDebug, "DEBUG2": slog.LevelDebug, "DEBUG3": slog.LevelDebug, "DEBUG4": slog.LevelDebug, "DEBUG5": slog.LevelDebug,
			"INFO": slog.LevelInfo, "NOTICE": slog.LevelInfo, "LOG": slog.LevelInfo, "DETAIL": slog.LevelInfo, "HINT": slog.LevelInfo,
			"CONTEXT": slog.LevelInfo, "STATEMENT": slog.LevelInfo, "QUERY": slog.LevelInfo, "LOCATION": slog.LevelInfo, "WARNING": slog.LevelWarn,
			"ERROR": slog.LevelError, "FATAL": record.Fatal, "PANIC": record.Fatal,
		}},
		"mysql": {encoding: record.Text, templates: templates(
			`{time} {thread:int} [{level}] [{code}] [{subsystem}] {msg:*}`,
			`{time} {thread:int} [{level}] {msg:*}`,
			`{-} {time} {thread:int} [{level}] {msg:*}`, // MariaDB
		), levels: map[string]slog.Level{
			"System": slog.LevelInfo, "Note": slog.LevelInfo, "Warning": slog.LevelWarn, "ERROR": slog.LevelError, "Error": slog.LevelError,
		}},
		"redis": {encoding: record.Text, templates: templates(
			`{pid:int}:{role} {-} {-} {-} {-} {level} {msg:*}`,
		), levels: map[string]slog.Level{
			".": slog.LevelDebug, "-": slog.LevelDebug, "*": slog.LevelInfo, "#": slog.LevelWarn,
		}},
		"klog": {encoding: record.Text, templates: templates(
			`{-} {time} {-:spaces}{pid:int} {source}:{line:int}] {msg:*}`,
		)},
		"syslog": {encoding: record.Text, read: (*Chain).readSyslog},
	}
})

// maxParams is the maximum number of parameters of structured data that become fields, as in the syslog
// input.
const maxParams = 128

// readSyslog sets c.values to the fields of a line of syslog.
func (c *Chain) readSyslog(text []byte) bool {
	c.syslog.MaxLabels, c.syslog.Zone = maxParams, time.UTC // the zone is not used: package record reads the time
	r, ok := c.syslog.Line(text, time.Time{})
	if !ok {
		return false
	}
	c.values = c.values[:0]
	add := func(name, text string) {
		c.values = append(c.values, value{group{name: name}, []byte(text)})
	}
	for _, l := range r.Labels {
		add(l.Name, l.Value)
	}
	if r.Tag != "" {
		add("app", r.Tag)
	}
	for _, l := range r.Metadata {
		add(l.Name, l.Value)
	}
	c.values = append(c.values, value{group{slog.MessageKey, messageKind}, r.Body})
	return true
}

// crossed returns each beginning with each end.
func crossed(beginnings, ends []string) (all []string) {
	for _, b := range beginnings {
		for _, e := range ends {
			all = append(all, b+e)
		}
	}
	return all
}
