package otlp

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"strconv"
	"time"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// An item is a list or map that is still open while a value is written. The offsets point to
// contents whose length is not yet known.
type item struct {
	list  bool // a list, not a map
	start int  // offset of the list or map
	pair  int  // offset of the current element or KeyValue
	value int  // offset of the value of the current KeyValue
}

// anyValue appends the AnyValue of v. depth is the number of enclosing groups. A [values.Walk]
// visits v and calls the methods of [values.Emitter] below. If anyValue fails, dst ends in an
// incomplete value.
func (w *writer) anyValue(dst []byte, v slog.Value, depth int) ([]byte, error) {
	k := &w.walk
	k.Emitter, k.Style, k.Scratch = w, &w.e.values.Style, &w.scratch
	k.Limits = values.Limits{Depth: values.MaxDepth, Nest: maxDepth}
	k.Reset()
	k.Level = depth
	w.dst, w.items = dst, w.items[:0]
	err := k.Value(v)
	dst, w.dst = w.dst, nil
	return dst, err
}

// beginValue opens an element if the innermost item is a list. In a map, the method Key has already
// opened the value.
func (w *writer) beginValue() {
	if n := len(w.items); n > 0 && w.items[n-1].list {
		w.dst, w.items[n-1].pair = openLen(w.dst, tagValues)
	}
}

// endValue closes an element of a list, or the value and the KeyValue of a map. At the top level it
// does nothing.
func (w *writer) endValue() {
	if n := len(w.items); n > 0 {
		in := &w.items[n-1]
		if !in.list {
			closeLen(w.dst, in.value)
		}
		closeLen(w.dst, in.pair)
	}
}

// Null appends an empty AnyValue, which represents null in OTLP.
func (w *writer) Null() {
	w.beginValue()
	w.endValue()
}

// Bool appends a boolean.
func (w *writer) Bool(v bool) {
	w.beginValue()
	b := byte(0)
	if v {
		b = 1
	}
	w.dst = append(w.dst, tagBool, b)
	w.endValue()
}

// Int appends an integer.
func (w *writer) Int(v int64) {
	w.beginValue()
	w.dst = appendIntValue(w.dst, v)
	w.endValue()
}

// Uint appends an integer. A number above the largest int64 is written as text, because OTLP has
// only signed integers.
func (w *writer) Uint(v uint64) {
	if v > math.MaxInt64 {
		w.Text(strconv.FormatUint(v, 10))
		return
	}
	w.Int(int64(v))
}

// Float appends a number. A float32 is converted to the double with the same shortest decimal
// representation, so that all outputs show the same digits.
func (w *writer) Float(v float64, bits int) {
	if bits == 32 {
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', -1, 32), 64)
	}
	w.beginValue()
	w.dst = appendDoubleValue(w.dst, v)
	w.endValue()
}

// Text appends a string. Invalid UTF-8 becomes U+FFFD.
func (w *writer) Text(v string) {
	w.beginValue()
	w.dst = appendText(w.dst, tagString, valid(v))
	w.endValue()
}

// Bytes appends a byte slice.
func (w *writer) Bytes(v []byte) {
	w.beginValue()
	w.dst = append(appendLen(w.dst, tagBytes, len(v)), v...)
	w.endValue()
}

// Time appends a time as text in RFC 3339, because OTLP has no type for times.
func (w *writer) Time(v time.Time) {
	w.text = w.e.values.Time.Append(w.text[:0], v, &w.times, values.OwnTime)
	w.bytes(w.text)
}

// bytes appends v as a string. v must be valid UTF-8.
func (w *writer) bytes(v []byte) {
	w.beginValue()
	w.dst = append(appendLen(w.dst, tagString, len(v)), v...)
	w.endValue()
}

// Duration appends a duration in the format of forebay.Durations, by default in nanoseconds.
func (w *writer) Duration(v time.Duration) {
	switch w.e.values.Duration {
	case values.DurationText:
		w.Text(v.String())
	case values.DurationSeconds:
		w.Float(v.Seconds(), 64)
	default:
		w.Int(int64(v))
	}
}

// Level appends the name of a level as text.
func (w *writer) Level(v slog.Level) { w.Text(values.LevelText(v, w.e.values.Level)) }

// Fault appends the text that replaces a value whose method failed.
func (w *writer) Fault(err error) { w.Text(values.Fault(err)) }

// List opens a list. EndList ends the list.
func (w *writer) List(int) { w.open(true, tagArray) }

// Map opens a map with unique keys. EndMap ends the map.
func (w *writer) Map(int) {
	w.open(false, tagList)
	w.keys.Open(nil)
}

// open begins a list or map with the given tag and makes it the innermost item.
func (w *writer) open(list bool, tag byte) {
	w.beginValue()
	in := item{list: list}
	w.dst, in.start = openLen(w.dst, tag)
	w.items = append(w.items, in)
}

// EndList closes the innermost list or map.
func (w *writer) EndList() {
	n := len(w.items) - 1
	closeLen(w.dst, w.items[n].start)
	w.items = w.items[:n]
	w.endValue()
}

// EndMap closes the innermost map and its set of keys.
func (w *writer) EndMap() {
	w.keys.Close()
	w.EndList()
}

// Key begins a member of the innermost map. The caller then appends the value. If the map already
// has a member with that name, Key appends "_" to the name.
func (w *writer) Key(name string) {
	in := &w.items[len(w.items)-1]
	w.dst, in.pair = openLen(w.dst, tagValues)
	w.dst = appendText(w.dst, tagKey, w.keys.Name(valid(name)))
	w.dst, in.value = openLen(w.dst, tagValue)
}

// Field begins the member for a struct field. The caller then appends the value.
func (w *writer) Field(f *values.Field) { w.Key(f.Name) }

// Direct appends the value of the struct field at p. It reads the memory at p without reflection.
func (w *writer) Direct(fields []values.Field, p unsafe.Pointer) { values.Read(w, fields, p) }

// Err returns nil, because no method of a writer fails.
func (w *writer) Err() error { return nil }

// JSON appends a JSON text as a value. It fails if v is not valid JSON.
func (w *writer) JSON(v []byte) error {
	if !json.Valid(v) {
		var raw json.RawMessage
		return json.Unmarshal(v, &raw)
	}
	w.fromJSON(v, w.walk.Level)
	return nil
}

// fromJSON appends the JSON value at the beginning of js, and returns the remainder. js must be valid.
// depth is the number of enclosing lists and maps. Lists and objects nested deeper than maxDepth are
// written as text.
func (w *writer) fromJSON(js []byte, depth int) (rest []byte) {
	js = skipSpace(js)
	switch c := js[0]; {
	case c == '"':
		n := jsontext.StringLen(js)
		w.text = jsontext.AppendUnescaped(w.text[:0], js[1:n-1])
		w.bytes(w.text)
		return js[n:]
	case (c == '{' || c == '[') && depth >= maxDepth:
		var value json.RawMessage
		_ = json.NewDecoder(bytes.NewReader(js)).Decode(&value) // no error, because js is valid
		w.Text(string(value))
		return js[len(value):]
	case c == '[':
		w.List(0)
		for js = skipSpace(js[1:]); js[0] != ']'; {
			if js = skipSpace(w.fromJSON(js, depth+1)); js[0] == ',' {
				js = js[1:]
			}
		}
		w.EndList()
		return js[1:]
	case c == '{':
		w.Map(0)
		for js = skipSpace(js[1:]); js[0] != '}'; {
			n := jsontext.StringLen(js)
			w.text = jsontext.AppendUnescaped(w.text[:0], js[1:n-1])
			w.Key(string(w.text))
			js = skipSpace(w.fromJSON(skipSpace(js[n:])[1:], depth+1))
			if js[0] == ',' {
				js = skipSpace(js[1:])
			}
		}
		w.EndMap()
		return js[1:]
	case c == 't' || c == 'f':
		w.Bool(c == 't')
	case c == 'n':
		w.Null()
	}
	// The token is true, false, null or a number. It ends at the next delimiter.
	n := bytes.IndexAny(js, ",]} \t\r\n")
	if n < 0 {
		n = len(js)
	}
	if c := js[0]; c == '-' || c >= '0' && c <= '9' {
		number := string(js[:n])
		if bytes.ContainsAny(js[:n], ".eE") {
			if f, err := strconv.ParseFloat(number, 64); err == nil {
				w.Float(f, 64)
				return js[n:]
			}
		} else if i, err := strconv.ParseInt(number, 10, 64); err == nil {
			w.Int(i)
			return js[n:]
		}
		w.Text(number) // the number is outside the range of its type
	}
	return js[n:]
}

// skipSpace returns js without white space at its beginning.
func skipSpace(js []byte) []byte { return bytes.TrimLeft(js, " \t\r\n") }
