package loki

import (
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/keyset"
	"github.com/forebay-log/forebay/internal/values"
)

// A body encodes lines as JSON objects, the default of Config.Line. An object contains the message,
// the level if it is not a label, and the attributes in their order. The keys of an object are
// unique: "_" is added to a duplicate key. A body implements [encode.Encoder].
type body struct {
	keys
	levelKey  string                 // key of the level; "" if the level is not in the line
	levelHead texts                  // the key and the beginning of the value: "level":"
	levels    [len(levelNames)]texts // names of the levels
	values    *values.Values
	root      *bodyScope
}

// The type keys contains the rules for the keys of lines, from Config.Line.
type keys struct {
	message  string   // key of the message
	details  []string // suffixes of the additional keys of an error
	prefixed bool     // the "_" of a duplicate key precedes the key
}

// alternative returns the key to try next if key is already used in the object: key with a "_"
// before or after it.
func (k *keys) alternative(key string) string {
	if k.prefixed {
		return "_" + key
	}
	return key + "_"
}

// isDetail reports whether key can be an additional key of an error, such as the key of its stack.
func (k *keys) isDetail(key string) bool {
	for _, suffix := range k.details {
		if strings.HasSuffix(key, suffix) {
			return true
		}
	}
	return false
}

// newBody returns the encoder of JSON lines. levelKey is the key of the level, or "" if the level
// is a label. If levelKey equals the key of the message, "_" is added to it.
func newBody(k keys, levelKey string, levels *[len(levelNames)]string, v *values.Values) *body {
	b := &body{keys: k, levelKey: levelKey, values: v}
	messageKey := k.message
	b.root = &bodyScope{b: b, lead: bothForms(append(jsontext.AppendKey([]byte{'{'}, messageKey), '"'))}
	b.root.used = b.root.used.With(readKey(messageKey))
	for i, name := range levels {
		b.levels[i] = bothForms(jsontext.AppendEscaped(nil, name))
	}
	if levelKey != "" {
		levelKey = b.root.unique(readKey(levelKey))
		b.root.used = b.root.used.With(levelKey)
		b.levelHead = bothForms(append(jsontext.AppendKey([]byte{'{'}, levelKey)[1:], '"'))
	}
	b.root.finish()
	return b
}

// The type texts contains a text in two forms. The constants bare and nested are the indexes of the
// forms.
type texts [2]string

const (
	bare   = 0 // the line itself
	nested = 1 // the line within a JSON string
)

// bothForms returns text in both forms.
func bothForms(text []byte) texts {
	return texts{string(text), string(jsontext.EscapeTail(append([]byte(nil), text...), 0))}
}

// jsonCodec is the codec of the lines of a body.
var jsonCodec = encode.JSON(nil).Codec()

// Scope returns the scope without attributes and groups. It implements [encode.Encoder].
func (b *body) Scope() encode.Scope { return b.root }

// Codec returns the codec of JSON lines. It implements [encode.Encoder].
func (b *body) Codec() batch.Codec { return jsonCodec }

// NeedsPC returns false, because lines do not contain the source position of the log call. It
// implements [encode.Encoder].
func (b *body) NeedsPC() bool { return false }

// A bodyScope is a body with the attributes and groups of a logger. It is immutable, so goroutines
// may share it. An empty group is omitted, so a group can only be opened together with its first
// attribute. The field pre opens only the groups in which the scope has attributes. The field lazy
// opens the other groups, if the record has attributes.
type bodyScope struct {
	b      *body
	lead   texts       // beginning of the line: {"msg":"
	pre    texts       // encoded attributes of the scope, each with a leading comma
	groups []string    // names of the open groups in the line
	opened int         // number of groups that pre opens
	used   keyset.Keys // keys of the innermost object
	detail bool        // a key in the field used can be an additional key of an error
	// lazy opens the groups that pre does not open. It is only written if the record has
	// attributes.
	lazy texts
	tail string // closes the groups that pre opens, and the object of the line
	full string // closes all groups, and the object of the line
}

// readKey returns key in the form that a reader of the line gets, with U+FFFD for invalid bytes.
// Keys are compared in this form, because two different invalid keys can be equal for the reader.
func readKey(key string) string {
	if utf8.ValidString(key) {
		return key
	}
	return string([]rune(key))
}

// unique returns key if no member of the innermost object has that key. Otherwise it returns the
// first alternative that no member has.
func (s *bodyScope) unique(key string) string {
	for s.used.Has(key) {
		key = s.b.alternative(key)
	}
	return key
}

// finish computes the fields lazy, tail and full from the fields groups and opened.
func (s *bodyScope) finish() {
	var lazy []byte
	for _, g := range s.groups[s.opened:] {
		lazy = append(append(lazy, jsontext.AppendKey([]byte{'{'}, g)[1:]...), '{')
	}
	s.lazy = bothForms(lazy)
	s.tail, s.full = strings.Repeat("}", s.opened+1), strings.Repeat("}", len(s.groups)+1)
}

// WithGroup implements [encode.Scope]. The group is written together with its first attribute,
// because an empty group is omitted.
func (s *bodyScope) WithGroup(name string) encode.Scope {
	if name == "" {
		return s
	}
	n := *s
	n.groups = append(s.groups[:len(s.groups):len(s.groups)], s.unique(readKey(name)))
	n.used, n.detail = keyset.Keys{}, false
	n.finish()
	return &n
}

// WithAttrs implements [encode.Scope]. It encodes the attributes once, in the forms bare and
// nested, and Append only copies them. It returns s if there is nothing to write, for example
// because all groups are empty.
func (s *bodyScope) WithAttrs(attrs []slog.Attr) encode.Scope {
	if len(attrs) == 0 {
		return s
	}
	w := bodyWalker{values: s.b.values, scope: s, cache: new(values.Cache), detail: s.detail}
	defer w.free()
	// Because dst ends with '{', no comma is written before the first key.
	pre := append(make([]byte, 0, len(s.pre[bare])+len(s.lazy[bare])+64*len(attrs)+1), '{')
	pre = append(pre, s.pre[bare]...)
	if s.lazy[bare] != "" {
		pre = append(pre, ',')
		pre = append(pre, s.lazy[bare]...)
	}
	start := len(pre)
	pre = w.attrs(pre, attrs)
	if len(pre) == start {
		return s
	}
	n := *s
	if pre = pre[1:]; pre[0] != ',' {
		pre = append([]byte{','}, pre...)
	}
	n.pre = bothForms(pre)
	n.opened = len(s.groups)
	n.used, n.detail = s.used.Clone(), w.detail
	w.names().AppendTo(&n.used)
	n.finish()
	return &n
}

// Append appends the line of r. It implements [encode.Scope] and never fails.
func (s *bodyScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	return s.append(dst, r, bare), batch.Meta{}, nil
}

// append appends the line of r in the given form, bare or nested: the message, the level, the
// attributes of the scope and the attributes of r. If no attribute of r is written, the groups of
// s.lazy are omitted.
func (s *bodyScope) append(dst []byte, r *encode.Record, form int) []byte {
	dst = append(dst, s.lead[form]...)
	if form == bare {
		dst = append(jsontext.AppendEscaped(dst, r.Message), '"')
	} else {
		dst = append(jsontext.AppendEscapedNested(dst, r.Message), '\\', '"')
	}
	if s.b.levelKey != "" {
		dst = append(dst, ',')
		dst = append(dst, s.b.levelHead[form]...)
		dst = append(dst, s.b.levels[values.LevelIndex(r.Level)][form]...)
		if form == nested {
			dst = append(dst, '\\')
		}
		dst = append(dst, '"')
	}
	dst = append(dst, s.pre[form]...)
	if len(r.Attrs) == 0 {
		return append(dst, s.tail...)
	}
	start := len(dst)
	if s.lazy[form] != "" {
		dst = append(dst, ',')
		dst = append(dst, s.lazy[form]...)
	}
	inside := len(dst)
	w := bodyWalker{values: s.b.values, scope: s, cache: &r.Cache, nested: form == nested}
	dst = w.object(dst, r.Attrs)
	w.free()
	if len(dst) == inside {
		return append(dst[:start], s.tail...)
	}
	return append(dst, s.full...)
}

// A bodyWalker writes the attributes of one record, or of one call of WithAttrs. It is used by one
// goroutine and allocated on its stack. The creator calls free.
type bodyWalker struct {
	values     *values.Values
	scope      *bodyScope
	cache      *values.Cache
	nested     bool        // the line is part of a JSON string
	keys       *keyset.Set // keys of the open objects; nil until names is called
	detail     bool        // a key of the outermost object can be an additional key of an error
	depth      int         // number of open groups that belong to the record
	expansions int         // number of groups created so far, see values.MaxExpansions
}

// names returns the keys of the open objects. The first call adds the keys of the scope. Keys that
// are certainly unique are not added.
func (w *bodyWalker) names() *keyset.Set {
	if w.keys == nil {
		w.keys = keyset.Get()
		w.keys.Open(&w.scope.used)
	}
	for w.keys.Depth() <= w.depth {
		w.keys.Open(nil)
	}
	return w.keys
}

// free returns the set of keys to its pool.
func (w *bodyWalker) free() {
	if w.keys != nil {
		w.keys.Free()
	}
}

// object writes attributes of the innermost object. Usually none of their keys can be a duplicate.
// In this case object does not store the keys.
func (w *bodyWalker) object(dst []byte, attrs []slog.Attr) []byte {
	if !w.allUnique(attrs) {
		return w.attrs(dst, attrs)
	}
	for {
		var n int
		dst, n = w.values.AppendMembers(dst, attrs, w.nested)
		if attrs = attrs[n:]; len(attrs) == 0 {
			return dst
		}
		dst = w.attr(dst, &attrs[0], true)
		attrs = attrs[1:]
	}
}

// allUnique reports whether every attribute has a key that is not used in the innermost object and
// cannot be an additional key of an error.
func (w *bodyWalker) allUnique(attrs []slog.Attr) bool {
	used := &noKeys
	if w.depth == 0 {
		if w.scope.detail {
			return false
		}
		used = &w.scope.used
	}
	return used.Distinct(attrs) && !slices.ContainsFunc(attrs, func(a slog.Attr) bool { return w.scope.b.isDetail(a.Key) })
}

// noKeys is the set of keys of an object without members.
var noKeys keyset.Keys

// attrs writes attributes whose keys may be duplicates.
func (w *bodyWalker) attrs(dst []byte, attrs []slog.Attr) []byte {
	for i := range attrs {
		dst = w.attr(dst, &attrs[i], false)
	}
	return dst
}

// attr writes one attribute. If unique is true, its key is certainly unique.
func (w *bodyWalker) attr(dst []byte, a *slog.Attr, unique bool) []byte {
	switch a.Value.Kind() {
	case slog.KindAny:
		v := a.Value.Any()
		if v == nil && a.Key == "" {
			return dst
		}
		if o, ok := v.(encode.AttrAppender); ok {
			return w.appender(dst, a.Key, o, unique)
		}
		if err, ok := v.(error); ok {
			start := len(dst)
			return w.escapeNested(w.values.AppendError(dst, w.cache, w.errorKey(unique, a.Key), err), start)
		}
	case slog.KindLogValuer:
		b := slog.Attr{Key: a.Key, Value: a.Value.Resolve()}
		if b.Value.Kind() == slog.KindGroup {
			return w.group(dst, b.Key, b.Value.Group(), true, unique)
		}
		return w.attr(dst, &b, unique)
	case slog.KindGroup:
		return w.group(dst, a.Key, a.Value.Group(), false, unique)
	}
	return w.member(dst, w.ensureUnique(unique, a.Key), a.Value)
}

// member writes a value that is neither a group nor an error. The parameter key must already be
// unique.
func (w *bodyWalker) member(dst []byte, key string, v slog.Value) []byte {
	start := len(dst)
	return w.escapeNested(w.values.AppendMember(dst, w.cache, key, v), start)
}

// cacheOf returns the cache of the record r. If r is nil, the attributes belong to a scope, and
// cacheOf returns a new cache.
func cacheOf(r *encode.Record) *values.Cache {
	if r == nil {
		return new(values.Cache)
	}
	return &r.Cache
}

// escapeNested escapes dst[start:] if the line is part of a JSON string.
func (w *bodyWalker) escapeNested(dst []byte, start int) []byte {
	if w.nested {
		return jsontext.EscapeTail(dst, start)
	}
	return dst
}

// ensureUnique returns key if the parameter unique is true. Otherwise it stores key in the
// innermost object and returns a unique name for it.
func (w *bodyWalker) ensureUnique(unique bool, key string) string {
	if unique {
		return key
	}
	return w.key(key)
}

// errorKey returns and stores a unique key for an error, like ensureUnique. An error can have
// additional keys, which consist of its key and a suffix. errorKey selects a key for which the
// additional keys are also unused, and stores them.
func (w *bodyWalker) errorKey(unique bool, key string) string {
	details := w.scope.b.details
	if unique || len(details) == 0 {
		return w.ensureUnique(unique, key)
	}
	key = readKey(key)
	for w.names().Has(key) || slices.ContainsFunc(details, func(suffix string) bool { return w.keys.Has(key + suffix) }) {
		key = w.scope.b.alternative(key)
	}
	w.remember(key)
	for _, suffix := range details {
		w.remember(key + suffix)
	}
	return key
}

// The method key makes the parameter key unique in the innermost object, stores it there and
// returns it.
func (w *bodyWalker) key(key string) string {
	key = readKey(key)
	for w.names().Has(key) {
		key = w.scope.b.alternative(key)
	}
	w.remember(key)
	return key
}

// remember stores key in the innermost object. The caller has called names.
func (w *bodyWalker) remember(key string) {
	w.keys.Add(key)
	w.detail = w.detail || w.depth == 0 && w.scope.b.isDetail(key)
}

// group writes a group, or nothing if it is empty. The attributes of a group without a name become
// members of the enclosing object. The parameter made is true if a LogValuer or AttrAppender
// created the group. The number of such groups is limited, because a LogValuer can return groups
// without end. The parameter unique is true if the name is certainly unique.
func (w *bodyWalker) group(dst []byte, name string, attrs []slog.Attr, made, unique bool) []byte {
	if len(attrs) == 0 {
		return dst
	}
	if made {
		if w.expansions++; w.expansions > values.MaxExpansions {
			return w.member(dst, w.key(name), slog.StringValue(values.TooMany))
		}
	}
	if w.depth >= values.MaxGroups {
		return w.member(dst, w.key(name), slog.StringValue(values.TooDeep))
	}
	if name == "" {
		// The attributes become members of the enclosing object, so depth does not change. Only the
		// limit of expansions bounds the recursion.
		if w.expansions++; w.expansions > values.MaxExpansions/64 {
			return w.member(dst, w.key("group"), slog.StringValue(values.TooDeep))
		}
		return w.attrs(dst, attrs)
	}
	start := len(dst)
	dst = append(w.escapeNested(jsontext.AppendKey(dst, w.ensureUnique(unique, name)), start), '{')
	inside := len(dst)
	w.depth++
	dst = w.object(dst, attrs)
	w.depth--
	if w.keys != nil {
		w.keys.CloseTo(w.depth + 1)
	}
	if len(dst) == inside {
		if !unique {
			w.keys.Drop() // the group is omitted, so a later key may have its name
		}
		return dst[:start]
	}
	return append(dst, '}')
}

// appender writes the attributes of an AttrAppender as a group. If AppendAttrs panics, a
// description of the panic replaces the group.
func (w *bodyWalker) appender(dst []byte, key string, o encode.AttrAppender, unique bool) []byte {
	attrs, mark, fault := w.cache.Scratch.Collect(o)
	if fault != "" {
		return w.member(dst, w.key(key), slog.StringValue(fault))
	}
	dst = w.group(dst, key, attrs, true, unique)
	w.cache.Scratch.Release(mark)
	return dst
}
