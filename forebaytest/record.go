package forebaytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/record"
)

// A Record is the captured result of one log call.
type Record struct {
	Time    time.Time  // zero if the line has none
	Level   slog.Level // slog.LevelInfo if the line has none
	Message string     // "" if the line has none
	// Source is the position of the call, such as "dir/file.go:12", or "".
	Source string
	// Attrs are the attributes by key. The key of an attribute in a group or object has the names
	// of the groups as a prefix, separated by dots: "http.status". Values have the types of JSON:
	// string, bool, nil, int64, uint64 for integers above the range of int64, float64, []any and,
	// for an empty object, map[string]any. A number with too many digits for these types is a
	// json.Number. If a key occurs several times, the last one counts.
	Attrs map[string]any
}

// line returns the record as one line of text.
func (r Record) line() string {
	var sb strings.Builder
	if !r.Time.IsZero() {
		sb.WriteString(r.Time.Local().Format("15:04:05.000 "))
	}
	fmt.Fprintf(&sb, "%-5v %s%s", r.Level, quoted(r.Message), pairs(r.Attrs))
	if r.Source != "" {
		sb.WriteString("  at " + r.Source)
	}
	return sb.String()
}

// pairs returns the attributes as text, sorted by key, each after a space.
func pairs(attrs map[string]any) string {
	var sb strings.Builder
	for _, key := range slices.Sorted(maps.Keys(attrs)) {
		fmt.Fprintf(&sb, " %s=%s", key, quoted(attrs[key]))
	}
	return sb.String()
}

// quoted returns v as JSON without escaping <, > and &.
func quoted(v any) string {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	// The text is for people, not for HTML.
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(buf.String(), "\n")
}

// parse returns the records in p, which another logger has written.
func parse(p []byte) []Record {
	p = bytes.TrimRight(p, "\r\n")
	// A logger may write several records at once. Only JSON is split at newlines, because a text
	// may have several lines.
	first, rest, several := bytes.Cut(p, []byte{'\n'})
	if several && record.IsObject(first) {
		return append(parse(first), parse(bytes.TrimLeft(rest, "\r\n"))...)
	}
	parser := record.Parser{Location: time.Local}
	var ev record.Event
	parser.Parse(p, &ev)
	rec := Record{Time: ev.Time, Level: ev.Level, Attrs: map[string]any{}}
	var attrs []slog.Attr
	rec.Message, attrs = ev.Fields()
	for _, a := range attrs {
		// slog writes the position under "source", zap and zerolog under "caller".
		if rec.Source == "" && (a.Key == slog.SourceKey || a.Key == "caller") {
			if rec.Source = source(a.Value); rec.Source != "" {
				continue
			}
		}
		flatten(rec.Attrs, a.Key, a.Value)
	}
	return []Record{rec}
}

// goFile matches a source position: the path of a Go file and a line.
var goFile = regexp.MustCompile(`^\S+\.go:\d+$`)

// source returns the source position in v, with at most one directory, or "" if v has none. slog
// writes the position as a group, and other loggers write a text.
func source(v slog.Value) string {
	s := v.String()
	if v.Kind() == slog.KindGroup {
		var file, line string
		for _, a := range v.Group() {
			switch a.Key {
			case "file":
				file = a.Value.String()
			case "line":
				line = a.Value.String()
			}
		}
		s = file + ":" + line
	}
	if !goFile.MatchString(s) {
		return ""
	}
	if parts := strings.Split(s, "/"); len(parts) > 2 {
		s = strings.Join(parts[len(parts)-2:], "/")
	}
	return s
}

// flatten adds the value v with its key to attrs. For a group, it adds the members, with the key
// and a dot before their keys.
func flatten(attrs map[string]any, key string, v slog.Value) {
	if v.Kind() != slog.KindGroup {
		attrs[key] = plain(v.Any())
		return
	}
	for _, a := range v.Group() {
		flatten(attrs, key+"."+a.Key, a.Value)
	}
}

// plain converts the value of an attribute from package record to one of the types in Record.Attrs.
func plain(v any) any {
	if n, ok := v.(json.Number); ok {
		return number(n)
	}
	raw, ok := v.(json.RawMessage)
	if !ok {
		return v
	}
	switch raw[0] {
	case 'n':
		return nil
	// Package record returns an object with members as a group, so this object is empty.
	case '{':
		return map[string]any{}
	}
	var elems []json.RawMessage
	if err := json.Unmarshal(raw, &elems); err != nil {
		return string(raw)
	}
	list := make([]any, len(elems))
	for i, e := range elems {
		list[i] = element(e)
	}
	return list
}

// maxExactDigits is the number of decimal digits that a float64 always represents exactly.
const maxExactDigits = 15

// number returns the value of a number in an unusual notation, such as 1.10 or 1e3.
func number(n json.Number) any {
	f, err := n.Float64()
	// A longer number stays a json.Number, which keeps all digits.
	if err != nil || len(n) > maxExactDigits {
		return n
	}
	if i := int64(f); float64(i) == f {
		return i
	}
	return f
}

// element returns an element of a list. An object becomes a map with the keys of Record.Attrs.
func element(e json.RawMessage) any {
	a := record.Attrs(slices.Concat([]byte(`{"e":`), e, []byte{'}'}))[0]
	if a.Value.Kind() != slog.KindGroup {
		return plain(a.Value.Any())
	}
	attrs := map[string]any{}
	for _, m := range a.Value.Group() {
		flatten(attrs, m.Key, m.Value)
	}
	return attrs
}

// wantScope encodes the attributes that a test expects. An error is encoded as its text.
var wantScope = encode.JSON(&encode.Options{TimeKey: "-", LevelKey: "-", MessageKey: "-", Errors: "text"}).Scope()

// A pattern is the record that a test expects.
type pattern struct{ Record }

// patternFor returns the pattern for the arguments of Want. It encodes and parses them like the
// attributes of a captured record, so that the results can be compared.
func (r *Recorder) patternFor(level slog.Level, msg string, args []any) pattern {
	r.t.Helper()
	p := pattern{Record{Level: level, Message: msg, Attrs: map[string]any{}}}
	var rec slog.Record
	rec.Add(args...)
	var enc encode.Record
	rec.Attrs(func(a slog.Attr) bool {
		enc.Attrs = append(enc.Attrs, a)
		return true
	})
	// The wanted values pass through the same encoder and parser as the captured ones, so their
	// types agree.
	line, _, err := wantScope.Append(nil, &enc)
	if err != nil {
		r.t.Fatalf("cannot encode the wanted attributes: %v", err)
	}
	for _, a := range record.Attrs(line) {
		flatten(p.Attrs, a.Key, a.Value)
	}
	return p
}

// matches reports whether rec has the level, the message and at least the attributes of the
// pattern.
func (p pattern) matches(rec Record) bool {
	return rec.Level == p.Level && rec.Message == p.Message && len(p.differences(rec)) == 0
}

// differences returns the differences between the attributes of p and rec, as lines of text.
func (p pattern) differences(rec Record) (lines []string) {
	for _, key := range slices.Sorted(maps.Keys(p.Attrs)) {
		got, ok := rec.Attrs[key]
		switch want := p.Attrs[key]; {
		case !ok:
			lines = append(lines, fmt.Sprintf("%s: missing, want %s", key, quoted(want)))
		case !reflect.DeepEqual(got, want):
			lines = append(lines, fmt.Sprintf("%s: %s, want %s", key, quoted(got), quoted(want)))
		}
	}
	return lines
}

// explain describes the pattern and the most similar record, for a failed test.
func (p pattern) explain(records []Record) string {
	s := "\n    " + p.line()
	if len(records) == 0 {
		return s + "\nnothing was logged"
	}
	var nearest Record
	best := -1
	for _, rec := range records {
		score := len(p.Attrs) - len(p.differences(rec))
		// An equal message counts more than an equal level, which counts more than all attributes.
		if rec.Message == p.Message {
			score += 1 << 20
		}
		if rec.Level == p.Level {
			score += 1 << 10
		}
		if score > best {
			best, nearest = score, rec
		}
	}
	s += fmt.Sprintf("\nthe nearest of %d:\n    %s", len(records), nearest.line())
	if nearest.Level != p.Level {
		s += fmt.Sprintf("\n        level: %v, want %v", nearest.Level, p.Level)
	}
	if nearest.Message != p.Message {
		s += fmt.Sprintf("\n        message: %s, want %s", quoted(nearest.Message), quoted(p.Message))
	}
	for _, line := range p.differences(nearest) {
		s += "\n        " + line
	}
	return s
}
