package forward

import (
	"encoding/hex"
	"log/slog"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/forebay-log/forebay/cmd/internal/listen"
	"github.com/forebay-log/forebay/internal/msgpack"
)

// maxGroupBytes is the maximum size of a group's metadata. It is small, because each record of the
// group gets a copy.
const maxGroupBytes = 16 << 10

// ignoredName is the name of a field that contains the number of omitted metadata values.
const ignoredName = "metadata_ignored"

// fields contains metadata from Fluent Bit. Nested maps become names with dots:
// {"otlp":{"severity_text":"x"}} becomes the field otlp.severity_text.
type fields struct {
	labels  []listen.Label
	bytes   int
	ignored int    // number of values that were omitted because of limits
	value   []byte // scratch memory of the method text

	level    slog.Level
	hasLevel bool
}

// reset removes all fields and keeps the memory for the next record.
func (f *fields) reset() {
	clear(f.labels)
	f.labels, f.bytes, f.ignored, f.hasLevel = f.labels[:0], 0, 0, false
}

// add adds the values of the map at the beginning of b, which check has validated. maxValues and
// maxBytes limit the number and the size of all values in f.
func (f *fields) add(b []byte, maxValues, maxBytes int) {
	if b != nil {
		f.addMap("", b, maxValues, maxBytes)
	}
}

// addMap is like add, and adds prefix to the names of the fields. It returns the data after the
// map.
func (f *fields) addMap(prefix string, b []byte, maxValues, maxBytes int) []byte {
	t, b, err := msgpack.Next(b)
	if err != nil {
		return nil
	}
	for range t.Len {
		key, rest, err := msgpack.Next(b)
		if err != nil {
			return nil
		}
		name := prefix + f.text("", &key, b)
		b = rest
		if len(b) > 0 && msgpack.IsMap(b[0]) {
			b = f.addMap(name+".", b, maxValues, maxBytes)
			continue
		}
		text := b
		v, _, err := msgpack.Next(b)
		if err != nil {
			return nil
		}
		if b, err = msgpack.Skip(b); err != nil {
			return nil
		}
		switch {
		case v.Kind == msgpack.Nil:
			continue
		case len(f.labels) >= maxValues || f.bytes+len(name)+len(text)-len(b) > maxBytes:
			f.ignored++
			continue
		}
		if name == "otlp.severity_number" && v.Kind == msgpack.Uint && v.Num >= 1 && v.Num <= 24 {
			f.level, f.hasLevel = slog.Level(v.Num)-9, true // severity 9 of OpenTelemetry is INFO; both numberings increase with the severity
		}
		f.labels = append(f.labels, listen.Label{Name: name, Value: f.text(name, &v, text)})
		f.bytes += len(name) + len(f.labels[len(f.labels)-1].Value)
	}
	return b
}

// text returns the value t as text. b begins with the encoded value. Trace and span ids are
// hexadecimal, as in OpenTelemetry.
func (f *fields) text(name string, t *msgpack.Token, b []byte) string {
	switch {
	case t.Kind == msgpack.Bin && (strings.HasSuffix(name, "trace_id") || strings.HasSuffix(name, "span_id")):
		return hex.EncodeToString(t.Bytes)
	case t.Kind == msgpack.Str, t.Kind == msgpack.Bin && utf8.Valid(t.Bytes):
		return string(t.Bytes)
	}
	f.value, _, _ = msgpack.AppendJSONText(f.value[:0], b)
	return strings.Trim(string(f.value), `"`) // remove the quotes around base64, a time or NaN
}

// setMetadata sets the metadata and the level of the current record. The metadata of its group is
// included, but fields of the record have precedence.
func (n *session) setMetadata(e *item) {
	r := &n.rec
	r.Metadata, r.HasLevel = r.Metadata[:0], false
	if e.metadata == nil && len(n.groupFields.labels) == 0 {
		return
	}
	n.recordFields.reset()
	n.recordFields.add(e.metadata, n.s.s.Limits().Labels, n.s.s.Limits().MessageBytes)
	r.Metadata = append(r.Metadata, n.recordFields.labels...)
	r.Level, r.HasLevel = n.recordFields.level, n.recordFields.hasLevel
	ignored := n.recordFields.ignored + n.groupFields.ignored
next:
	for _, g := range n.groupFields.labels {
		for _, l := range n.recordFields.labels {
			if l.Name == g.Name {
				continue next
			}
		}
		r.Metadata = append(r.Metadata, g)
	}
	if ignored > 0 {
		r.Metadata = append(r.Metadata, listen.Label{Name: ignoredName, Value: strconv.Itoa(ignored)})
	}
}
