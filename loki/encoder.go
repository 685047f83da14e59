package loki

import (
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/callback"
	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/values"
	"github.com/forebay-log/forebay/slab"
)

// An encoder encodes records as entries of Loki. It is the [encode.Encoder] of a Driver. Entries in
// protobuf and entries in JSON have different content types.
//
// Each record is encoded once, in the caller's goroutine, in the form that the request uses. After
// its pools are filled, an encoder does not allocate, except for values whose conversion to text
// allocates. All methods are safe for concurrent use. After the first record, only the fields
// started and unleveled, and the value of eager, can change.
type encoder struct {
	c           *Config
	streams     *registry
	observed    *observations
	line        encode.Encoder // encodes lines
	values      *values.Values // encodes values in lines, labels and metadata
	form        form
	kind        lineKind // type of line
	root        *scope
	picks       *pick        // root of the tree of picks; nil if attributes are used only in the line
	metadataAll bool         // Config.MetadataAll
	slots       []*labelSlot // labels from attributes, in the order of Config.LabelAttrs
	reports     *callback.Reporter
	parts       []labelPart // labels of a stream, sorted by name
	// fixedLabels is the number of labels that every stream has: Config.Labels and the level.
	fixedLabels int
	// byLevel contains, for each level, the id of the stream without labels from attributes.
	byLevel [len(levelNames)]uint32
	// unleveled is the stream of lines without a level and without labels from attributes. It is nil
	// until AppendLine has created it.
	unleveled  atomic.Pointer[stream]
	tenantMeta []byte // metadata name for the tenant of a refused record
	codec      codec
	// eager is the minimum level of the records that are sent immediately
	// (slab.Options.FlushLevel). It is nil without Config.EagerFirst.
	eager   *slog.LevelVar
	started atomic.Bool // set when the first record is encoded
}

// A lineKind is the kind of encoder that encodes the lines.
type lineKind uint8

const (
	bodyLine        lineKind = iota // a body of this package
	logfmtLine                      // see newLogfmt
	encodeFormatter                 // Config.Line.Formatter, an encoder of package encode
	otherFormatter                  // Config.Line.Formatter of another package
)

// isFormatter reports whether lines are encoded by Config.Line.Formatter.
func (k lineKind) isFormatter() bool { return k >= encodeFormatter }

// noteFirst is called for each record with Config.EagerFirst. Initially the minimum level in eager
// is so low that the first record is sent immediately. The second call raises it above all levels,
// so that further records are batched.
func (e *encoder) noteFirst() {
	if e.eager.Level() != slab.NoFlushLevel && e.started.Swap(true) {
		e.eager.Set(slab.NoFlushLevel)
	}
}

// A labelSlot is a label whose value comes from an attribute.
type labelSlot struct {
	// meta is the label's name in structured metadata. attr is the attribute's name in
	// Config.LabelAttrs.
	meta, attr []byte
	values     valueCounter // distinct values of the label
}

// A labelPart describes a label. Its value is a fixed text, the name of the level, or the value of
// an attribute.
type labelPart struct {
	text  string // name="value", or name= if the value depends on the record
	level bool   // the value is the name of the level
	// slot is the index in the field slots if the value comes from an attribute, otherwise -1.
	slot int
}

// newEncoder returns the encoder for c. It registers a stream for each level. The stream of gap
// markers, the lines that report dropped records, must have the id 0 (see [registry]), so it is
// registered first.
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
// TenantAttr, all records belong to the tenant of this stream, so the tenant is marked as used.
func (e *encoder) addLevel(level int) uint32 {
	labels := e.appendLabels(nil, level, nil)
	e.streams.levelLabels[level] = labels
	st := e.streams.add(append(appendStreamDef(nil, nil), labels...), true)
	if e.c.TenantAttr == "" {
		st.owner.markUsed()
	}
	return st.id
}

// addGaps adds a separate stream with Config.GapLabels for gap markers, the lines that report
// dropped records. level is the index of their level. newEncoder calls addGaps before it adds any
// other stream, so the id is 0.
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

// buildParts computes the fields parts, slots and picks from the Config. If several labels have the
// same name, Labels have precedence over the level, and the level has precedence over attributes.
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
			e.slots = append(e.slots, &labelSlot{meta: metaName(path), attr: []byte(path)})
		}
	}
	for _, path := range c.MetadataAttrs {
		at := root.named(path)
		at.meta, at.attr = metaName(path), []byte(path)
	}
	special := func(key string, where string) {
		if where == inBody {
			return
		}
		p := root.at([]string{key})
		p.anywhere, p.drop = true, true
		if where == inMetadata {
			p.meta, p.attr = metaName(key), []byte(key)
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

// NeedsPC reports whether the encoder of lines needs source positions.
func (e *encoder) NeedsPC() bool { return e.line.NeedsPC() }

// appendStream appends the definition of a stream: its tenant and labels in the form in which files
// store them. A nil tenant means the tenant of the Config. The parameter values contains the label
// values by slot.
func (e *encoder) appendStream(dst, tenant []byte, level int, values [][]byte) []byte {
	return e.appendLabels(appendStreamDef(dst, tenant), level, values)
}

// appendLabels appends the labels of a stream in the syntax of Loki: {a="b", c="d"}. The level
// noLevel means a stream without a level. The parameter values contains the label values by slot;
// slots without a value are omitted.
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
