package msgpack

import (
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/keyset"
)

// ErrJSON reports invalid JSON.
var ErrJSON = errors.New("msgpack: invalid JSON")

// AppendFromJSON appends the JSON value at the beginning of js, after optional white space, as
// MessagePack and returns the rest of js. Keys keep their order, including duplicates. Numbers
// without fraction and exponent become integers if they fit into 64 bits. Other numbers become
// float64, or text if they are out of range. Each invalid byte of UTF-8 becomes U+FFFD. The error
// is [ErrJSON] or [ErrDepth]; then the content of out after dst is undefined.
func AppendFromJSON(dst, js []byte) (out, rest []byte, err error) {
	return fromJSON(dst, js, nil, 0)
}

// AppendUniqueFromJSON is like AppendFromJSON, with unique keys in each object; see [AppendUnique].
func AppendUniqueFromJSON(dst, js []byte) (out, rest []byte, err error) {
	keys := keyset.Get()
	defer keys.Free()
	return fromJSON(dst, js, keys, 0)
}

// fromJSON implements AppendFromJSON at the given nesting depth. Unless keys is nil, it makes the
// keys of each object unique.
func fromJSON(dst, js []byte, keys *keyset.Set, depth int) ([]byte, []byte, error) {
	js = space(js)
	if len(js) == 0 {
		return dst, js, ErrJSON
	}
	switch c := js[0]; {
	case c == '{' || c == '[':
		if depth == MaxDepth {
			return dst, js, ErrDepth
		}
		return compound(dst, js[1:], keys, depth, c == '{')
	case c == '"':
		return jsonString(dst, js)
	case c == '-' || c >= '0' && c <= '9':
		return jsonNumber(dst, js)
	}
	for _, w := range [...]struct {
		word string
		code byte
	}{{"null", cNil}, {"true", cTrue}, {"false", cFalse}} {
		if len(js) >= len(w.word) && string(js[:len(w.word)]) == w.word {
			return append(dst, w.code), js[len(w.word):], nil
		}
	}
	return dst, js, ErrJSON
}

// space returns js without the white space at its beginning.
func space(js []byte) []byte {
	for len(js) > 0 && (js[0] == ' ' || js[0] == '\t' || js[0] == '\n' || js[0] == '\r') {
		js = js[1:]
	}
	return js
}

// compound appends an object or array, of which js contains the text after the opening bracket.
func compound(dst, js []byte, keys *keyset.Set, depth int, object bool) ([]byte, []byte, error) {
	if keys != nil && object {
		keys.Open(nil) // closed at the end or, after an error, by Free
	}
	at, n := len(dst), 0
	end := byte(']')
	if object {
		end = '}'
	}
	dst = AppendOpenMap(dst)
	if !object {
		dst[at] = cArray32
	}
	var err error
	for {
		js = space(js)
		if len(js) > 0 && js[0] == end && n == 0 {
			break
		}
		if object {
			if len(js) == 0 || js[0] != '"' {
				return dst, js, ErrJSON
			}
			at := len(dst)
			if dst, js, err = jsonString(dst, js); err != nil {
				return dst, js, err
			}
			if keys != nil {
				key := strBody(dst[at:])
				if suffix := keys.Suffix(key); suffix != "" {
					dst = AppendStr(dst[:at], string(key)+suffix)
				}
			}
			js = space(js)
			if len(js) == 0 || js[0] != ':' {
				return dst, js, ErrJSON
			}
			js = js[1:]
		}
		if dst, js, err = fromJSON(dst, js, keys, depth+1); err != nil {
			return dst, js, err
		}
		n++
		js = space(js)
		if len(js) == 0 || js[0] != ',' && js[0] != end {
			return dst, js, ErrJSON
		}
		if js[0] == end {
			break
		}
		js = js[1:]
	}
	if object {
		if keys != nil {
			keys.Close()
		}
		return CloseMap(dst, at, n), js[1:], nil
	}
	return closeArray(dst, at, n), js[1:], nil
}

// strBody returns the bytes of the MessagePack string str.
func strBody(str []byte) []byte {
	switch c := str[0]; {
	case c&0xe0 == 0xa0:
		return str[1:]
	case c == cStr8:
		return str[2:]
	case c == cStr16:
		return str[3:]
	}
	return str[5:]
}

// closeArray is like CloseMap, for an array of n elements.
func closeArray(dst []byte, at, n int) []byte {
	dst = CloseMap(dst, at, n)
	if dst[at]&0xf0 == 0x80 {
		dst[at] |= 0x10
	}
	return dst
}

// jsonString appends the JSON string at the beginning of js as MessagePack and returns the rest of
// js. js begins with the quotation mark.
func jsonString(dst, js []byte) ([]byte, []byte, error) {
	end, ascii, escaped := jsontext.ScanString(js, 1)
	if end < 0 {
		return dst, js, ErrJSON
	}
	text, rest := js[1:end-1], js[end:]
	switch {
	case escaped:
		at := len(dst)
		dst = AppendStrHeader(dst, len(text)) // replaced if the text has another length without escapes
		start := len(dst)
		dst = jsontext.AppendUnescaped(dst, text)
		var header [5]byte
		return slices.Replace(dst, at, start, AppendStrHeader(header[:0], len(dst)-start)...), rest, nil
	case ascii: // and therefore valid
		return append(AppendStrHeader(dst, len(text)), text...), rest, nil
	}
	return AppendStrBytes(dst, text), rest, nil
}

// jsonNumber appends the JSON number at the beginning of js and returns the rest of js.
func jsonNumber(dst, js []byte) ([]byte, []byte, error) {
	n, whole, ok := scanNumber(js)
	if !ok {
		return dst, js, ErrJSON
	}
	return AppendNumber(dst, string(js[:n]), whole), js[n:], nil
}

// AppendNumber appends the JSON number text, which must be valid. whole reports whether it has
// neither fraction nor exponent. The number becomes an integer, a float64 or, if it is out of
// range, text.
func AppendNumber(dst []byte, text string, whole bool) []byte {
	if whole && text != "-0" {
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			return AppendInt(dst, v)
		}
		if v, err := strconv.ParseUint(text, 10, 64); err == nil {
			return AppendUint(dst, v)
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return AppendStr(dst, text)
	}
	return AppendFloat64(dst, f)
}

// scanNumber returns the length of the JSON number at the beginning of js, and whether it is whole,
// see [AppendNumber]. ok is false if it is invalid.
func scanNumber(js []byte) (n int, whole, ok bool) {
	digits := func() bool {
		from := n
		for n < len(js) && js[n] >= '0' && js[n] <= '9' {
			n++
		}
		return n > from
	}
	if js[0] == '-' {
		n++
	}
	if n < len(js) && js[n] == '0' {
		n++
	} else if !digits() {
		return 0, false, false
	}
	whole = true
	if n < len(js) && js[n] == '.' {
		n++
		whole = false
		if !digits() {
			return 0, false, false
		}
	}
	if n < len(js) && (js[n] == 'e' || js[n] == 'E') {
		n++
		whole = false
		if n < len(js) && (js[n] == '+' || js[n] == '-') {
			n++
		}
		if !digits() {
			return 0, false, false
		}
	}
	return n, whole, true
}
