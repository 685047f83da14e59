package loki

import (
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// logfmt is the form of lines of Config.Body "logfmt": encode.Logfmt with the values of
// labels and metadata, and with unique keys: a duplicate gets a "_".
type logfmt struct {
	encode.Encoder
	keys
	options encode.Options
	values  *values.Values
	root    *logfmtScope
	levels  [len(levelNames)]string // beginning of a line of each level; empty without LevelNames
}

func newLogfmt(k keys, levelKey, errors string, levels *[len(levelNames)]string, values *values.Values) *logfmt {
	l := &logfmt{keys: k, values: values}
	root := &logfmtScope{l: l}
	messageKey := k.message
	root.seen = append(root.seen, hashKey([]byte(jsontext.LogfmtKey(messageKey))))
	if levelKey == "" {
		levelKey = "-"
	} else {
		for jsontext.LogfmtKey(levelKey) == jsontext.LogfmtKey(messageKey) {
			levelKey = k.another(levelKey)
		}
		root.seen = append(root.seen, hashKey([]byte(jsontext.LogfmtKey(levelKey))))
		if *levels != levelNames {
			for i, name := range levels {
				l.levels[i] = string(jsontext.AppendText([]byte(jsontext.LogfmtKey(levelKey)+"="), name)) + " "
			}
			levelKey = "-"
		}
	}
	l.options = encode.Options{TimeKey: "-", LevelKey: levelKey, MessageKey: messageKey, Level: "lower", Errors: errors}
	l.root = root
	l.setDurations("")
	return l
}

// setDurations makes the encoder of lines with a format of durations.
func (l *logfmt) setDurations(form string) {
	l.options.Duration = form
	l.Encoder = encode.Logfmt(&l.options)
	l.root.Scope = l.Encoder.Scope()
}

func (l *logfmt) Scope() encode.Scope { return l.root }

// logfmtScope is a logfmt under attributes and groups.
type logfmtScope struct {
	encode.Scope
	l      *logfmt
	prefix string
	seen   []uint64 // hashes of the keys
}

func (s *logfmtScope) WithGroup(name string) encode.Scope {
	if name == "" {
		return s
	}
	n := *s
	n.Scope = s.Scope.WithGroup(name)
	n.prefix += jsontext.LogfmtKey(name) + "."
	return &n
}

func (s *logfmtScope) WithAttrs(attrs []slog.Attr) encode.Scope {
	w := logfmtWalker{s: s, seen: slices.Clip(s.seen), key: []byte(s.prefix)}
	attrs = w.settle(attrs, 0)
	n := *s
	n.Scope, n.seen = s.Scope.WithAttrs(attrs), slices.Clip(w.seen)
	return &n
}

func (s *logfmtScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	w := logfmtWalkers.Get().(*logfmtWalker)
	w.s, w.rec = s, r
	w.seen = append(w.seen[:0], s.seen...)
	w.key = append(w.key[:0], s.prefix...)
	attrs := r.Attrs
	r.Attrs = w.settle(attrs, 0)
	dst, m, err := s.Scope.Append(append(dst, s.l.levels[values.LevelIndex(r.Level)]...), r)
	r.Attrs = attrs
	w.s, w.rec, w.spent = nil, nil, 0
	if cap(w.seen)+cap(w.key) < 4096 {
		logfmtWalkers.Put(w)
	}
	return dst, m, err
}

var logfmtWalkers = sync.Pool{New: func() any { return new(logfmtWalker) }}

// A logfmtWalker prepares attributes for a line.
type logfmtWalker struct {
	s     *logfmtScope
	rec   *encode.Record
	seen  []uint64
	key   []byte // the prefix, followed by the current key
	spent int
}

// settle returns attrs, or a copy if anything changes.
func (w *logfmtWalker) settle(attrs []slog.Attr, depth int) []slog.Attr {
	var own []slog.Attr
	for i := range attrs {
		a := attrs[i]
		changed := false
		if a.Value.Kind() == slog.KindLogValuer {
			if w.spent++; w.spent > maxExpansions {
				a.Value = slog.StringValue(tooMany)
			}
			a.Value, changed = a.Value.Resolve(), true
		}
		if a.Value.Kind() == slog.KindAny && depth < maxDepth {
			a.Value, changed = w.group(a.Value, changed)
		}
		switch a.Value.Kind() {
		case slog.KindGroup:
			in := a.Value.Group()
			if depth >= maxDepth || len(in) == 0 {
				break
			}
			before := len(w.key)
			if a.Key != "" {
				w.key = append(append(w.key, jsontext.LogfmtKey(a.Key)...), '.')
			}
			out := w.settle(in, depth+1)
			w.key = w.key[:before]
			if &out[0] != &in[0] {
				a.Value, changed = slog.GroupValue(out...), true
			}
		default:
			if a.Equal(slog.Attr{}) {
				break
			}
			var details []string
			if a.Value.Kind() == slog.KindAny {
				if _, ok := a.Value.Any().(error); ok {
					details = w.s.l.details
				}
			}
			if name := w.unique(a.Key, details); name != a.Key {
				a.Key, changed = name, true
			}
			if a.Value.Kind() == slog.KindAny && !alike(a.Value.Any()) {
				a.Value, changed = slog.StringValue(string(w.s.l.values.AppendText(nil, cacheOf(w.rec), a.Value))), true
			}
		}
		if changed && own == nil {
			own = append(make([]slog.Attr, 0, len(attrs)), attrs[:i]...)
		}
		if own != nil {
			own = append(own, a)
		}
	}
	if own != nil {
		return own
	}
	return attrs
}

// group returns an AttrAppender as a group, and any other value unchanged.
func (w *logfmtWalker) group(v slog.Value, changed bool) (slog.Value, bool) {
	o, ok := v.Any().(encode.AttrAppender)
	if !ok {
		return v, changed
	}
	if w.spent++; w.spent > maxExpansions {
		return slog.StringValue(tooMany), true
	}
	attrs, ok := collect(o)
	if !ok {
		return v, changed // package encode writes the panic
	}
	defer putAttrs(attrs)
	return slog.GroupValue(slices.Clone(*attrs)...), true
}

// unique adds a key, and the additional keys of an error, and returns its unique name.
func (w *logfmtWalker) unique(key string, details []string) string {
	before := len(w.seen)
	for !w.note(key, "") || slices.ContainsFunc(details, func(suffix string) bool { return !w.note(key, suffix) }) {
		key, w.seen = w.s.l.another(key), w.seen[:before]
	}
	return key
}

// note adds a key and reports whether it is new.
func (w *logfmtWalker) note(key, suffix string) bool {
	before := len(w.key)
	w.key = append(append(w.key, jsontext.LogfmtKey(key)...), suffix...)
	h := hashKey(w.key)
	w.key = w.key[:before]
	if slices.Contains(w.seen, h) {
		return false
	}
	w.seen = append(w.seen, h)
	return true
}

var keySeed = maphash.MakeSeed()

func hashKey(key []byte) uint64 { return maphash.Bytes(keySeed, key) }

// alike reports whether encode.Logfmt encodes v itself: as JSON text, or with several keys.
func alike(v any) bool {
	switch v.(type) {
	case error, encode.AttrAppender, []string, []int, []int64, []bool, []float64, []time.Duration, []time.Time:
		return true
	}
	return false
}
