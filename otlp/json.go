package otlp

import (
	"bytes"
	"strconv"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// fromJSON appends the AnyValue of the JSON value at the beginning of js, and returns the
// remainder. Objects are lists of pairs in their order. ok is false if js is not JSON as written
// by package values, without spaces.
func (w *writer) fromJSON(dst, js []byte, depth int) (out, rest []byte, ok bool) {
	if len(js) == 0 {
		return dst, nil, false
	}
	switch js[0] {
	case '"':
		n := stringLen(js)
		if n == 0 {
			return dst, nil, false
		}
		w.text = jsontext.AppendUnescaped(w.text[:0], js[1:n-1])
		return append(appendLen(dst, tagString, len(w.text)), w.text...), js[n:], true
	case '{', '[':
		if depth >= maxDepth {
			n := nested(js)
			if n == 0 {
				return dst, nil, false
			}
			return append(appendLen(dst, tagString, n), js[:n]...), js[n:], true
		}
		return w.container(dst, js, depth)
	case 't':
		rest, ok = bytes.CutPrefix(js, []byte("true"))
		return append(dst, tagBool, 1), rest, ok
	case 'f':
		rest, ok = bytes.CutPrefix(js, []byte("false"))
		return append(dst, tagBool, 0), rest, ok
	case 'n':
		rest, ok = bytes.CutPrefix(js, []byte("null"))
		return dst, rest, ok
	}
	n := bytes.IndexAny(js, ",]}")
	if n < 0 {
		n = len(js)
	}
	number := string(js[:n])
	if i, err := strconv.ParseInt(number, 10, 64); err == nil {
		return appendIntValue(dst, i), js[n:], true
	}
	f, err := strconv.ParseFloat(number, 64)
	switch {
	case err == nil && bytes.ContainsAny(js[:n], ".eE"):
		return appendDoubleValue(dst, f), js[n:], true
	case n > 0 && (js[0] == '-' || js[0] >= '0' && js[0] <= '9'): // it has more digits than numbers here
		return append(appendLen(dst, tagString, n), js[:n]...), js[n:], true
	}
	return dst, nil, false
}

// container appends a list or an object.
func (w *writer) container(dst, js []byte, depth int) (out, rest []byte, ok bool) {
	object, end, tag := js[0] == '{', byte(']'), byte(tagArray)
	if object {
		end, tag = '}', tagList
	}
	dst, list := open(dst, tag)
	if object {
		w.keys.Open(nil)
		defer w.keys.Close()
	}
	for js = js[1:]; ; js = js[1:] {
		if len(js) > 0 && js[0] == end {
			shut(dst, list)
			return dst, js[1:], true
		}
		var item int
		dst, item = open(dst, tagValues)
		at := item
		if object {
			n := stringLen(js)
			if n == 0 || n == len(js) || js[n] != ':' {
				return dst, nil, false
			}
			w.text = jsontext.AppendUnescaped(w.text[:0], js[1:n-1])
			suffix := w.keys.Suffix(w.text)
			dst = append(append(appendLen(dst, tagKey, len(w.text)+len(suffix)), w.text...), suffix...)
			js = js[n+1:]
			dst, at = open(dst, tagValue)
		}
		if dst, js, ok = w.fromJSON(dst, js, depth+1); !ok || len(js) == 0 {
			return dst, nil, false
		}
		shut(dst, at)
		shut(dst, item)
		if js[0] == end {
			shut(dst, list)
			return dst, js[1:], true
		}
		if js[0] != ',' {
			return dst, nil, false
		}
	}
}

// stringLen returns the length of the JSON string at the beginning of b, including its quotes, or 0
// if there is none.
func stringLen(b []byte) int {
	if len(b) < 2 || b[0] != '"' {
		return 0
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// nested returns the length of the list or object at the beginning of b, or 0 if there is none.
func nested(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := stringLen(b[i:])
			if n == 0 {
				return 0
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}
