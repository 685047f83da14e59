package loki

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/values"
)

// Names of levels as Loki and Grafana know them.
var levelNames = values.LevelWords

// noLevel stands in place of the index of a level that is not known.
const noLevel = -1

// metaName is [labelname.Of] for metadata, whose names Loki makes simpler still: of
// several "_" in a row it keeps one, so that two names can become one, and for a name
// of nothing else it answers 500, again and again (otlptranslator.LabelNamer).
func metaName(name string) []byte { return simplify([]byte(labelname.Of(name)), 0) }

// simplify makes of buf[start:], a name that is sanitised, one that Loki leaves as it
// is: "key_" if it is of "_" alone.
func simplify(buf []byte, start int) []byte {
	name := buf[start:]
	to, other := 0, false
	for i, c := range name {
		if c == '_' && i > 0 && name[i-1] == '_' {
			continue
		}
		other = other || c != '_'
		name[to] = c
		to++
	}
	if !other {
		return append(buf[:start], "key_"...)
	}
	return buf[:start+to]
}

// another appends to buf what an attribute is called in metadata whose name has
// been given to n-1 others, n being 2 or more: a_b, a_b_, a_b_3, a_b_4. Loki leaves all
// of them as they are.
func another(buf, name []byte, n int) []byte {
	buf = append(buf, name...)
	open := name[len(name)-1] != '_'
	if open {
		buf = append(buf, '_')
	}
	if n == 2 && open {
		return buf
	}
	return strconv.AppendInt(buf, int64(n), 10)
}

// appendQuoted appends a label value quoted as LogQL reads it, which is how Go
// quotes strings. Loki refuses a request for U+FFFD in a label, as for bytes that
// are no UTF-8: a "?" stands for both.
func appendQuoted(dst, value []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(value[i:])
			if r == utf8.RuneError {
				dst = append(dst, '?')
			} else {
				dst = append(dst, value[i:i+n]...)
			}
			i += n - 1
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c < 0x20 || c == 0x7f:
			dst = append(dst, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// cutUTF8 returns the longest beginning of s of at most n bytes that does not end
// within a character.
func cutUTF8(s []byte, n int) []byte {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// checkTenant returns what is wrong with a tenant, "" if nothing: the rules of
// https://grafana.com/docs/mimir/latest/configure/about-tenant-ids/, which are
// Loki's.
func checkTenant(t []byte) string {
	if len(t) > 150 {
		return "it has more than 150 bytes"
	}
	if s := string(t); s == "." || s == ".." {
		return "it is . or .."
	}
	for _, c := range t {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!-_.*'()", c) >= 0) {
			return "it has characters other than letters, digits and !-_.*'()"
		}
	}
	return ""
}
