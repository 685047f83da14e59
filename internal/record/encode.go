package record

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// An Encoding is what lines are written in.
type Encoding uint8

// The encodings.
const (
	AsRaw Encoding = iota // byte for byte as they came
	AsJSON
	AsLogfmt
)

var encodingNames = []string{"raw", "json", "logfmt"}

// Encodings returns the names of the encodings.
func Encodings() []string { return encodingNames }

// String returns the name.
func (e Encoding) String() string { return encodingNames[e] }

// ParseEncoding is the inverse of String.
func ParseEncoding(s string) (Encoding, error) {
	for i, name := range encodingNames {
		if s == name {
			return Encoding(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not one of json, logfmt, raw", s)
}

var jsonCodec, logfmtCodec = encode.JSON(nil).Codec(), encode.Logfmt(nil).Codec()

// Codec returns what reads the encoding: nil for raw lines, among which gap
// markers have no place.
func (e Encoding) Codec() batch.Codec {
	switch e {
	case AsJSON:
		return jsonCodec
	case AsLogfmt:
		return logfmtCodec
	}
	return nil
}

// An Encoder writes events. It is not for concurrent use.
//
//   - Raw: the line as it came.
//   - What is in the wanted form already is left as it is: the order of its
//     keys, the digits of its numbers, its escapes. Only invalid UTF-8 is
//     replaced.
//   - JSON becomes logfmt, and logfmt JSON, pair by pair in their order.
//   - Text becomes the message of a record that has the time and the level, if
//     the line has them.
type Encoder struct {
	as      Encoding
	text    encode.Scope // time, level, message
	noLevel encode.Scope // time, message
	pairs   encode.Scope // attributes only
	rec     encode.Record
}

// NewEncoder returns an encoder.
func NewEncoder(as Encoding) *Encoder {
	const out = "-"
	e := &Encoder{as: as}
	switch as {
	case AsJSON:
		e.text = encode.JSON(nil).Scope()
		e.noLevel = encode.JSON(&encode.Options{LevelKey: out}).Scope()
		e.pairs = encode.JSON(&encode.Options{TimeKey: out, LevelKey: out, MessageKey: out}).Scope()
	case AsLogfmt:
		e.text = encode.Logfmt(nil).Scope()
		e.noLevel = encode.Logfmt(&encode.Options{LevelKey: out}).Scope()
		e.pairs = encode.Logfmt(&encode.Options{TimeKey: out, LevelKey: out, MessageKey: out}).Scope()
	}
	return e
}

// Append appends ev to dst, with its newline.
func (e *Encoder) Append(dst []byte, ev *Event) ([]byte, error) {
	if e.as == AsRaw {
		return append(dst, ev.Raw...), nil
	}
	e.rec.Time, e.rec.Level, e.rec.Message, e.rec.Attrs = ev.Time, ev.Level, "", nil
	scope := e.pairs
	switch {
	case e.as == AsJSON && ev.Format == JSON, e.as == AsLogfmt && ev.Format == Logfmt:
		start := len(dst)
		dst = append(append(dst, bytes.Trim(ev.Line, " \t\r")...), '\n')
		return validUTF8(dst, start), nil
	case ev.Format == JSON:
		e.rec.Attrs = Attrs(ev.Line)
	case ev.Format == Logfmt:
		e.rec.Attrs = logfmtAttrs(ev.Line)
	default:
		e.rec.Message = string(ev.Line)
		scope = e.text
		if !ev.HasLevel {
			scope = e.noLevel
		}
	}
	dst, _, err := scope.Append(dst, &e.rec)
	return dst, err
}

// validUTF8 replaces what is no UTF-8 in dst[start:].
func validUTF8(dst []byte, start int) []byte {
	if utf8.Valid(dst[start:]) {
		return dst
	}
	return append(dst[:start], bytes.ToValidUTF8(dst[start:], []byte("\uFFFD"))...)
}

// Meta returns what the slots keep of ev. An unknown level is slog.LevelInfo.
func Meta(ev *Event) batch.Meta {
	m := batch.Meta{Level: ev.Level}
	if y := ev.Time.Year(); y > 1678 && y < 2262 {
		m.Time = ev.Time.UnixNano()
	}
	return m
}
