package loki

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// UnmarshalYAML decodes c from YAML. It works with any YAML package that calls a method of this
// form. It fails if there are unknown keys, and the error names them. Fields of c without a key in
// the YAML keep their values.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	var given map[string]any
	if err := unmarshal(&given); err != nil {
		return err
	}
	if unknown := unknownKeys(given, reflect.TypeFor[Config](), ""); len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("loki: config: unknown key %s; the names are those of the fields of loki.Config, in lower case with underscores; memory and delivery are options of the output, such as forebay.Buffer", strings.Join(unknown, ", "))
	}
	type Plain Config // a type without this method
	read := Plain(*c)
	if err := unmarshal(&read); err != nil {
		return err
	}
	*c = Config(read)
	return nil
}

// unknownKeys returns the keys of given that have no field in the struct type t. It includes the
// keys of nested maps. prefix is the enclosing key, followed by a dot, or "".
func unknownKeys(given map[string]any, t reflect.Type, prefix string) (unknown []string) {
	fields := map[string]reflect.Type{}
	addFields(fields, t)
	for key, value := range given {
		f, known := fields[key]
		if !known {
			unknown = append(unknown, prefix+key)
			continue
		}
		if in, ok := value.(map[string]any); ok && f.Kind() == reflect.Struct {
			unknown = append(unknown, unknownKeys(in, f, prefix+key+".")...)
		}
	}
	return unknown
}

// addFields adds the fields of the struct type t to fields, by their YAML keys. Fields of inline
// structs are included.
func addFields(fields map[string]reflect.Type, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		switch name, option, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case option == "inline":
			addFields(fields, f.Type)
		case name != "" && name != "-":
			fields[name] = f.Type
		}
	}
}
