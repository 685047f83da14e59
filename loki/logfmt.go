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

// logfmt encodes lines for Line.Body "logfmt". The form is that of encode.Logfmt with two
// differences: values are written as in labels and metadata, and keys are unique, because a
// duplicate key gets a "_". A logfmt implements [encode.Encoder].
type logfmt struct {
	encode.Encoder
	keys
	options encode.Options
	values  *values.Values
	root    *logfmtScope
	levels  [len(levelNames)]string // beginning of a line of each level; all empty without LevelNames
}

// newLogfmt returns the encoder of logfmt lines. levelKey is the key of the level, or "" if the
// level is a label. A levelKey that equals the key of the message gets a "_". errors is
// Line.Errors.
func newLogfmt(k keys, levelKey, errors string, levels *[len(levelNames)]string, values *values.Values) *logfmt {
	l := &logfmt{keys: k, values: values}
	root := &logfmtScope{l: l}
	messageKey := k.message
	root.seen = append(root.seen, hashKey([]byte(jsontext.LogfmtKey(messageKey))))
	if levelKey == "" {
		levelKey = "-"
	} else {
		for jsontext.LogfmtKey(levelKey) == jsontext.LogfmtKey(messageKey) {
			levelKey = k.alternative(levelKey)
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

// setDurations replaces the inner encoder by one with the given format of durations; see
// forebay.Durations. It must be called before the first record is encoded.
func (l *logfmt) setDurations(form string) {
	l.options.Duration = form
	l.Encoder = encode.Logfmt(&l.options)
	l.root.Scope = l.Encoder.Scope()
}

// Scope returns the scope without attributes and groups.
func (l *logfmt) Scope() encode.Scope { return l.root }

// A logfmtScope is a logfmt with the attributes and groups of a logger. It is immutable, so
// goroutines may share it.
type logfmtScope struct {
	encode.Scope
	l      *logfmt
	prefix string   // names of the open groups, each with a dot
	seen   []uint64 // hashes of the keys written so far, each with its groups
}

// WithGroup returns the scope within a group. It implements [encode.Scope].
func (s *logfmtScope) WithGroup(name string) encode.Scope {
	if name == "" {
		return s
	}
	n := *s
	n.Scope = s.Scope.WithGroup(name)
	n.prefix += jsontext.LogfmtKey(name) + "."
	return &n
}

// WithAttrs returns the scope with attributes, which are evaluated immediately. It implements
// [encode.Scope].
func (s *logfmtScope) WithAttrs(attrs []slog.Attr) encode.Scope {
	w := logfmtWalker{s: s, seen: slices.Clip(s.seen), key: []byte(s.prefix)}
	attrs = w.prepare(attrs, 0)
	n := *s
	n.Scope, n.seen = s.Scope.WithAttrs(attrs), slices.Clip(w.seen)
	return &n
}

// Append appends the line of r. It implements [encode.Scope]. While it runs, r.Attrs has the
// prepared attributes.
func (s *logfmtScope) Append(dst []byte, r *encode.Record) ([]byte, batch.Meta, error) {
	w := logfmtWalkers.Get().(*logfmtWalker)
	w.s, w.rec = s, r
	w.seen = append(w.seen[:0], s.seen...)
	w.key = append(w.key[:0], s.prefix...)
	attrs := r.Attrs
	r.Attrs = w.prepare(attrs, 0)
	dst, m, err := s.Scope.Append(append(dst, s.l.levels[values.LevelIndex(r.Level)]...), r)
	r.Attrs = attrs
	w.s, w.rec, w.expansions = nil, nil, 0
	if cap(w.seen)+cap(w.key) < 4096 {
		logfmtWalkers.Put(w)
	}
	return dst, m, err
}

// logfmtWalkers holds walkers with their memory, so that Append does not allocate.
var logfmtWalkers = sync.Pool{New: func() any { return new(logfmtWalker) }}

// A logfmtWalker prepares attributes for encode.Logfmt, which does not check for duplicate keys.
// One goroutine uses it for one record, or for the attributes of one scope.
type logfmtWalker struct {
	s          *logfmtScope
	rec        *encode.Record // nil for the attributes of a scope
	seen       []uint64       // hashes of the keys of the line
	key        []byte         // names of the open groups, followed by the current key
	expansions int            // number of groups created so far, see maxExpansions
}

// prepare returns attrs with unique keys, evaluated LogValuers, and values in the form of labels.
// It returns attrs itself if nothing changes, otherwise a copy. depth is the number of enclosing
// groups.
func (w *logfmtWalker) prepare(attrs []slog.Attr, depth int) []slog.Attr {
	var own []slog.Attr
	for i := range attrs {
		a := attrs[i]
		changed := false
		if a.Value.Kind() == slog.KindLogValuer {
			if w.expansions++; w.expansions > maxExpansions {
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
			out := w.prepare(in, depth+1)
			w.key = w.key[:before]
			// prepare returns the slice itself if nothing changed.
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
			if a.Value.Kind() == slog.KindAny && !writtenByEncode(a.Value.Any()) {
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

// group returns an AttrAppender as a group, and any other value unchanged. changed is returned for
// a value that is unchanged.
func (w *logfmtWalker) group(v slog.Value, changed bool) (slog.Value, bool) {
	o, ok := v.Any().(encode.AttrAppender)
	if !ok {
		return v, changed
	}
	if w.expansions++; w.expansions > maxExpansions {
		return slog.StringValue(tooMany), true
	}
	scratch := &cacheOf(w.rec).Scratch
	attrs, mark, fault := scratch.Collect(o)
	if fault != "" {
		return slog.StringValue(fault), true
	}
	defer scratch.Release(mark)
	return slog.GroupValue(slices.Clone(attrs)...), true
}

// unique stores a key of the line and, for an error, its additional keys with the suffixes details.
// It returns the key, or the first alternative for which all of them are new.
func (w *logfmtWalker) unique(key string, details []string) string {
	before := len(w.seen)
	for !w.addKey(key, "") || slices.ContainsFunc(details, func(suffix string) bool { return !w.addKey(key, suffix) }) {
		key, w.seen = w.s.l.alternative(key), w.seen[:before]
	}
	return key
}

// addKey stores a key with a suffix and its groups. It returns false if the line has that key
// already.
func (w *logfmtWalker) addKey(key, suffix string) bool {
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

// keySeed is the seed of hashKey.
var keySeed = maphash.MakeSeed()

// hashKey returns the hash of a key. Two keys with equal hashes count as duplicates. In that rare
// case, one of them gets an unnecessary "_".
func hashKey(key []byte) uint64 { return maphash.Bytes(keySeed, key) }

// writtenByEncode reports whether encode.Logfmt must encode v: as JSON text, or with several keys.
func writtenByEncode(v any) bool {
	switch v.(type) {
	case error, encode.AttrAppender, []string, []int, []int64, []bool, []float64, []time.Duration, []time.Time:
		return true
	}
	return false
}
