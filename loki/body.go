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

// Limits of one record, as in package encode: a LogValuer can return groups without end.
const (
	maxDepth      = 100
	maxExpansions = 1 << 16
)

const (
	tooDeep = "!ERROR: groups nested too deeply"
	tooMany = "!ERROR: too many groups made by LogValuers"
)

// body is the default form of a line: a JSON object of the message, the level if it is no
// label, and the attributes in their order. The keys of an object are unique: a duplicate
// gets a "_".
type body struct {
	keys
	levelKey  string // "": omitted
	levelHead texts  // "level":" without the comma
	levels    [len(levelNames)]texts
	values    *values.Values
	root      *bodyScope
}

// keys are the rules for the keys of lines.
type keys struct {
	message string
	details []string // suffixes of the additional keys of an error
	front   bool     // the "_" of a duplicate key precedes the key
}

// another returns another key for an attribute whose key is taken.
func (k *keys) another(key string) string {
	if k.front {
		return "_" + key
	}
	return key + "_"
}

// isDetail reports whether key can be an additional key of an error.
func (k *keys) isDetail(key string) bool {
	for _, suffix := range k.details {
		if strings.HasSuffix(key, suffix) {
			return true
		}
	}
	return false
}

func newBody(k keys, levelKey string, levels *[len(levelNames)]string, v *values.Values) *body {
	b := &body{keys: k, levelKey: levelKey, values: v}
	messageKey := k.message
	b.root = &bodyScope{b: b, lead: both(append(jsontext.AppendKey([]byte{'{'}, messageKey), '"'))}
	b.root.level.add(readKey(messageKey))
	for i, name := range levels {
		b.levels[i] = both(jsontext.AppendEscaped(nil, name))
	}
	if levelKey != "" {
		levelKey = b.root.unique(readKey(levelKey))
		b.root.level.add(levelKey)
		b.levelHead = both(append(jsontext.AppendKey([]byte{'{'}, levelKey)[1:], '"'))
	}
	b.root.seal()
	return b
}

// texts are a text as part of a line, and escaped for a line within a JSON string.
type texts [2]string

// Indexes of texts.
const (
	bare   = 0
	nested = 1
)

func both(text []byte) texts {
	return texts{string(text), string(jsontext.EscapeTail(append([]byte(nil), text...), 0))}
}

var jsonCodec = encode.JSON(nil).Codec()

func (b *body) Scope() encode.Scope { return b.root }
func (b *body) Codec() batch.Codec  { return jsonCodec }
func (b *body) NeedsPC() bool       { return false }

// bodyScope is the body under attributes and groups.
type bodyScope struct {
	b      *body
	lead   texts    // {"Message":"
	pre    texts    // encoded attributes, each with a leading comma
	groups []string // open groups, by their names in the object
	opened int      // number of groups that pre opens
	level  level    // keys of the innermost object
	lazy   texts    // opens the groups that pre does not open
	tail   string   // closes the groups that pre opens, and the object
	full   string   // closes all groups, and the object
}

// A level is the set of keys of one object, to find duplicates.
type level struct {
	mask uint64
	keys []string
}

func keyBit(key string) uint64 {
	n := len(key)
	if n == 0 {
		return 1
	}
	return 1 << ((uint(n)*7 + uint(key[0])*31 + uint(key[n-1])) & 63)
}

// readKey returns key as a reader of the line decodes it: invalid bytes are U+FFFD.
func readKey(key string) string {
	if utf8.ValidString(key) {
		return key
	}
	return string([]rune(key))
}

func (l *level) add(key string) {
	l.mask |= keyBit(key)
	l.keys = append(l.keys[:len(l.keys):len(l.keys)], key)
}

func (l *level) has(key string) bool {
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
	for s.level.has(key) {
		key = s.b.another(key)
	}
	return key
}

func (s *bodyScope) seal() {
	var lazy []byte
	for _, g := range s.groups[s.opened:] {
		lazy = append(append(lazy, jsontext.AppendKey([]byte{'{'}, g)[1:]...), '{')
	}
	s.lazy = both(lazy)
	s.tail, s.full = strings.Repeat("}", s.opened+1), strings.Repeat("}", len(s.groups)+1)
}

func (s *bodyScope) WithGroup(name string) encode.Scope {
	if name == "" {
		return s
	}
	n := *s
	n.groups = append(s.groups[:len(s.groups):len(s.groups)], s.unique(readKey(name)))
	n.level = level{}
	n.seal()
	return &n
}

func (s *bodyScope) WithAttrs(attrs []slog.Attr) encode.Scope {
	if len(attrs) == 0 {
		return s
	}
	w := bodyWalker{values: s.b.values, scope: s}
	pre := append(make([]byte, 0, len(s.pre[bare])+len(s.lazy[bare])+64*len(attrs)+1), '{') // '{' suppresses the first comma
	pre = append(pre, s.pre[bare]...)
	if s.lazy[bare] != "" {
		pre = append(pre, ',')
		pre = append(pre, s.lazy[bare]...)
	}
	start := len(pre)
	w.mask = s.level.mask
	pre = w.attrs(pre, attrs)
	if len(pre) == start {
		return s
	}
	n := *s
	if pre = pre[1:]; pre[0] != ',' {
		pre = append([]byte{','}, pre...)
	}
	n.pre = both(pre)
	n.opened = len(s.groups)
	n.level.keys = s.level.keys[:len(s.level.keys):len(s.level.keys)]
	for _, k := range w.keys {
		n.level.add(k)
	}
	if w.names != nil {
		w.free()
	}
	n.seal()
	return &n
}

func (s *bodyScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	return s.append(dst, r, bare), batch.Meta{}, nil
}

// append appends the line of r in a form, bare or nested.
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
	w := bodyWalker{values: s.b.values, scope: s, rec: r, mask: s.level.mask, nested: form == nested}
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

// A bodyWalker writes the attributes of one record or of one With. It is allocated on the
// stack of its creator.
type bodyWalker struct {
	values *values.Values
	scope  *bodyScope
	rec    *encode.Record
	nested bool      // the line is within a JSON string
	names  *[]string // pooled memory of keys; nil: none yet
	keys   []string  // of the open objects, outermost first
	from   int       // index of the first key of the innermost object
	mask   uint64    // of the innermost
	depth  int
	spent  int
}

func (w *bodyWalker) free() {
	if cap(w.keys) <= 1024 {
		clear(w.keys[:cap(w.keys)])
		*w.names = w.keys[:0]
		keyPool.Put(w.names)
	}
	w.names, w.keys = nil, nil
}

// object writes the remaining attributes of the innermost object. If their keys are known to
// be unique, no key is remembered.
func (w *bodyWalker) object(dst []byte, attrs []slog.Attr) []byte {
	if !w.unique(attrs) {
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

// unique reports whether every attribute has a key that is not taken and cannot be an
// additional key of an error.
func (w *bodyWalker) unique(attrs []slog.Attr) bool {
	k, mask := &w.scope.b.keys, w.mask
	if w.depth == 0 && len(k.details) > 0 && slices.ContainsFunc(w.scope.level.keys, k.isDetail) {
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

func (w *bodyWalker) attrs(dst []byte, attrs []slog.Attr) []byte {
	for i := range attrs {
		dst = w.attr(dst, &attrs[i], false)
	}
	return dst
}

// attr writes one attribute. alone means that its key is unique.
func (w *bodyWalker) attr(dst []byte, a *slog.Attr, alone bool) []byte {
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
			return w.nest(w.values.AppendError(dst, cacheOf(w.rec), w.errorKey(alone, a.Key), err), start)
		}
	case slog.KindLogValuer:
		b := slog.Attr{Key: a.Key, Value: a.Value.Resolve()}
		if b.Value.Kind() == slog.KindGroup {
			return w.group(dst, b.Key, b.Value.Group(), true)
		}
		return w.attr(dst, &b, alone)
	case slog.KindGroup:
		return w.group(dst, a.Key, a.Value.Group(), false)
	}
	return w.member(dst, w.keyUnless(alone, a.Key), a.Value)
}

// member writes a value that is neither a group nor an error.
func (w *bodyWalker) member(dst []byte, key string, v slog.Value) []byte {
	start := len(dst)
	return w.nest(w.values.AppendMember(dst, cacheOf(w.rec), key, v), start)
}

// cacheOf returns the cache of r, or nil for With, which has no record.
func cacheOf(r *encode.Record) *values.Cache {
	if r == nil {
		return nil
	}
	return &r.Cache
}

// nest escapes dst[start:] if the line is within a string.
func (w *bodyWalker) nest(dst []byte, start int) []byte {
	if w.nested {
		return jsontext.EscapeTail(dst, start)
	}
	return dst
}

func (w *bodyWalker) keyUnless(alone bool, key string) string {
	if alone {
		return key
	}
	return w.key(key)
}

// errorKey is keyUnless for an error. The additional keys of the error begin with the
// result, and none of them is taken.
func (w *bodyWalker) errorKey(alone bool, key string) string {
	details := w.scope.b.details
	if alone || len(details) == 0 {
		return w.keyUnless(alone, key)
	}
	key = readKey(key)
	for w.taken(key) || slices.ContainsFunc(details, func(suffix string) bool { return w.taken(key + suffix) }) {
		key = w.scope.b.another(key)
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
			key = w.scope.b.another(key)
		}
	}
	w.remember(key)
	return key
}

// remember adds key to the innermost object.
func (w *bodyWalker) remember(key string) {
	w.mask |= keyBit(key)
	if w.names == nil {
		w.names = keyPool.Get().(*[]string)
		w.keys = (*w.names)[:0]
	}
	w.keys = append(w.keys, key)
}

func (w *bodyWalker) taken(key string) bool {
	for _, k := range w.keys[w.from:] {
		if k == key {
			return true
		}
	}
	return w.depth == 0 && w.scope.level.has(key)
}

// group writes a group, or nothing if it is empty. The attributes of a group without a name
// are members of the enclosing object.
func (w *bodyWalker) group(dst []byte, name string, attrs []slog.Attr, made bool) []byte {
	if len(attrs) == 0 {
		return dst
	}
	if made {
		if w.spent++; w.spent > maxExpansions {
			return w.member(dst, w.key(name), slog.StringValue(tooMany))
		}
	}
	if w.depth >= maxDepth {
		return w.member(dst, w.key(name), slog.StringValue(tooDeep))
	}
	if name == "" {
		// The keys belong to the enclosing object, so depth must not hide them from
		// taken. Counting expansions enforces the limit.
		if w.spent++; w.spent > maxExpansions/64 {
			return w.member(dst, w.key("group"), slog.StringValue(tooDeep))
		}
		return w.attrs(dst, attrs)
	}
	start, keys := len(dst), len(w.keys)
	dst = append(w.nest(jsontext.AppendKey(dst, w.key(name)), start), '{')
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

var attrPool = sync.Pool{New: func() any { s := make([]slog.Attr, 0, 16); return &s }}

// appender writes an AttrAppender as a group.
func (w *bodyWalker) appender(dst []byte, key string, o encode.AttrAppender) []byte {
	attrs, ok := collect(o)
	if !ok { // it panicked: package values writes the panic
		return w.member(dst, w.key(key), slog.AnyValue(o))
	}
	dst = w.group(dst, key, *attrs, true)
	putAttrs(attrs)
	return dst
}

func collect(o encode.AttrAppender) (attrs *[]slog.Attr, ok bool) {
	attrs = attrPool.Get().(*[]slog.Attr)
	defer func() { _ = recover() }()
	*attrs = o.AppendAttrs((*attrs)[:0])
	return attrs, true
}

func putAttrs(attrs *[]slog.Attr) {
	if cap(*attrs) > 1024 {
		return
	}
	clear(*attrs)
	*attrs = (*attrs)[:0]
	attrPool.Put(attrs)
}
