package transform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/values"
)

// parseTypes contains the types that Parse.Types may give to a group.
var parseTypes = []string{"int", "float", "bool"}

// onError contains the valid values of Parse.OnError.
var onError = []string{"keep", "drop", "tag"}

// parseErrorField is the field that the action tag adds to records that do not match.
const parseErrorField = "parse_error"

// check validates and compiles p. It calls the function fault for each error.
func (p *Parse) check(fault func(field, format string, args ...any)) *parseRule {
	c := &parseRule{name: "regex", field: p.Field, layout: p.TimeLayout, onError: p.OnError, format: format{encoding: record.Text}}
	if c.field == "" {
		c.field = messageField
	}
	if c.onError == "" {
		c.onError = onError[0]
	}
	if !slices.Contains(onError, c.onError) {
		fault("parse.on_error", "%q is not one of %s", p.OnError, strings.Join(onError, ", "))
	}
	switch {
	case p.Regex == "" && p.Format == "", p.Regex != "" && p.Format != "":
		fault("parse", "write either a regex or a format")
		return c
	case p.Format != "":
		f, ok := formatTable()[p.Format]
		if !ok {
			fault("parse.format", "%q is not one of %s", p.Format, strings.Join(ParseFormats(), ", "))
			return c
		}
		if len(p.Types) > 0 || p.Time != "" || p.Level != "" || p.TimeLayout != "" {
			fault("parse", "types, time, level and time-layout belong to a regex; the format %s defines them", p.Format)
		}
		c.name, c.format = p.Format, f
	default:
		c.checkRegex(p, fault)
	}
	c.tag = fieldsOf([]Setting{{parseErrorField, c.name}})
	return c
}

// checkRegex compiles the regular expression of p and sets c.re and c.groups.
func (c *parseRule) checkRegex(p *Parse, fault func(field, format string, args ...any)) {
	re, err := regexp.Compile(p.Regex)
	if err != nil {
		fault("parse.regex", "%s", regexFault(p.Regex, err))
		return
	}
	if name, at := repeated(p.Regex); at >= 0 {
		fault("parse.regex", "%stwo groups have the name %s", column(p.Regex, at), name)
		return
	}
	names := re.SubexpNames()
	if !slices.ContainsFunc(names, func(s string) bool { return s != "" }) {
		fault("parse.regex", "it has no named group; write (?P<status>[0-9]+) for a field status")
		return
	}
	checkGroup := func(key, name string) {
		if name != "" && !slices.Contains(names, name) {
			fault(key, "the expression has no group %s", name)
		}
	}
	checkGroup("parse.time", p.Time)
	checkGroup("parse.level", p.Level)
	c.re, c.groups = re, make([]group, len(names))
	for i, name := range names {
		c.groups[i] = group{name: name}
		switch {
		case name == "":
		case name == p.Time || p.Time == "" && name == slog.TimeKey:
			c.groups[i] = group{slog.TimeKey, timeKind}
		case name == p.Level || p.Level == "" && name == slog.LevelKey:
			c.groups[i] = group{slog.LevelKey, levelKind}
		case name == "msg" || name == "message":
			c.groups[i] = group{slog.MessageKey, messageKind}
		}
	}
	if p.TimeLayout != "" {
		if !slices.ContainsFunc(c.groups, func(g group) bool { return g.kind == timeKind }) {
			fault("parse.time_layout", "the expression has no group for the time; name one with time")
		} else if at := time.Now().Format(p.TimeLayout); at == p.TimeLayout {
			fault("parse.time_layout", "%q has no part of a time; write it as package time does: 2006-01-02 15:04:05", p.TimeLayout)
		}
	}
	for i, t := range p.Types {
		key := fmt.Sprintf("parse.types[%d]", i)
		checkGroup(key, t.Name)
		n := slices.Index(parseTypes, t.Value)
		if n < 0 {
			fault(key, "%q is not one of %s", t.Value, strings.Join(parseTypes, ", "))
			continue
		}
		for i := range c.groups {
			if c.groups[i].name == t.Name {
				c.groups[i].kind = []kind{intKind, floatKind, boolKind}[n]
			}
		}
	}
}

// regexFault describes the error of an invalid regular expression, with its column.
func regexFault(text string, err error) string {
	var s *syntax.Error
	if !errors.As(err, &s) {
		return err.Error()
	}
	_, open, unexpected := parens(text)
	at := strings.LastIndex(text, s.Expr)
	switch s.Code {
	case syntax.ErrMissingParen:
		at = open[len(open)-1]
	case syntax.ErrUnexpectedParen:
		at = unexpected
	case syntax.ErrTrailingBackslash:
		at, s.Expr = len(text)-1, text[len(text)-1:]
	}
	return fmt.Sprintf("%s%s: %q", column(text, at), s.Code, s.Expr)
}

// repeated returns the name and the index of the first group that has the name of an earlier group.
// If there is no such group, at is -1.
func repeated(text string) (name string, at int) {
	groups, _, _ := parens(text)
	seen := map[string]bool{}
	for _, at := range groups {
		name, ok := strings.CutPrefix(text[at:], "(?P<")
		if !ok {
			name, ok = strings.CutPrefix(text[at:], "(?<")
		}
		if !ok {
			continue
		}
		if name, _, _ = strings.Cut(name, ">"); seen[name] {
			return name, at
		}
		seen[name] = true
	}
	return "", -1
}

// column returns the beginning of a message about text[at]: the column. It returns "" if at is
// negative.
func column(text string, at int) string {
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("column %d: ", utf8.RuneCountInString(text[:at])+1)
}

// parens returns the indexes of parentheses in a regular expression: all opening ones, the opening
// ones that are never closed, and the first unexpected closing one, or -1.
func parens(text string) (all, open []int, unexpected int) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i += escapeLen(text[i:]) - 1
		case '[':
			i += classLen(text[i:]) - 1
		case '(':
			all, open = append(all, i), append(open, i)
		case ')':
			if len(open) == 0 {
				return all, nil, i
			}
			open = open[:len(open)-1]
		}
	}
	return all, open, -1
}

// escapeLen returns the length of the escape sequence at the beginning of text, which may be a
// quotation from \Q to \E.
func escapeLen(text string) int {
	if !strings.HasPrefix(text, `\Q`) {
		return 2
	}
	if end := strings.Index(text, `\E`); end >= 0 {
		return end + 2
	}
	return len(text)
}

// classLen returns the length of the character class, such as [a-z], at the beginning of text.
func classLen(text string) int {
	for i := len(text) - len(strings.TrimPrefix(strings.TrimPrefix(text[1:], "^"), "]")); i < len(text); i++ {
		switch end := strings.Index(text[i:], ":]"); {
		case text[i] == '\\':
			i++
		case text[i] == ']':
			return i + 1
		case strings.HasPrefix(text[i:], "[:") && end > 0:
			i += end + 1
		}
	}
	return len(text)
}

// parse applies p to ev. It returns false if OnError drops the record.
func (c *Chain) parse(ev *record.Event, p *parseRule) (keep bool) {
	c.updateLevelAndTime(ev)
	start := len(c.parsed)
	text, ok := fieldText(ev, p.field, c.parsed[start:])
	c.parsed = append(c.parsed, text...)
	text = c.parsed[start:] // copy the text, because fields of ev refer to it and later rules may overwrite the line
	if p.encoding != record.Text {
		ok = ok && c.decode(ev, p, text) || ev.Format == p.encoding && p.field == messageField // the input has already decoded the line
	} else if ok {
		if ok = c.match(p, text); ok {
			c.addValues(ev, p, text)
		}
	}
	if !ok && p.onError == "tag" {
		c.set(ev, &p.tag[0])
	}
	return ok || p.onError != "drop"
}

// match sets c.values to the fields that p extracts from text. It returns false if text does not
// match.
func (c *Chain) match(p *parseRule, text []byte) (ok bool) {
	if p.read != nil {
		return p.read(c, text)
	}
	if p.re == nil {
		for _, t := range p.templates {
			if c.values, ok = t.match(c.values[:0], text); ok && p.hasKnownLevel(c.values) {
				return true
			}
		}
		return false
	}
	at := p.re.FindSubmatchIndex(text)
	if at == nil {
		return false
	}
	c.values = c.values[:0]
	for i := range p.groups {
		if g := &p.groups[i]; g.name != "" && at[2*i] >= 0 {
			c.values = append(c.values, value{*g, text[at[2*i]:at[2*i+1]]})
		}
	}
	return true
}

// hasKnownLevel reports whether the level in values is one of the levels of the format. If the
// format lists no levels, or values contain none, it also returns true.
func (p *parseRule) hasKnownLevel(values []value) bool {
	for i := range values {
		if v := &values[i]; v.kind == levelKind && p.levels != nil {
			_, ok := p.levels[asString(v.text)]
			return ok
		}
	}
	return true
}

// addValues adds c.values to ev as fields. text is the parsed text.
func (c *Chain) addValues(ev *record.Event, p *parseRule, text []byte) {
	before := *ev
	if p.re == nil && !p.isWholeLine(ev) { // set the level and time from this text, which is not the whole line
		c.readText(ev, text)
	}
	var message []byte
	for i := range c.values {
		v := &c.values[i]
		switch v.kind {
		case messageKind:
			message = v.text
		case timeKind:
			if p.re != nil && !c.setTime(ev, p, asString(v.text)) {
				c.setField(ev, v)
			}
		case levelKind:
			if l, ok := p.levels[asString(v.text)]; ok {
				ev.Level, ev.HasLevel = l, true
			} else if p.re != nil && !c.parser.Note(ev, slog.LevelKey, asString(v.text)) {
				c.setField(ev, v)
			}
		default:
			c.setField(ev, v)
			if p.status && v.name == "status" && !ev.HasLevel {
				ev.Level, ev.HasLevel = statusLevel(v.text), true
			}
		}
	}
	if message != nil {
		if ev.Format == record.Text {
			c.setLine(ev, append(c.bufs[c.next][:0], message...))
		} else {
			c.set(ev, &fieldsOf([]Setting{{messageName(ev), string(message)}})[0])
		}
	}
	if ev.Format != record.Text { // outputs read the level and the time from the line, so add them
		level, has, at := ev.Level, ev.HasLevel, ev.Time
		if has && (!before.HasLevel || before.Level != level) {
			c.set(ev, &fieldsOf([]Setting{{slog.LevelKey, values.LevelName(level)}})[0])
		}
		if !at.Equal(before.Time) {
			c.set(ev, &fieldsOf([]Setting{{slog.TimeKey, at.Format(time.RFC3339Nano)}})[0])
		}
		ev.Level, ev.HasLevel, ev.Time = level, has, at
	}
	c.setBaseline(ev)
}

// setBaseline stores the current line, whose level and time are already in ev. updateLevelAndTime
// compares the next changed line with it.
func (c *Chain) setBaseline(ev *record.Event) {
	c.lineChanged, c.baseline, c.lineBefore = false, *ev, record.Event{}
}

// isWholeLine reports whether ev is text and p parses the whole line.
func (p *parseRule) isWholeLine(ev *record.Event) bool {
	return ev.Format == record.Text && p.field == messageField
}

// copyLevelAndTime copies the level and the time of src to ev, if src has them.
func copyLevelAndTime(ev, src *record.Event) {
	if src.HasLevel {
		ev.Level, ev.HasLevel = src.Level, true
	}
	if !src.Time.IsZero() {
		ev.Time = src.Time
	}
}

// readText sets the level and the time of ev to those that the parser finds in text.
func (c *Chain) readText(ev *record.Event, text []byte) {
	c.reader = c.parser
	c.reader.Format = record.Text
	c.reader.Parse(text, &c.lineAfter)
	copyLevelAndTime(ev, &c.lineAfter)
}

// setTime sets the time of ev to the time in text. It returns false if text is not a time.
func (c *Chain) setTime(ev *record.Event, p *parseRule, text string) bool {
	if p.layout == "" {
		return c.parser.Note(ev, slog.TimeKey, text)
	}
	loc := c.parser.Location
	if loc == nil {
		loc = time.Local
	}
	t, err := time.ParseInLocation(p.layout, text, loc)
	if err == nil {
		ev.Time = t
	}
	return err == nil
}

// setField adds a field or replaces its value.
func (c *Chain) setField(ev *record.Event, v *value) {
	if ev.Format == record.Text {
		c.copyMore(ev)
		a := slog.Attr{Key: v.name, Value: v.attr()}
		if old := attrOf(c.more, v.name); old != nil {
			*old = a.Value
		} else {
			c.more = append(c.more, a)
		}
		ev.More = c.more
		return
	}
	c.set(ev, &fieldsOf([]Setting{{v.name, v.setting()}})[0])
}

// attr converts the value to its type. If the text is not valid for the type, it returns a string.
func (v *value) attr() slog.Value {
	s := asString(v.text)
	switch v.kind {
	case intKind:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return slog.Int64Value(n)
		}
	case floatKind:
		if f, err := strconv.ParseFloat(s, 64); err == nil && f-f == 0 {
			return slog.Float64Value(f)
		}
	case boolKind:
		if b, err := strconv.ParseBool(s); err == nil {
			return slog.BoolValue(b)
		}
	}
	return slog.StringValue(s)
}

// setting converts the value to a valid Setting.Value.
func (v *value) setting() any {
	switch a := v.attr(); a.Kind() {
	case slog.KindInt64, slog.KindFloat64:
		return json.Number(a.String())
	case slog.KindBool:
		return a.Bool()
	default:
		return string(v.text)
	}
}

// messageName returns the name of the message field in a JSON or logfmt line: msg, or message if
// the line has only that field.
func messageName(ev *record.Event) string {
	name := slog.MessageKey
	if v, _ := fieldText(ev, "message", nil); v != nil {
		if m, _ := fieldText(ev, slog.MessageKey, nil); m == nil {
			name = "message"
		}
	}
	return name
}

// statusLevel returns the level for an HTTP status.
func statusLevel(status []byte) slog.Level {
	switch {
	case len(status) == 3 && status[0] == '5':
		return slog.LevelError
	case len(status) == 3 && status[0] == '4':
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// decode parses text as JSON or logfmt, according to p.encoding, and adds the fields to ev. It
// returns false if text does not have this format.
func (c *Chain) decode(ev *record.Event, p *parseRule, text []byte) bool {
	whole := p.isWholeLine(ev)
	if whole {
		text = ev.Raw // the whole line, with its end
	}
	c.reader = c.parser
	c.reader.Format = p.encoding
	c.reader.Parse(text, &c.lineAfter)
	if c.lineAfter.Format != p.encoding {
		return false
	}
	found := c.lineAfter
	if whole {
		before := *ev
		*ev = found
		ev.More, ev.Level, ev.HasLevel, ev.Time = before.More, before.Level, before.HasLevel, before.Time
	} else {
		for _, f := range decoded(p.encoding, text) {
			c.set(ev, &f)
		}
		c.updateLevelAndTime(ev)
	}
	copyLevelAndTime(ev, &found)
	c.setBaseline(ev)
	return true
}

// decoded returns the fields of a JSON object or a logfmt line.
func decoded(as record.Format, text []byte) (fields []field) {
	if as == record.Logfmt {
		record.Pairs(text, func(m record.Member) bool {
			s := Setting{Name: string(text[m.Key:m.KeyEnd]), Value: ""}
			if m.Value > m.KeyEnd {
				v := text[m.Value:m.End]
				if s.Value = string(record.LogfmtText(v)); !record.IsText(string(v)) && json.Valid(v) {
					s.Value = json.Number(v) // a bool has the same form, so json.Number can represent it
				}
			}
			fields = append(fields, fieldsOf([]Setting{s})...)
			return true
		})
		return fields
	}
	attrs := record.Attrs(text)
	record.Members(text, record.Space(text, 0), func(m record.Member) bool {
		a, raw := attrs[len(fields)], bytes.Clone(text[m.Value:m.End])
		s := string(valueText(raw, nil))
		fields = append(fields, field{name: a.Key, text: s, json: raw, logfmt: jsontext.AppendText(nil, s), attr: a.Value})
		return true
	})
	return fields
}
