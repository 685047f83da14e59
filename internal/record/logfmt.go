package record

import (
	"log/slog"
	"strconv"
	"strings"
)

// pairs calls yield with each key and value of a logfmt line, in order, until yield returns false.
// The values are raw, including quotes; the value of a key without '=' is nil. pairs returns false
// if yield did or if the line is not logfmt.
func pairs(line []byte, yield func(key, value []byte) bool) bool {
	for i := 0; ; {
		for i < len(line) && (line[i] == ' ' || line[i] == '\t') {
			i++
		}
		if i == len(line) {
			return true
		}
		start := i
		for i < len(line) && line[i] > ' ' && line[i] != '=' && line[i] != '"' {
			i++
		}
		key := line[start:i]
		if len(key) == 0 || i < len(line) && (line[i] == '"' || line[i] < ' ' && line[i] != '\t') {
			return false
		}
		if i == len(line) || line[i] != '=' {
			if !yield(key, nil) {
				return false
			}
			continue
		}
		i++
		start = i
		if i < len(line) && line[i] == '"' {
			for i++; i < len(line) && line[i] != '"'; i++ {
				if line[i] == '\\' {
					i++
				}
			}
			if i >= len(line) {
				return false
			}
			i++
		} else {
			for i < len(line) && line[i] > ' ' && line[i] != '"' {
				i++
			}
		}
		if i < len(line) && line[i] != ' ' && line[i] != '\t' {
			return false
		}
		if !yield(key, line[start:i:i]) {
			return false
		}
	}
}

// logfmtAttrs returns the pairs of a logfmt line as attributes. An unquoted value becomes a boolean
// or a number if formatting the result gives the same text; 1.10, 007 and 1e5 remain text. The
// value of a key without '=' is true.
func logfmtAttrs(line []byte) []slog.Attr {
	var attrs []slog.Attr
	pairs(line, func(key, value []byte) bool {
		attrs = append(attrs, slog.Attr{Key: string(key), Value: logfmtValue(value)})
		return true
	})
	return attrs
}

// IsText reports whether s, as an unquoted logfmt value, is a text rather than a number or a
// boolean.
func IsText(s string) bool { return logfmtValue([]byte(s)).Kind() == slog.KindString }

// logfmtValue returns the value of a raw logfmt value, see logfmtAttrs.
func logfmtValue(value []byte) slog.Value {
	if value == nil {
		return slog.BoolValue(true)
	}
	s := string(value)
	if strings.HasPrefix(s, `"`) {
		if strings.IndexByte(s, '\\') < 0 {
			return slog.StringValue(s[1 : len(s)-1])
		}
		return slog.StringValue(string(LogfmtText(value)))
	}
	switch s {
	case "true":
		return slog.BoolValue(true)
	case "false":
		return slog.BoolValue(false)
	}
	if len(s) > 20 || s == "" || s[0] != '-' && !isDigit(s[0]) {
		return slog.StringValue(s)
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(n, 10) == s && n > -1<<53 && n < 1<<53 {
		return slog.Int64Value(n)
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && strconv.FormatFloat(f, 'f', -1, 64) == s && f > -1<<53 && f < 1<<53 && s != "-0" {
		return slog.Float64Value(f)
	}
	return slog.StringValue(s)
}
