package fluent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/values"
	"github.com/forebay-log/forebay/slab"
)

const (
	// maxDepth is the maximum nesting depth of values.
	maxDepth = 128
	// maxGroups is the maximum nesting depth of groups, as in package encode.
	maxGroups = 100
	// maxLevels is the maximum nesting depth of maps and lists in a record, including the
	// record. With the enclosing entry it is the limit of Fluent Bit, 31. Deeper ones become
	// text, see flat.
	maxLevels = 30
)

var (
	// ErrValue is wrapped by the error for a value that cannot be encoded: it is or contains
	// a channel, a function or a similar value, or a value whose method returns an error; it
	// is nested too deeply; it contains itself; or it is a map that is modified during the
	// call by a method of one of its values or by another goroutine.
	ErrValue = errors.New("unusable value")

	// ErrTooLarge is wrapped by the error for a record that is too large.
	ErrTooLarge = errors.New("record too large")
)

// A valuer encodes Go values as MessagePack. It is the [values.Emitter] of its Walk and is taken
// from a pool for each record. The fields that every record needs come first, because after a
// pause none of them is in the processor's cache.
type valuer struct {
	dst     []byte
	base    int  // offset of the record in dst
	limit   int  // maximum size of the record in bytes
	walking bool // walk is ready
	deep    bool // there may be more than maxLevels levels
	holds   bool // long strings of the record's own map are held
	times   string

	// unusable is the reason why the first unencodable value cannot be encoded; a text with
	// the reason replaces it. Post returns it as an error; a record of a Router is sent with
	// the text.
	unusable error

	style  *values.Style
	errors *values.Values // writes the details of errors; nil without details

	// The last tag, as stored in the table, and its stream.
	stream uint32
	tag    string

	// Memory of records, see room:
	want, small int // size to borrow, or 0; number of consecutive records that did not need it
	lent        []byte

	// Strings that are not copied to dst, see hold:
	held      []slab.Splice
	heldBytes int
	joined    int // bytes of held strings that were copied to dst later

	walk      values.Walk
	open      []openMap // open maps
	formatted values.Times
	scratch   values.AttrScratch
	level     int // nesting depth of the next value

	unique []byte // memory for a record whose keys are made unique

	// Of a scope:
	replace func(groups []string, a slog.Attr) slog.Attr // ReplaceAttr, or nil
	groups  []string                                     // names of the open groups
	within  int                                          // open groups of the current call
	builtin bool                                         // level, message or source: ReplaceAttr gets no groups

	own [ownScratchBytes]byte
}

// An openMap is a map whose header has no size yet.
type openMap struct {
	at int // offset of the header; -1 if its size is known
	n  int // members so far
}

var valuers = sync.Pool{New: func() any { return new(valuer) }}

// plainStyle is the style of values without options.
var plainStyle = &values.NewValues(values.Style{}).Style

func borrow(limit int, times string) *valuer {
	s := valuers.Get().(*valuer)
	s.base, s.limit, s.level, s.deep, s.times = 0, limit, 0, false, times
	s.errors, s.unusable, s.style = nil, nil, plainStyle
	return s
}

func (s *valuer) free() {
	s.dst = nil
	s.dropHeld()
	s.joined = 0
	if s.walking {
		s.walking, s.open = false, s.open[:0]
	}
	if s.replace != nil {
		s.replace = nil
		clear(s.groups[:cap(s.groups)])
		s.groups = s.groups[:0]
	}
	valuers.Put(s)
}

// begin prepares the walk.
func (s *valuer) begin() {
	if s.walking {
		return
	}
	s.walking = true
	w := &s.walk
	w.Emitter, w.Style, w.Scratch = s, s.style, &s.scratch
	w.Limits = values.Limits{Depth: maxDepth, Forward: true}
	w.Made, w.Nodes = 0, 0
}

// any appends a value of any type.
func (s *valuer) any(dst []byte, v any) ([]byte, error) {
	s.begin()
	s.walk.Reset()
	s.dst, s.walk.Level, s.open = dst, s.level, s.open[:0]
	err := s.walk.Any(v)
	return s.dst, err
}

// value appends a value of slog.
func (s *valuer) value(dst []byte, v slog.Value) ([]byte, error) {
	switch v.Kind() {
	case slog.KindString:
		return msgpack.AppendStr(dst, v.String()), nil
	case slog.KindInt64:
		return msgpack.AppendInt(dst, v.Int64()), nil
	case slog.KindUint64:
		return msgpack.AppendUint(dst, v.Uint64()), nil
	case slog.KindBool:
		return msgpack.AppendBool(dst, v.Bool()), nil
	}
	s.begin()
	s.walk.Reset()
	s.dst, s.walk.Level, s.open = dst, s.level, s.open[:0]
	err := s.walk.Value(v)
	return s.dst, err
}

// record appends v as the map of an event. A value that is not a map becomes one of key, and nil
// becomes an empty map.
func (s *valuer) record(dst []byte, v any, key string) ([]byte, error) {
	at := len(dst)
	s.base = at
	var err error
	switch m := v.(type) {
	case map[string]any:
		dst, err = s.anyMap(dst, m)
	case map[string]string:
		dst, err = s.stringMap(dst, m)
	default:
		s.holds = false
		dst, err = s.any(dst, v)
	}
	if err == nil {
		if s.deep {
			dst = flat(s.whole(dst), at)
		}
		if len(dst)-at+s.heldBytes > s.limit {
			err = s.tooLarge()
		}
	}
	if err != nil {
		return dst, s.explain(err)
	}
	switch c := dst[at]; {
	case msgpack.IsMap(c):
		return dst, nil
	case c == msgpack.CodeNil:
		dst[at] = msgpack.CodeEmptyMap
		return dst, nil
	}
	var head [64]byte
	h := msgpack.AppendStr(msgpack.AppendMapHeader(head[:0], 1), key)
	return slices.Insert(dst, at, h...), nil
}

// event is like record, but returns the error of a value that cannot be encoded.
func (s *valuer) event(dst []byte, v any, key string) ([]byte, error) {
	dst, err := s.record(dst, v, key)
	if err == nil {
		err = s.unusable
	}
	return dst, err
}

// flat rewrites the value at dst[at:], which is a record or will be, so that it has no more than
// maxLevels levels.
func flat(dst []byte, at int) []byte {
	out, _, err := msgpack.AppendShallow(nil, dst[at:], maxLevels)
	if err != nil {
		return dst // not MessagePack, which does not happen for our own encoding
	}
	return append(dst[:at], out...)
}

// passed examines a value encoded by other code, n of whose bytes could begin a list or map.
func (s *valuer) passed(b []byte, n int) {
	if room := maxLevels - s.walk.Level; n > room && !s.deep {
		s.deep = msgpack.Nested(b, room+1) > room
	}
}

// explain returns the error of a walk with the position of the value.
func (s *valuer) explain(err error) error {
	if !errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrValue, err)
	}
	if s.walking {
		if path := s.walk.Path(); path != "" {
			return fmt.Errorf("at %s: %w", path, err)
		}
	}
	return err
}

func (s *valuer) tooLarge() error {
	return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.limit)
}

// anyMap appends the map of a record.
func (s *valuer) anyMap(dst []byte, m map[string]any) ([]byte, error) {
	if m == nil {
		return msgpack.AppendNil(dst), nil
	}
	s.level = 1
	dst, err := msgpack.AppendMap(dst, m, s)
	s.level = 0
	if err == msgpack.ErrChanged {
		err = values.ErrChanged
	}
	return dst, err
}

// AppendPair appends the pairs that msgpack.AppendMap does not encode itself.
func (s *valuer) AppendPair(dst []byte, k string, v any) ([]byte, error) {
	dst = msgpack.AppendStr(dst, k)
	if v, ok := v.(string); ok {
		if s.holds && len(v) >= holdBytes {
			return s.hold(dst, v), nil
		}
		return msgpack.AppendStr(dst, v), nil
	}
	dst, err := s.any(dst, v)
	return dst, s.walk.In(k, err)
}

// stringMap appends the map of a record.
func (s *valuer) stringMap(dst []byte, m map[string]string) ([]byte, error) {
	if m == nil {
		return msgpack.AppendNil(dst), nil
	}
	left := len(m)
	dst = msgpack.AppendMapHeader(dst, left)
	for k, v := range m {
		if left--; left < 0 {
			break
		}
		if s.holds && len(v) >= holdBytes {
			dst = s.hold(msgpack.AppendStr(dst, k), v)
			continue
		}
		dst = msgpack.AppendStrs(dst, k, v)
	}
	if left != 0 {
		return dst, values.ErrChanged
	}
	return dst, nil
}

const (
	// holdBytes is the length from which a string is held.
	holdBytes = 512
	// maxHeld is the number of strings of a record that are held.
	maxHeld = 8
)

// hold appends a string. If possible, it appends only the header and holds the string, which is
// later copied directly into the slab instead of to dst. That is possible for strings of the
// record's top-level map, after which no data is moved or removed.
func (s *valuer) hold(dst []byte, v string) []byte {
	if len(s.held) == maxHeld || !utf8.ValidString(v) {
		return msgpack.AppendStr(dst, v)
	}
	dst = msgpack.AppendStrHeader(dst, len(v))
	s.held = append(s.held, slab.Splice{At: len(dst), Text: v})
	s.heldBytes += len(v)
	return dst
}

// whole returns dst with the held strings inserted.
func (s *valuer) whole(dst []byte) []byte {
	if s.heldBytes == 0 {
		return dst
	}
	all := len(dst) + s.heldBytes
	out, lent := dst, s.lent
	if cap(dst) < all {
		s.lent, _ = scratch.Get(all)
		out = s.lent
	} else {
		lent = nil // keep it
	}
	out = out[:all]
	for _, h := range slices.Backward(s.held) {
		all -= copy(out[all-(len(dst)-h.At):], dst[h.At:])
		all -= copy(out[all-len(h.Text):], h.Text)
		dst = dst[:h.At]
	}
	copy(out, dst)
	if lent != nil {
		scratch.Put(lent)
	}
	s.joined = s.heldBytes
	s.dropHeld()
	return out
}

// dropHeld drops the held strings and disables holding.
func (s *valuer) dropHeld() {
	s.holds = false
	if s.heldBytes > 0 {
		clear(s.held)
		s.held, s.heldBytes = s.held[:0], 0
	}
}

// The methods below make a valuer a [values.Emitter].

func (s *valuer) Null() { s.dst = msgpack.AppendNil(s.dst) }

func (s *valuer) Bool(v bool) { s.dst = msgpack.AppendBool(s.dst, v) }

func (s *valuer) Int(v int64) { s.dst = msgpack.AppendInt(s.dst, v) }

func (s *valuer) Uint(v uint64) { s.dst = msgpack.AppendUint(s.dst, v) }

func (s *valuer) Float(v float64, bits int) {
	switch {
	case v-v != 0:
		s.dst = msgpack.AppendStr(s.dst, msgpack.FloatText(v))
	case bits == 32:
		s.dst = msgpack.AppendFloat32(s.dst, float32(v))
	default:
		s.dst = msgpack.AppendFloat64(s.dst, v)
	}
}

func (s *valuer) Text(v string) { s.dst = msgpack.AppendStr(s.dst, v) }

func (s *valuer) Bytes(v []byte) { s.dst = msgpack.AppendBin(s.dst, v) }

func (s *valuer) Time(t time.Time) {
	if s.times == timeEvent && s.walk.Level == 1 && holdsTime(t) {
		s.dst = appendEventTime(s.dst, t)
		return
	}
	at := len(s.dst)
	s.dst = s.style.Time.Append(append(s.dst, 0), t, &s.formatted, values.OwnTime)
	if n := len(s.dst) - at - 1; n < 32 {
		s.dst[at] = msgpack.CodeFixStr | byte(n)
	} else {
		s.dst = msgpack.AppendStr(s.dst[:at], string(s.dst[at+1:]))
	}
}

func (s *valuer) Duration(v time.Duration) {
	switch s.style.Duration {
	case values.DurationText:
		s.dst = msgpack.AppendStr(s.dst, v.String())
	case values.DurationSeconds:
		s.dst = msgpack.AppendFloat64(s.dst, v.Seconds())
	default:
		s.dst = msgpack.AppendInt(s.dst, int64(v))
	}
}

func (s *valuer) Level(v slog.Level) {
	s.dst = msgpack.AppendStr(s.dst, values.LevelText(v, s.style.Level))
}

func (s *valuer) JSON(js []byte) error {
	at := len(s.dst)
	out, rest, err := msgpack.AppendFromJSON(s.dst, js)
	if err == nil && len(bytes.TrimSpace(rest)) > 0 {
		err = errors.New("there is more than one JSON value")
	}
	if err == nil {
		s.passed(out[at:], brackets(js))
		s.dst = out
	}
	return err
}

// Fault appends a text instead of a value that cannot be encoded.
func (s *valuer) Fault(err error) {
	if s.unusable == nil {
		s.unusable = fmt.Errorf("%w: %w", ErrValue, err)
	}
	s.dst = msgpack.AppendStr(s.dst, values.Fault(err))
}

func (s *valuer) List(n int) {
	s.deep = s.deep || s.walk.Level > maxLevels
	s.dst = msgpack.AppendArrayHeader(s.dst, n)
}

func (s *valuer) EndList() {}

func (s *valuer) Map(n int) {
	s.deep = s.deep || s.walk.Level > maxLevels
	if n >= 0 {
		s.open = append(s.open, openMap{at: -1})
		s.dst = msgpack.AppendMapHeader(s.dst, n)
		return
	}
	s.open = append(s.open, openMap{at: len(s.dst)})
	s.dst = msgpack.AppendOpenMap(s.dst)
}

func (s *valuer) EndMap() {
	last := len(s.open) - 1
	if m := s.open[last]; m.at >= 0 {
		s.dst = msgpack.CloseMap(s.dst, m.at, m.n)
	}
	s.open = s.open[:last]
}

func (s *valuer) Key(name string) {
	s.open[len(s.open)-1].n++
	s.dst = msgpack.AppendStr(s.dst, name)
}

func (s *valuer) Field(f *values.Field) {
	s.open[len(s.open)-1].n++
	s.dst = append(s.dst, f.Msg...)
}

func (s *valuer) Direct(f *values.Field, p unsafe.Pointer) {
	dst, zero := append(s.dst, f.Msg...), false
	switch f.Direct {
	case reflect.String:
		v := *(*string)(p)
		dst, zero = msgpack.AppendStr(dst, v), v == ""
	case reflect.Int:
		v := *(*int)(p)
		dst, zero = msgpack.AppendInt(dst, int64(v)), v == 0
	case reflect.Int64:
		v := *(*int64)(p)
		dst, zero = msgpack.AppendInt(dst, v), v == 0
	case reflect.Bool:
		v := *(*bool)(p)
		dst, zero = msgpack.AppendBool(dst, v), !v
	default:
		values.Read(s, f, p)
		return
	}
	if !zero || !f.OmitEmpty {
		s.dst = dst
		s.open[len(s.open)-1].n++
	}
}

func (s *valuer) Group([]slog.Attr) bool { return false }

func (s *valuer) Err() error {
	if len(s.dst)-s.base+s.heldBytes > s.limit {
		return s.tooLarge()
	}
	return nil
}

// Msg appends the result of MarshalMsg in a form that receivers accept: generated code writes
// times as ext 5, on which fluentd resets the connection. The method gets the spare
// capacity of dst and nothing of its content, which is the beginning of the entry.
func (s *valuer) Msg(m values.Marshaler) {
	out, err := marshaled(m, s.dst[len(s.dst):])
	if err == nil {
		out, err = cleaned(out)
	}
	if err != nil {
		s.walk.Failed("MarshalMsg", nil, err)
		return
	}
	s.passed(out, len(out))
	s.dst = append(s.dst, out...)
}

func marshaled(m values.Marshaler, room []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, values.Panic(m, p)
		}
	}()
	return m.MarshalMsg(room)
}

// cleaned returns out, which must be one value, in a form that receivers accept.
func cleaned(out []byte) ([]byte, error) {
	ok, err := msgpack.IsClean(out)
	if err != nil {
		return nil, fmt.Errorf("MarshalMsg did not append exactly one MessagePack value: %w", err)
	}
	if !ok {
		out, _, err = msgpack.AppendClean(nil, out)
	}
	return out, err
}

// brackets counts the bytes that could begin lists and objects in js.
func brackets(js []byte) int { return bytes.Count(js, []byte{'['}) + bytes.Count(js, []byte{'{'}) }
