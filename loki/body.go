package loki

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// Limits of one record, with the values of package encode. They exist because a LogValuer can return
// groups without end.
const (
	maxDepth      = 100     // nested groups
	maxExpansions = 1 << 16 // groups created by LogValuers and AttrAppenders
)

// The values that replace a group beyond the limits.
const (
	tooDeep = "!ERROR: groups nested too deeply"
	tooMany = "!ERROR: too many groups made by LogValuers"
)

// A body is the default form of a line: a JSON object of the message, the level if it is no label, and
// the attributes in their order. The keys of an object are unique: a duplicate key gets a "_".
type body struct {
	keys
	levelKey  string                 // key of the level; "" if the level is not in the line
	levelHead texts                  // the key and the beginning of the value: "level":"
	levels    [len(levelNames)]texts // names of the levels
	values    *values.Values
	root      *bodyScope
}

// keys are the rules for the keys of lines, from Config.Line.
type keys struct {
	message  string   // key of the message
	details  []string // suffixes of the additional keys of an error
	prefixed bool     // the "_" of a duplicate key precedes the key
}

// alternative returns the key for an attribute whose key is taken: key with a "_".
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

// newBody returns the body form of lines. levelKey is "" if the level is a label.
func newBody(k keys, levelKey string, levels *[len(levelNames)]string, v *values.Values) *body {
	b := &body{keys: k, levelKey: levelKey, values: v}
	messageKey := k.message
	b.root = &bodyScope{b: b, lead: bothForms(append(jsontext.AppendKey([]byte{'{'}, messageKey), '"'))}
	b.root.used.add(readKey(messageKey))
	for i, name := range levels {
		b.levels[i] = bothForms(jsontext.AppendEscaped(nil, name))
	}
	if levelKey != "" {
		levelKey = b.root.unique(readKey(levelKey))
		b.root.used.add(levelKey)
		b.levelHead = bothForms(append(jsontext.AppendKey([]byte{'{'}, levelKey)[1:], '"'))
	}
	b.root.finish()
	return b
}

// texts is a text in two forms: as part of a line, and escaped for a line within a JSON string.
type texts [2]string

// Indexes of texts.
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

// Scope returns the scope without attributes and groups.
func (b *body) Scope() encode.Scope { return b.root }
func (b *body) Codec() batch.Codec  { return jsonCodec }
func (b *body) NeedsPC() bool       { return false }

// A bodyScope is a body with attributes and open groups. It is immutable.
type bodyScope struct {
	b      *body
	lead   texts    // beginning of the line: {"msg":"
	pre    texts    // encoded attributes of the scope, each with a leading comma
	groups []string // names of the open groups in the line
	opened int      // number of groups that pre opens
	used   keySet   // keys of the innermost object
	lazy   texts    // opens the groups that pre does not open, for a record with attributes
	tail   string   // closes the groups that pre opens, and the object
	full   string   // closes all groups, and the object
}

// A keySet is the set of keys of one object, to find duplicates. mask has a bit for each key, so that
// most lookups need no comparison.
type keySet struct {
	mask uint64
	keys []string
}

// keyBit returns the bit of key in a mask. Different keys may have the same bit.
func keyBit(key string) uint64 {
	n := len(key)
	if n == 0 {
		return 1
	}
	return 1 << ((uint(n)*7 + uint(key[0])*31 + uint(key[n-1])) & 63)
}

// readKey returns key as a reader of the line decodes it: with U+FFFD for invalid bytes.
func readKey(key string) string {
	if utf8.ValidString(key) {
		return key
	}
	return string([]rune(key))
}

// add adds key. It copies the list of keys, which other scopes may share.
func (l *keySet) add(key string) {
	l.mask |= keyBit(key)
	l.keys = append(l.keys[:len(l.keys):len(l.keys)], key)
}

// has reports whether key was added.
func (l *keySet) has(key string) bool {
	if l.mask&keyBit(key) == 0 {
		return false
	}
	for _, k := range l.keys {
		if k == key {
			return true
		}
	}
	return false
}

// unique returns the unique name of key in the innermost object.
func (s *bodyScope) unique(key string) string {
	for s.used.has(key) {
		key = s.b.alternative(key)
	}
	return key
}

// finish sets the fields that depend on groups and opened.
func (s *bodyScope) finish() {
	var lazy []byte
	for _, g := range s.groups[s.opened:] {
		lazy = append(append(lazy, jsontext.AppendKey([]byte{'{'}, g)[1:]...), '{')
	}
	s.lazy = bothForms(lazy)
	s.tail, s.full = strings.Repeat("}", s.opened+1), strings.Repeat("}", len(s.groups)+1)
}

// WithGroup implements [encode.Scope]. The group is opened by the first attribute in it, because an
// empty group is omitted.
func (s *bodyScope) WithGroup(name string) encode.Scope {
	if name == "" {
		return s
	}
	n := *s
	n.groups = append(s.groups[:len(s.groups):len(s.groups)], s.unique(readKey(name)))
	n.used = keySet{}
	n.finish()
	return &n
}

// WithAttrs implements [encode.Scope]. The attributes are encoded now, in both forms.
func (s *bodyScope) WithAttrs(attrs []slog.Attr) encode.Scope {
	if len(attrs) == 0 {
		return s
	}
	w := bodyWalker{values: s.b.values, scope: s}
	pre := append(make([]byte, 0, len(s.pre[bare])+len(s.lazy[bare])+64*len(attrs)+1), '{') // a '{' at the end of dst suppresses the comma before the first key
	pre = append(pre, s.pre[bare]...)
	if s.lazy[bare] != "" {
		pre = append(pre, ',')
		pre = append(pre, s.lazy[bare]...)
	}
	start := len(pre)
	w.mask = s.used.mask
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
	n.used.keys = s.used.keys[:len(s.used.keys):len(s.used.keys)]
	for _, k := range w.keys {
		n.used.add(k)
	}
	if w.names != nil {
		w.free()
	}
	n.finish()
	return &n
}

// Append appends the line of r. It implements [encode.Scope] and never fails.
func (s *bodyScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	return s.append(dst, r, bare), batch.Meta{}, nil
}

// append appends the line of r in the form bare or nested.
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
	w := bodyWalker{values: s.b.values, scope: s, rec: r, mask: s.used.mask, nested: form == nested}
	dst = w.object(dst, r.Attrs)
	if w.names != nil {
		w.free()
	}
	if len(dst) == inside {
		return append(dst[:start], s.tail...)
	}
	return append(dst, s.full...)
}

// keyPool holds the memory for the keys of bodyWalkers.
var keyPool = sync.Pool{New: func() any { s := make([]string, 0, 16); return &s }}

// A bodyWalker writes the attributes of one record or of one With. It is allocated on the stack of its
// creator, which calls free if names is set.
type bodyWalker struct {
	values     *values.Values
	scope      *bodyScope
	rec        *encode.Record // nil for attributes of a With
	nested     bool           // the line is within a JSON string
	names      *[]string      // pooled memory of keys; nil until a key is remembered
	keys       []string       // keys of the open objects, outermost first
	from       int            // index of the first key of the innermost object
	mask       uint64         // keyBit of each key of the innermost object
	depth      int            // number of open groups of the record
	expansions int            // number of groups created so far, see maxExpansions
}

// free returns the memory of the keys to the pool.
func (w *bodyWalker) free() {
	if cap(w.keys) <= 1024 {
		clear(w.keys[:cap(w.keys)])
		*w.names = w.keys[:0]
		keyPool.Put(w.names)
	}
	w.names, w.keys = nil, nil
}

// object writes the remaining attributes of the innermost object. If their keys are certainly unique,
// which is usual, no key is remembered.
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

// allUnique reports whether every attribute has a key that is not taken and cannot be an additional key
// of an error.
func (w *bodyWalker) allUnique(attrs []slog.Attr) bool {
	k, mask := &w.scope.b.keys, w.mask
	if w.depth == 0 && len(k.details) > 0 && slices.ContainsFunc(w.scope.used.keys, k.isDetail) {
		return false
	}
	for i := range attrs {
		key := attrs[i].Key
		if key == "" || !utf8.ValidString(key) || k.isDetail(key) {
			return false
		}
		bit := keyBit(key)
		if mask&bit != 0 {
			if w.taken(key) {
				return false
			}
			for k := range attrs[:i] {
				if attrs[k].Key == key {
					return false
				}
			}
		}
		mask |= bit
	}
	return true
}

// attrs writes attributes whose keys may be duplicates.
func (w *bodyWalker) attrs(dst []byte, attrs []slog.Attr) []byte {
	for i := range attrs {
		dst = w.attr(dst, &attrs[i], false)
	}
	return dst
}

// attr writes one attribute. unique reports that its key is certainly unique.
func (w *bodyWalker) attr(dst []byte, a *slog.Attr, unique bool) []byte {
	switch a.Value.Kind() {
	case slog.KindAny:
		v := a.Value.Any()
		if v == nil && a.Key == "" {
			return dst
		}
		if o, ok := v.(encode.AttrAppender); ok {
			return w.appender(dst, a.Key, o)
		}
		if err, ok := v.(error); ok {
			start := len(dst)
			return w.escapeNested(w.values.AppendError(dst, cacheOf(w.rec), w.errorKey(unique, a.Key), err), start)
		}
	case slog.KindLogValuer:
		b := slog.Attr{Key: a.Key, Value: a.Value.Resolve()}
		if b.Value.Kind() == slog.KindGroup {
			return w.group(dst, b.Key, b.Value.Group(), true)
		}
		return w.attr(dst, &b, unique)
	case slog.KindGroup:
		return w.group(dst, a.Key, a.Value.Group(), false)
	}
	return w.member(dst, w.ensureUnique(unique, a.Key), a.Value)
}

// member writes a value that is neither a group nor an error.
func (w *bodyWalker) member(dst []byte, key string, v slog.Value) []byte {
	start := len(dst)
	return w.escapeNested(w.values.AppendMember(dst, cacheOf(w.rec), key, v), start)
}

// cacheOf returns the cache of r, or nil for the attributes of a With, which have no record.
func cacheOf(r *encode.Record) *values.Cache {
	if r == nil {
		return nil
	}
	return &r.Cache
}

// escapeNested escapes dst[start:] if the line is within a JSON string.
func (w *bodyWalker) escapeNested(dst []byte, start int) []byte {
	if w.nested {
		return jsontext.EscapeTail(dst, start)
	}
	return dst
}

// ensureUnique returns key, or its unique name if key may be taken.
func (w *bodyWalker) ensureUnique(unique bool, key string) string {
	if unique {
		return key
	}
	return w.key(key)
}

// errorKey is ensureUnique for the key of an error. The additional keys of the error are the result with
// a suffix, so none of them may be taken either.
func (w *bodyWalker) errorKey(unique bool, key string) string {
	details := w.scope.b.details
	if unique || len(details) == 0 {
		return w.ensureUnique(unique, key)
	}
	key = readKey(key)
	for w.taken(key) || slices.ContainsFunc(details, func(suffix string) bool { return w.taken(key + suffix) }) {
		key = w.scope.b.alternative(key)
	}
	w.remember(key)
	for _, suffix := range details {
		w.remember(key + suffix)
	}
	return key
}

// key adds key to the innermost object and returns its unique name.
func (w *bodyWalker) key(key string) string {
	key = readKey(key)
	if w.mask&keyBit(key) != 0 {
		for w.taken(key) {
			key = w.scope.b.alternative(key)
		}
	}
	w.remember(key)
	return key
}

// remember adds key to the keys of the innermost object.
func (w *bodyWalker) remember(key string) {
	w.mask |= keyBit(key)
	if w.names == nil {
		w.names = keyPool.Get().(*[]string)
		w.keys = (*w.names)[:0]
	}
	w.keys = append(w.keys, key)
}

// taken reports whether the innermost object has key.
func (w *bodyWalker) taken(key string) bool {
	for _, k := range w.keys[w.from:] {
		if k == key {
			return true
		}
	}
	return w.depth == 0 && w.scope.used.has(key)
}

// group writes a group, or nothing if it is empty. The attributes of a group without a name are members
// of the enclosing object. made reports that a value created the group when it was evaluated; such
// groups are limited, because a LogValuer can return groups without end.
func (w *bodyWalker) group(dst []byte, name string, attrs []slog.Attr, made bool) []byte {
	if len(attrs) == 0 {
		return dst
	}
	if made {
		if w.expansions++; w.expansions > maxExpansions {
			return w.member(dst, w.key(name), slog.StringValue(tooMany))
		}
	}
	if w.depth >= maxDepth {
		return w.member(dst, w.key(name), slog.StringValue(tooDeep))
	}
	if name == "" {
		// depth does not change, because the keys belong to the enclosing object and taken
		// compares them with the keys of the scope at depth 0. The limit of expansions bounds
		// the recursion.
		if w.expansions++; w.expansions > maxExpansions/64 {
			return w.member(dst, w.key("group"), slog.StringValue(tooDeep))
		}
		return w.attrs(dst, attrs)
	}
	start, keys := len(dst), len(w.keys)
	dst = append(w.escapeNested(jsontext.AppendKey(dst, w.key(name)), start), '{')
	inside := len(dst)
	from, mask := w.from, w.mask
	w.from, w.mask = len(w.keys), 0
	w.depth++
	dst = w.object(dst, attrs)
	w.depth--
	clear(w.keys[w.from:])
	w.keys = w.keys[:w.from]
	w.from, w.mask = from, mask
	if len(dst) == inside {
		w.keys = w.keys[:keys] // the name is free again
		return dst[:start]
	}
	return append(dst, '}')
}

// attrPool holds the memory of collect.
var attrPool = sync.Pool{New: func() any { s := make([]slog.Attr, 0, 16); return &s }}

// appender writes an AttrAppender as a group.
func (w *bodyWalker) appender(dst []byte, key string, o encode.AttrAppender) []byte {
	attrs, ok := collect(o)
	if !ok { // AppendAttrs panicked: package values writes the panic as text
		return w.member(dst, w.key(key), slog.AnyValue(o))
	}
	dst = w.group(dst, key, *attrs, true)
	putAttrs(attrs)
	return dst
}

// collect returns the attributes of o in pooled memory, which the caller passes to putAttrs. ok is false
// if AppendAttrs panicked; the memory is then not reused.
func collect(o encode.AttrAppender) (attrs *[]slog.Attr, ok bool) {
	attrs = attrPool.Get().(*[]slog.Attr)
	defer func() { _ = recover() }()
	*attrs = o.AppendAttrs((*attrs)[:0])
	return attrs, true
}

// putAttrs returns attrs to the pool.
func putAttrs(attrs *[]slog.Attr) {
	if cap(*attrs) > 1024 {
		return
	}
	clear(*attrs)
	*attrs = (*attrs)[:0]
	attrPool.Put(attrs)
}
