package fluent

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
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
	// maxLevels is the maximum nesting depth of maps and lists in a record, including the
	// record. With the enclosing entry it is the limit of Fluent Bit, 31. Deeper ones become
	// text, see flat.
	maxLevels = 30
	// trackDepth is the depth from which pointers are remembered, to find cycles.
	trackDepth = 8
)

var (
	// ErrValue is wrapped by the error for a value that cannot be encoded: it is or contains
	// a channel, a function or a similar value, or a value whose method returns an error; it
	// is nested too deeply; it contains itself; or it is a map that is modified during the
	// call by a method of one of its values or by another goroutine.
	ErrValue   = errors.New("unusable value")
	errDepth   = fmt.Errorf("%w: it is nested too deep", ErrValue)
	errCycle   = fmt.Errorf("%w: it contains itself", ErrValue)
	errChanged = fmt.Errorf("%w: a map has changed while it was written", ErrValue)

	// ErrTooLarge is wrapped by the error for a record that is too large.
	ErrTooLarge = errors.New("record too large")
)

// valuer encodes Go values as MessagePack. It is taken from a pool for each record. The fields
// that every record needs come first, because after a pause none of them is in the processor's
// cache.
type valuer struct {
	base  int  // where the record begins in dst
	limit int  // bytes of a record
	depth int  // of values within each other, pointers too
	level int  // of maps and lists only
	deep  bool // there may be more than maxLevels of them
	holds bool // long strings of the record's own map are held
	times string

	// unusable is the reason why the first unencodable value cannot be encoded; a text with
	// the reason replaces it. Post returns it as an error; a record of a Router is sent with
	// the text.
	unusable error

	errors *values.Values // of a scope: what stands beside errors; nil: nothing

	// The last tag, as the table has it, and its number.
	stream uint32
	tag    string

	// Memory of records, see room:
	want, small int // what to borrow, 0: nothing; how many records in a row did not need it
	lent        []byte

	// What is left out of dst, see hold:
	held      []slab.Splice
	heldBytes int
	joined    int // bytes of it that are in dst nevertheless

	way  []place  // the enclosing pointers, maps and slices, from trackDepth on
	path []string // the path to an error, innermost first

	scratch values.AttrScratch // what AttrAppenders append to

	// Of a scope that replaces attributes:
	replace func(groups []string, a slog.Attr) slog.Attr // nil: none
	groups  []string                                     // open
	builtin bool                                         // level, message or source: ReplaceAttr gets no groups

	own [ownScratchBytes]byte
}

var valuers = sync.Pool{New: func() any { return new(valuer) }}

func borrow(limit int, times string) *valuer {
	s := valuers.Get().(*valuer)
	s.base, s.limit, s.depth, s.level, s.deep, s.times = 0, limit, 0, 0, false, times
	s.errors, s.unusable = nil, nil
	return s
}

func (s *valuer) free() {
	if cap(s.way) > 0 { // only values that lie deep leave something there
		clear(s.way[:cap(s.way)])
		s.way = s.way[:0]
	}
	s.path = s.path[:0]
	s.letGo()
	s.joined = 0
	if s.replace != nil {
		s.replace = nil
		clear(s.groups[:cap(s.groups)])
		s.groups = s.groups[:0]
	}
	valuers.Put(s)
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

// flat rewrites the value at dst[at:], which is a record or will be, so that it has no more than
// maxLevels levels.
func flat(dst []byte, at int) []byte {
	out, _, err := msgpack.AppendShallow(nil, dst[at:], maxLevels)
	if err != nil {
		return dst // it is no MessagePack: our own it always is
	}
	return append(dst[:at], out...)
}

// passed examines a value encoded by other code, n of whose bytes could begin a list or map.
func (s *valuer) passed(b []byte, n int) {
	if room := maxLevels - s.level; n > room && !s.deep {
		s.deep = msgpack.Nested(b, room+1) > room
	}
}

// explain adds the position of the error.
func (s *valuer) explain(err error) error {
	if len(s.path) == 0 {
		return err
	}
	const show = 8
	names := slices.Clone(s.path)
	slices.Reverse(names)
	more := ""
	if len(names) > show {
		names, more = names[:show], "…"
	}
	return fmt.Errorf("at %s%s: %w", strings.Join(names, "."), more, err)
}

// in records that the error is within name.
func (s *valuer) in(name string) {
	if len(s.path) < maxDepth {
		if len(name) > 40 {
			name = strings.ToValidUTF8(name[:40], "") + "…"
		}
		s.path = append(s.path, name)
	}
}

func (s *valuer) tooLarge() error {
	return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.limit)
}

// A place identifies the target of a pointer, map or slice. An address is not sufficient, because
// a struct begins at the address of its first field, and a slice may share the address of a part
// of it.
type place struct {
	at  unsafe.Pointer
	typ *plan // nil: of a type that has no plan
	n   int   // of a slice
}

// enter begins a container. p is its identity, without an address if it has none.
func (s *valuer) enter(dst []byte, p place) error {
	s.depth++
	s.level++
	if s.depth < trackDepth {
		return nil
	}
	if s.level >= maxLevels { // some lists and maps are encoded without enter
		s.deep = true
	}
	if s.depth > maxDepth {
		return fmt.Errorf("%w: more than %d levels", errDepth, maxDepth)
	}
	if len(dst)-s.base > s.limit {
		return s.tooLarge()
	}
	if p.at != nil && slices.Contains(s.way, p) {
		return errCycle
	}
	s.way = append(s.way, p)
	return nil
}

func (s *valuer) leave() {
	if s.depth >= trackDepth && len(s.way) > 0 {
		s.way = s.way[:len(s.way)-1]
	}
	s.depth--
	s.level--
}

func mapPointer[M any](m M) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&m)) }

// mapOf converts a map to M, which is its type or its underlying type: a map is one pointer.
func mapOf[M any](v reflect.Value) M {
	p := v.UnsafePointer()
	return *(*M)(unsafe.Pointer(&p))
}

func (s *valuer) anyMap(dst []byte, m map[string]any) ([]byte, error) {
	if m == nil {
		return msgpack.AppendNil(dst), nil
	}
	if err := s.enter(dst, place{at: mapPointer(m)}); err != nil {
		return dst, err
	}
	dst, err := msgpack.AppendMap(dst, m, s)
	if err == msgpack.ErrChanged {
		return dst, errChanged
	}
	if err != nil {
		return dst, err
	}
	s.leave()
	return dst, nil
}

// AppendPair appends the pairs that msgpack.AppendMap does not encode itself.
func (s *valuer) AppendPair(dst []byte, k string, v any) ([]byte, error) {
	dst = msgpack.AppendStr(dst, k)
	if v, ok := v.(string); ok {
		if s.holds && s.level == 1 && len(v) >= holdBytes {
			return s.hold(dst, v), nil
		}
		return msgpack.AppendStr(dst, v), nil
	}
	dst, err := s.any(dst, v)
	if err != nil {
		s.in(k)
	}
	return dst, err
}

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
		if s.holds && s.level == 0 && len(v) >= holdBytes {
			dst = s.hold(msgpack.AppendStr(dst, k), v)
			continue
		}
		dst = msgpack.AppendStrs(dst, k, v)
	}
	if left != 0 {
		return dst, errChanged
	}
	return dst, nil
}

const (
	// holdBytes is the length from which a string is held.
	holdBytes = 512
	// maxHeld is how many of a record are.
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
		lent = nil // it stays
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
	s.letGo()
	return out
}

// letGo drops the held strings and disables holding.
func (s *valuer) letGo() {
	s.holds = false
	if s.heldBytes > 0 {
		clear(s.held)
		s.held, s.heldBytes = s.held[:0], 0
	}
}

// any appends a value of any type: the common ones without reflection.
func (s *valuer) any(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return msgpack.AppendNil(dst), nil
	case string:
		return msgpack.AppendStr(dst, v), nil
	case bool:
		return msgpack.AppendBool(dst, v), nil
	case int:
		return msgpack.AppendInt(dst, int64(v)), nil
	case int64:
		return msgpack.AppendInt(dst, v), nil
	case int32:
		return msgpack.AppendInt(dst, int64(v)), nil
	case uint:
		return msgpack.AppendUint(dst, uint64(v)), nil
	case uint64:
		return msgpack.AppendUint(dst, v), nil
	case uint32:
		return msgpack.AppendUint(dst, uint64(v)), nil
	case uint8:
		return msgpack.AppendUint(dst, uint64(v)), nil
	case float64:
		return appendFloat(dst, v), nil
	case float32:
		return appendFloat32(dst, v), nil
	case time.Duration:
		return msgpack.AppendInt(dst, int64(v)), nil
	case time.Time:
		return s.time(dst, v), nil
	case []byte:
		if v == nil {
			return msgpack.AppendNil(dst), nil
		}
		return msgpack.AppendBin(dst, v), nil
	case map[string]any:
		return s.anyMap(dst, v)
	case map[string]string:
		return s.stringMap(dst, v)
	case []any:
		return s.anySlice(dst, v)
	case []string:
		if v == nil {
			return msgpack.AppendNil(dst), nil
		}
		dst = msgpack.AppendArrayHeader(dst, len(v))
		for _, e := range v {
			dst = msgpack.AppendStr(dst, e)
		}
		return dst, nil
	}
	rv := reflect.ValueOf(v)
	p := planOf(rv.Type())
	if p.op == opStruct && p.typ.Size() > unsafe.Sizeof(uintptr(0)) {
		return s.structure(dst, rv, p, dataOf(&v))
	}
	return s.value(dst, rv, p)
}

func (s *valuer) anySlice(dst []byte, v []any) ([]byte, error) {
	if v == nil {
		return msgpack.AppendNil(dst), nil
	}
	if err := s.enter(dst, place{at: unsafe.Pointer(unsafe.SliceData(v)), n: len(v)}); err != nil {
		return dst, err
	}
	dst = msgpack.AppendArrayHeader(dst, len(v))
	for i, e := range v {
		var err error
		if dst, err = s.any(dst, e); err != nil {
			s.in(strconv.Itoa(i))
			return dst, err
		}
	}
	s.leave()
	return dst, nil
}

func appendFloat(dst []byte, f float64) []byte {
	if f-f != 0 {
		return msgpack.AppendStr(dst, msgpack.FloatText(f))
	}
	return msgpack.AppendFloat64(dst, f)
}

func appendFloat32(dst []byte, f float32) []byte {
	if f-f != 0 {
		return msgpack.AppendStr(dst, msgpack.FloatText(float64(f)))
	}
	return msgpack.AppendFloat32(dst, f)
}

// time appends a time within a record.
func (s *valuer) time(dst []byte, t time.Time) []byte {
	if s.times == timeEvent && s.level == 1 && holdsTime(t) {
		return appendEventTime(dst, t)
	}
	return msgpack.AppendTime(dst, t)
}

// value appends v according to p, the plan of its type.
func (s *valuer) value(dst []byte, v reflect.Value, p *plan) ([]byte, error) {
	switch p.op {
	case opString:
		return msgpack.AppendStr(dst, v.String()), nil
	case opInt:
		return msgpack.AppendInt(dst, v.Int()), nil
	case opUint:
		return msgpack.AppendUint(dst, v.Uint()), nil
	case opBool:
		return msgpack.AppendBool(dst, v.Bool()), nil
	case opFloat64:
		return appendFloat(dst, v.Float()), nil
	case opFloat32:
		return appendFloat32(dst, float32(v.Float())), nil
	case opComplex:
		return msgpack.AppendStr(dst, strconv.FormatComplex(v.Complex(), 'g', -1, 128)), nil
	case opBytes:
		if v.IsNil() {
			return msgpack.AppendNil(dst), nil
		}
		return msgpack.AppendBin(dst, v.Bytes()), nil
	case opTime:
		if v.CanAddr() {
			return s.time(dst, *v.Addr().Interface().(*time.Time)), nil
		}
		return s.time(dst, v.Interface().(time.Time)), nil
	case opInterface:
		if v.IsNil() {
			return msgpack.AppendNil(dst), nil
		}
		if v.NumMethod() == 0 {
			return s.any(dst, v.Interface())
		}
		return s.any(dst, v.Elem().Interface())
	case opPointer:
		if v.IsNil() {
			return msgpack.AppendNil(dst), nil
		}
		if err := s.enter(dst, place{at: v.UnsafePointer(), typ: p}); err != nil {
			return dst, err
		}
		s.level-- // a pointer is no level of the output
		dst, err := s.value(dst, v.Elem(), p.elem)
		s.level++
		s.leave()
		return dst, err
	case opAnyMap:
		return s.anyMap(dst, mapOf[map[string]any](v))
	case opStringMap:
		return s.stringMap(dst, mapOf[map[string]string](v))
	case opStruct:
		return s.structure(dst, v, p, nil)
	case opMap:
		return s.otherMap(dst, v, p)
	case opSlice:
		if v.IsNil() {
			return msgpack.AppendNil(dst), nil
		}
		return s.list(dst, v, p, v.UnsafePointer())
	case opArray:
		return s.list(dst, v, p, nil)
	case opNumber:
		return number(dst, v.String()), nil
	case opRaw:
		return s.rawJSON(dst, v.Bytes()), nil
	case opAttr:
		if v.CanAddr() {
			return s.attr(dst, *v.Addr().Interface().(*slog.Value))
		}
		return s.attr(dst, v.Interface().(slog.Value))
	case opMethod:
		return s.method(dst, v, p)
	}
	return s.cannot(dst, errors.New("cannot encode a value of type "+p.typ.String())), nil
}

// cannot appends a text instead of a value that cannot be encoded.
func (s *valuer) cannot(dst []byte, why error) []byte {
	if s.unusable == nil {
		s.unusable = fmt.Errorf("%w: %w", ErrValue, why)
	}
	return msgpack.AppendStr(dst, "!ERROR: "+why.Error())
}

// event is like record, but returns the error of a value that cannot be encoded.
func (s *valuer) event(dst []byte, v any, key string) ([]byte, error) {
	dst, err := s.record(dst, v, key)
	if err == nil {
		err = s.unusable
	}
	return dst, err
}

// list appends a slice or array.
func (s *valuer) list(dst []byte, v reflect.Value, p *plan, id unsafe.Pointer) ([]byte, error) {
	n := v.Len()
	if n == 0 {
		return msgpack.AppendArrayHeader(dst, 0), nil
	}
	if err := s.enter(dst, place{id, p, n}); err != nil {
		return dst, err
	}
	dst = msgpack.AppendArrayHeader(dst, n)
	for i := range n {
		var err error
		if dst, err = s.value(dst, v.Index(i), p.elem); err != nil {
			s.in(strconv.Itoa(i))
			return dst, err
		}
		if len(dst)-s.base > s.limit {
			return dst, s.tooLarge()
		}
	}
	s.leave()
	return dst, nil
}

// dataOf returns the address of the value in an interface. The value must be larger than a
// pointer, because only such a value is stored outside the interface.
func dataOf(v *any) unsafe.Pointer { return (*[2]unsafe.Pointer)(unsafe.Pointer(v))[1] }

// direct appends a field at p, of a kind listed at field.direct.
func direct(dst []byte, kind reflect.Kind, p unsafe.Pointer) (out []byte, empty bool) {
	switch kind {
	case reflect.String:
		v := *(*string)(p)
		return msgpack.AppendStr(dst, v), v == ""
	case reflect.Int:
		v := *(*int)(p)
		return msgpack.AppendInt(dst, int64(v)), v == 0
	case reflect.Int64:
		v := *(*int64)(p)
		return msgpack.AppendInt(dst, v), v == 0
	case reflect.Bool:
		v := *(*bool)(p)
		return msgpack.AppendBool(dst, v), !v
	}
	v := *(*float64)(p)
	return appendFloat(dst, v), v == 0
}

// structure appends a struct as a map. at is its address; if nil, the address of v, if any, is
// used.
func (s *valuer) structure(dst []byte, v reflect.Value, p *plan, at unsafe.Pointer) ([]byte, error) {
	if at == nil && v.CanAddr() {
		at = v.Addr().UnsafePointer()
	}
	if err := s.enter(dst, place{}); err != nil {
		return dst, err
	}
	head, n := len(dst), 0
	if p.fixed {
		dst = msgpack.AppendMapHeader(dst, len(p.fields))
	} else {
		dst = msgpack.AppendOpenMap(dst)
	}
	for i := range p.fields {
		f := &p.fields[i]
		if f.direct != reflect.Invalid && at != nil {
			out, empty := direct(append(dst, f.key...), f.direct, unsafe.Add(at, f.offset))
			if !empty || !f.omitEmpty {
				dst = out
				n++
			}
			continue
		}
		fv := v
		if len(f.index) == 1 {
			fv = v.Field(f.index[0])
		} else {
			var ok bool
			if fv, ok = walk(v, f.index); !ok {
				continue
			}
		}
		if f.hidden {
			if at == nil && v.CanInterface() {
				c := reflect.New(p.typ)
				c.Elem().Set(v)
				at = c.UnsafePointer()
			}
			if at == nil {
				continue
			}
			fv = reflect.NewAt(fv.Type(), unsafe.Add(at, f.offset)).Elem()
		}
		if f.omitEmpty && isEmpty(fv) || f.omitZero && isZero(fv) {
			continue
		}
		var err error
		if f.inlineMap {
			var pairs int
			dst, pairs, err = s.pairs(dst, fv, f.plan)
			n += pairs
		} else {
			dst = append(dst, f.key...)
			n++
			if f.quote {
				dst, err = s.quoted(dst, fv, f.plan)
			} else {
				dst, err = s.value(dst, fv, f.plan)
			}
		}
		if err != nil {
			s.in(f.name)
			return dst, err
		}
	}
	if !p.fixed {
		dst = msgpack.CloseMap(dst, head, n)
	}
	s.leave()
	return dst, nil
}

// walk follows a path of field indexes. It returns false if a pointer on the path is nil.
func walk(v reflect.Value, index []int) (reflect.Value, bool) {
	for i, x := range index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		v = v.Field(x)
	}
	return v, true
}

// isEmpty implements omitempty of encoding/json.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// isZero implements omitzero of encoding/json.
func isZero(v reflect.Value) (zero bool) {
	defer func() {
		if recover() != nil {
			zero = false // the result of a method that panics is unknown
		}
	}()
	t := v.Type()
	switch {
	case !v.CanInterface():
	case t.Implements(zeroerType):
		k := t.Kind()
		if (k == reflect.Pointer || k == reflect.Interface) && v.IsNil() {
			return true
		}
		if k == reflect.Interface && v.Elem().Kind() == reflect.Pointer && v.Elem().IsNil() {
			return true
		}
		return v.Interface().(zeroer).IsZero()
	case reflect.PointerTo(t).Implements(zeroerType):
		if !v.CanAddr() { // encoding/json makes a copy, too
			c := reflect.New(t).Elem()
			c.Set(v)
			v = c
		}
		return v.Addr().Interface().(zeroer).IsZero()
	}
	return v.IsZero()
}

// quoted appends a field with the option string of encoding/json: the JSON of a number, bool or
// string as a string. Values with marshaling methods ignore it.
func (s *valuer) quoted(dst []byte, v reflect.Value, p *plan) ([]byte, error) {
	if p.op == opPointer {
		if v.IsNil() {
			return msgpack.AppendNil(dst), nil
		}
		v, p = v.Elem(), p.elem
	}
	for p.op == opMethod && p.byAddr && !v.CanAddr() {
		p = p.without
	}
	switch p.op {
	case opNumber:
		text := v.String()
		if text == "" {
			text = "0"
		}
		return msgpack.AppendStr(dst, text), nil
	case opBool, opInt, opUint, opFloat32, opFloat64, opString:
	default:
		return s.value(dst, v, p)
	}
	text, err := json.Marshal(v.Interface())
	if err != nil { // NaN and the infinities, which are text
		return s.value(dst, v, p)
	}
	return msgpack.AppendStrBytes(dst, text), nil
}

// otherMap appends a map of any type.
func (s *valuer) otherMap(dst []byte, v reflect.Value, p *plan) ([]byte, error) {
	if v.IsNil() {
		return msgpack.AppendNil(dst), nil
	}
	dst = msgpack.AppendMapHeader(dst, v.Len())
	dst, _, err := s.pairs(dst, v, p)
	return dst, err
}

// pairs appends the pairs of a map without a header, and returns their number.
func (s *valuer) pairs(dst []byte, v reflect.Value, p *plan) ([]byte, int, error) {
	for p.op == opMethod && p.without != nil {
		p = p.without
	}
	n := v.Len()
	if n == 0 {
		return dst, 0, nil
	}
	if p.elem == nil {
		return dst, 0, fmt.Errorf("cannot inline a map of type %s: it writes itself", p.typ)
	}
	if err := s.enter(dst, place{at: v.UnsafePointer()}); err != nil {
		return dst, 0, err
	}
	left := n
	mem := p.maps.get(p, v)
	if mem == nil {
		for iter := v.MapRange(); iter.Next(); left-- {
			if left == 0 {
				return dst, 0, errChanged
			}
			var err error
			if dst, err = s.pair(dst, iter.Key(), iter.Value(), p); err != nil {
				return dst, 0, err
			}
		}
	} else {
		defer p.maps.put(mem)
		for ; mem.iter.Next(); left-- {
			if left == 0 {
				return dst, 0, errChanged
			}
			mem.key.SetIterKey(&mem.iter)
			mem.val.SetIterValue(&mem.iter)
			var err error
			if dst, err = s.pair(dst, mem.key, mem.val, p); err != nil {
				return dst, 0, err
			}
		}
	}
	if left != 0 {
		return dst, 0, errChanged
	}
	s.leave()
	return dst, n, nil
}

// pair appends one pair of a map.
func (s *valuer) pair(dst []byte, k, v reflect.Value, p *plan) ([]byte, error) {
	at := len(dst)
	dst, err := s.key(dst, k, p.keyKind)
	if err == nil {
		dst, err = s.value(dst, v, p.elem)
	}
	if err != nil {
		if t, _, e := msgpack.Next(dst[at:]); e == nil {
			s.in(string(t.Bytes))
		}
		return dst, err
	}
	if len(dst)-s.base > s.limit {
		return dst, s.tooLarge()
	}
	return dst, nil
}

// key appends the key of a map as a string.
func (s *valuer) key(dst []byte, k reflect.Value, kind keyKind) ([]byte, error) {
	var num [24]byte
	switch kind {
	case keyString:
		return msgpack.AppendStr(dst, k.String()), nil
	case keyInt:
		return msgpack.AppendStrBytes(dst, strconv.AppendInt(num[:0], k.Int(), 10)), nil
	case keyUint:
		return msgpack.AppendStrBytes(dst, strconv.AppendUint(num[:0], k.Uint(), 10)), nil
	case keyText:
		if k.Kind() == reflect.Pointer && k.IsNil() {
			return msgpack.AppendStr(dst, ""), nil
		}
		return msgpack.AppendStr(dst, textOf(k.Interface().(encoding.TextMarshaler))), nil
	}
	if k.Kind() == reflect.Interface && !k.IsNil() {
		if t, ok := k.Interface().(encoding.TextMarshaler); ok {
			return msgpack.AppendStr(dst, textOf(t)), nil
		}
	}
	at := len(dst)
	dst, err := s.value(dst, k, planOf(k.Type()))
	if err != nil {
		return dst, err
	}
	t, _, err := msgpack.Next(dst[at:])
	switch {
	case err != nil || t.Kind == msgpack.Str:
		return dst, nil
	case t.Kind == msgpack.Int:
		return msgpack.AppendStrBytes(dst[:at], strconv.AppendInt(num[:0], t.Int64(), 10)), nil
	case t.Kind == msgpack.Uint:
		return msgpack.AppendStrBytes(dst[:at], strconv.AppendUint(num[:0], t.Num, 10)), nil
	case t.Kind == msgpack.Bool:
		return msgpack.AppendStr(dst[:at], strconv.FormatBool(t.Bool)), nil
	}
	text, _, err := msgpack.AppendJSON(nil, dst[at:])
	if err != nil {
		text = []byte("!ERROR: " + err.Error())
	}
	return msgpack.AppendStrBytes(dst[:at], text), nil
}

func number(dst []byte, text string) []byte {
	if text == "" {
		text = "0" // as encoding/json has it
	}
	at := len(dst)
	if out, rest, err := msgpack.AppendFromJSON(dst, unsafe.Slice(unsafe.StringData(text), len(text))); err == nil && len(rest) == 0 {
		if t, _, _ := msgpack.Next(out[at:]); t.Kind >= msgpack.Int && t.Kind <= msgpack.Float64 {
			return out
		}
	}
	return msgpack.AppendStr(dst[:at], text)
}

// rawJSON appends JSON produced by other code.
func (s *valuer) rawJSON(dst, js []byte) []byte {
	if js == nil {
		return msgpack.AppendNil(dst)
	}
	at := len(dst)
	out, rest, err := msgpack.AppendFromJSON(dst, js)
	if err != nil || len(strings.TrimSpace(string(rest))) > 0 {
		return msgpack.AppendStrBytes(dst[:at], js)
	}
	s.passed(out[at:], brackets(js))
	return out
}

// brackets counts what could begin lists and objects in js.
func brackets(js []byte) int { return bytes.Count(js, []byte{'['}) + bytes.Count(js, []byte{'{'}) }
