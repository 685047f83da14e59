package otlp

import (
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"math"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/jsontext"
)

// contentType is the content type of encoded records. A record is a LogRecord with its protobuf tag
// and length, as in ScopeLogs. Spools and crash-safe files store the content type with the records.
const contentType = "application/vnd.forebay.otlp-logrecord+protobuf"

// A codec decodes the records of an encoder for dead letters, fallbacks and the spool. It
// implements [batch.Codec].
type codec struct{ e *encoder }

// ContentType returns the content type of the records. It implements [batch.Codec].
func (codec) ContentType() string { return contentType }

// AppendJSON appends {"time":…,"level":…,"body":…,"attributes":{…},"trace_id":…,"span_id":…}.
// Fields that rec does not have are omitted. If rec is not a record of this package, {"raw":"…"} is
// appended. AppendJSON implements [batch.Codec].
func (codec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	start := len(dst)
	tag, data, _, rest, ok := next(rec)
	if ok = ok && tag == tagRecord && len(rest) == 0; ok {
		dst, ok = appendRecordJSON(dst, data)
	}
	if !ok {
		dst = append(dst[:start], `{"raw":"`...)
		return append(jsontext.AppendEscapedBytes(dst, rec), `"}`...)
	}
	return dst
}

// appendRecordJSON appends a LogRecord as JSON. data is the content of the LogRecord without tag
// and length. If data is not a LogRecord, ok is false, and dst ends in an incomplete object.
func appendRecordJSON(dst, data []byte) (_ []byte, ok bool) {
	dst = append(dst, '{')
	var attrs []byte
	for len(data) > 0 {
		tag, b, n, rest, ok := next(data)
		if !ok {
			return dst, false
		}
		data = rest
		switch tag {
		case tagTime:
			dst = append(jsontext.AppendKey(dst, "time"), '"')
			dst = append(time.Unix(0, int64(n)).UTC().AppendFormat(dst, time.RFC3339Nano), '"')
		// Only the severity text is written, because the severity number adds no information.
		case tagText:
			dst = appendQuoted(jsontext.AppendKey(dst, "level"), b)
		case tagBody:
			if dst, ok = appendAny(jsontext.AppendKey(dst, "body"), b, 0); !ok {
				return dst, false
			}
		case tagAttr:
			if attrs == nil {
				attrs = []byte{'{'}
			}
			if attrs, ok = appendPair(attrs, b, 0); !ok {
				return dst, false
			}
		case tagTrace, tagSpan:
			key := "trace_id"
			if tag == tagSpan {
				key = "span_id"
			}
			dst = append(jsontext.AppendKey(dst, key), '"')
			dst = append(hex.AppendEncode(dst, b), '"')
		}
	}
	if attrs != nil {
		dst = append(append(jsontext.AppendKey(dst, "attributes"), attrs...), '}')
	}
	return append(dst, '}'), true
}

// appendQuoted appends b as a JSON string. Invalid UTF-8 in b becomes U+FFFD.
func appendQuoted(dst, b []byte) []byte {
	return append(jsontext.AppendEscapedBytes(append(dst, '"'), b), '"')
}

// appendPair appends a KeyValue as a member of the JSON object at the end of dst. depth is the
// number of enclosing lists and maps. ok is false if kv is not a KeyValue.
func appendPair(dst, kv []byte, depth int) (_ []byte, ok bool) {
	var key, value []byte
	for len(kv) > 0 {
		tag, b, _, rest, ok := next(kv)
		if !ok {
			return dst, false
		}
		switch kv = rest; tag {
		case tagKey:
			key = b
		case tagValue:
			value = b
		}
	}
	return appendAny(jsontext.AppendKey(dst, string(key)), value, depth)
}

// maxDecodeDepth is the maximum nesting depth of values that are decoded. It protects the stack
// against damaged files. The encoder never nests values as deeply.
const maxDecodeDepth = 4 * maxDepth

// appendAny appends an AnyValue as JSON. Bytes are written in base64, and infinite numbers and NaN
// as strings. depth is the number of enclosing lists and maps. ok is false if v is not an AnyValue,
// or is nested too deeply.
func appendAny(dst, v []byte, depth int) (_ []byte, ok bool) {
	if len(v) == 0 {
		return append(dst, "null"...), true
	}
	if depth > maxDecodeDepth {
		return dst, false
	}
	tag, b, n, rest, ok := next(v)
	if !ok || len(rest) > 0 {
		return dst, false
	}
	switch tag {
	case tagString:
		return appendQuoted(dst, b), true
	case tagBool:
		return jsontext.AppendBool(dst, n != 0), true
	case tagInt:
		return jsontext.AppendInt(dst, int64(n)), true
	case tagDouble:
		f := math.Float64frombits(n)
		if f-f != 0 { // NaN or infinite: JSON has no such number
			return appendQuoted(dst, []byte(slog.Float64Value(f).String())), true
		}
		return jsontext.AppendFloat(dst, f, 64), true
	case tagBytes:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"'), true
	case tagArray, tagList:
		begin, end := byte('['), byte(']')
		if tag == tagList { // a kvlist is an object
			begin, end = '{', '}'
		}
		dst = append(dst, begin)
		for first := true; len(b) > 0; first = false {
			tagIn, item, _, rest, ok := next(b)
			if !ok || tagIn != tagValues {
				return dst, false
			}
			if b = rest; tag == tagList {
				dst, ok = appendPair(dst, item, depth+1)
			} else {
				if !first {
					dst = append(dst, ',')
				}
				dst, ok = appendAny(dst, item, depth+1)
			}
			if !ok {
				return dst, false
			}
		}
		return append(dst, end), true
	}
	return dst, false
}

// AppendMarker appends a record at level WARN that reports the number of dropped records by reason.
// It implements [batch.Codec].
func (c codec) AppendMarker(dst []byte, d batch.Drops, now time.Time) []byte {
	start := len(dst)
	attrs := []slog.Attr{slog.Uint64("dropped", d.Total())}
	for i, n := range d {
		if n != 0 {
			attrs = append(attrs, slog.Uint64("dropped_"+batch.Reason(i).String(), n))
		}
	}
	r := encode.Record{Time: now, Level: slog.LevelWarn, Message: "records dropped", Attrs: attrs}
	dst, _, err := c.e.plain().Append(dst, &r)
	if err != nil {
		return dst[:start]
	}
	return dst
}
