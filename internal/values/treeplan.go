package values

import (
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/jsonfield"
	"github.com/forebay-log/forebay/internal/jsontext"
)

// A treeOp specifies how a [tree] writes the values of a type.
type treeOp uint8

const (
	treeByKind treeOp = iota // by kind
	treeTime
	treeDuration
	treeLevel
	treeUUID
	treeSlog     // slog.Value
	treeValuer   // result of LogValue
	treeAppender // result of AppendAttrs
	treeError
	treeMethod // result of a method for JSON or text
)

// asked marks the ops whose methods should be called once per record.
var asked = [...]bool{treeSlog: true, treeValuer: true, treeAppender: true, treeError: true, treeMethod: false}

// A treePlan specifies how a [tree] writes the values of a type. It is made once per type.
type treePlan struct {
	op     treeOp // for values without an address
	addrOp treeOp // for addressable values, which can have more methods
	bytes  bool   // a slice written in base64
	needed bool   // contains, or may contain, a value written differently from encoding/json
	asks   bool   // contains, or may contain, values with methods called by treeValuer, treeAppender or treeError
	elem   *treePlan
	fields []treeField
}

type treeField struct {
	name        string
	key         string // `"name":`
	index       []int  // path from the outer struct
	plan        *treePlan
	omitEmpty   bool
	omitZero    bool
	quote       bool // a number or bool to be written as a string
	quoteString bool // a string to be quoted twice
	tagged      bool
}

func (f *treeField) jsonName() (jsonfield.Name, bool) {
	return jsonfield.Name{Name: f.name, Depth: len(f.index), Tagged: f.tagged}, true
}

var (
	treePlans    sync.Map // reflect.Type → *treePlan
	treePlanning sync.Mutex

	errorIface    = reflect.TypeFor[error]()
	valuerType    = reflect.TypeFor[slog.LogValuer]()
	slogValueType = reflect.TypeFor[slog.Value]()
	timeType      = reflect.TypeFor[time.Time]()
	durationType  = reflect.TypeFor[time.Duration]()
	levelType     = reflect.TypeFor[slog.Level]()
)

func treeOf(t reflect.Type) *treePlan {
	if p, ok := treePlans.Load(t); ok {
		return p.(*treePlan)
	}
	treePlanning.Lock()
	defer treePlanning.Unlock()
	made := treePlanner{}
	p := made.plan(t)
	for changed := true; changed; {
		changed = false
		for _, p := range made {
			changed = p.learn() || changed
		}
	}
	for t, p := range made {
		treePlans.LoadOrStore(t, p)
	}
	return p
}

// A treePlanner makes the plans of a type and of the types in it. Types may be recursive: a
// plan is registered before it is complete, and published afterwards.
type treePlanner map[reflect.Type]*treePlan

// learn updates the properties of p from its elements. It reports whether they
// changed.
func (p *treePlan) learn() bool {
	if p.op > treeByKind && p.addrOp > treeByKind {
		return false // its elements are not examined
	}
	needed, asks := p.needed, p.asks
	if p.elem != nil {
		needed, asks = needed || p.elem.needed, asks || p.elem.asks
	}
	for i := range p.fields {
		f := p.fields[i].plan
		needed, asks = needed || f.needed, asks || f.asks
	}
	news := needed != p.needed || asks != p.asks
	p.needed, p.asks = needed, asks
	return news
}

func (b treePlanner) plan(t reflect.Type) *treePlan {
	if p, ok := treePlans.Load(t); ok {
		return p.(*treePlan)
	}
	if p, ok := b[t]; ok {
		return p
	}
	p := new(treePlan)
	b[t] = p
	p.op, p.addrOp = opsOf(t)
	p.asks = asked[p.op] || asked[p.addrOp]
	p.needed = p.asks || p.op > treeByKind && p.op < treeMethod
	switch t.Kind() {
	case reflect.Interface:
		p.needed, p.asks = true, true
	case reflect.Pointer, reflect.Array, reflect.Map:
		p.elem = b.plan(t.Elem())
	case reflect.Slice:
		p.elem = b.plan(t.Elem())
		p.bytes = t.Elem().Kind() == reflect.Uint8 && p.elem.op == treeByKind && p.elem.addrOp == treeByKind
	case reflect.Struct:
		b.structure(p, t)
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		p.needed = true // encoding/json would reject the entire value
	}
	return p
}

// opsOf returns the ops of t for values without an address and with one.
func opsOf(t reflect.Type) (op, addrOp treeOp) {
	own := t
	if t.Kind() == reflect.Pointer {
		own = t.Elem()
	}
	switch {
	case own == timeType:
		op = treeTime
	case own == durationType:
		op = treeDuration
	case own == levelType:
		op = treeLevel
	case own == slogValueType:
		op = treeSlog
	case uuidType(own):
		op = treeUUID
	case t.Kind() == reflect.Interface:
		return treeByKind, treeByKind
	case t.Kind() == reflect.Pointer:
		op = methodOf(t)
		return op, op
	default:
		return methodOf(t), methodOf(reflect.PointerTo(t))
	}
	if own != t {
		op = treeByKind // the target has the op
	}
	return op, op
}

// methodOf returns the op of the method that writes values of t.
func methodOf(t reflect.Type) treeOp {
	switch {
	case t.Implements(valuerType):
		return treeValuer
	case t.Implements(appenderType):
		return treeAppender
	case t.Implements(errorIface):
		return treeError
	case t.Implements(jsonType), t.Implements(textType):
		return treeMethod
	}
	return treeByKind
}

// structure determines the fields of t by the rules of encoding/json: fields of embedded
// structs are promoted.
func (b treePlanner) structure(p *treePlan, t reflect.Type) {
	var all []treeField
	b.collect(t, nil, map[reflect.Type]bool{}, &all)
	for _, i := range jsonfield.Visible(all, (*treeField).jsonName) {
		f := &all[i]
		f.key = jsontext.Key(f.name)
		f.plan = b.plan(t.FieldByIndex(f.index).Type)
		p.fields = append(p.fields, *f)
	}
}

func (b treePlanner) collect(t reflect.Type, index []int, within map[reflect.Type]bool, all *[]treeField) {
	if within[t] {
		return // a struct embedded in itself adds nothing
	}
	within[t] = true
	defer delete(within, t)
	for i := range t.NumField() {
		f := t.Field(i)
		ft := f.Type
		if f.Anonymous {
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			if !f.IsExported() && ft.Kind() != reflect.Struct {
				continue
			}
		} else if !f.IsExported() {
			continue
		}
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if !jsonfield.ValidName(name) {
			name = ""
		}
		path := append(slices.Clone(index), i)
		if name == "" && f.Anonymous && ft.Kind() == reflect.Struct {
			b.collect(ft, path, within, all)
			continue
		}
		field := treeField{name: name, index: path, tagged: name != ""}
		if name == "" {
			field.name = f.Name
		}
		for o := range strings.SplitSeq(options, ",") {
			switch o {
			case "omitempty":
				field.omitEmpty = true
			case "omitzero":
				field.omitZero = true
			case "string":
				if ft = f.Type; ft.Name() == "" && ft.Kind() == reflect.Pointer {
					ft = ft.Elem()
				}
				op, _ := opsOf(ft)
				switch k := ft.Kind(); {
				case op >= treeSlog:
				case k == reflect.String && ft != numberType:
					field.quoteString = true
				case k >= reflect.Bool && k <= reflect.Float64, k == reflect.String:
					field.quote = true
				}
			}
		}
		*all = append(*all, field)
	}
}
