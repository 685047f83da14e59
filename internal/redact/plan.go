package redact

import (
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebay-log/forebay/internal/jsonfield"
	"github.com/forebay-log/forebay/internal/values"
)

// methods is the set of methods through which encoders may write a value other than by its
// kind.
type methods uint16

const (
	marshalJSON methods = 1 << iota
	marshalText
	errorText
	stringText
	formatted
	logValue
	appendAttrs
	marshalMsg
)

// A msgMarshaler encodes itself as MessagePack, for package fluent.
type msgMarshaler interface {
	MarshalMsg(dst []byte) ([]byte, error)
}

var methodTypes = []struct {
	m methods
	t reflect.Type
}{
	{marshalJSON, reflect.TypeFor[json.Marshaler]()},
	{marshalText, reflect.TypeFor[encoding.TextMarshaler]()},
	{errorText, errorType},
	{stringText, reflect.TypeFor[fmt.Stringer]()},
	{formatted, reflect.TypeFor[fmt.Formatter]()},
	{logValue, reflect.TypeFor[slog.LogValuer]()},
	{appendAttrs, appenderType},
	{marshalMsg, reflect.TypeFor[msgMarshaler]()},
}

var (
	errorType = reflect.TypeFor[error]()
	textType  = reflect.TypeFor[encoding.TextMarshaler]()
	attrType  = reflect.TypeFor[slog.Attr]()
	valueType = reflect.TypeFor[slog.Value]()
	anyType   = reflect.TypeFor[any]()

	appenderType = reflect.TypeFor[values.AttrAppender]()

	// harmless are types whose methods never reveal a secret.
	harmless = []reflect.Type{reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration](), reflect.TypeFor[slog.Level]()}
)

func methodsOf(t reflect.Type) (ms methods) {
	for _, m := range methodTypes {
		if t.Implements(m.t) {
			ms |= m.m
		}
	}
	return ms
}

// A plan holds the properties of a type under some rules.
type plan struct {
	typ     reflect.Type
	kind    reflect.Kind
	bytes   bool    // a slice or an array of bytes
	own     methods // the type's methods
	all     methods // including those with a pointer receiver
	embeds  bool    // a struct that embeds an interface, through which it may be an error
	suspect bool    // a rule may match in it; until elements are examined, in the type alone
	elem    *plan   // element of a pointer, slice, array or map
	fields  []field

	once sync.Once
	made reflect.Type // the twin of a struct
}

// A field is a field of a struct, including promoted ones, that some encoder may write.
type field struct {
	*plan
	index     []int
	names     []string // names in the encoders and in the program
	name      string   // in JSON
	tag       reflect.StructTag
	hit       bool // a key is one of its names
	inJSON    bool
	tagged    bool // name comes from a tag
	hidden    bool // an embedded interface of an unexported type
	omitEmpty bool
	omitZero  bool
	quote     bool // the string option
	at        int  // index in the twin; -1: left out
}

func (f *field) jsonName() (jsonfield.Name, bool) {
	return jsonfield.Name{Name: f.name, Depth: len(f.index), Tagged: f.tagged}, f.inJSON
}

// makePlan makes the plans of t and of all types in it. Types may be recursive: a plan is
// registered before it is complete, and published afterwards.
func (r *Rules) makePlan(t reflect.Type) *plan {
	r.planning.Lock()
	defer r.planning.Unlock()
	b := planner{r, map[reflect.Type]*plan{}}
	p := b.plan(t)
	for news := true; news; {
		news = false
		for _, p := range b.made {
			news = p.learn() || news
		}
	}
	for t, p := range b.made {
		r.plans.Store(t, p)
	}
	return p
}

// learn updates p from its elements. It reports whether p changed.
func (p *plan) learn() bool {
	if p.suspect {
		return false
	}
	p.suspect = p.elem != nil && p.elem.suspect || slices.ContainsFunc(p.fields, func(f field) bool { return f.suspect })
	return p.suspect
}

type planner struct {
	r    *Rules
	made map[reflect.Type]*plan
}

func (b planner) plan(t reflect.Type) *plan {
	if p, ok := b.r.plans.Load(t); ok {
		return p.(*plan)
	}
	if p, ok := b.made[t]; ok {
		return p
	}
	p := &plan{typ: t, kind: t.Kind()}
	b.made[t] = p
	if slices.Contains(harmless, t) {
		p.kind = reflect.Invalid
		return p
	}
	if t == attrType || t == valueType {
		p.suspect = true
		return p
	}
	if p.kind != reflect.Interface && p.kind != reflect.Pointer {
		p.own = methodsOf(t)
		p.all = p.own | methodsOf(reflect.PointerTo(t))
		p.suspect = p.all != 0
	}
	switch p.kind {
	case reflect.Interface, reflect.String:
		p.suspect = true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64:
		p.suspect = p.suspect || len(b.r.patterns) > 0
	case reflect.Map:
		p.suspect, p.elem = true, b.plan(t.Elem())
	case reflect.Pointer:
		p.elem = b.plan(t.Elem())
	case reflect.Slice, reflect.Array:
		p.elem = b.plan(t.Elem())
		p.bytes = t.Elem().Kind() == reflect.Uint8 && p.elem.all == 0
		p.suspect = p.suspect || p.bytes || b.r.stars
	case reflect.Struct:
		b.structure(p)
	}
	if !b.r.values() { // functions see attributes only
		p.suspect = p.all&appendAttrs != 0 || t.Implements(appenderType)
	}
	return p
}

// structure determines the fields of a struct by the rules of encoding/json and of package
// fluent, including every field that either writes.
func (b planner) structure(p *plan) {
	b.collect(p, p.typ, nil, map[reflect.Type]bool{})
	for i := range p.fields {
		f := &p.fields[i]
		f.at = -1
		f.hit = slices.ContainsFunc(f.names, func(name string) bool {
			return slices.ContainsFunc(strings.Split(name, "."), func(part string) bool { return b.r.hits(fold(nil, part)) })
		})
		p.suspect = p.suspect || slices.ContainsFunc(f.names, b.r.may)
	}
}

// tagNames appends the names in all tags of a field, whatever their purpose, since other
// encoders may use them.
func tagNames(names []string, tag reflect.StructTag) []string {
	rest := string(tag)
	for {
		key, value, ok := strings.Cut(strings.TrimLeft(rest, " "), ":")
		if !ok {
			return names
		}
		quoted, err := strconv.QuotedPrefix(value)
		if err != nil {
			return names
		}
		rest = value[len(quoted):]
		text, _ := strconv.Unquote(quoted)
		name, _, _ := strings.Cut(text, ",")
		if name != "" && name != "-" && (key != "json" || jsonfield.ValidName(name)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
}

// tagKeys are the tags that package fluent reads; the first one present wins.
var tagKeys = []string{"fluent", "msgpack", "msg", "codec", "json"}

func (b planner) collect(p *plan, t reflect.Type, index []int, within map[reflect.Type]bool) {
	if within[t] {
		return // a struct embedded in itself adds nothing
	}
	within[t] = true
	defer delete(within, t)
	for i := range t.NumField() {
		sf := t.Field(i)
		ft := sf.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		f := field{index: append(slices.Clone(index), i), tag: sf.Tag, name: sf.Name, names: []string{sf.Name}}
		if sf.Anonymous {
			p.embeds = p.embeds || ft.Kind() == reflect.Interface
		}
		if !sf.IsExported() {
			f.hidden = sf.Anonymous && sf.Type.Kind() == reflect.Interface && len(index) == 0
			if !f.hidden && !(sf.Anonymous && ft.Kind() == reflect.Struct) {
				continue
			}
		}
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		f.inJSON = tag != "-" && !f.hidden
		if jsonfield.ValidName(name) && f.inJSON {
			f.name, f.tagged = name, true
		}
		f.names = tagNames(f.names, sf.Tag)
		shown := f.inJSON
		for _, key := range tagKeys {
			if text, ok := sf.Tag.Lookup(key); ok {
				shown = shown || text != "-"
				break
			}
		}
		if !shown && !f.hidden {
			continue
		}
		if sf.Anonymous && ft.Kind() == reflect.Struct && !f.tagged && f.inJSON {
			b.collect(p, ft, f.index, within)
			continue
		}
		if sf.Anonymous && !sf.IsExported() && !f.hidden {
			continue // a struct with an inaccessible name
		}
		for o := range strings.SplitSeq(options, ",") {
			switch o {
			case "omitempty":
				f.omitEmpty = true
			case "omitzero":
				f.omitZero = true
			case "string":
				f.quote = true
			}
		}
		f.plan = b.plan(sf.Type)
		p.fields = append(p.fields, f)
	}
}

// twin returns the type that replaces a struct when a value in it changes: the same fields,
// each of type any.
func (p *plan) twin() reflect.Type {
	p.once.Do(func() {
		var fields []reflect.StructField
		taken := map[string]bool{}
		for _, i := range jsonfield.Visible(p.fields, (*field).jsonName) {
			f := &p.fields[i]
			name := f.names[0]
			if f.hidden {
				name = "Hidden"
			}
			for taken[name] {
				name += "_"
			}
			taken[name] = true
			f.at = len(fields)
			fields = append(fields, reflect.StructField{Name: name, Type: anyType, Tag: f.twinTag()})
		}
		p.made = reflect.StructOf(fields)
	})
	return p.made
}

// twinTag returns the tag of the field in the twin.
func (f *field) twinTag() reflect.StructTag {
	var tags []string
	tag := func(key, text string) { tags = append(tags, key+":"+strconv.Quote(text)) }
	for _, key := range tagKeys[:len(tagKeys)-1] {
		if text, ok := f.tag.Lookup(key); ok {
			tag(key, text)
		}
	}
	switch {
	case f.hidden:
		tag("json", "-")
		tag("fluent", f.names[0]+",omitempty")
	case !f.inJSON:
		tag("json", "-")
	default:
		text := f.name + ","
		if f.omitEmpty || len(f.index) > 1 { // the path to it may contain a nil pointer
			text += "omitempty,"
		}
		if f.omitZero {
			text += "omitzero,"
		}
		if text = text[:len(text)-1]; text == "-" {
			text = "-,"
		}
		tag("json", text)
	}
	return reflect.StructTag(strings.Join(tags, " "))
}
