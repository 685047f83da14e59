package values

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"reflect"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// A jsonWriter is the [Emitter] that writes JSON. It is part of a [Cache].
type jsonWriter struct {
	Leaf // Leaf.Form is FormJSON
	dst  []byte
	more bool // a comma is needed before the next key or element

	fault error // error of the first value that cannot be encoded
}

// next appends a comma before a value if one is needed.
func (j *jsonWriter) next() {
	if j.more {
		j.dst = append(j.dst, ',')
	}
	j.more = true
}

func (j *jsonWriter) Null() {
	j.next()
	j.dst = append(j.dst, "null"...)
}

func (j *jsonWriter) Bool(v bool) {
	j.next()
	j.dst = jsontext.AppendBool(j.dst, v)
}

func (j *jsonWriter) Int(v int64) {
	j.next()
	j.dst = jsontext.AppendInt(j.dst, v)
}

func (j *jsonWriter) Uint(v uint64) {
	j.next()
	j.dst = jsontext.AppendUint(j.dst, v)
}

func (j *jsonWriter) Float(v float64, bits int) {
	j.next()
	j.dst = j.float(j.dst, v, bits)
}

func (j *jsonWriter) Text(v string) {
	j.next()
	j.dst = jsontext.AppendString(j.dst, v)
}

func (j *jsonWriter) Bytes(v []byte) {
	j.next()
	j.dst = append(base64.StdEncoding.AppendEncode(append(j.dst, '"'), v), '"')
}

func (j *jsonWriter) Time(v time.Time) {
	j.next()
	j.dst = j.Leaf.Time(j.dst, v, attrTime)
}

func (j *jsonWriter) Duration(v time.Duration) {
	j.next()
	j.dst = j.duration(j.dst, v)
}

func (j *jsonWriter) Level(v slog.Level) {
	j.next()
	j.dst = j.levelOf(j.dst, v)
}

func (j *jsonWriter) JSON(v []byte) error {
	before, more := len(j.dst), j.more
	j.next()
	start := len(j.dst)
	buf := bytes.NewBuffer(j.dst)
	if err := json.Compact(buf, v); err != nil {
		j.dst, j.more = j.dst[:before], more
		return err
	}
	j.dst = buf.Bytes()
	if b := j.dst[start:]; !utf8.Valid(b) { // json.Compact accepts invalid UTF-8 in strings
		j.dst = append(j.dst[:start], bytes.ToValidUTF8(b, []byte("\ufffd"))...)
	}
	return nil
}

func (j *jsonWriter) Fault(err error) {
	if j.fault == nil {
		j.fault = err
	}
	j.Text(Fault(err))
}

func (j *jsonWriter) List(int) {
	j.next()
	j.dst, j.more = append(j.dst, '['), false
}

func (j *jsonWriter) Map(int) {
	j.next()
	j.dst, j.more = append(j.dst, '{'), false
}

func (j *jsonWriter) EndList() { j.dst, j.more = append(j.dst, ']'), true }

func (j *jsonWriter) EndMap() { j.dst, j.more = append(j.dst, '}'), true }

func (j *jsonWriter) Key(name string) {
	j.dst, j.more = jsontext.AppendKey(j.dst, name), false // AppendKey adds a comma if one is needed
}

func (j *jsonWriter) Field(f *Field) {
	j.comma()
	j.dst = append(j.dst, f.JSON...)
}

func (j *jsonWriter) Direct(fields []Field, p unsafe.Pointer) {
	dst, more := j.dst, j.more
	for i := range fields {
		f, start, zero := &fields[i], len(dst), false
		if more {
			dst = append(dst, ',')
		}
		dst = append(dst, f.JSON...)
		switch at := unsafe.Add(p, f.Offset); f.Direct {
		case reflect.String:
			v := *(*string)(at)
			dst, zero = jsontext.AppendString(dst, v), v == ""
		case reflect.Int:
			v := *(*int)(at)
			dst, zero = jsontext.AppendInt(dst, int64(v)), v == 0
		case reflect.Int64:
			v := *(*int64)(at)
			dst, zero = jsontext.AppendInt(dst, v), v == 0
		case reflect.Bool:
			v := *(*bool)(at)
			dst, zero = jsontext.AppendBool(dst, v), !v
		default:
			v := *(*float64)(at)
			dst, zero = j.float(dst, v, 64), v == 0
		}
		if zero && f.OmitEmpty {
			dst = dst[:start]
			continue
		}
		more = true
	}
	j.dst, j.more = dst, more
}

// comma appends a comma before a member if one is needed.
func (j *jsonWriter) comma() {
	if j.more {
		j.dst, j.more = append(j.dst, ','), false
	}
}

// group writes a group if all its values are of the most common kinds. If not, it writes nothing
// and returns false.
func (j *jsonWriter) group(attrs []slog.Attr) bool {
	dst := j.dst
	if j.more {
		dst = append(dst, ',')
	}
	dst = append(dst, '{')
	for i := range attrs {
		a := &attrs[i]
		switch a.Value.Kind() {
		case slog.KindString:
			dst = jsontext.AppendString(jsontext.AppendKey(dst, a.Key), a.Value.String())
		case slog.KindInt64:
			dst = jsontext.AppendInt(jsontext.AppendKey(dst, a.Key), a.Value.Int64())
		case slog.KindBool:
			dst = jsontext.AppendBool(jsontext.AppendKey(dst, a.Key), a.Value.Bool())
		case slog.KindTime:
			dst = j.Leaf.Time(jsontext.AppendKey(dst, a.Key), a.Value.Time(), attrTime)
		default:
			return false
		}
	}
	j.dst, j.more = append(dst, '}'), true
	return true
}

func (j *jsonWriter) Err() error { return nil }

// composite appends x, a value of a type that Walker.Any does not handle itself. If x is nil, it
// appends the attributes in the slice group. In formats other than JSON, lists and maps are JSON in
// a string.
func (w *Walker) composite(dst []byte, x any, group []slog.Attr) []byte {
	start := len(dst)
	c := w.cache()
	j, k := &c.json, &c.walk
	if c.walkOf != c { // the cache is new, or a copy
		c.walkOf, k.Emitter, k.Limits, k.Scratch = c, j, Limits{Depth: MaxDepth}, &c.Scratch
	}
	j.Style, j.Cache, j.dst, j.more = w.Style, c, dst, false
	k.Style, k.Expansions, k.Nodes = w.Style, w.expansions, w.nodes
	if w.Style.Replace != nil {
		if k.Replace = w.Style.Replace; !w.Builtin {
			k.Groups = *w.path()
		}
	}
	k.Reset()
	var err error
	if x == nil {
		err = k.group(group)
	} else if s := shapeOf(x); s.Kind == Pointer {
		err = k.value(reflect.ValueOf(x), s)
	} else {
		err = k.Any(x)
	}
	dst = j.dst
	w.expansions, w.nodes = k.Expansions, k.Nodes
	j.dst = nil
	if k.Replace != nil {
		k.Groups, k.Replace = nil, nil
	}
	if err != nil {
		return w.text(dst[:start], "!ERROR:encode: "+err.Error())
	}
	switch {
	case w.Form == FormJSON:
		return dst
	case dst[start] == '"': // a JSON string is written as text, without a second pair of quotes
		end := len(dst)
		return w.replace(jsontext.AppendUnescaped(dst, dst[start+1:end-1]), start, end)
	case string(dst[start:]) == "null":
		return w.null(dst[:start])
	}
	return w.quote(dst, start)
}
