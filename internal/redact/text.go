package redact

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// text redacts a text. If the text is JSON, or contains quoted JSON, the values of matching names
// are replaced. After that, the matches of the patterns are replaced. deep is the number of
// enclosing quoted texts.
func (w *Walker) text(s string, at span, deep int) (out string, changed bool) {
	if deep > maxTexts {
		return w.rules.text, true
	}
	if strings.IndexByte(s, '"') >= 0 && (w.rules.matchesNames() || strings.IndexByte(s, '\\') >= 0) {
		if isJSON(s) {
			s, changed = w.redactJSON(s, at, deep)
		} else if quoted, ch := w.redactFragments(s, at, deep); ch {
			s, changed = quoted, true
		}
	}
	m, ch := w.match(s)
	return m, changed || ch
}

// document redacts b, the JSON that a method returned. The result is JSON, unless a match of a
// pattern spans several elements of b.
func (w *Walker) document(b []byte, at span) (any, bool) {
	s := unsafeString(b)
	if !json.Valid(b) {
		return changedTo(w.text(s, at, 0))
	}
	s, changed := w.redactJSON(s, at, 0)
	if m, ch := w.match(s); ch {
		return m, true
	}
	if !changed {
		return nil, false
	}
	return json.RawMessage(s), true
}

// isJSON reports whether s is a JSON object or list.
func isJSON(s string) bool {
	t := strings.TrimLeft(s, " \t\r\n")
	return t != "" && (t[0] == '{' || t[0] == '[') && json.Valid(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// match replaces the matches of the patterns in s.
func (w *Walker) match(s string) (string, bool) {
	changed := false
	for _, re := range w.rules.patterns {
		if re.MatchString(s) {
			t := replace(re, s, w.rules.text)
			changed = changed || t != s
			s = t
		}
	}
	return s, changed
}

// replace replaces the matches of re in s with replacement. It does not replace empty matches, such
// as those of \b.
func replace(re *regexp.Regexp, s, replacement string) string {
	return re.ReplaceAllStringFunc(s, func(m string) string {
		if m == "" {
			return ""
		}
		return replacement
	})
}

// redactJSON redacts the text s, which is JSON.
func (w *Walker) redactJSON(s string, at span, deep int) (string, bool) {
	d := edit{src: s}
	w.json(&d, at, deep)
	return d.result()
}

// An edit reads a text once and replaces parts of it.
type edit struct {
	src  string
	pos  int
	out  []byte
	done int // length of the prefix of src that out replaces; 0: nothing is replaced so far
}

func (d *edit) replace(from, to int, text string) {
	d.out = append(append(d.out, d.src[d.done:from]...), text...)
	d.done = to
}

func (d *edit) result() (string, bool) {
	if d.done == 0 {
		return d.src, false
	}
	return string(append(d.out, d.src[d.done:]...)), true
}

func (d *edit) space() byte {
	for d.pos < len(d.src) {
		switch c := d.src[d.pos]; c {
		case ' ', '\t', '\r', '\n':
			d.pos++
		default:
			return c
		}
	}
	return 0
}

// json redacts the JSON value at d.pos, which must be valid.
func (w *Walker) json(d *edit, at span, deep int) {
	switch d.space() {
	case '{':
		d.pos++
		for d.space() != '}' {
			w.member(d, at, deep)
			if d.space() == ',' {
				d.pos++
			}
		}
		d.pos++
	case '[':
		mark := len(w.nodes)
		in, hit := w.element(at)
		d.pos++
		for d.space() != ']' {
			if from := d.pos; hit {
				d.skip()
				d.replace(from, d.pos, w.rules.quoted)
			} else {
				w.json(d, in, deep)
			}
			if d.space() == ',' {
				d.pos++
			}
		}
		d.pos++
		w.nodes = w.nodes[:mark]
	case '"':
		from := d.pos
		d.skip()
		w.redactString(d, from, d.pos, at, deep)
	default:
		from := d.pos
		d.skip()
		if text := d.src[from:d.pos]; text[0] != 't' && text[0] != 'f' && text[0] != 'n' {
			if s, ch := w.match(text); ch {
				d.replace(from, d.pos, string(jsontext.AppendString(nil, s)))
			}
		}
	}
}

// member redacts the member of an object at d.pos.
func (w *Walker) member(d *edit, at span, deep int) {
	from := d.pos
	d.skip()
	name := unescape(d.src[from+1 : d.pos-1])
	mark := len(w.nodes)
	next, hit := w.step(at, name)
	w.redactString(d, from, d.pos, at, deep)
	d.space()
	d.pos++ // skip the colon
	if d.space(); hit {
		from = d.pos
		d.skip()
		d.replace(from, d.pos, w.rules.quoted)
	} else {
		w.json(d, next, deep)
	}
	w.nodes = w.nodes[:mark]
}

// redactString redacts the string src[from:to], which includes its quotes.
func (w *Walker) redactString(d *edit, from, to int, at span, deep int) {
	raw := d.src[from+1 : to-1]
	if len(w.rules.patterns) == 0 && strings.IndexByte(raw, '\\') < 0 {
		return // it contains no quoted JSON
	}
	if s, ch := w.text(unescape(raw), at, deep+1); ch {
		d.replace(from, to, string(jsontext.AppendString(nil, s)))
	}
}

// skip moves past the JSON value at d.pos. If the value is not valid, it moves to the end of the
// valid part.
func (d *edit) skip() {
	depth := 0
	for d.pos < len(d.src) {
		switch c := d.src[d.pos]; c {
		case '"':
			d.pos += quotedLen(d.src[d.pos:])
		case '{', '[':
			depth++
			d.pos++
		case '}', ']':
			if depth == 0 {
				return
			}
			depth--
			d.pos++
		case ',', ' ', '\t', '\r', '\n', ':':
			if depth == 0 {
				return
			}
			d.pos++
			continue
		default:
			for d.pos < len(d.src) && !strings.ContainsRune("\"{}[],: \t\r\n", rune(d.src[d.pos])) {
				d.pos++
			}
		}
		if depth == 0 {
			return
		}
	}
}

// quotedLen returns the length of the quoted string at the beginning of s. The string may be
// truncated.
func quotedLen(s string) int {
	if n := jsontext.StringLen(s); n > 0 {
		return n
	}
	return len(s)
}

// redactFragments redacts a text that may contain JSON or parts of JSON. It searches for a quoted
// name with a colon. If a rule matches the name, the value after the colon is replaced.
func (w *Walker) redactFragments(s string, at span, deep int) (string, bool) {
	d := edit{src: s}
	for {
		i := strings.IndexByte(s[d.pos:], '"')
		if i < 0 {
			return d.result()
		}
		from := d.pos + i
		to := from + quotedLen(s[from:])
		raw := s[from+1 : to]
		if to-from > 1 && s[to-1] == '"' {
			raw = s[from+1 : to-1]
		}
		name := unescape(raw)
		d.pos = to
		if d.space() == ':' && w.mayEndAt(name) {
			d.pos++
			d.space()
			from = d.pos
			d.skip()
			d.replace(from, d.pos, w.rules.quoted)
			continue
		}
		if strings.IndexByte(raw, '\\') < 0 {
			d.pos = from + 1 // the quote may close a string, so the search continues after it
			continue
		}
		if t, ch := w.text(name, at, deep+1); ch {
			d.replace(from, to, string(jsontext.AppendString(nil, t)))
		}
		d.pos = to
	}
}

// mayEndAt reports whether some rule may match a value with the given name, in any group.
func (w *Walker) mayEndAt(name string) bool {
	r := w.rules
	if r.every {
		return true
	}
	for {
		part, rest, more := strings.Cut(name, ".")
		w.folded = fold(w.folded[:0], part)
		if r.matches(w.folded) || r.lastNames[string(w.folded)] {
			return true
		}
		if !more {
			return false
		}
		name = rest
	}
}

// unescape returns the value of the quoted string s, without its quotes. It accepts the escapes of
// JSON and of Go. In an unknown escape, it removes only the backslash.
func unescape(s string) string {
	var out []byte
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i == len(s)-1 {
			if out == nil {
				return s
			}
			return string(append(out, s...))
		}
		out, s = append(out, s[:i]...), s[i:]
		r, wide, rest, err := strconv.UnquoteChar(s, '"')
		switch {
		case err == nil && wide:
			out = utf8.AppendRune(out, r)
		case err == nil:
			out = append(out, byte(r))
		case surrogate(s) != 0:
			r, rest = surrogate(s), s[6:]
			if r = utf16.DecodeRune(r, surrogate(rest)); r != utf8.RuneError {
				rest = rest[6:]
			}
			out = utf8.AppendRune(out, r)
		default:
			rest = s[1:]
			out, rest = append(out, rest[0]), rest[1:]
		}
		s = rest
	}
}

// surrogate returns the surrogate at the beginning of s, which is written as \ud83d, or 0 if there
// is none.
func surrogate(s string) rune {
	if len(s) < 6 || s[:2] != `\u` {
		return 0
	}
	if n, err := strconv.ParseUint(s[2:6], 16, 16); err == nil && utf16.IsSurrogate(rune(n)) {
		return rune(n)
	}
	return 0
}
