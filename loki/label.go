package loki

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/labelname"
	"github.com/forebay-log/forebay/internal/values"
)

// levelNames are the names of levels that Loki and Grafana recognize. The index of a name is the
// result of values.LevelIndex.
var levelNames = values.LevelWords

// noLevel is the level index of a line without a level. It is not an index of levelNames.
const noLevel = -1

// metaName returns the name of an attribute in structured metadata. It sanitizes the name like a
// label name and then simplifies it like Loki (otlptranslator.LabelNamer). Loki replaces several
// "_" by one, so two names can become equal. Loki responds with 500 to a name that consists only of
// "_".
func metaName(name string) []byte { return simplify([]byte(labelname.Of(name)), 0) }

// simplify converts buf[start:], a sanitized name, to a name that Loki does not change: several "_"
// become one, and a name that consists only of "_" becomes "key_". It overwrites the name in buf
// and returns buf with the new length.
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

// numberedName appends the metadata name for the nth attribute (n ≥ 2) whose metadata name would be
// the same. For a_b the results are a_b_, a_b_3, a_b_4. Loki does not change them.
func numberedName(buf, name []byte, n int) []byte {
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

// appendQuoted appends a label value in quotes, in the syntax of LogQL, in which strings are
// written as in Go. U+FFFD and invalid UTF-8 become "?", because Loki refuses labels that contain
// them.
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

// cutUTF8 returns the longest prefix of s that has at most n bytes and does not end within a
// character.
func cutUTF8(s []byte, n int) []byte {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// checkTenant returns the reason why a tenant name is invalid, or "". Loki has the same rules as Mimir:
// https://grafana.com/docs/mimir/latest/configure/about-tenant-ids/.
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

// eachLabel calls the function f with each label of a label set in the syntax of Loki: {a="b",
// c="d"}. It stops at the first label that it cannot parse, and reports whether it has parsed all
// labels.
func eachLabel(labels []byte, f func(name []byte, value string)) bool {
	rest := bytes.TrimSuffix(bytes.TrimPrefix(labels, []byte{'{'}), []byte{'}'})
	for more := len(rest) > 0; more; {
		name, after, ok := bytes.Cut(rest, []byte{'='})
		n := jsontext.StringLen(after)
		if !ok || n == 0 {
			return false
		}
		value, err := strconv.Unquote(string(after[:n]))
		if err != nil {
			return false
		}
		f(name, value)
		if rest, more = bytes.CutPrefix(after[n:], []byte(", ")); !more && len(rest) > 0 {
			return false
		}
	}
	return true
}

// appendLabelsJSON appends labels, given in the syntax of Loki, as a JSON object of strings.
func appendLabelsJSON(dst, labels []byte) []byte {
	dst = append(dst, '{')
	eachLabel(labels, func(name []byte, value string) {
		dst = jsontext.AppendString(jsontext.AppendKey(dst, string(name)), value)
	})
	return append(dst, '}')
}
