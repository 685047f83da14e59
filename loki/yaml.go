package loki

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
)

// UnmarshalYAML decodes c from YAML. It works with any YAML package that calls a method of
// this form. Unknown keys are an error that names them. Fields of c without a key keep
// their values.
func (c *Config) UnmarshalYAML(unmarshal func(any) error) error {
	var given map[string]any
	if err := unmarshal(&given); err != nil {
		return err
	}
	if unknown := unknownKeys(given, reflect.TypeFor[Config](), ""); len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("loki: config: unknown key %s; the names are those of the fields of loki.Config, in lower case with underscores", strings.Join(unknown, ", "))
	}
	type Plain Config // without this method
	read := struct {
		Plain `yaml:",inline"`
		Level string `yaml:"level"`
	}{Plain: Plain(*c)}
	if err := unmarshal(&read); err != nil {
		return err
	}
	if read.Level != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(read.Level)); err != nil {
			return fmt.Errorf("loki: config: level is %q; use debug, info, warn or error, such as info+2", read.Level)
		}
		read.Plain.Level = level
	}
	*c = Config(read.Plain)
	return nil
}

// unknownKeys returns the keys of given that t, a struct, has no field for.
func unknownKeys(given map[string]any, t reflect.Type, within string) (unknown []string) {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	if t == reflect.TypeFor[Config]() {
		fields["level"] = reflect.TypeFor[string]()
	}
	for key, value := range given {
		f, known := fields[key]
		if !known {
			unknown = append(unknown, within+key)
			continue
		}
		if f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		if in, ok := value.(map[string]any); ok && f.Kind() == reflect.Struct {
			unknown = append(unknown, unknownKeys(in, f, within+key+".")...)
		}
	}
	return unknown
}
