package loki

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/forebay-log/forebay/internal/jsontext"
)

// appendLabelsJSON converts labels in the syntax of Loki to a JSON object of strings and appends
// it.
func appendLabelsJSON(dst, labels []byte) []byte {
	dst = append(dst, '{')
	eachLabel(labels, func(name []byte, value string) {
		dst = jsontext.AppendString(jsontext.AppendKey(dst, string(name)), value)
	})
	return append(dst, '}')
}

// eachLabel calls f with each label of a label set in the syntax of Loki: {a="b", c="d"}. It stops at
// the first label that it cannot parse, and reports whether it has parsed all.
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

// lineLenJSON returns the length in bytes of the unescaped line of an entry in JSON form. Loki
// compares this length with its limit. If rec is not an entry, lineLenJSON returns the length of
// rec.
func lineLenJSON(rec []byte) int {
	e, ok := parseJSON(rec)
	var s string
	if !ok || json.Unmarshal(e.line, &s) != nil {
		return len(rec)
	}
	return len(s)
}
