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

// An item is an open list or map of a value. The fields are the offsets
// of contents of unknown length.
type item struct {
	list  bool
	start int // the list or map
	pair  int // its current element or KeyValue
	value int // the value of the KeyValue
}

// walked appends the AnyValue of v at a depth.
func (w *writer) walked(dst []byte, v slog.Value, depth int) ([]byte, error) {
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

// The methods below make a writer a [values.Emitter].

// next begins a value.
func (w *writer) next() {
	if n := len(w.items); n > 0 && w.items[n-1].list {
		w.dst, w.items[n-1].pair = open(w.dst, tagValues)
	}
}

// done ends a value.
func (w *writer) done() {
	if n := len(w.items); n > 0 {
		in := &w.items[n-1]
		if !in.list {
			shut(w.dst, in.value)
		}
		shut(w.dst, in.pair)
	}
}

func (w *writer) Null() {
	w.next()
	w.done()
}

func (w *writer) Bool(v bool) {
	w.next()
	b := byte(0)
	if v {
		b = 1
	}
	w.dst = append(w.dst, tagBool, b)
	w.done()
}

func (w *writer) Int(v int64) {
	w.next()
	w.dst = appendIntValue(w.dst, v)
	w.done()
}

// Uint appends a number, as text if it is larger than the protocol supports.
func (w *writer) Uint(v uint64) {
	if v > math.MaxInt64 {
		w.Text(strconv.FormatUint(v, 10))
		return
	}
	w.Int(int64(v))
}

func (w *writer) Float(v float64, bits int) {
	if bits == 32 { // the shortest decimal number, as in the other outputs
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', -1, 32), 64)
	}
	w.next()
	w.dst = appendDoubleValue(w.dst, v)
	w.done()
}

func (w *writer) Text(v string) {
	w.next()
	w.dst = appendText(w.dst, tagString, valid(v))
	w.done()
}

func (w *writer) Bytes(v []byte) {
	w.next()
	w.dst = append(appendLen(w.dst, tagBytes, len(v)), v...)
	w.done()
}

func (w *writer) Time(v time.Time) {
	w.text = w.e.values.Time.Append(w.text[:0], v, &w.times, values.OwnTime)
	w.bytes(w.text)
}

// bytes appends a text that is valid UTF-8.
func (w *writer) bytes(v []byte) {
	w.next()
	w.dst = append(appendLen(w.dst, tagString, len(v)), v...)
	w.done()
}

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

func (w *writer) Level(v slog.Level) { w.Text(values.LevelText(v, w.e.values.Level)) }

func (w *writer) Fault(err error) { w.Text(values.Fault(err)) }

func (w *writer) Msg(values.Marshaler) {}

func (w *writer) List(int) { w.open(true, tagArray) }

func (w *writer) Map(int) {
	w.open(false, tagList)
	w.keys.Open(nil)
}

func (w *writer) open(list bool, tag byte) {
	w.next()
	in := item{list: list}
	w.dst, in.start = open(w.dst, tag)
	w.items = append(w.items, in)
}

func (w *writer) EndList() {
	n := len(w.items) - 1
	shut(w.dst, w.items[n].start)
	w.items = w.items[:n]
	w.done()
}

func (w *writer) EndMap() {
	w.keys.Close()
	w.EndList()
}

func (w *writer) Key(name string) {
	in := &w.items[len(w.items)-1]
	w.dst, in.pair = open(w.dst, tagValues)
	w.dst = appendText(w.dst, tagKey, w.keys.Name(valid(name)))
	w.dst, in.value = open(w.dst, tagValue)
}

func (w *writer) Field(f *values.Field) { w.Key(f.Name) }

func (w *writer) Direct(f *values.Field, p unsafe.Pointer) { values.Read(w, f, p) }

func (w *writer) Group([]slog.Attr) bool { return false }

func (w *writer) Err() error { return nil }

func (w *writer) JSON(v []byte) error {
	if !json.Valid(v) {
		var raw json.RawMessage
		return json.Unmarshal(v, &raw)
	}
	w.fromJSON(v, w.walk.Level)
	return nil
}

// fromJSON appends the valid JSON value at the beginning of js, and returns the remainder.
func (w *writer) fromJSON(js []byte, depth int) (rest []byte) {
	js = space(js)
	switch c := js[0]; {
	case c == '"':
		n := stringLen(js)
		w.text = jsontext.AppendUnescaped(w.text[:0], js[1:n-1])
		w.bytes(w.text)
		return js[n:]
	case (c == '{' || c == '[') && depth >= maxDepth:
		n := nested(js)
		w.Text(string(js[:n]))
		return js[n:]
	case c == '[':
		w.List(0)
		for js = space(js[1:]); js[0] != ']'; {
			if js = space(w.fromJSON(js, depth+1)); js[0] == ',' {
				js = js[1:]
			}
		}
		w.EndList()
		return js[1:]
	case c == '{':
		w.Map(0)
		for js = space(js[1:]); js[0] != '}'; {
			n := stringLen(js)
			w.text = jsontext.AppendUnescaped(w.text[:0], js[1:n-1])
			w.Key(string(w.text))
			js = space(w.fromJSON(space(js[n:])[1:], depth+1))
			if js[0] == ',' {
				js = space(js[1:])
			}
		}
		w.EndMap()
		return js[1:]
	case c == 't' || c == 'f':
		w.Bool(c == 't')
	case c == 'n':
		w.Null()
	}
	n := bytes.IndexAny(js, ",]} \t\r\n")
	if n < 0 {
		n = len(js)
	}
	if c := js[0]; c == '-' || c >= '0' && c <= '9' {
		number := string(js[:n])
		i, err := strconv.ParseInt(number, 10, 64)
		f, outside := strconv.ParseFloat(number, 64)
		switch {
		case err == nil:
			w.Int(i)
		case outside == nil && bytes.ContainsAny(js[:n], ".eE"):
			w.Float(f, 64)
		default: // it has more digits than the protocol supports
			w.Text(number)
		}
	}
	return js[n:]
}

func space(js []byte) []byte { return bytes.TrimLeft(js, " \t\r\n") }

// stringLen returns the length of the JSON string at the beginning of b, including its quotes.
func stringLen(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// nested returns the length of the list or object at the beginning of b.
func nested(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			i += stringLen(b[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(b)
}
