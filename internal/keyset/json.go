package keyset

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// maxDepth limits the nesting of objects and lists, as in encoding/json.
const maxDepth = 10_000

// AppendJSON appends the JSON object obj to dst and makes the keys of each object in it unique. If
// the outermost object has the key oldKey but not the key newKey, the key is renamed to newKey. An
// empty newKey disables this. If obj is not a JSON object, the appended text is also invalid.
func (s *Set) AppendJSON(dst, obj []byte, oldKey, newKey string) []byte {
	s.CloseTo(0)
	start, copied := len(dst), 0
	oldAt, found := -1, newKey == "" // offset of oldKey in dst, and whether newKey was found
	key := false                     // the next string is a key
	for i := 0; i < len(obj); i++ {
		switch c := obj[i]; c {
		case '"':
			end := stringEnd(obj, i+1)
			if end < 0 {
				return append(dst[:start], obj...)
			}
			if key {
				key = false
				name := obj[i+1 : end]
				suffix, ok := s.nameJSON(name)
				if !ok {
					return append(dst[:start], obj...)
				}
				if len(s.objects) == 1 && !found {
					switch string(name) {
					case oldKey:
						if suffix == "" {
							oldAt = len(dst) + i + 1 - copied
						}
					case newKey:
						found = true
					}
				}
				if suffix != "" {
					dst = append(append(dst, obj[copied:end]...), suffix...)
					copied = end
				}
			}
			i = end
		case '{', '[':
			if len(s.objects) == maxDepth {
				return append(dst[:start], obj...)
			}
			key = c == '{'
			s.Open(nil)
			s.objects[len(s.objects)-1].list = !key
		case '}', ']':
			if len(s.objects) == 0 {
				return append(dst[:start], obj...)
			}
			key = false
			s.Close()
		case ',':
			key = len(s.objects) > 0 && !s.objects[len(s.objects)-1].list
		}
	}
	dst = append(dst, obj[copied:]...)
	if oldAt >= 0 && !found {
		dst = slices.Replace(dst, oldAt, oldAt+len(oldKey), []byte(newKey)...)
	}
	return dst
}

// nameJSON adds a key to the current object and returns the suffix that makes it unique. raw is the
// text between the quotes of the key. ok is false if raw is invalid.
func (s *Set) nameJSON(raw []byte) (suffix string, ok bool) {
	name := raw
	if bytes.IndexByte(raw, '\\') >= 0 || !utf8.Valid(raw) {
		if !json.Valid(append(append(append(s.text[:0], '"'), raw...), '"')) {
			return "", false
		}
		s.text = jsontext.AppendUnescaped(s.text[:0], raw)
		name = s.text
	}
	return s.Suffix(name), true
}

// stringEnd returns the index of the quotation mark that ends the string beginning at b[i], or -1.
func stringEnd(b []byte, i int) int {
	for from := i; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		back := i
		for back > from && b[back-1] == '\\' {
			back--
		}
		if (i-back)%2 == 0 {
			return i
		}
		i++
	}
}
