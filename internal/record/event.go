// Package record parses the standard output of programs line by line: JSON objects, logfmt or plain
// text. It detects the level and the time of a line and converts the line to another format without
// losing or changing data.
package record

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/forebay-log/forebay/internal/stamp"
)

// A Format is the input format of a line.
type Format uint8

// The formats.
const (
	Auto Format = iota // detect for each line
	JSON
	Logfmt
	Text
)

// formatNames has the names that the configuration uses, in the order of the formats.
var formatNames = []string{"auto", "json", "logfmt", "text"}

// Formats returns the names of the formats.
func Formats() []string { return formatNames }

// String returns the name.
func (f Format) String() string { return formatNames[f] }

// ParseFormat is the inverse of String. The error lists the names.
func ParseFormat(s string) (Format, error) {
	for i, name := range formatNames {
		if s == name {
			return Format(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not one of auto, json, logfmt, text", s)
}

// An Event is a parsed line. Its slices share the memory of the line.
type Event struct {
	Raw  []byte // the line as received, with its end of line
	Line []byte // without the end of line

	// Format is the detected format: JSON, Logfmt or Text.
	Format Format
	// Level is valid if HasLevel is set.
	Level    slog.Level
	HasLevel bool
	// Time is zero if the line has no time, or if the time has no year and Parser.Now is nil.
	Time time.Time
	// More has further fields that the input supplies. Parse sets it to nil.
	More []slog.Attr

	levelKey, timeKey []byte // names of the fields that Level and Time come from
	// number of later fields with these names whose values are invalid; Fields skips them
	notLevels, notTimes int
	ascii               bool // the JSON line is ASCII only
}

// Fields returns the content of a JSON or logfmt line without level and time: the message, from the
// field msg or message, and the other fields in order. Of several fields with the same name, the
// last is used. A text line has only a message.
func (ev *Event) Fields() (msg string, attrs []slog.Attr) {
	switch ev.Format {
	case JSON:
		attrs = Attrs(ev.Line)
	case Logfmt:
		attrs = logfmtAttrs(ev.Line)
	default:
		return string(ev.Line), nil
	}
	take := func(key []byte, skip int) (text string) {
		for i := len(attrs) - 1; i >= 0 && len(key) > 0; i-- {
			if a := attrs[i]; a.Key != string(key) {
			} else if skip > 0 {
				skip--
			} else {
				attrs = slices.Delete(attrs, i, i+1)
				return a.Value.String()
			}
		}
		return ""
	}
	take(ev.levelKey, ev.notLevels)
	take(ev.timeKey, ev.notTimes)
	for _, a := range attrs {
		if (a.Key == "msg" || a.Key == "message") && a.Value.Kind() == slog.KindString {
			return take([]byte(a.Key), 0), attrs
		}
	}
	return "", attrs
}

// HasTimeField reports whether a field of a JSON or logfmt line is the time. It returns false for a
// line of auditd, whose time is part of the field msg.
func (ev *Event) HasTimeField() bool { return ev.timeKey != nil }

// A Parser parses lines. It is not safe for concurrent use.
type Parser struct {
	// Format is the expected format of the lines. With Auto, the format is detected for each line.
	Format Format
	// Location is the location of times without a zone. Nil means time.Local.
	Location *time.Location
	// Now, if not nil, determines the year of times without one. It is the latest year in which the
	// time is at most one day in the future. A number at the beginning of a text line is a time
	// only if it is close to Now, or to time.Now if Now is nil.
	Now func() time.Time
	// Unparsed counts the lines that did not have the expected Format and became text.
	Unparsed uint64
}

// Parse sets ev to the content of one line. raw contains the line with its end of line. Parse
// accepts every line: input that is neither JSON nor logfmt is text. ev shares the memory of raw.
func (p *Parser) Parse(raw []byte, ev *Event) {
	ev.reset(raw, TrimEnd(raw))
	if p.Format == Auto || p.Format == JSON {
		s := scan{p: p, ev: ev}
		if s.line(ev.Line) {
			ev.Format, ev.ascii = JSON, !s.nonASCII
			return
		}
	}
	if p.Format == Auto || p.Format == Logfmt {
		if ev.HasLevel || !ev.Time.IsZero() { // members of invalid JSON have set level or time
			ev.reset(raw, ev.Line)
		}
		if p.logfmt(ev, p.Format == Logfmt) {
			return
		}
	}
	if p.Format != Text && p.Format != Auto {
		p.Unparsed++
	}
	if p.Format != Text {
		ev.reset(raw, ev.Line) // drops level and time of these members
	}
	at, timed := stamp.FindText(ev.Line, p.location(), p.Now)
	if timed {
		ev.Time = p.timeOf(&at)
	}
	if f := textLevel(ev.Line, &at); f.why != "" {
		ev.Level, ev.HasLevel = f.level, true
	}
}

// reset sets ev to a line of text without a time and a level. It is faster than copying an Event.
func (ev *Event) reset(raw, line []byte) {
	*ev = Event{}
	ev.Raw, ev.Line, ev.Format = raw, line, Text
}

// ParseAs sets ev to the content of raw[:n], which must be a valid line of format f. raw[n:] is the
// end of line. For text it sets neither level nor time.
func (p *Parser) ParseAs(f Format, raw []byte, n int, ev *Event) {
	*ev = Event{Raw: raw, Line: raw[:n:n], Format: f}
	switch f {
	case JSON:
		s := scan{p: p, ev: ev}
		s.line(ev.Line)
		ev.ascii = !s.nonASCII
	case Logfmt:
		p.logfmt(ev, true)
	}
}

// Rewrite replaces the line of ev with the changed line, which was parsed into changed. before is
// the original line, parsed in the same way. If the change affected the level or the time, ev gets
// the new value. Otherwise it keeps its value, which the input may have supplied. ev also keeps
// ev.More.
func (ev *Event) Rewrite(before, changed *Event) {
	old := *ev
	*ev = *changed
	ev.More = old.More
	if !changed.HasLevel || before.HasLevel && before.Level == changed.Level {
		ev.Level, ev.HasLevel = old.Level, old.HasLevel
	}
	if changed.Time.IsZero() || before.Time.Equal(changed.Time) {
		ev.Time = old.Time
	}
}

// Note sets the level of ev if name is "level", or its time if name is "time". It returns false for
// other names and for an invalid value.
func (p *Parser) Note(ev *Event, name, value string) bool {
	var found Event
	if name == slog.LevelKey || name == slog.TimeKey {
		p.field(&found, []byte(name), []byte(value), true)
	}
	switch {
	case found.HasLevel:
		ev.Level, ev.HasLevel = found.Level, true
	case !found.Time.IsZero():
		ev.Time = found.Time
	default:
		return false
	}
	return true
}

// timeOf returns the time of a match. If the match has no year, timeOf adds it, or returns the zero
// time if Now is nil.
func (p *Parser) timeOf(m *stamp.Match) time.Time {
	switch {
	case !m.Yearless:
		return m.Time
	case p.Now == nil:
		return time.Time{}
	}
	return m.In(p.Now().Add(24 * time.Hour))
}

// TrimEnd returns the line without "\n" or "\r\n".
func TrimEnd(raw []byte) []byte {
	n := len(raw)
	if n > 0 && raw[n-1] == '\n' {
		if n--; n > 0 && raw[n-1] == '\r' {
			n--
		}
	}
	return raw[:n:n] // limits the capacity, so that appending does not modify raw
}

// location returns the location of times without a zone.
func (p *Parser) location() *time.Location {
	if p.Location == nil {
		return time.Local
	}
	return p.Location
}

// IsObject reports whether line is one JSON object.
func IsObject(line []byte) bool {
	var s scan
	return s.line(line)
}

// logfmt sets the fields of ev and reports whether its line consists of key=value pairs. sure
// reports whether the line is expected to be logfmt. If so, one pair is sufficient, and words
// without a value are allowed. If not, the line needs two pairs or a key that is common in logs,
// because text can contain an equals sign.
func (p *Parser) logfmt(ev *Event, sure bool) bool {
	count, bare, known := 0, 0, false
	ok := pairs(ev.Line, func(key, value []byte) bool {
		if value == nil {
			bare++
		} else {
			count++
			known = known || isLevelKey(key) || isTimeKey(key) || string(key) == "msg" || string(key) == "message"
		}
		if ev.mayTake(key) {
			p.field(ev, key, unquoted(value), true)
		}
		return sure || bare == 0
	})
	ev.Format = Logfmt
	return ok && count > 0 && (sure || known || count > 1)
}

// mayTake reports whether a field with the given key may set the level or the time. This is the
// case if the level or the time is not set yet, or was set by a field with the same key.
func (ev *Event) mayTake(key []byte) bool {
	return ev.levelKey == nil || ev.timeKey == nil || equalKeys(key, ev.levelKey) || equalKeys(key, ev.timeKey)
}

// equalKeys reports whether a and b are equal. b must not be empty. It is inlined, and calls no
// function for most keys.
func equalKeys(a, b []byte) bool {
	return len(a) == len(b) && a[len(a)-1] == b[len(b)-1] && string(a) == string(b)
}

// field sets the level or time of ev if key is a common name for it and value is valid. If several
// such names occur, the first one is used. If a name occurs several times, its last value is used,
// as in most JSON parsers. number allows a Unix time: a number of seconds, milliseconds and so on.
func (p *Parser) field(ev *Event, key, value []byte, number bool) {
	switch {
	case isLevelKey(key) && (!ev.HasLevel || string(key) == string(ev.levelKey)):
		if l, ok := fieldLevel(key, value); ok {
			ev.Level, ev.HasLevel, ev.levelKey, ev.notLevels = l, true, key, 0
		} else {
			ev.notLevels++
		}
	case isTimeKey(key) && (ev.timeKey == nil || string(key) == string(ev.timeKey)):
		var t time.Time
		if at, ok := stamp.Find(value, p.location()); ok {
			t = p.timeOf(&at)
		} else if number {
			t, _ = stamp.FromNumber(string(value))
		}
		if !t.IsZero() {
			ev.Time, ev.timeKey, ev.notTimes = t, key, 0
		} else {
			ev.notTimes++
		}
	case ev.Time.IsZero() && string(key) == "msg" && bytes.HasPrefix(value, audit): // the time of a line of auditd
		if at, ok := stamp.Find(value, time.UTC); ok {
			ev.Time = at.Time
		}
	}
}

// audit is the beginning of the field msg in a line of auditd. The time follows, in seconds since
// 1970.
var audit = []byte("audit(")

// isTimeKey reports whether key is the time field of slog, zap, zerolog, logrus, pino, bunyan,
// Serilog, logstash, ECS or journald.
func isTimeKey(key []byte) bool {
	switch string(key) {
	case "time", "Time", "ts", "timestamp", "Timestamp", "@timestamp", "@t", "t", "datetime", "asctime", "eventTime", "__REALTIME_TIMESTAMP",
		inputPrefix + "time":
		return true
	}
	return false
}

// unquoted removes the quotes of a string but keeps escapes, which level names and times do not
// contain.
func unquoted(b []byte) []byte {
	if len(b) >= 2 && b[0] == '"' {
		return b[1 : len(b)-1]
	}
	return b
}
