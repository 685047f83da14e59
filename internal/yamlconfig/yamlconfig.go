// Package yamlconfig decodes the Config of a destination from YAML. It rejects unknown keys, and
// accepts the keys of the previous release.
//
//	YAML ─▶ Decode ─▶ Config
//	          │ old key: its value is set under the new name, and a message is printed
//	          │ unknown key: an error that names it
//
// A Config uses it in its method for YAML packages:
//
//	func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
//		return yamlconfig.Decode("loki", unmarshal, c)
//	}
package yamlconfig

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Renamed lists the keys with a new name. An entry is removed after one release.
var Renamed = []struct {
	Config   string // the package of the Config
	Old, New string // including the keys of enclosing maps, such as tls.ca_file
}{
	{"fluent", "tls.accept_any_certificate", "tls.insecure_skip_verify"},
	{"loki", "nudge", "unique_times"},
}

// Decode decodes the Config of a package. config is a pointer to the Config, and unmarshal is the
// argument of the method UnmarshalYAML of the Config. Fields without a key keep their values.
func Decode(pkg string, unmarshal func(any) error, config any) error {
	var given map[string]any
	if err := unmarshal(&given); err != nil {
		return err
	}
	c := reflect.ValueOf(config).Elem()
	l := layoutOf(pkg, "", c.Type())
	if unknown := l.unknownKeys(given); len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("%s: config: unknown key %s; the names are those of the fields of %s.Config, in lower case with underscores; memory and delivery are options of the output, such as forebay.Buffer",
			pkg, strings.Join(unknown, ", "), pkg)
	}
	read := reflect.New(l.typ)
	l.load(read.Elem(), c)
	if err := unmarshal(read.Interface()); err != nil {
		return err
	}
	l.store(read.Elem(), c, given, func(old, now string) {
		fmt.Fprintf(os.Stderr, "%s: config: %s is now %s; the old name works until the next release\n", pkg, old, now)
	})
	return nil
}

// A layout describes the keys of a struct. The YAML package fills a value of its type, which has a
// field for each key and for each old name. Inline structs are expanded.
type layout struct {
	typ    reflect.Type
	prefix string  // the keys of the enclosing maps, each with a dot
	fields []field // in the order of the fields of typ
}

type field struct {
	key   string
	now   string  // the new name, if key is an old one
	index []int   // index of the field in the struct
	inner *layout // layout of a nested struct
}

func layoutOf(pkg, prefix string, t reflect.Type) *layout {
	l := &layout{prefix: prefix}
	var typed []reflect.StructField
	add := func(f field, name string, t reflect.Type) {
		l.fields = append(l.fields, f)
		typed = append(typed, reflect.StructField{Name: name, Type: t, Tag: reflect.StructTag(`yaml:"` + f.key + `"`)})
	}
	var expand func(t reflect.Type, index []int)
	expand = func(t reflect.Type, index []int) {
		for i := range t.NumField() {
			sf := t.Field(i)
			at := append(slices.Clip(index), i)
			switch key, option, _ := strings.Cut(sf.Tag.Get("yaml"), ","); {
			case option == "inline":
				expand(sf.Type, at)
			case key == "" || key == "-":
			default:
				f, typ := field{key: key, index: at}, sf.Type
				if typ.Kind() == reflect.Struct {
					f.inner = layoutOf(pkg, prefix+key+".", typ)
					typ = f.inner.typ
				}
				add(f, sf.Name, typ)
				for _, r := range Renamed {
					if old, ok := strings.CutPrefix(r.Old, prefix); ok && r.Config == pkg && r.New == prefix+key {
						f.key, f.now = old, r.New
						add(f, "Old"+sf.Name, typ)
					}
				}
			}
		}
	}
	expand(t, nil)
	l.typ = reflect.StructOf(typed)
	return l
}

// unknownKeys returns the keys in the map given that are not in l.
func (l *layout) unknownKeys(given map[string]any) (keys []string) {
	for key, value := range given {
		i := slices.IndexFunc(l.fields, func(f field) bool { return f.key == key })
		if i < 0 {
			keys = append(keys, l.prefix+key)
		} else if in, ok := value.(map[string]any); ok && l.fields[i].inner != nil {
			keys = append(keys, l.fields[i].inner.unknownKeys(in)...)
		}
	}
	return keys
}

// load sets dst, of type l.typ, to the values of the struct src.
func (l *layout) load(dst, src reflect.Value) {
	for i, f := range l.fields {
		if f.inner != nil {
			f.inner.load(dst.Field(i), src.FieldByIndex(f.index))
		} else {
			dst.Field(i).Set(src.FieldByIndex(f.index))
		}
	}
}

// store sets the struct dst to the values of src, of type l.typ. It calls the function renamed for
// each old name in given. If the new name is also given, its value is used.
func (l *layout) store(src, dst reflect.Value, given map[string]any, renamed func(old, now string)) {
	for i, f := range l.fields {
		value, ok := given[f.key]
		if f.now != "" {
			if !ok {
				continue
			}
			renamed(l.prefix+f.key, f.now)
			if _, ok := given[strings.TrimPrefix(f.now, l.prefix)]; ok {
				continue
			}
		}
		if f.inner != nil {
			in, _ := value.(map[string]any)
			f.inner.store(src.Field(i), dst.FieldByIndex(f.index), in, renamed)
		} else {
			dst.FieldByIndex(f.index).Set(src.Field(i))
		}
	}
}
