package fluent

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/keyset"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/values"
)

// EncoderOptions configures [NewEncoder]. The zero value is useful: each field
// states its default.
type EncoderOptions struct {
	// Tag is the tag of records. Default "": Config.Tag of the Driver.
	Tag string
	// TagKey is the key of an attribute outside of groups. If the text of the attribute is a valid
	// tag, it becomes the tag of the record, and the attribute is removed. Otherwise the attribute
	// remains, and the record has its usual tag. Default "": no attribute is used.
	TagKey string
	// LevelKey, MessageKey and SourceKey are the names of the built-in fields; "-" omits a
	// field. Defaults "level", "msg", "source".
	LevelKey, MessageKey, SourceKey string
	// AddSource adds the source position of the log call. Default false.
	AddSource bool
	// IntegerTime, TimeFields and Errors have the same meanings and defaults as the fields of
	// [Config].
	IntegerTime bool
	TimeFields  string
	Errors      string
	// ReplaceAttr rewrites or removes attributes, with the arguments and rules of
	// [slog.HandlerOptions]. Level, message and source are passed under the keys configured above.
	// The time is not passed, because it is not a field of the record. The attributes of an
	// encode.AttrAppender are passed like those of a group but, unlike in package encode, not if
	// the AttrAppender is inside a list or another value. TagKey applies to the result of
	// ReplaceAttr. The function may be called from several goroutines concurrently. If it panics,
	// the text of the panic replaces the value of the attribute. Default nil.
	ReplaceAttr func(groups []string, a slog.Attr) slog.Attr
}

// NewEncoder returns an encoder for the outputs of a Router that have a [Driver]. Each record
// becomes a Forward entry with its time. Level, message and attributes are fields, and groups are
// maps. An error is written as its message, with details if EncoderOptions.Errors is set. Other
// values are written as by [Logger.Post]. A value that cannot be written is replaced by a text with
// the reason.
//
// The protocol can represent times from 1970 to 2106-02-07 06:28:13 UTC. For a record with another
// time the encoder returns an error, and the record is dropped with the reason "encode". o may be
// nil. The error lists every problem of o.
func NewEncoder(o *EncoderOptions) (encode.Encoder, error) {
	e := &encoder{style: plainStyle}
	if o != nil {
		e.o = *o
	}
	setDefault(&e.o.LevelKey, "level")
	setDefault(&e.o.MessageKey, defaultMessageKey)
	setDefault(&e.o.SourceKey, "source")
	// ReplaceAttr may return any key, so every record is checked for duplicate keys.
	e.root = &scope{e: e, levels: []groupLevel{{}}, duplicates: e.o.ReplaceAttr != nil}
	e.root.levels[0].keys = noKeys.With(e.o.LevelKey, e.o.MessageKey, e.o.SourceKey)
	if e.o.Tag != "" {
		if err := checkTag(e.o.Tag); err != nil {
			return nil, err
		}
		e.root.setTag(e.o.Tag, streamOf(e.o.Tag))
	}
	if err := checkTimes(e.o.TimeFields); err != nil {
		return nil, fmt.Errorf("fluent: EncoderOptions.TimeFields: %w", err)
	}
	if err := checkErrors(e.o.Errors); err != nil {
		return nil, fmt.Errorf("fluent: EncoderOptions.Errors: %w", err)
	}
	if form := values.ErrorForm(e.o.Errors); form != values.ErrorText {
		e.errors = values.NewValues(values.Style{Errors: form})
	}
	if e.o.LevelKey != omitted {
		e.levelKey = msgpack.AppendStr(nil, e.o.LevelKey)
	}
	if e.o.MessageKey != omitted {
		e.messageKey = msgpack.AppendStr(nil, e.o.MessageKey)
	}
	return e, nil
}

// omitted is the value of LevelKey, MessageKey or SourceKey that omits the field.
const omitted = "-"

// An encoder is the [encode.Encoder] of a [Driver]. It is immutable.
type encoder struct {
	o                    EncoderOptions
	root                 *scope
	levelKey, messageKey []byte         // encoded; nil if omitted
	errors               *values.Values // writes the details of errors; nil without details
	style                *values.Style  // format of durations and times
}

// Durations returns a copy of e that writes durations in the given format. It implements the option
// forebay.Durations.
func (e *encoder) Durations(form string) encode.Encoder {
	n := *e
	n.style = &values.NewValues(values.Style{Duration: values.DurationForm(form)}).Style
	root := *e.root
	root.e = &n
	n.root = &root
	return &n
}

// Scope returns the scope without attributes and groups. It implements [encode.Encoder].
func (e *encoder) Scope() encode.Scope { return e.root }

// Codec returns the codec of Forward entries. It implements [encode.Encoder].
func (e *encoder) Codec() batch.Codec { return Codec() }

// NeedsPC reports whether records contain the source position of the log call. It implements
// [encode.Encoder].
func (e *encoder) NeedsPC() bool { return e.o.AddSource && e.o.SourceKey != omitted }

// A scope consists of an encoder and of the attributes and groups of a logger, which are encoded
// only once. It is immutable, so goroutines may share it. It implements [encode.Scope].
type scope struct {
	e          *encoder
	stream     uint32       // stream of records that do not have the attribute TagKey
	tag        string       // the tag if stream is ownTag, otherwise empty
	levels     []groupLevel // the root and the open groups, outermost first
	names      []string     // names of the open groups, for ReplaceAttr
	deep       bool         // the pairs may be nested deeper than maxLevels
	duplicates bool         // a map of the pairs may have duplicate keys
}

// A groupLevel is the map of an open group, with the attributes that the scope has added to it.
type groupLevel struct {
	key   []byte      // encoded; empty in the root
	pairs []byte      // encoded attributes, each a key and a value
	n     int         // number of pairs
	keys  keyset.Keys // keys of pairs; in the root map also the keys of the built-in fields
}

// noKeys is the set of keys of an empty map.
var noKeys keyset.Keys

// distinct reports whether attrs certainly have no duplicate keys. It compares their keys with each
// other and with the parameter keys, which holds the keys that the map already has. It also checks
// the maps nested in attrs. The keys of some values are known only when the values are encoded; for
// these, distinct returns false. After false, Append checks each record for duplicates.
func (e *encoder) distinct(keys *keyset.Keys, attrs []slog.Attr) bool {
	if !keys.Distinct(attrs) {
		return false
	}
	for i := range attrs {
		switch v := attrs[i].Value; v.Kind() {
		case slog.KindGroup:
			if !e.distinct(&noKeys, v.Group()) {
				return false
			}
		case slog.KindLogValuer:
			return false
		case slog.KindAny:
			switch v.Any().(type) {
			case values.AttrAppender:
				return false
			case error:
				if e.errors != nil { // an error with details is written as several attributes
					return false
				}
			}
		}
	}
	return true
}

// setTag sets the tag and the stream of s. It must not be called after s is shared.
func (s *scope) setTag(tag string, stream uint32) {
	if s.stream, s.tag = stream, ""; stream == ownTag {
		s.tag = strings.Clone(tag) // a copy, because tag may be part of a large string
	}
}

// WithGroup returns a scope that puts later attributes into a group with the given name. As in
// slog, an empty name opens no group. It implements [encode.Scope].
func (s *scope) WithGroup(name string) encode.Scope {
	if name == "" {
		return s
	}
	n := *s
	n.duplicates = s.duplicates || !s.levels[len(s.levels)-1].keys.Distinct([]slog.Attr{{Key: name}})
	n.levels = append(slices.Clone(s.levels), groupLevel{key: msgpack.AppendStr(nil, name)})
	n.names = append(slices.Clone(s.names), name)
	return &n
}

// WithAttrs returns a scope with attrs added to the innermost group. They are encoded here, so that
// ReplaceAttr and the methods of the values are not called again for each record. It implements
// [encode.Scope].
func (s *scope) WithAttrs(attrs []slog.Attr) encode.Scope {
	if len(attrs) == 0 {
		return s
	}
	n := *s
	n.levels = slices.Clone(s.levels)
	last := &n.levels[len(n.levels)-1]
	n.duplicates = s.duplicates || !s.e.distinct(&last.keys, attrs)
	for i := range attrs {
		last.keys = last.keys.With(attrs[i].Key)
	}
	v := s.borrow()
	pairs, k := n.attrs(v, slices.Clone(last.pairs), attrs)
	n.deep = s.deep || v.deep
	v.free()
	// Both scopes refer to the array of pairs. Its capacity is cut, so that a later append copies
	// it.
	last.pairs, last.n = pairs[:len(pairs):len(pairs)], last.n+k
	return &n
}

// borrow returns a valuer for attributes in the innermost group of s. The caller must call free.
func (s *scope) borrow() *valuer {
	v := borrow(routerRecordLimit, s.e.o.TimeFields)
	v.level = len(s.levels)
	v.errors, v.style = s.e.errors, s.e.style
	if v.replace = s.e.o.ReplaceAttr; v.replace != nil {
		v.groups = append(v.groups[:0], s.names...)
	}
	return v
}

// routerRecordLimit is the maximum size of a value in a record of a Router, in bytes. It stops the
// encoding of endless values. The output limits the size of the record separately.
const routerRecordLimit = 1 << 20

// attrs appends attributes as pairs and returns the number of pairs. If an attribute outside of
// groups has the key TagKey and a valid tag as its value, it becomes the tag of s instead.
// Therefore s must not be shared if TagKey is set.
func (s *scope) attrs(v *valuer, dst []byte, attrs []slog.Attr) ([]byte, int) {
	n := 0
	for i := range attrs {
		a := &attrs[i]
		if v.mayChange(a) {
			changed := v.prepare(*a)
			a = &changed
		}
		if s.e.o.TagKey != "" && a.Key == s.e.o.TagKey && len(s.levels) == 1 && a.Value.Kind() != slog.KindGroup {
			if tag := a.Value.String(); checkTag(tag) == nil {
				s.setTag(tag, streamOf(tag))
				continue
			}
		}
		var k int
		dst, k = v.attr(dst, a)
		n += k
	}
	return dst, n
}

// Append appends the record r as an entry. If the tag table is full and does not contain the tag,
// the tag is stored before the entry. Append writes each map with a map16 header and fills in the
// number of pairs afterwards. Groups without attributes are removed. It implements [encode.Scope].
func (s *scope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	dst, m, err := s.append(dst, r.Time, r, r.Attrs)
	m.Level = r.Level
	return dst, m, err
}

// append implements Append for a record with the time t and the given attributes. r contains the
// other fields; it is nil if the encoder omits them. append does not set the level of the Meta.
func (s *scope) append(dst []byte, t time.Time, r *encode.Record, recAttrs []slog.Attr) ([]byte, batch.Meta, error) {
	e := s.e
	m := batch.Meta{Stream: s.stream}
	if t.IsZero() {
		t = time.Now() // an entry requires a time
	}
	if err := checkTime(t); err != nil {
		return dst, m, fmt.Errorf("fluent: cannot encode record: %w", err)
	}
	m.Time = values.UnixNano(t)
	v := s.borrow()
	start := len(dst)
	dst = appendEntryTime(dst, t, e.o.IntegerTime)
	v.base = len(dst)

	// The slice at contains the offset of the map of each group level, and the slice n its number
	// of pairs. With fewer than 8 groups, the arrays avoid an allocation.
	var starts, counts [8]int
	at, n := starts[:0], counts[:0]
	for i := range s.levels {
		l := &s.levels[i]
		at = append(at, len(dst))
		dst = append(dst, l.key...)
		dst = append(dst, msgpack.CodeMap16, 0, 0)
		k := l.n
		if i == 0 {
			var builtin int
			if v.replace != nil {
				dst, builtin = e.replaced(v, dst, r)
			} else {
				dst, builtin = e.builtins(dst, r)
			}
			k += builtin
		}
		dst = append(dst, l.pairs...)
		n = append(n, k)
	}
	last, tag := len(s.levels)-1, s.tag
	duplicates := s.duplicates || !e.distinct(&s.levels[last].keys, recAttrs)
	if len(recAttrs) > 0 {
		if e.o.TagKey != "" && last == 0 {
			tagged := *s // a copy, because attrs may set another tag
			var k int
			dst, k = tagged.attrs(v, dst, recAttrs)
			n[last] += k
			m.Stream, tag = tagged.stream, tagged.tag
		} else {
			var k int
			dst, k = s.attrs(v, dst, recAttrs)
			n[last] += k
		}
	}
	base, deep := v.base, s.deep || v.deep || len(s.levels) >= maxLevels
	// Inner groups are completed first, so that an empty group is removed before the pairs of its
	// enclosing map are counted.
	for i := last; i >= 0; i-- {
		if i > 0 && n[i] == 0 {
			dst = dst[:at[i]] // empty groups are omitted
			continue
		}
		head := at[i] + len(s.levels[i].key)
		if n[i] > math.MaxUint16 { // the map needs a map32 header, which is two bytes longer
			dst = slices.Insert(dst, head+1, 0, 0)
			dst[head] = msgpack.CodeMap32
			binary.BigEndian.PutUint32(dst[head+1:], uint32(n[i]))
		} else {
			binary.BigEndian.PutUint16(dst[head+1:], uint16(n[i]))
		}
		if i > 0 {
			n[i-1]++
		}
	}
	if duplicates {
		out, err := msgpack.AppendUnique(v.unique[:0], dst[base:])
		if err == nil {
			dst = append(dst[:base], out...)
		}
		if cap(out) <= maxScratchBytes {
			v.unique = out
		}
	}
	v.free()
	if deep {
		dst = flatten(dst, base)
	}
	if m.Stream == ownTag {
		dst = slices.Insert(dst, start, msgpack.AppendStr(nil, tag)...)
	}
	return dst, m, nil
}

// builtins appends level, message and source as pairs, and returns their number.
func (e *encoder) builtins(dst []byte, r *encode.Record) ([]byte, int) {
	n := 0
	if e.levelKey != nil {
		dst = append(dst, e.levelKey...)
		dst = appendLevel(dst, r.Level)
		n++
	}
	if e.messageKey != nil {
		dst = append(dst, e.messageKey...)
		dst = msgpack.AppendStr(dst, r.Message)
		n++
	}
	if e.NeedsPC() && r.PC != 0 {
		f := &values.FrameOf(r.PC).Source
		dst = msgpack.AppendStr(dst, e.o.SourceKey)
		dst = msgpack.AppendMapHeader(dst, 3)
		dst = msgpack.AppendStr(msgpack.AppendStr(dst, "function"), f.Function)
		dst = msgpack.AppendStr(msgpack.AppendStr(dst, "file"), f.File)
		dst = msgpack.AppendInt(msgpack.AppendStr(dst, "line"), int64(f.Line))
		n++
	}
	return dst, n
}

// replaced appends level, message and source as pairs, after ReplaceAttr has rewritten or removed
// them. ReplaceAttr receives each as an attribute outside of groups.
func (e *encoder) replaced(v *valuer, dst []byte, r *encode.Record) ([]byte, int) {
	groups, level := v.groups, v.level
	v.groups, v.level, v.builtin = nil, 1, true
	n := 0
	add := func(a slog.Attr) {
		var k int
		a = v.prepare(a)
		dst, k = v.attr(dst, &a)
		n += k
	}
	if e.levelKey != nil {
		add(slog.Any(e.o.LevelKey, r.Level))
	}
	if e.messageKey != nil {
		add(slog.String(e.o.MessageKey, r.Message))
	}
	if e.NeedsPC() && r.PC != 0 {
		src := values.FrameOf(r.PC).Source
		add(slog.Any(e.o.SourceKey, &src))
	}
	v.groups, v.level, v.builtin = groups, level, false
	return dst, n
}

// appendLevel appends the name of a level, such as WARN or INFO+2. It does not allocate for the
// four levels of slog.
func appendLevel(dst []byte, l slog.Level) []byte {
	switch l {
	case slog.LevelDebug:
		return msgpack.AppendStr(dst, "DEBUG")
	case slog.LevelInfo:
		return msgpack.AppendStr(dst, "INFO")
	case slog.LevelWarn:
		return msgpack.AppendStr(dst, "WARN")
	case slog.LevelError:
		return msgpack.AppendStr(dst, "ERROR")
	}
	return msgpack.AppendStr(dst, l.String())
}

// AppendJSONEvent appends an event whose record is the JSON object js, such as a line of a
// program's output. The result stream is the Stream for the [batch.Meta] of the record. An event
// with an empty tag has the tag of its Driver. The error wraps [ErrTag] if the tag is invalid, and
// [ErrValue] if the protocol cannot represent t. It is also an error if js is not exactly one
// object. After an error, the content of rec beyond the length of dst is undefined. Maps and lists
// that are nested too deeply for receivers become JSON text, as in [Logger.Post]. Duplicate keys
// are renamed, see the package comment. js is not retained.
func AppendJSONEvent(dst []byte, tag string, t time.Time, js []byte) (rec []byte, stream uint32, err error) {
	if tag != "" {
		if err := checkTag(tag); err != nil {
			return dst, 0, err
		}
		if stream = streamOf(tag); stream == ownTag { // the tag table of the process is full
			dst = msgpack.AppendStr(dst, tag)
		}
	}
	rec, err = appendJSONEvent(dst, t, js)
	return rec, stream, err
}

// AppendAttrsEvent is like [AppendJSONEvent], but the fields of the record are attrs. Groups and
// other values are encoded as by the encoder that [NewEncoder] returns.
func AppendAttrsEvent(dst []byte, tag string, t time.Time, attrs []slog.Attr) (rec []byte, stream uint32, err error) {
	s := bare
	if tag != "" {
		if err := checkTag(tag); err != nil {
			return dst, 0, err
		}
		tagged := *bare
		tagged.setTag(tag, streamOf(tag))
		s = &tagged
	}
	dst, m, err := s.append(dst, t, nil, attrs)
	return dst, m.Stream, err
}

// bare is a scope without built-in fields.
var bare = func() *scope {
	e, _ := NewEncoder(&EncoderOptions{LevelKey: omitted, MessageKey: omitted, SourceKey: omitted}) // no error, because the options are valid
	return e.(*encoder).root
}()

// appendJSONEvent appends an entry without a tag.
func appendJSONEvent(dst []byte, t time.Time, js []byte) ([]byte, error) {
	if err := checkTime(t); err != nil {
		return dst, fmt.Errorf("fluent: cannot encode event: %w", err)
	}
	dst = appendEntryTime(dst, t, false)
	at := len(dst)
	dst, rest, err := msgpack.AppendUniqueFromJSON(dst, js)
	if err != nil {
		return dst, fmt.Errorf("fluent: cannot encode event: %w", err)
	}
	if strings.TrimSpace(string(rest)) != "" {
		return dst, fmt.Errorf("fluent: cannot encode event: there is more than one JSON value")
	}
	if !msgpack.IsMap(dst[at]) {
		return dst, fmt.Errorf("fluent: cannot encode event: a record must be a JSON object")
	}
	if brackets(js) > maxLevels && msgpack.Nested(dst[at:], maxLevels+1) > maxLevels {
		dst = flatten(dst, at)
	}
	return dst, nil
}
