package record

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// maxGroups limits the nesting of objects whose names become prefixes. More deeply nested objects
// are written as JSON text, like lists.
const maxGroups = 100

// A flattener writes the members of objects as logfmt pairs. It does not allocate memory once its
// buffers have grown. The names of the members of a nested object have the name of the object and a
// dot as their prefix. A list is written as its JSON text. It is not safe for concurrent use.
type flattener struct {
	prefix []byte // names of the open objects, each followed by a dot
	text   []byte // the result of unescaped
	// number of open objects
	depth int
}

// append appends the members of the valid object at b[i:], each followed by a space, and returns
// the index after the object.
func (f *flattener) append(dst, b []byte, i int) ([]byte, int) {
	for i = nonSpace(b, i+1); b[i] != '}'; {
		if b[i] == ',' {
			i = nonSpace(b, i+1)
		}
		key, form, next := stringAt(b, i+1)
		i = nonSpace(b, nonSpace(b, next)+1) // the colon
		switch b[i] {
		case '"':
			var value []byte
			dst = f.key(dst, key, form)
			value, form, i = stringAt(b, i+1)
			switch form {
			case plain:
				dst = append(dst, value...)
			case spaced:
				dst = append(append(append(dst, '"'), value...), '"')
			default:
				dst = jsontext.AppendText(dst, asString(f.unescaped(value, form)))
			}
		case '{':
			if b[nonSpace(b, i+1)] != '}' && f.depth < maxGroups {
				open := len(f.prefix)
				if key = f.unescaped(key, form); len(key) > 0 {
					f.prefix = append(jsontext.AppendName(f.prefix, asString(key)), '.')
				}
				f.depth++
				dst, i = f.append(dst, b, i)
				f.depth--
				f.prefix = f.prefix[:open]
				i = nonSpace(b, i)
				continue
			}
			fallthrough
		case '[':
			end := skip(b, i)
			dst = jsontext.AppendText(f.key(dst, key, form), asString(b[i:end]))
			i = end
		default: // a number, true, false or null
			end := skip(b, i)
			dst = append(f.key(dst, key, form), b[i:end]...)
			i = end
		}
		dst = append(dst, ' ')
		i = nonSpace(b, i)
	}
	return dst, i + 1
}

// key appends the name of a member with its prefix and '='.
func (f *flattener) key(dst, key []byte, form form) []byte {
	dst = append(dst, f.prefix...)
	if form == plain {
		dst = append(dst, key...)
	} else {
		dst = jsontext.AppendName(dst, asString(f.unescaped(key, form)))
	}
	return append(dst, '=')
}

// unescaped returns the text of the raw string s. The result is valid until the next call.
func (f *flattener) unescaped(s []byte, form form) []byte {
	if form != escapes {
		return s
	}
	f.text = jsontext.AppendUnescaped(f.text[:0], s)
	return f.text
}

// A form determines how the raw content of a JSON string becomes logfmt.
type form uint8

const (
	plain   form = iota // write it unchanged
	spaced              // put it in quotes
	unusual             // examine each character: it can need escapes
	escapes             // unescape, then examine each character
)

// stringAt returns the raw content of the valid string whose opening quote precedes b[i], its form,
// and the index after the closing quote. It examines eight bytes at a time.
func stringAt(b []byte, i int) (s []byte, is form, next int) {
	var quote, odd uint64
	for start := i; ; i += 8 {
		var w uint64
		if i+8 <= len(b) {
			w = binary.LittleEndian.Uint64(b[i:])
		} else {
			w = lastWord(b[i:])
		}
		end := jsontext.Special(w)
		spaces := ((w - 0x21*ones) | (w ^ '='*ones - ones)) &^ w
		others := (w^0x7f*ones-ones)&^w | w
		if end == 0 {
			quote |= spaces
			odd |= others
			continue
		}
		before := end&-end - 1
		quote |= spaces & before
		odd |= others & before
		i += bits.TrailingZeros64(end) >> 3
		switch {
		case b[i] == '\\':
			for i = i + 2; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			is = escapes
		case odd&highs != 0:
			is = unusual
		case quote&highs != 0 || i == start:
			is = spaced
		}
		return b[start:i], is, i + 1
	}
}

// lastWord returns a slice of fewer than eight bytes as a word, padded with quotes.
func lastWord(b []byte) uint64 {
	w := [8]byte{'"', '"', '"', '"', '"', '"', '"', '"'}
	copy(w[:], b)
	return binary.LittleEndian.Uint64(w[:])
}

// asString returns b as a string without a copy. b must not change while the string is in use.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
