package fluent

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/jsonfield"
	"github.com/forebay-log/forebay/internal/msgpack"
	"github.com/forebay-log/forebay/internal/values"
)

// A marshaler appends itself as MessagePack, as the code that tinylib/msgp
// generates does.
type marshaler interface {
	MarshalMsg(dst []byte) ([]byte, error)
}

// op is how the values of a type are written.
type op uint8

const (
	opUnsupported op = iota
	opBool
	opInt
	opUint
	opFloat32
	opFloat64
	opComplex
	opString
	opBytes
	opSlice
	opArray
	opAnyMap    // map[string]any
	opStringMap // map[string]string
	opMap       // any other
	opStruct
	opPointer
	opInterface
	opTime
	opNumber // json.Number
	opRaw    // json.RawMessage
	opAttr   // slog.Value
	opMethod // see plan.method
)

// method is the method that writes a type with op opMethod.
type method uint8

const (
	noMethod method = iota
	marshalMsg
	logValue
	appendAttrs
	marshalJSON
	marshalText
	errorText
	stringText
)

// A plan is how to write the values of one type; it is made once per type.
type plan struct {
	op      op
	method  method
	byAddr  bool // the method has a pointer receiver: without an address, without says how
	without *plan
	typ     reflect.Type
	elem    *plan
	keyKind keyKind
	maps    *mapMemories // of opMap
	fields  []field
	fixed   bool // a struct that always has all its fields
}

type field struct {
	key       []byte // encoded
	name      string
	index     []int // path from the outer struct
	plan      *plan
	omitEmpty bool
	omitZero  bool
	quote     bool // encoding/json's ",string"
	inlineMap bool
	hidden    bool // an embedded interface whose name is not exported

	// direct is the kind of a field that can be read where it lies, offset bytes
	// from the beginning of the struct; reflect.Invalid: it cannot.
	direct reflect.Kind
	offset uintptr
}

// keyKind is how the keys of a map become strings.
type keyKind uint8

const (
	keyString keyKind = iota
	keyText           // encoding.TextMarshaler
	keyInt
	keyUint
	keyOther // as the text of the value
)

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	numberType   = reflect.TypeFor[json.Number]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	attrType     = reflect.TypeFor[slog.Value]()
	errorType    = reflect.TypeFor[error]()
	textType     = reflect.TypeFor[encoding.TextMarshaler]()
	zeroerType   = reflect.TypeFor[zeroer]()
)

// A zeroer says itself whether it is zero.
type zeroer interface{ IsZero() bool }

var methods = []struct {
	m method
	t reflect.Type
}{
	{marshalMsg, reflect.TypeFor[marshaler]()},
	{logValue, reflect.TypeFor[slog.LogValuer]()},
	{appendAttrs, reflect.TypeFor[values.AttrAppender]()},
	{marshalJSON, reflect.TypeFor[json.Marshaler]()},
	{marshalText, textType},
	{errorText, reflect.TypeFor[error]()},
	{stringText, reflect.TypeFor[fmt.Stringer]()},
}

var (
	plans    sync.Map   // reflect.Type → *plan
	planning sync.Mutex // held while a plan is made
)

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	planning.Lock()
	defer planning.Unlock()
	b := planner{made: map[reflect.Type]*plan{}}
	p := b.plan(t)
	for t, p := range b.made {
		plans.LoadOrStore(t, p)
	}
	return p
}

// A planner makes the plans of a type and of all within it. Types may contain
// themselves: a plan is known before it is complete, and published after.
type planner struct{ made map[reflect.Type]*plan }

func (b *planner) plan(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	if p, ok := b.made[t]; ok {
		return p
	}
	p := &plan{typ: t}
	b.made[t] = p
	switch t {
	case timeType:
		p.op = opTime
		return p
	case durationType:
		p.op = opInt
		return p
	case numberType:
		p.op = opNumber
		return p
	case rawType:
		p.op = opRaw
		return p
	case attrType:
		p.op = opAttr
		return p
	}
	b.byMethod(p, t, 0)
	return p
}

// byMethod fills p with the first of methods[from:] that t has, or by its kind.
func (b *planner) byMethod(p *plan, t reflect.Type, from int) {
	if k := t.Kind(); k == reflect.Pointer || k == reflect.Interface {
		from = len(methods)
	}
	for i, m := range methods[from:] {
		byAddr := !t.Implements(m.t)
		if byAddr && !reflect.PointerTo(t).Implements(m.t) || inherited(t, m.m) {
			continue
		}
		p.op, p.method, p.byAddr = opMethod, m.m, byAddr
		p.without = &plan{typ: t}
		if byAddr { // without an address another method may do
			b.byMethod(p.without, t, from+i+1)
		} else {
			b.byKind(p.without, t)
		}
		return
	}
	b.byKind(p, t)
}

// inherited reports whether t is a struct that has its Error or String from an
// interface that is embedded in it, beside fields of its own: as in encoding/json
// it is then a struct. The text of the interface is one of its fields, see
// collect.
func inherited(t reflect.Type, m method) bool {
	if m != errorText && m != stringText || t.Kind() != reflect.Struct || t.NumField() < 2 {
		return false
	}
	embeds, own := false, false
	for f := range t.Fields() {
		if f.Anonymous && f.Type.Kind() == reflect.Interface {
			embeds = embeds || f.Type.Implements(methods[m-marshalMsg].t)
		} else {
			own = own || f.IsExported()
		}
	}
	return embeds && own
}

// byKind fills p without a look at t's methods.
func (b *planner) byKind(p *plan, t reflect.Type) {
	switch t.Kind() {
	case reflect.Bool:
		p.op = opBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.op = opInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		p.op = opUint
	case reflect.Float32:
		p.op = opFloat32
	case reflect.Float64:
		p.op = opFloat64
	case reflect.Complex64, reflect.Complex128:
		p.op = opComplex
	case reflect.String:
		p.op = opString
	case reflect.Slice:
		if p.elem = b.plan(t.Elem()); t.Elem().Kind() == reflect.Uint8 && p.elem.op == opUint {
			p.op = opBytes
			return
		}
		p.op = opSlice
	case reflect.Array:
		p.op, p.elem = opArray, b.plan(t.Elem())
	case reflect.Pointer:
		p.op, p.elem = opPointer, b.plan(t.Elem())
	case reflect.Interface:
		p.op = opInterface
	case reflect.Map:
		b.mapPlan(p, t)
	case reflect.Struct:
		p.op = opStruct
		b.structPlan(p, t)
	}
}

func (b *planner) mapPlan(p *plan, t reflect.Type) {
	p.op, p.elem, p.maps = opMap, b.plan(t.Elem()), new(mapMemories)
	k := t.Key()
	switch {
	case k.Kind() == reflect.String: // as it is, as encoding/json has it, also one with MarshalText
		p.keyKind = keyString
		if k == reflect.TypeFor[string]() && t.Elem() == reflect.TypeFor[any]() {
			p.op = opAnyMap
		} else if k == reflect.TypeFor[string]() && t.Elem() == reflect.TypeFor[string]() {
			p.op = opStringMap
		}
	case k.Implements(textType):
		p.keyKind = keyText
	case k.Kind() >= reflect.Int && k.Kind() <= reflect.Int64:
		p.keyKind = keyInt
	case k.Kind() >= reflect.Uint && k.Kind() <= reflect.Uintptr:
		p.keyKind = keyUint
	default:
		p.keyKind = keyOther
	}
}

// tagKeys are the struct tags that are looked at; the first that is there counts.
var tagKeys = []string{"fluent", "msgpack", "msg", "codec", "json"}

type tag struct {
	name                               string
	skip, named                        bool
	omitEmpty, omitZero, inline, quote bool
	noInline                           bool
}

func parseTag(f *reflect.StructField) (t tag) {
	var text string
	var from string
	for _, key := range tagKeys {
		var ok bool
		if text, ok = f.Tag.Lookup(key); ok {
			from = key
			break
		}
	}
	if text == "-" {
		return tag{skip: true}
	}
	name, opts, _ := strings.Cut(text, ",")
	t.name, t.named = name, name != ""
	for o := range strings.SplitSeq(opts, ",") {
		switch o {
		case "omitempty":
			t.omitEmpty = true
		case "omitzero":
			t.omitZero = true
		case "inline", "flatten":
			t.inline = true
		case "noinline":
			t.noInline = true
		case "string":
			t.quote = from == "json"
		}
	}
	if t.named && from == "json" && !jsonfield.ValidName(name) {
		t.named = false
	}
	if !t.named {
		t.name = f.Name
	}
	return t
}

// candidate is a field on its way into a struct's plan.
type candidate struct {
	field
	tagged bool
}

func (c *candidate) jsonName() (jsonfield.Name, bool) {
	return jsonfield.Name{Name: c.name, Depth: len(c.index), Tagged: c.tagged}, !c.inlineMap
}

// structPlan finds the fields of t by the rules of encoding/json: those of
// embedded structs count as t's own.
func (b *planner) structPlan(p *plan, t reflect.Type) {
	var all []candidate
	b.collect(t, nil, map[reflect.Type]bool{}, &all)
	p.fixed = true
	for _, i := range jsonfield.Visible(all, (*candidate).jsonName) {
		c := &all[i]
		if c.omitEmpty || c.omitZero || c.inlineMap || b.throughPointer(t, c.index) {
			p.fixed = false
		}
		p.fields = append(p.fields, c.field)
	}
}

// throughPointer reports whether the way to a field leads through a pointer.
func (b *planner) throughPointer(t reflect.Type, index []int) bool {
	for _, i := range index[:len(index)-1] {
		t = t.Field(i).Type
		if t.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

func (b *planner) collect(t reflect.Type, index []int, within map[reflect.Type]bool, all *[]candidate) {
	if within[t] {
		return // a struct embedded in itself adds nothing
	}
	within[t] = true
	defer delete(within, t)
	for i := range t.NumField() {
		f := t.Field(i)
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if f.Anonymous {
			if k := ft.Kind(); !f.IsExported() && k != reflect.Struct && !(k == reflect.Interface && f.Type.Implements(errorType)) {
				continue
			}
		} else if !f.IsExported() {
			continue
		}
		tg := parseTag(&f)
		if tg.skip {
			continue
		}
		path := append(slices.Clone(index), i)
		isStruct := ft.Kind() == reflect.Struct && ft != timeType
		if isStruct && !tg.noInline && (f.Anonymous && !tg.named || tg.inline) {
			b.collect(ft, path, within, all)
			continue
		}
		hidden := !f.IsExported() && ft.Kind() == reflect.Interface
		if hidden && (len(path) > 1 || f.Type.Kind() == reflect.Pointer) {
			continue // out of reach
		}
		c := candidate{tagged: tg.named, field: field{
			name: tg.name, index: path, plan: b.plan(f.Type), hidden: hidden, omitEmpty: tg.omitEmpty || hidden, omitZero: tg.omitZero,
		}}
		c.key = msgpack.AppendStr(nil, tg.name)
		if len(path) == 1 {
			c.offset = f.Offset
		}
		if k := ft.Kind(); tg.quote && (k >= reflect.Bool && k <= reflect.Float64 || k == reflect.String) {
			c.quote = f.Type.Kind() != reflect.Pointer || f.Type.Name() == ""
		}
		c.inlineMap = tg.inline && f.Type.Kind() == reflect.Map
		if len(path) == 1 && !c.quote && !c.omitZero {
			switch k := f.Type.Kind(); {
			case c.plan.op == opString, c.plan.op == opBool, c.plan.op == opFloat64,
				c.plan.op == opInt && (k == reflect.Int || k == reflect.Int64):
				c.direct = k
			}
		}
		*all = append(*all, c)
	}
}
