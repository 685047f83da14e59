package values

import (
	"math"
	"math/rand/v2"
	"reflect"
	"sync"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// encoding/json rejects a value that contains a NaN or an infinity at any depth. Such a
// value is encoded again with random substitute numbers, unlikely to occur in other data, and
// the substitutes are then replaced in the text by the strings that leaf.float writes.
// Everything else is written as by encoding/json.

// nonFinite are the texts of NaN and the infinities.
var nonFinite = [3]string{`"NaN"`, `"+Inf"`, `"-Inf"`}

// A standIn is a number that replaces a NaN or an infinity.
type standIn struct {
	f    float64
	text string // as encoding/json writes it
}

// standIns returns the substitutes for float64 and float32.
var standIns = sync.OnceValue(func() (out [2][len(nonFinite)]standIn) {
	for i := range nonFinite {
		// The exponents are near the largest; the lowest bits differ.
		f := math.Float64frombits(0x7e<<56 | rand.Uint64N(1<<50)<<2 | uint64(i))
		g := float64(math.Float32frombits(0x7e<<24 | rand.Uint32N(1<<22)<<2 | uint32(i)))
		out[0][i] = standIn{f, string(jsontext.AppendFloat(nil, f, 64))}
		out[1][i] = standIn{g, string(jsontext.AppendFloat(nil, g, 32))}
	}
	return out
})

// finite returns v without NaN and infinities. It copies only composite values that contain
// one and never modifies v. v must not be cyclic.
func finite(v reflect.Value) (out reflect.Value, changed bool) {
	if v.Kind() != reflect.Interface {
		if s := shapeOf(v.Type()); s.leaf || s.leafPtr && v.CanAddr() {
			return v, false // a method encodes the value
		}
	}
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		return finiteFloat(v)
	case reflect.Interface, reflect.Pointer:
		return finiteElem(v)
	case reflect.Slice, reflect.Array:
		return finiteList(v)
	case reflect.Map:
		return finiteMap(v)
	case reflect.Struct:
		out = v
		finiteFields(v, func() reflect.Value {
			if !changed {
				changed = true
				out = reflect.New(v.Type()).Elem()
				out.Set(v)
			}
			return out
		})
		return out, changed
	}
	return v, false
}

func finiteFloat(v reflect.Value) (out reflect.Value, changed bool) {
	f := v.Float()
	if f-f == 0 {
		return v, false
	}
	in := standIns()[0]
	if v.Kind() == reflect.Float32 {
		in = standIns()[1]
	}
	out = reflect.New(v.Type()).Elem()
	switch {
	case f > 0:
		out.SetFloat(in[1].f)
	case f < 0:
		out.SetFloat(in[2].f)
	default:
		out.SetFloat(in[0].f)
	}
	return out, true
}

// finiteElem is finite for an interface or a pointer.
func finiteElem(v reflect.Value) (out reflect.Value, changed bool) {
	if v.IsNil() {
		return v, false
	}
	elem, changed := finite(v.Elem())
	if !changed {
		return v, false
	}
	out = reflect.New(v.Type()).Elem()
	if v.Kind() == reflect.Pointer {
		out.Set(reflect.New(v.Type().Elem()).Convert(v.Type()))
		out.Elem().Set(elem)
	} else {
		out.Set(elem)
	}
	return out, true
}

// finiteList is finite for a slice or an array.
func finiteList(v reflect.Value) (out reflect.Value, changed bool) {
	out = v
	switch v.Type().Elem().Kind() {
	case reflect.Uint8, reflect.String, reflect.Int, reflect.Int64: // often long; checked first
		return v, false
	}
	for i := range v.Len() {
		elem, c := finite(v.Index(i))
		if !c {
			continue
		}
		if !changed {
			changed = true
			out = reflect.New(v.Type()).Elem()
			if v.Kind() == reflect.Slice {
				out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			}
			reflect.Copy(out, v)
		}
		out.Index(i).Set(elem)
	}
	return out, changed
}

func finiteMap(v reflect.Value) (out reflect.Value, changed bool) {
	out = v
	for it := v.MapRange(); it.Next(); {
		elem, c := finite(it.Value())
		if !c {
			continue
		}
		if !changed {
			changed = true
			out = reflect.MakeMapWithSize(v.Type(), v.Len())
			for all := v.MapRange(); all.Next(); {
				out.SetMapIndex(all.Key(), all.Value())
			}
		}
		out.SetMapIndex(it.Key(), elem)
	}
	return out, changed
}

// finiteFields is finite for the fields of a struct; own returns the copy in which to set
// them.
func finiteFields(v reflect.Value, own func() reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Tag.Get("json") == "-":
		case f.IsExported():
			if field, changed := finite(v.Field(i)); changed {
				own().Field(i).Set(field)
			}
		case f.Anonymous && f.Type.Kind() == reflect.Struct: // its fields may be exported
			finiteFields(v.Field(i), func() reflect.Value { return own().Field(i) })
		}
	}
}

// appendStoodIn appends text, which is JSON, with strings instead of the substitutes.
func appendStoodIn(dst, text []byte) []byte {
	for i := 0; i < len(text); {
		begin := i
		switch c := text[i]; {
		case c == '"': // may be a float with the string option
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i++
			dst = appendToken(dst, text[begin:i], text[begin+1:i-1])
		case c == '-' || c >= '0' && c <= '9':
			for i < len(text) && text[i] != ',' && text[i] != '}' && text[i] != ']' {
				i++
			}
			dst = appendToken(dst, text[begin:i], text[begin:i])
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

func appendToken(dst, token, content []byte) []byte {
	for _, in := range standIns() {
		for i := range in {
			if string(content) == in[i].text {
				return append(dst, nonFinite[i]...)
			}
		}
	}
	return append(dst, token...)
}
