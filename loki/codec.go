package loki

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/jsontext"
)

// A codec decodes entries of one form: protobuf or JSON. It implements [batch.Codec]. The form may
// differ from that of the encoder, because a spool or a crash-safe file can contain entries for
// another Config.Wire. An entry does not contain its labels; the codec finds them in the registry
// of the Driver.
type codec struct {
	e    *encoder
	form form
}

// ContentType returns the content type of entries in the form of c.
func (c codec) ContentType() string { return c.form.contentType() }

// AppendJSON appends {"time":…,"labels":…,"tenant":…,"line":…,"metadata":{…}}. Labels and tenant
// are omitted if the stream is unknown. A line that is a JSON object is written as an object. A
// record that is not an entry is written as {"raw":"…"}.
func (c codec) AppendJSON(dst, rec []byte, m batch.Meta) []byte {
	e, ok := c.form.parse(rec)
	var line, meta []byte
	if ok {
		line, meta, ok = c.parts(e)
	}
	if !ok {
		dst = append(dst, `{"raw":`...)
		dst = append(dst, '"')
		dst = jsontext.AppendEscapedBytes(dst, rec)
		return append(dst, `"}`...)
	}
	dst = append(dst, `{"time":"`...)
	dst = time.Unix(0, e.time).UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	if st := c.e.streams.get(m.Stream); st != nil && !st.broken {
		dst = append(dst, `,"labels":"`...)
		dst = append(jsontext.AppendEscapedBytes(dst, st.labels), '"')
		if st.tenant != "" {
			dst = jsontext.AppendString(append(dst, `,"tenant":`...), st.tenant)
		}
	}
	dst = append(dst, `,"line":`...)
	if len(line) > 0 && line[0] == '{' && json.Valid(line) {
		dst = append(dst, line...)
	} else {
		dst = append(dst, '"')
		dst = append(jsontext.AppendEscapedBytes(dst, line), '"')
	}
	if len(meta) > 2 {
		dst = append(append(dst, `,"metadata":`...), meta...)
	}
	return append(dst, '}')
}

// parts returns the line of e without escapes, and its metadata as a JSON object. If one of them is
// not valid, ok is false.
func (c codec) parts(e entry) (line, meta []byte, ok bool) {
	if c.form == jsonForm {
		var s string
		if json.Unmarshal(e.line, &s) != nil || len(e.meta) > 0 && !json.Valid(e.meta) {
			return nil, nil, false
		}
		return []byte(s), e.meta, true
	}
	meta = []byte{'{'}
	ok = eachMetadata(e.meta, func(name, value []byte) {
		meta = jsontext.AppendString(jsontext.AppendKey(meta, string(name)), string(value))
	})
	return e.line, append(meta, '}'), ok
}

// AppendMarker appends an entry at level WARN with the number of dropped records by reason. The
// entry belongs to stream 0. Its encoder has no rules for labels and metadata from attributes, so
// that its attributes only appear in the line.
func (c codec) AppendMarker(dst []byte, d batch.Drops, now time.Time) []byte {
	attrs := []slog.Attr{slog.Uint64("dropped", d.Total())}
	for i, n := range d {
		if n != 0 {
			attrs = append(attrs, slog.Uint64(fmt.Sprintf("dropped_%s", batch.Reason(i)), n))
		}
	}
	start := len(dst)
	plain := &scope{e: &encoder{c: c.e.c, streams: c.e.streams, observed: c.e.observed, kind: c.e.kind, form: c.form, byLevel: c.e.byLevel}, inner: c.e.line.Scope()}
	r := encode.Record{Time: now, Level: slog.LevelWarn, Message: "records dropped", Attrs: attrs}
	dst, _, err := plain.Append(dst, &r)
	if err != nil {
		return dst[:start]
	}
	return dst
}
