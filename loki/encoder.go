package loki

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/values"
	"github.com/forebay-log/forebay/slab"
)

// An encoder encodes records as entries of Loki. It is the [encode.Encoder] of a Driver. The
// content type of its codec distinguishes entries in protobuf from entries in JSON.
//
// Each record is encoded once, in the goroutine of the caller, in the form that is also used in the
// request. After its pools are filled, an encoder does not allocate, except for values that
// allocate when they are converted to text. All methods are safe for concurrent use. Except for
// started and the value of eager, the fields do not change after the first record.
type encoder struct {
	c           *Config
	streams     *registry
	observed    *observations
	line        encode.Encoder // encodes lines
	values      *values.Values // encodes values in lines, labels and metadata
	form        form
	kind        lineKind // type of line
	root        *scope
	picks       *pick        // root of the tree of picks; nil if no attribute is used outside the line
	metadataAll bool         // Config.MetadataAll
	slots       []*labelSlot // labels from attributes, in the order of Config.LabelAttrs
	reports     *callback.Reporter
	parts       []labelPart             // labels of a stream, sorted by name
	fixedLabels int                     // number of labels that every stream has: those of Config.Labels and the level
	byLevel     [len(levelNames)]uint32 // by level: id of the stream without labels from attributes
	tenantMeta  []byte                  // metadata name for the tenant of a refused record
	codec       codec
	// eager is the level from which records are sent immediately (slab.Options.FlushLevel). It is
	// nil without Config.EagerFirst.
	eager   *slog.LevelVar
	started atomic.Bool // set when the first record is encoded
}

// A lineKind is the type of the encoder of lines.
type lineKind uint8

const (
	bodyLine        lineKind = iota // a body of this package
	logfmtLine                      // see newLogfmt
	encodeFormatter                 // Config.Line.Formatter, an encoder of package encode
	otherFormatter                  // Config.Line.Formatter of another package
)

// isFormatter reports whether lines are encoded by Config.Line.Formatter.
func (k lineKind) isFormatter() bool { return k >= encodeFormatter }

// noteFirst is called for each record with Config.EagerFirst. Initially the eager level is so low
// that the first record is sent immediately. The second call raises the level above all others, so
// that further records are batched.
func (e *encoder) noteFirst() {
	if e.eager.Level() != slab.NoFlushLevel && e.started.Swap(true) {
		e.eager.Set(slab.NoFlushLevel)
	}
}

// A labelSlot is a label whose value comes from an attribute.
type labelSlot struct {
	meta, from []byte       // meta is the label's name as structured metadata; from is the name of the attribute in Config.LabelAttrs
	values     valueCounter // distinct values of the label
}

// A labelPart is a label of the encoder. Its value is a fixed text, the name of the level, or the
// value of an attribute.
type labelPart struct {
	text  string // name="value", or name= if the value depends on the record
	level bool   // the value is the name of the level
	slot  int    // index in slots of an attribute; -1 for other labels
}

// newEncoder returns the encoder for c. It adds the streams of all levels to streams. The first
// stream that it adds must be the stream of gap markers, which has the id 0; see [registry].
func newEncoder(c *Config, streams *registry, n *observations, r *callback.Reporter) *encoder {
	e := &encoder{c: c, streams: streams, observed: n, reports: r, form: formOf(c.Wire), metadataAll: c.MetadataAll}
	e.values = values.NewValues(values.Style{Errors: values.ErrorForm(c.Line.Errors)})
	k := keys{message: c.Line.MessageKey, details: e.values.Details(), prefixed: c.Line.Collisions == collisionPrefix}
	levelKey := ""
	if c.NoLevelLabel {
		levelKey = c.LevelName
	}
	switch {
	case c.Line.Formatter != nil:
		e.line, e.kind = c.Line.Formatter, otherFormatter
		if _, ok := c.Line.Formatter.(interface{ KnowsErrors(*values.KnownError) }); ok {
			e.kind = encodeFormatter
		}
	case c.Line.Body == bodyLogfmt:
		e.line, e.kind = newLogfmt(k, levelKey, c.Line.Errors, &c.levels, e.values), logfmtLine
	default:
		e.line, e.kind = newBody(k, levelKey, &c.levels, e.values), bodyLine
	}
	e.buildParts(c)
	warn := values.LevelIndex(slog.LevelWarn)
	if len(c.gapLabels) > 0 {
		e.addGaps(warn)
	}
	e.byLevel[warn] = e.addLevel(warn)
	for i := range e.byLevel {
		e.byLevel[i] = e.addLevel(i)
	}
	if c.EagerFirst {
		e.eager = new(slog.LevelVar)
		e.eager.Set(math.MinInt8)
	}
	e.codec = codec{e, e.form}
	e.root = &scope{e: e, inner: e.line.Scope(), node: e.picks}
	return e
}

// addLevel adds the stream of a level, without labels from attributes, and returns its id. Without
// TenantAttr, every record belongs to the tenant of this stream, so the tenant counts as used.
func (e *encoder) addLevel(level int) uint32 {
	labels := e.appendLabels(nil, level, nil)
	e.streams.levelLabels[level] = labels
	st := e.streams.add(append(appendStreamDef(nil, nil), labels...), true)
	if e.c.TenantAttr == "" {
		st.owner.markUsed()
	}
	return st.id
}

// addGaps adds a separate stream for gap markers, with Config.GapLabels. level is the index of
// their level. newEncoder calls addGaps first, so the id is 0.
func (e *encoder) addGaps(level int) {
	all := slices.Concat(e.c.labels, e.c.gapLabels)
	if !e.c.NoLevelLabel {
		all = append(all, label{e.c.LevelName, e.c.levels[level]})
	}
	slices.SortFunc(all, func(a, b label) int { return strings.Compare(a.name, b.name) })
	text := []byte{'{'}
	for i, l := range all {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = appendQuoted(append(text, l.name+"="...), []byte(l.value))
	}
	st := e.streams.add(append(appendStreamDef(nil, nil), append(text, '}')...), true)
	if e.c.TenantAttr == "" {
		st.owner.markUsed()
	}
}

// buildParts computes parts, slots and picks from the Config. If several sources have the same label
// name, Labels have precedence over the level, and the level over attributes.
func (e *encoder) buildParts(c *Config) {
	root := &pick{slot: -1}
	taken := map[string]bool{}
	var names []string
	parts := map[string]labelPart{}
	add := func(name string, p labelPart) bool {
		if taken[name] {
			return false
		}
		taken[name] = true
		names = append(names, name)
		parts[name] = p
		return true
	}
	for _, l := range c.labels {
		add(l.name, labelPart{text: string(appendQuoted([]byte(l.name+"="), []byte(l.value))), slot: -1})
	}
	if !c.NoLevelLabel {
		add(c.LevelName, labelPart{text: c.LevelName + "=", level: true, slot: -1})
	}
	e.fixedLabels = len(names)
	for _, path := range c.LabelAttrs {
		name := labelname.Of(path)
		if len(name) > c.Limits.MaxLabelName {
			continue // Config.resolve has reported the name
		}
		at := root.named(path)
		if add(name, labelPart{text: name + "=", slot: len(e.slots)}) {
			at.slot = len(e.slots)
			e.slots = append(e.slots, &labelSlot{meta: metaName(path), from: []byte(path)})
		}
	}
	for _, path := range c.MetadataAttrs {
		at := root.named(path)
		at.meta, at.from = metaName(path), []byte(path)
	}
	special := func(key string, where string) {
		if where == inBody {
			return
		}
		p := root.at([]string{key})
		p.anywhere, p.drop = true, true
		if where == inMetadata {
			p.meta, p.from = metaName(key), []byte(key)
		}
	}
	special(c.TraceIDKey, c.TraceID)
	special(c.SpanIDKey, c.SpanID)
	if c.TenantAttr != "" {
		p := root.at([]string{c.TenantAttr})
		p.anywhere, p.drop, p.tenant = true, true, true
		e.tenantMeta = metaName(c.TenantAttr)
	}
	slices.Sort(names)
	for _, n := range names {
		e.parts = append(e.parts, parts[n])
	}
	if c.Line.OutOfLine {
		root.promote()
	}
	if root.children != nil || e.metadataAll {
		e.picks = root
	}
}

// Durations sets the format of durations, for the option forebay.Durations, and returns e. It must
// be called before the first record is encoded. It does not affect a Formatter.
func (e *encoder) Durations(form string) encode.Encoder {
	*e.values = *values.NewValues(values.Style{Duration: values.DurationForm(form), Errors: values.ErrorForm(e.c.Line.Errors)})
	if e.kind == logfmtLine {
		e.line = e.line.(interface{ Durations(string) encode.Encoder }).Durations(form)
		e.root.inner = e.line.Scope()
	}
	return e
}

// Scope returns the scope without attributes and groups.
func (e *encoder) Scope() encode.Scope { return e.root }

// Codec returns the codec that reads entries.
func (e *encoder) Codec() batch.Codec { return e.codec }

// NeedsPC reports whether the formatter of the line needs source positions.
func (e *encoder) NeedsPC() bool { return e.line.NeedsPC() }

// appendStream appends the definition of a stream. tenant is nil for the tenant of the Config, and
// values contains the label values by slot.
func (e *encoder) appendStream(dst, tenant []byte, level int, values [][]byte) []byte {
	return e.appendLabels(appendStreamDef(dst, tenant), level, values)
}

// appendLabels appends the labels of a stream in the syntax of Loki: {a="b", c="d"}. level is
// noLevel for a stream without a level. values contains the label values by slot; slots without a
// value are omitted.
func (e *encoder) appendLabels(dst []byte, level int, values [][]byte) []byte {
	dst = append(dst, '{')
	first := true
	for i := range e.parts {
		p := &e.parts[i]
		if p.slot >= 0 && (p.slot >= len(values) || len(values[p.slot]) == 0) || p.level && level == noLevel {
			continue
		}
		if !first {
			dst = append(dst, ", "...)
		}
		first = false
		dst = append(dst, p.text...)
		switch {
		case p.level:
			dst = appendQuoted(dst, []byte(e.c.levels[level]))
		case p.slot >= 0:
			dst = appendQuoted(dst, values[p.slot])
		}
	}
	if first { // Loki rejects a stream without labels
		dst = append(append(dst, e.c.LevelName...), `="unknown"`...)
	}
	return append(dst, '}')
}

// A scope is an encoder with the attributes and groups of a logger. It is immutable, so goroutines
// may share it.
type scope struct {
	e      *encoder
	inner  encode.Scope // the scope of the line
	node   *pick        // node of the tree of picks for attributes of the innermost group; nil if none of them is picked
	path   string       // names of the open groups, each followed by a dot, as a prefix of metadata names
	labels [][]byte     // values from attributes of the scope, by slot
	meta   []pair       // metadata from attributes of the scope
	tenant []byte       // tenant from attributes of the scope; nil if there is none
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
	p := new(picked) // not from the pool, because the scope retains its contents
	p.labels = make([][]byte, len(s.e.slots))
	attrs = s.evaluate(p, nil, attrs)
	s.pick(p, nil, attrs)
	n.labels, n.meta, n.tenant = p.labels, p.meta[:len(p.meta):len(p.meta)], p.tenant
	n.inner = s.inner.WithAttrs(s.rest(p, attrs))
	return &n
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

// rest returns the attributes that are written to the line. If this applies to all attributes, rest
// returns attrs, otherwise a copy in p.attrs.
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

// rest appends to dst those of attrs that are written to the line. c is their node in the tree of
// picks. If this applies to all attributes, rest returns attrs and leaves dst unchanged.
func (c *pick) rest(dst, attrs []slog.Attr) (out []slog.Attr, changed bool) {
	for i := range attrs {
		a := attrs[i]
		keep, other := true, false
		if in := c.children[a.Key]; in != nil || a.Key == "" {
			if a.Key == "" {
				in = c
			}
			group := a.Value.Kind() == slog.KindGroup
			if keep = a.Key == "" || !in.drop && (group || !in.promoted); keep && group && in.hasPromoted {
				var left []slog.Attr
				if left, other = in.rest(nil, a.Value.Group()); other {
					a.Value, keep = slog.GroupValue(left...), len(left) > 0
				}
			}
		}
		if !changed && (!keep || other) {
			dst, changed = append(dst, attrs[:i]...), true
		}
		if keep && changed {
			dst = append(dst, a)
		}
	}
	if !changed {
		return attrs, false
	}
	return dst, true
}

// nanos returns t in Unix nanoseconds. A time before 1678 or after 2261 does not fit into an int64 and
// is replaced by the nearest second that does; Loki refuses both.
func nanos(t time.Time) int64 {
	const limit = math.MaxInt64/int64(time.Second) - 1
	if sec := t.Unix(); sec >= limit || sec <= -limit {
		return min(max(sec, -limit), limit) * int64(time.Second)
	}
	return t.UnixNano()
}

// Append appends r as an entry. A record without a time gets the current time. Append fails if a
// Formatter fails, or if the entry has more than maxPadded bytes; dst then ends in an incomplete
// entry. Append changes r.Attrs temporarily, so that the encoder of lines does not write picked
// attributes.
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
		m.Stream = e.byLevel[values.LevelIndex(r.Level)]
	} else {
		p = getPicked(len(e.slots))
		defer p.free()
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
	if e.kind.isFormatter() && !utf8.Valid(dst[start+lineHead:]) {
		line := bytes.ToValidUTF8(dst[start+lineHead:], []byte("\ufffd"))
		dst = append(dst[:start+lineHead], line...)
	}
	dst, err = e.endProto(e.trim(dst, start+lineHead), start, p)
	return dst, m, err
}

// endProto completes the entry in protobuf form that begins at start. The line is at the end of
// dst. p may be nil.
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

// appendJSON implements Append for entries in JSON format. p is nil if no attribute is used outside
// the line.
func (e *encoder) appendJSON(dst []byte, inner encode.Scope, p *picked, r *encode.Record, m batch.Meta) ([]byte, batch.Meta, error) {
	if p == nil && e.kind != bodyLine {
		p = getPicked(0)
		defer p.free()
	}
	dst = beginJSON(dst, m.Time)
	start := len(dst)
	if s, ok := inner.(*bodyScope); ok {
		// A body escapes a line for JSON while it is written. The lines of other encoders are
		// escaped afterwards.
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

// endJSON completes an entry in JSON form. The escaped line is at the end of dst. p may be nil.
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

// trim removes a newline from the end of the line, which begins at start. With LongLines "truncate"
// it also cuts a line longer than MaxLine at the end of a character and appends cutMark.
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

// trimNested implements trim for a line inside a JSON string. It compares the unescaped line with
// MaxLine, because escapes are longer than the characters they represent.
func (e *encoder) trimNested(dst []byte, start int) []byte {
	quoted := append(append([]byte{'"'}, dst[start:]...), '"')
	var line string
	if json.Unmarshal(quoted, &line) != nil || len(line) <= e.c.Limits.MaxLine {
		return dst
	}
	return jsontext.AppendEscapedBytes(dst[:start], e.trim([]byte(line), 0))
}

// cutMark is the beginning of the text that is appended to a truncated line. After cutMark, the
// text contains the number of removed bytes and " B]".
const cutMark = "…[cut "

// stream returns the stream of a record, and creates it if necessary. Labels that exceed a limit of
// the Config become metadata. If the record must be refused, stream returns a stream of denyStream.
// The result is never nil.
func (e *encoder) stream(p *picked, level int) *stream {
	c := e.c
	if len(p.tenant) > 0 && checkTenant(p.tenant) != "" {
		return e.deny(p, badTenant)
	}
	tenant := p.tenant
	if string(tenant) == c.Tenant {
		tenant = nil
	}
	n := e.fixedLabels
	for i, v := range p.labels {
		switch {
		case len(v) == 0:
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
	st := e.streams.find(p.key)
	if st == nil {
		if e.demoteExceeded(p) { // only a new stream can have a new value of a label
			p.key = e.appendStream(p.key[:0], tenant, level, p.labels)
		}
		st = e.streams.add(p.key, false)
	}
	if st == nil {
		for i, v := range p.labels {
			if len(v) > 0 {
				e.demote(p, i, streamsFull)
			}
		}
		p.key = e.appendStream(p.key[:0], tenant, level, p.labels)
		if st = e.streams.find(p.key); st == nil {
			// If the tenant has a stream already, it may exceed MaxStreams, but by at most one
			// stream per level.
			st = e.streams.add(p.key, e.streams.hasTenant(tenant))
		}
	}
	if st == nil {
		return e.deny(p, streamsFull)
	}
	st.owner.markUsed()
	return st
}

// deny returns the stream of records that are refused for the given reason and become dead letters.
// It adds the tenant to the metadata, because that stream does not contain it.
func (e *encoder) deny(p *picked, why reason) *stream {
	p.setMeta(e.tenantMeta, p.tenant, e.tenantMeta)
	return e.streams.denyStream(why)
}

// demote moves the label of a slot to the metadata and counts the reason.
func (e *encoder) demote(p *picked, slot int, why reason) {
	p.setMeta(e.slots[slot].meta, p.labels[slot], e.slots[slot].from)
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
	p := getPicked(len(e.slots))
	defer p.free()
	if e.picks != nil {
		e.root.pick(p, nil, attrs)
	}
	index := noLevel
	if level == batch.NoLevel {
		m.Level = slog.LevelInfo
	} else {
		index = values.LevelIndex(level)
	}
	st := e.stream(p, index)
	m.Stream = st.id
	if e.streams.uniqueTimes {
		m.Time = e.streams.uniqueTime(st, m.Time)
	}
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\ufffd"))
	}
	p.line = append(p.line[:0], line...)
	p.line = e.trim(p.line, 0)
	if e.form == jsonForm {
		dst = beginJSON(dst, m.Time)
		return e.endJSON(jsontext.AppendEscapedBytes(dst, p.line), p), m, nil
	}
	start := len(dst)
	dst, err := e.endProto(append(beginEntry(dst, m.Time), p.line...), start, p)
	return dst, m, err
}
