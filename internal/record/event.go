// Package record reads what programs write to their standard output, line by
// line: JSON objects, logfmt, or plain text. It finds the level and the time of a
// line and writes it in another form, without losing or changing what it says.
package record

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/forebay-log/forebay/internal/stamp"
)

// A Format is what a line is written in.
type Format uint8

// The formats.
const (
	Auto Format = iota // find out for each line
	JSON
	Logfmt
	Text
)

var formatNames = []string{"auto", "json", "logfmt", "text"}

// Formats returns the names of the formats.
func Formats() []string { return formatNames }

// String returns the name.
func (f Format) String() string { return formatNames[f] }

// ParseFormat is the inverse of String.
func ParseFormat(s string) (Format, error) {
	for i, name := range formatNames {
		if s == name {
			return Format(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not one of auto, json, logfmt, text", s)
}

// An Event is one line and what is known of it. Its slices share the memory of
// the line that was parsed.
type Event struct {
	Raw  []byte // as it came, with its end
	Line []byte // without its end

	// Format is what the line is: JSON, Logfmt or Text.
	Format Format
	// Level is known if HasLevel.
	Level    slog.Level
	HasLevel bool
	// Time is zero if the line has none, or one without a year that Parser.Now cannot
	// tell.
	Time time.Time
	// More is what is known of the line besides. Parse leaves it nil.
	More []slog.Attr

	levelKey, timeKey   []byte // the names that Level and Time were found at
	notLevels, notTimes int    // fields of that name after them, whose values are none
	ascii               bool   // a line of JSON holds nothing else
}

// Fields returns what a line of JSON or logfmt says apart from its level and time: the
// message, which is the field msg or message, and the others in their order. The last of
// fields with one name counts. Of text all is message.
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

// A Parser reads lines. It is not for concurrent use.
type Parser struct {
	// Format is what lines are expected to be.
	Format Format
	// Location is what times without a zone are in. Nil means time.Local.
	Location *time.Location
	// Now, if not nil, gives a year to times without one: the last one in which they are
	// not more than a day in the future. A number at the beginning of text is a time only
	// near it; there nil means time.Now.
	Now func() time.Time
	// Unparsed counts lines that were not of the expected Format and were taken
	// for text.
	Unparsed uint64
}

// Parse fills ev from one line. Every line is something: what is neither JSON
// nor logfmt is text.
func (p *Parser) Parse(raw []byte, ev *Event) {
	*ev = Event{Raw: raw, Line: TrimEnd(raw), Format: Text}
	if p.Format == Auto || p.Format == JSON {
		s := scan{p: p, ev: ev}
		if s.line(ev.Line) {
			ev.Format, ev.ascii = JSON, s.high&highs == 0
			return
		}
	}
	if p.Format == Auto || p.Format == Logfmt {
		if ev.HasLevel || !ev.Time.IsZero() { // from members of invalid JSON
			*ev = Event{Raw: raw, Line: ev.Line}
		}
		if p.logfmt(ev, p.Format == Logfmt) {
			return
		}
	}
	if p.Format != Text && p.Format != Auto {
		p.Unparsed++
	}
	*ev = Event{Raw: raw, Line: ev.Line, Format: Text} // without level and time of a first field
	at, timed := stamp.FindText(ev.Line, p.location(), p.Now)
	if timed {
		ev.Time = p.timeOf(&at)
	}
	if f := textLevel(ev.Line, &at); f.why != "" {
		ev.Level, ev.HasLevel = f.level, true
	}
}

// ParseAs fills ev from the first n bytes of raw, which are a line of that Format, valid as
// such; what is behind them is its end. Of text it says neither level nor time.
func (p *Parser) ParseAs(f Format, raw []byte, n int, ev *Event) {
	*ev = Event{Raw: raw, Line: raw[:n:n], Format: f}
	switch f {
	case JSON:
		s := scan{p: p, ev: ev}
		s.line(ev.Line)
		ev.ascii = s.high&highs == 0
	case Logfmt:
		p.logfmt(ev, true)
	}
}

// Rewrite puts the line of now in place of that of ev, which was that of before. A level
// or time that is another one in the new line is that of ev from then on. Otherwise it
// stays, and so does all that is known besides: an input may know better than the line.
func (ev *Event) Rewrite(before, now *Event) {
	old := *ev
	*ev = *now
	ev.More = old.More
	if !now.HasLevel || before.HasLevel && before.Level == now.Level {
		ev.Level, ev.HasLevel = old.Level, old.HasLevel
	}
	if now.Time.IsZero() || before.Time.Equal(now.Time) {
		ev.Time = old.Time
	}
}

// Note makes value the level of ev if name is "level", or its time if it is "time". It reports
// false where value is none, and for other names.
func (p *Parser) Note(ev *Event, name, value string) bool {
	var said Event
	if name == slog.LevelKey || name == slog.TimeKey {
		p.field(&said, []byte(name), []byte(value), true)
	}
	switch {
	case said.HasLevel:
		ev.Level, ev.HasLevel = said.Level, true
	case !said.Time.IsZero():
		ev.Time = said.Time
	default:
		return false
	}
	return true
}

// timeOf returns the time of a match, with its year.
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
	return raw[:n:n] // so that appending to it leaves raw alone
}

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

// logfmt fills ev and reports whether its line consists of key=value pairs. If sure, one pair
// is enough, and words without a value are allowed. Otherwise the line needs a usual key of log
// lines or two pairs, because text has an equals sign now and then.
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

// mayTake reports whether a field may be the level or time: they are not known yet, or the
// field has the name of one.
func (ev *Event) mayTake(key []byte) bool {
	return ev.levelKey == nil || ev.timeKey == nil || string(key) == string(ev.levelKey) || string(key) == string(ev.timeKey)
}

// field sets level or time if key is a usual name of one and value is one. The first such name
// wins, and the last field with that name, as in most readers of JSON.
func (p *Parser) field(ev *Event, key, value []byte, number bool) {
	switch {
	case isLevelKey(key) && (!ev.HasLevel || string(key) == string(ev.levelKey)):
		if l, ok := fieldLevel(key, value); ok {
			ev.Level, ev.HasLevel, ev.levelKey, ev.notLevels = l, true, key, 0
		} else {
			ev.notLevels++
		}
	case isTimeKey(key) && (ev.Time.IsZero() || string(key) == string(ev.timeKey)):
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
	case ev.Time.IsZero() && string(key) == "msg" && bytes.HasPrefix(value, audit): // of auditd
		if at, ok := stamp.Find(value, time.UTC); ok {
			ev.Time = at.Time
		}
	}
}

var audit = []byte("audit(")

// isTimeKey knows the names that slog, zap, zerolog, logrus, pino, bunyan, Serilog,
// logstash, ECS and journald use.
func isTimeKey(key []byte) bool {
	switch string(key) {
	case "time", "Time", "ts", "timestamp", "Timestamp", "@timestamp", "@t", "t", "datetime", "asctime", "eventTime", "__REALTIME_TIMESTAMP",
		besides + "time":
		return true
	}
	return false
}

// unquoted strips the quotes of a string and leaves escapes as they are: names
// of levels and times have none.
func unquoted(b []byte) []byte {
	if len(b) >= 2 && b[0] == '"' {
		return b[1 : len(b)-1]
	}
	return b
}
