package encode

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// The content types of the codecs of this package.
const (
	contentTypeJSON   = "application/x-ndjson" // JSON objects, one per line
	contentTypeLogfmt = "application/logfmt"   // key=value lines
	contentTypeText   = "text/plain"           // lines of unknown content
)

// RawCodec returns the codec of lines of unknown content. It writes no gap markers (records that
// report drops), because they would change the content.
func RawCodec() batch.Codec { return rawCodec{} }

var (
	defaultJSON   = JSON(nil)
	defaultLogfmt = Logfmt(nil)
)

// CodecFor returns the codec for records encoded elsewhere, such as lines of a pipe, a spool or
// a crash file, and reports whether the content type has one:
//
//	application/x-ndjson  JSON lines; also application/json, jsonl and ndjson
//	application/logfmt    key=value lines
//	text/plain            lines of unknown content: see [RawCodec]
//
// Parameters of the content type are ignored. The codecs of JSON and logfmt are the codecs of
// [JSON] and [Logfmt] with default options. When logfmt is converted to JSON, all values become
// strings, because logfmt does not distinguish a number from a string of digits.
func CodecFor(contentType string) (batch.Codec, bool) {
	t, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(t)) {
	case contentTypeJSON, "application/ndjson", "application/jsonl", "application/json":
		return defaultJSON.Codec(), true
	case contentTypeLogfmt:
		return defaultLogfmt.Codec(), true
	case contentTypeText:
		return RawCodec(), true
	}
	return nil, false
}

// appendRaw appends the record without its line end as {"raw":"…"}.
func appendRaw(dst, rec []byte) []byte {
	dst = append(dst, `{"raw":`...)
	return append(jsontext.AppendString(dst, string(trimLine(rec))), '}')
}

// trimLine returns rec without its line end, LF or CRLF.
func trimLine(rec []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(rec, []byte{'\n'}), []byte{'\r'})
}

// appendMarker appends a record that reports the drops d. s encodes this record.
func appendMarker(s Scope, dst []byte, d batch.Drops, now time.Time) []byte {
	reasons := make([]slog.Attr, 0, len(d))
	for i, n := range d {
		if n != 0 {
			reasons = append(reasons, slog.Uint64(batch.Reason(i).String(), n))
		}
	}
	r := Record{Time: now, Level: slog.LevelWarn, Message: "records dropped", Attrs: []slog.Attr{
		slog.Uint64("dropped", d.Total()),
		{Key: "reasons", Value: slog.GroupValue(reasons...)},
	}}
	out, _, err := s.Append(dst, &r)
	if err != nil {
		return dst
	}
	return out
}

// A rawCodec is the codec of RawCodec.
type rawCodec struct{}

// ContentType returns text/plain.
func (rawCodec) ContentType() string { return contentTypeText }

// AppendJSON appends the line as {"raw":"…"}.
func (rawCodec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	return appendRaw(dst, rec)
}

// AppendMarker appends nothing, because a marker would change the content.
func (rawCodec) AppendMarker(dst []byte, _ batch.Drops, _ time.Time) []byte { return dst }

// A jsonCodec is the codec of [JSON]. scope encodes the records that report drops.
type jsonCodec struct{ scope Scope }

// ContentType returns application/x-ndjson.
func (jsonCodec) ContentType() string { return contentTypeJSON }

// AppendJSON appends rec if it is a JSON object, converted to valid UTF-8 if necessary. It
// appends any other line as {"raw":"…"}.
func (jsonCodec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	obj := bytes.TrimSpace(rec)
	if len(obj) == 0 || obj[0] != '{' || !json.Valid(obj) {
		return appendRaw(dst, rec)
	}
	if bytes.IndexByte(obj, '\n') >= 0 || bytes.IndexByte(obj, '\r') >= 0 {
		var buf bytes.Buffer
		if json.Compact(&buf, obj) != nil {
			return appendRaw(dst, rec)
		}
		obj = buf.Bytes()
	}
	if !utf8.Valid(obj) { // json.Valid accepts invalid UTF-8 in strings
		obj = bytes.ToValidUTF8(obj, []byte("\ufffd"))
	}
	return append(dst, obj...)
}

// AppendMarker appends a record that reports dropped records.
func (c jsonCodec) AppendMarker(dst []byte, d batch.Drops, now time.Time) []byte {
	return appendMarker(c.scope, dst, d, now)
}

// A consoleCodec is the codec of [Console]. scope encodes the records that report drops.
type consoleCodec struct{ scope Scope }

// ContentType returns text/plain, because lines of the console cannot be parsed.
func (consoleCodec) ContentType() string { return contentTypeText }

// AppendJSON appends the line, without color sequences, as {"raw":"…"}.
func (consoleCodec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	for _, seq := range []string{values.ColorOff, values.ColorFaint, values.ColorRed, values.ColorGreen, values.ColorAmber, values.ColorBlue} {
		rec = bytes.ReplaceAll(rec, []byte(seq), nil)
	}
	return appendRaw(dst, rec)
}

// AppendMarker appends a record that reports dropped records.
func (c consoleCodec) AppendMarker(dst []byte, d batch.Drops, now time.Time) []byte {
	return appendMarker(c.scope, dst, d, now)
}

// A logfmtCodec is the codec of [Logfmt]. scope encodes the records that report drops.
type logfmtCodec struct{ scope Scope }

// ContentType returns application/logfmt.
func (logfmtCodec) ContentType() string { return contentTypeLogfmt }

// AppendJSON appends the pairs of the line as a JSON object. A line that cannot be parsed is
// appended as {"raw":"…"}.
func (logfmtCodec) AppendJSON(dst, rec []byte, _ batch.Meta) []byte {
	start := len(dst)
	if out, ok := appendLogfmtJSON(append(dst, '{'), trimLine(rec)); ok {
		return append(out, '}')
	}
	return appendRaw(dst[:start], rec)
}

// AppendMarker appends a record that reports dropped records.
func (c logfmtCodec) AppendMarker(dst []byte, d batch.Drops, now time.Time) []byte {
	return appendMarker(c.scope, dst, d, now)
}

// appendLogfmtJSON appends the pairs of a logfmt line as members of a JSON object, and reports
// whether the line could be parsed. A key without a value gets the value true. A line that contains
// only keys is rejected, because it is probably prose.
func appendLogfmtJSON(dst, line []byte) ([]byte, bool) {
	pairs := 0
	for i := 0; ; {
		for i < len(line) && (line[i] == ' ' || line[i] == '\t') {
			i++
		}
		if i == len(line) {
			return dst, pairs > 0
		}
		k := i
		for i < len(line) && line[i] > ' ' && line[i] != '=' && line[i] != '"' {
			i++
		}
		if i == k {
			return dst, false
		}
		dst = jsontext.AppendKey(dst, string(line[k:i]))
		if i == len(line) || line[i] != '=' {
			if i < len(line) && line[i] != ' ' && line[i] != '\t' {
				return dst, false
			}
			dst = append(dst, "true"...)
			continue
		}
		pairs++
		i++
		v := i
		if i < len(line) && line[i] == '"' {
			n := jsontext.StringLen(line[i:])
			s, ok := unquote(line[i : i+n])
			if !ok {
				return dst, false
			}
			if i += n; i < len(line) && line[i] != ' ' && line[i] != '\t' {
				return dst, false
			}
			dst = jsontext.AppendString(dst, s)
			continue
		}
		for i < len(line) && line[i] > ' ' && line[i] != '"' {
			i++
		}
		if i < len(line) && line[i] != ' ' && line[i] != '\t' {
			return dst, false
		}
		dst = jsontext.AppendString(dst, string(line[v:i]))
	}
}

// unquote returns the value of a quoted string in the syntax of JSON or of strconv.Quote, which
// slog.TextHandler uses.
func unquote(b []byte) (s string, ok bool) {
	if len(b) == 0 {
		return "", false
	}
	if json.Unmarshal(b, &s) == nil {
		return s, true
	}
	s, err := strconv.Unquote(string(b))
	return s, err == nil
}
