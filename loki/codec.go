package loki

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// The content types of the records of a [Pusher].
const (
	ContentTypeProtobuf = "application/vnd.forebay.loki-entry+protobuf"
	ContentTypeJSON     = "application/vnd.forebay.loki-entry+json"
)

// codec reads entries. Those of one form are read by any Pusher's codec of that
// form; only the labels, which are no part of them, are the Pusher's own.
type codec struct{ e *Encoder }

func (c codec) ContentType() string {
	if c.e.json {
		return ContentTypeJSON
	}
	return ContentTypeProtobuf
}

// AppendJSON appends {"time":…,"labels":…,"tenant":…,"line":…,"metadata":{…}}. Labels and
// tenant are left out where the stream is unknown; a line that is a JSON object
// is one.
func (c codec) AppendJSON(dst, rec []byte, m batch.Meta) []byte {
	parse := parseProto
	if c.e.json {
		parse = parseJSON
	}
	e, ok := parse(rec)
	var line, meta []byte
	if ok {
		line, meta, ok = c.parts(e)
	}
	if !ok {
		dst = append(dst, `{"raw":`...)
		dst = append(dst, '"')
		dst = encode.AppendEscapedBytes(dst, rec)
		return append(dst, `"}`...)
	}
	dst = append(dst, `{"time":"`...)
	dst = time.Unix(0, e.time).UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	if st := c.e.s.streams.get(m.Stream); st != nil && !st.broken {
		dst = append(dst, `,"labels":"`...)
		dst = append(encode.AppendEscapedBytes(dst, st.labels), '"')
		if st.tenant != "" {
			dst = encode.AppendString(append(dst, `,"tenant":`...), st.tenant)
		}
	}
	dst = append(dst, `,"line":`...)
	if len(line) > 0 && line[0] == '{' && json.Valid(line) {
		dst = append(dst, line...)
	} else {
		dst = append(dst, '"')
		dst = append(encode.AppendEscapedBytes(dst, line), '"')
	}
	if len(meta) > 2 {
		dst = append(append(dst, `,"metadata":`...), meta...)
	}
	return append(dst, '}')
}

// parts returns the line as it is and the metadata as a JSON object.
func (c codec) parts(e entry) (line, meta []byte, ok bool) {
	if c.e.json {
		var s string
		if json.Unmarshal(e.line, &s) != nil || len(e.meta) > 0 && !json.Valid(e.meta) {
			return nil, nil, false
		}
		return []byte(s), e.meta, true
	}
	meta = []byte{'{'}
	ok = eachMetadata(e.meta, func(name, value []byte) {
		meta = encode.AppendString(encode.AppendKey(meta, string(name)), string(value))
	})
	return e.line, append(meta, '}'), ok
}

// AppendMarker appends an entry that tells of dropped records. It belongs to
// stream 0.
func (c codec) AppendMarker(dst []byte, d batch.Drops, now time.Time) []byte {
	attrs := []slog.Attr{slog.Uint64("dropped", d.Total())}
	for i, n := range d {
		if n != 0 {
			attrs = append(attrs, slog.Uint64(fmt.Sprintf("dropped_%s", batch.Reason(i)), n))
		}
	}
	start := len(dst)
	plain := &scope{e: &Encoder{s: c.e.s, json: c.e.json, byLevel: c.e.byLevel}, inner: c.e.line.Scope()}
	r := encode.Record{Time: now, Level: slog.LevelWarn, Message: "records dropped", Attrs: attrs}
	dst, _, err := plain.Append(dst, &r)
	if err != nil {
		return dst[:start]
	}
	return dst
}
