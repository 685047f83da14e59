package transform

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/record"
)

// find sets c.found to the fields of the line with the given name.
func (c *Chain) find(ev *record.Event, name string) {
	c.found = c.found[:0]
	switch ev.Format {
	case record.JSON:
		c.findIn(ev.Line, record.Space(ev.Line, 0), name)
	case record.Logfmt:
		name = jsontext.LogfmtKey(name)
		kept, end := false, 0
		record.Pairs(ev.Line, func(m record.Member) bool {
			if string(ev.Line[m.Key:m.KeyEnd]) == name {
				s := foundField{Member: m, name: name, from: m.Key, to: record.Space(ev.Line, m.End)}
				if kept {
					s.from, s.to = end, m.End
				}
				c.found = append(c.found, s)
			} else {
				kept = true
			}
			end = m.End
			return true
		})
	}
}

// findIn appends the fields with the given name in the object at b[obj] to c.found.
func (c *Chain) findIn(b []byte, obj int, name string) {
	kept, end := false, 0
	record.Members(b, obj, func(m record.Member) bool {
		rest, match := follow(b[m.Key:m.KeyEnd], name)
		if match == fullMatch {
			s := foundField{Member: m, obj: obj, name: name, from: m.Key, to: m.End}
			if kept {
				s.from = end
			} else if next := record.Space(b, m.End); b[next] == ',' {
				s.to = record.Space(b, next+1)
			}
			c.found = append(c.found, s)
		} else {
			kept = true
			if match == prefixMatch && b[m.Value] == '{' {
				c.findIn(b, m.Value, rest)
			}
		}
		end = m.End
		return true
	})
}

// An insertPoint is a position in the line at which a field can be inserted.
type insertPoint struct {
	obj   int    // start of the object that will contain the field; 0 in logfmt
	at    int    // position after the last field of the object obj
	empty bool   // the object obj has no fields
	name  string // name of the field within the object obj
}

// insertPointOf returns the insertPoint for a new field.
func insertPointOf(ev *record.Event, name string) insertPoint {
	if ev.Format == record.JSON {
		return insertPointIn(ev.Line, record.Space(ev.Line, 0), name)
	}
	at := len(strings.TrimRight(asString(ev.Line), " \t"))
	return insertPoint{at: at, empty: at == 0, name: name}
}

// insertPointIn returns the insertPoint for a new field of the object at b[obj]. The parameter name
// may be a path. If the path begins with names of existing objects, the field is inserted into the
// innermost of them.
func insertPointIn(b []byte, obj int, name string) insertPoint {
	p := insertPoint{obj: obj, at: obj + 1, empty: true, name: name}
	nested, nestedName := 0, "" // start of a nested object that the path leads to, and the rest of the path
	record.Members(b, obj, func(m record.Member) bool {
		p.at, p.empty = m.End, false
		if nested == 0 && b[m.Value] == '{' {
			if rest, match := follow(b[m.Key:m.KeyEnd], name); match == prefixMatch {
				nested, nestedName = m.Value, rest
			}
		}
		return true
	})
	if nested > 0 {
		return insertPointIn(b, nested, nestedName)
	}
	return p
}

// insert adds an edit that inserts a field at p. value is already encoded in the format of the
// line.
func (c *Chain) insert(ev *record.Event, p *insertPoint, value []byte) {
	start := len(c.text)
	if ev.Format == record.JSON {
		if !p.empty {
			c.text = append(c.text, ',')
		}
		c.text = append(jsontext.AppendString(c.text, p.name), ':')
	} else {
		if !p.empty {
			c.text = append(c.text, ' ')
		}
		c.text = append(append(c.text, jsontext.LogfmtKey(p.name)...), '=')
	}
	p.empty = false
	c.text = append(c.text, value...)
	c.edit(p.at, p.at, c.text[start:])
}

// edit adds an edit of the line. The parameter text must not change until the method write is
// called.
func (c *Chain) edit(from, to int, text []byte) {
	c.edits = append(c.edits, edit{from, to, text})
}

// write applies all edits to the line.
func (c *Chain) write(ev *record.Event) {
	if len(c.edits) > 0 {
		slices.SortStableFunc(c.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
		dst, done := c.bufs[c.next][:0], 0
		for _, e := range c.edits {
			dst = append(append(dst, ev.Line[done:e.from]...), e.text...)
			done = e.to
		}
		c.setLine(ev, append(dst, ev.Line[done:]...))
	}
	c.edits, c.text = c.edits[:0], c.text[:0]
}

// setLine replaces the line of ev. The caller has appended the new line to c.bufs[c.next][:0].
func (c *Chain) setLine(ev *record.Event, line []byte) {
	n := len(line)
	line = append(line, ev.Raw[len(ev.Line):]...)
	c.bufs[c.next] = line
	c.next = 1 - c.next
	ev.Raw, ev.Line = line, line[:n:n]
	c.lineChanged = true
}

// has reports whether the record has a field with the given name.
func (c *Chain) has(ev *record.Event, name string) bool {
	c.find(ev, name)
	return len(c.found) > 0 || attrOf(ev.More, name) != nil || textHas(ev, name)
}

// textHas reports whether ev is text and has the named field. Text has only the fields msg, level
// and time.
func textHas(ev *record.Event, name string) bool {
	if ev.Format != record.Text {
		return false
	}
	switch name {
	case slog.MessageKey:
		return true
	case slog.LevelKey:
		return ev.HasLevel
	case slog.TimeKey:
		return !ev.Time.IsZero()
	}
	return false
}

// setText sets the field msg, level or time of a text record; msg is the line. It returns false if
// the record is not text, if name is not one of these fields, or if value is not valid.
func (c *Chain) setText(ev *record.Event, name, value string) bool {
	if ev.Format != record.Text {
		return false
	}
	if name == slog.MessageKey {
		c.setLine(ev, append(c.bufs[c.next][:0], value...))
		return true
	}
	return c.parser.Note(ev, name, value)
}

// fieldsOf encodes the values of settings for each format.
func fieldsOf(settings []Setting) []field {
	fields := make([]field, len(settings))
	for i, s := range settings {
		f := field{name: s.Name}
		switch v := s.Value.(type) {
		case string:
			f.text, f.json, f.logfmt, f.attr = v, jsontext.AppendString(nil, v), jsontext.AppendText(nil, v), slog.StringValue(v)
			if f.logfmt[0] != '"' && !record.IsText(v) {
				f.logfmt = slices.Concat(quote, f.logfmt, quote)
			}
		default: // bool and json.Number have the same form in JSON and logfmt
			f.text = fmt.Sprint(v)
			f.json, f.logfmt = []byte(f.text), []byte(f.text)
			f.attr = record.Attrs(slices.Concat([]byte(`{"v":`), f.json, []byte{'}'}))[0].Value
		}
		fields[i] = f
	}
	return fields
}

// value returns the value encoded in the format of the line.
func (f *field) value(ev *record.Event) []byte {
	if ev.Format == record.JSON {
		return f.json
	}
	return f.logfmt
}

// add adds f to the record, which has no field with this name.
func (c *Chain) add(ev *record.Event, f *field) {
	if c.setText(ev, f.name, f.text) {
		return
	}
	if ev.Format == record.Text {
		c.copyMore(ev)
		c.more = append(c.more, slog.Attr{Key: f.name, Value: f.attr})
		ev.More = c.more
		return
	}
	p := insertPointOf(ev, f.name)
	c.insert(ev, &p, f.value(ev))
	c.write(ev)
}

// set adds a field or replaces its value.
func (c *Chain) set(ev *record.Event, f *field) {
	if !c.has(ev, f.name) || attrOf(ev.More, f.name) == nil && textHas(ev, f.name) {
		c.add(ev, f)
		return
	}
	if len(c.found) > 0 {
		v := f.value(ev)
		for _, s := range c.found {
			if s.Value == s.KeyEnd { // a name without "="
				c.edit(s.End, s.End, equals)
			}
			c.edit(s.Value, s.End, v)
		}
		c.write(ev)
	}
	if attrOf(ev.More, f.name) != nil {
		c.copyMore(ev)
		setAttr(c.more, f.name, f.attr)
	}
}

var equals, quote = []byte{'='}, []byte{'"'}

// setAttr sets the value of each attribute with the given name. It modifies attrs, which must be a
// copy that the chain owns.
func setAttr(attrs []slog.Attr, name string, value slog.Value) {
	for i := range attrs {
		a := &attrs[i]
		if a.Key == name {
			a.Value = value
		} else if rest, ok := nameInGroup(a, name); ok {
			members := slices.Clone(a.Value.Group())
			setAttr(members, rest, value)
			a.Value = slog.GroupValue(members...)
		}
	}
}

// nameInGroup reports whether the path name leads into the group a. rest is the part of the path
// after the name of the group. For example, if the group has the name "x" and the path is "x.y",
// rest is "y".
func nameInGroup(a *slog.Attr, name string) (rest string, ok bool) {
	if a.Value.Kind() != slog.KindGroup {
		return "", false
	}
	if rest, ok = strings.CutPrefix(name, a.Key); !ok || rest == "" || rest[0] != '.' {
		return "", false
	}
	return rest[1:], attrOf(a.Value.Group(), rest[1:]) != nil
}

// remove removes all fields with the given name.
func (c *Chain) remove(ev *record.Event, name string) {
	if textHas(ev, name) {
		switch name {
		case slog.LevelKey:
			ev.HasLevel = false
		case slog.TimeKey:
			ev.Time = time.Time{}
		}
	}
	c.find(ev, name)
	for _, s := range c.found {
		c.edit(s.from, s.to, nil)
	}
	c.write(ev)
	if attrOf(ev.More, name) != nil {
		c.copyMore(ev)
		c.more = removeAttr(c.more, name)
		ev.More = c.more
	}
}

// removeAttr removes all attributes with the given name and returns the remaining ones. It modifies
// attrs, which must be a copy that the chain owns.
func removeAttr(attrs []slog.Attr, name string) []slog.Attr {
	attrs = slices.DeleteFunc(attrs, func(a slog.Attr) bool { return a.Key == name })
	for i := range attrs {
		a := &attrs[i]
		if rest, ok := nameInGroup(a, name); ok {
			a.Value = slog.GroupValue(removeAttr(slices.Clone(a.Value.Group()), rest)...)
		}
	}
	return attrs
}

// renames returns a list of pairs. Renaming the pairs of the list one after the other has the same
// effect as renaming the given pairs at the same time. If pairs depend on each other, as in a swap,
// the list uses temporary names.
func renames(pairs []Pair) []Pair {
	within := func(name, path string) bool { return name == path || strings.HasPrefix(name, path+".") }
	depends := false
	for i, p := range pairs {
		for k, q := range pairs {
			depends = depends || within(q.Name, p.Value) || i != k && within(p.Value, q.Name)
		}
	}
	if !depends {
		return pairs
	}
	first, last := make([]Pair, len(pairs)), make([]Pair, len(pairs))
	for i, p := range pairs {
		between := fmt.Sprintf("forebay_rename_%d", i)
		first[i], last[i] = Pair{p.Name, between}, Pair{between, p.Value}
	}
	return append(first, last...)
}

// rename renames all fields with the given name. If the record has a field with the new name,
// rename removes that field first.
func (c *Chain) rename(ev *record.Event, name, to string) {
	isField := func(a slog.Attr) bool { return a.Key == name }
	if ev.Format == record.Logfmt && jsontext.LogfmtKey(name) == jsontext.LogfmtKey(to) {
		return
	}
	if c.find(ev, name); len(c.found) == 0 && !slices.ContainsFunc(ev.More, isField) {
		return
	}
	if c.has(ev, to) {
		c.remove(ev, to)
	}
	if c.find(ev, name); len(c.found) > 0 {
		p := insertPointOf(ev, to)
		for _, s := range c.found {
			inside := s.Value <= p.obj && p.obj < s.End // the new name is a path into the value of the renamed field
			start := len(c.text)
			switch {
			case ev.Format == record.Logfmt:
				c.text = append(c.text, jsontext.LogfmtKey(to)...)
				c.edit(s.Key, s.KeyEnd, c.text[start:])
			case s.obj == p.obj || inside:
				c.text = jsontext.AppendString(c.text, to[len(name)-len(s.name):])
				c.edit(s.Key, s.KeyEnd, c.text[start:])
			default:
				c.edit(s.from, s.to, nil)
				c.insert(ev, &p, ev.Line[s.Value:s.End])
			}
		}
		c.write(ev)
	}
	for i := range ev.More {
		if isField(ev.More[i]) {
			c.copyMore(ev)
			c.more[i].Key = to
		}
	}
	if v := attrOf(ev.More, to); v != nil {
		var buf [64]byte
		if c.setText(ev, to, string(attrText(buf[:0], v))) {
			c.copyMore(ev)
			c.more = removeAttr(c.more, to)
			ev.More = c.more
		}
	}
}

// copyMore replaces Event.More with a copy that the chain owns, so that rules can modify it. Only
// the first call for a record copies.
func (c *Chain) copyMore(ev *record.Event) {
	if !c.moreCopied {
		c.moreCopied = true
		c.more = append(c.more[:0], ev.More...)
		ev.More = c.more
	}
}
