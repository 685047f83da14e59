package transform

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/record"
)

// A format describes the lines of one program that Parse can read. Package record recognizes the
// time in these lines. It also recognizes the level, unless the field levels is set.
type format struct {
	templates []template                       // the first matching template is used; nil if read is set
	read      func(c *Chain, text []byte) bool // sets c.values; nil if templates is set
	encoding  record.Format                    // Parse decodes JSON and Logfmt as such, and uses templates or read for Text
	levels    map[string]slog.Level            // level of each word for a level; nil if package record recognizes the words
	status    bool                             // the field status is an HTTP status that determines the level
}

// ParseFormats returns the values of Parse.Format.
func ParseFormats() []string { return slices.Sorted(maps.Keys(formatTable())) }

// templates parses each text as a template. It panics if a text is invalid.
func templates(texts ...string) (all []template) {
	for _, t := range texts {
		all = append(all, newTemplate(t))
	}
	return all
}

// access contains templates for the access logs of nginx and Apache httpd in the formats combined,
// common and vhost_combined. A request line that is not valid HTTP becomes the field request. The
// form {user:...} matches a user name that contains spaces.
var access = combinations(
	[]string{`{client} {-} {user} [{time:...}] `, `{client} - {user:...} [{time:...}] `, `{vhost} {client} {-} {user} [{time:...}] `},
	[]string{
		`"{method} {path} {protocol}" {status:int} {bytes:int} "{referer:quoted}" "{agent:quoted}"{-:*}`,
		`"{request:quoted}" {status:int} {bytes:int} "{referer:quoted}" "{agent:quoted}"{-:*}`,
		`"{method} {path} {protocol}" {status:int} {bytes:int}`,
		`"{request:quoted}" {status:int} {bytes:int}`,
	})

// haproxy contains templates for the lines of `option httplog` and `option tcplog` without the
// syslog header.
var haproxy = []string{
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{-}/{-}/{duration_ms:int} {status:int} {bytes:int} {-} {-} {termination} {-} {-} {-:...}"{method} {path} {protocol}"{-:*}`,
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{-}/{-}/{duration_ms:int} {status:int} {bytes:int} {-} {-} {termination} {-} {-} "{method} {path} {protocol}"{-:*}`,
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{-}/{-}/{duration_ms:int} {status:int} {bytes:int} {-} {-} {termination} {-} {-} {-:...}"{request:quoted}"{-:*}`,
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{-}/{-}/{duration_ms:int} {status:int} {bytes:int} {-} {-} {termination} {-} {-} "{request:quoted}"{-:*}`,
	`{client} [{time:...}] {frontend} {backend}/{server} {-}/{-}/{duration_ms:int} {bytes:int} {termination} {-} {-}{-:*}`,
}

// formatTable returns the formats by their names.
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
		"haproxy": {status: true, encoding: record.Text, templates: templates(combinations([]string{"", `{-:...} haproxy[{pid:int}]: `}, haproxy)...)},
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
			`{-} {time} {thread:int} [{level}] {msg:*}`, // lines of MariaDB
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

// maxParams is the maximum number of structured data parameters of a syslog line that become
// fields. The syslog input has the same limit.
const maxParams = 128

// readSyslog sets c.values to the fields of a syslog line. It returns false if text is not such a
// line.
func (c *Chain) readSyslog(text []byte) bool {
	c.syslog.MaxLabels, c.syslog.Zone = maxParams, time.UTC // the zone has no effect: package record reads the time
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

// combinations returns all texts that consist of a beginning and an end.
func combinations(beginnings, ends []string) (all []string) {
	for _, b := range beginnings {
		for _, e := range ends {
			all = append(all, b+e)
		}
	}
	return all
}
