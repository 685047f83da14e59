package loki

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// A scope consists of an encoder and of the attributes and groups of a logger. It is immutable, so
// goroutines may share it.
type scope struct {
	e     *encoder
	inner encode.Scope // the scope of the line
	// The field node refers to the innermost group in the tree of picks (see the type pick). It is
	// nil if none of the group's attributes is used outside the line.
	node *pick
	// The field path is the prefix of metadata names: the names of the open groups, each followed
	// by a dot.
	path   string
	labels [][]byte // values from attributes of the scope, by slot
	meta   []pair   // metadata from attributes of the scope
	tenant []byte   // tenant from attributes of the scope; nil if there is none
}

// WithGroup returns the scope within a group. It implements [encode.Scope].
func (s *scope) WithGroup(name string) encode.Scope {
	if name == "" {
		return s
	}
	n := *s
	n.inner = s.inner.WithGroup(name)
	n.node = s.node.group(name)
	n.path += name + "."
	return &n
}

// WithAttrs returns the scope with attributes, which are evaluated immediately. It implements
// [encode.Scope].
func (s *scope) WithAttrs(attrs []slog.Attr) encode.Scope {
	if len(attrs) == 0 {
		return s
	}
	n := *s
	if s.e.picks == nil {
		n.inner = s.inner.WithAttrs(attrs)
		return &n
	}
	p := new(picked) // a new picked, because the scope retains its contents
	p.labels = make([][]byte, len(s.e.slots))
	attrs = s.evaluate(p, nil, attrs)
	s.pick(p, nil, attrs)
	n.labels, n.meta, n.tenant = p.labels, p.meta[:len(p.meta):len(p.meta)], p.tenant
	n.inner = s.inner.WithAttrs(s.rest(p, attrs))
	return &n
}

// evaluate returns attrs if no value needs evaluation, and otherwise a copy with the evaluated
// values in memory of p. For the attributes of a scope, r is nil.
func (s *scope) evaluate(p *picked, r *encode.Record, attrs []slog.Attr) []slog.Attr {
	t := evaluator{s.e, p, r}
	return t.attrs(s.node, attrs, 0)
}

// pick adds the labels, metadata and tenant of the scope and of attrs to p. r is nil if attrs
// belong to a scope.
func (s *scope) pick(p *picked, r *encode.Record, attrs []slog.Attr) {
	copy(p.labels, s.labels)
	p.meta = append(p.meta, s.meta...)
	p.tenant = s.tenant
	p.path = append(p.path, s.path...)
	s.e.walk(p, r, s.node, attrs, 0)
}

// rest returns the attributes that are written to the line. These are attrs itself, or a copy in
// p.attrs if some attributes are omitted.
func (s *scope) rest(p *picked, attrs []slog.Attr) []slog.Attr {
	if s.e.metadataAll && s.e.c.Line.OutOfLine {
		return nil
	}
	if s.node == nil {
		return attrs
	}
	out, changed := s.node.rest(p.attrs, attrs)
	if changed {
		p.attrs = out
	}
	return out
}

// nanos returns t in Unix nanoseconds. A time before 1678 or after 2261 does not fit into an int64
// and is replaced by the nearest second that fits. Loki refuses the record with either time.
func nanos(t time.Time) int64 {
	const limit = math.MaxInt64/int64(time.Second) - 1
	if sec := t.Unix(); sec >= limit || sec <= -limit {
		return min(max(sec, -limit), limit) * int64(time.Second)
	}
	return t.UnixNano()
}

// Append appends r as an entry. A record without a time gets the current time. Append fails if a
// Formatter fails, or if the entry has more than maxPadded bytes; dst then ends in an incomplete
// entry. Append changes r.Attrs temporarily: while the line is encoded, it contains only the
// attributes that are written to the line.
func (s *scope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	e := s.e
	if e.eager != nil {
		e.noteFirst()
	}
	t := r.Time
	if t.IsZero() {
		t = time.Now()
	}
	m := batch.Meta{Time: nanos(t), Level: r.Level}
	var p *picked
	var st *stream
	attrs := r.Attrs
	if e.picks == nil {
		// Without labels from attributes, the stream depends only on the level, and newEncoder has
		// created it.
		m.Stream = e.byLevel[values.LevelIndex(r.Level)]
	} else {
		p = getPicked(len(e.slots))
		defer p.free()
		// Values are evaluated first, so that the line, labels and metadata agree.
		settled := s.evaluate(p, r, attrs)
		s.pick(p, r, settled)
		st = e.stream(p, values.LevelIndex(r.Level))
		m.Stream = st.id
		if rest := s.rest(p, settled); len(rest) != len(attrs) || len(p.evaluated) > 0 {
			r.Attrs = rest
			defer func() { r.Attrs = attrs }()
		}
	}
	if e.streams.uniqueTimes {
		if st == nil {
			st = e.streams.get(m.Stream)
		}
		m.Time = e.streams.uniqueTime(st, m.Time)
	}
	if e.form == jsonForm {
		return e.appendJSON(dst, s.inner, p, r, m)
	}
	start := len(dst)
	dst = beginEntry(dst, m.Time)
	dst, _, err := s.inner.Append(dst, r)
	if err != nil {
		return dst, m, fmt.Errorf("loki: cannot render line: %w", err)
	}
	// The line must be UTF-8. Only a Formatter may write anything else.
	if e.kind.isFormatter() && !utf8.Valid(dst[start+lineHead:]) {
		line := bytes.ToValidUTF8(dst[start+lineHead:], []byte("\ufffd"))
		dst = append(dst[:start+lineHead], line...)
	}
	dst, err = e.endProto(e.trim(dst, start+lineHead), start, p)
	return dst, m, err
}

// endProto completes the entry in protobuf form that begins at start and ends with its line. If no
// attribute is used outside the line, p is nil.
func (e *encoder) endProto(dst []byte, start int, p *picked) ([]byte, error) {
	endLine(dst, start)
	if p != nil {
		dst = e.appendMeta(dst, p.meta)
	}
	endEntry(dst, start)
	if size := len(dst) - start; size > maxPadded {
		return dst, fmt.Errorf("loki: cannot encode: entry has %d bytes, more than %d", size, maxPadded)
	}
	return dst, nil
}

// appendJSON implements Append for entries in JSON form. If no attribute is used outside the line,
// p is nil.
func (e *encoder) appendJSON(dst []byte, inner encode.Scope, p *picked, r *encode.Record, m batch.Meta) ([]byte, batch.Meta, error) {
	if p == nil && e.kind != bodyLine {
		p = getPicked(0)
		defer p.free()
	}
	dst = beginJSON(dst, m.Time)
	start := len(dst)
	if s, ok := inner.(*bodyScope); ok {
		// A body writes lines with escapes. The lines of other encoders are escaped afterwards.
		if dst = s.append(dst, r, nested); len(dst)-start > e.c.Limits.MaxLine {
			dst = e.trimNested(dst, start)
		}
	} else {
		var err error
		if p.line, _, err = inner.Append(p.line[:0], r); err != nil {
			return dst, m, fmt.Errorf("loki: cannot render line: %w", err)
		}
		p.line = e.trim(p.line, 0)
		dst = jsontext.AppendEscapedBytes(dst, p.line)
	}
	return e.endJSON(dst, p), m, nil
}

// endJSON completes an entry in JSON form that ends with its line, which is already escaped. If no
// attribute is used outside the line, p is nil.
func (e *encoder) endJSON(dst []byte, p *picked) []byte {
	dst = append(dst, '"')
	if p != nil && len(p.meta) > 0 {
		at := len(dst)
		dst = append(dst, ",{"...)
		inside := len(dst)
		if dst = e.appendMeta(dst, p.meta); len(dst) == inside {
			dst = dst[:at]
		} else {
			dst = append(dst, '}')
		}
	}
	return append(dst, ']')
}

// appendMeta appends structured metadata in the form of e. Pairs beyond the limits of the Config
// are omitted and counted.
func (e *encoder) appendMeta(dst []byte, meta []pair) []byte {
	c := e.c
	size, n := 0, 0
	for i := range meta {
		m := &meta[i]
		if len(m.value) == 0 {
			continue // Loki drops empty values
		}
		more := len(m.name) + len(m.value)
		// Loki would refuse an entry with more metadata.
		if n >= c.Limits.MaxMetadataPairs || size+more > c.Limits.MaxMetadataBytes {
			e.observed.inc(metadataLeftOut)
			continue
		}
		n, size = n+1, size+more
		if e.form == jsonForm {
			dst = jsontext.AppendKey(dst, string(m.name))
			dst = append(dst, '"')
			dst = jsontext.AppendEscapedBytes(dst, m.value)
			dst = append(dst, '"')
		} else {
			dst = appendMetadata(dst, m.name, m.value)
		}
	}
	return dst
}

// trim removes a newline from the end of the line, which begins at start. With LongLines
// "truncate", it also cuts a line longer than MaxLine, at the end of a character, and appends
// cutMark and the number of removed bytes.
func (e *encoder) trim(dst []byte, start int) []byte {
	if n := len(dst); n > start && dst[n-1] == '\n' {
		dst = dst[:n-1]
	}
	limit := e.c.Limits.MaxLine
	if len(dst)-start <= limit || e.c.Limits.LongLines != longLinesTruncate {
		return dst
	}
	total := len(dst) - start
	room := max(limit-len(cutMark)-20, 0) // 20 bytes for the number and " B]"
	dst = dst[:start+len(cutUTF8(dst[start:], room))]
	cut := total - (len(dst) - start)
	dst = append(dst, cutMark...)
	dst = strconv.AppendInt(dst, int64(cut), 10)
	e.observed.inc(lineTruncated)
	return append(dst, " B]"...)
}

// trimNested implements trim for a line inside a JSON string. It compares the length without
// escapes with MaxLine, because an escape is longer than its character.
func (e *encoder) trimNested(dst []byte, start int) []byte {
	quoted := append(append([]byte{'"'}, dst[start:]...), '"')
	var line string
	if json.Unmarshal(quoted, &line) != nil || len(line) <= e.c.Limits.MaxLine {
		return dst
	}
	return jsontext.AppendEscapedBytes(dst[:start], e.trim([]byte(line), 0))
}

// cutMark is the beginning of the text that is appended to a truncated line. It is followed by the
// number of removed bytes and " B]".
const cutMark = "…[cut "

// stream returns the stream of a record, and creates it if necessary. Labels that exceed a limit of
// the Config become metadata. If the record must be refused, the result comes from denyStream. It
// is never nil.
func (e *encoder) stream(p *picked, level int) *stream {
	c := e.c
	if len(p.tenant) > 0 && checkTenant(p.tenant) != "" {
		return e.deny(p, badTenant)
	}
	tenant := p.tenant
	// In a stream definition, an empty tenant is the tenant of the Config.
	if string(tenant) == c.Tenant {
		tenant = nil
	}
	n := e.fixedLabels
	for i, v := range p.labels {
		switch {
		case len(v) == 0:
		// The label has had too many values and has become metadata in all records.
		case e.slots[i].values.exceeded.Load():
			e.demote(p, i, labelManyValues)
		case n >= c.Limits.MaxLabels:
			e.demote(p, i, labelTooMany)
		case len(v) > c.Limits.MaxLabelValue:
			e.demote(p, i, labelTooLong)
		default:
			n++
		}
	}
	p.key = e.appendStream(p.key[:0], tenant, level, p.labels)
	// Usually the stream exists, and finding it acquires no lock.
	st := e.streams.find(p.key)
	if st == nil {
		if e.demoteExceeded(p) { // an existing stream has no new label values
			p.key = e.appendStream(p.key[:0], tenant, level, p.labels)
		}
		st = e.streams.add(p.key, false)
	}
	if st == nil {
		// MaxStreams is reached. The labels from attributes become metadata, so that few streams
		// are needed.
		for i, v := range p.labels {
			if len(v) > 0 {
				e.demote(p, i, streamsFull)
			}
		}
		p.key = e.appendStream(p.key[:0], tenant, level, p.labels)
		if st = e.streams.find(p.key); st == nil {
			// A tenant that has a stream may exceed MaxStreams by at most one stream per level.
			st = e.streams.add(p.key, e.streams.hasTenant(tenant))
		}
	}
	if st == nil {
		return e.deny(p, streamsFull)
	}
	st.owner.markUsed()
	return st
}

// plainStream returns the stream of lines with the given level if their attributes have no effect
// on it. If attributes may have an effect, or if there is no such stream yet, it returns nil.
func (e *encoder) plainStream(level int) *stream {
	switch {
	case e.picks != nil:
		return nil
	case level == noLevel:
		return e.unleveled.Load()
	}
	return e.streams.get(e.byLevel[level])
}

// demoteExceeded is called before a new stream is created, because only a new stream can have a new
// label value. It adds the label values of p to the counters of their labels. Labels with too many
// values become metadata, and an event reports each of them. The result reports whether any label
// became metadata.
func (e *encoder) demoteExceeded(p *picked) (changed bool) {
	if e.c.Limits.MaxLabelValues < 0 {
		return false
	}
	for i, v := range p.labels {
		if len(v) == 0 {
			continue
		}
		slot := e.slots[i]
		if slot.values.addValue(maphash.Bytes(e.streams.seed, v), e.c.Limits.MaxLabelValues) {
			e.reports.Post("label-values", fmt.Errorf("loki: the label %s has more than %d values (max_label_values): it becomes metadata", slot.attr, e.c.Limits.MaxLabelValues), 0)
		}
		if slot.values.exceeded.Load() {
			e.demote(p, i, labelManyValues)
			changed = true
		}
	}
	return changed
}

// deny returns the stream of records that are refused for the given reason and become dead letters.
// The stream does not contain the tenant, so deny adds the tenant to the metadata.
func (e *encoder) deny(p *picked, why reason) *stream {
	p.setMeta(e.tenantMeta, p.tenant, e.tenantMeta)
	return e.streams.denyStream(why)
}

// demote turns the label of a slot into metadata and counts the reason.
func (e *encoder) demote(p *picked, slot int, why reason) {
	p.setMeta(e.slots[slot].meta, p.labels[slot], e.slots[slot].attr)
	p.labels[slot] = nil
	e.observed.inc(why)
}

// appendLine implements [Driver.AppendLine].
func (e *encoder) appendLine(dst []byte, t time.Time, level slog.Level, line []byte, attrs []slog.Attr) ([]byte, batch.Meta, error) {
	if e.eager != nil {
		e.noteFirst()
	}
	m := batch.Meta{Time: nanos(t), Level: level}
	if t.IsZero() {
		m.Time = time.Now().UnixNano()
	}
	index := noLevel
	if level == batch.NoLevel {
		m.Level = slog.LevelInfo
	} else {
		index = values.LevelIndex(level)
	}
	var p *picked
	st := e.plainStream(index)
	if st == nil || e.form == jsonForm {
		p = getPicked(len(e.slots))
		defer p.free()
	}
	if st == nil {
		if e.picks != nil {
			e.root.pick(p, nil, attrs)
		}
		if st = e.stream(p, index); e.picks == nil { // index is noLevel, because the streams of all levels exist
			e.unleveled.Store(st)
		}
	}
	m.Stream = st.id
	if e.streams.uniqueTimes {
		m.Time = e.streams.uniqueTime(st, m.Time)
	}
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\ufffd"))
	}
	if e.form == jsonForm {
		dst = beginJSON(dst, m.Time)
		p.line = e.trim(append(p.line[:0], line...), 0)
		return e.endJSON(jsontext.AppendEscapedBytes(dst, p.line), p), m, nil
	}
	start := len(dst)
	dst = append(beginEntry(dst, m.Time), line...)
	dst, err := e.endProto(e.trim(dst, start+lineHead), start, p)
	return dst, m, err
}
