// Package pattern inserts values of records into texts such as "logs.{app}.{level}". Drivers use it
// for subjects, topics and keys.
package pattern

import (
	"fmt"
	"strings"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/internal/record"
	"github.com/forebay-log/forebay/internal/values"
)

// A Pattern is a text with field names in braces. "{level}" is the level of the record: trace,
// debug, info, warn, error or fatal. Any other name is a member of the record. A name with dots is
// the path to a nested member, unless the record has a member with that exact name.
type Pattern struct {
	text  string
	parts []part
}

// A part of a Pattern is a text or, if the text is empty, a field.
type part struct {
	text  string
	field string
}

// level is the name of the field for the level. Every record has this field.
const level = "level"

// Parse parses a pattern. "{{" and "}}" stand for single braces.
func Parse(text string) (Pattern, error) {
	p := Pattern{text: text}
	var lit strings.Builder
	for rest := text; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			lit.WriteString(rest)
			break
		}
		lit.WriteString(rest[:i])
		if strings.HasPrefix(rest[i:], "{{") || strings.HasPrefix(rest[i:], "}}") {
			lit.WriteByte(rest[i])
			rest = rest[i+2:]
			continue
		}
		if rest[i] == '}' {
			return p, fmt.Errorf("%q: a } has no matching {; write }} for a brace", text)
		}
		name, after, ok := strings.Cut(rest[i+1:], "}")
		switch {
		case !ok:
			return p, fmt.Errorf("%q: a brace is not closed; write {{ for a brace", text)
		case name == "":
			return p, fmt.Errorf("%q: {} has no name; write the name of a field, as in {app}", text)
		case strings.ContainsAny(name, "{"):
			return p, fmt.Errorf("%q: %q is not a field name", text, name)
		}
		p.addText(&lit)
		p.parts = append(p.parts, part{field: name})
		rest = after
	}
	p.addText(&lit)
	return p, nil
}

func (p *Pattern) addText(lit *strings.Builder) {
	if lit.Len() > 0 {
		p.parts = append(p.parts, part{text: lit.String()})
		lit.Reset()
	}
}

// String returns the text of the pattern.
func (p *Pattern) String() string { return p.text }

// Fixed returns the text of a pattern without fields, and true. For a pattern with fields it
// returns false.
func (p *Pattern) Fixed() (string, bool) {
	switch {
	case len(p.parts) == 0:
		return "", true
	case len(p.parts) == 1 && p.parts[0].field == "":
		return p.parts[0].text, true
	}
	return "", false
}

// Texts returns the texts between the fields.
func (p *Pattern) Texts() []string {
	var texts []string
	for _, part := range p.parts {
		if part.field == "" {
			texts = append(texts, part.text)
		}
	}
	return texts
}

// A Filler fills patterns with values of records. It reuses its memory and is not safe for
// concurrent use.
type Filler struct {
	// Clean appends value to dst, changed so that the protocol allows it. Default nil: the value is
	// unchanged.
	Clean func(dst, value []byte) []byte
	// Missing replaces a field that is missing or is not a string, number or boolean. Default "".
	Missing string

	json, value []byte
}

// Append appends p to dst and replaces each field with its value in rec. codec is the codec of the
// batch.
func (f *Filler) Append(dst []byte, p *Pattern, codec batch.Codec, rec *batch.Record) []byte {
	obj, read := []byte(nil), false
	for i := range p.parts {
		part := &p.parts[i]
		switch {
		case part.field == "":
			dst = append(dst, part.text...)
			continue
		case part.field == level:
			dst = append(dst, values.LevelWord(rec.Level)...)
			continue
		case !read:
			obj, read = f.object(codec, rec), true
		}
		value, ok := f.find(obj, part.field)
		switch {
		case !ok:
			dst = append(dst, f.Missing...)
		case f.Clean != nil:
			dst = f.Clean(dst, value)
		default:
			dst = append(dst, value...)
		}
	}
	return dst
}

// object returns rec as a JSON object, or nil if it cannot be converted to one.
func (f *Filler) object(codec batch.Codec, rec *batch.Record) []byte {
	obj := rec.Data
	if codec != nil && codec.ContentType() != "application/x-ndjson" {
		f.json = codec.AppendJSON(f.json[:0], rec.Data, rec.Meta)
		obj = f.json
	}
	if !record.IsObject(obj) {
		return nil
	}
	return obj
}

// find returns, as text, the value of the member of obj with the given name, which may be a path.
// Of several members with the same name it returns the last one. The text is valid until the next
// call.
func (f *Filler) find(obj []byte, name string) (value []byte, ok bool) {
	if obj == nil {
		return nil, false
	}
	for at := record.Space(obj, 0); ; {
		found, inner, rest := []byte(nil), -1, ""
		record.Members(obj, at, func(m record.Member) bool {
			key := record.AppendString(f.value[:0], obj[m.Key:m.KeyEnd])
			if string(key) == name {
				found = obj[m.Value:m.End]
			} else if n := len(key); len(name) > n+1 && name[n] == '.' && name[:n] == string(key) && obj[m.Value] == '{' {
				inner, rest = m.Value, name[n+1:]
			}
			return true
		})
		if found != nil {
			return f.scalar(found)
		}
		if inner < 0 {
			return nil, false
		}
		at, name = inner, rest
	}
}

// scalar returns the text of a JSON value. It returns false for null, a list or an object.
func (f *Filler) scalar(v []byte) (value []byte, ok bool) {
	switch v[0] {
	case '"':
		s := record.AppendString(f.value[:0], v)
		if len(s) > 0 && len(v) != len(s)+2 {
			f.value = s[:0]
		}
		return s, true
	case '{', '[', 'n':
		return []byte{}, false
	}
	return v, true
}

// IsText reports whether the records of codec c are lines of text that can be read without the
// codec. A nil codec means plain lines.
func IsText(c batch.Codec) bool {
	if c == nil {
		return true
	}
	switch c.ContentType() {
	case "", "application/x-ndjson", "application/logfmt", "text/plain":
		return true
	}
	return false
}
