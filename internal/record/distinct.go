package record

import (
	"bytes"
	"log/slog"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// inputPrefix is the prefix of an input field whose name is already used by another field.
const inputPrefix = "input."

// A Namer gives unique names to input fields: fields that an input, such as a container runtime,
// adds to a line. It reuses its memory for each call. It is not safe for concurrent use.
type Namer struct {
	line   []slog.Attr // the fields of the line that have the name of an input field
	attrs  []slog.Attr // the result of Unique
	record []slog.Attr // the result of TextAttrs
	text   []byte      // unescaped names and values
}

// Unique returns ev.More, the input fields, with unique names. For example, a field pod is renamed
// to input.pod if an earlier field is named pod, and omitted if both have the same value. withLine
// reports whether the record also contains the fields of the line, which precede the fields of the
// input. The result is valid until the next call.
func (n *Namer) Unique(ev *Event, withLine bool) []slog.Attr {
	if len(ev.More) == 0 {
		return nil
	}
	n.line, n.attrs, n.text = n.line[:0], n.attrs[:0], n.text[:0]
	if withLine {
		n.findLine(ev)
	}
	for _, a := range ev.More {
		same := false
		for v := n.valueOf(a.Key); v != nil && !same; v = n.valueOf(a.Key) {
			if same = equal(v, &a.Value); !same {
				a.Key = inputPrefix + a.Key
			}
		}
		if !same {
			n.attrs = append(n.attrs, a)
		}
	}
	return n.attrs
}

// TextAttrs returns the fields of ev, a line of the format Text, with unique names: time and level,
// if they are known, the line as msg, and ev.More. The result is valid until the next call, or
// until ev.Line changes.
func (n *Namer) TextAttrs(ev *Event) []slog.Attr {
	n.record = n.record[:0]
	if !ev.Time.IsZero() {
		n.record = append(n.record, slog.Time(slog.TimeKey, ev.Time))
	}
	if ev.HasLevel {
		n.record = append(n.record, slog.String(slog.LevelKey, values.LevelName(ev.Level)))
	}
	n.record = append(n.record, slog.String(slog.MessageKey, unsafe.String(unsafe.SliceData(ev.Line), len(ev.Line))))
	return append(n.record, n.Unique(ev, true)...)
}

// valueOf returns the value of the earlier field with that name, or nil.
func (n *Namer) valueOf(name string) *slog.Value {
	for _, attrs := range [...][]slog.Attr{n.line, n.attrs} {
		for i := range attrs {
			if attrs[i].Key == name {
				return &attrs[i].Value
			}
		}
	}
	return nil
}

// equal reports whether two values are equal. It returns false for lists, groups and other values
// of no basic kind.
func equal(a, b *slog.Value) bool {
	return a.Kind() == b.Kind() && a.Kind() != slog.KindAny && a.Kind() != slog.KindGroup && a.Kind() != slog.KindLogValuer && a.Equal(*b)
}

// findLine sets n.line to the fields of the line that have the name of an input field.
func (n *Namer) findLine(ev *Event) {
	if ev.Format != Text && !mayContest(ev) {
		return
	}
	switch ev.Format {
	case JSON:
		Members(ev.Line, space(ev.Line, 0), func(m Member) bool {
			if key := n.unquoted(ev.Line[m.Key:m.KeyEnd]); contested(ev, key) {
				v := slog.AnyValue(nil) // equals no value of an input field
				if ev.Line[m.Value] == '"' {
					v = slog.StringValue(asString(n.unquoted(ev.Line[m.Value:m.End])))
				}
				n.line = append(n.line, slog.Attr{Key: asString(key), Value: v})
			}
			return true
		})
	case Logfmt:
		Pairs(ev.Line, func(m Member) bool {
			if key := ev.Line[m.Key:m.KeyEnd]; contested(ev, key) {
				n.line = append(n.line, slog.String(asString(key), asString(LogfmtText(ev.Line[m.Value:m.End]))))
			}
			return true
		})
	default:
		n.line = append(n.line, slog.String(slog.MessageKey, asString(ev.Line)))
		if !ev.Time.IsZero() {
			n.line = append(n.line, slog.Time(slog.TimeKey, ev.Time))
		}
		if ev.HasLevel {
			n.line = append(n.line, slog.String(slog.LevelKey, values.LevelName(ev.Level)))
		}
	}
}

// unquoted returns the value of a JSON string. The value is valid until n.text or the memory of the
// line changes.
func (n *Namer) unquoted(quoted []byte) []byte {
	s := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	at := len(n.text)
	n.text = jsontext.AppendUnescaped(n.text, s)
	return n.text[at:]
}

// contested reports whether key is the name of an input field, or a name that Unique may assign to
// one.
func contested(ev *Event, key []byte) bool {
	for {
		for i := range ev.More {
			if ev.More[i].Key == string(key) {
				return true
			}
		}
		rest, ok := bytes.CutPrefix(key, []byte(inputPrefix))
		if !ok {
			return false
		}
		key = rest
	}
}

// mayContest reports whether the line may contain a field with the name of an input field. It
// returns false for most lines, so they need not be parsed again.
func mayContest(ev *Event) bool {
	if ev.Format == JSON && bytes.IndexByte(ev.Line, '\\') >= 0 { // escapes may be part of a name
		return true
	}
	for i := range ev.More {
		if bytes.Contains(ev.Line, unsafe.Slice(unsafe.StringData(ev.More[i].Key), len(ev.More[i].Key))) {
			return true
		}
	}
	return false
}
