package msgpack

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// AppendJSON appends the value at the beginning of b as JSON on one line and returns the rest of b.
// Binary data becomes base64 text, EventTime (ext 0) RFC 3339 text, and other ext values
// {"ext":type,"data":"base64"}. NaN and the infinities become text, and keys that are not strings
// become their JSON text.
//
// A key that is a list or map may itself have a key that is a list or map. This inner key becomes
// the base64 text of its MessagePack, because nested quoting would double the text at each level.
// The JSON therefore has at most maxGrowth bytes for each byte of the value.
//
// The error is [ErrShort], [ErrInvalid] or [ErrDepth]. After an error, the content of out after dst
// is undefined.
func AppendJSON(dst, b []byte) (out, rest []byte, err error) {
	return appendJSON(dst, b, 0, false, false)
}

// AppendJSONText is like AppendJSON, but binary data that is valid UTF-8 becomes text. fluentd
// sends the lines of files as binary data, because it does not know their encoding.
func AppendJSONText(dst, b []byte) (out, rest []byte, err error) {
	return appendJSON(dst, b, 0, false, true)
}

// maxGrowth is the maximum number of bytes of JSON per byte of MessagePack. A one-byte ext value in
// a nested key needs the maximum.
const maxGrowth = 24

// appendJSON implements AppendJSON at the given nesting depth. inKey reports whether the value is
// within a key. text is set for [AppendJSONText].
func appendJSON(dst, b []byte, depth int, inKey, text bool) ([]byte, []byte, error) {
	if str, n := shortStr(b); n > 0 {
		return appendQuoted(dst, str), b[n:], nil
	}
	t, b, err := Next(b)
	if err != nil {
		return dst, b, err
	}
	if t.Kind != Array && t.Kind != Map {
		if text && t.Kind == Bin && utf8.Valid(t.Bytes) {
			return appendQuoted(dst, t.Bytes), b, nil
		}
		return appendScalar(dst, &t), b, nil
	}
	if depth == MaxDepth {
		return dst, b, ErrDepth
	}
	if t.Len > len(b) {
		return dst, b, ErrShort
	}
	if t.Kind == Array {
		dst = append(dst, '[')
		for i := range t.Len {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, b, err = appendJSON(dst, b, depth+1, inKey, text); err != nil {
				return dst, b, err
			}
		}
		return append(dst, ']'), b, nil
	}
	dst = append(dst, '{')
	for i := range t.Len {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, b, err = appendKey(dst, b, depth+1, inKey, text); err != nil {
			return dst, b, err
		}
		dst = append(dst, ':')
		if dst, b, err = appendJSON(dst, b, depth+1, inKey, text); err != nil {
			return dst, b, err
		}
	}
	return append(dst, '}'), b, nil
}

// appendKey appends the key of a pair. A string is appended unchanged, any other value as its JSON
// text. inKey reports whether the pair is within a key.
func appendKey(dst, b []byte, depth int, inKey, text bool) ([]byte, []byte, error) {
	if str, n := shortStr(b); n > 0 {
		return appendQuoted(dst, str), b[n:], nil
	}
	t, rest, err := Next(b)
	switch {
	case err != nil:
		return dst, b, err
	case t.Text():
		return appendQuoted(dst, t.Bytes), rest, nil
	case inKey && (t.Kind == Array || t.Kind == Map):
		if rest, err = skip(b, depth); err != nil {
			return dst, b, err
		}
		return appendBase64(dst, b[:len(b)-len(rest)]), rest, nil
	}
	at := len(dst)
	dst, b, err = appendJSON(dst, b, depth, true, text)
	if err != nil || dst[at] == '"' {
		return dst, b, err
	}
	quoted := string(dst[at:])
	return appendQuoted(dst[:at], []byte(quoted)), b, nil
}

// shortStr returns the string at the beginning of b and its encoded length. n is 0 if b begins with
// another value or the string has 256 bytes or more. Most keys and values are such short strings.
func shortStr(b []byte) (str []byte, n int) {
	if n = Scalar(b); n == 0 {
		return nil, 0
	}
	switch c := b[0]; {
	case c >= 0xa0 && c < 0xc0:
		return b[1:n], n
	case c == cStr8:
		return b[2:n], n
	}
	return nil, 0
}

// appendScalar appends a value that is neither an array nor a map.
func appendScalar(dst []byte, t *Token) []byte {
	switch t.Kind {
	case Nil:
		return append(dst, "null"...)
	case Bool:
		return strconv.AppendBool(dst, t.Bool)
	case Int:
		return strconv.AppendInt(dst, t.Int64(), 10)
	case Uint:
		return strconv.AppendUint(dst, t.Num, 10)
	case Float32:
		return appendFloat(dst, t.Float(), 32)
	case Float64:
		return appendFloat(dst, t.Float(), 64)
	case Str:
		return appendQuoted(dst, t.Bytes)
	case Bin:
		return appendBase64(dst, t.Bytes)
	}
	if at, ok := EventTime(t); ok {
		dst = append(dst, '"')
		dst = at.UTC().AppendFormat(dst, time.RFC3339Nano)
		return append(dst, '"')
	}
	dst = append(dst, `{"ext":`...)
	dst = strconv.AppendInt(dst, int64(t.Ext), 10)
	dst = append(dst, `,"data":`...)
	return append(appendBase64(dst, t.Bytes), '}')
}

// appendBase64 appends b as a JSON string in base64.
func appendBase64(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// appendFloat appends f, of size 32 or 64 bits, in the format of encoding/json. NaN and the
// infinities become strings.
func appendFloat(dst []byte, f float64, size int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"+Inf"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Inf"`...)
	}
	// Like encoding/json, use an exponent only for very small and very large numbers.
	format := byte('f')
	if a := math.Abs(f); a != 0 && (size == 64 && (a < 1e-6 || a >= 1e21) || size == 32 && (float32(a) < 1e-6 || float32(a) >= 1e21)) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, f, format, -1, size)
	if n := len(dst); format == 'e' && n >= 4 && dst[n-4] == 'e' && (dst[n-3] == '-' || dst[n-3] == '+') && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 becomes e-9
		dst = dst[:n-1]
	}
	return dst
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst, s []byte) []byte {
	return append(jsontext.AppendEscapedBytes(append(dst, '"'), s), '"')
}

// EventTime returns the time of an ext value of type 0 of the Forward protocol: big-endian seconds
// and nanoseconds of 32 bits each. ok is false for any other value.
func EventTime(t *Token) (at time.Time, ok bool) {
	if t.Kind != Ext || t.Ext != 0 || len(t.Bytes) != 8 {
		return time.Time{}, false
	}
	return time.Unix(int64(binary.BigEndian.Uint32(t.Bytes)), int64(binary.BigEndian.Uint32(t.Bytes[4:]))), true
}

// AppendEventTime appends seconds since 1970 and nanoseconds as an ext value of type 0.
func AppendEventTime(dst []byte, sec, nsec uint32) []byte {
	return append(dst, cFixext8, 0,
		byte(sec>>24), byte(sec>>16), byte(sec>>8), byte(sec),
		byte(nsec>>24), byte(nsec>>16), byte(nsec>>8), byte(nsec))
}
