package otlp

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// The format of a record, in the slab and unchanged in a request: a LogRecord as field 2 of ScopeLogs
// (opentelemetry/proto/logs/v1/logs.proto).
//
//	12 len4  09 time8  59 observed8  10 severity  1a text  2a body  32 attribute*  4a trace  52 span
//
// A length that is known only after its content is a varint padded to four bytes, which protobuf
// decoders accept. A record is therefore written from front to back without moving bytes. All
// other lengths have the minimal size.
//
// The constants are the tags of protobuf fields: the field number and the wire type.
const (
	tagResource   = 0x0a // ResourceLogs.resource, and ExportLogsServiceRequest.resource_logs
	tagScopeLogs  = 0x12 // ResourceLogs.scope_logs
	tagScope      = 0x0a // ScopeLogs.scope
	tagRecord     = 0x12 // ScopeLogs.log_records
	tagScopeName  = 0x0a // InstrumentationScope.name
	tagScopeVer   = 0x12 // InstrumentationScope.version
	tagOfResource = 0x0a // Resource.attributes

	tagTime     = 0x09 // LogRecord.time_unix_nano
	tagSeverity = 0x10 // LogRecord.severity_number
	tagText     = 0x1a // LogRecord.severity_text
	tagBody     = 0x2a // LogRecord.body
	tagAttr     = 0x32 // LogRecord.attributes
	tagTrace    = 0x4a // LogRecord.trace_id
	tagSpan     = 0x52 // LogRecord.span_id
	tagObserved = 0x59 // LogRecord.observed_time_unix_nano

	tagKey    = 0x0a // KeyValue.key
	tagValue  = 0x12 // KeyValue.value
	tagString = 0x0a // AnyValue.string_value
	tagBool   = 0x10 // AnyValue.bool_value
	tagInt    = 0x18 // AnyValue.int_value
	tagDouble = 0x21 // AnyValue.double_value
	tagArray  = 0x2a // AnyValue.array_value
	tagList   = 0x32 // AnyValue.kvlist_value
	tagBytes  = 0x3a // AnyValue.bytes_value
	tagValues = 0x0a // ArrayValue.values and KeyValueList.values

	lenBytes  = 4         // size of a padded length in bytes
	maxPadded = 1<<28 - 1 // largest padded length
)

// putPadded writes v to b as a varint of four bytes. v must be at most maxPadded.
func putPadded(b []byte, v int) {
	n := uint32(v)
	binary.LittleEndian.PutUint32(b, n&0x7f|n<<1&0x7f00|n<<2&0x7f_0000|n<<3&0x7f00_0000|0x80_8080)
}

// openLen appends a tag and reserves four bytes for a length. It returns the offset of the content,
// which the caller appends and then passes to closeLen.
func openLen(dst []byte, tag byte) ([]byte, int) {
	dst = append(dst, tag, 0, 0, 0, 0)
	return dst, len(dst)
}

// closeLen stores the length of the content that begins at start and ends at the end of dst.
func closeLen(dst []byte, start int) { putPadded(dst[start-lenBytes:start], len(dst)-start) }

// varintLen returns the size of v as a varint, in bytes.
func varintLen(v int) int { return (bits.Len64(uint64(v)|1) + 6) / 7 }

// fieldLen returns the size in bytes of a field with n bytes of content, including the tag and the
// length.
func fieldLen(n int) int { return 1 + varintLen(n) + n }

// appendLen appends a tag and the length n. The caller appends the content.
func appendLen(dst []byte, tag byte, n int) []byte {
	dst = append(dst, tag)
	if n < 0x80 {
		return append(dst, byte(n))
	}
	return binary.AppendUvarint(dst, uint64(n))
}

// appendText appends a field of type string. s must be valid UTF-8.
func appendText(dst []byte, tag byte, s string) []byte {
	return append(appendLen(dst, tag, len(s)), s...)
}

// appendFixed64 appends a field of type fixed64.
func appendFixed64(dst []byte, tag byte, v uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, tag), v)
}

// valid replaces invalid bytes in s with U+FFFD. Protobuf requires valid UTF-8 in strings.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// appendPairHead appends the beginning of a KeyValue with the given tag. The caller then appends
// the AnyValue, which must have n bytes.
func appendPairHead(dst []byte, tag byte, key string, n int) []byte {
	dst = appendLen(dst, tag, fieldLen(len(key))+fieldLen(n))
	return appendLen(appendText(dst, tagKey, key), tagValue, n)
}

// appendString appends a KeyValue with a string. Invalid UTF-8 in s becomes U+FFFD.
func appendString(dst []byte, tag byte, key, s string) []byte {
	s = valid(s)
	return appendText(appendPairHead(dst, tag, key, fieldLen(len(s))), tagString, s)
}

// appendInt appends a KeyValue with an integer.
func appendInt(dst []byte, tag byte, key string, v int64) []byte {
	n := (bits.Len64(uint64(v)|1) + 6) / 7
	return binary.AppendUvarint(append(appendPairHead(dst, tag, key, 1+n), tagInt), uint64(v))
}

// appendBool appends a KeyValue with a boolean.
func appendBool(dst []byte, tag byte, key string, v bool) []byte {
	b := byte(0)
	if v {
		b = 1
	}
	return append(appendPairHead(dst, tag, key, 2), tagBool, b)
}

// appendDouble appends a KeyValue with a floating-point number.
func appendDouble(dst []byte, tag byte, key string, v float64) []byte {
	return appendFixed64(appendPairHead(dst, tag, key, 9), tagDouble, math.Float64bits(v))
}

// openPair appends the beginning of a KeyValue whose AnyValue has an unknown length. It returns the
// offsets of the KeyValue and of the AnyValue. The caller passes both offsets to closeLen.
func openPair(dst []byte, tag byte, key string) (out []byte, whole, value int) {
	dst, whole = openLen(dst, tag)
	dst = appendText(dst, tagKey, key)
	dst, value = openLen(dst, tagValue)
	return dst, whole, value
}

// next parses the first field of a message and returns its tag. rest is what follows the field.
// data is the content of a field with a length, and number the value of any other field. The tag is
// 0 for a field number above 31, because no message of this package has such a field. ok is false
// if b is not a message.
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

// field parses the value of a field. The first result is its wire type, the parameter kind. The
// other results are the same as in next.
func field(kind byte, b []byte) (_ byte, data []byte, number uint64, rest []byte, ok bool) {
	switch kind {
	case 0: // varint
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, nil, 0, nil, false
		}
		return kind, nil, v, b[n:], true
	case 1: // 64 bits
		if len(b) < 8 {
			return 0, nil, 0, nil, false
		}
		return kind, nil, binary.LittleEndian.Uint64(b), b[8:], true
	case 2: // with a length
		v, n := binary.Uvarint(b)
		if n <= 0 || v > uint64(len(b)-n) {
			return 0, nil, 0, nil, false
		}
		return kind, b[n : n+int(v)], 0, b[n+int(v):], true
	case 5: // 32 bits
		if len(b) < 4 {
			return 0, nil, 0, nil, false
		}
		return kind, nil, uint64(binary.LittleEndian.Uint32(b)), b[4:], true
	}
	return 0, nil, 0, nil, false
}

// isRecord reports whether rec looks like a record of this package: one field with the tag of a
// LogRecord. It does not decode the content.
func isRecord(rec []byte) bool {
	tag, _, _, rest, ok := next(rec)
	return ok && tag == tagRecord && len(rest) == 0
}

// appendIntValue appends an AnyValue with an integer.
func appendIntValue(dst []byte, v int64) []byte {
	return binary.AppendUvarint(append(dst, tagInt), uint64(v))
}

// appendDoubleValue appends an AnyValue with a floating-point number.
func appendDoubleValue(dst []byte, v float64) []byte {
	return appendFixed64(dst, tagDouble, math.Float64bits(v))
}
