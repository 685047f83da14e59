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
	"unsafe"

	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/values"
)

const (
	// maxDepth is the maximum nesting depth of pointers, interfaces, maps and lists in a value.
	maxDepth = 128
	// maxLevels is the maximum nesting depth of maps and lists in a record, including the record
	// itself. Fluent Bit's limit is 31, and the entry around the record is one more level. Deeper
	// maps and lists become JSON text.
	maxLevels = 30
)

var (
	// ErrValue is wrapped by the error for a value that cannot be encoded. Such a value is or
	// contains a channel, a function or a similar value, has a method that returns an error, is
	// nested too deeply, or contains itself. ErrValue also applies to a map that is modified during
	// the call, by a method of one of its values or by another goroutine.
	ErrValue = errors.New("unusable value")

	// ErrTooLarge is wrapped by the error for a record that is too large.
	ErrTooLarge = errors.New("record too large")
)

// A valuer encodes Go values as MessagePack. While a [values.Walk] visits the parts of a value, the
// valuer receives each part as its [values.Emitter]. A goroutine takes a valuer from the pool for
// each record. The fields that every record needs come first, so that they are in few cache lines.
type valuer struct {
	dst     []byte // result so far, while walk is running
	base    int    // offset of the record in dst
	limit   int    // maximum size of the record in bytes
	walking bool   // walk is ready for this record
	deep    bool   // the record may be nested deeper than maxLevels
	times   string // Config.TimeFields

	// The field unusable is the error of the first value that cannot be encoded. In the record, a
	// text with the reason replaces the value. Post returns this error and discards the record, but
	// a Router sends the record.
	unusable error

	style  *values.Style  // format of durations and times
	errors *values.Values // writes the details of errors; nil without details

	// stream and tag belong to the last call of streamOf. They are kept, because the next record
	// often has the same tag.
	stream uint32
	tag    string

	walk      values.Walk
	open      []openMap          // the open maps, outermost first
	formatted values.Times       // cache of formatted times
	scratch   values.AttrScratch // memory for the attributes of AttrAppenders
	level     int                // nesting depth of the next value

	unique []byte // memory for a record whose duplicate keys are renamed

	// The following fields are used only for records of a Router.
	replace    func(groups []string, a slog.Attr) slog.Attr // ReplaceAttr, or nil
	groups     []string                                     // names of the open groups
	groupDepth int                                          // number of open groups in the current call of attrs
	// builtin is true while level, message and source are written, for which ReplaceAttr gets no
	// groups.
	builtin bool

	mem recordMemory // memory for a record of Post
}

// An openMap is a map whose members are being written.
type openMap struct {
	// The field at is the offset of the header, in which EndMap stores the number of members. It is
	// -1 if the number is already stored.
	at int
	n  int // number of members so far
}

// valuers is the pool of valuers.
var valuers = sync.Pool{New: func() any { return new(valuer) }}

// plainStyle is the default style of values.
var plainStyle = &values.NewValues(values.Style{}).Style

// borrow returns a valuer for a record of at most limit bytes. The parameter times is the value of
// Config.TimeFields. The caller must call free.
func borrow(limit int, times string) *valuer {
	s := valuers.Get().(*valuer)
	s.base, s.limit, s.level, s.deep, s.times = 0, limit, 0, false, times
	s.errors, s.unusable, s.walk.KeyFault, s.style = nil, nil, nil, plainStyle
	return s
}

// free returns s to the pool. It removes the references to values of the caller.
func (s *valuer) free() {
	s.dst = nil
	s.mem.drop()
	s.mem.insertedBytes = 0
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

// begin prepares the walk for a value that is appended to dst. Most records need no walk, so begin
// is called only on demand. It prepares the walk once per record.
func (s *valuer) begin(dst []byte) *values.Walk {
	w := &s.walk
	if !s.walking {
		s.walking = true
		w.Emitter, w.Style, w.Scratch = s, s.style, &s.scratch
		w.Limits = values.Limits{Depth: maxDepth, Forward: true}
		w.Expansions, w.Nodes = 0, 0
	}
	w.Reset()
	s.dst, w.Level, s.open = dst, s.level, s.open[:0]
	return w
}

// any appends a value whose type is not known in advance. The caller passes the error to addPath,
// which adds the path of the value.
func (s *valuer) any(dst []byte, v any) ([]byte, error) {
	err := s.begin(dst).Any(v)
	return s.dst, err
}

// value appends a value of slog. It writes the most common kinds without the walk.
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
	case slog.KindTime:
		s.dst, s.walk.Level = dst, s.level
		s.Time(v.Time())
		return s.dst, nil
	}
	err := s.begin(dst).Value(v)
	return s.dst, err
}

// record appends v as the map of an event. If v is not encoded as a map, it becomes the only value
// of a map, under the given key; nil becomes an empty map. If s.mem.canSplice is true, the result
// may lack strings, which the caller must insert from s.mem.splices.
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
		// The walk may move or remove written bytes, which would invalidate the offsets of spliced
		// strings.
		s.mem.canSplice = false
		dst, err = s.any(dst, v)
	}
	if err == nil {
		if s.deep {
			dst = flatten(s.mem.insert(dst), at)
		}
		if len(dst)-at+s.mem.spliceBytes > s.limit {
			err = s.tooLarge()
		}
	}
	if err != nil {
		return dst, s.addPath(err)
	}
	switch c := dst[at]; { // the first byte determines the type
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

// event appends v like record, but fails if a part of v cannot be encoded.
func (s *valuer) event(dst []byte, v any, key string) ([]byte, error) {
	dst, err := s.record(dst, v, key)
	if err == nil {
		err = s.unusable
	}
	if err == nil && s.walk.KeyFault != nil {
		err = fmt.Errorf("%w: key of a map: %w", ErrValue, s.walk.KeyFault)
	}
	return dst, err
}

// flatten rewrites the record dst[at:] so that it has at most maxLevels levels. Deeper maps and
// lists become JSON text. Unlike most encoding, flatten allocates.
func flatten(dst []byte, at int) []byte {
	out, _, err := msgpack.AppendShallow(nil, dst[at:], maxLevels)
	if err != nil {
		return dst // impossible, because this package has encoded the record
	}
	return append(dst[:at], out...)
}

// noteLevels is called with b, the result of a method such as MarshalMsg. It sets s.deep if b may
// be nested too deeply. The parameter n is an upper bound of the number of levels in b. If n is
// small, b is not parsed.
func (s *valuer) noteLevels(b []byte, n int) {
	if remaining := maxLevels - s.walk.Level; n > remaining && !s.deep {
		s.deep = msgpack.Nested(b, remaining+1) > remaining
	}
}

// addPath returns err with the path of the value at which the walk has ended. The result wraps
// ErrTooLarge or ErrValue.
func (s *valuer) addPath(err error) error {
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

// tooLarge returns the error for a record of more than s.limit bytes.
func (s *valuer) tooLarge() error {
	return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.limit)
}

// anyMap appends a map[string]any, the most common type of record, without the walk.
// [msgpack.AppendMap] writes values of the most common types itself, and calls AppendPair for all
// others. A nil map is appended as nil.
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

// AppendPair appends a pair that msgpack.AppendMap does not write itself. Examples are a map, and a
// long string that may be spliced. It implements [msgpack.Pairer].
func (s *valuer) AppendPair(dst []byte, k string, v any) ([]byte, error) {
	dst = msgpack.AppendStr(dst, k)
	if v, ok := v.(string); ok {
		if s.mem.canSplice && len(v) >= minSpliceBytes {
			return s.mem.splice(dst, v), nil
		}
		return msgpack.AppendStr(dst, v), nil
	}
	dst, err := s.any(dst, v)
	return dst, s.walk.In(k, err)
}

// stringMap appends a record whose values are all strings, without the walk. A nil map is appended
// as nil.
func (s *valuer) stringMap(dst []byte, m map[string]string) ([]byte, error) {
	if m == nil {
		return msgpack.AppendNil(dst), nil
	}
	left := len(m)
	dst = msgpack.AppendMapHeader(dst, left)
	for k, v := range m {
		if left--; left < 0 { // another goroutine has added a key
			break
		}
		if s.mem.canSplice && len(v) >= minSpliceBytes {
			dst = s.mem.splice(msgpack.AppendStr(dst, k), v)
			continue
		}
		dst = msgpack.AppendStrs(dst, k, v)
	}
	if left != 0 {
		return dst, values.ErrChanged
	}
	return dst, nil
}

// The exported methods below implement [values.Emitter]. Each appends one part of a value to s.dst.
// The types are documented in https://github.com/msgpack/msgpack/blob/master/spec.md.

// Null appends nil.
func (s *valuer) Null() { s.dst = msgpack.AppendNil(s.dst) }

// Bool appends a boolean.
func (s *valuer) Bool(v bool) { s.dst = msgpack.AppendBool(s.dst, v) }

// Int appends a signed integer.
func (s *valuer) Int(v int64) { s.dst = msgpack.AppendInt(s.dst, v) }

// Uint appends an unsigned integer.
func (s *valuer) Uint(v uint64) { s.dst = msgpack.AppendUint(s.dst, v) }

// Float appends a number of 32 or 64 bits. NaN and the infinities are appended as text, because
// receivers convert records to JSON, which has no such numbers.
func (s *valuer) Float(v float64, bits int) { s.dst = appendFloat(s.dst, v, bits) }

// appendFloat appends a number of 32 or 64 bits. NaN and the infinities are appended as text.
func appendFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case v-v != 0: // NaN or infinite
		return msgpack.AppendStr(dst, msgpack.FloatText(v))
	case bits == 32:
		return msgpack.AppendFloat32(dst, float32(v))
	}
	return msgpack.AppendFloat64(dst, v)
}

// Text appends a string of type str. Invalid UTF-8 is replaced.
func (s *valuer) Text(v string) { s.dst = msgpack.AppendStr(s.dst, v) }

// Bytes appends binary data of type bin.
func (s *valuer) Bytes(v []byte) { s.dst = msgpack.AppendBin(s.dst, v) }

// Time appends a time as text. With TimeFields "event-time", a time that is a field of the record
// itself is appended as EventTime.
func (s *valuer) Time(t time.Time) {
	if s.times == timeEvent && s.walk.Level == 1 && holdsTime(t) {
		s.dst = appendEventTime(s.dst, t)
		return
	}
	// Nearly every time is a string of less than 32 bytes, whose header has one byte. The header is
	// written after the string. A longer string is written again with a longer header.
	at := len(s.dst)
	s.dst = s.style.Time.Append(append(s.dst, 0), t, &s.formatted, values.OwnTime)
	if n := len(s.dst) - at - 1; n < 32 {
		s.dst[at] = msgpack.CodeFixStr | byte(n)
	} else {
		s.dst = msgpack.AppendStr(s.dst[:at], string(s.dst[at+1:]))
	}
}

// Duration appends integer nanoseconds, or the format selected with forebay.Durations.
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

// Level appends the name of a slog.Level.
func (s *valuer) Level(v slog.Level) {
	s.dst = msgpack.AppendStr(s.dst, values.LevelText(v, s.style.Level))
}

// JSON appends a JSON value, such as the result of MarshalJSON, as MessagePack. If js is not
// exactly one valid value, JSON appends nothing and returns an error.
func (s *valuer) JSON(js []byte) error {
	at := len(s.dst)
	out, rest, err := msgpack.AppendFromJSON(s.dst, js)
	if err == nil && len(bytes.TrimSpace(rest)) > 0 {
		err = errors.New("there is more than one JSON value")
	}
	if err == nil {
		s.noteLevels(out[at:], brackets(js))
		s.dst = out
	}
	return err
}

// Fault appends a text with the reason instead of a value that cannot be encoded. The first reason
// is stored in s.unusable.
func (s *valuer) Fault(err error) {
	if s.unusable == nil {
		s.unusable = fmt.Errorf("%w: %w", ErrValue, err)
	}
	s.dst = msgpack.AppendStr(s.dst, values.Fault(err))
}

// List begins a list of n elements. The header contains n, so a list needs no end mark.
func (s *valuer) List(n int) {
	s.deep = s.deep || s.walk.Level > maxLevels
	s.dst = msgpack.AppendArrayHeader(s.dst, n)
}

// EndList does nothing, because the header of a list contains its length.
func (s *valuer) EndList() {}

// Map begins a map of n members. If n is negative, the number is not yet known, and EndMap stores
// it in the header.
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

// EndMap ends the innermost open map.
func (s *valuer) EndMap() {
	last := len(s.open) - 1
	if m := s.open[last]; m.at >= 0 {
		s.dst = msgpack.CloseMap(s.dst, m.at, m.n)
	}
	s.open = s.open[:last]
}

// Key begins a member of the innermost open map. The caller then appends the value.
func (s *valuer) Key(name string) {
	s.open[len(s.open)-1].n++
	s.dst = msgpack.AppendStr(s.dst, name)
}

// Field is like Key for the name of a struct field. Package values has encoded the name in advance.
func (s *valuer) Field(f *values.Field) {
	s.open[len(s.open)-1].n++
	s.dst = append(s.dst, f.Msg...)
}

// Direct appends fields of the struct at address p. It avoids reflection for the most common types.
// A zero value is omitted if its field has the option omitempty.
func (s *valuer) Direct(fields []values.Field, p unsafe.Pointer) {
	dst, n := s.dst, 0
	for i := range fields {
		f, start, zero := &fields[i], len(dst), false
		dst = append(dst, f.Msg...)
		switch at := unsafe.Add(p, f.Offset); f.Direct {
		case reflect.String:
			v := *(*string)(at)
			dst, zero = msgpack.AppendStr(dst, v), v == ""
		case reflect.Int:
			v := *(*int)(at)
			dst, zero = msgpack.AppendInt(dst, int64(v)), v == 0
		case reflect.Int64:
			v := *(*int64)(at)
			dst, zero = msgpack.AppendInt(dst, v), v == 0
		case reflect.Bool:
			v := *(*bool)(at)
			dst, zero = msgpack.AppendBool(dst, v), !v
		default:
			v := *(*float64)(at)
			dst, zero = appendFloat(dst, v, 64), v == 0
		}
		if zero && f.OmitEmpty {
			dst = dst[:start]
			continue
		}
		n++
	}
	s.dst = dst
	s.open[len(s.open)-1].n += n
}

// Err returns an error, which ends the walk, as soon as the record is too large.
func (s *valuer) Err() error {
	if len(s.dst)-s.base+s.mem.spliceBytes > s.limit {
		return s.tooLarge()
	}
	return nil
}

// Msg appends the result of m.MarshalMsg in a form that receivers accept. For example, code
// generated by tinylib/msgp writes times as extension type 5, and fluentd resets a connection on
// which it receives this type. MarshalMsg gets only the unused capacity of dst, so that it cannot
// change the beginning of the entry.
func (s *valuer) Msg(m values.Marshaler) {
	spare := s.dst[len(s.dst):]
	out, err := values.Call(m, func(m values.Marshaler) ([]byte, error) { return m.MarshalMsg(spare) })
	if err == nil {
		out, err = cleaned(out)
	}
	if err != nil {
		s.walk.Failed("MarshalMsg", nil, err)
		return
	}
	s.noteLevels(out, len(out))
	s.dst = append(s.dst, out...)
}

// cleaned returns out, a result of MarshalMsg, in a form that receivers accept. It fails if out is
// not exactly one MessagePack value.
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

// brackets returns an upper bound of the nesting depth of js: the number of its opening brackets,
// including those in strings. Counting is faster than parsing.
func brackets(js []byte) int { return bytes.Count(js, []byte{'['}) + bytes.Count(js, []byte{'{'}) }
