package otlp

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// The form of a record, in the slab and unchanged in a request: a LogRecord as field 2 of ScopeLogs
// (opentelemetry/proto/logs/v1/logs.proto).
//
//	12 len4  09 time8  59 observed8  10 severity  1a text  2a body  32 attribute*  4a trace  52 span
//
// A length that is known only after its content is a varint padded to four bytes, which protobuf
// decoders accept. A record is therefore written from front to back without moving bytes. All
// other lengths have the minimal size.
const (
	tagRecord = 0x12 // in ScopeLogs

	tagTime       = 0x09 // in LogRecord
	tagSeverity   = 0x10
	tagText       = 0x1a
	tagBody       = 0x2a
	tagAttr       = 0x32
	tagTrace      = 0x4a
	tagSpan       = 0x52
	tagObserved   = 0x59
	tagKey        = 0x0a // in KeyValue
	tagValue      = 0x12
	tagString     = 0x0a // in AnyValue
	tagBool       = 0x10
	tagInt        = 0x18
	tagDouble     = 0x21
	tagArray      = 0x2a
	tagList       = 0x32
	tagBytes      = 0x3a
	tagValues     = 0x0a // in ArrayValue and KeyValueList
	tagResource   = 0x0a // in ResourceLogs, and ResourceLogs in a request
	tagScopeLogs  = 0x12 // in ResourceLogs
	tagScope      = 0x0a // in ScopeLogs
	tagScopeName  = 0x0a // in InstrumentationScope
	tagScopeVer   = 0x12
	tagOfResource = 0x0a // attributes of a Resource
	tagOfScope    = 0x1a // attributes of a scope

	lenBytes   = 4 // size of a padded length
	maxPadded  = 1<<28 - 1
	recordHead = 1 + lenBytes
)

// putPadded writes v, up to maxPadded, as a varint of four bytes.
func putPadded(b []byte, v int) {
	n := uint32(v)
	binary.LittleEndian.PutUint32(b, n&0x7f|n<<1&0x7f00|n<<2&0x7f_0000|n<<3&0x7f00_0000|0x80_8080)
}

// open appends a tag and space for a length, and returns the offset of the content.
func open(dst []byte, tag byte) ([]byte, int) {
	dst = append(dst, tag, 0, 0, 0, 0)
	return dst, len(dst)
}

// shut sets the length of the content that begins at start and ends at the end of dst.
func shut(dst []byte, start int) { putPadded(dst[start-lenBytes:start], len(dst)-start) }

// uvLen returns the length of v as a varint.
func uvLen(v int) int { return (bits.Len64(uint64(v)|1) + 6) / 7 }

// lenOf returns the length of a field of n bytes with its tag and its length.
func lenOf(n int) int { return 1 + uvLen(n) + n }

func appendLen(dst []byte, tag byte, n int) []byte {
	dst = append(dst, tag)
	if n < 0x80 {
		return append(dst, byte(n))
	}
	return binary.AppendUvarint(dst, uint64(n))
}

func appendText(dst []byte, tag byte, s string) []byte {
	return append(appendLen(dst, tag, len(s)), s...)
}

func appendFixed64(dst []byte, tag byte, v uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, tag), v)
}

// valid returns s as valid UTF-8, which protobuf requires.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// pair appends the beginning of a KeyValue whose AnyValue has n bytes.
func pair(dst []byte, tag byte, key string, n int) []byte {
	dst = appendLen(dst, tag, lenOf(len(key))+lenOf(n))
	return appendLen(appendText(dst, tagKey, key), tagValue, n)
}

func appendString(dst []byte, tag byte, key, s string) []byte {
	s = valid(s)
	return appendText(pair(dst, tag, key, lenOf(len(s))), tagString, s)
}

func appendInt(dst []byte, tag byte, key string, v int64) []byte {
	n := (bits.Len64(uint64(v)|1) + 6) / 7
	return binary.AppendUvarint(append(pair(dst, tag, key, 1+n), tagInt), uint64(v))
}

func appendBool(dst []byte, tag byte, key string, v bool) []byte {
	b := byte(0)
	if v {
		b = 1
	}
	return append(pair(dst, tag, key, 2), tagBool, b)
}

func appendDouble(dst []byte, tag byte, key string, v float64) []byte {
	return appendFixed64(pair(dst, tag, key, 9), tagDouble, math.Float64bits(v))
}

// begin appends the beginning of a KeyValue whose AnyValue has an unknown length. It returns the
// offsets of both.
func begin(dst []byte, tag byte, key string) (out []byte, whole, value int) {
	dst, whole = open(dst, tag)
	dst = appendText(dst, tagKey, key)
	dst, value = open(dst, tagValue)
	return dst, whole, value
}

// next parses one field of a message: its tag and, for a field with a length, its bytes, otherwise
// its number. ok is false if b is not a message.
func next(b []byte) (tag byte, data []byte, number uint64, rest []byte, ok bool) {
	key, n := binary.Uvarint(b)
	if n <= 0 || key > 0xff {
		if n > 0 && key <= math.MaxUint32 && key>>3 != 0 { // an unknown field
			_, data, number, rest, ok = field(byte(key&7), b[n:])
			return 0, data, number, rest, ok
		}
		return 0, nil, 0, nil, false
	}
	_, data, number, rest, ok = field(byte(key&7), b[n:])
	return byte(key), data, number, rest, ok && key>>3 != 0
}

func field(kind byte, b []byte) (_ byte, data []byte, number uint64, rest []byte, ok bool) {
	switch kind {
	case 0:
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, nil, 0, nil, false
		}
		return kind, nil, v, b[n:], true
	case 1:
		if len(b) < 8 {
			return 0, nil, 0, nil, false
		}
		return kind, nil, binary.LittleEndian.Uint64(b), b[8:], true
	case 2:
		v, n := binary.Uvarint(b)
		if n <= 0 || v > uint64(len(b)-n) {
			return 0, nil, 0, nil, false
		}
		return kind, b[n : n+int(v)], 0, b[n+int(v):], true
	case 5:
		if len(b) < 4 {
			return 0, nil, 0, nil, false
		}
		return kind, nil, uint64(binary.LittleEndian.Uint32(b)), b[4:], true
	}
	return 0, nil, 0, nil, false
}

// isRecord reports whether rec looks like a record of this package.
func isRecord(rec []byte) bool {
	tag, _, _, rest, ok := next(rec)
	return ok && tag == tagRecord && len(rest) == 0
}

func appendIntValue(dst []byte, v int64) []byte {
	return binary.AppendUvarint(append(dst, tagInt), uint64(v))
}

func appendDoubleValue(dst []byte, v float64) []byte {
	return appendFixed64(dst, tagDouble, math.Float64bits(v))
}
