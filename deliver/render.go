package deliver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/jsontext"
)

// appendRecord appends rec as one JSON object on one line, without a newline, even if its codec fails.
// Bytes that no codec can read become {"raw":"…"}, or {"raw_base64":"…"} if they are not UTF-8 text.
func appendRecord(dst []byte, c batch.Codec, rec *batch.Record) []byte {
	at := len(dst)
	if c != nil {
		var ok bool
		if dst, ok = viaCodec(dst, c, rec); ok {
			return dst
		}
	}
	return appendRaw(dst[:at], rec.Data)
}

// viaCodec appends rec through its codec. If the codec panics or does not return a JSON object,
// viaCodec returns false, because one bad record must not break the line format of a dead-letter
// file.
func viaCodec(dst []byte, c batch.Codec, rec *batch.Record) (out []byte, ok bool) {
	at := len(dst)
	out = dst
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	made := c.AppendJSON(dst, rec.Data, rec.Meta)
	if len(made) <= at {
		return dst, false
	}
	obj := made[at:]
	if obj[0] != '{' || !json.Valid(obj) {
		return dst, false
	}
	// Newlines in valid JSON are white space between tokens.
	for i, ch := range obj {
		if ch == '\n' || ch == '\r' {
			obj[i] = ' '
		}
	}
	return made, true
}

// appendRaw appends data as a JSON object, without the codec. It omits a newline at the end of
// data.
func appendRaw(dst, data []byte) []byte {
	data = bytes.TrimSuffix(data, []byte{'\n'})
	if !utf8.Valid(data) {
		dst = append(dst, `{"raw_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, data)
		return append(dst, `"}`...)
	}
	dst = append(dst, `{"raw":`...)
	dst = jsontext.AppendString(dst, string(data))
	return append(dst, '}')
}
