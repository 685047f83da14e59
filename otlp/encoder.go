package otlp

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/keyset"
	"github.com/forebay-log/forebay/internal/values"
)

// maxDepth is the maximum nesting depth of values. Each level of nesting needs three protobuf
// messages, and many decoders accept only a hundred nested messages. Deeper values are written as
// JSON text.
const maxDepth = 24

// An encoder is the [encode.Encoder] of a [Driver]. It encodes each record once, in the caller's
// goroutine, and requests contain the encoded records unchanged. An encoder allocates no memory,
// but methods of the attribute values may. It is immutable.
type encoder struct {
	// traceKey and spanKey are the keys of the attributes that become the trace id and the span id.
	// "-" means that no attribute becomes one.
	traceKey, spanKey string
	source            bool
	values            *values.Values
}

// newEncoder returns the encoder for c, which must be resolved.
func newEncoder(c *Config) *encoder {
	return &encoder{
		traceKey: c.TraceIDKey, spanKey: c.SpanIDKey, source: c.AddSource,
		values: values.NewValues(values.Style{}),
	}
}

// Durations returns a copy of e that writes durations in the given format. It implements the option
// forebay.Durations.
func (e *encoder) Durations(form string) encode.Encoder {
	n := *e
	n.values = values.NewValues(values.Style{Duration: values.DurationForm(form)})
	return &n
}

// Scope returns the scope without attributes and groups. It implements [encode.Encoder].
func (e *encoder) Scope() encode.Scope { return &scope{e: e, levels: []level{{}}} }

// Codec returns the codec that decodes the records. It implements [encode.Encoder].
func (e *encoder) Codec() batch.Codec { return codec{e} }

// NeedsPC reports whether records contain the source position of the log call. It implements
// [encode.Encoder].
func (e *encoder) NeedsPC() bool { return e.source }

// A scope is an encoder with the attributes and groups of a logger. It is immutable, so goroutines
// may share it.
type scope struct {
	e      *encoder
	levels []level // the root, followed by the open groups
	// keyPrefix is added before the keys of attributes. It consists of the names of the groups
	// nested deeper than maxDepth, each followed by a dot.
	keyPrefix string
	// ids are the trace id and the span id from attributes of the scope.
	ids ids
}

// A level is an open group of a scope: its name, and the scope's attributes in it. The first level
// of a scope is the root, which has no name.
type level struct {
	name  string
	pairs []byte      // encoded attributes
	keys  keyset.Keys // keys of the attributes in pairs
}

// ids contains the trace id and the span id of a record. trace is valid if hasTrace is set, and
// span is valid if hasSpan is set.
type ids struct {
	trace    [16]byte
	span     [8]byte
	hasTrace bool
	hasSpan  bool
}

// WithGroup implements [encode.Scope]. The name of a group nested deeper than maxDepth becomes a
// prefix of the keys.
func (s *scope) WithGroup(name string) encode.Scope {
	if name == "" {
		return s
	}
	n := *s
	if len(s.levels) > maxDepth {
		n.keyPrefix += valid(name) + "."
		return &n
	}
	n.levels = append(slices.Clone(s.levels), level{name: valid(name)})
	return &n
}

// WithAttrs implements [encode.Scope]. It encodes the attributes once, for all records of the new
// scope.
func (s *scope) WithAttrs(attrs []slog.Attr) encode.Scope {
	if len(attrs) == 0 {
		return s
	}
	n := *s
	n.levels = slices.Clone(s.levels)
	last := &n.levels[len(n.levels)-1]
	w := getWriter(&n, nil)
	defer w.free()
	// The keys are stored in the level, so that later attributes in this group get different keys.
	w.keys.Open(&last.keys)
	pairs := w.attrs(slices.Clone(last.pairs), n.tag(), attrs, len(n.levels)-1)
	keys := last.keys.Clone()
	w.keys.AppendTo(&keys)
	w.keys.Close()
	last.pairs, last.keys, n.ids = slices.Clip(pairs), keys, w.ids
	return &n
}

// tag returns the tag of a KeyValue in the innermost group.
func (s *scope) tag() byte {
	if len(s.levels) > 1 {
		return tagValues
	}
	return tagAttr
}

// Append appends r as a LogRecord. It implements [encode.Scope]. It fails if the record has more
// than maxPadded bytes.
func (s *scope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	w := getWriter(s, r)
	dst, start := openLen(dst, tagRecord)
	dst, at := appendTimes(dst, r.Time)
	m := batch.Meta{Time: at, Level: r.Level}
	dst = appendLevel(dst, r.Level)
	dst = appendBody(dst, r.Message)
	dst = w.all(dst, r)
	dst = w.ids.append(dst)
	w.free()
	return finish(dst, start, m)
}

// finish stores the length of the record that begins at start and ends at the end of dst. It
// returns dst and m. If the record is too long, it returns an error.
func finish(dst []byte, start int, m batch.Meta) ([]byte, batch.Meta, error) {
	if n := len(dst) - start; n > maxPadded {
		return dst, m, fmt.Errorf("otlp: cannot encode: record has %d bytes, more than %d", n, maxPadded)
	}
	closeLen(dst, start)
	return dst, m, nil
}

// appendTimes appends t, the time of a record, and the observed time. If OTLP cannot represent t, t
// is omitted, and the observed time is the current time. The result at is the time for
// [batch.Meta], in Unix ns.
func appendTimes(dst []byte, t time.Time) (_ []byte, at int64) {
	at = values.UnixNano(t)
	if at > 0 {
		return appendFixed64(appendFixed64(dst, tagTime, uint64(at)), tagObserved, uint64(at)), at
	}
	now := time.Now().UnixNano()
	if t.IsZero() {
		at = now
	}
	return appendFixed64(dst, tagObserved, uint64(now)), at
}

// originalTime is the key of the attribute for a time that OTLP cannot represent. OTLP counts
// nanoseconds from 1970, which decoders read up to 2262; 0 means no time. Package loki uses the
// same name.
const originalTime = "original_time"

// isOriginal reports whether t is set and OTLP cannot represent it.
func isOriginal(t time.Time) bool { return values.UnixNano(t) <= 0 && !t.IsZero() }

// appendOriginalTime appends the time t of a record as the attribute originalTime if OTLP cannot
// represent t.
func (w *writer) appendOriginalTime(dst []byte, t time.Time) []byte {
	if !isOriginal(t) {
		return dst
	}
	return appendString(dst, tagAttr, w.keys.Name(originalTime), t.UTC().Format(time.RFC3339Nano))
}

// appendLevel appends the severity number and the severity text. The number is the level of slog
// plus 9, limited to the range from 1 to 24 (OpenTelemetry Logs Data Model, field SeverityNumber).
func appendLevel(dst []byte, l slog.Level) []byte {
	dst = append(dst, tagSeverity, byte(min(max(int(l)+9, 1), 24)))
	switch l {
	case slog.LevelDebug:
		return append(dst, tagText, 5, 'D', 'E', 'B', 'U', 'G')
	case slog.LevelInfo:
		return append(dst, tagText, 4, 'I', 'N', 'F', 'O')
	case slog.LevelWarn:
		return append(dst, tagText, 4, 'W', 'A', 'R', 'N')
	case slog.LevelError:
		return append(dst, tagText, 5, 'E', 'R', 'R', 'O', 'R')
	}
	return appendText(dst, tagText, values.LevelName(l))
}

// appendBody appends s as the body of a record.
func appendBody(dst []byte, s string) []byte {
	s = valid(s)
	return appendText(appendLen(dst, tagBody, fieldLen(len(s))), tagString, s)
}

// append appends the ids that are set to dst.
func (i *ids) append(dst []byte) []byte {
	if i.hasTrace {
		dst = append(append(dst, tagTrace, byte(len(i.trace))), i.trace[:]...)
	}
	if i.hasSpan {
		dst = append(append(dst, tagSpan, byte(len(i.span))), i.span[:]...)
	}
	return dst
}

// A writer writes the attributes of one record, or of one call of WithAttrs. It comes from a pool
// and is used by one goroutine.
type writer struct {
	e *encoder
	s *scope
	// groups is the number of open groups that are values of the record's attributes, not groups of
	// the scope. keyPrefix is not added to the keys in these groups.
	groups int
	cache  *values.Cache
	ids    ids
	keys   keyset.Set
	// distinct reports that all remaining keys of the innermost group are unique, so that they need
	// not be stored in keys.
	distinct bool
	js       []byte // scratch memory for a group that is written as JSON
	text     []byte // scratch memory for a text

	// The following fields are the state of the value that anyValue is appending.
	walk    values.Walk
	scratch values.AttrScratch
	dst     []byte
	items   []item
	times   values.Times
}

// writers is a pool of writers. Their memory is reused, so that encoding a record does not
// allocate.
var writers = sync.Pool{New: func() any { return new(writer) }}

// getWriter returns a writer for the attributes of r. If r is nil, the attributes belong to a
// scope. The caller must call free.
func getWriter(s *scope, r *encode.Record) *writer {
	w := writers.Get().(*writer)
	w.e, w.s, w.ids, w.cache, w.groups, w.distinct = s.e, s, s.ids, nil, 0, false
	w.walk.Expansions, w.walk.Nodes = 0, 0
	if r != nil {
		w.cache = &r.Cache
	}
	return w
}

// keptBytes is the maximum size in bytes of scratch memory that is kept for reuse.
const keptBytes = 64 << 10

// free returns w to the pool. w must not be used afterwards.
func (w *writer) free() {
	w.s, w.cache = nil, nil
	if cap(w.js)+cap(w.text) > keptBytes {
		w.js, w.text = nil, nil
	}
	writers.Put(w)
}

// all appends the attributes of the scope and of r, and the source position if the encoder adds it.
func (w *writer) all(dst []byte, r *encode.Record) []byte {
	root := &w.s.levels[0]
	dst = append(dst, root.pairs...)
	source := w.e.source && r.PC != 0
	if len(w.s.levels) == 1 && !source && !isOriginal(r.Time) && root.keys.Distinct(r.Attrs) {
		// In the usual case, there are no groups and no duplicate keys, so no key needs to be
		// stored.
		w.distinct = true
		return w.attrs(dst, tagAttr, r.Attrs, 0)
	}
	w.keys.Open(&root.keys)
	dst = w.appendOriginalTime(dst, r.Time)
	if source {
		f := &values.FrameOf(r.PC).Source
		dst = appendString(dst, tagAttr, w.keys.Name("code.function.name"), f.Function)
		dst = appendString(dst, tagAttr, w.keys.Name("code.file.path"), f.File)
		dst = appendInt(dst, tagAttr, w.keys.Name("code.line.number"), int64(f.Line))
	}
	dst = w.group(dst, tagAttr, r.Attrs, 1)
	w.keys.Close()
	return dst
}

// group appends the open groups of the scope, from level k to the innermost. attrs become members
// of the innermost group. k is at least 1, because level 0 is the root. A group without members is
// omitted.
func (w *writer) group(dst []byte, tag byte, attrs []slog.Attr, k int) []byte {
	if k == len(w.s.levels) {
		w.distinct = k > 1 && w.s.levels[k-1].keys.Distinct(attrs)
		return w.attrs(dst, tag, attrs, k-1)
	}
	l := &w.s.levels[k]
	at := len(dst)
	dst, whole, value := openPair(dst, tag, w.keys.Name(l.name))
	dst, list := openLen(dst, tagList)
	dst = append(dst, l.pairs...)
	w.keys.Open(&l.keys)
	dst = w.group(dst, tagValues, attrs, k+1)
	w.keys.Close()
	if len(dst) == list {
		return dst[:at] // removes the empty group
	}
	closeLen(dst, list)
	closeLen(dst, value)
	closeLen(dst, whole)
	return dst
}

// name returns the unique name of a key in the innermost group, and stores the name unless distinct
// is set.
func (w *writer) name(key string) string {
	if w.distinct {
		return key
	}
	return w.keys.Name(key)
}

// noKeys is the set of keys of an object without members.
var noKeys keyset.Keys

// attrs appends attributes as KeyValues with the given tag. depth is the number of enclosing
// groups.
func (w *writer) attrs(dst []byte, tag byte, attrs []slog.Attr, depth int) []byte {
	for i := range attrs {
		a := &attrs[i]
		v := a.Value
		if v.Kind() == slog.KindLogValuer {
			v = v.Resolve()
		}
		key := valid(a.Key)
		if w.s.keyPrefix != "" && w.groups == 0 {
			key = w.s.keyPrefix + key
		}
		switch v.Kind() {
		case slog.KindString:
			s := v.String()
			if (a.Key == w.e.traceKey || a.Key == w.e.spanKey) && w.groups == 0 && w.id(a.Key, s) {
				continue
			}
			dst = appendString(dst, tag, w.name(key), s)
		case slog.KindInt64:
			dst = appendInt(dst, tag, w.name(key), v.Int64())
		case slog.KindUint64:
			dst = appendUint(dst, tag, w.name(key), v.Uint64())
		case slog.KindFloat64:
			dst = appendDouble(dst, tag, w.name(key), v.Float64())
		case slog.KindBool:
			dst = appendBool(dst, tag, w.name(key), v.Bool())
		case slog.KindDuration:
			if w.e.values.Duration == values.DurationNanos {
				dst = appendInt(dst, tag, w.name(key), int64(v.Duration()))
			} else {
				dst = w.any(dst, tag, a.Key, key, v, depth)
			}
		case slog.KindGroup:
			dst = w.groupValue(dst, tag, a.Key, key, v, depth)
		default:
			if a.Key == "" && v.Kind() == slog.KindAny && v.Any() == nil {
				continue // slog ignores an empty Attr
			}
			dst = w.any(dst, tag, a.Key, key, v, depth)
		}
	}
	return dst
}

// id uses s as the trace id or span id of the record if key is TraceIDKey or SpanIDKey. It reports
// whether it did. It ignores an invalid id, and an id that differs from an earlier one of the
// record.
func (w *writer) id(key, s string) bool {
	var b [16]byte
	switch {
	case key == w.e.traceKey && len(s) == 2*len(w.ids.trace):
		if !unhex(b[:16], s) || w.ids.hasTrace && w.ids.trace != b {
			return false
		}
		w.ids.trace, w.ids.hasTrace = b, true
	case key == w.e.spanKey && len(s) == 2*len(w.ids.span):
		if !unhex(b[:8], s) || w.ids.hasSpan && w.ids.span != [8]byte(b[:8]) {
			return false
		}
		w.ids.span, w.ids.hasSpan = [8]byte(b[:8]), true
	default:
		return false
	}
	return true
}

// unhex decodes s into dst, and reports whether s is a valid id. An id is hexadecimal and not all
// zeros (W3C Trace Context).
func unhex(dst []byte, s string) bool {
	var in [32]byte
	n := copy(in[:], s)
	if _, err := hex.Decode(dst, in[:n]); err != nil {
		return false
	}
	return slices.ContainsFunc(dst, func(b byte) bool { return b != 0 })
}

// appendUint appends a KeyValue with an integer. A number above the largest int64 is written as
// text.
func appendUint(dst []byte, tag byte, key string, v uint64) []byte {
	if v > math.MaxInt64 {
		return appendString(dst, tag, key, strconv.FormatUint(v, 10))
	}
	return appendInt(dst, tag, key, int64(v))
}

// groupValue appends a group that is the value of an attribute. name is the key of the attribute
// without keyPrefix, and key is the key with keyPrefix. The attributes of a group without a name
// belong to the enclosing group. A group nested deeper than maxDepth is written as JSON text.
func (w *writer) groupValue(dst []byte, tag byte, name, key string, v slog.Value, depth int) []byte {
	attrs := v.Group()
	switch {
	case len(attrs) == 0:
		return dst
	case name == "":
		if depth >= 4*maxDepth {
			return dst
		}
		return w.attrs(dst, tag, attrs, depth+1)
	case depth >= maxDepth:
		w.js = w.e.values.AppendValue(w.js[:0], w.cache, v)
		return appendRaw(dst, tag, w.name(key), w.js)
	}
	at := len(dst)
	dst, whole, value := openPair(dst, tag, w.name(key))
	dst, list := openLen(dst, tagList)
	distinct := w.distinct
	w.distinct = noKeys.Distinct(attrs)
	w.groups++
	if w.distinct {
		dst = w.attrs(dst, tagValues, attrs, depth+1)
	} else {
		w.keys.Open(nil)
		dst = w.attrs(dst, tagValues, attrs, depth+1)
		w.keys.Close()
	}
	w.groups--
	w.distinct = distinct
	// The empty group is removed, so that a later attribute may have its key.
	if len(dst) == list {
		if !distinct {
			w.keys.Drop()
		}
		return dst[:at]
	}
	closeLen(dst, list)
	closeLen(dst, value)
	closeLen(dst, whole)
	return dst
}

// any appends a value of a type that attrs does not handle. name is the key of the attribute
// without keyPrefix, and key is the key with keyPrefix. If a method of the value fails, its error
// is written instead of the value.
func (w *writer) any(dst []byte, tag byte, name, key string, v slog.Value, depth int) []byte {
	if (name == w.e.traceKey || name == w.e.spanKey) && w.groups == 0 {
		w.text = w.e.values.AppendText(w.text[:0], w.cache, v)
		if w.id(name, string(w.text)) {
			return dst
		}
	}
	if v.Kind() == slog.KindAny {
		if err, ok := v.Any().(error); ok {
			if _, ok := err.(values.AttrAppender); !ok {
				return appendString(dst, tag, w.name(key), values.Know(err).Text)
			}
		}
	}
	key = w.name(key)
	at, open := len(dst), w.keys.Depth()
	dst, whole, value := openPair(dst, tag, key)
	dst, err := w.anyValue(dst, v, depth)
	if err != nil { // the error replaces the incomplete value
		w.keys.CloseTo(open)
		return appendString(dst[:at], tag, key, values.Fault(err))
	}
	closeLen(dst, value)
	closeLen(dst, whole)
	return dst
}

// appendRaw appends a KeyValue with a string. text must be valid UTF-8.
func appendRaw(dst []byte, tag byte, key string, text []byte) []byte {
	return append(appendLen(appendPairHead(dst, tag, key, fieldLen(len(text))), tagString, len(text)), text...)
}
