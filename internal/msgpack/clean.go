package msgpack

import (
	"encoding/binary"
	"math"
	"time"
	"unicode/utf8"
)

// A value is clean if every receiver of the Forward protocol accepts it as part of a record. Its
// keys are str, its strings are UTF-8, its floats are finite, and EventTime is its only ext type.
// See [AppendClean].

// IsClean reports whether every receiver of the Forward protocol accepts the value b unchanged. It
// returns an error if the value is malformed or followed by further bytes.
func IsClean(b []byte) (bool, error) {
	rest, err := Skip(b)
	if err != nil {
		return false, err
	}
	if len(rest) > 0 {
		return false, ErrInvalid
	}
	_, ok := clean(b)
	return ok, nil
}

// clean implements IsClean for the value at the beginning of b, which must be well-formed, and
// returns the rest of b. rest is meaningful only if ok is true.
func clean(b []byte) (rest []byte, ok bool) {
	t, b, _ := Next(b)
	switch t.Kind {
	case Array:
		for range t.Len {
			if b, ok = clean(b); !ok {
				return b, false
			}
		}
	case Map:
		for range t.Len {
			k, _, _ := Next(b)
			if k.Kind != Str {
				return b, false
			}
			if b, ok = clean(b); !ok {
				return b, false
			}
			if b, ok = clean(b); !ok {
				return b, false
			}
		}
	case Str:
		return b, utf8.Valid(t.Bytes)
	case Float32, Float64:
		return b, !math.IsNaN(t.Float()) && !math.IsInf(t.Float(), 0)
	case Ext:
		_, ok := EventTime(&t)
		return b, ok
	}
	return b, true
}

// AppendClean appends the value at the beginning of b in a form that every receiver of the Forward
// protocol accepts, and returns the rest of b. Keys that are not strings become their JSON text.
// Each invalid byte of UTF-8 becomes U+FFFD. NaN and the infinities become text. The time values of
// the Go package msgp (ext 5) and of MessagePack (ext -1) become RFC 3339 text. Other ext values
// become binary data.
func AppendClean(dst, b []byte) (out, rest []byte, err error) { return appendClean(dst, b, 0) }

// appendClean implements AppendClean at the given nesting depth.
func appendClean(dst, b []byte, depth int) ([]byte, []byte, error) {
	if depth == MaxDepth {
		return dst, b, ErrDepth
	}
	before := b
	t, b, err := Next(b)
	if err != nil {
		return dst, b, err
	}
	switch t.Kind {
	case Array:
		dst = AppendArrayHeader(dst, t.Len)
		for range t.Len {
			if dst, b, err = appendClean(dst, b, depth+1); err != nil {
				return dst, b, err
			}
		}
		return dst, b, nil
	case Map:
		dst = AppendMapHeader(dst, t.Len)
		for range t.Len {
			if k, rest, err := Next(b); err == nil && k.Text() {
				dst, b = AppendStrBytes(dst, k.Bytes), rest
			} else {
				var text []byte
				if text, b, err = appendJSON(nil, b, depth+1, true, false); err != nil {
					return dst, b, err
				}
				dst = AppendStrBytes(dst, text)
			}
			if dst, b, err = appendClean(dst, b, depth+1); err != nil {
				return dst, b, err
			}
		}
		return dst, b, nil
	case Str:
		return AppendStrBytes(dst, t.Bytes), b, nil
	case Float32, Float64:
		if f := t.Float(); f-f != 0 {
			return AppendStr(dst, FloatText(f)), b, nil
		}
	case Ext:
		if _, ok := EventTime(&t); ok {
			break
		}
		if at, ok := otherTime(&t); ok {
			return AppendTime(dst, at), b, nil
		}
		return AppendBin(dst, t.Bytes), b, nil
	}
	return append(dst, before[:len(before)-len(b)]...), b, nil
}

// FloatText returns the text of NaN or an infinity, which JSON cannot represent as a number.
func FloatText(f float64) string {
	switch {
	case f > 0:
		return "+Inf"
	case f < 0:
		return "-Inf"
	}
	return "NaN"
}

// otherTime parses a time in the ext types of msgp and MessagePack.
func otherTime(t *Token) (time.Time, bool) {
	b := t.Bytes
	switch {
	case t.Ext == 5 && len(b) == 12: // msgp: seconds, nanoseconds
		return time.Unix(int64(binary.BigEndian.Uint64(b)), int64(int32(binary.BigEndian.Uint32(b[8:])))), true
	case t.Ext == -1 && len(b) == 4: // seconds
		return time.Unix(int64(binary.BigEndian.Uint32(b)), 0), true
	case t.Ext == -1 && len(b) == 8: // 30 bits of nanoseconds, 34 bits of seconds
		v := binary.BigEndian.Uint64(b)
		return time.Unix(int64(v&(1<<34-1)), int64(v>>34)), true
	case t.Ext == -1 && len(b) == 12: // nanoseconds, seconds
		return time.Unix(int64(binary.BigEndian.Uint64(b[4:])), int64(binary.BigEndian.Uint32(b))), true
	}
	return time.Time{}, false
}

// AppendTime appends t as RFC 3339 text in the zone of t, with as many fractional digits as
// needed.
func AppendTime(dst []byte, t time.Time) []byte {
	at := len(dst)
	dst = append(dst, cStr8, 0)
	dst = t.AppendFormat(dst, time.RFC3339Nano)
	n := len(dst) - at - 2
	if n < 32 {
		dst[at] = 0xa0 | byte(n)
		return append(dst[:at+1], dst[at+2:]...)
	}
	dst[at+1] = byte(n) // at most 255: the longest text has about 45 bytes
	return dst
}
