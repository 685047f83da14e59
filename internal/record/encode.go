package record

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/values"
)

// An Encoding is the output format of lines.
type Encoding uint8

// The encodings.
const (
	AsRaw Encoding = iota // unchanged, byte for byte
	AsJSON
	AsLogfmt
)

// encodingNames has the names that the configuration uses, in the order of the encodings.
var encodingNames = []string{"raw", "json", "logfmt"}

// Encodings returns the names of the encodings.
func Encodings() []string { return encodingNames }

// String returns the name.
func (e Encoding) String() string { return encodingNames[e] }

// ParseEncoding is the inverse of String. The error lists the names.
func ParseEncoding(s string) (Encoding, error) {
	for i, name := range encodingNames {
		if s == name {
			return Encoding(i), nil
		}
	}
	return 0, fmt.Errorf("%q is not one of json, logfmt, raw", s)
}

var jsonCodec, logfmtCodec = encode.JSON(nil).Codec(), encode.Logfmt(nil).Codec()

// Codec returns the codec of the encoding. It returns nil for raw lines, which cannot contain gap
// markers, the records that report a loss.
func (e Encoding) Codec() batch.Codec {
	switch e {
	case AsJSON:
		return jsonCodec
	case AsLogfmt:
		return logfmtCodec
	}
	return nil
}

// An Encoder writes events. It is not safe for concurrent use.
//
//   - Raw lines are written unchanged.
//   - A line in the wanted format is written unchanged, including the order of keys, the digits
//     of numbers and escapes. Only invalid UTF-8 is replaced.
//   - JSON becomes logfmt, and logfmt becomes JSON, pair by pair in their order.
//   - Text becomes the message of a record with the line's time and level, if it has them.
type Encoder struct {
	as    Encoding
	pairs encode.Scope // attributes only
	rec   encode.Record
	flat  flattener // JSON to logfmt
	names Namer
	buf   []byte
}

// NewEncoder returns an encoder for the given encoding.
func NewEncoder(as Encoding) *Encoder {
	const out = "-"
	o := encode.Options{TimeKey: out, LevelKey: out, MessageKey: out}
	e := &Encoder{as: as}
	switch as {
	case AsJSON:
		e.pairs = encode.JSON(&o).Scope()
	case AsLogfmt:
		e.pairs = encode.Logfmt(&o).Scope()
	}
	return e
}

// Encode returns ev in the format of the Encoder, with a newline. The result is valid until the
// next call. It may share the memory of the line, because an unchanged line is not copied.
func (e *Encoder) Encode(ev *Event) (rec []byte, err error) {
	if e.as == AsRaw {
		return ev.Raw, nil
	}
	if e.isWanted(ev) && len(ev.More) == 0 {
		if line := ev.Raw[nonSpace(ev.Raw, 0):]; len(line) > 1 && line[len(line)-1] == '\n' && line[len(line)-2] > ' ' && (ev.ascii || utf8.Valid(line)) {
			return line, nil
		}
	}
	e.buf, err = e.Append(e.buf[:0], ev)
	return e.buf, err
}

// isWanted reports whether ev has the format of the Encoder.
func (e *Encoder) isWanted(ev *Event) bool {
	return e.as == AsJSON && ev.Format == JSON || e.as == AsLogfmt && ev.Format == Logfmt
}

// Append appends ev to dst, with a newline. The fields of ev.More come last, with unique names
// ([Namer.Unique]). Raw output omits them. On error the content of the result after dst is
// undefined.
func (e *Encoder) Append(dst []byte, ev *Event) ([]byte, error) {
	if e.as == AsRaw {
		return append(dst, ev.Raw...), nil
	}
	if len(ev.More) == 0 || ev.Format == Text {
		return e.append(dst, ev)
	}
	start := len(dst)
	dst, err := e.append(dst, ev)
	if err != nil {
		return dst, err
	}
	more := e.names.Unique(ev, true)
	if len(more) == 0 {
		return dst, nil
	}
	e.rec = encode.Record{Attrs: more}
	dst = bytes.TrimRight(dst, "\n")
	if e.as == AsLogfmt {
		if len(dst) > start {
			dst = append(dst, ' ')
		}
		dst, _, err = e.pairs.Append(dst, &e.rec)
		return dst, err
	}
	dst = bytes.TrimRight(dst[:len(dst)-1], " \t\r") // removes the closing brace
	at := len(dst)
	if dst, _, err = e.pairs.Append(dst, &e.rec); err != nil {
		return dst, err
	}
	if dst[at-1] == '{' { // the object of the line has no members
		return append(dst[:at], dst[at+1:]...), nil
	}
	dst[at] = ',' // replaces the opening brace of the appended object
	return dst, nil
}

// append appends ev without ev.More, except for a text line, which it appends with ev.More.
func (e *Encoder) append(dst []byte, ev *Event) ([]byte, error) {
	switch {
	case e.isWanted(ev):
		start := len(dst)
		dst = append(append(dst, bytes.Trim(ev.Line, " \t\r")...), '\n')
		return validUTF8(dst, start), nil
	case ev.Format == JSON:
		start := len(dst)
		dst, _ = e.flat.append(dst, ev.Line, space(ev.Line, 0))
		return append(dst[:max(start, len(dst)-1)], '\n'), nil
	case ev.Format == Logfmt:
		e.rec.Attrs = logfmtAttrs(ev.Line)
	default:
		e.rec.Attrs = e.names.TextAttrs(ev)
	}
	dst, _, err := e.pairs.Append(dst, &e.rec)
	return dst, err
}

// validUTF8 replaces each sequence of invalid UTF-8 in dst[start:] with U+FFFD.
func validUTF8(dst []byte, start int) []byte {
	if utf8.Valid(dst[start:]) {
		return dst
	}
	return append(dst[:start], bytes.ToValidUTF8(dst[start:], []byte("\uFFFD"))...)
}

// Meta returns the metadata of the record of ev. The level is slog.LevelInfo if it is unknown.
func Meta(ev *Event) batch.Meta {
	return batch.Meta{Time: values.UnixNano(ev.Time), Level: ev.Level}
}
