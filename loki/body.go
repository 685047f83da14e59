package loki

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
)

// Limits of one record, as in package encode: what a LogValuer returns can hold
// itself.
const (
	maxDepth      = 100
	maxExpansions = 1 << 16
)

const (
	tooDeep = "!ERROR: groups nested too deep"
	tooMany = "!ERROR: too many groups made by LogValuers"
)

// body is the default form of a line: a JSON object of the message, the level if
// no label has it, and the attributes in their order, with errors as objects.
// No key stands twice in one object: the later one gets a "_".
type body struct {
	messageKey string
	levelKey   string // "": left out
	values     *encode.Values
	root       *bodyScope
}

func newBody(messageKey, levelKey string) *body {
	b := &body{
		messageKey: messageKey, levelKey: levelKey,
		values: encode.NewValues(&encode.JSONOptions{Duration: encode.DurationText, Level: encode.LevelLower}),
	}
	b.root = &bodyScope{b: b, lead: string(append(encode.AppendKey([]byte{'{'}, messageKey), '"'))}
	b.root.level.add(messageKey)
	if levelKey != "" {
		b.root.level.add(levelKey)
	}
	b.root.seal()
	return b
}

func (b *body) Scope() encode.Scope { return b.root }
func (b *body) Codec() batch.Codec  { return encode.JSONCodec() }
func (b *body) NeedsPC() bool       { return false }

// bodyScope is the body under attributes and groups.
type bodyScope struct {
	b      *body
	lead   string   // {"Message":"
	pre    []byte   // encoded attributes, each with a comma before it
	groups []string // open groups, by the names they have in the object
	opened int      // how many of them pre opens
	level  level    // keys of the innermost object
	lazy   string   // opens the groups that pre does not
	tail   string   // closes those that pre opens, and the object
	full   string   // closes all
}

// A level is the keys of one object, to find those that stand twice.
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

func (l *level) unique(key string) string {
	for l.has(key) {
		key += "_"
	}
	return key
}

func (s *bodyScope) seal() {
	s.lazy = ""
	for _, g := range s.groups[s.opened:] {
		s.lazy += string(encode.AppendKey([]byte{','}, g)[1:]) + "{"
	}
	s.tail, s.full = strings.Repeat("}", s.opened+1), strings.Repeat("}", len(s.groups)+1)
}

func (s *bodyScope) WithGroup(name string) encode.Scope {
	if name == "" {
		return s
	}
	n := *s
	n.groups = append(s.groups[:len(s.groups):len(s.groups)], s.level.unique(name))
	n.level = level{}
	n.seal()
	return &n
}

func (s *bodyScope) WithAttrs(attrs []slog.Attr) encode.Scope {
	if len(attrs) == 0 {
		return s
	}
	w := bodyWalker{values: s.b.values, scope: s}
	pre := append(make([]byte, 0, len(s.pre)+len(s.lazy)+64*len(attrs)+1), '{') // '{' takes the comma away from the first
	pre = append(pre, s.pre...)
	if s.lazy != "" {
		pre = append(pre, ',')
		pre = append(pre, s.lazy...)
	}
	start := len(pre)
	w.mask = s.level.mask
	pre = w.attrs(pre, attrs)
	if len(pre) == start {
		return s
	}
	n := *s
	n.pre = pre[1:len(pre):len(pre)]
	if n.pre[0] != ',' {
		n.pre = append([]byte{','}, n.pre...)
	}
	n.opened = len(s.groups)
	n.level.keys = s.level.keys[:len(s.level.keys):len(s.level.keys)]
	for _, k := range w.keys {
		n.level.add(k)
	}
	n.seal()
	return &n
}

func (s *bodyScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	dst = append(dst, s.lead...)
	dst = encode.AppendEscaped(dst, r.Message)
	dst = append(dst, '"')
	if s.b.levelKey != "" {
		dst = append(encode.AppendKey(dst, s.b.levelKey), '"')
		dst = append(dst, levelName(r.Level)...)
		dst = append(dst, '"')
	}
	dst = append(dst, s.pre...)
	if len(r.Attrs) == 0 {
		return append(dst, s.tail...), batch.Meta{}, nil
	}
	start := len(dst)
	if s.lazy != "" {
		dst = append(dst, ',')
		dst = append(dst, s.lazy...)
	}
	inside := len(dst)
	w := walkers.Get().(*bodyWalker)
	w.values, w.scope, w.rec, w.mask = s.b.values, s, r, s.level.mask
	dst = w.attrs(dst, r.Attrs)
	w.free()
	if len(dst) == inside {
		return append(dst[:start], s.tail...), batch.Meta{}, nil
	}
	return append(dst, s.full...), batch.Meta{}, nil
}

var walkers = sync.Pool{New: func() any { return &bodyWalker{keys: make([]string, 0, 16)} }}

// A bodyWalker writes the attributes of one record, or of one With.
type bodyWalker struct {
	values *encode.Values
	scope  *bodyScope
	rec    *encode.Record
	keys   []string // of the objects that are open, outermost first
	from   int      // where those of the innermost begin
	mask   uint64   // of the innermost
	depth  int
	spent  int
}

func (w *bodyWalker) free() {
	if cap(w.keys) > 1024 {
		return
	}
	clear(w.keys)
	*w = bodyWalker{keys: w.keys[:0]}
	walkers.Put(w)
}

func (w *bodyWalker) attrs(dst []byte, attrs []slog.Attr) []byte {
	for i := range attrs {
		a := &attrs[i]
		switch a.Value.Kind() {
		case slog.KindAny:
			v := a.Value.Any()
			if v == nil && a.Key == "" {
				continue
			}
			if err, ok := v.(error); ok {
				dst = w.values.AppendError(dst, w.key(a.Key), err)
				continue
			}
			if o, ok := v.(encode.AttrAppender); ok {
				dst = w.object(dst, a.Key, o)
				continue
			}
			dst = w.values.AppendMember(dst, w.rec, w.key(a.Key), a.Value)
		case slog.KindLogValuer:
			b := slog.Attr{Key: a.Key, Value: a.Value.Resolve()}
			if b.Value.Kind() == slog.KindGroup {
				dst = w.group(dst, b.Key, b.Value.Group(), true)
				continue
			}
			one := [1]slog.Attr{b}
			dst = w.attrs(dst, one[:])
		case slog.KindGroup:
			dst = w.group(dst, a.Key, a.Value.Group(), false)
		default:
			dst = w.values.AppendMember(dst, w.rec, w.key(a.Key), a.Value)
		}
	}
	return dst
}

// key notes that key stands in the innermost object and returns what it is to be
// called there.
func (w *bodyWalker) key(key string) string {
	bit := keyBit(key)
	if w.mask&bit != 0 {
		for w.taken(key) {
			key += "_"
		}
		bit = keyBit(key)
	}
	w.mask |= bit
	w.keys = append(w.keys, key)
	return key
}

func (w *bodyWalker) taken(key string) bool {
	for _, k := range w.keys[w.from:] {
		if k == key {
			return true
		}
	}
	return w.depth == 0 && w.scope.level.has(key)
}

// group writes a group, and nothing if there is nothing in it. One without a name
// is no group.
func (w *bodyWalker) group(dst []byte, name string, attrs []slog.Attr, made bool) []byte {
	if len(attrs) == 0 {
		return dst
	}
	if made {
		if w.spent++; w.spent > maxExpansions {
			return w.values.AppendMember(dst, w.rec, w.key(name), slog.StringValue(tooMany))
		}
	}
	if w.depth >= maxDepth {
		return w.values.AppendMember(dst, w.rec, w.key(name), slog.StringValue(tooDeep))
	}
	if name == "" {
		// The keys are those of the object around it, so depth must not hide them
		// from taken: the limit is kept by counting expansions.
		if w.spent++; w.spent > maxExpansions/64 {
			return w.values.AppendMember(dst, w.rec, w.key("group"), slog.StringValue(tooDeep))
		}
		return w.attrs(dst, attrs)
	}
	start := len(dst)
	dst = append(encode.AppendKey(dst, w.key(name)), '{')
	inside := len(dst)
	from, mask := w.from, w.mask
	w.from, w.mask = len(w.keys), 0
	w.depth++
	dst = w.attrs(dst, attrs)
	w.depth--
	clear(w.keys[w.from:])
	w.keys = w.keys[:w.from]
	w.from, w.mask = from, mask
	if len(dst) == inside {
		return dst[:start]
	}
	return append(dst, '}')
}

var attrPool = sync.Pool{New: func() any { s := make([]slog.Attr, 0, 16); return &s }}

// object writes an AttrAppender as a group.
func (w *bodyWalker) object(dst []byte, key string, o encode.AttrAppender) []byte {
	attrs, ok := collect(o)
	if !ok { // it panicked: encode says so
		return w.values.AppendMember(dst, w.rec, w.key(key), slog.AnyValue(o))
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
