package msgpack

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendJSON appends the value at the beginning of b as JSON on one line and
// returns what follows it. Binary data become base64 text, EventTime (ext 0)
// RFC 3339 text, other ext values {"ext":type,"data":"base64"}, numbers that
// JSON has not (NaN, infinities) text, and keys that are no strings their text.
// On error dst's content beyond its original length is undefined.
func AppendJSON(dst, b []byte) (out, rest []byte, err error) { return appendJSON(dst, b, 0) }

func appendJSON(dst, b []byte, depth int) ([]byte, []byte, error) {
	t, b, err := Next(b)
	if err != nil {
		return dst, b, err
	}
	if t.Kind != Array && t.Kind != Map {
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
			if dst, b, err = appendJSON(dst, b, depth+1); err != nil {
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
		if dst, b, err = appendKey(dst, b, depth+1); err != nil {
			return dst, b, err
		}
		dst = append(dst, ':')
		if dst, b, err = appendJSON(dst, b, depth+1); err != nil {
			return dst, b, err
		}
	}
	return append(dst, '}'), b, nil
}

// appendKey appends the key of a pair: a string as it is, all else as the text
// of its JSON.
func appendKey(dst, b []byte, depth int) ([]byte, []byte, error) {
	if t, rest, err := Next(b); err == nil && t.Text() {
		return appendQuoted(dst, t.Bytes), rest, nil
	}
	at := len(dst)
	dst, b, err := appendJSON(dst, b, depth)
	if err != nil || dst[at] == '"' {
		return dst, b, err
	}
	text := string(dst[at:])
	return appendQuoted(dst[:at], []byte(text)), b, nil
}

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

func appendBase64(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

func appendFloat(dst []byte, f float64, size int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"+Inf"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Inf"`...)
	}
	// As encoding/json: exponents where ECMAScript has them.
	format := byte('f')
	if a := math.Abs(f); a != 0 && (size == 64 && (a < 1e-6 || a >= 1e21) || size == 32 && (float32(a) < 1e-6 || float32(a) >= 1e21)) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, f, format, -1, size)
	if n := len(dst); format == 'e' && n >= 4 && dst[n-4] == 'e' && (dst[n-3] == '-' || dst[n-3] == '+') && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is e-9
		dst = dst[:n-1]
	}
	return dst
}

const hex = "0123456789abcdef"

// asItIs are the bytes that stand in a JSON string as they are.
var asItIs = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// appendQuoted appends s as a JSON string.
func appendQuoted(dst, s []byte) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		from := i
		for i < len(s) && asItIs[s[i]] {
			i++
		}
		if dst = append(dst, s[from:i]...); i == len(s) {
			break
		}
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, "\ufffd"...)
			} else {
				dst = append(dst, s[i:i+n]...)
			}
			i += n
			continue
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < ' ' || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
	}
	return append(dst, '"')
}

// EventTime returns the time of an ext value of type 0 of the Forward protocol:
// seconds and nanoseconds, 32 bits each.
func EventTime(t *Token) (time.Time, bool) {
	if t.Kind != Ext || t.Ext != 0 || len(t.Bytes) != 8 {
		return time.Time{}, false
	}
	return time.Unix(int64(binary.BigEndian.Uint32(t.Bytes)), int64(binary.BigEndian.Uint32(t.Bytes[4:]))), true
}

// AppendEventTime appends seconds and nanoseconds as an ext value of type 0.
func AppendEventTime(dst []byte, sec, nsec uint32) []byte {
	return append(dst, cFixext8, 0,
		byte(sec>>24), byte(sec>>16), byte(sec>>8), byte(sec),
		byte(nsec>>24), byte(nsec>>16), byte(nsec>>8), byte(nsec))
}
